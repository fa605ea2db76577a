"""A cluster that answers what the dashboard asks, without servers: channels, cursors, clients and nodes as a test sets them.

Promises: each leader answers for its own groups, in pages, as admin.proto and extension.proto tell; changes are noted, and a few
are made (purge, pause, resume); nodes can be silent, and groups without a leader.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from stan_protocol.ack_levels import AckLevel
from stan_protocol.channels import is_channel_name, part_name
from stan_protocol.frames import Frame
from stan_protocol.patterns import matches
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.proto import wire_pb2 as wire

from stan.config import Config, MonitorConfig, StoreConfig
from stan.edge.nats.cluster_client import ClusterClient
from stan.logins import Logins
from stan.permissions import Permissions

SECOND = 1_000_000_000


@dataclass
class FakeCluster:
    """See the module's docstring; *page* rows are in one answer."""

    nodes: tuple[str, ...] = ("n1", "n2", "n3")
    groups: int = 8
    page: int = 2000
    fetched: int = 500  # messages in one answer
    channels: dict[bytes, admin.ChannelStatus] = field(default_factory=dict)
    cursors: list[admin.CursorStatus] = field(default_factory=list)
    clients: list[admin.ClientStatus] = field(default_factory=list)
    data: dict[bytes, list[wire.MsgProto]] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=lambda: {"cluster_id": "test-cluster", "max_channels": "100"})
    silent: set[str] = field(default_factory=set)
    leaderless: set[int] = field(default_factory=set)
    changes: list[tuple[str, object]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    schemas: list[admin.SchemaStatus] = field(default_factory=list)
    happened: list[admin.Event] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)  # what the dashboard has put into the log
    notes: list[str] = field(default_factory=list)  # the same: what is no error
    published: int = 0
    ahead: int = 0  # ns that the clock of who asks it is ahead: so long nobody did anything
    held: Callable[[str, bytes], bool] | None = None  # questions that are not answered yet

    # --- what there is ------------------------------------------------------------------------------------------------

    def leader(self, group: int) -> str:
        """Who leads a group."""
        return self.nodes[group % len(self.nodes)]

    def led(self, node: str) -> list[int]:
        """The groups of channels that a node leads."""
        if node in self.silent:
            return []
        return [g for g in range(1, self.groups + 1) if self.leader(g) == node and g not in self.leaderless]

    def add_channel(self, name: bytes, messages: int = 0, size: int = 100) -> admin.ChannelStatus:
        """A channel with so many messages that nobody has looked at yet."""
        now = time.time_ns()
        row = self.channels[name] = admin.ChannelStatus(
            name=name, uid=len(self.channels) + 1, group=len(self.channels) % self.groups + 1, messages=messages
        )
        row.first_sequence, row.last_sequence = min(1, messages), messages
        row.bytes, row.first_timestamp, row.last_timestamp = messages * size, now - 60 * SECOND, now
        row.limits.max_msgs, row.ack_level = 1_000_000, AckLevel.SYNCED
        return row

    def add_parts(self, whole: bytes, *counts: int) -> list[admin.ChannelStatus]:
        """A channel with a part for each of *counts* messages."""
        rows = [self.add_channel(part_name(whole, number), count) for number, count in enumerate(counts)]
        for number, row in enumerate(rows):
            row.part_of.channel, row.part_of.number, row.part_of.parts = whole, number, len(counts)
        return rows

    def add_message(self, name: bytes, data: bytes, **more: object) -> None:
        """A message that can be read."""
        row = self.channels.get(name) or self.add_channel(name)
        row.last_sequence += 1
        row.first_sequence = max(1, row.first_sequence)
        row.messages += 1
        row.bytes += len(data)
        row.last_timestamp = time.time_ns()
        message = wire.MsgProto(sequence=row.last_sequence, data=data, timestamp=row.last_timestamp, **more)
        self.data.setdefault(name, []).append(message)

    def add_durable(self, channel: bytes, name: bytes, client: bytes = b"me", **told: object) -> admin.CursorStatus:
        """A durable with one member online; *told*: its fields."""
        row = self.channels.get(channel) or self.add_channel(channel)
        told = {"max_in_flight": 10, "ack_wait_s": 30, "last_ack": time.time_ns(), **told}
        cursor = admin.CursorStatus(channel=channel, cursor_id=len(self.cursors) + 1, group=row.group, **told)
        cursor.kind, cursor.durable_name, cursor.client_id = admin.DURABLE, name, client
        cursor.last_sequence = row.last_sequence
        if row.HasField("part_of"):
            cursor.part_of.CopyFrom(row.part_of)
        cursor.members.add(
            client_id=client,
            subscription_id=7,
            max_in_flight=cursor.max_in_flight,
            window_now=cursor.max_in_flight,
            ack_wait_s=cursor.ack_wait_s,
            stalled=cursor.pending >= cursor.max_in_flight,
        )
        row.subscriptions += 1
        self.cursors.append(cursor)
        return cursor

    def config(
        self,
        *,
        actions: bool = False,
        host: str = "127.0.0.1",
        logins: Logins | None = None,
        permissions: Permissions | None = None,
    ) -> Config:
        """Of a node of it."""
        monitor = MonitorConfig(host=host, dashboard_actions=actions, logins=logins)
        return Config(permissions=permissions, store=StoreConfig(raft_groups=self.groups), monitor=monitor)

    def cluster_client(self) -> ClusterClient:
        """What asks it."""
        return ClusterClient(self, "test-cluster", 0.5)

    # --- answering ----------------------------------------------------------------------------------------------------

    async def ask_all(self, subject: str, payload: bytes, take: Callable[[Frame], bool], timeout_s: float) -> None:
        """As a gateway does it."""
        kind = subject.removeprefix("_STAN.x.test-cluster.")
        self.asked.append(kind)
        while self.held is not None and self.held(kind, payload):  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.01)
        handle = getattr(self, "_" + kind.replace(".", "_"), None)
        answers = handle(payload) if handle else self._changed(kind, payload)
        for answer in answers:
            if take(Frame(3, b"reply", b"", b"", answer.SerializeToString())):
                return
        await asyncio.sleep(min(timeout_s, 0.05))  # silence, shortened

    def _admin_channels(self, payload: bytes):
        request = admin.ChannelsRequest.FromString(payload)
        for node in self.nodes:
            groups = self.led(node)
            if groups:
                rows = [
                    row
                    for name, row in sorted(self.channels.items())
                    if row.group in groups and name > request.after and _covers(request.pattern, name)
                ]
                yield admin.ChannelsResponse(
                    pool=self.groups, groups=groups, channels=rows[: self.page], more=len(rows) > self.page
                )

    def _admin_subscriptions(self, payload: bytes):
        request = admin.SubscriptionsRequest.FromString(payload)
        after = (request.after_channel, request.after_cursor)
        for node in self.nodes:
            groups = self.led(node)
            if groups:
                rows = [
                    row
                    for row in sorted(self.cursors, key=lambda row: (row.channel, row.cursor_id))
                    if row.group in groups
                    and (row.channel, row.cursor_id) > after
                    and _covers(request.pattern, row.channel)
                ]
                yield admin.SubscriptionsResponse(
                    pool=self.groups, groups=groups, cursors=rows[: self.page], more=len(rows) > self.page
                )

    def _admin_clients(self, payload: bytes):
        request = admin.ClientsRequest.FromString(payload)
        rows = [row for row in self.clients if row.client_id > request.after]
        yield admin.ClientsResponse(clients=rows[: self.page], more=len(rows) > self.page, total=len(self.clients))

    def _admin_nodes(self, _payload: bytes):
        self.published += 100
        for node in self.nodes:
            if node in self.silent:
                continue
            status = admin.NodeStatus(node=node, server_id=f"id-{node}", product="0.1.0", nodes=self.nodes)
            status.started, status.now = time.time_ns() - 3600 * SECOND, time.time_ns()
            status.clients, status.channels = len(self.clients), len(self.channels)
            status.disk_free, status.disk_total, status.rss = 60 << 30, 100 << 30, 120 << 20
            status.store, status.sync, status.kernel = "FILE", "always", "compiled"
            status.messages_in = status.messages_out = self.published
            for group in range(self.groups + 1):
                leads = self.leader(group) == node and group not in self.leaderless
                one = status.groups.add(group=group, role="leader" if leads else "follower", term=3, last_index=1000)
                one.applied, one.committed = 1000, 1000
                gone = group in self.leaderless or self.leader(group) in self.silent
                one.leader = "" if gone else self.leader(group)
                one.voters.extend(self.nodes)
                if leads:
                    for other in self.nodes:
                        one.replicas.add(node=other, match=1000, connected=other not in self.silent)
            yield status

    def _admin_options(self, _payload: bytes):
        for node in self.nodes:
            answer = admin.OptionsResponse(node=node)
            for name, value in self.options.items():
                answer.options.add(name=name, value=value, source="default")
            yield answer

    def _fetch(self, payload: bytes):
        request = pb.FetchRequest.FromString(payload)
        row = self.channels.get(request.channel)
        if row is None:
            yield pb.FetchResponse(error=b"stan: unknown channel")
            return
        found = self.data.get(request.channel, [])
        match request.WhichOneof("start"):
            case "from_sequence":
                found = [message for message in found if message.sequence >= request.from_sequence]
            case "from_time":
                found = [message for message in found if message.timestamp >= request.from_time]
            case _:
                found = found[-request.newest :]
        found = [message for message in found if not request.last or message.sequence <= request.last]
        answer = pb.FetchResponse(uid=row.uid, first_sequence=row.first_sequence, last_sequence=row.last_sequence)
        answer.next_sequence = (min(request.last, row.last_sequence) if request.last else row.last_sequence) + 1
        for message in found[: min(request.max_messages or self.fetched, self.fetched)]:
            body = message.SerializeToString()
            answer.runs.add(
                first_sequence=message.sequence, count=1, timestamp=message.timestamp, position=len(answer.records)
            )
            answer.records += len(body).to_bytes(4, "little") + body
            answer.next_sequence = message.sequence + 1
        yield answer

    def _schemas(self, payload: bytes):
        request = admin.SchemasRequest.FromString(payload)
        found = [
            one
            for one in self.schemas
            if request.pattern in (b"", one.pattern) and (not request.channel or _covers(one.pattern, request.channel))
        ]
        answer = admin.SchemasResponse()
        for one in found:
            added = answer.schemas.add()
            added.CopyFrom(one)
            if request.without_texts:
                added.ClearField("text")
        yield answer

    def _admin_explain(self, payload: bytes):
        """Message 1 was sent twice, as the answers tell in two parts; of others the log tells nothing."""
        request = admin.ExplainRequest.FromString(payload)
        if all(cursor.cursor_id != request.which.cursor_id for cursor in self.cursors):
            yield admin.ExplainResponse(error=b"stan: no such position")
            return
        answer = admin.ExplainResponse(state="pending", begins_late=True)
        if request.sequence == 1 and not request.HasField("from"):
            answer.more, answer.next.index = True, 9
            answer.steps.add(what="delivered", cause="new", at=SECOND, client_id=b"<b>me</b>", node="n1")
        elif request.sequence == 1 and getattr(request, "from").index == 9:
            answer.steps.add(what="delivered", cause="ack wait over", at=2 * SECOND, client_id=b"\xff", count=1)
        yield answer

    def _seq_at_time(self, payload: bytes):
        request = pb.SeqAtTimeRequest.FromString(payload)
        row = self.channels[request.channel]
        found = [m.sequence for m in self.data.get(request.channel, []) if m.timestamp >= request.time]
        yield pb.SeqAtTimeResponse(sequence=min(found, default=row.last_sequence + 1))

    # --- changes ------------------------------------------------------------------------------------------------------

    def _changed(self, kind: str, payload: bytes):
        name = "".join(part.title() for part in kind.removeprefix("admin.").split("_")) + "Request"
        request = getattr(admin, name).FromString(payload)
        self.changes.append((kind, request))
        channel = request.which.channel if hasattr(request, "which") else getattr(request, "channel", b"")
        if channel and not is_channel_name(channel):
            yield admin.ChangeResponse(error=b"stan: invalid channel name")
            return
        answer = admin.ChangeResponse(changed=1)
        if kind == "admin.purge" and channel in self.channels:
            row = self.channels[channel]
            answer.changed = row.messages - min(row.messages, request.keep)
            row.messages, row.first_sequence = request.keep, row.last_sequence + 1 - request.keep
            self.data[channel] = self.data.get(channel, [])[-request.keep :] if request.keep else []
        for cursor in self.cursors:
            if hasattr(request, "which") and cursor.cursor_id == request.which.cursor_id:
                cursor.paused = kind == "admin.pause"
        yield answer

    def _batch(self, payload: bytes):
        request = pb.BatchRequest.FromString(payload)
        self.changes.append(("batch", request))
        message = wire.MsgProto.FromString(request.rows[4:])
        self.add_message(request.channel, message.data)
        last = self.channels[request.channel].last_sequence
        yield pb.BatchResponse(first_sequence=last, last_sequence=last)


def _covers(pattern: bytes, name: bytes) -> bool:
    return matches(pattern.decode("utf-8", "surrogateescape") or ">", name.decode("utf-8", "surrogateescape"))
