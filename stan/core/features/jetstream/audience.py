"""The users who get advisories about a stream or a consumer: those whose INFO request about it is answered."""

from collections.abc import Callable
from typing import Final

from stan.core.base.names import raw
from stan.core.features.jetstream.rights import MANAGES, JetStreamRights
from stan.core.metadata.streams import Stream
from stan.permissions import Right
from stan.protocol.jetstream.api import READS

EVERYBODY: Final = (b"",)
"""The audience without users."""


class Audience:
    """Finds the users who may know of something, at the time when it happens; EVERYBODY if NATS reports no users."""

    def __init__(self, rights: JetStreamRights) -> None:
        self._rights = rights

    def of_stream(self, *known: Stream | None) -> tuple[bytes, ...]:
        """Users who may see a stream as one of *known*: as it is, and as it was. None: it was not there. Cost: O(users)."""
        return self._users(lambda user: any(self._rights.sees(user, one) for one in known if one is not None))

    def of_consumer(self, channel: bytes, user: bytes) -> tuple[bytes, ...]:
        """Users who may see a consumer: its owner, and those who manage the channel. *user*: as of its cursor; of a consumer that
        belongs to nobody, all who may have a durable there. Cost: O(users)."""
        rights, owner = self._rights, self._rights.owner_named(user)

        def may_see(name: str) -> bool:
            if rights.has(name, MANAGES, channel):
                return True
            concerned = owner == name if owner else rights.has(name, (Right.DURABLE,), channel)
            return concerned and rights.has(name, READS, channel)

        return self._users(may_see)

    def _users(self, may_know: Callable[[str], bool]) -> tuple[bytes, ...]:
        authorizer = self._rights.authorizer
        if authorizer is None or not authorizer.with_users:
            return EVERYBODY
        return tuple(raw(user.name) for user in authorizer.permissions.users if may_know(user.name))
