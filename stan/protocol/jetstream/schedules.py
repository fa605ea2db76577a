"""Schedules of messages, as their headers have them: a message that is to be published to another subject, once, at a time.

Its time is in `Nats-Schedule` (`@at 2027-01-01T00:00:00Z`), the other subject, of the same stream, in `Nats-Schedule-Target`;
`Nats-Schedule-TTL` tells the time to live of the message that is published then.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stan_protocol.patterns import literal, matches
from stan_protocol.proto import wire_pb2 as wire

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
from stan.protocol.jetstream.moments import read_moment
from stan.protocol.jetstream.streams import StreamConfig, is_subject

_AT: Final = b"@at "
_LEFT_OUT: Final = (headers.SCHEDULE, b"Nats-Expected-")
"""How names of headers begin that only the schedule has."""
_ITS_OWN: Final = (headers.MSG_ID, headers.TTL, headers.ROLLUP)
"""Further headers that only the schedule has."""
PURGE: Final = b"purge"
"""Says in a published message that its schedule is gone."""


class ScheduleFields(NamedTuple):
    """Holds what the headers of a schedule say."""

    due: int  # Unix ns
    target: bytes
    ttl: int  # of what is published, ns; 0: it stays
    ttl_header: bytes  # as the schedule has it; b"": it has none


def of_fields(fields: Mapping[bytes, bytes]) -> ScheduleFields | None:
    """The headers of a schedule, read; None: it is no schedule, or none that can be carried out."""
    pattern, ttl_header = fields.get(headers.SCHEDULE, b""), fields.get(headers.SCHEDULE_TTL, b"")
    due = read_moment(_text(pattern[len(_AT) :])) if pattern.startswith(_AT) else None
    ttl = headers.time_to_live(ttl_header) if ttl_header else 0
    if due is None or ttl is None or headers.SCHEDULE_ZONE in fields:
        return None
    return ScheduleFields(max(1, due), fields.get(headers.SCHEDULE_TARGET, b""), ttl, ttl_header)


def of_message(message: wire.MsgProto) -> ScheduleFields | None:
    """The headers of a stored message, as `of_fields` reads them."""
    return of_fields(dict(reversed(headers.of_message(message))))


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
    wanted = of_fields(fields)
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


def published(message: wire.MsgProto, schedule: ScheduleFields, subject: bytes, now: int) -> wire.MsgProto:
    """The message that a schedule publishes. *subject*: of the schedule; *now*: Unix ns."""
    made = wire.MsgProto(data=message.data, key=schedule.target)
    made.headers.extend(headers.stored(_headers(headers.of_message(message), schedule, subject)))
    if schedule.ttl:
        made.expires_at = now + schedule.ttl
    return made


def _headers(
    known: Iterable[tuple[bytes, bytes]], schedule: ScheduleFields, subject: bytes
) -> Iterable[tuple[bytes, bytes]]:
    for name, value in known:
        if not name.startswith(_LEFT_OUT) and name not in _ITS_OWN:
            yield name, value
    yield headers.SCHEDULER, subject
    yield headers.SCHEDULE_NEXT, PURGE
    if schedule.ttl_header:
        yield headers.TTL, schedule.ttl_header
