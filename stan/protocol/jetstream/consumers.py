"""The configuration of a consumer: read from a request, checked, and written as JSON for answers and for the log.

What this broker cannot do is refused here, never ignored. Durations are nanoseconds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from stan_protocol.limits import INBOX_BYTES_MAX
from stan_protocol.patterns import literal, overlap
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.protocol.jetstream import consumer_errors as errors
from stan.protocol.jetstream.errors import ApiError, RequestError, invalid_json, pedantic_refusal
from stan.protocol.jetstream.json_data import Fields
from stan.protocol.jetstream.moments import read_moment, shown_moment
from stan.protocol.jetstream.streams import ConsumerLimits, is_subject

ALL, LAST, NEW, FROM_SEQUENCE, FROM_TIME, LAST_PER_SUBJECT = (
    "all",
    "last",
    "new",
    "by_start_sequence",
    "by_start_time",
    "last_per_subject",
)
NO_ACKS, ACK_ALL, EXPLICIT = "none", "all", "explicit"
_DELIVER: Final = (ALL, LAST, NEW, FROM_SEQUENCE, FROM_TIME, LAST_PER_SUBJECT)
_ACKS: Final = (NO_ACKS, ACK_ALL, EXPLICIT)
ACK_WAIT: Final = 30 * SECOND
MAX_WAITING: Final = 512
MAX_ACK_PENDING: Final = 1000
HEARTBEAT_MIN: Final = 100 * MILLISECOND
INACTIVE: Final = 5 * SECOND
"""For how long nobody may ask for a consumer that is not durable, if its configuration does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The wishes of a client about a consumer."""

    name: str
    durable: bool = False
    named: bool = False  # the client has given the name
    description: str = ""
    deliver_policy: str = ALL
    start_sequence: int = 0
    start_time: int | None = None  # Unix ns; 0: before all messages
    ack_policy: str = NO_ACKS
    ack_wait: int = 0
    max_deliver: int = -1  # -1: no limit
    backoff: tuple[int, ...] = ()
    filters: tuple[str, ...] = ()
    several: bool = False  # the filters were given as a list
    max_waiting: int = 0  # requests of pullers
    max_ack_pending: int = 0  # -1: no limit
    headers_only: bool = False
    max_batch: int = 0  # of one request of a puller; 0: no limit
    max_expires: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""  # "": clients pull
    deliver_group: str = ""
    flow_control: bool = False
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    replicas: int = 0
    mem_storage: bool = False
    pause_until: int = 0  # Unix ns
    metadata: Mapping[str, str] = field(default_factory=dict)
    # As the server has it alone. Of messages up to this sequence only the newest of each subject is delivered; 0: all are.
    newest_until: int = 0
    # As deliveries ask for it, again and again:
    pushes: bool = field(init=False, repr=False, compare=False)  # messages are delivered without being asked for
    acks: bool = field(init=False, repr=False, compare=False)  # a message is settled by an ack only
    window: int = field(init=False, repr=False, compare=False)  # messages that may wait for acks
    to: bytes = field(init=False, repr=False, compare=False)  # the deliver subject
    queue: bytes = field(init=False, repr=False, compare=False)  # the deliver group

    def __post_init__(self) -> None:
        most = self.max_ack_pending
        for name, value in {
            "pushes": bool(self.deliver_subject),
            "acks": self.ack_policy != NO_ACKS,
            "window": most if most > 0 else limits.STREAM_CONSUMER_ACK_PENDING_MAX,
            "to": self.deliver_subject.encode(errors="replace"),
            "queue": self.deliver_group.encode(errors="replace"),
        }.items():
            object.__setattr__(self, name, value)

    def wants(self, subject: str) -> bool:
        """True if a subject passes the filters."""
        return not self.filters or any(overlap(one, subject) for one in self.filters)

    def document(self) -> dict[str, object]:
        """The configuration as clients get it."""
        told: dict[str, object] = {}
        if self.durable:
            told["durable_name"] = self.name
        if self.named:
            told["name"] = self.name
        told |= _set(description=self.description)
        told["deliver_policy"] = self.deliver_policy
        told |= _set(opt_start_seq=self.start_sequence)
        if self.start_time is not None:
            told["opt_start_time"] = shown_moment(self.start_time)
        told["ack_policy"] = self.ack_policy
        told |= _set(ack_wait=self.ack_wait)
        told["max_deliver"] = self.max_deliver
        told |= _set(backoff=list(self.backoff))
        if self.filters:
            told |= {"filter_subjects": list(self.filters)} if self.several else {"filter_subject": self.filters[0]}
        told["replay_policy"] = "instant"
        told |= _set(
            max_waiting=self.max_waiting,
            max_ack_pending=self.max_ack_pending,
            flow_control=self.flow_control,
            headers_only=self.headers_only,
            max_batch=self.max_batch,
            max_expires=self.max_expires,
            max_bytes=self.max_bytes,
            deliver_subject=self.deliver_subject,
            deliver_group=self.deliver_group,
            idle_heartbeat=self.idle_heartbeat,
            inactive_threshold=self.inactive_threshold,
        )
        told["num_replicas"] = self.replicas
        told |= _set(mem_storage=self.mem_storage, metadata=dict(sorted(self.metadata.items())))
        if self.pause_until:
            told["pause_until"] = shown_moment(self.pause_until)
        return told

    def encoded(self) -> bytes:
        """The configuration as the log has it."""
        return json.dumps(
            self.document() | {"name": self.name} | _set(named=self.named, newest_until=self.newest_until),
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode()


def _set(**told: object) -> dict[str, object]:
    """Keep the fields that have a value."""
    return {name: value for name, value in told.items() if value}


def decode(text: bytes) -> ConsumerConfig:
    """The configuration that the log has; the inverse of `encoded`."""
    document: dict[str, Any] = json.loads(text)
    named, newest_until = document.pop("named", False), document.pop("newest_until", 0)
    return replace(_read(document, document["name"]), named=named, newest_until=newest_until)


# --- read -----------------------------------------------------------------------------------------------------------------


def read_config(
    document: Mapping[str, Any],
    name: str,
    most: ConsumerLimits = ConsumerLimits(),  # noqa: B008 - a tuple
    *,
    pedantic: bool = False,
) -> ConsumerConfig:
    """The configuration in a request; *name*: of the consumer, as it will be called; *most*: of its stream. What it does not say
    is as the stream or JetStream has it. *pedantic*: a value in the place of which another one would be taken is refused.

    Raises:
        RequestError: a field is unknown, has another type or a value that is not allowed, or wants what cannot be had.
    """
    found = _read(document, name)
    for why in _of_pedants(found, most) if pedantic else ():
        raise RequestError(pedantic_refusal(why))
    return _with_defaults(_checked(_limited(found, most) if any(most) else found))


def _limited(config: ConsumerConfig, most: ConsumerLimits) -> ConsumerConfig:
    """The configuration with the limits of the stream where the client says nothing. Raises RequestError: it wants more."""
    pending = config.max_ack_pending or most.max_ack_pending
    inactive = config.inactive_threshold or most.inactive_threshold
    if most.max_ack_pending and not 0 <= pending <= most.max_ack_pending:
        raise RequestError(errors.too_many_pending(most.max_ack_pending))
    if 0 < most.inactive_threshold < inactive:
        raise RequestError(errors.inactive_too_long(most.inactive_threshold))
    return replace(config, max_ack_pending=pending, inactive_threshold=inactive)


def _read(document: Mapping[str, Any], name: str) -> ConsumerConfig:
    fields = Fields(document)
    durable_name, given = fields.text("durable_name"), fields.text("name")
    one, several = fields.text("filter_subject"), fields.texts("filter_subjects")
    if one and several:
        raise RequestError(errors.TWO_FILTERS)
    config = ConsumerConfig(
        name=name,
        durable=bool(durable_name),
        named=bool(given or durable_name),
        description=fields.text("description"),
        deliver_policy=_one_of(fields.text("deliver_policy", ALL), _DELIVER),
        start_sequence=fields.number("opt_start_seq"),
        start_time=_moment(began) if (began := fields.text("opt_start_time")) else None,
        ack_policy=_one_of(fields.text("ack_policy", NO_ACKS), _ACKS),
        ack_wait=fields.number("ack_wait"),
        max_deliver=fields.number("max_deliver", -1),
        backoff=_numbers(fields, "backoff"),
        filters=several or ((one,) if one else ()),
        several=bool(several),
        max_waiting=fields.number("max_waiting"),
        max_ack_pending=fields.number("max_ack_pending"),
        headers_only=fields.switch("headers_only"),
        max_batch=fields.number("max_batch"),
        max_expires=fields.number("max_expires"),
        max_bytes=fields.number("max_bytes"),
        deliver_subject=fields.text("deliver_subject"),
        deliver_group=fields.text("deliver_group"),
        flow_control=fields.switch("flow_control"),
        idle_heartbeat=fields.number("idle_heartbeat"),
        inactive_threshold=fields.number("inactive_threshold"),
        replicas=fields.number("num_replicas"),
        mem_storage=fields.switch("mem_storage"),
        pause_until=_moment(fields.text("pause_until")),
        metadata=_metadata(fields),
    )
    _refuse_unbuilt(fields)
    fields.end()
    return config


def _one_of(value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise RequestError(invalid_json(f'can not unmarshal "\\"{value[: limits.API_SHOWN_CHARS]}\\""'))
    return value


def _moment(text: str) -> int:
    found = read_moment(text) if text else 0
    if found is None:
        raise RequestError(invalid_json(f"no time: {text[: limits.API_SHOWN_CHARS]}"))
    return found


def _numbers(fields: Fields, name: str) -> tuple[int, ...]:
    found = fields.items(name)
    if len(found) > limits.STREAM_CONSUMER_BACKOFF_MAX:
        raise RequestError(invalid_json(f"more than {limits.STREAM_CONSUMER_BACKOFF_MAX} pauses in {name}"))
    return tuple(Fields({name: one}).number(name) for one in found)


def _metadata(fields: Fields) -> dict[str, str]:
    told = fields.metadata()
    size = sum(len(key.encode()) + len(value.encode()) for key, value in told.items())
    if size > limits.STREAM_CONSUMER_METADATA_BYTES_MAX:
        raise RequestError(errors.METADATA_TOO_LONG)
    return told


def _refuse_unbuilt(fields: Fields) -> None:
    """Refuse what would have to be done and is not: it would be a lie to ignore it."""
    if _one_of(fields.text("replay_policy", "instant"), ("instant", "original")) != "instant":
        raise RequestError(errors.not_built("replay policies other than instant"))
    if fields.number("rate_limit_bps"):
        raise RequestError(errors.not_built("rate limits"))
    if fields.text("sample_freq").rstrip("%") not in ("", "0"):
        raise RequestError(errors.not_built("samples of acks"))
    if fields.switch("direct"):
        raise RequestError(errors.not_built("direct consumers"))
    if fields.texts("priority_groups") or fields.text("priority_policy", "none") not in ("", "none"):
        raise RequestError(errors.not_built("priority groups"))
    if fields.number("priority_timeout"):
        raise RequestError(errors.not_built("priority groups"))


# --- checks ---------------------------------------------------------------------------------------------------------------


def _checked(config: ConsumerConfig) -> ConsumerConfig:
    for problem in (*_of_start(config), *_of_acks(config), *_of_push(config), *_of_filters(config), *_of_sizes(config)):
        raise RequestError(problem)
    return config


def _of_start(config: ConsumerConfig) -> list[ApiError]:
    policy, found = config.deliver_policy, []
    words = policy.replace("_", " ").removeprefix("by ")
    words = f"by {words}" if policy in (FROM_SEQUENCE, FROM_TIME) else words
    if policy == FROM_SEQUENCE and not config.start_sequence:
        found.append(errors.start(words, "optional start sequence is not set"))
    if policy == FROM_TIME and config.start_time is None:
        found.append(errors.start(words, "optional start time is not set"))
    if policy == LAST_PER_SUBJECT and not config.filters:
        found.append(errors.start(words, "optional filter subject is not set"))
    if policy != FROM_SEQUENCE and config.start_sequence:
        found.append(errors.start(words, "optional start sequence is also set"))
    if policy != FROM_TIME and config.start_time is not None:
        found.append(errors.start(words, "optional start time is also set"))
    if config.start_sequence < 0:
        found.append(invalid_json("opt_start_seq is negative"))
    return found


def _of_acks(config: ConsumerConfig) -> list[ApiError]:
    found = []
    if config.ack_wait < 0:
        found.append(errors.NEGATIVE_ACK_WAIT)
    if config.backoff and 0 < config.max_deliver < len(config.backoff):
        found.append(errors.SHORT_MAX_DELIVER)
    if any(pause < 0 for pause in config.backoff):
        found.append(errors.NEGATIVE_BACKOFF)
    return found


def _of_push(config: ConsumerConfig) -> list[ApiError]:
    found = []
    if config.pushes:
        if not literal(config.deliver_subject):
            found.append(errors.WILD_DELIVER_SUBJECT)
        if config.max_waiting > 0:
            found.append(errors.PUSH_WAITING)
        if config.idle_heartbeat and config.idle_heartbeat < HEARTBEAT_MIN:
            found.append(errors.SMALL_HEARTBEAT)
        if config.flow_control and not config.idle_heartbeat:
            found.append(errors.FLOW_WITHOUT_HEARTBEAT)
        if config.deliver_subject.startswith(("$JS.", "$SYS.", "_STAN.")) or not _is_plain(config.deliver_subject):
            found.append(errors.CYCLE)
    else:
        if config.idle_heartbeat:
            found.append(errors.HEARTBEAT_OF_PULL)
        if config.flow_control:
            found.append(errors.FLOW_OF_PULL)
    group = config.deliver_group
    if group and not (_is_plain(group) and len(group.encode()) <= limits.STREAM_CONSUMER_NAME_BYTES_MAX):
        found.append(errors.BAD_GROUP)
    return found


def _of_pedants(config: ConsumerConfig, most: ConsumerLimits) -> list[str]:
    """The values in the place of which others would be taken."""
    checks = {
        "max_deliver must be set to -1": config.max_deliver < -1,
        "max_waiting must not be negative": config.max_waiting < 0,
        "max_ack_pending must be set to -1": config.max_ack_pending < -1,
        "max_batch must not be negative": config.max_batch < 0,
        "max_expires must not be negative": config.max_expires < 0,
        "max_bytes must not be negative": config.max_bytes < 0,
        "idle_heartbeat must not be negative": config.idle_heartbeat < 0,
        "inactive_threshold must not be negative": config.inactive_threshold < 0,
        "first backoff value has to equal batch AckWait": config.backoff and config.ack_wait != config.backoff[0],
        "max_ack_pending must be set if it's configured in stream limits": most.max_ack_pending
        and not config.max_ack_pending,
        "inactive_threshold must be set if it's configured in stream limits": most.inactive_threshold
        and not config.inactive_threshold,
    }
    return [why for why, wrong in checks.items() if wrong]


def _is_plain(subject: str) -> bool:
    """True if a subject can stand in a line of NATS."""
    return all(part and part.isprintable() and " " not in part for part in subject.split("."))


def _of_filters(config: ConsumerConfig) -> list[ApiError]:
    filters = config.filters
    if len(filters) > limits.STREAM_CONSUMER_FILTERS_MAX:
        return [errors.not_built(f"more than {limits.STREAM_CONSUMER_FILTERS_MAX} filters")]
    if not all(filters):
        return [errors.EMPTY_FILTER]
    if not all(map(is_subject, filters)):
        return [errors.NO_FILTER]
    if any(overlap(one, other) for at, one in enumerate(filters) for other in filters[:at]):
        return [errors.FILTERS_OVERLAP]
    return []


def _of_sizes(config: ConsumerConfig) -> list[ApiError]:
    found = []
    if len(config.description.encode()) > limits.STREAM_DESCRIPTION_BYTES_MAX:
        found.append(errors.DESCRIPTION_TOO_LONG)
    if not is_consumer_name(config.name):
        found.append(errors.BAD_NAME)
    if len(config.to) > INBOX_BYTES_MAX:
        found.append(errors.not_created("consumer deliver subject is too long"))
    return found


def is_consumer_name(name: str) -> bool:
    """True if a consumer can be called so."""
    return (
        0 < len(name.encode("utf-8", "replace")) <= limits.STREAM_CONSUMER_NAME_BYTES_MAX
        and name.isprintable()
        and not set(name) & set(" .*>/\\")
    )


def _with_defaults(config: ConsumerConfig) -> ConsumerConfig:
    """The configuration with what JetStream puts where a client says nothing, or something that means nothing."""
    pulls = not config.pushes
    ack_wait = (config.backoff[0] if config.backoff else config.ack_wait or ACK_WAIT) if config.acks else 0
    pending = config.max_ack_pending
    if config.acks:
        pending = MAX_ACK_PENDING if not pending else max(pending, -1)
    return replace(
        config,
        ack_wait=ack_wait,
        max_deliver=config.max_deliver if config.max_deliver > 0 else -1,
        max_ack_pending=min(pending, limits.STREAM_CONSUMER_ACK_PENDING_MAX),
        max_waiting=min(
            config.max_waiting if config.max_waiting > 0 else MAX_WAITING, limits.STREAM_CONSUMER_WAITING_MAX
        )
        if pulls
        else 0,
        max_batch=max(config.max_batch, 0),
        max_bytes=max(config.max_bytes, 0),
        max_expires=max(config.max_expires, 0),
        replicas=max(config.replicas, 0),
        inactive_threshold=max(config.inactive_threshold, 0) or (0 if config.durable else INACTIVE),
    )


def update_refusal(before: ConsumerConfig, after: ConsumerConfig) -> ApiError | None:
    """Why a consumer cannot get another configuration; None if it can."""
    fixed = {
        "deliver_policy": "deliver policy",
        "start_sequence": "start sequence",
        "start_time": "start time",
        "ack_policy": "ack policy",
        "max_waiting": "max waiting",
        "flow_control": "flow control",
        "idle_heartbeat": "heart beats",
    }
    if before.pushes != after.pushes:
        kinds = ("pull", "push") if after.pushes else ("push", "pull")
        return errors.not_created("can not update {} consumer to {} based".format(*kinds))
    for name, words in fixed.items():
        if getattr(before, name) != getattr(after, name):
            return errors.not_created(f"{words} can not be updated")
    return None
