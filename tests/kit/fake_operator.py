"""Servers as an operator's commands see them, without any: what there is is set by the test, what is asked is written down."""

from types import SimpleNamespace
from typing import Any

import stan_client
from stan_client.requests.admin import Explanation, Nodes, PolicyList
from stan_protocol.patterns import matches
from stan_protocol.proto import admin_pb2 as pb


class FakeAdmin:
    """Answers of `stan_client.requests.admin.Admin`."""

    def __init__(self) -> None:
        self.explanation = Explanation(0, "not sent", begins_late=False, steps=[])
        self.all_channels: list[pb.ChannelStatus] = []
        self.all_cursors: list[pb.CursorStatus] = []
        self.all_clients: list[pb.ClientStatus] = []
        self.all_policies: list[pb.PolicyStatus] = []
        self.all_schemas: list[pb.SchemaStatus] = []
        self.complaints: list[str] = []
        self.all_pins: list[pb.PinStatus] = []
        self.all_parts: list[pb.PartedStatus] = []
        self.all_delayed: list[pb.DelayedMessage] = []
        self.all_nodes = Nodes(
            [pb.NodeStatus(groups=[pb.GroupStatus(group=number, role="leader") for number in (0, 1)])], []
        )
        self.asked: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None
        self.verified: dict[str, list[pb.VerifyResponse]] = {}

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def channels(self, pattern: str = ">", **_: Any) -> list[pb.ChannelStatus]:
        self._fail()
        return [one for one in self.all_channels if matches(pattern, one.name.decode())]

    async def channel(self, name: str) -> pb.ChannelStatus | None:
        return next(iter(await self.channels(name)), None)

    async def subscriptions(self, pattern: str = ">", *, name: str = "", client_id: str = "") -> list[pb.CursorStatus]:
        self._fail()
        return [
            one
            for one in self.all_cursors
            if matches(pattern, one.channel.decode())
            and name.encode() in (b"", one.durable_name, one.queue_group)
            and (not client_id or client_id.encode() in (one.client_id, *(member.client_id for member in one.members)))
        ]

    async def clients(self, client_id: str = "") -> list[pb.ClientStatus]:
        self._fail()
        return [one for one in self.all_clients if client_id in ("", one.client_id.decode())]

    async def grow_pool(self, groups: int, commit: int = 0) -> pb.ChangeResponse:
        self._fail()
        self.asked.append(("grow_pool", groups, commit))
        for status in self.all_nodes.answers:
            status.pool_groups = status.pool_open = groups
        return pb.ChangeResponse(changed=1)

    async def pause_moves(self, *, paused: bool) -> pb.ChangeResponse:
        self._fail()
        self.asked.append(("pause_moves", paused))
        for status in self.all_nodes.answers:
            status.moves_paused = paused
        return pb.ChangeResponse(changed=1)

    async def pin_channel(self, channel: str, group: int) -> pb.ChangeResponse:
        self._fail()
        self.asked.append(("pin_channel", channel, group))
        return pb.ChangeResponse(changed=1)

    async def change_commit(self, channel: str, commit: int) -> pb.ChangeResponse:
        self._fail()
        self.asked.append(("change_commit", channel, commit))
        for status in self.all_channels:
            status.commit = commit
        return pb.ChangeResponse(changed=1)

    async def create_parts(self, channel: str, parts: int, *, key: str = "") -> pb.ChangeResponse:
        self._fail()
        self.asked.append(("create_parts", channel, parts, key))
        return pb.ChangeResponse(changed=parts)

    async def double_parts(self, channel: str, parts: int) -> None:
        self._fail()
        self.asked.append(("double_parts", channel, parts))

    async def delete_parts(self, channel: str) -> pb.ChangeResponse:
        self._fail()
        self.asked.append(("delete_parts", channel))
        return pb.ChangeResponse(changed=1)

    async def parts(self, channel: str = "") -> list[pb.PartedStatus]:
        return [one for one in self.all_parts if channel in ("", one.channel.decode())]

    async def schemas(self, _channel: str = "", *, pattern: str = "", **_: Any) -> list[pb.SchemaStatus]:
        self._fail()
        return [one for one in self.all_schemas if pattern in ("", one.pattern.decode())]

    async def check_schema(self, *asked: Any, **more: Any) -> list[str]:
        self._fail()
        self.asked.append(("check_schema", *asked, *more.values()))
        return self.complaints

    async def add_schema(self, *asked: Any, **more: Any) -> pb.ChangeResponse:
        self._fail()
        self.asked.append(("add_schema", *asked, *more.values()))
        return pb.ChangeResponse(schema_version=3, changed=1)

    async def remove_schema(self, *asked: Any) -> pb.ChangeResponse:
        self._fail()
        self.asked.append(("remove_schema", *asked))
        return pb.ChangeResponse(changed=2)

    async def pins(self) -> list[pb.PinStatus]:
        return self.all_pins

    async def policies(self, channel: str = "", _name: str = "", *, pattern: str = "") -> PolicyList:
        self._fail()
        chosen = [one for one in self.all_policies if pattern in ("", one.pattern.decode())]
        return PolicyList(chosen, chosen[-1].policy if channel and chosen else None)

    async def delayed(self, _channel: str) -> list[pb.DelayedMessage]:
        self._fail()
        return self.all_delayed

    async def nodes(self, **_: Any) -> Nodes:
        return self.all_nodes

    async def explain(self, which: pb.Which, sequence: int, *, answers: int = 0) -> Explanation:
        self.asked.append(("explain", which.cursor_id, sequence, answers))
        return self.explanation

    async def verify(self, request: pb.VerifyRequest) -> pb.VerifyResponse:
        self.asked.append(("verify", request.node, getattr(request, "from"), request.to, request.crc))
        return self.verified[request.node].pop(0)

    def __getattr__(self, name: str) -> Any:
        async def change(*arguments: Any, **named: Any) -> pb.ChangeResponse:
            self._fail()
            self.asked.append((name, *arguments, *sorted(named.items())))
            return pb.ChangeResponse(changed=1, first_sequence=1, last_sequence=10)

        return change


class FakeDirect:
    """What `stan.cli.support.session` opens."""

    def __init__(self) -> None:
        self.admin = FakeAdmin()
        self.at_time = 1
        self.channels = self
        self.closed = False

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        self.closed = True

    async def sequence_at(self, _channel: str, _time_ns: int) -> int:
        return self.at_time

    async def info(self, channels: Any) -> dict[str, Any]:
        return {name: SimpleNamespace(first=1, last=10) for name in channels}

    async def fetch(self, channel: str, *, start: Any, count: int) -> list[stan_client.Message]:
        headers = ((b"trace", b"1"), (b"raw", b"\xff"))
        data, at = b'{"a": 1}', 1_700_000_000_000_000_000
        return [stan_client.Message(start.sequence, channel, "", data, at, headers=headers, key=b"k\x1b[2J")][:count]


def channel(name: str = "orders", **told: Any) -> pb.ChannelStatus:
    """One with messages 1 to 10."""
    given = {"uid": 7, "group": 1, "first_sequence": 1, "last_sequence": 10, "messages": 10, "bytes": 1000}
    return pb.ChannelStatus(name=name.encode(), **{**given, **told})


def durable(name: str = "billing", client: str = "acct", **told: Any) -> pb.CursorStatus:
    """One of channel orders, offline, that has got nothing."""
    given = {
        "channel": b"orders",
        "cursor_id": 5,
        "group": 1,
        "kind": pb.DURABLE,
        "first_sequence": 1,
        "last_sequence": 10,
        "waiting": 10,
        "max_in_flight": 5,
        "ack_wait_s": 30,
    }
    return pb.CursorStatus(durable_name=name.encode(), client_id=client.encode(), **{**given, **told})


def member(client: str = "acct", **told: Any) -> pb.MemberStatus:
    """One that is online."""
    return pb.MemberStatus(
        **{"client_id": client.encode(), "subscription_id": 9, "max_in_flight": 5, "ack_wait_s": 30, **told}
    )
