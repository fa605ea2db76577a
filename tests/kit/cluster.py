"""A real cluster for tests: N `stan-server` processes over one nats-server or over one each, and what may happen to them.

Promises that leaving the `with` block ends every process, frozen and killed ones too, whatever the test has done to them.
Who leads a group is read from the nodes' logs. Never sleeps a fixed time: waits as tests.kit.server does.
"""

import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from stan.log.files.segment import ENTRY_HEADER, ENTRY_HEADER_SIZE, ENTRY_MAGIC, SEGMENT_HEADER_SIZE
from stan.protocol.placement import channel_group
from tests.kit.damage import written
from tests.kit.network import Network
from tests.kit.ports import free_port
from tests.kit.server import CLUSTER_ID, COMMAND, NatsServer, StanServer, until

GROUPS = 8
FLIPPED_BYTES = 64
LEADER_SECONDS_MAX = 60.0

_ROLE = re.compile(r"group (\d+): leads (?:in term (\d+)|no more)")

_WHOLE = re.compile(r"group (\d+): (is not whole|is whole again)")


class StanCluster:
    """Nodes n1, n2, ... of one cluster, each with its files and its log in a directory of its own."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        size: int = 3,
        nats: NatsServer | None = None,
        network: Network | None = None,
        own_flags: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            directory: exists; the nodes' directories are made in it, or used if they are there.
            flags: further flags of every node.
            size: how many nodes.
            nats: the nats-server of all; without one each node has its own, joined by routes.
            network: where the nodes live, if they have addresses of their own; the names must be `names_of(size)`.
            own_flags: further flags of single nodes, by name.
        """
        self.cluster_id = CLUSTER_ID
        self.groups = GROUPS
        self.names = names_of(size)
        self.frozen: set[str] = set()
        self.directory = directory
        hosts = {name: network.address(name) if network else "127.0.0.1" for name in self.names}
        routes = {name: f"nats://{host}:{free_port()}" for name, host in hosts.items()}
        self.nodes: dict[str, StanServer] = {}
        for name in self.names:
            home = directory / name
            home.mkdir(exist_ok=True)
            where = (
                ()
                if nats
                else ("--cluster_name", "kit", "--cluster", routes[name], "--routes", ",".join(routes.values()))
            )
            self.nodes[name] = StanServer(
                home,
                *("-clustered", "-cluster_node_id", name, "-cluster_peers", ",".join(self.names)),
                *(*where, *flags, *(own_flags or {}).get(name, ())),
                nats_url=nats.url if nats else None,
                host=hosts[name],
                command=(*(network.prefix(name) if network else ()), *COMMAND),
            )
        self.url = nats.url if nats else ",".join(node.url for node in self.nodes.values())

    # --- what is so -----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> list[str]:
        """The nodes whose process has not ended, frozen ones too."""
        return [name for name in self.names if self.nodes[name].running]

    @property
    def down(self) -> list[str]:
        """The nodes that do not run."""
        return [name for name in self.names if not self.nodes[name].running]

    def log(self) -> str:
        """The last lines of each node, for the text of a failure."""
        return "\n".join(f"--- {name}\n{node.log()[-3000:]}" for name, node in self.nodes.items())

    def group_of(self, channel: str) -> int:
        """The group that holds a channel."""
        return channel_group(channel.encode(), self.groups)

    def leaders(self) -> dict[int, tuple[int, str]]:
        """For each group that is led: the newest term that a node which runs has said to lead, and that node."""
        found: dict[int, tuple[int, str]] = {}
        for name in self.running:
            if name in self.frozen:
                continue
            last = {int(role[1]): role[2] for role in _ROLE.finditer(self.nodes[name].log_since_start())}
            for group, term in last.items():
                if term is not None:
                    found[group] = max(found.get(group, (0, "")), (int(term), name))
        return found

    def leader(self, group: int) -> str:
        """The node that leads a group; waits until there is one."""
        found: list[str] = []

        def led() -> bool:
            found[:] = [name for of, (_, name) in self.leaders().items() if of == group]
            return bool(found)

        until(led, LEADER_SECONDS_MAX, self.log)
        return found[0]

    def leader_of(self, channel: str) -> str:
        """The node that leads the group of a channel; waits until there is one."""
        return self.leader(self.group_of(channel))

    def follower_of(self, channel: str) -> str:
        """A node that runs and does not lead the group of a channel."""
        leader = self.leader_of(channel)
        return next(name for name in self.running if name != leader and name not in self.frozen)

    def whole(self, name: str) -> bool:
        """Whether a node that runs has everything that it once acknowledged, also if its disk was emptied or damaged."""
        last = {said[1]: said[2] for said in _WHOLE.finditer(self.nodes[name].log_since_start())}
        return self.nodes[name].running and "is not whole" not in last.values()

    # --- what is done ----------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Start nodes, all if none is named, and wait until each is ready."""
        for name in names or self.names:
            self.nodes[name].launch()
        for name in names or self.names:
            self.nodes[name].wait_until_ready()

    def kill9(self, *names: str) -> None:
        """SIGKILL, to all of them at once."""
        for name in names:
            self.nodes[name].signal(signal.SIGKILL)
        for name in names:
            self.nodes[name].wait_for_end()
        self.frozen -= set(names)

    def stop(self, *names: str) -> None:
        """Freeze processes (SIGSTOP); they notice nothing."""
        for name in names:
            self.nodes[name].signal(signal.SIGSTOP)
        self.frozen |= set(names)

    def cont(self, *names: str) -> None:
        """Let frozen processes go on."""
        for name in names:
            self.nodes[name].signal(signal.SIGCONT)
        self.frozen -= set(names)

    def terminate(self, name: str) -> int:
        """Ask a node to stop, which hands over what it leads; returns the exit code."""
        return self.nodes[name].terminate()

    def restart(self, name: str) -> None:
        """Stop a node in order if it runs, and start it."""
        self.nodes[name].restart()

    def wipe(self, name: str) -> None:
        """A new, empty disk for a node that does not run."""
        assert not self.nodes[name].running
        shutil.rmtree(self.store(name))

    def damage(self, name: str, group: int) -> str:
        """Flip bytes in the middle of a group's newest segment on a node that does not run; tells file and position."""
        assert not self.nodes[name].running
        path = self._newest_segment(name, group)
        position = len(written(path.read_bytes())) // 2
        flip(path, position, FLIPPED_BYTES)
        return f"{path}:{position}"

    def cut_entries(self, name: str, group: int, count: int) -> str:
        """Cut the newest *count* entries off a group's log on a node that does not run; tells file and position."""
        return self._damage_tail(name, group, lambda path, starts: os.truncate(path, starts[-count:][0]))

    def cut_inside(self, name: str, group: int, bytes_kept: int) -> str:
        """Cut a group's log inside its newest entry, of which at most *bytes_kept* bytes are left; tells file and position."""
        return self._damage_tail(
            name,
            group,
            lambda path, starts: os.truncate(path, min(starts[-1] + bytes_kept, len(written(path.read_bytes())) - 1)),
        )

    def flip_in_newest(self, name: str, group: int, offset: int) -> str:
        """Flip one bit of the newest entry of a group's log on a node that does not run; tells file and position."""
        return self._damage_tail(
            name,
            group,
            lambda path, starts: flip(path, starts[-1] + offset % (len(written(path.read_bytes())) - starts[-1]), 1, 1),
        )

    def _damage_tail(self, name: str, group: int, damage: Callable[[Path, list[int]], object]) -> str:
        assert not self.nodes[name].running
        path = self._newest_segment(name, group)
        starts = entry_starts(path)
        if not starts:
            return f"{path}: empty, left as it is"
        damage(path, starts)
        return f"{path}:{starts[-1]}"

    def _newest_segment(self, name: str, group: int) -> Path:
        return max((self.store(name) / "groups" / str(group)).glob("*.log"))

    def store(self, name: str) -> Path:
        """Where a node keeps its files."""
        return self.directory / name / "store"

    # --- begin and end ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._sweep()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.cont(*self.frozen & set(self.running))
            ending = self.running
            for name in ending:
                self.nodes[name].signal(signal.SIGTERM)
            for name in ending:
                self.nodes[name].wait_for_end()
        finally:
            self._sweep()

    def _sweep(self) -> None:
        for node in self.nodes.values():
            node.sweep()


def flip(path: Path, position: int, count: int, mask: int = 0xFF) -> None:
    """Flip the bits of *mask* in *count* bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        flipped = bytes(byte ^ mask for byte in file.read(count))
        file.seek(position)
        file.write(flipped)


def entry_starts(segment: Path) -> list[int]:
    """Where the complete entries of a segment file begin."""
    data, at, starts = segment.read_bytes(), SEGMENT_HEADER_SIZE, []
    while at + ENTRY_HEADER_SIZE <= len(data) and data.startswith(ENTRY_MAGIC, at):
        end = at + ENTRY_HEADER_SIZE + ENTRY_HEADER.unpack_from(data, at)[3]
        if end > len(data):
            break
        starts.append(at)
        at = end
    return starts


def names_of(size: int) -> list[str]:
    """The nodes of a cluster of that size."""
    return [f"n{number}" for number in range(1, size + 1)]
