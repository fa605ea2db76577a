"""Refusals of JetStream's API: HTTP-like code, error code and text, as clients of JetStream know them."""

from typing import Final, NamedTuple


class ApiError(NamedTuple):
    """Describes a refusal."""

    code: int  # as of HTTP
    err_code: int  # JetStream's own
    description: str

    def document(self) -> dict[str, object]:
        """The refusal as the field `error` of an answer."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


class RequestError(ValueError):
    """A request cannot be taken as it is."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.description)
        self.error = error


FORBIDDEN: Final = 403
UNAVAILABLE: Final = ApiError(503, 10008, "JetStream system temporarily unavailable")
BAD_REQUEST: Final = ApiError(400, 10003, "bad request")
INSUFFICIENT: Final = ApiError(503, 10023, "insufficient resources")
TOO_MANY_STREAMS: Final = ApiError(400, 10027, "maximum number of streams reached")
ALONE: Final = ApiError(503, 10010, "JetStream clustering support required")
UNSUPPORTED_IN_CLUSTER: Final = ApiError(503, 10036, "not currently supported in clustered mode")
NO_STREAM: Final = ApiError(404, 10059, "stream not found")
OTHER_STREAM: Final = ApiError(400, 10056, "stream name in subject does not match request")
STREAM_EXISTS: Final = ApiError(400, 10058, "stream name already in use with a different configuration")
OVERLAP: Final = ApiError(400, 10065, "subjects overlap with an existing stream")
REPLICAS_ALONE: Final = ApiError(500, 10074, "replicas > 1 not supported in non-clustered mode")
NO_MESSAGE: Final = ApiError(404, 10037, "no message found")
MESSAGE_TOO_LARGE: Final = ApiError(400, 10054, "message size exceeds maximum allowed")
HEADER_TOO_LARGE: Final = ApiError(400, 10097, "header size exceeds maximum allowed of 64k")
NOT_THAT_STREAM: Final = ApiError(400, 10060, "expected stream does not match")
NO_TTL: Final = ApiError(400, 10166, "per-message TTL is disabled")
INVALID_TTL: Final = ApiError(400, 10165, "invalid per-message TTL")
TOO_MANY_REQUESTS: Final = ApiError(429, 10167, "too many requests")
NEWER_API: Final = ApiError(412, 10185, "JetStream minimum api level required")
NOT_EMPTY: Final = ApiError(400, 10038, "expected an empty request payload")
NOT_READY: Final = ApiError(503, 10163, "expected last sequence per subject temporarily unavailable")
NO_BATCHES: Final = ApiError(400, 10174, "atomic publish is disabled")
NO_FAST_BATCHES: Final = ApiError(400, 10205, "batch publish is disabled")
NO_COUNTERS: Final = ApiError(400, 10168, "message counters is disabled")
NO_SCHEDULES: Final = ApiError(400, 10188, "message schedules is disabled")
INVALID_SCHEDULE: Final = ApiError(400, 10189, "message schedules pattern is invalid")
INVALID_TARGET: Final = ApiError(400, 10190, "message schedules target is invalid")
INVALID_SCHEDULE_TTL: Final = ApiError(400, 10191, "message schedules invalid per-message TTL")
INVALID_SCHEDULE_ROLLUP: Final = ApiError(400, 10192, "message schedules invalid rollup")
INVALID_SOURCE: Final = ApiError(400, 10203, "message schedules source is invalid")
INVALID_ZONE: Final = ApiError(400, 10223, "message schedules time zone is invalid")
INVALID_SCHEDULER: Final = ApiError(400, 10212, "message schedules invalid scheduler")
SEALED: Final = ApiError(400, 10109, "invalid operation on sealed stream")
OTHERS_CONSUMER: Final = ApiError(FORBIDDEN, 10403, "the consumer belongs to another user")
NO_INBOX: Final = ApiError(FORBIDDEN, 10403, "messages are delivered to inboxes alone: see the option reply_prefixes")
EXPECTS_NUMBER: Final = ApiError(400, 10193, "missing sequence for expected last sequence per subject")


def not_permitted(why: str) -> ApiError:
    """A request, or a message, of a user without the right to it; *why*: the refusal in STAN's words."""
    return ApiError(FORBIDDEN, 10403, why.removeprefix("stan: "))


def invalid_json(why: str) -> ApiError:
    """A request that is no JSON, or has a field of another type."""
    return ApiError(400, 10025, f"invalid JSON: {why}")


def invalid_config(why: str) -> ApiError:
    """A configuration of a stream that cannot be taken."""
    return ApiError(500, 10052, why)


def pedantic_refusal(why: str) -> ApiError:
    """A value in the place of which another one would be taken, where the client does not want that."""
    return ApiError(400, 10157, f"pedantic mode: {why}")


def not_stored(why: str) -> ApiError:
    """A message that was not stored."""
    return ApiError(503, 10077, why)


TOO_MANY_SCHEDULES: Final = not_stored("too many schedules and deleted messages")


def not_deleted(why: str) -> ApiError:
    """A message that was not deleted."""
    return ApiError(500, 10057, why)


def not_purged(why: str) -> ApiError:
    """A stream that was not purged."""
    return ApiError(500, 10110, why)


def no_rollup(why: str) -> ApiError:
    """A message that cannot take the place of earlier ones."""
    return ApiError(500, 10111, why)


def no_such_sequence(sequence: int) -> ApiError:
    """A message that is not there."""
    return ApiError(400, 10043, f"sequence {sequence} not found")


def wrong_last_sequence(last: int) -> ApiError:
    """The refusal where *last* is the last sequence, and the publisher expects another one."""
    return ApiError(400, 10071, f"wrong last sequence: {last}")


def wrong_last_id(last: str) -> ApiError:
    """The refusal where *last* is the id of the last message, and the publisher expects another one."""
    return ApiError(400, 10070, f"wrong last msg ID: {last}")
