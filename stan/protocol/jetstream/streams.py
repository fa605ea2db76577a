"""The configuration of a stream: read from a request, checked, and written as JSON for answers and for the log.

What this broker cannot do is refused here, never ignored. Sizes are bytes, durations are nanoseconds, -1 means no limit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from stan_protocol.channels import is_channel_name
from stan_protocol.patterns import literal, overlap
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.permissions import covers
from stan.protocol.jetstream.errors import OTHER_STREAM, REPLICAS_ALONE, RequestError, invalid_config, pedantic_refusal
from stan.protocol.jetstream.json_data import Fields

DUPLICATE_WINDOW: Final = 120 * SECOND
"""For how long ids of messages are known, if a stream does not say it."""
AGE_MIN: Final = 100 * MILLISECOND
REPLICAS_MAX: Final = 5
DISCARD_OLD, DISCARD_NEW = "old", "new"
S2: Final = "s2"
"""The name of compression in answers; what is stored is compressed as other channels are."""
FILE, MEMORY = "file", "memory"
LIMITS, INTEREST, WORK_QUEUE = "limits", "interest", "workqueue"
"""Retentions: messages stay as the limits say, until all consumers have passed them, or until they are acked."""
_RESERVED: Final = ("$JS.>", "$SYS.>", "_STAN.>", "_INBOX.>", "_R_.>")
"""Subjects on which servers speak, or that are answers."""
_NOT_BUILT: Final = (
    "mirror",
    "sources",
    "placement",
    "republish",
    "subject_transform",
    "template_owner",
    "first_seq",
    "mirror_direct",
    "allow_msg_counter",
    "allow_atomic",
    "allow_batched",
)


class ConsumerLimits(NamedTuple):
    """The most that a consumer of a stream may ask for, and what it gets without asking; 0: no limit."""

    inactive_threshold: int = 0  # ns
    max_ack_pending: int = 0


@lru_cache(limits.STREAMS_SUBJECTS_MAX)
def _names_channel(subject: str) -> bool:
    return literal(subject) and is_channel_name(subject.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """The properties of a stream that its client has chosen."""

    name: str
    subjects: tuple[str, ...] = ()
    description: str = ""
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0  # ns; 0: no limit
    max_msgs_per_subject: int = -1  # so many messages of each subject stay, the newest
    max_msg_size: int = -1
    storage: str = FILE  # as the client has named it: messages are where those of all channels are
    retention: str = LIMITS
    discard: str = DISCARD_OLD
    discard_new_per_subject: bool = False  # a subject that has its messages takes no more
    replicas: int = 1
    duplicate_window: int = DUPLICATE_WINDOW  # ns
    no_ack: bool = False  # publishes are not answered
    allow_direct: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    sealed: bool = False  # nothing is stored or removed any more
    allow_rollup: bool = False
    allow_ttl: bool = False
    marker_ttl: int = 0  # ns: for how long the end of a subject whose last message expired can be seen; 0: it cannot
    allow_schedules: bool = False  # messages may say when they are to be published to another subject
    compressed: bool = False  # its channel has the policy `compress`
    consumers: ConsumerLimits = field(default_factory=ConsumerLimits)
    metadata: Mapping[str, str] = field(default_factory=dict)
    # As the server has it alone, once the subjects were changed.
    own_channel: str = ""  # its channel, which its subjects do not name; a message's key is its subject
    mixed: bool = False  # earlier messages may have subjects that are none of these

    @property
    def is_literal(self) -> bool:
        """True if its channel is that of its one subject; else the channel is called like the stream, or as it was at first, and
        a message's key is its subject."""
        return not self.own_channel and len(self.subjects) == 1 and _names_channel(self.subjects[0])

    @property
    def channel(self) -> bytes:
        """The name of its channel."""
        return (self.own_channel or (self.subjects[0] if self.is_literal else self.name)).encode()

    @property
    def history(self) -> int:
        """How many messages of each of its subjects stay, the newest; 0: all. A stream with one subject has a limit for that."""
        return 0 if self.is_literal or self.discard_new_per_subject else max(0, self.max_msgs_per_subject)

    @property
    def rolls_up(self) -> bool:
        """True if a message may take the place of the others of its subject, and all of these are to be known for that."""
        return self.allow_rollup and not self.history and not self.is_literal

    @property
    def expires(self) -> bool:
        """True if its messages expire at `max_age`, each alone, as the last one of a subject leaves a marker."""
        return self.max_age > 0 and self.marker_ttl > 0

    @property
    def is_queue(self) -> bool:
        """True if a message goes when its consumer has acked it."""
        return self.retention == WORK_QUEUE

    @property
    def by_interest(self) -> bool:
        """True if a message goes when all consumers have passed it."""
        return self.retention == INTEREST

    @property
    def counts_subjects(self) -> bool:
        """True if a message is stored only where its subject has fewer messages than it may have."""
        return self.discard_new_per_subject and not self.is_literal

    def document(self) -> dict[str, object]:
        """The configuration as clients get it."""
        told: dict[str, object] = {"name": self.name}
        if self.description:
            told["description"] = self.description
        told |= {
            "subjects": list(self.subjects),
            "retention": self.retention,
            "max_consumers": self.max_consumers,
            "max_msgs": self.max_msgs,
            "max_bytes": self.max_bytes,
            "max_age": self.max_age,
            "max_msgs_per_subject": self.max_msgs_per_subject,
            "max_msg_size": self.max_msg_size,
            "discard": self.discard,
            "storage": self.storage,
            "num_replicas": self.replicas,
            "duplicate_window": self.duplicate_window,
            "compression": S2 if self.compressed else "none",
            "allow_direct": self.allow_direct,
            "mirror_direct": False,
            "sealed": self.sealed,
            "deny_delete": self.deny_delete,
            "deny_purge": self.deny_purge,
            "allow_rollup_hdrs": self.allow_rollup,
            "consumer_limits": {name: value for name, value in self.consumers._asdict().items() if value},
            "allow_msg_ttl": self.allow_ttl,
        }
        if self.allow_schedules:
            told["allow_msg_schedules"] = True
        if self.discard_new_per_subject:
            told["discard_new_per_subject"] = True
        if self.marker_ttl:
            told["subject_delete_marker_ttl"] = self.marker_ttl
        if self.no_ack:
            told["no_ack"] = True
        if self.metadata:
            told["metadata"] = dict(sorted(self.metadata.items()))
        return told

    def encoded(self) -> bytes:
        """The configuration as the log has it."""
        own = {name: value for name in _OWN if (value := getattr(self, name))}
        return json.dumps(self.document() | own, separators=(",", ":")).encode()


_OWN: Final = ("own_channel", "mixed")
"""Fields that clients neither send nor get."""


def take_own(document: dict[str, Any]) -> dict[str, Any]:
    """Take the fields that the server has alone out of what `encoded` has written, by name. Raises RequestError: of another
    type."""
    fields = Fields({name: document.pop(name, None) for name in _OWN})
    return {"own_channel": fields.text("own_channel"), "mixed": fields.switch("mixed")}


def decoded(config: bytes) -> StreamConfig:
    """Return the configuration that `encoded` has written."""
    document: dict[str, Any] = json.loads(config)
    own = take_own(document)
    return replace(_read(Fields(document)), **own)


def changed(before: StreamConfig, after: StreamConfig) -> StreamConfig:
    """Return the configuration of a stream that gets the subjects of *after*: it keeps the channel that it has.

    Raises:
        RequestError: there it cannot have the options of *after*.
    """
    covered = all(any(covers(new, old) for new in after.subjects) for old in before.subjects)
    after = replace(after, mixed=before.mixed or not covered)
    if after.is_literal != before.is_literal or after.channel != before.channel:
        after = replace(after, own_channel=before.channel.decode())
        _check_history(after)
    return after


def requested(document: Mapping[str, Any], name: str, replicas: int) -> StreamConfig:
    """Return the configuration that a request asks for.

    Args:
        document: the request.
        name: of the stream, as the subject of the request has it.
        replicas: that a channel has here; the answer tells these.

    Raises:
        RequestError: it cannot be had.
    """
    fields = Fields(document)
    if document.get("name") != name:
        raise RequestError(OTHER_STREAM)
    pedantic = fields.switch("pedantic")
    _refuse(fields, document)
    found = _read(fields)
    for why in _of_pedants(found, document) if pedantic else ():
        raise RequestError(pedantic_refusal(why))
    if (found.marker_ttl > 0 or found.allow_schedules) and not found.allow_rollup and not pedantic:
        found = replace(found, allow_rollup=True, deny_purge=False)
    if found.marker_ttl > 0:
        found = replace(found, allow_ttl=True)
    _check(found, replicas)
    window = found.duplicate_window
    if "duplicate_window" not in document or not window:
        window = min(DUPLICATE_WINDOW, found.max_age) if found.max_age else DUPLICATE_WINDOW
    found = replace(found, replicas=replicas, duplicate_window=window, subjects=found.subjects or (name,))
    _check_subjects(found)
    _check_history(found)
    return _sealed(found) if found.sealed else found


def _sealed(config: StreamConfig) -> StreamConfig:
    """Return the configuration with all that a seal implies."""
    return replace(config, max_age=0, discard=DISCARD_NEW, deny_delete=True, deny_purge=True, allow_rollup=False)


def update_refusal(before: StreamConfig, after: StreamConfig) -> str:
    """Why a stream cannot get another configuration; "" if it can."""
    fewer = 0 < after.max_msgs_per_subject < before.max_msgs_per_subject
    only_new = after.discard_new_per_subject and before.discard_new_per_subject
    to_queue = after.retention != before.retention and (after.is_queue or before.is_queue)
    checks = {
        "stream configuration update can not change storage type": after.storage != before.storage,
        "stream configuration update can not change retention policy to/from workqueue": to_queue,
        "stream configuration update can not unseal a sealed stream": before.sealed and not after.sealed,
        "stream configuration update can not cancel deny message deletes": before.deny_delete and not after.deny_delete,
        "stream configuration update can not cancel deny purge": before.deny_purge and not after.deny_purge,
        "message TTL status can not be disabled": before.allow_ttl and not after.allow_ttl,
        "message schedules can not be disabled": before.allow_schedules and not after.allow_schedules,
        "max_msgs_per_subject can not be lowered with discard_new_per_subject": fewer and only_new,
    }
    return next((why for why, wrong in checks.items() if wrong), "")


def _of_pedants(config: StreamConfig, document: Mapping[str, Any]) -> list[str]:
    """The values in the place of which others would be taken."""
    counts = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")
    found = [f"{name} must be set to -1" for name in counts if Fields(document).number(name) < -1]
    if not config.duplicate_window and 0 < config.max_age < DUPLICATE_WINDOW:
        found.append("duplicate window cannot be bigger than max age")
    if config.marker_ttl > 0 and not config.allow_ttl:
        found.append("subject delete marker cannot be set if message TTLs are disabled")
    if config.marker_ttl > 0 and not config.allow_rollup:
        found.append("subject delete marker cannot be set if roll-ups are disabled")
    return found


def _unlimited(value: int) -> int:
    return value if value > 0 else -1


def _read(fields: Fields) -> StreamConfig:
    """Read the fields that this broker knows."""
    found = StreamConfig(
        name=fields.text("name"),
        subjects=fields.texts("subjects"),
        description=fields.text("description"),
        max_consumers=_unlimited(fields.number("max_consumers")),
        max_msgs=_unlimited(fields.number("max_msgs")),
        max_bytes=_unlimited(fields.number("max_bytes")),
        max_age=fields.number("max_age"),
        max_msgs_per_subject=_unlimited(fields.number("max_msgs_per_subject")),
        max_msg_size=_unlimited(fields.number("max_msg_size")),
        storage=fields.text("storage") or FILE,
        retention=fields.text("retention") or LIMITS,
        discard=fields.text("discard") or DISCARD_OLD,
        discard_new_per_subject=fields.switch("discard_new_per_subject"),
        replicas=fields.number("num_replicas") or 1,
        duplicate_window=fields.number("duplicate_window"),
        no_ack=fields.switch("no_ack"),
        allow_direct=fields.switch("allow_direct"),
        deny_delete=fields.switch("deny_delete"),
        deny_purge=fields.switch("deny_purge"),
        sealed=fields.switch("sealed"),
        allow_rollup=fields.switch("allow_rollup_hdrs"),
        allow_ttl=fields.switch("allow_msg_ttl"),
        marker_ttl=fields.number("subject_delete_marker_ttl"),
        allow_schedules=fields.switch("allow_msg_schedules"),
        compressed=fields.text("compression") == S2,
        consumers=_consumer_limits(Fields(fields.table("consumer_limits"))),
        metadata=fields.metadata(),
    )
    fields.take_set(*_NOT_BUILT, "persist_mode")
    fields.end()
    return found


def _consumer_limits(fields: Fields) -> ConsumerLimits:
    found = ConsumerLimits(fields.number("inactive_threshold"), fields.number("max_ack_pending"))
    fields.end()
    if min(found) < 0:
        raise RequestError(invalid_config("consumer limits can not be negative"))
    return found


def _refuse(fields: Fields, document: Mapping[str, Any]) -> None:
    """Refuse options that are not built. Raises RequestError."""
    if document.get("mirror_direct") and not document.get("mirror"):
        raise RequestError(invalid_config("stream has no mirror but does have mirror direct"))
    missing = fields.take_set(*_NOT_BUILT)
    if missing:
        raise RequestError(invalid_config(f"{missing} is not supported by this server"))
    for name, good in (
        ("retention", (LIMITS, INTEREST, WORK_QUEUE)),
        ("storage", (FILE, MEMORY)),
        ("compression", ("none", S2)),
        ("persist_mode", ("default",)),
        ("discard", (DISCARD_OLD, DISCARD_NEW)),
    ):
        value = document.get(name)
        if value not in (None, "", *good):
            raise RequestError(invalid_config(f"{name} {go_quote(str(value)[:20])} is not supported by this server"))


def _check(config: StreamConfig, replicas: int) -> None:
    """Refuse values out of range. Raises RequestError."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items())
    window, age, only_new = config.duplicate_window, config.max_age, config.discard_new_per_subject
    for wrong, why in (
        (not _is_name(config.name), "invalid stream name"),
        (len(config.description.encode()) > limits.STREAM_DESCRIPTION_BYTES_MAX, _TOO_LONG),
        (size > limits.STREAM_METADATA_BYTES_MAX, f"metadata has more than {limits.STREAM_METADATA_BYTES_MAX} bytes"),
        (age < 0, "max age can not be negative"),
        (0 < age < AGE_MIN, "max age needs to be >= 100ms"),
        (window < 0, "duplicates window can not be negative"),
        (age and window > age, "duplicates window can not be larger then max age"),
        (0 < window < AGE_MIN, "duplicates window needs to be >= 100ms"),
        (window > limits.STREAM_WINDOW_MAX, "duplicates window is too long for this server"),
        (
            only_new and config.discard != DISCARD_NEW,
            "discard new per subject requires discard new policy to be set",
        ),
        (
            only_new and config.max_msgs_per_subject <= 0,
            "discard new per subject requires max msgs per subject > 0",
        ),
        (0 < config.marker_ttl < SECOND, "subject delete marker TTL must be at least 1 second"),
        (config.marker_ttl < 0, "subject delete marker TTL must not be negative"),
        (config.allow_schedules and config.discard == DISCARD_NEW, "message scheduling cannot use discard new"),
        (
            config.allow_schedules and not config.allow_rollup,
            "message scheduling cannot be set if roll-ups are disabled",
        ),
        (config.allow_rollup and config.deny_purge, "roll-ups require the purge permission"),
        (config.replicas > REPLICAS_MAX, "maximum replicas is 5"),
        (config.replicas < 0, "replicas count cannot be negative"),
    ):
        if wrong:
            raise RequestError(invalid_config(why))
    if config.replicas > 1 and replicas == 1:
        raise RequestError(REPLICAS_ALONE)


def _check_history(config: StreamConfig) -> None:
    """Refuse a number of messages of each subject that cannot be kept. Raises RequestError."""
    if config.history > limits.STREAM_HISTORY_MAX:
        raise RequestError(invalid_config(f"max_msgs_per_subject is above {limits.STREAM_HISTORY_MAX}"))
    if config.history and config.max_msgs > 0:
        raise RequestError(invalid_config("max_msgs with max_msgs_per_subject is not supported by this server"))


_TOO_LONG: Final = f"stream description is too long, maximum allowed is {limits.STREAM_DESCRIPTION_BYTES_MAX}"


def _is_name(name: str) -> bool:
    """True if it can be one token of a subject."""
    plain = name.isprintable() and not any(char in " .*>/\\" for char in name)
    return bool(name) and plain and len(name.encode()) <= limits.STREAM_NAME_BYTES_MAX


def is_subject(subject: str) -> bool:
    """True if a stream, or a filter of one, can have this subject, wildcards allowed."""
    tokens = subject.split(".")
    if not all(tokens) or not subject.isprintable() or " " in subject:
        return False
    return ">" not in tokens[:-1] and len(subject.encode()) <= limits.KEY_BYTES_MAX


def _check_subjects(config: StreamConfig) -> None:
    """Refuse subjects that a stream cannot have. Raises RequestError."""
    subjects = config.subjects
    if len(subjects) > limits.STREAM_SUBJECTS_MAX:
        raise RequestError(invalid_config(f"more than {limits.STREAM_SUBJECTS_MAX} subjects"))
    for at, subject in enumerate(subjects):
        if not is_subject(subject):
            raise RequestError(invalid_config("invalid subject"))
        if subject == ">" and not config.no_ack:
            raise RequestError(invalid_config("capturing all subjects requires no-ack to be true"))
        if any(overlap(subject, reserved) for reserved in _RESERVED):
            raise RequestError(invalid_config(f"subject {go_quote(subject)} overlaps with subjects of servers"))
        for other in subjects[at + 1 :]:
            if overlap(subject, other):
                raise RequestError(invalid_config(f"subject {go_quote(subject)} overlaps with {go_quote(other)}"))
