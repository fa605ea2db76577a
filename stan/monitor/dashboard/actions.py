"""The changes that an operator can make from the dashboard, if that is enabled: the fields of each action, and its request.

Promises that an action with a missing or invalid field is refused before any request is sent, and that a repeated request changes
nothing twice.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from stan_protocol.kernel.wire_py import varint
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.scalars import MILLISECOND
from stan_protocol.units import counted

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.monitor.dashboard.formatting import name_of_key
from stan.monitor.dashboard.tables import BadQuestionError

Fields = Mapping[str, Any]
PRODUCER: Final = b"stan-dashboard"
_NUMBER_MAX: Final = (1 << 63) - 1
_SMALL_MAX: Final = (1 << 32) - 1
_MILLIS_MAX: Final = _NUMBER_MAX // MILLISECOND


class OperatorAction(NamedTuple):
    """An action of an operator: its request to the servers, and the sentence shown when it has succeeded."""

    kind: str
    request: Callable[[Fields], Any]
    done: Callable[[Any], str]
    answer: Any = admin.ChangeResponse


def _changed(what: str, verb: str) -> Callable[[Any], str]:
    return lambda answer: f"{counted(answer.changed, what)} {verb}"


def _says(text: str) -> Callable[[Any], str]:
    return lambda _answer: text


def _name(fields: Fields, name: str) -> bytes:
    value = fields.get(name)
    if not isinstance(value, str) or not value or len(value) > 4 * limits.CHANNEL_NAME_BYTES_MAX:
        raise BadQuestionError(f"{name}: a name is missing")
    return name_of_key(value)


def _number(fields: Fields, name: str, least: int = 0, most: int = _NUMBER_MAX) -> int:
    """Return a field that is a whole number; browsers send large numbers as text."""
    value = fields.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadQuestionError(f"{name}: a whole number from {least} to {most} is missing")
    return value


def _which(fields: Fields) -> admin.Which:
    return admin.Which(channel=_name(fields, "channel"), cursor_id=_number(fields, "cursor", 1))


def _purge(fields: Fields) -> Any:
    request = admin.PurgeRequest(version=1, channel=_name(fields, "channel"))
    if "up_to" in fields:
        request.up_to = _number(fields, "up_to", 1)
    else:
        request.keep = _number(fields, "keep")
    return request


def _move(fields: Fields) -> Any:
    request = admin.MoveRequest(version=1, which=_which(fields))
    match fields.get("to"):
        case "first":
            request.all = True
        case "new":
            request.new_only = True
        case "time":
            request.time = _number(fields, "time", 0, _MILLIS_MAX) * MILLISECOND
        case "sequence":
            request.sequence = _number(fields, "sequence", 1)
        case _:
            raise BadQuestionError("to: first, new, time or sequence")
    return request


def _skip(fields: Fields) -> Any:
    sequence = _number(fields, "sequence", 1)
    return admin.SkipRequest(version=1, which=_which(fields), runs=[sequence, sequence])


def _redrive(fields: Fields) -> Any:
    first, last = _number(fields, "first", 1), _number(fields, "last", 1)
    return admin.RedriveRequest(version=1, channel=_name(fields, "channel"), runs=[first, last])


def _put_back(answer: Any) -> str:
    stopped, later = answer.redriven.stopped, answer.redriven.next_sequence
    stay = f"; {counted(stopped, 'message')} stay, as they were put back three times" if stopped else ""
    return f"{counted(answer.changed, 'message')} put back{stay}{f'; looked at up to {later - 1:,}' if later else ''}"


def _limits(fields: Fields) -> Any:
    edited = admin.Limits()
    for name, most in (("max_msgs", _NUMBER_MAX), ("max_bytes", _NUMBER_MAX), ("max_subs", _SMALL_MAX)):
        if name in fields:
            setattr(edited, name, _number(fields, name, 0, most))
    for name in ("max_age", "max_inactivity"):
        if name in fields:
            setattr(edited, name, _number(fields, name, 0, _MILLIS_MAX) * MILLISECOND)
    reset = fields.get("reset") is True
    return admin.EditLimitsRequest(version=1, channel=_name(fields, "channel"), limits=edited, reset=reset)


def _publish(fields: Fields) -> Any:
    text = fields.get("text")
    if not isinstance(text, str):
        raise BadQuestionError("text: the message is missing")
    data = text.encode("utf-8", "replace")
    body = b"\x22" + varint(len(data)) + data if data else b""
    rows = len(body).to_bytes(4, "little") + body
    ids = secrets.token_bytes(16)  # so that the servers drop a repeated request
    return pb.BatchRequest(channel=_name(fields, "channel"), count=1, producer=PRODUCER, ids=ids, rows=rows)


def _of(request: Any, **fields: Callable[[Fields], Any]) -> Callable[[Fields], Any]:
    """Return a function that makes a *request* whose fields are read so."""
    return lambda given: request(version=1, **{name: read(given) for name, read in fields.items()})


def _named(name: str) -> Callable[[Fields], bytes]:
    return lambda fields: _name(fields, name)


def _counting(name: str, least: int = 1, most: int = _NUMBER_MAX) -> Callable[[Fields], int]:
    return lambda fields: _number(fields, name, least, most)


_CHANNEL: Final = _named("channel")
_ACTIONS: Final[dict[str, tuple[Callable[[Fields], Any], Callable[[Any], str]]]] = {
    "purge": (_purge, _changed("message", "removed")),
    "delete_message": (
        _of(admin.DeleteMessageRequest, channel=_CHANNEL, sequence=_counting("sequence")),
        _says("The message is deleted"),
    ),
    "redrive": (_redrive, _put_back),
    "create_channel": (_of(admin.CreateChannelRequest, channel=_CHANNEL), _says("The channel is there")),
    "delete_channel": (
        _of(admin.DeleteChannelRequest, channel=_CHANNEL, uid=_counting("uid", 1, _SMALL_MAX)),
        _says("The channel is deleted"),
    ),
    "edit_limits": (_limits, _says("The limits are in force")),
    "move": (_move, _says("The position is moved")),
    "skip": (_skip, _changed("message", "skipped")),
    "redeliver": (_of(admin.RedeliverRequest, which=_which), _changed("message", "sent again")),
    "pause": (_of(admin.PauseRequest, which=_which), _says("Paused")),
    "resume": (_of(admin.ResumeRequest, which=_which), _says("Resumed")),
    "evict_member": (
        _of(admin.EvictMemberRequest, channel=_CHANNEL, subscription_id=_counting("subscription")),
        _says("The member is out"),
    ),
    "delete_cursor": (_of(admin.DeleteCursorRequest, which=_which), _says("It is deleted, with its position")),
    "evict_client": (_of(admin.EvictClientRequest, client_id=_named("client")), _says("The client is out")),
    "step_down": (
        _of(admin.StepDownRequest, group=_counting("group", 0, _SMALL_MAX)),
        _says("The group is looking for another leader"),
    ),
}
ACTIONS: Final = {name: OperatorAction(f"admin.{name}", *parts) for name, parts in _ACTIONS.items()} | {
    "publish": OperatorAction(
        "batch", _publish, lambda answer: f"Stored with sequence {answer.last_sequence:,}", pb.BatchResponse
    )
}


async def act(cluster_client: ClusterClient, name: str, fields: Fields) -> str:
    """Run the action *name*; returns the sentence to show.

    Raises:
        BadQuestionError: no such action, or a field is missing or invalid. Others as of `ClusterClient.ask`.
    """
    action = ACTIONS.get(name)
    if action is None:
        raise BadQuestionError(f"there is no action {name[:40]}")
    answer = await cluster_client.ask(action.kind, action.request(fields), action.answer)
    return action.done(answer)
