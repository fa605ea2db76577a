"""`stan durable to-consumer`: a position of STAN clients becomes a consumer of JetStream clients, at the same place.

    the position, offline ─► a stream over its channel ─► a position of the consumer's name ─► the consumer ─► the old one ends

Promises: the consumer's first messages are those that the position has not acknowledged, flagged if they were delivered before; a
command that is interrupted loses nothing, and goes on when it is given again.
"""

import re
from typing import Final

import stan_client
from stan_client.transport.connection import ClientConnection
from stan_protocol.admin_types import CursorRef, CursorStatus
from stan_protocol.nats_client import Error as NatsError
from stan_protocol.scalars import SECOND

from stan.cli.support.common import EXIT_NO_ANSWER, EXIT_UNREACHABLE, CliError, Target
from stan.cli.support.jetstream_api import ApiRefusalError, StreamsApi
from stan.cli.support.output import done
from stan.core.state.consumers import CONSUMERS
from stan.status.positions import full_name

CONNECT_S: Final = 2.0
ANSWER_S: Final = 10.0
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


async def become_consumer(
    direct: stan_client.Direct, target: Target, cursor: CursorStatus, consumer: str, stream: str
) -> None:
    """Make *consumer* out of *cursor*, and end *cursor*; *stream*: its name if it has to be made. Raises CliError."""
    if cursor.members:
        raise CliError(f"{full_name(cursor)} of channel {cursor.channel} has subscribers: stop its clients first.")
    link = ClientConnection()
    try:
        await link.open(target.server.split(","), target.nats_options(), CONNECT_S)
    except stan_client.StanClientError as error:
        raise CliError(str(error), EXIT_UNREACHABLE) from None
    api = StreamsApi(link, ANSWER_S)
    try:
        stream = await _stream_of(api, cursor.channel, stream)
        await _make(direct, api, cursor, consumer, stream)
    except ApiRefusalError as error:
        raise CliError(f"The server refuses: {error}.") from None
    except (NatsError, TimeoutError):
        raise CliError(
            "No server answers clients of JetStream: start them with --jetstream_api.", EXIT_NO_ANSWER
        ) from None
    finally:
        await link.shut()
    await direct.admin.delete_cursor(CursorRef(cursor.channel, cursor_id=cursor.cursor_id))
    done(f"{full_name(cursor)} of channel {cursor.channel} is now consumer {consumer} of stream {stream}.")


async def _make(direct: stan_client.Direct, api: StreamsApi, cursor: CursorStatus, consumer: str, stream: str) -> None:
    place = f"{stream}.{consumer}"
    if await api.find(f"CONSUMER.INFO.{place}") is not None:
        raise CliError(f"Stream {stream} has a consumer {consumer} already: choose another name with --consumer.")
    config = {
        "durable_name": consumer,
        "ack_policy": "explicit",
        "ack_wait": cursor.ack_wait_s * SECOND,
        "max_ack_pending": cursor.max_in_flight,
        "filter_subject": cursor.channel,
    }
    try:
        named = CursorRef(cursor.channel, client_id=CONSUMERS.decode(), durable_name=consumer)
        await direct.admin.create_cursor(named, like=CursorRef(cursor.channel, cursor_id=cursor.cursor_id))
    except stan_client.ServerError as error:
        if error.code != "cursor_exists":  # by an earlier run of this command, which did not come to its end
            raise
    await api.ask(f"CONSUMER.DURABLE.CREATE.{place}", {"stream_name": stream, "config": config})


async def _stream_of(api: StreamsApi, channel: str, name: str) -> str:
    """The stream whose only subject is *channel*; it is made if there is none. Raises CliError: it is one of several subjects."""
    names = (await api.ask("STREAM.NAMES", {"subject": channel})).get("streams") or []
    if not names:
        name = name or _NOT_IN_A_NAME.sub("_", channel)
        await api.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": [channel]})
        return name
    (found,) = names
    subjects = (await api.ask(f"STREAM.INFO.{found}"))["config"]["subjects"]
    if subjects != [channel]:
        raise CliError(f"Stream {found} has the subject {channel}, and keeps it in another channel.")
    if name not in ("", found):
        raise CliError(f"The stream of channel {channel} is {found}, not {name}.")
    return str(found)
