"""Requests to commit staged rows: the names of txns stand in a request once, however many channels have parts of them."""

from collections.abc import Mapping, Sequence

from stan_protocol.proto import extension_pb2 as pb


def commit_request(
    app: bytes, version: int, channels: Mapping[bytes, Sequence[tuple[bytes, int]]], writer: bytes = b""
) -> pb.CommitRequest:
    """Return a request; *channels*: for each, the txns in the order of their rows, with their numbers of parts there. The first
    channel determines which server answers."""
    numbers: dict[bytes, int] = {}
    shares = [
        pb.ChannelTxns(
            channel=name,
            parts=[each for txn, parts in txns for each in (numbers.setdefault(txn, len(numbers)), parts)],
        )
        for name, txns in channels.items()
    ]
    first, *more = shares
    return pb.CommitRequest(
        app=app, version=version, channel=first.channel, parts=first.parts, writer=writer, more=more, txns=[*numbers]
    )
