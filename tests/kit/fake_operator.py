"""Servers as an operator's commands see them, without any: what there is is set by the test, what is asked is written down."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import stan_client
from stan_client.requests.admin import Explanation, Nodes, PolicyList
from stan_protocol.admin_types import (
    ChangeResponse,
    ChannelStatus,
    ClientStatus,
    Commit,
    CursorKind,
    CursorRef,
    CursorStatus,
    DelayedMessage,
    GroupStatus,
    MemberStatus,
    NodeStatus,
    PartedStatus,
    PinStatus,
    PolicyStatus,
    SchemaStatus,
    VerifyResponse,
)
from stan_protocol.patterns import matches


class FakeAdmin:
    """Answers of `stan_client.requests.admin.Admin`."""

    def __init__(self) -> None:
        self.explanation = Explanation(0, "not sent", begins_late=False, steps=[])
        self.all_channels: list[ChannelStatus] = []
        self.all_cursors: list[CursorStatus] = []
        self.all_clients: list[ClientStatus] = []
        self.all_policies: list[PolicyStatus] = []
        self.all_schemas: list[SchemaStatus] = []
        self.complaints: list[str] = []
        self.all_pins: list[PinStatus] = []
        self.all_parts: list[PartedStatus] = []
        self.all_delayed: list[DelayedMessage] = []
        self.all_nodes = Nodes([NodeStatus(groups=[GroupStatus(group=number, role="leader") for number in (0, 1)])], [])
        self.asked: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None
        self.verified: dict[str, list[VerifyResponse]] = {}

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def channels(self, pattern: str = ">", **_: Any) -> list[ChannelStatus]:
        self._fail()
        return [one for one in self.all_channels if matches(pattern, one.name)]

    async def channel(self, name: str) -> ChannelStatus | None:
        return next(iter(await self.channels(name)), None)

    async def subscriptions(self, pattern: str = ">", *, name: str = "", client_id: str = "") -> list[CursorStatus]:
        self._fail()
        return [
            one
            for one in self.all_cursors
            if matches(pattern, one.channel)
            and name in ("", one.durable_name, one.queue_group)
            and (not client_id or client_id in (one.client_id, *(member.client_id for member in one.members)))
        ]

    async def clients(self, client_id: str = "") -> list[ClientStatus]:
        self._fail()
        return [one for one in self.all_clients if client_id in ("", one.client_id)]

    async def grow_pool(self, groups: int, commit: Commit = Commit.SYNCED) -> ChangeResponse:
        self._fail()
        self.asked.append(("grow_pool", groups, commit))
        self.tell_of_nodes(pool_groups=groups, pool_open=groups)
        return ChangeResponse(changed=1)

    async def pause_moves(self) -> ChangeResponse:
        self._fail()
        self.asked.append(("pause_moves",))
        self.tell_of_nodes(moves_paused=True)
        return ChangeResponse(changed=1)

    async def resume_moves(self) -> ChangeResponse:
        self.asked.append(("resume_moves",))
        self.tell_of_nodes(moves_paused=False)
        return ChangeResponse(changed=1)

    def tell_of_nodes(self, **told: Any) -> None:
        """All nodes say this from now on."""
        self.all_nodes = self.all_nodes._replace(answers=[replace(one, **told) for one in self.all_nodes.answers])

    async def change_commit(self, channel: str, commit: Commit) -> ChangeResponse:
        self._fail()
        self.asked.append(("change_commit", channel, commit))
        self.all_channels = [replace(one, commit=commit) for one in self.all_channels]
        return ChangeResponse(changed=1)

    async def create_parts(self, channel: str, parts: int, *, key: str = "") -> ChangeResponse:
        self._fail()
        self.asked.append(("create_parts", channel, parts, key))
        return ChangeResponse(changed=parts)

    async def double_parts(self, channel: str, parts: int) -> None:
        self._fail()
        self.asked.append(("double_parts", channel, parts))

    async def delete_parts(self, channel: str) -> ChangeResponse:
        self._fail()
        self.asked.append(("delete_parts", channel))
        return ChangeResponse(changed=1)

    async def parts(self, channel: str = "") -> list[PartedStatus]:
        return [one for one in self.all_parts if channel in ("", one.channel)]

    async def schemas(self, _channel: str = "", *, pattern: str = "", **_: Any) -> list[SchemaStatus]:
        self._fail()
        return [one for one in self.all_schemas if pattern in ("", one.pattern)]

    async def check_schema(self, *asked: Any, **more: Any) -> list[str]:
        self._fail()
        self.asked.append(("check_schema", *asked, *more.values()))
        return self.complaints

    async def add_schema(self, *asked: Any, **more: Any) -> ChangeResponse:
        self._fail()
        self.asked.append(("add_schema", *asked, *more.values()))
        return ChangeResponse(schema_version=3, changed=1)

    async def remove_schema(self, *asked: Any) -> ChangeResponse:
        self._fail()
        self.asked.append(("remove_schema", *asked))
        return ChangeResponse(changed=2)

    async def pins(self) -> list[PinStatus]:
        return self.all_pins

    async def policies(self, channel: str = "", _name: str = "", *, pattern: str = "") -> PolicyList:
        self._fail()
        chosen = [one for one in self.all_policies if pattern in ("", one.pattern)]
        return PolicyList(chosen, chosen[-1].policy if channel and chosen else None)

    async def delayed(self, _channel: str) -> list[DelayedMessage]:
        self._fail()
        return self.all_delayed

    async def nodes(self, **_: Any) -> Nodes:
        return self.all_nodes

    async def explain(self, cursor: CursorRef, sequence: int, *, answers: int = 0) -> Explanation:
        self.asked.append(("explain", cursor.cursor_id, sequence, answers))
        return self.explanation

    async def verify(self, _channel: str, first: int, last: int, *, node: str, crc: int, **_: Any) -> VerifyResponse:
        self.asked.append(("verify", node, first, last, crc))
        return self.verified[node].pop(0)

    def __getattr__(self, name: str) -> Any:
        async def change(*arguments: Any, **named: Any) -> ChangeResponse:
            self._fail()
            self.asked.append(
                (
                    name,
                    *arguments,
                    *sorted((key, value) for key, value in named.items() if value is not None and value is not False),
                )
            )
            return ChangeResponse(changed=1, first_sequence=1, last_sequence=10)

        return change


class FakeDirect:
    """What `stan.cli.support.session` opens."""

    def __init__(self) -> None:
        self.admin = FakeAdmin()
        self.at_time = 1
        self.channels = self
        self.closed = False
        self.certificate_until_ns = 0

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


def channel(name: str = "orders", **told: Any) -> ChannelStatus:
    """One with messages 1 to 10."""
    given = {"uid": 7, "group": 1, "first_sequence": 1, "last_sequence": 10, "messages": 10, "bytes": 1000}
    return ChannelStatus(name=name, **{**given, **told})


def durable(name: str = "billing", client: str = "acct", **told: Any) -> CursorStatus:
    """One of channel orders, offline, that has got nothing."""
    given = {
        "channel": "orders",
        "cursor_id": 5,
        "group": 1,
        "kind": CursorKind.DURABLE,
        "first_sequence": 1,
        "last_sequence": 10,
        "waiting": 10,
        "max_in_flight": 5,
        "ack_wait_s": 30,
    }
    return CursorStatus(durable_name=name, client_id=client, **{**given, **told})


def member(client: str = "acct", **told: Any) -> MemberStatus:
    """One that is online."""
    return MemberStatus(
        **{"client_id": client, "subscription_id": 9, "max_in_flight": 5, "window_now": 5, "ack_wait_s": 30, **told}
    )
