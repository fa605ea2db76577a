"""Requests of operators: status of channels, subscriptions, clients and nodes, and changes (docs/admin-api.md).

admin = direct.admin  # of a Direct or a Client
for channel in await admin.channels("orders.>"):
    print(channel.name, channel.messages)
await admin.purge("orders.old", keep=100)

Answers come as the dataclasses of stan_client.admin_types. Lists are whole and in order: the pages of all leaders are put
together. Errors of all: ServerError: refused. RequestTimeoutError: no answer in time. ConnectionClosedError: the client is
closed. Of changes also OutcomeUnknownError: no answer in time, and the change may have been made.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Final, NamedTuple, TypedDict, TypeVar, Unpack

from google.protobuf.message import DecodeError, Message
from stan_protocol.admin_types import (
    ChangeResponse,
    ChannelStatus,
    ClientStatus,
    Commit,
    Compatibility,
    ConsumerGroupStatus,
    CursorRef,
    CursorStatus,
    DelayedMessage,
    DeliveryPolicy,
    Event,
    ExplainStep,
    Limits,
    NodeStatus,
    Option,
    PartedStatus,
    PinStatus,
    PolicyStatus,
    ReadDelayedResponse,
    ReadStreamResponse,
    RestoredRun,
    SchemaKind,
    SchemaStatus,
    VerifyResponse,
)
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.records import MessageRecord, message_of

from stan_client.errors import RequestTimeoutError, ServerError
from stan_client.requests.names import part_names
from stan_client.requests.requester import Requester
from stan_client.transport.session import text_of

R = TypeVar("R", bound=MessageRecord)
Runs = Iterable[tuple[int, int]]
"""First and last sequence of each run of messages."""
NODES_PATIENCE_S: Final = 3.0
"""Wait for the answers of all nodes that should be there."""
DOUBLING_GIVEN_UP: Final = (
    "stan: the parts are not doubled: a transaction or delayed messages wait for one of them, "
    "or the channel was deleted"
)
LEADERS_LOOK_AGAIN_S: Final = 0.05
"""Pause before the leaders of new parts are asked again whether they know them."""
EVENTS_MAX: Final = 1000
"""Events that wait for the caller; older ones are dropped."""


class Nodes(NamedTuple):
    """Status reports of the nodes, ordered by name, and the names of nodes that should be there and did not answer."""

    answers: list[NodeStatus]
    missing: list[str]


class Explanation(NamedTuple):
    """The account that the log gives of one message of a cursor."""

    timestamp_ns: int  # of the message, Unix ns; 0: it is gone
    state: str  # now: not sent, gone, pending, owed, rejected, exhausted, settled
    begins_late: bool  # the log no longer has all entries from the message's own on: earlier steps may be missing
    steps: list[ExplainStep]
    goes_on: bool = False  # the log has more entries, which were not read: later steps may be missing


class PolicyList(NamedTuple):
    """Policies of delivery, the wider the earlier, and for a channel the policy in force."""

    policies: list[PolicyStatus]
    in_force: DeliveryPolicy | None


class CursorPlace(TypedDict, total=False):
    """A message of a channel, by one of these."""

    sequence: int
    time: int  # Unix ns: the first message at or after it
    new_only: bool  # the first message that is published from then on
    all: bool  # the oldest message
    like: CursorRef  # create_cursor: as that position of the channel, with its unacked messages; nobody may be subscribed to it


class Admin:
    """Administration requests of one client."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    async def _listed(
        self,
        record: type[R],
        kind: str,
        request: Message,
        answer: type[Message],
        items: str,
        after: Mapping[str, str],
        patience_s: float | None = None,
    ) -> list[R]:
        """All *items* of the answers to *request*, page by page: each begins behind the last item; *after*: the fields of an item
        that say so, by fields of the request."""
        records: list[R] = []
        while True:
            page: Any = await self._requester.ask(kind, request, answer, patience_s=patience_s)
            rows = getattr(page, items)
            records += map(record.from_pb, rows)
            if not page.more or not rows:
                return records
            for to, of in after.items():
                setattr(request, to, getattr(rows[-1], of))

    def within(self, timeout_s: float) -> "Admin":
        """Return the same requests with another patience: each is repeated for *timeout_s* seconds at most."""
        return Admin(self._requester.within(timeout_s))

    # --- what there is ------------------------------------------------------------------------------------------------

    async def channels(self, pattern: str = ">", *, page: int = 0) -> list[ChannelStatus]:
        """Channels by name; in *pattern* `*` stands for one token, `>` for all that follow. *page*: size of an answer."""
        request = message_of(pb.ChannelsRequest, version=1, pattern=pattern, max=page)
        after = {"after": "name"}
        statuses = await self._requester.ask_pages("admin.channels", request, pb.ChannelsResponse, "channels", after)
        return [ChannelStatus.from_pb(statuses[name]) for name in sorted(statuses)]

    async def channel(self, name: str) -> ChannelStatus | None:
        """Return the channel of this name; None if it does not exist."""
        return next(iter(await self.channels(name)), None)

    async def subscriptions(
        self,
        pattern: str = ">",
        *,
        name: str = "",
        client_id: str = "",
        durable_only: bool = False,
        page: int = 0,
    ) -> list[CursorStatus]:
        """List cursors by channel and id: of channels that match, with that *name* (of a durable or group), of that client."""
        fields = {"pattern": pattern, "name": name, "client_id": client_id, "durable_only": durable_only, "max": page}
        request = message_of(pb.SubscriptionsRequest, version=1, **fields)
        kind, after = "admin.subscriptions", {"after_channel": "channel", "after_cursor": "cursor_id"}
        statuses = await self._requester.ask_pages(kind, request, pb.SubscriptionsResponse, "cursors", after)
        return [CursorStatus.from_pb(statuses[key]) for key in sorted(statuses)]

    async def clients(self, client_id: str = "", *, page: int = 0) -> list[ClientStatus]:
        """Clients by id, or the one with that id."""
        request = message_of(pb.ClientsRequest, version=1, client_id=client_id, max=page)
        after = {"after": "client_id"}
        return await self._listed(ClientStatus, "admin.clients", request, pb.ClientsResponse, "clients", after)

    async def policies(self, channel: str = "", name: str = "", *, pattern: str = "", page: int = 0) -> PolicyList:
        """List policies of delivery, the wider the earlier: all, those of one *pattern*, or those for a *channel* and in it the
        durable or queue group *name*; for a channel also the policy in force."""
        fields = {"channel": channel, "name": name, "pattern": pattern, "max": page}
        request = message_of(pb.PoliciesRequest, version=1, **fields)
        policies: list[PolicyStatus] = []
        while True:
            answer = await self._requester.ask("admin.policies", request, pb.PoliciesResponse)
            policies += map(PolicyStatus.from_pb, answer.policies)
            if not answer.more or not answer.policies:
                in_force = DeliveryPolicy.from_pb(answer.in_force) if answer.HasField("in_force") else None
                return PolicyList(policies, in_force)
            request.after = len(policies)

    async def consumer_groups(self, group: str = "", *, user: str = "", page: int = 0) -> list[ConsumerGroupStatus]:
        """The consumer groups that have members, by name; or only *group*, with its members and channels: that of *user*, else
        the first one of that name."""
        request = message_of(pb.ConsumerGroupsRequest, version=1, group=group, user=user, max=page)
        kind, after = "admin.consumer_groups", {"after": "group", "after_user": "user"}
        return await self._listed(ConsumerGroupStatus, kind, request, pb.ConsumerGroupsResponse, "groups", after)

    async def pins(self, *, page: int = 0) -> list[PinStatus]:
        """The channels that are pinned to a group, by name."""
        request = message_of(pb.PinsRequest, version=1, max=page)
        return await self._listed(PinStatus, "admin.pins", request, pb.PinsResponse, "pins", {"after": "channel"})

    async def parts(self, channel: str = "", *, page: int = 0) -> list[PartedStatus]:
        """The channels that have parts, by name; *channel*: only this one."""
        request = message_of(pb.PartsRequest, channel=channel, max=page)
        return await self._listed(PartedStatus, "parts", request, pb.PartsResponse, "channels", {"after": "channel"})

    async def schemas(
        self,
        channel: str = "",
        *,
        pattern: str = "",
        version: int = 0,
        texts: bool = True,
        timeout_s: float | None = None,
        page: int = 0,
    ) -> list[SchemaStatus]:
        """List the registered versions of schemas, by pattern and number: all, those in force for a *channel*, or those of one
        *pattern*; of these only one *version*, if it is given. Without *texts* the answers have only their sizes."""
        fields = {"channel": channel, "pattern": pattern, "schema_version": version, "without_texts": not texts}
        request = message_of(pb.SchemasRequest, version=1, max=page, **fields)
        after = {"after_pattern": "pattern", "after_version": "schema_version"}
        return await self._listed(
            SchemaStatus, "schemas", request, pb.SchemasResponse, "schemas", after, patience_s=timeout_s
        )

    async def delayed(self, channel: str, *, page: int = 0) -> list[DelayedMessage]:
        """List the delayed messages that are not due yet, by id."""
        request = message_of(pb.DelayedRequest, version=1, channel=channel, max=page)
        after = {"after": "id"}
        return await self._listed(DelayedMessage, "admin.delayed", request, pb.DelayedResponse, "messages", after)

    async def read_delayed(self, channel: str, after: int = 0, *, until: int = 0) -> ReadDelayedResponse:
        """A page of the same messages with their contents, those with an id above *after*; while `more` is set, the next page
        begins behind the answer's `after`. With *until* (Unix ns): only the `ids` of all that are due by then."""
        request = message_of(pb.ReadDelayedRequest, version=1, channel=channel, after=after, until=until)
        answer = await self._requester.ask("admin.read_delayed", request, pb.ReadDelayedResponse)
        return ReadDelayedResponse.from_pb(answer)

    async def nodes(self, *, patience_s: float = NODES_PATIENCE_S) -> Nodes:
        """Collect the status of each node; nodes that do not answer within *patience_s* seconds are `missing`."""
        request = pb.NodesRequest(version=1)
        answers = await self._requester.ask_nodes("admin.nodes", request, pb.NodeStatus, _all_told, patience_s)
        statuses = {answer.node: NodeStatus.from_pb(answer) for answer in answers}
        return Nodes([statuses[node] for node in sorted(statuses)], sorted(_expected(answers) - statuses.keys()))

    async def options(self, *, patience_s: float = NODES_PATIENCE_S) -> dict[str, list[Option]]:
        """The configuration in force, by node; nodes that do not answer are left out."""
        there = {answer.node for answer in (await self.nodes(patience_s=patience_s)).answers}

        def enough(answers: list[pb.OptionsResponse]) -> bool:
            return there <= {answer.node for answer in answers}

        request = pb.OptionsRequest(version=1)
        answers = await self._requester.ask_nodes("admin.options", request, pb.OptionsResponse, enough, patience_s)
        answers.sort(key=lambda answer: answer.node)
        return {answer.node: [Option.from_pb(option) for option in answer.options] for answer in answers}

    async def verify(
        self,
        channel: str,
        first: int,
        last: int,
        *,
        node: str = "",
        uid: int = 0,
        crc: int = 0,
        compared_from: int = 0,
    ) -> VerifyResponse:
        """Verify a part of one node's copy of a channel; to continue, ask again from `next_sequence` with the answer's `crc`.

        Args:
            channel: its name.
            first: sequence to begin with.
            last: sequence to end with; an answer may end before.
            node: whose copy; "": that of a server alone.
            uid: only if the channel is still this one; 0: whichever.
            crc: of all that was read so far.
            compared_from: messages below are read and not counted: nodes compact them by themselves.
        """
        fields = {"node": node, "channel": channel, "uid": uid, "from": first, "to": last, "crc": crc}
        request = message_of(pb.VerifyRequest, version=1, compared_from=compared_from, **fields)
        return VerifyResponse.from_pb(await self._requester.ask("admin.verify", request, pb.VerifyResponse))

    async def explain(self, cursor: CursorRef, sequence: int, *, answers: int = 0) -> Explanation:
        """Explain the history of one message of a cursor: each delivery with its cause and its outcome.

        The servers read the log from the message on until it is settled; of one that never is, to its end. *answers*: stop
        after so many answers, each of up to 6,000 entries; 0: do not."""
        request = message_of(pb.ExplainRequest, version=1, which=cursor, sequence=sequence)
        steps: list[ExplainStep] = []
        begins_late, answered = False, 0
        while True:
            answered += 1
            answer = await self._requester.ask("admin.explain", request, pb.ExplainResponse)
            begins_late = begins_late or answer.begins_late
            steps += map(ExplainStep.from_pb, answer.steps)
            if not answer.more or answered == answers:
                return Explanation(answer.timestamp, answer.state, begins_late, steps, answer.more)
            getattr(request, "from").CopyFrom(answer.next)

    async def events(self, kind: str = "*") -> AsyncGenerator[Event, None]:
        """Yield events of the servers from now on until the generator is closed; events may be lost, also while the connection
        is made again.

        Raises:
            ConnectionClosedError: the client is closed, or its connection is for good.
        """
        async with aclosing(self._requester.published(f"events.{kind}", EVENTS_MAX)) as frames:
            async for frame in frames:
                with suppress(DecodeError):
                    yield Event.from_pb(pb.Event.FromString(frame.payload))

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _change(self, kind: str, request: type[Message], /, **fields: Any) -> ChangeResponse:
        message = message_of(request, version=1, **fields)
        return ChangeResponse.from_pb(
            await self._requester.ask(f"admin.{kind}", message, pb.ChangeResponse, changes=True)
        )

    async def purge(self, channel: str, *, up_to: int | None = None, keep: int = 0) -> ChangeResponse:
        """Remove messages: those up to a sequence, or all but the *keep* newest."""
        newest = keep if up_to is None else None
        return await self._change("purge", pb.PurgeRequest, channel=channel, up_to=up_to, keep=newest)

    async def delete_message(self, channel: str, sequence: int) -> ChangeResponse:
        """Remove one message; its sequence stays unused."""
        return await self._change("delete_message", pb.DeleteMessageRequest, channel=channel, sequence=sequence)

    async def redrive(self, channel: str, runs: Runs, *, to: str = "") -> ChangeResponse:
        """Put dead letters of *channel* back into the channel that they come from, or into channel *to*; *runs*: first and last
        sequence of each. Each message is moved in one step: a crash leaves it in one of the two. `redriven` has the fate of
        the others, and where the next request begins, as one request takes about a megabyte."""
        return await self._change("redrive", pb.RedriveRequest, channel=channel, runs=runs, to=to)

    async def cancel_delayed(self, channel: str, ids: Iterable[int]) -> ChangeResponse:
        """Cancel messages that wait for their time, by the ids that `delayed` and publish() tell; `changed` of them are gone."""
        return await self._change("cancel_delayed", pb.CancelDelayedRequest, channel=channel, ids=ids)

    async def create_channel(self, channel: str) -> ChangeResponse:
        """Make a channel, if there is none yet."""
        return await self._change("create_channel", pb.CreateChannelRequest, channel=channel)

    async def create_parts(self, channel: str, parts: int, *, key: str = "") -> ChangeResponse:
        """Make a channel with so many parts, if it is not there; *key*: where JSON data has the key of a message that comes
        without one, `$.customer`. Returns when the leaders of all parts know it."""
        answer = await self._change("create_parts", pb.CreatePartsRequest, channel=channel, parts=parts, key=key)
        with _accepted():
            await self._leaders_know(channel, parts)
        return answer

    async def _leaders_know(self, channel: str, parts: int) -> None:
        """Wait until the leaders of all parts know them, or the channel is gone."""
        names = set(part_names(channel, parts))
        while names - {one.name for one in await self.channels(f"{channel}.*")}:
            if not await self.parts(channel):
                return
            await asyncio.sleep(LEADERS_LOOK_AGAIN_S)

    async def double_parts(self, channel: str, parts: int) -> None:
        """Give a channel with so many parts twice as many. Returns when they are there, and their leaders know them.

        Raises:
            ServerError: refused, or given up: a transaction or delayed messages wait for a part; the servers' log says which.
        """
        await self._change("double_parts", pb.DoublePartsRequest, channel=channel, parts=parts)
        with _accepted():
            parted = await self.parts(channel)
            while parted and parted[0].doubling:
                await asyncio.sleep(LEADERS_LOOK_AGAIN_S)
                parted = await self.parts(channel)
            if not parted or parted[0].parts != 2 * parts:
                raise ServerError(DOUBLING_GIVEN_UP)
            await self._leaders_know(channel, 2 * parts)

    async def delete_parts(self, channel: str) -> ChangeResponse:
        """Remove a channel that has parts, with all of them; answered once that is decided."""
        return await self._change("delete_parts", pb.DeletePartsRequest, channel=channel)

    async def delete_channel(self, channel: str, *, uid: int = 0) -> ChangeResponse:
        """Remove a channel with its messages and subscriptions; only if it is still that one, with *uid*."""
        return await self._change("delete_channel", pb.DeleteChannelRequest, channel=channel, uid=uid)

    async def edit_limits(self, channel: str, limits: Limits | None = None, *, reset: bool = False) -> ChangeResponse:
        """Override the configured limits of a channel by those that are set; *reset* undoes all earlier edits first."""
        return await self._change("edit_limits", pb.EditLimitsRequest, channel=channel, limits=limits, reset=reset)

    async def create_cursor(self, cursor: CursorRef, **at: Unpack[CursorPlace]) -> ChangeResponse:
        """Create a durable (of that client) or a durable queue group without a subscriber; *at*: its first message."""
        return await self._change("create_cursor", pb.CreateCursorRequest, which=cursor, **at)

    async def move(self, cursor: CursorRef, **to: Unpack[CursorPlace]) -> ChangeResponse:
        """Move a cursor; *to*: the message that it gets next."""
        return await self._change("move", pb.MoveRequest, which=cursor, **to)

    async def skip(self, cursor: CursorRef, runs: Runs) -> ChangeResponse:
        """Treat messages as acked; *runs*: first and last sequence of each."""
        return await self._change("skip", pb.SkipRequest, which=cursor, runs=runs)

    async def redeliver(self, cursor: CursorRef, runs: Runs = ()) -> ChangeResponse:
        """Send pending messages again now; without *runs* all of them."""
        return await self._change("redeliver", pb.RedeliverRequest, which=cursor, runs=runs)

    async def pause(self, cursor: CursorRef) -> ChangeResponse:
        """Stop deliveries of a cursor until `resume`."""
        return await self._change("pause", pb.PauseRequest, which=cursor)

    async def resume(self, cursor: CursorRef) -> ChangeResponse:
        """Continue the deliveries of a cursor after `pause`."""
        return await self._change("resume", pb.ResumeRequest, which=cursor)

    async def evict_member(self, channel: str, subscription_id: int) -> ChangeResponse:
        """Close one subscription; a durable stays."""
        fields = {"channel": channel, "subscription_id": subscription_id}
        return await self._change("evict_member", pb.EvictMemberRequest, **fields)

    async def delete_cursor(self, cursor: CursorRef) -> ChangeResponse:
        """Delete a durable or queue group with its position and its members."""
        return await self._change("delete_cursor", pb.DeleteCursorRequest, which=cursor)

    async def evict_client(self, client_id: str) -> ChangeResponse:
        """Close a client's registration, as if the client had closed its connection."""
        return await self._change("evict_client", pb.EvictClientRequest, client_id=client_id)

    async def step_down(self, group: int, to: str = "") -> ChangeResponse:
        """Make the leader of a group (0: the metadata group) transfer its leadership to node *to*; "": to the best successor."""
        return await self._change("step_down", pb.StepDownRequest, group=group, to=to)

    async def add_node(self, node: str) -> ChangeResponse:
        """Add a node to the cluster."""
        return await self._change("add_node", pb.NodeRequest, node=node)

    async def remove_node(self, node: str) -> ChangeResponse:
        """Take a node out of the cluster."""
        return await self._change("remove_node", pb.NodeRequest, node=node)

    async def raise_level(self, to: int = 0) -> ChangeResponse:
        """Raise the cluster's level, so that entries that older versions do not understand may be written; 0: to the highest that
        all nodes know."""
        return await self._change("raise_level", pb.RaiseLevelRequest, to=to)

    async def set_policy(self, pattern: str, policy: DeliveryPolicy | None = None, *, name: str = "") -> ChangeResponse:
        """Set how messages of the channels that *pattern* covers are delivered, or only those of a durable or queue group *name*.
        It takes the place of an earlier policy of the same pattern and name; None removes that one."""
        return await self._change("set_policy", pb.SetPolicyRequest, pattern=pattern, name=name, policy=policy)

    async def grow_pool(self, groups: int, commit: Commit = Commit.SYNCED) -> ChangeResponse:
        """Let the cluster have *groups* groups of channels from now on; answered once that is decided. *commit*: the
        meaning of acks in the channels of the new groups."""
        return await self._change("grow_pool", pb.GrowPoolRequest, groups=groups, commit=commit)

    async def pause_moves(self) -> ChangeResponse:
        """Let no channel go by itself to the group where it belongs, until `resume_moves`; moves under way end."""
        return await self._change("pause_moves", pb.PauseMovesRequest, paused=True)

    async def resume_moves(self) -> ChangeResponse:
        """Let channels go by themselves to the groups where they belong, after `pause_moves`."""
        return await self._change("pause_moves", pb.PauseMovesRequest, paused=False)

    async def pin_channel(self, channel: str, group: int) -> ChangeResponse:
        """Have a channel made in a group, when it is made; one that exists elsewhere is moved there."""
        return await self._change("pin_channel", pb.PinChannelRequest, channel=channel, group=group)

    async def unpin_channel(self, channel: str) -> ChangeResponse:
        """Take the pin of a channel back, and cancel its move; it stays where it is."""
        return await self._change("pin_channel", pb.PinChannelRequest, channel=channel)

    async def change_commit(self, channel: str, commit: Commit) -> ChangeResponse:
        """Have acks of a channel's publishes mean something else. Refused while it has messages.

        Returns once its move to a group of that kind has begun; `ChannelStatus.commit` shows when it is over. It is given up if a
        message comes meanwhile."""
        return await self._change("change_commit", pb.ChangeCommitRequest, channel=channel, commit=commit)

    async def add_schema(
        self,
        pattern: str,
        text: bytes,
        kind: SchemaKind = SchemaKind.JSON,
        *,
        message: str = "",
        compatibility: Compatibility | None = None,
        version: int = 0,
    ) -> ChangeResponse:
        """Register one more version of the schema of the channels that *pattern* covers.

        Args:
            pattern: of channels.
            text: of the schema; for protobuf a serialized FileDescriptorSet.
            kind: in which language.
            message: with protobuf, the full name of the message.
            compatibility: promise of the new version, and later ones, to earlier ones; None: unchanged, backward at first.
            version: its number, to put back an earlier one, whatever it promises; 0: the next one.

        Raises:
            ServerError: refused; for a broken promise, with the first reason.

        Returns: its number as `schema_version`; `changed` is 0 if it was there already.
        """
        fields = {"pattern": pattern, "kind": kind, "text": text, "message": message, "compatibility": compatibility}
        return await self._change("add_schema", pb.AddSchemaRequest, schema_version=version, **fields)

    async def check_schema(
        self,
        pattern: str,
        text: bytes,
        kind: SchemaKind = SchemaKind.JSON,
        *,
        message: str = "",
        compatibility: Compatibility | None = None,
    ) -> list[str]:
        """List reasons why `add_schema` would break its promise, each with version and path. Arguments as there.

        Raises:
            ServerError: it would be refused for another reason.
        """
        fields = {"pattern": pattern, "kind": kind, "text": text, "message": message, "compatibility": compatibility}
        request = message_of(pb.CheckSchemaRequest, version=1, **fields)
        answer = await self._requester.ask("admin.check_schema", request, pb.CheckSchemaResponse)
        return [text_of(one) for one in answer.complaints]

    async def remove_schema(self, pattern: str, version: int = 0) -> ChangeResponse:
        """Remove one version of a schema, or the whole schema with *version* 0. Messages stay as they are."""
        return await self._change("remove_schema", pb.RemoveSchemaRequest, pattern=pattern, schema_version=version)

    # --- restoring ----------------------------------------------------------------------------------------------------

    async def restore_channel(
        self, channel: str, restore: str, first_sequence: int, limits: Limits | None = None
    ) -> ChangeResponse:
        """Begin to restore a channel, under a name that no other restore has."""
        fields = {"channel": channel, "restore": restore, "first_sequence": first_sequence, "limits": limits}
        return await self._change("restore_channel", pb.RestoreChannelRequest, **fields)

    async def restore_rows(
        self,
        channel: str,
        restore: str,
        runs: Iterable[RestoredRun],
        rows: bytes,
        *,
        expiring_runs: Runs = (),
        expire_at: Iterable[int] = (),
    ) -> ChangeResponse:
        """Put messages back, with their sequences and times. Those of *expiring_runs* (first and last sequence of each) expire at
        *expire_at* (Unix seconds, one for each run)."""
        fields = {"channel": channel, "restore": restore, "runs": runs, "rows": rows}
        more = {"expiring_runs": expiring_runs, "expire_at": expire_at}
        return await self._change("restore_rows", pb.RestoreRowsRequest, **fields, **more)

    async def restore_cursor(self, channel: str, restore: str, cursor: CursorStatus) -> ChangeResponse:
        """Put a durable or durable queue group back."""
        fields = {"channel": channel, "restore": restore, "cursor": cursor}
        return await self._change("restore_cursor", pb.RestoreCursorRequest, **fields)

    async def restore_delayed(
        self, channel: str, restore: str, messages: Iterable[DelayedMessage], rows: bytes
    ) -> ChangeResponse:
        """Put messages back that wait for their time, with their ids, in the order of these."""
        fields = {"channel": channel, "restore": restore, "messages": messages, "rows": rows}
        return await self._change("restore_delayed", pb.RestoreDelayedRequest, **fields)

    async def read_stream(self, channel: str, after: str = "") -> ReadStreamResponse:
        """The stream of JetStream that a channel has, and a page of its consumers, those behind the name *after*, as they are
        restored."""
        request = message_of(pb.ReadStreamRequest, version=1, channel=channel, after=after)
        answer = await self._requester.ask("admin.read_stream", request, pb.ReadStreamResponse)
        return ReadStreamResponse.from_pb(answer)

    async def restore_stream(self, channel: str, stream: str) -> ChangeResponse:
        """Make the stream of a channel again; *stream*: as `read_stream` tells it."""
        return await self._change("restore_stream", pb.RestoreStreamRequest, channel=channel, stream=stream)

    async def restore_consumer(self, channel: str, consumer: str) -> ChangeResponse:
        """Make a consumer of the channel's stream out of its position, which was put back; *consumer*: as `read_stream` tells
        it."""
        return await self._change("restore_consumer", pb.RestoreConsumerRequest, channel=channel, consumer=consumer)

    async def restore_end(self, channel: str, restore: str, last_sequence: int = 0) -> ChangeResponse:
        """End the restore: the channel is complete."""
        fields = {"channel": channel, "restore": restore, "last_sequence": last_sequence}
        return await self._change("restore_end", pb.RestoreEndRequest, **fields)


@contextmanager
def _accepted() -> Iterator[None]:
    """Follow a change that the servers have accepted: a timeout reports that they have."""
    try:
        yield
    except RequestTimeoutError as error:
        raise RequestTimeoutError(f"{error}; the change was accepted and goes on") from None


def _expected(answers: list[pb.NodeStatus]) -> set[str]:
    """Names of the nodes that should be there, from the answers with the newest node list."""
    newest = max((answer.nodes_version for answer in answers), default=0)
    named = {node for answer in answers if answer.nodes_version == newest for node in answer.nodes}
    return named | {node for answer in answers for node in answer.read_replicas}


def _all_told(answers: list[pb.NodeStatus]) -> bool:
    return bool(answers) and _expected(answers) <= {answer.node for answer in answers}
