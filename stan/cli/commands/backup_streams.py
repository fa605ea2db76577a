"""Streams of JetStream in a backup: the descriptions of streams and of their consumers, saved and put back."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import stan_client
from stan_protocol.admin_types import CursorStatus, ReadStreamResponse
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.records import to_pb

from stan.cli.commands.archive import SavedChannel, Writer
from stan.core.state.consumers import CONSUMERS


async def save_stream(admin: stan_client.Admin, name: str, path: Path) -> list[ReadStreamResponse]:
    """Save the stream of a channel and its consumers; returns the pages that were written, none if it has no stream. It comes
    before the positions, so that a consumer without one was deleted meanwhile. Raises ServerError, OSError."""
    try:
        pages = [await admin.read_stream(name)]
        while pages[-1].more:
            pages.append(await admin.read_stream(name, pages[-1].after))
    except stan_client.ServerError as error:
        if error.code != "unknown_channel":
            raise
        return []
    if not pages[0].stream:
        return []
    writer = Writer(path)
    try:
        for page in pages:
            writer.write(to_pb(pb.ReadStreamResponse, page).SerializeToString())
    finally:
        writer.close()
    return pages


def with_stream(saved: SavedChannel, pages: Sequence[ReadStreamResponse]) -> SavedChannel:
    """The channel, with what `save_stream` has written of it."""
    if not pages:
        return saved
    consumers = sum(len(page.consumers) for page in pages)
    return replace(saved, stream=True, adopted=pages[0].adopted, consumers=consumers)


async def put_stream_back(admin: stan_client.Admin, channel: str, described: ReadStreamResponse) -> bool:
    """Make the stream of a channel; False: these servers have no clients of JetStream. Raises ServerError."""
    try:
        await admin.restore_stream(channel, described.stream)
    except stan_client.ServerError as error:
        if error.code != "jetstream_off":
            raise
        return False
    return True


async def put_consumers_back(
    admin: stan_client.Admin, channel: str, described: ReadStreamResponse, positions: Iterable[CursorStatus]
) -> None:
    """Make the consumers of a stream whose positions were put back. Raises ServerError."""
    restored = {one.durable_name for one in positions if one.client_id == CONSUMERS.decode()}
    for consumer in described.consumers:
        if json.loads(consumer)["name"] in restored:  # else it was deleted while the backup was made
            await admin.restore_consumer(channel, consumer)
