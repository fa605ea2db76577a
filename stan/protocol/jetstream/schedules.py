"""Schedules of messages, as their headers have them: a message that is to be published to another subject, once or repeatedly.

Its time is in `Nats-Schedule` (`@at 2027-01-01T00:00:00Z`, or `@every 5m`), the other subject, of the same stream, in
`Nats-Schedule-Target`; `Nats-Schedule-TTL` tells the time to live of a message that is published then.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stan_protocol.patterns import literal, matches
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND
from stan_protocol.units import parse_duration

from stan import limits
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.errors import (
    INVALID_SCHEDULE,
    INVALID_SCHEDULE_ROLLUP,
    INVALID_SCHEDULE_TTL,
    INVALID_SCHEDULER,
    INVALID_SOURCE,
    INVALID_TARGET,
    NO_SCHEDULES,
    NO_TTL,
    ApiError,
)
from stan.protocol.jetstream.moments import read_moment, shown_moment
from stan.protocol.jetstream.streams import StreamConfig, is_subject

_AT: Final = b"@at "
_EVERY: Final = b"@every "
_LEFT_OUT: Final = (headers.SCHEDULE, b"Nats-Expected-")
"""How names of headers begin that only the schedule has."""
_ITS_OWN: Final = (headers.MSG_ID, headers.TTL, headers.ROLLUP)
"""Further headers that only the schedule has."""
PURGE: Final = b"purge"
"""Says in a published message that its schedule is gone."""


class ScheduleFields(NamedTuple):
    """Holds what the headers of a schedule say."""

    due: int  # Unix ns; of a repeating one: the first time
    every: int  # ns from one time to the next; 0: it does not repeat
    target: bytes
    ttl: int  # of what is published, ns; 0: it stays
    ttl_header: bytes  # as the schedule has it; b"": it has none


def of_fields(fields: Mapping[bytes, bytes], now: int) -> ScheduleFields | None:
    """The headers of a schedule that is stored *now* (Unix ns), read; None: it is none, or one that cannot be carried out."""
    pattern, ttl_header = fields.get(headers.SCHEDULE, b""), fields.get(headers.SCHEDULE_TTL, b"")
    due, every = _times(pattern, now)
    ttl = headers.time_to_live(ttl_header) if ttl_header else 0
    if due is None or ttl is None or headers.SCHEDULE_ZONE in fields:
        return None
    return ScheduleFields(max(1, due), every, fields.get(headers.SCHEDULE_TARGET, b""), ttl, ttl_header)


def _times(pattern: bytes, now: int) -> tuple[int | None, int]:
    """The first time of a pattern, Unix ns, None: never; and the ns to the next one, 0: there is none."""
    if pattern.startswith(_AT):
        return read_moment(_text(pattern[len(_AT) :])), 0
    try:
        every = parse_duration(_text(pattern[len(_EVERY) :])) if pattern.startswith(_EVERY) else 0
    except ValueError:
        every = 0
    return (_second(now) + every, every) if SECOND <= every <= limits.DELAY_MAX else (None, 0)


def _second(at: int) -> int:
    """A moment, Unix ns, rounded to the second."""
    return (at + SECOND // 2) // SECOND * SECOND


def after(due: int, every: int, now: int) -> int:
    """The time of a repeating schedule that follows *due*; times that were missed are left out. All but *every* in Unix ns."""
    following = _second(due) + every
    return following if following >= now else _second(now) + every


def of_message(message: wire.MsgProto) -> ScheduleFields | None:
    """The headers of a stored message, as `of_fields` reads them."""
    return of_fields(dict(reversed(headers.of_message(message))), message.timestamp)


def refusal(fields: Mapping[bytes, bytes], subject: bytes, config: StreamConfig, now: int) -> ApiError | None:
    """Why a stream does not take a message with these headers, in the order in which NATS's own server looks; None: nothing about
    schedules stands against it.

    Args:
        fields: the headers, by name.
        subject: of the message.
        config: of its stream.
        now: Unix ns.
    """
    error = None
    if fields.get(headers.SCHEDULE):
        error = (
            _fault(fields, now) or _target_fault(fields, subject, config) if config.allow_schedules else NO_SCHEDULES
        )
    told = fields.get(headers.SCHEDULER) or fields.get(headers.SCHEDULE_NEXT)
    return error or (INVALID_SCHEDULER if told else None)


def _fault(fields: Mapping[bytes, bytes], now: int) -> ApiError | None:
    """Why nothing can be published as the headers say, wherever it goes; None if it can."""
    ttl = fields.get(headers.SCHEDULE_TTL)
    if ttl and headers.time_to_live(ttl) is None:
        return INVALID_SCHEDULE_TTL
    wanted = of_fields(fields, now)
    if wanted is None or wanted.due > now + limits.DELAY_MAX:
        return INVALID_SCHEDULE
    return INVALID_SCHEDULE_ROLLUP if fields.get(headers.SCHEDULE_ROLLUP) else None


def _target_fault(fields: Mapping[bytes, bytes], subject: bytes, config: StreamConfig) -> ApiError | None:
    """Why nothing can be published where the headers say, or from there; None if it can."""
    target = fields.get(headers.SCHEDULE_TARGET, b"")
    if fields.get(headers.SCHEDULE_TTL) and not config.allow_ttl:
        return NO_TTL
    if target == subject or not fits(target, config):
        return INVALID_TARGET
    if fields.get(headers.SCHEDULE_SOURCE):
        return INVALID_SOURCE
    of_subject = fields.get(headers.ROLLUP) in (None, b"", headers.OF_SUBJECT)
    return None if of_subject else INVALID_SCHEDULE_ROLLUP


def fits(target: bytes, config: StreamConfig) -> bool:
    """True if schedules of a stream may publish to a subject: a whole one of its own."""
    name = _text(target)
    return is_subject(name) and literal(name) and any(matches(pattern, name) for pattern in config.subjects)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def published(
    message: wire.MsgProto, schedule: ScheduleFields, subject: bytes, now: int, following: int
) -> wire.MsgProto:
    """The message that a schedule publishes.

    Args:
        message: the schedule, as it is stored.
        schedule: its headers.
        subject: its own.
        now: Unix ns.
        following: when it publishes again, Unix ns; 0: it does not.
    """
    made = wire.MsgProto(data=message.data, key=schedule.target)
    then = shown_moment(following).encode() if following else PURGE
    made.headers.extend(headers.stored(_headers(headers.of_message(message), schedule, subject, then)))
    if schedule.ttl:
        made.expires_at = now + schedule.ttl
    return made


def _headers(
    known: Iterable[tuple[bytes, bytes]], schedule: ScheduleFields, subject: bytes, following: bytes
) -> Iterable[tuple[bytes, bytes]]:
    for name, value in known:
        if not name.startswith(_LEFT_OUT) and name not in _ITS_OWN:
            yield name, value
    yield headers.SCHEDULER, subject
    yield headers.SCHEDULE_NEXT, following
    if schedule.ttl_header:
        yield headers.TTL, schedule.ttl_header
