"""A network of this machine's own: a namespace and an address per node on one bridge, whose links tests cut and join.

Promises that leaving the `with` block removes all of it. Needs Linux, root, and iproute2; `why_not` says what is missing.
A cut is a route into nowhere: connections stay, what is on its way stalls, and goes on when the cut is joined again.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

HOST_NUMBER = 254


def why_not() -> str:
    """Why there can be no such network here; empty if there can."""
    if shutil.which("ip") is None:
        return "partitions need iproute2 on PATH (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "partitions need root, to make network namespaces"
    name = f"probe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"partitions need network namespaces: {made.stderr.strip()}"
    bridged = subprocess.run(
        ["ip", "-n", name, "link", "add", "probe", "type", "bridge"], capture_output=True, text=True, check=False
    )
    subprocess.run(["ip", "netns", "del", name], check=True)
    return f"partitions need network bridges: {bridged.stderr.strip()}" if bridged.returncode != 0 else ""


class Network:
    """Namespaces for *names*, and this machine itself as a further member that no cut concerns."""

    def __init__(self, names: Sequence[str]) -> None:
        """Nothing is made yet."""
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._tag = f"{os.getpid() % 100_000}"
        self._bridge = f"br{self._tag}"
        self._subnet = _free_subnet()
        self._cuts: set[tuple[str, str]] = set()

    def address(self, name: str) -> str:
        """Of a member."""
        return f"{self._subnet}.{self._numbers[name]}"

    def prefix(self, name: str) -> tuple[str, ...]:
        """What a command starts with to run there."""
        return ("ip", "netns", "exec", self._space(name))

    def cut(self, source: str, *targets: str) -> None:
        """What *source* sends to *targets* gets lost; the other direction is another cut."""
        for target in targets:
            if (source, target) not in self._cuts:
                self._cuts.add((source, target))
                _ip("-n", self._space(source), "route", "add", "blackhole", self.address(target))

    def isolate(self, *names: str) -> None:
        """Cut both directions between *names* and all others."""
        for name in names:
            for other in self._numbers:
                if other not in names:
                    self.cut(name, other)
                    self.cut(other, name)

    def join(self) -> None:
        """End all cuts."""
        while self._cuts:
            source, target = self._cuts.pop()
            _ip("-n", self._space(source), "route", "del", "blackhole", self.address(target))

    def _space(self, name: str) -> str:
        return f"kit{self._tag}-{name}"

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self._subnet}.{HOST_NUMBER}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for name, number in self._numbers.items():
                space, end = self._space(name), f"v{self._tag}-{number}"
                _ip("netns", "add", space)
                _ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
                _ip("link", "set", end, "master", self._bridge, "up")
                _ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
                _ip("-n", space, "link", "set", "eth0", "up")
                _ip("-n", space, "link", "set", "lo", "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for number, name in enumerate(self._numbers, 1):
            _try("link", "del", f"v{self._tag}-{number}")  # at once: a namespace goes when its last process has gone
            _try("netns", "del", self._space(name))
        _try("link", "del", self._bridge)


def _free_subnet() -> str:
    """The first three numbers of a private network that no interface of this machine is in."""
    used = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    return next(subnet for subnet in (f"10.213.{n}" for n in range(256)) if f"{subnet}." not in used)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def _try(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=False)
