"""TCP ports for tests: one that is free, and whether one is answered.

A free port is nobody else's for a while, also where tests run in several processes: it lies below the range from which systems
take the ports of outgoing connections, and its process holds the UDP port of the same number, which nothing here uses.
"""

import itertools
import os
import socket
from collections import deque

from stan_bench.processes import accepts

__all__ = ["accepts", "free_port"]

FIRST, LAST = 10_240, 32_000  # Linux connects from 32768 on, others from 49152 on
HELD_MAX = 200
"""How many ports a process keeps for itself; no test uses as many, and a file is open for each."""

_numbers = itertools.count(int.from_bytes(os.urandom(4)))  # most processes begin where nobody is
_held: deque[socket.socket] = deque()


def free_port() -> int:
    """A port of the loopback interface that nobody listens on, and that no other call returns, here or elsewhere."""
    for number in itertools.islice(_numbers, LAST - FIRST):
        port = FIRST + number % (LAST - FIRST)
        held = socket.socket(type=socket.SOCK_DGRAM)
        try:
            held.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:  # somebody's
            held.close()
            continue
        _held.append(held)
        if len(_held) > HELD_MAX:
            _held.popleft().close()
        return port
    raise AssertionError("no port is free")
