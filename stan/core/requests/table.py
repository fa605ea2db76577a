"""The table of requests: for each one its message types, who answers it, which right it needs, and if it may be asked again.

Everything that differs from request to request before it is handled stands here; `stan.core.requests.router` does what all have
in common, `stan.core.clients.authorization` judges rights by the table, `stan.core.broker.routes` and the edge name the handlers.
"""

from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message
from stan_protocol.channels import Subjects
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as extension
from stan_protocol.refusals import (
    INVALID_ADMIN,
    INVALID_BATCH,
    INVALID_CONSUMER,
    INVALID_FETCH,
    INVALID_QUERY,
    INVALID_TRANSACTION,
)

from stan.core.base.delivery_policy import satellite
from stan.permissions import EVERYTHING, Right

ACCOUNTS: Final = "an account of deliveries"
POSITIONS: Final = "positions that outlive its leader"
ALL: Final = EVERYTHING.encode()
"""The pattern of all channels."""


class Scope(Enum):
    """Which nodes of a cluster answer a request."""

    CHANNEL = "the leader of the channel's group"
    APP = "the leader of the group that keeps what is known of the application"
    LEADERS = "each leader, for the groups that it leads"
    METADATA = "the leader of the metadata"
    OWNER = "the leader of the metadata; of servers that divide the channels among them, only the channel's"
    GROUP = "the leader of the group with that number"
    EACH_NODE = "each node"
    NAMED_NODE = "the node that is named"
    REPLICA = "one of the read replicas"


def _always(_request: Any) -> bool:
    return True


def _channels(request: Any) -> list[bytes]:
    """The channel and pattern that a request names; all channels if it names none."""
    request = getattr(request, "which", request)
    named = [getattr(request, "channel", b""), getattr(request, "pattern", b"")]
    return [name for name in named if name] or [ALL]


def _all(_request: Any) -> list[bytes]:
    return [ALL]


def _none(_request: Any) -> list[bytes]:
    return []


def _filled_by(request: admin.SetPolicyRequest) -> list[bytes]:
    """The channels, or patterns that cover them, into which a policy has the broker move messages."""
    policy, filled = request.policy, [request.pattern]
    for name in filter(None, (policy.target, policy.dead_letter)):  # late messages of a target are its dead letters
        # A pattern that ends with `>` covers what has a suffix behind it, too.
        filled += [at if name.startswith(b".") and at.endswith(ALL) else satellite(name, at) for at in filled]
    return filled[1:]


def _asked_about(request: extension.InfoRequest) -> list[bytes]:
    named = [*request.channels, *(position.channel for position in request.newer_than)]
    return [*named, request.pattern] if request.pattern else named


def _with_more(request: extension.StageRequest | extension.CommitRequest) -> list[bytes]:
    return [request.channel, *(share.channel for share in request.more)]


def _with_like(request: admin.CreateCursorRequest) -> list[bytes]:
    """The channel of a new position, and the one that its model is said to be of."""
    return list({request.which.channel or ALL, request.like.channel or request.which.channel or ALL})


class RequestKind(NamedTuple):
    """One row of the table."""

    name: str
    """The subject behind the prefix of the extension's subjects."""
    request: type[Message]
    response: type[Message]
    scope: Scope
    rights: tuple[Right, ...]
    """One of these rights is enough."""
    invalid: str = INVALID_ADMIN
    """The error for a request that cannot be decoded."""
    placed_by: Callable[[Any], Any] = attrgetter("channel")
    """Returns what determines the leader: a channel's name, an application's, or a group's number."""
    channels: Callable[[Any], list[bytes]] | None = _channels
    """Returns the channels or patterns for which the right is needed. None: the right for any channel is enough."""
    fills: Callable[[Any], list[bytes]] = _none
    """Returns the channels or patterns into which messages come by it: `publish` or `admin_write` is needed for each, too."""
    repeatable: Callable[[Any], bool] = _always
    """False: not idempotent, so it is not answered "ask again" while another leader may have executed it."""
    rated: bool = False
    """It counts against the configured rate of operators' requests."""
    event: bool = False
    """If it succeeds, an admin event is published."""
    of_logs: str = ""
    """What it is about, if only channels have that whose messages are in a log: ephemeral ones refuse it."""

    @property
    def by_operators(self) -> bool:
        """True for a request of docs/admin-api.md, which names its version."""
        return self.name.startswith("admin.")

    @property
    def named(self) -> bool:
        """True if the answer tells which node has given it."""
        return "node" in self.response.DESCRIPTOR.fields_by_name

    def subject(self, subjects: Subjects) -> str:
        """The NATS subject of the request in a cluster."""
        return f"{subjects.extension}.{self.name}"


_READ: Final = (Right.SUBSCRIBE,)
_WRITE: Final = (Right.PUBLISH,)
_LOOK: Final = (Right.ADMIN_READ, Right.ADMIN_WRITE)
_CHANGE: Final = (Right.ADMIN_WRITE,)
_APP: Final = attrgetter("app")
_WHICH: Final = attrgetter("which.channel")


def _looking(name: str, request: type[Message], response: type[Message], scope: Scope, **other: Any) -> RequestKind:
    return RequestKind(f"admin.{name}", request, response, scope, _LOOK, **({"rated": True} | other))


def _changing(name: str, request: type[Message], scope: Scope = Scope.CHANNEL, **other: Any) -> RequestKind:
    known = {"rated": True, "event": True} | other
    return RequestKind(f"admin.{name}", request, admin.ChangeResponse, scope, _CHANGE, **known)


def _fetching(name: str, scope: Scope) -> RequestKind:
    known = extension.FetchRequest, extension.FetchResponse
    return RequestKind(name, *known, scope, _READ, INVALID_FETCH, of_logs="reading without a subscription")


def _in_transaction(name: str, request: type[Message], response: type[Message], **other: Any) -> RequestKind:
    known = Scope.CHANNEL, _WRITE, INVALID_TRANSACTION
    return RequestKind(name, request, response, *known, of_logs="transactions", **other)


def _of_app(name: str, request: type[Message], response: type[Message]) -> RequestKind:
    return RequestKind(name, request, response, Scope.APP, _WRITE, INVALID_TRANSACTION, placed_by=_APP, channels=None)


_ROWS: Final = (
    # Requests of clients.
    _fetching("fetch", Scope.CHANNEL),
    _fetching("replica.fetch", Scope.REPLICA),
    RequestKind(
        "info",
        extension.InfoRequest,
        extension.InfoResponse,
        Scope.LEADERS,
        (Right.SUBSCRIBE, Right.PUBLISH, Right.ADMIN_READ),
        INVALID_QUERY,
        channels=_asked_about,
    ),
    RequestKind(
        "seq_at_time",
        extension.SeqAtTimeRequest,
        extension.SeqAtTimeResponse,
        Scope.CHANNEL,
        _READ,
        INVALID_QUERY,
    ),
    RequestKind(
        "cursor_set",
        extension.CursorSetRequest,
        extension.CursorSetResponse,
        Scope.CHANNEL,
        _READ,
        INVALID_QUERY,
        of_logs="named positions",
    ),
    RequestKind(
        "consumer_group",
        extension.ConsumerGroupRequest,
        extension.ConsumerGroupResponse,
        Scope.METADATA,
        _READ,
        INVALID_CONSUMER,
    ),
    RequestKind(
        "schemas",
        admin.SchemasRequest,
        admin.SchemasResponse,
        Scope.METADATA,
        (Right.SUBSCRIBE, Right.PUBLISH, *_LOOK),
        INVALID_QUERY,
    ),
    RequestKind(
        "parts",
        admin.PartsRequest,
        admin.PartsResponse,
        Scope.METADATA,
        (Right.SUBSCRIBE, Right.PUBLISH, *_LOOK),
        INVALID_QUERY,
    ),
    RequestKind("cursors", extension.CursorsRequest, extension.CursorsResponse, Scope.LEADERS, _READ, INVALID_QUERY),
    RequestKind(
        "batch",
        extension.BatchRequest,
        extension.BatchResponse,
        Scope.CHANNEL,
        _WRITE,
        INVALID_BATCH,
        repeatable=lambda request: bool(request.ids),
    ),
    _in_transaction("stage", extension.StageRequest, extension.StageResponse, channels=_with_more),
    _in_transaction("commit", extension.CommitRequest, extension.CommitResponse, channels=_with_more),
    _in_transaction("abort", extension.AbortRequest, extension.AbortResponse),
    _of_app("finish", extension.FinishRequest, extension.FinishResponse),
    _of_app("last_committed", extension.LastCommittedRequest, extension.LastCommittedResponse),
    # Requests of operators that change nothing.
    _looking("channels", admin.ChannelsRequest, admin.ChannelsResponse, Scope.LEADERS),
    _looking("delayed", admin.DelayedRequest, admin.DelayedResponse, Scope.CHANNEL),
    RequestKind(
        "admin.read_delayed",
        admin.ReadDelayedRequest,
        admin.ReadDelayedResponse,
        Scope.CHANNEL,
        _READ,
        rated=True,
    ),
    _looking("read_stream", admin.ReadStreamRequest, admin.ReadStreamResponse, Scope.CHANNEL),
    _looking("subscriptions", admin.SubscriptionsRequest, admin.SubscriptionsResponse, Scope.LEADERS),
    _looking("explain", admin.ExplainRequest, admin.ExplainResponse, Scope.CHANNEL, placed_by=_WHICH, of_logs=ACCOUNTS),
    _looking("clients", admin.ClientsRequest, admin.ClientsResponse, Scope.METADATA),
    _looking("consumer_groups", admin.ConsumerGroupsRequest, admin.ConsumerGroupsResponse, Scope.METADATA),
    _looking("policies", admin.PoliciesRequest, admin.PoliciesResponse, Scope.METADATA),
    _looking("pins", admin.PinsRequest, admin.PinsResponse, Scope.METADATA),
    _looking("check_schema", admin.CheckSchemaRequest, admin.CheckSchemaResponse, Scope.METADATA),
    _looking("nodes", admin.NodesRequest, admin.NodeStatus, Scope.EACH_NODE),
    _looking("options", admin.OptionsRequest, admin.OptionsResponse, Scope.EACH_NODE),
    _looking(
        "verify", admin.VerifyRequest, admin.VerifyResponse, Scope.NAMED_NODE, rated=False, of_logs="a verification"
    ),
    # Requests of operators that change something.
    _changing("move", admin.MoveRequest, placed_by=_WHICH, of_logs=POSITIONS),
    _changing("skip", admin.SkipRequest, placed_by=_WHICH, of_logs=POSITIONS),
    _changing("redeliver", admin.RedeliverRequest, placed_by=_WHICH, of_logs=POSITIONS),
    _changing("pause", admin.PauseRequest, placed_by=_WHICH, of_logs=POSITIONS),
    _changing("resume", admin.ResumeRequest, placed_by=_WHICH, of_logs=POSITIONS),
    _changing("create_cursor", admin.CreateCursorRequest, placed_by=_WHICH, channels=_with_like, of_logs=POSITIONS),
    _changing("delete_cursor", admin.DeleteCursorRequest, placed_by=_WHICH),
    _changing("evict_member", admin.EvictMemberRequest),
    _changing("purge", admin.PurgeRequest),
    _changing("delete_message", admin.DeleteMessageRequest, of_logs="deleting single messages"),
    _changing("redrive", admin.RedriveRequest, of_logs="dead letters"),
    _changing("edit_limits", admin.EditLimitsRequest),
    _changing("cancel_delayed", admin.CancelDelayedRequest),
    _changing("create_channel", admin.CreateChannelRequest),
    _changing("delete_channel", admin.DeleteChannelRequest),
    _changing("restore_channel", admin.RestoreChannelRequest, of_logs="what was backed up"),
    _changing("restore_rows", admin.RestoreRowsRequest, event=False),  # they come in great numbers
    _changing("restore_cursor", admin.RestoreCursorRequest, event=False),
    _changing("restore_delayed", admin.RestoreDelayedRequest, event=False),
    _changing("restore_stream", admin.RestoreStreamRequest, Scope.METADATA, channels=_all),
    _changing("restore_consumer", admin.RestoreConsumerRequest, event=False),
    _changing("restore_end", admin.RestoreEndRequest),
    _changing("evict_client", admin.EvictClientRequest, Scope.METADATA),
    _changing("add_node", admin.NodeRequest, Scope.METADATA, event=False),  # these have events of their own
    _changing("remove_node", admin.NodeRequest, Scope.METADATA, event=False),
    _changing("raise_level", admin.RaiseLevelRequest, Scope.METADATA, event=False),
    _changing("set_policy", admin.SetPolicyRequest, Scope.METADATA, fills=_filled_by),
    _changing("pin_channel", admin.PinChannelRequest, Scope.OWNER),
    _changing("change_commit", admin.ChangeCommitRequest, Scope.OWNER),
    _changing("create_parts", admin.CreatePartsRequest, Scope.OWNER),
    _changing("double_parts", admin.DoublePartsRequest, Scope.OWNER),
    _changing("delete_parts", admin.DeletePartsRequest, Scope.OWNER),
    _changing("add_schema", admin.AddSchemaRequest, Scope.METADATA),
    _changing("remove_schema", admin.RemoveSchemaRequest, Scope.METADATA),
    _changing("grow_pool", admin.GrowPoolRequest, Scope.METADATA),
    _changing("pause_moves", admin.PauseMovesRequest, Scope.METADATA),
    _changing("step_down", admin.StepDownRequest, Scope.GROUP, placed_by=attrgetter("group"), event=False),
)

REQUESTS: Final = {kind.name: kind for kind in _ROWS}
"""All requests but those below, by name."""

UNKNOWN: Final = _changing("", admin.NodesRequest)
"""How a request that is not in the table is judged: as a change of everything."""

ORIGINAL: Final = {
    "discover": Scope.METADATA,
    "pings": Scope.METADATA,
    "close": Scope.METADATA,
    "node_add": Scope.METADATA,
    "node_remove": Scope.METADATA,
    "meta": Scope.METADATA,
    "read_index": Scope.METADATA,
    "moves": Scope.GROUP,
    "serving": Scope.GROUP,
    "sub": Scope.CHANNEL,
    "unsub": Scope.CHANNEL,
    "sub_close": Scope.CHANNEL,
}
"""Requests of the original, and of nodes to the leaders of groups, by the name that their subject has in `Subjects`. A new leader
replays them; their answers, refusals and silences are those of STAN-SPEC, so their handlers take the frame."""
