"""Requests of operators: status of channels, subscriptions, clients and nodes, and changes (docs/admin-api.md).

admin = direct.admin  # of a Direct or a Client
for channel in await admin.channels("orders.>"):
    print(channel.name, channel.messages)
await admin.purge("orders.old", keep=100)

Answers come as the messages of stan_protocol.proto.admin_pb2. Lists are whole and in order: the pages of all leaders are put
together. Errors of all: ServerError: refused. RequestTimeoutError: no answer in time. ConnectionClosedError: the client is
closed.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message
from stan_protocol.proto import admin_pb2 as pb

from stan_client.errors import RequestTimeoutError, ServerError
from stan_client.requests.names import part_names, raw
from stan_client.requests.requester import Requester

NODES_PATIENCE_S: Final = 3.0
"""Wait for the answers of all nodes that should be there."""
DOUBLING_GIVEN_UP: Final = (
    "stan: the parts are not doubled: a transaction or delayed messages wait for one of them, "
    "or the channel was deleted"
)
LEADERS_LOOK_AGAIN_S: Final = 0.05
"""Pause before the leaders of new parts are asked again if they know them."""
EVENTS_MAX: Final = 1000
"""Events that wait to be taken; older ones are dropped."""


class Nodes(NamedTuple):
    """Status reports of the nodes, ordered by name, and the names of nodes that should be there and did not answer."""

    answers: list[pb.NodeStatus]
    missing: list[str]


class Explanation(NamedTuple):
    """What the log tells of one message of a cursor."""

    timestamp_ns: int  # of the message, Unix ns; 0: it is gone
    state: str  # now: not sent, gone, pending, owed, rejected, exhausted, settled
    begins_late: bool  # the log no longer has all entries from the message's own on: earlier steps may be missing
    steps: list[pb.ExplainStep]
    goes_on: bool = False  # the log has more entries, which were not read: later steps may be missing


class PolicyList(NamedTuple):
    """Policies of delivery, the wider the earlier, and what is in force where a channel was asked about."""

    policies: list[pb.PolicyStatus]
    in_force: pb.DeliveryPolicy | None


class Admin:
    """Administration requests of one client."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    async def _listed(
        self, kind: str, request: Any, answer: type[Message], items: str, after: Mapping[str, str]
    ) -> list[Any]:
        """All *items* of the answers to *request*, page by page: each begins behind the last item; *after*: the fields of an item
        that say so, by fields of the request."""
        found: list[Any] = []
        while True:
            page: Any = await self._requester.ask(kind, request, answer)
            found += getattr(page, items)
            if not page.more or not getattr(page, items):
                return found
            for to, of in after.items():
                setattr(request, to, getattr(found[-1], of))

    def within(self, timeout_s: float) -> "Admin":
        """Return the same requests with another patience: each is repeated for *timeout_s* seconds at most."""
        return Admin(self._requester.within(timeout_s))

    # --- what there is ------------------------------------------------------------------------------------------------

    async def channels(self, pattern: str = ">", *, page: int = 0) -> list[pb.ChannelStatus]:
        """Channels by name; in *pattern* `*` stands for one token, `>` for all that follow. *page*: size of an answer."""
        request = pb.ChannelsRequest(version=1, pattern=raw(pattern), max=page)
        after = {"after": "name"}
        found = await self._requester.ask_pages("admin.channels", request, pb.ChannelsResponse, "channels", after)
        return [found[name] for name in sorted(found)]

    async def channel(self, name: str) -> pb.ChannelStatus | None:
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
    ) -> list[pb.CursorStatus]:
        """List cursors by channel and id: of channels that match, with that *name* (of a durable or group), of that client."""
        request = pb.SubscriptionsRequest(
            version=1,
            pattern=raw(pattern),
            name=raw(name),
            client_id=raw(client_id),
            durable_only=durable_only,
            max=page,
        )
        kind, after = "admin.subscriptions", {"after_channel": "channel", "after_cursor": "cursor_id"}
        found = await self._requester.ask_pages(kind, request, pb.SubscriptionsResponse, "cursors", after)
        return [found[key] for key in sorted(found)]

    async def clients(self, client_id: str = "", *, page: int = 0) -> list[pb.ClientStatus]:
        """Clients by id, or the one with that id."""
        request = pb.ClientsRequest(version=1, client_id=raw(client_id), max=page)
        return await self._listed("admin.clients", request, pb.ClientsResponse, "clients", {"after": "client_id"})

    async def policies(self, channel: str = "", name: str = "", *, pattern: str = "", page: int = 0) -> PolicyList:
        """Policies of delivery, the wider the earlier: all, those of one *pattern*, or those that concern a *channel* and in it
        the durable or queue group *name*; for a channel also what is in force."""
        request = pb.PoliciesRequest(version=1, channel=raw(channel), name=raw(name), pattern=raw(pattern), max=page)
        found: list[pb.PolicyStatus] = []
        while True:
            answer = await self._requester.ask("admin.policies", request, pb.PoliciesResponse)
            found += answer.policies
            if not answer.more or not answer.policies:
                return PolicyList(found, answer.in_force if answer.HasField("in_force") else None)
            request.after = len(found)

    async def consumer_groups(self, group: str = "", *, user: str = "", page: int = 0) -> list[pb.ConsumerGroupStatus]:
        """The consumer groups that have members, by name; or only *group*, with its members and channels: that of *user*, else
        the first one of that name."""
        request = pb.ConsumerGroupsRequest(version=1, group=raw(group), user=raw(user), max=page)
        after = {"after": "group", "after_user": "user"}
        return await self._listed("admin.consumer_groups", request, pb.ConsumerGroupsResponse, "groups", after)

    async def pins(self, *, page: int = 0) -> list[pb.PinStatus]:
        """The channels that are pinned to a group, by name."""
        request = pb.PinsRequest(version=1, max=page)
        return await self._listed("admin.pins", request, pb.PinsResponse, "pins", {"after": "channel"})

    async def parts(self, channel: str = "", *, page: int = 0) -> list[pb.PartedStatus]:
        """The channels that have parts, by name; *channel*: only this one."""
        request = pb.PartsRequest(channel=raw(channel), max=page)
        return await self._listed("parts", request, pb.PartsResponse, "channels", {"after": "channel"})

    async def schemas(
        self,
        channel: str = "",
        *,
        pattern: str = "",
        version: int = 0,
        texts: bool = True,
        timeout_s: float | None = None,
        page: int = 0,
    ) -> list[pb.SchemaStatus]:
        """The versions of schemas that are registered, by pattern and number: all, those in force for a *channel*, or those of
        one *pattern*; of these only one *version*, if it is given. Without *texts* only their sizes are told."""
        request = pb.SchemasRequest(
            version=1,
            channel=raw(channel),
            pattern=raw(pattern),
            schema_version=version,
            without_texts=not texts,
            max=page,
        )
        found: list[pb.SchemaStatus] = []
        while True:
            answer = await self._requester.ask("schemas", request, pb.SchemasResponse, patience_s=timeout_s)
            found += answer.schemas
            if not answer.more or not answer.schemas:
                return found
            request.after_pattern, request.after_version = found[-1].pattern, found[-1].schema_version

    async def delayed(self, channel: str, *, page: int = 0) -> list[pb.DelayedMessage]:
        """The messages that wait for the time which their publishers have told, by id."""
        request = pb.DelayedRequest(version=1, channel=raw(channel), max=page)
        return await self._listed("admin.delayed", request, pb.DelayedResponse, "messages", {"after": "id"})

    async def read_delayed(self, channel: str, after: int = 0, *, until: int = 0) -> pb.ReadDelayedResponse:
        """A page of the same messages with their contents, those with an id above *after*; while `more` is set, the next page
        begins behind the answer's `after`. With *until* (Unix ns): only the `ids` of all that are due by then."""
        request = pb.ReadDelayedRequest(version=1, channel=raw(channel), after=after, until=until)
        return await self._requester.ask("admin.read_delayed", request, pb.ReadDelayedResponse)

    async def nodes(self, *, patience_s: float = NODES_PATIENCE_S) -> Nodes:
        """Collect the status of each node; nodes that do not answer within *patience_s* seconds are `missing`."""
        answers = await self._requester.ask_nodes(
            "admin.nodes", pb.NodesRequest(version=1), pb.NodeStatus, _all_told, patience_s
        )
        found = {answer.node: answer for answer in answers}
        return Nodes([found[node] for node in sorted(found)], sorted(_expected(answers) - found.keys()))

    async def options(self, *, patience_s: float = NODES_PATIENCE_S) -> dict[str, list[pb.Option]]:
        """The configuration in force, by node; nodes that do not answer are left out."""
        there = {answer.node for answer in (await self.nodes(patience_s=patience_s)).answers}

        def enough(answers: list[pb.OptionsResponse]) -> bool:
            return there <= {answer.node for answer in answers}

        request = pb.OptionsRequest(version=1)
        answers = await self._requester.ask_nodes("admin.options", request, pb.OptionsResponse, enough, patience_s)
        return {answer.node: list(answer.options) for answer in sorted(answers, key=lambda answer: answer.node)}

    async def verify(self, request: pb.VerifyRequest) -> pb.VerifyResponse:
        """Verify a part of one node's copy of a channel; to continue, ask again from `next_sequence` with the answer's `crc`."""
        return await self._requester.ask("admin.verify", request, pb.VerifyResponse)

    async def explain(self, which: pb.Which, sequence: int, *, answers: int = 0) -> Explanation:
        """Tell what has happened to one message of a cursor: each delivery with its cause, and what came of it.

        The servers read the log from the message on until it is settled; of one that never is, to its end. *answers*: stop
        after so many answers, each of up to 6,000 entries; 0: do not."""
        request = pb.ExplainRequest(version=1, which=which, sequence=sequence)
        steps: list[pb.ExplainStep] = []
        begins_late, asked = False, 0
        while True:
            asked += 1
            answer = await self._requester.ask("admin.explain", request, pb.ExplainResponse)
            begins_late = begins_late or answer.begins_late
            steps += answer.steps
            if not answer.more or asked == answers:
                return Explanation(answer.timestamp, answer.state, begins_late, steps, answer.more)
            getattr(request, "from").CopyFrom(answer.next)

    async def events(self, kind: str = "*") -> AsyncGenerator[pb.Event, None]:
        """Yield events of the servers from now on until the generator is closed; events may be lost, also while the connection
        is made again.

        Raises:
            ConnectionClosedError: the client is closed, or its connection is for good.
        """
        async with aclosing(self._requester.published(f"events.{kind}", EVENTS_MAX)) as frames:
            async for frame in frames:
                with suppress(DecodeError):
                    yield pb.Event.FromString(frame.payload)

    # --- changes ------------------------------------------------------------------------------------------------------

    async def change(self, kind: str, request: Message, *, patience_s: float | None = None) -> pb.ChangeResponse:
        """Ask for a change: `purge` with a PurgeRequest, ...

        Raises:
            ServerError: refused. OutcomeUnknownError: no answer in time, and the change may have been made.
        """
        return await self._requester.ask(
            f"admin.{kind}", request, pb.ChangeResponse, changes=True, patience_s=patience_s
        )

    async def purge(self, channel: str, *, up_to: int | None = None, keep: int = 0) -> pb.ChangeResponse:
        """Remove messages: those up to a sequence, or all but the *keep* newest."""
        what: dict[str, Any] = {"keep": keep} if up_to is None else {"up_to": up_to}
        return await self.change("purge", pb.PurgeRequest(version=1, channel=raw(channel), **what))

    async def delete_message(self, channel: str, sequence: int) -> pb.ChangeResponse:
        """Remove one message; its sequence stays unused."""
        request = pb.DeleteMessageRequest(version=1, channel=raw(channel), sequence=sequence)
        return await self.change("delete_message", request)

    async def redrive(self, channel: str, runs: Iterable[int], *, to: str = "") -> pb.ChangeResponse:
        """Put dead letters of *channel* back into the channel that they come from, or into channel *to*; *runs*: first and last
        sequence of each run, in turn. Each is moved in one step: a crash leaves it in one of the two. `redriven` tells what
        became of the others, and from where to ask again, as one request takes about a megabyte."""
        request = pb.RedriveRequest(version=1, channel=raw(channel), runs=runs, to=raw(to))
        return await self.change("redrive", request)

    async def cancel_delayed(self, channel: str, ids: Iterable[int]) -> pb.ChangeResponse:
        """Cancel messages that wait for their time, by the ids that `delayed` and publish() tell; `changed` of them are gone."""
        request = pb.CancelDelayedRequest(version=1, channel=raw(channel), ids=ids)
        return await self.change("cancel_delayed", request)

    async def create_channel(self, channel: str) -> pb.ChangeResponse:
        """Make a channel, if there is none yet."""
        return await self.change("create_channel", pb.CreateChannelRequest(version=1, channel=raw(channel)))

    async def create_parts(self, channel: str, parts: int, *, key: str = "") -> pb.ChangeResponse:
        """Make a channel with so many parts, if it is not there; *key*: where JSON data has the key of a message that comes
        without one, `$.customer`. Returns when the leaders of all parts know it."""
        request = pb.CreatePartsRequest(version=1, channel=raw(channel), parts=parts, key=raw(key))
        answer = await self.change("create_parts", request)
        with _accepted():
            await self._leaders_know(channel, parts)
        return answer

    async def _leaders_know(self, channel: str, parts: int) -> None:
        """Wait until the leaders of all parts know them, or the channel is gone."""
        names = {raw(name) for name in part_names(channel, parts)}
        while names - {one.name for one in await self.channels(f"{channel}.*")}:
            if not await self.parts(channel):
                return
            await asyncio.sleep(LEADERS_LOOK_AGAIN_S)

    async def double_parts(self, channel: str, parts: int) -> None:
        """Give a channel with so many parts twice as many. Returns when they are there, and their leaders know them.

        Raises:
            ServerError: refused, or given up: a transaction or delayed messages wait for a part; the servers' log says which.
        """
        request = pb.DoublePartsRequest(version=1, channel=raw(channel), parts=parts)
        await self.change("double_parts", request)
        with _accepted():
            found = await self.parts(channel)
            while found and found[0].doubling:
                await asyncio.sleep(LEADERS_LOOK_AGAIN_S)
                found = await self.parts(channel)
            if not found or found[0].parts != 2 * parts:
                raise ServerError(DOUBLING_GIVEN_UP)
            await self._leaders_know(channel, 2 * parts)

    async def delete_parts(self, channel: str) -> pb.ChangeResponse:
        """Remove a channel that has parts, with all of them; answered once that is decided."""
        return await self.change("delete_parts", pb.DeletePartsRequest(version=1, channel=raw(channel)))

    async def delete_channel(self, channel: str, *, uid: int = 0) -> pb.ChangeResponse:
        """Remove a channel with its messages and subscriptions; only if it is still that one, with *uid*."""
        return await self.change("delete_channel", pb.DeleteChannelRequest(version=1, channel=raw(channel), uid=uid))

    async def edit_limits(
        self, channel: str, limits: pb.Limits | None = None, *, reset: bool = False
    ) -> pb.ChangeResponse:
        """Override the configured limits of a channel by those that are set; *reset* undoes all earlier edits first."""
        request = pb.EditLimitsRequest(version=1, channel=raw(channel), limits=limits, reset=reset)
        return await self.change("edit_limits", request)

    async def create_cursor(self, which: pb.Which, **at: Any) -> pb.ChangeResponse:
        """Create a durable (of *which* client) or a durable queue group without a subscriber; *at*: what it gets next, as of
        `move`."""
        return await self.change("create_cursor", pb.CreateCursorRequest(version=1, which=which, **at))

    async def move(self, which: pb.Which, **to: Any) -> pb.ChangeResponse:
        """Move a cursor: *to* is one of sequence=, time= (Unix ns), new_only=True, all=True."""
        return await self.change("move", pb.MoveRequest(version=1, which=which, **to))

    async def skip(self, which: pb.Which, runs: Iterable[int]) -> pb.ChangeResponse:
        """Treat messages as acked; *runs*: first and last sequence of each run, in turn."""
        return await self.change("skip", pb.SkipRequest(version=1, which=which, runs=runs))

    async def redeliver(self, which: pb.Which, runs: Iterable[int] = ()) -> pb.ChangeResponse:
        """Send pending messages again now; without *runs* all of them."""
        return await self.change("redeliver", pb.RedeliverRequest(version=1, which=which, runs=runs))

    async def pause(self, which: pb.Which) -> pb.ChangeResponse:
        """Stop deliveries of a cursor until `resume`."""
        return await self.change("pause", pb.PauseRequest(version=1, which=which))

    async def resume(self, which: pb.Which) -> pb.ChangeResponse:
        """Continue the deliveries of a cursor after `pause`."""
        return await self.change("resume", pb.ResumeRequest(version=1, which=which))

    async def evict_member(self, channel: str, subscription_id: int) -> pb.ChangeResponse:
        """Close one subscription; a durable stays."""
        request = pb.EvictMemberRequest(version=1, channel=raw(channel), subscription_id=subscription_id)
        return await self.change("evict_member", request)

    async def delete_cursor(self, which: pb.Which) -> pb.ChangeResponse:
        """Delete a durable or queue group with its position and its members."""
        return await self.change("delete_cursor", pb.DeleteCursorRequest(version=1, which=which))

    async def evict_client(self, client_id: str) -> pb.ChangeResponse:
        """Close a client's registration, as if the client had closed its connection."""
        return await self.change("evict_client", pb.EvictClientRequest(version=1, client_id=raw(client_id)))

    async def step_down(self, group: int, to: str = "") -> pb.ChangeResponse:
        """Make the leader of a group (0: the metadata group) transfer its leadership to node *to*; "": to the best successor."""
        return await self.change("step_down", pb.StepDownRequest(version=1, group=group, to=to))

    async def add_node(self, node: str) -> pb.ChangeResponse:
        """Add a node to the cluster."""
        return await self.change("add_node", pb.NodeRequest(version=1, node=node))

    async def remove_node(self, node: str) -> pb.ChangeResponse:
        """Take a node out of the cluster."""
        return await self.change("remove_node", pb.NodeRequest(version=1, node=node))

    async def raise_level(self, to: int = 0) -> pb.ChangeResponse:
        """Raise the cluster's level, so that what older versions do not understand may be written; 0: to the highest that all
        nodes know."""
        return await self.change("raise_level", pb.RaiseLevelRequest(version=1, to=to))

    async def set_policy(
        self, pattern: str, policy: pb.DeliveryPolicy | None = None, *, name: str = ""
    ) -> pb.ChangeResponse:
        """Set how messages of the channels that *pattern* covers are delivered, or only those of a durable or queue group *name*.
        It takes the place of an earlier policy of the same pattern and name; None removes that one."""
        request = pb.SetPolicyRequest(version=1, pattern=raw(pattern), name=raw(name), policy=policy)
        return await self.change("set_policy", request)

    async def grow_pool(self, groups: int, commit: int = 0) -> pb.ChangeResponse:
        """Let the cluster have *groups* groups of channels from now on; answered once that is decided.

        *commit*: what an ack of the channels in the new groups means. 0: a majority has synced it; 1: it has it in memory."""
        return await self.change("grow_pool", pb.GrowPoolRequest(version=1, groups=groups, commit=commit))

    async def pause_moves(self, *, paused: bool) -> pb.ChangeResponse:
        """Let no channel go by itself to the group where it belongs, or let them go again; moves under way end."""
        return await self.change("pause_moves", pb.PauseMovesRequest(version=1, paused=paused))

    async def pin_channel(self, channel: str, group: int) -> pb.ChangeResponse:
        """Have a channel made in a group, when it is made; one that exists elsewhere is moved there. *group* 0 takes the pin
        back, and cancels a move."""
        return await self.change("pin_channel", pb.PinChannelRequest(version=1, channel=raw(channel), group=group))

    async def change_commit(self, channel: str, commit: int) -> pb.ChangeResponse:
        """Have acks of a channel's publishes mean something else: 0 synced, 1 replicated. Refused while it has messages.

        Returns once its move to a group of that kind has begun; `ChannelStatus.commit` tells when it is over. It is given up if a
        message comes meanwhile."""
        return await self.change(
            "change_commit", pb.ChangeCommitRequest(version=1, channel=raw(channel), commit=commit)
        )

    async def add_schema(
        self,
        pattern: str,
        text: bytes,
        kind: pb.SchemaKind = pb.JSON_SCHEMA,
        *,
        message: str = "",
        compatibility: pb.SchemaCompatibility | None = None,
        version: int = 0,
    ) -> pb.ChangeResponse:
        """Register one more version of the schema of the channels that *pattern* covers.

        Args:
            pattern: of channels.
            text: of the schema; for protobuf a serialized FileDescriptorSet.
            kind: in which language.
            message: with protobuf, the full name of the message.
            compatibility: what the new version, and later ones, promise to those before; None: as before, backward at first.
            version: its number, to put back one that was there, whatever it promises; 0: the next one.

        Raises:
            ServerError: refused; for a broken promise, with the first reason.

        Returns: its number as `schema_version`; `changed` is 0 if it was there already.
        """
        request = pb.AddSchemaRequest(
            version=1,
            pattern=raw(pattern),
            kind=kind,
            text=text,
            message=raw(message),
            compatibility=compatibility,
            schema_version=version,
        )
        return await self.change("add_schema", request)

    async def check_schema(
        self,
        pattern: str,
        text: bytes,
        kind: pb.SchemaKind = pb.JSON_SCHEMA,
        *,
        message: str = "",
        compatibility: pb.SchemaCompatibility | None = None,
    ) -> list[str]:
        """Why `add_schema` would break its promise, each with version and path; empty: it would not. Arguments as there.

        Raises:
            ServerError: it would be refused for another reason.
        """
        request = pb.CheckSchemaRequest(
            version=1,
            pattern=raw(pattern),
            kind=kind,
            text=text,
            message=raw(message),
            compatibility=compatibility,
        )
        answer = await self._requester.ask("admin.check_schema", request, pb.CheckSchemaResponse)
        return [one.decode("utf-8", "replace") for one in answer.complaints]

    async def remove_schema(self, pattern: str, version: int = 0) -> pb.ChangeResponse:
        """Remove one version of a schema, or the whole schema with *version* 0. Messages stay as they are."""
        request = pb.RemoveSchemaRequest(version=1, pattern=raw(pattern), schema_version=version)
        return await self.change("remove_schema", request)

    # --- restoring ----------------------------------------------------------------------------------------------------

    async def restore_channel(
        self, channel: str, restore: str, first_sequence: int, limits: pb.Limits | None = None
    ) -> pb.ChangeResponse:
        """Begin to restore a channel, under a name that no other restore has."""
        request = pb.RestoreChannelRequest(
            version=1, channel=raw(channel), restore=raw(restore), first_sequence=first_sequence, limits=limits
        )
        return await self.change("restore_channel", request)

    async def restore_rows(
        self,
        channel: str,
        restore: str,
        runs: Iterable[pb.RestoredRun],
        rows: bytes,
        *,
        expiring_runs: Iterable[int] = (),
        expire_at: Iterable[int] = (),
    ) -> pb.ChangeResponse:
        """Put messages back, with their sequences and times. Those of *expiring_runs* (sequences: first, last, first, last, ...)
        expire at *expire_at* (Unix seconds, one for each run)."""
        request = pb.RestoreRowsRequest(
            version=1,
            channel=raw(channel),
            restore=raw(restore),
            runs=runs,
            rows=rows,
            expiring_runs=expiring_runs,
            expire_at=expire_at,
        )
        return await self.change("restore_rows", request)

    async def restore_cursor(self, channel: str, restore: str, cursor: pb.CursorStatus) -> pb.ChangeResponse:
        """Put a durable or durable queue group back."""
        request = pb.RestoreCursorRequest(version=1, channel=raw(channel), restore=raw(restore), cursor=cursor)
        return await self.change("restore_cursor", request)

    async def restore_delayed(
        self, channel: str, restore: str, messages: Iterable[pb.DelayedMessage], rows: bytes
    ) -> pb.ChangeResponse:
        """Put messages back that wait for their time, with their ids, in the order of these."""
        request = pb.RestoreDelayedRequest(
            version=1, channel=raw(channel), restore=raw(restore), messages=messages, rows=rows
        )
        return await self.change("restore_delayed", request)

    async def restore_end(self, channel: str, restore: str, last_sequence: int = 0) -> pb.ChangeResponse:
        """End the restore: the channel is complete."""
        request = pb.RestoreEndRequest(
            version=1, channel=raw(channel), restore=raw(restore), last_sequence=last_sequence
        )
        return await self.change("restore_end", request)


def which(channel: str, *, cursor_id: int = 0, durable: str = "", client_id: str = "", queue: str = "") -> pb.Which:
    """Identify a cursor: by its id, a durable by client and name, a queue group by its name (durable ones: both names)."""
    return pb.Which(
        channel=raw(channel),
        cursor_id=cursor_id,
        durable_name=raw(durable),
        client_id=raw(client_id),
        queue_group=raw(queue),
    )


@contextmanager
def _accepted() -> Iterator[None]:
    """While a change that the servers have accepted is followed: a timeout says that they have."""
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
