"""The messages of a channel for the browser: the newest, those from a sequence or a time on, or one message in full.

Payloads are any bytes, so they are sent as base64, and only their first DASHBOARD_PREVIEW_BYTES until the page asks for one in
full. Of a key and of headers, too, only the beginning is sent.
"""

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

from stan_protocol.fetches import messages
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.monitor.dashboard.formatting import millis
from stan.monitor.dashboard.schemas import ChannelSchema
from stan.monitor.page_format import shown
from stan.monitor.view import CooperativeYield

Json = dict[str, Any]


class MessageQuery(NamedTuple):
    """A request for messages: from a sequence, else from a time, else the newest ones."""

    channel: bytes
    sequence: int = 0  # first one; 0: not given
    time: int = 0  # Unix ns; 0: not given
    last: int = 0  # last sequence; 0: the end of the channel
    limit: int = 50  # messages at most


async def page(cluster_client: ClusterClient, query: MessageQuery, schema: ChannelSchema) -> Json:
    """Return messages ordered by sequence, decoded by *schema*, and the first and last sequence of the channel. Errors as of
    `ClusterClient.ask`."""
    request = pb.FetchRequest(channel=query.channel, max_messages=query.limit, last=query.last)
    if query.sequence:
        request.from_sequence = query.sequence
    elif query.time:
        request.from_time = query.time
    else:
        request.newest = query.limit
    shown: list[Json] = []
    first = last = 0
    time_slice = CooperativeYield()
    for _ in range(limits.DASHBOARD_FETCHES_MAX):
        answer = await cluster_client.ask("fetch", request, pb.FetchResponse)
        for message in messages_of(answer):
            shown.append(shown_message(message, schema))
            await time_slice.yield_if_due()
        if answer.last_sequence:  # 0 if a large message left no room for it in the answer
            first, last = int(answer.first_sequence), int(answer.last_sequence)
        elif shown:
            answer.next_sequence = shown[-1]["sequence"] + 1
        end = min(query.last or last, last) if last else query.last
        if len(shown) >= query.limit or (last and answer.next_sequence > end) or not answer.next_sequence:
            break
        request = pb.FetchRequest(
            channel=query.channel,
            from_sequence=answer.next_sequence,
            last=query.last,
            max_messages=query.limit - len(shown),
        )
    return {"first": first, "last": last, "messages": shown}


async def read_one(cluster_client: ClusterClient, channel: bytes, sequence: int) -> wire.MsgProto | None:
    """Return one message in full; None if it does not exist. Errors as of `ClusterClient.ask`."""
    request = pb.FetchRequest(channel=channel, from_sequence=sequence, last=sequence, max_messages=1)
    answer = await cluster_client.ask("fetch", request, pb.FetchResponse)
    return next(messages_of(answer), None)


def messages_of(answer: pb.FetchResponse) -> Iterator[wire.MsgProto]:
    """Yield the messages of an answer."""
    runs = answer.runs or ([pb.Run(count=1)] if answer.records else [])  # none beside a very large message
    for body in messages(answer.records, runs):
        yield wire.MsgProto.FromString(body)


def shown_message(message: wire.MsgProto, schema: ChannelSchema) -> Json:
    """Return a message for the browser, with its data as *schema* decodes it."""
    data = message.data[: limits.DASHBOARD_PREVIEW_BYTES]
    return {
        "sequence": message.sequence,
        "time": millis(message.timestamp),
        "size": len(message.data),
        "data": base64.b64encode(data).decode(),
        "whole": len(data) == len(message.data),
        "decoded": schema.shown(message),
        "reply": shown(message.reply),
        "key": _short(message.key),
        "headers": [
            [_short(header.key), _short(header.value)] for header in message.headers[: limits.DASHBOARD_HEADERS_MAX]
        ],
        "more_headers": max(0, len(message.headers) - limits.DASHBOARD_HEADERS_MAX),
    }


def _short(raw: bytes) -> str:
    """Return the beginning of a text, with an ellipsis if there is more."""
    text = shown(raw)
    room = limits.DASHBOARD_TEXT_CHARS
    return text if len(text) <= room else f"{text[:room]}…"
