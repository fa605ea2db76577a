"""The messages that requests ask for: one of a stream, or many for one direct request. Pure."""

from typing import NamedTuple

from stan_protocol.patterns import literal

from stan import limits
from stan.protocol.jetstream.errors import RequestError, invalid_json
from stan.protocol.jetstream.json_data import Fields
from stan.protocol.jetstream.moments import read_moment
from stan.protocol.jetstream.streams import is_subject


class MessageChoice(NamedTuple):
    """A choice of one message."""

    sequence: int = 0  # it, or with `subject` the first one from there on; 0: the newest one of a subject
    subject: str = ""  # a pattern
    bare: bool = False  # without its headers

    @property
    def is_one(self) -> bool:
        """True if no other messages have to be looked at for it."""
        return not self.subject or (not self.sequence and literal(self.subject))


class Wish(NamedTuple):
    """A request for messages, as it was sent."""

    sequence: int  # 0: none is told, as with all other fields
    since: int  # Unix ns
    last: str  # the newest one of this subject
    after: str  # of this subject alone
    each: tuple[str, ...]  # the newest one of each of these subjects
    batch: int  # so many messages at most
    size: int  # bytes after which no further message follows
    until: int  # messages behind this sequence do not count
    until_time: int  # nor those that were stored at this time or later, Unix ns
    bare: bool  # without headers

    @property
    def empty(self) -> bool:
        """True if it says nothing about which messages."""
        return not (self.sequence or self.since or self.last or self.after or self.each)

    @property
    def many(self) -> bool:
        """True if it is for a batch."""
        return bool(self.batch or self.each)

    @property
    def valid(self) -> bool:
        """True if its fields go together, and name subjects."""
        wild = sum(not literal(one) for one in self.each)
        return (
            min(self.sequence, self.batch, self.size, self.until, self.until_time) >= 0
            and not (self.last and (self.sequence or self.since or self.after or self.batch or self.each))
            and not (self.after and self.each)
            and not (self.sequence and self.since)
            and not (self.until and self.until_time)
            and len(self.each) <= limits.DIRECT_SUBJECTS_MAX
            and wild <= limits.STREAM_CONSUMER_FILTERS_MAX
            and all(map(is_subject, self.each))
        )

    @property
    def matches_none(self) -> bool:
        """True if it names a subject that no message can have."""
        return not all(is_subject(one) for one in (self.last, self.after) if one)


def read_wish(fields: Fields) -> Wish:
    """The request in *fields*. Raises RequestError: a field of another type, or that nobody knows."""
    wish = Wish(
        sequence=fields.number("seq"),
        since=_moment(fields, "start_time"),
        last=fields.text("last_by_subj"),
        after=fields.text("next_by_subj"),
        each=fields.texts("multi_last"),
        batch=fields.number("batch"),
        size=fields.number("max_bytes"),
        until=fields.number("up_to_seq"),
        until_time=_moment(fields, "up_to_time"),
        bare=fields.switch("no_hdr"),
    )
    fields.end()
    return wish


def _moment(fields: Fields, name: str) -> int:
    told = fields.text(name)
    found = read_moment(told) if told else 0
    if found is None:
        raise RequestError(invalid_json(f"no time: {told[: limits.API_SHOWN_CHARS]}"))
    return found
