"""Refusals of requests about consumers, as clients of JetStream know them."""

from typing import Final

from stan_protocol.units import go_duration

from stan.protocol.jetstream.errors import ApiError

NO_CONSUMER: Final = ApiError(404, 10014, "consumer not found")
NAME_IN_USE: Final = ApiError(400, 10013, "consumer name already in use")
EXISTS: Final = ApiError(400, 10148, "consumer already exists")
DOES_NOT_EXIST: Final = ApiError(400, 10149, "consumer does not exist")
TOO_MANY: Final = ApiError(400, 10026, "maximum consumers limit reached")
DURABLE_NOT_IN_SUBJECT: Final = ApiError(
    400, 10016, "consumer expected to be durable but no durable name set in subject"
)
DURABLE_IS_OTHER: Final = ApiError(400, 10017, "consumer name in subject does not match durable name in request")
DURABLE_NOT_IN_REQUEST: Final = ApiError(400, 10018, "consumer expected to be durable but a durable name was not set")
EPHEMERAL_WITH_DURABLE: Final = ApiError(
    400, 10020, "consumer expected to be ephemeral but a durable name was set in request"
)
OTHER_FILTER: Final = ApiError(400, 10131, "Consumer create request did not match filtered subject from create subject")
BAD_NAME: Final = ApiError(400, 10103, "durable name can not contain '.', '*', '>', path separators or spaces")
TWO_FILTERS: Final = ApiError(400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified")
FILTERS_OVERLAP: Final = ApiError(400, 10138, "consumer subject filters cannot overlap")
EMPTY_FILTER: Final = ApiError(400, 10139, "consumer filter in FilterSubjects cannot be empty")
NO_FILTER: Final = ApiError(400, 10093, "consumer filter subject is not a valid subset of the interest subjects")
NEGATIVE_ACK_WAIT: Final = ApiError(400, 10183, "consumer ack wait needs to be positive")
NEGATIVE_BACKOFF: Final = ApiError(400, 10184, "consumer backoff needs to be positive")
SHORT_MAX_DELIVER: Final = ApiError(400, 10116, "max deliver is required to be > length of backoff values")
WILD_DELIVER_SUBJECT: Final = ApiError(400, 10079, "consumer deliver subject has wildcards")
PUSH_WAITING: Final = ApiError(400, 10080, "consumer in push mode can not set max waiting")
CYCLE: Final = ApiError(400, 10081, "consumer deliver subject forms a cycle")
SMALL_HEARTBEAT: Final = ApiError(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
PULL_WITHOUT_ACKS: Final = ApiError(
    400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"
)
QUEUE_WITHOUT_ACKS: Final = ApiError(400, 10098, "workqueue stream requires explicit ack")
QUEUE_HAS_CONSUMER: Final = ApiError(400, 10099, "multiple non-filtered consumers not allowed on workqueue stream")
QUEUE_FILTERS_OVERLAP: Final = ApiError(400, 10100, "filtered consumer not unique on workqueue stream")
QUEUE_DELIVERS_ALL: Final = ApiError(400, 10101, "consumer must be deliver all on workqueue stream")
HEARTBEAT_OF_PULL: Final = ApiError(400, 10088, "consumer idle heartbeat requires a push based consumer")
FLOW_OF_PULL: Final = ApiError(400, 10089, "consumer flow control requires a push based consumer")
FLOW_WITHOUT_HEARTBEAT: Final = ApiError(400, 10108, "consumer with flow control also needs heartbeats")
BAD_GROUP: Final = ApiError(
    400, 10162, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"
)
NO_SUCH_GROUP: Final = ApiError(400, 10160, "Provided priority group does not exist for this consumer")
METADATA_TOO_LONG: Final = ApiError(400, 10135, "consumer metadata exceeds maximum size")
DESCRIPTION_TOO_LONG: Final = ApiError(400, 10107, "consumer description is too long")


def start(policy: str, why: str) -> ApiError:
    """A start that does not fit the deliver policy."""
    return ApiError(400, 10094, f"consumer delivery policy is deliver {policy}, but {why}")


def not_created(why: str) -> ApiError:
    """A consumer that cannot be made or changed."""
    return ApiError(500, 10012, why)


def not_built(what: str) -> ApiError:
    """A wish that this broker cannot fulfil."""
    return not_created(f"this server does not know {what}")


def invalid_reset(why: str) -> ApiError:
    """A message to which a consumer cannot be reset."""
    return ApiError(400, 10204, f"invalid reset: {why}")


def too_many_pending(most: int) -> ApiError:
    """More messages may wait for acks than the stream allows."""
    return ApiError(400, 10121, f"consumer max ack pending exceeds system limit of {most}")


def inactive_too_long(most: int) -> ApiError:
    """The consumer is there for longer without clients than the stream allows; *most*: ns."""
    return ApiError(400, 10153, f"consumer inactive threshold exceeds system limit of {go_duration(most)}")
