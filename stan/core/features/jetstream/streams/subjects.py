"""What the leader of a stream's channel knows by subject and by id: the newest message of each subject, and the ids of the last
messages. Memory alone, made of the log.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from stan_protocol.patterns import literal, matches
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.core.base.names import text
from stan.core.metadata.streams import Stream
from stan.protocol.jetstream.headers import MSG_ID

_DIGEST: Final = 16


class Stored(NamedTuple):
    """A message with an id."""

    sequence: int
    at: int  # Unix ns


def digest(message_id: bytes) -> bytes:
    """A message's id as it is remembered: a short one as it is, so that none can pass for a hash."""
    return message_id if len(message_id) < _DIGEST else blake2b(message_id, digest_size=_DIGEST).digest()


def id_of(message: wire.MsgProto) -> bytes:
    """The id that the publisher has given a message; b"" if it has none."""
    return next((header.value for header in message.headers if header.key == MSG_ID), b"")


class SubjectIndex:
    """The messages of one stream up to `through`. Cost: memory for each subject, and for each id of the duplicate window."""

    def __init__(self, stream: Stream) -> None:
        self.by_key = not stream.config.is_literal
        self.through = 0  # all messages up to this sequence are in it
        self.newest: dict[bytes, int] = {}  # the sequence of each subject's newest message, of streams with keys
        self.ids: dict[bytes, Stored] = {}  # in their order
        self.last_id = b""  # of the message `through`
        self.overfull = False  # there are more subjects than may be remembered

    def note(
        self, stream: Stream, sequence: int, key: bytes, message_id: bytes, at: int, *, gone: bool = False
    ) -> None:
        """Add a message; those before it are there, or are gone. *at*: when it was stored, Unix ns. *gone*: it was deleted, and
        its id is known for the rest of its time."""
        if self.by_key and not gone:
            subject = stream.subject_of(key)
            if subject not in self.newest and len(self.newest) >= limits.STREAM_INDEXED_MAX:
                self.overfull = True
            else:
                self.newest[subject] = sequence
        self.last_id = message_id
        if message_id:
            self.ids.pop(digest(message_id), None)
            self.ids[digest(message_id)] = Stored(sequence, at)
        self.through = max(self.through, sequence)

    def forget_ids(self, before: int) -> None:
        """Forget the ids of messages that were stored before *before*, Unix ns."""
        while self.ids:
            name, stored = next(iter(self.ids.items()))
            if stored.at >= before:
                return
            del self.ids[name]

    def duplicate(self, message_id: bytes, since: int) -> int:
        """The sequence of the message with that id that was stored at *since* (Unix ns) or later; 0: there is none."""
        found = self.ids.get(digest(message_id))
        return found.sequence if found is not None and found.at >= since else 0

    def matching(self, pattern: str) -> Iterator[tuple[bytes, int]]:
        """The subjects that a pattern covers, each with the sequence of its newest message. Cost: O(subjects) for a pattern with
        wildcards."""
        if literal(pattern):
            found = self.newest.get(pattern.encode())
            return iter([(pattern.encode(), found)] if found else [])
        return ((subject, at) for subject, at in self.newest.items() if matches(pattern, text(subject)))
