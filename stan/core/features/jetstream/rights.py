"""Rights of clients of JetStream: NATS tells the user of each request, and the permissions say what this user may do.

Such clients have no client id, so rules that name one are not about them. Without permissions everybody may do everything, and
nothing is looked up.
"""

from collections.abc import Callable, Iterable
from typing import Final

from stan_protocol.channels import REPLIES
from stan_protocol.frames import Frame
from stan_protocol.patterns import ONE, overlap
from stan_protocol.refusals import go_quote

from stan.core.base.names import raw, text
from stan.core.metadata.streams import Stream
from stan.core.services.senders import Authorizer
from stan.core.services.services import Services
from stan.core.state.cursors import Cursor
from stan.limits import STREAM_CONSUMER_LASTING_MIN
from stan.permissions import Right
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.api import CHANGES, OWNS, SEES, ApiRow
from stan.protocol.jetstream.consumers import ConsumerConfig
from stan.protocol.jetstream.errors import (
    HEADER_TOO_LARGE,
    NO_INBOX,
    OTHERS_CONSUMER,
    ApiError,
    RequestError,
    invalid_config,
    not_permitted,
)
from stan.protocol.jetstream.streams import StreamConfig
from stan.protocol.user_subjects import BROKER, FROM, from_any_user, sent_by, stream_tokens

_NO_CLIENT: Final = b""
_ROLLUP_ALL: Final = b"all"
_OF_RIGHTS: Final = (headers.SCHEDULE_TARGET, headers.ROLLUP)
"""Headers of messages that need further rights."""
MANAGES: Final = (Right.ADMIN_READ, Right.ADMIN_WRITE)
"""Rights of operators, of which one is needed to see the consumers of others."""


class JetStreamRights:
    """Judges what users may do with streams and consumers. A user is "" where NATS tells none."""

    def __init__(self, services: Services) -> None:
        self.node, self._senders = services.node, services.senders

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer; None without permissions."""
        return self._senders.authorizer

    @property
    def with_users(self) -> bool:
        """True if NATS tells which user asks."""
        return self.authorizer is not None and self.authorizer.with_users

    # --- users ------------------------------------------------------------------------------------------------------------

    def listened(self, subject: str) -> str:
        """The subject on which this node listens, to receive messages of clients on *subject*."""
        return from_any_user(subject) if self.with_users else subject

    def own(self, subject: str) -> str:
        """The subject on which nodes of this cluster say to each other what clients say on *subject*."""
        return f"{FROM}.{BROKER}.{subject}" if self.with_users else subject

    def sent_by(self, frame: Frame) -> tuple[str, Frame] | None:
        """Return the user of a message, and the message as the client sent it; None: it has to be left alone."""
        return sent_by(frame) if self.with_users else ("", frame)

    def owner(self, cursor: Cursor) -> str:
        """The user to whom a consumer belongs; "": nobody, as without users, or if its user is not configured any more."""
        return self.owner_named(cursor.user)

    def owner_named(self, user: bytes) -> str:
        """The same, by the user of its cursor."""
        owned = self.with_users and self.authorizer is not None and self.authorizer.is_user(user)
        return text(user) if owned else ""

    # --- rights -----------------------------------------------------------------------------------------------------------

    def has(self, user: str, rights: Iterable[Right], channel: bytes) -> bool:
        """True if a user has one of *rights* to a channel, or to all that a pattern covers."""
        if self.authorizer is None or user == BROKER:
            return True
        return any(self.authorizer.permissions.allows(user, _NO_CLIENT, right, channel) for right in rights)

    def refusal(self, user: str, rights: tuple[Right, ...], channel: bytes) -> ApiError | None:
        """Return why a user may not do what needs one of *rights*, the first of which the refusal names; None if it may."""
        return self._refusal(user, rights, channel, channel)

    def _refusal(self, user: str, rights: tuple[Right, ...], channel: bytes, named: bytes) -> ApiError | None:
        """Return what `refusal` does. *named*: the name of the channel in the text, as the user may not know its own."""
        if self.has(user, rights, channel) or self.authorizer is None:
            return None
        return not_permitted(self.authorizer.refusal(user, _NO_CLIENT, rights[0], named))

    def _known_as(self, user: str, stream: Stream) -> bytes:
        """The channel of a stream as a user may know it, who named the stream: one that may not see it learns no other name."""
        return stream.channel if self.sees(user, stream) else raw(stream.name)

    def request_refusal(self, user: str, row: ApiRow, stream: Stream | None, name: str) -> ApiError | None:
        """Return why a user may not ask for something of a stream; None if it may, or if the request's handler judges.
        *name*: of the stream, which may not be there."""
        if not row.rights or self.authorizer is None:
            return None
        if stream is not None and Right.PUBLISH in row.rights and self.sees(user, stream):
            return None
        if stream is None:
            return self.refusal(user, row.rights, raw(name))
        return self._refusal(user, row.rights, stream.channel, self._known_as(user, stream))

    def sees(self, user: str, stream: Stream) -> bool:
        """True if a user may know of a stream: one with a right to its channel, or to publish to a subject of it."""
        publishes = any(self.has(user, (Right.PUBLISH,), raw(one)) for one in stream.config.subjects)
        return publishes or self.has(user, SEES, stream.channel)

    def is_concerned(self, user: str) -> bool:
        """True if a user has any right."""
        if self.authorizer is None or user == BROKER:
            return True
        return any(self.authorizer.permissions.has(user, _NO_CLIENT, right) for right in Right)

    # --- streams ----------------------------------------------------------------------------------------------------------

    def check_stream(self, user: str, config: StreamConfig, known: Stream | None) -> None:
        """Refuse to make a stream, or to change *known*, without the rights. Raises RequestError."""
        if self.authorizer is None:
            return
        asked = [*map(raw, config.subjects)] + [config.channel] * (known is None)
        names = {channel: channel for channel in asked}
        if known is not None:
            hidden = not self.sees(user, known)
            for channel in (config.channel, known.channel, *map(raw, known.config.subjects)):
                names.setdefault(channel, raw(known.name) if hidden else channel)
        for channel, named in names.items():
            error = self._refusal(user, CHANGES, channel, named)
            if error is not None:
                raise RequestError(error)
        if not self.may_have(config):
            raise RequestError(invalid_config("a stream's subjects can not overlap with those of replies"))
        firsts = {subject.partition(".")[0] for subject in config.subjects} - {ONE}
        for unknown in sorted(firsts - stream_tokens(self.node.config) if self.with_users else ()):
            why = (
                f"no rule of the permissions names subjects that begin with {go_quote(unknown)}: no message would come"
            )
            raise RequestError(invalid_config(why))

    def check_details(self, user: str, stream: Stream) -> None:
        """Refuse to show which subjects the messages of a stream have. Raises RequestError."""
        error = self.refusal(user, OWNS, stream.channel)
        if error is not None:
            raise RequestError(error)

    def may_have(self, config: StreamConfig) -> bool:
        """False if what clients are sent would be stored in a stream of that configuration."""
        prefixes = self.node.config.reply_prefixes if self.with_users else ()
        taken = [f"{prefix.partition('.')[0]}.>" for prefix in prefixes]
        return not any(overlap(subject, one) for one in taken for subject in config.subjects)

    def may_publish(self, user: str, subjects: Callable[[], Iterable[bytes]]) -> bool:
        """True if a user may publish to all *subjects*, which are looked for if there are permissions."""
        return self.authorizer is None or all(self.has(user, (Right.PUBLISH,), subject) for subject in subjects())

    def publish_refusal(self, user: str, stream: Stream, frame: Frame) -> ApiError | None:
        """Return why a user may not publish a message; None if it may. A schedule needs the right to publish to its target, too;
        to remove all messages with it needs the right to change the channel."""
        error = self.refusal(user, (Right.PUBLISH,), frame.subject)
        if error is not None or not any(name in frame.header for name in _OF_RIGHTS):
            return error
        if headers.too_large(frame.header):
            return HEADER_TOO_LARGE
        fields = headers.parse(frame.header)
        targets = (value for name, value in fields if name == headers.SCHEDULE_TARGET)
        refusals = (self.refusal(user, (Right.PUBLISH,), target) for target in targets)
        values = [value for name, value in fields if name == headers.ROLLUP]
        replaces_all = _ROLLUP_ALL in values or (stream.config.is_literal and bool(values))
        error = next(filter(None, refusals), None)
        return error or (self.refusal(user, CHANGES, stream.channel) if replaces_all else None)

    # --- consumers --------------------------------------------------------------------------------------------------------

    def check_consumer(self, user: str, stream: Stream, config: ConsumerConfig, cursor: Cursor | None) -> None:
        """Refuse a consumer that a user may not make, or change if it has a *cursor* already. Raises RequestError."""
        if self.authorizer is None:
            return
        error = self.refusal(user, (Right.DURABLE,), stream.channel) if _lasts(config) else None
        if cursor is not None and self.owner(cursor) not in ("", user):
            error = OTHERS_CONSUMER
        if error is None and config.pushes and not self.may_deliver_to(raw(config.deliver_subject)):
            error = NO_INBOX
        if error is not None:
            raise RequestError(error)

    def may_deliver_to(self, subject: bytes) -> bool:
        """True if messages of consumers may go to a subject; with users an inbox: never where the broker itself listens."""
        prefixes = (*REPLIES, *self.node.config.reply_prefixes)
        return not self.with_users or subject.startswith(tuple(map(raw, prefixes)))

    def may_consume(self, cursor: Cursor, config: ConsumerConfig) -> bool:
        """True if the user of a consumer may get messages by it."""
        if self.authorizer is None:
            return True
        channel, user = self.node.meta.by_uid[cursor.uid].name, self.owner(cursor)
        rights = (Right.SUBSCRIBE, Right.DURABLE) if _lasts(config) else (Right.SUBSCRIBE,)
        return all(self.has(user, (right,), channel) for right in rights)

    def lists(self, user: str, stream: Stream, cursor: Cursor) -> bool:
        """True if a list shows a consumer to a user: those of others operators alone see."""
        seen = not self.with_users or self.has(user, MANAGES, stream.channel)
        return seen or self.owner(cursor) in ("", user)

    def consumer_refusal(self, user: str, stream: Stream, cursor: Cursor, *, changes: bool) -> ApiError | None:
        """Return why a user may not see a consumer, or pause or delete it (*changes*); None if it may: its own, and with the
        rights of operators all."""
        rights = CHANGES if changes else MANAGES
        if self.authorizer is None or self.has(user, rights, stream.channel):
            return None
        owner = self.owner(cursor)
        if owner not in ("", user):
            return OTHERS_CONSUMER
        return None if owner == user else self.refusal(user, (Right.DURABLE,), stream.channel)


def _lasts(config: ConsumerConfig) -> bool:
    """True if a consumer needs the right to keep durables: it stays although nobody asks for its messages for long."""
    return config.durable or not 0 < config.inactive_threshold <= STREAM_CONSUMER_LASTING_MIN
