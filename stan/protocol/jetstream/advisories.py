"""Advisories of JetStream: what happens to streams, to consumers, and to messages that a consumer gives up, as JSON. Pure.

They are published on `$JS.EVENT.ADVISORY.…`, and nobody answers them. Subjects, types and fields are those of nats-server. Where
there are users, each that may know of it gets a copy, with the same id.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from hashlib import blake2b
from typing import Final

from stan_protocol.channels import publication

from stan.protocol.jetstream.json_data import encode
from stan.protocol.jetstream.moments import shown_moment
from stan.protocol.user_subjects import inbox_of

PREFIX: Final = "$JS.EVENT.ADVISORY"
_TYPE: Final = "io.nats.jetstream.advisory.v1"
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH: Final = 22
STREAM_ACTIONS: Final = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}
CONSUMER_ACTIONS: Final = {"create": "CREATED", "delete": "DELETED"}


class AdvisoryMaker:
    """Makes the frames of advisories, one for each of the *users* who get it; b"": everybody, without users."""

    def __init__(self, node: str) -> None:
        """*node*: a name that gives ids which no other node gives."""
        self._node = node
        self._made = 0

    def of_stream(self, users: Seq[bytes], at: int, stream: str, action: str) -> list[bytes]:
        """A stream was made, changed or deleted; *at*: when, Unix ns."""
        subject = f"STREAM.{STREAM_ACTIONS[action]}.{stream}"
        return self._frames(users, at, subject, "stream_action", stream=stream, action=action)

    def of_consumer(self, users: Seq[bytes], at: int, names: tuple[str, str], action: str) -> list[bytes]:
        """A consumer was made or deleted; *names*: of its stream, and its own."""
        stream, consumer = names
        subject = f"CONSUMER.{CONSUMER_ACTIONS[action]}.{stream}.{consumer}"
        return self._frames(users, at, subject, "consumer_action", stream=stream, consumer=consumer, action=action)

    def of_spent(
        self, users: Seq[bytes], at: int, names: tuple[str, str], sequence: int, deliveries: int
    ) -> list[bytes]:
        """A message was delivered as often as its consumer allows, and is not delivered any more."""
        stream, consumer = names
        subject = f"CONSUMER.MAX_DELIVERIES.{stream}.{consumer}"
        told = {"stream": stream, "consumer": consumer, "stream_seq": sequence, "deliveries": deliveries}
        return self._frames(users, at, subject, "max_deliver", **told)

    def of_terminated(
        self, users: Seq[bytes], at: int, names: tuple[str, str], message: Mapping[str, object]
    ) -> list[bytes]:
        """A client does not want a message any more; *message*: its numbers, and the reason if there is one."""
        stream, consumer = names
        subject = f"CONSUMER.MSG_TERMINATED.{stream}.{consumer}"
        return self._frames(users, at, subject, "terminated", stream=stream, consumer=consumer, **message)

    def _frames(self, users: Seq[bytes], at: int, subject: str, kind: str, **told: object) -> list[bytes]:
        if not users:
            return []
        self._made += 1
        head = {
            "type": f"{_TYPE}.{kind}",
            "id": _identifier(f"{self._node} {at} {subject} {self._made}"),
            "timestamp": shown_moment(at),
        }
        whole, payload = f"{PREFIX}.{subject}".encode(), encode(head | told)
        return [publication(inbox_of(user, whole), payload) for user in users]


def _identifier(seed: str) -> str:
    """An id as nats-server's are, of letters and digits."""
    number, letters = int.from_bytes(blake2b(seed.encode(), digest_size=20).digest()), []
    for _ in range(_ID_LENGTH):
        number, at = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[at])
    return "".join(letters)
