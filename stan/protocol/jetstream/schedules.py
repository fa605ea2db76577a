"""Schedules of messages, as their headers have them: a message that is to be published to another subject, once or repeatedly.

Its time is in `Nats-Schedule` (`@at 2027-01-01T00:00:00Z`, `@every 5m`, or a cron pattern), the other subject, of the same
stream, in `Nats-Schedule-Target`; `Nats-Schedule-TTL` tells the time to live of a message that is published then.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stan_protocol.patterns import literal, matches
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND
from stan_protocol.units import parse_duration

from stan import limits
from stan.protocol.jetstream import cron, headers
from stan.protocol.jetstream.errors import (
    INVALID_SCHEDULE,
    INVALID_SCHEDULE_ROLLUP,
    INVALID_SCHEDULE_TTL,
    INVALID_SCHEDULER,
    INVALID_SOURCE,
    INVALID_TARGET,
    INVALID_ZONE,
    NO_SCHEDULES,
    NO_TTL,
    ApiError,
)
from stan.protocol.jetstream.moments import read_moment, shown_moment
from stan.protocol.jetstream.streams import StreamConfig, is_subject

_AT: Final = "@at "
_EVERY: Final = "@every "
_LEFT_OUT: Final = (headers.SCHEDULE, b"Nats-Expected-")
"""How names of headers begin that only the schedule has."""
_ITS_OWN: Final = (headers.MSG_ID, headers.TTL, headers.ROLLUP)
"""Further headers that only the schedule has."""
PURGE: Final = b"purge"
"""Says in a published message that its schedule is gone."""


class ScheduleFields(NamedTuple):
    """Holds what the headers of a schedule say."""

    due: int  # Unix ns; of a repeating one: the first time
    repeats: str  # by which pattern; "": it does not
    target: bytes
    ttl: int  # of what is published, ns; 0: it stays
    ttl_header: bytes  # as the schedule has it; b"": it has none


def of_fields(fields: Mapping[bytes, bytes], now: int) -> ScheduleFields | None:
    """The headers of a schedule that is stored *now* (Unix ns), read; None: it is none, or one that cannot be carried out."""
    pattern, ttl_header = _text(fields.get(headers.SCHEDULE, b"")), fields.get(headers.SCHEDULE_TTL, b"")
    once = pattern.startswith(_AT)
    due = read_moment(pattern.removeprefix(_AT)) if once else _next(pattern, now)
    ttl = headers.time_to_live(ttl_header) if ttl_header else 0
    if due is None or ttl is None or headers.SCHEDULE_ZONE in fields:
        return None
    target = fields.get(headers.SCHEDULE_TARGET, b"")
    return ScheduleFields(max(1, due), "" if once else pattern, target, ttl, ttl_header)


def _next(pattern: str, at: int) -> int | None:
    """The next time of a repeating pattern after *at*, both Unix ns; None: there is none."""
    if not pattern.startswith(_EVERY):
        found = cron.parse(pattern)
        return None if found is None else cron.next_after(found, at)
    try:
        every = parse_duration(pattern.removeprefix(_EVERY))
    except ValueError:
        return None
    return _second(at) + every if SECOND <= every <= limits.DELAY_MAX else None


def _second(at: int) -> int:
    """A moment, Unix ns, rounded to the second."""
    return (at + SECOND // 2) // SECOND * SECOND


def following(pattern: str, due: int, now: int) -> int:
    """The time of a repeating schedule that follows *due*, all Unix ns; 0: there is none. Times that were missed are left out."""
    found = _next(pattern, due)
    return (found if found is not None and found >= now else _next(pattern, _second(now))) or 0


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
    if wanted is None or (not wanted.repeats and wanted.due > now + limits.DELAY_MAX):
        return (
            INVALID_ZONE
            if headers.SCHEDULE_ZONE in fields and cron.parse(_text(fields[headers.SCHEDULE]))
            else INVALID_SCHEDULE
        )
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
    message: wire.MsgProto, schedule: ScheduleFields, subject: bytes, now: int, next_due: int
) -> wire.MsgProto:
    """The message that a schedule publishes.

    Args:
        message: the schedule, as it is stored.
        schedule: its headers.
        subject: its own.
        now: Unix ns.
        next_due: when it publishes again, Unix ns; 0: it does not.
    """
    made = wire.MsgProto(data=message.data, key=schedule.target)
    then = shown_moment(next_due).encode() if next_due else PURGE
    made.headers.extend(headers.stored(_headers(headers.of_message(message), schedule, subject, then)))
    if schedule.ttl:
        made.expires_at = now + schedule.ttl
    return made


def _headers(
    known: Iterable[tuple[bytes, bytes]], schedule: ScheduleFields, subject: bytes, then: bytes
) -> Iterable[tuple[bytes, bytes]]:
    for name, value in known:
        if not name.startswith(_LEFT_OUT) and name not in _ITS_OWN:
            yield name, value
    yield headers.SCHEDULER, subject
    yield headers.SCHEDULE_NEXT, then
    if schedule.ttl_header:
        yield headers.TTL, schedule.ttl_header
