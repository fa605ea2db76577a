"""What a program with the same hops and fsyncs and no broker reaches: `python -m tests.bench_floor [--nodes 1|3] [-n 4000]`.

The floor under `stan bench c --start -np 1 --sync` and, with `--nodes 3`, `stan bench c --cluster 3 -np 1 --sync`: a
nats-server, a client that publishes 128 bytes and waits for the ack, and a process that writes what a stored message takes,
calls fdatasync and acks. With three nodes that process leads: it sends the message to two followers over the same nats-server,
which write, sync and answer, and acks after its own sync and the first answer. Plain blocking sockets, a process for each part.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

from tests.kit.server import NatsServer

MESSAGE = bytes(128)
STORED = bytes(220)
"""What is written for a message: its payload, subject, ids, times and checksums."""
ANSWER_SECONDS_MAX = 30.0
FORK = multiprocessing.get_context("fork")  # the files of the logs are opened before
PUBLISHES, ACKS, ANSWERS = b"floor.publishes", b"floor.acks", b"floor.answers"
FOLLOWERS = (b"floor.follower.1", b"floor.follower.2")


class Delivery(NamedTuple):
    """One message of NATS."""

    subject: bytes
    payload: bytes


class Link:
    """A connection to NATS that listens to some subjects and blocks until something comes."""

    def __init__(self, port: int, *subjects: bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._arrived: deque[Delivery] = deque()
        listening = b"".join(b"SUB %b %d\r\n" % (subject, sid) for sid, subject in enumerate(subjects, 1))
        self._socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n' + listening + b"PING\r\n")
        while b"PONG\r\n" not in self._rest:
            self._read()
        self._rest = self._rest.partition(b"PONG\r\n")[2]

    def publish(self, payload: bytes, *subjects: bytes) -> None:
        """Send one payload to each of *subjects*, with one call."""
        tail = b" %d\r\n%b\r\n" % (len(payload), payload)
        self._socket.sendall(b"".join(b"PUB " + subject + tail for subject in subjects))

    def next(self) -> Delivery:
        """The next message, once it is there."""
        while not self._arrived:
            self._read()
            self._split()
        return self._arrived.popleft()

    def _read(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("nats-server has ended")
        self._rest += data

    def _split(self) -> None:
        while b"\r\n" in self._rest:
            line, _, after = self._rest.partition(b"\r\n")
            if line.startswith(b"MSG "):
                words = line.split()
                length = int(words[-1])
                if len(after) < length + 2:
                    return
                self._arrived.append(Delivery(words[1], after[:length]))
                after = after[length + 2 :]
            elif line == b"PING":
                self._socket.sendall(b"PONG\r\n")
            self._rest = after


class Log:
    """A file that grows by one stored message at a time."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._length = 0
        self._sync = sync

    def append(self) -> None:
        """Write and sync."""
        self._length += os.pwrite(self._descriptor, STORED, self._length)
        if self._sync:
            os.fdatasync(self._descriptor)


def one_node(port: int, log: Log, ready: Event) -> None:
    """Store each message and ack it."""
    link = Link(port, PUBLISHES)
    ready.set()
    while True:
        message = link.next()
        log.append()
        link.publish(message.payload[:48], ACKS)


def leader(port: int, log: Log, ready: Event) -> None:
    """Pass each message on, store it, and ack it once a follower has it, too; the other one's answer comes when it likes."""
    link = Link(port, PUBLISHES, ANSWERS)
    ready.set()
    number = 0
    while True:
        if link.next().subject != PUBLISHES:
            continue  # late
        number += 1
        name = b"%d" % number
        link.publish(name.ljust(len(STORED)), *FOLLOWERS)
        log.append()
        while link.next().payload != name:
            pass  # late: there is one message at a time, so nothing else is lost here
        link.publish(bytes(48), ACKS)


def follower(port: int, log: Log, ready: Event, subject: bytes) -> None:
    """Store each message and answer the leader."""
    link = Link(port, subject)
    ready.set()
    while True:
        message = link.next()
        log.append()
        link.publish(message.payload.rstrip(), ANSWERS)


@contextlib.contextmanager
def running(port: int, directory: Path, nodes: int, *, sync: bool) -> Iterator[None]:
    """The processes that store, ready; they end with the block."""
    parts = [(one_node,)] if nodes == 1 else [(leader,), *((follower, subject) for subject in FOLLOWERS)]
    processes = []
    try:
        for number, (part, *more) in enumerate(parts):
            ready = FORK.Event()
            log = Log(directory / f"log-{number}", sync=sync)
            processes.append(FORK.Process(target=part, args=(port, log, ready, *more), daemon=True))
            processes[-1].start()
            assert ready.wait(ANSWER_SECONDS_MAX), part.__name__
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def measure(port: int, messages: int) -> dict[str, float]:
    """Publish *messages* one at a time; messages a second, and percentiles in ms."""
    link = Link(port, ACKS)
    times = []
    began = time.perf_counter()
    for _ in range(messages):
        sent = time.perf_counter()
        link.publish(MESSAGE, PUBLISHES)
        link.next()
        times.append(time.perf_counter() - sent)
    seconds = time.perf_counter() - began
    times.sort()
    p50, p99 = (times[min(int(messages * share), messages - 1)] * 1000 for share in (0.5, 0.99))
    return {"msgs_per_s": round(messages / seconds, 1), "p50_ms": round(p50, 3), "p99_ms": round(p99, 3)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("-n", "--messages", type=int, default=4000)
    parser.add_argument("--no-sync", action="store_true", help="leave fdatasync out: the hops alone")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.messages < 1:
        parser.error("-n is at least 1")
    with (
        tempfile.TemporaryDirectory(prefix="stan-bench-") as directory,
        NatsServer(Path(directory)) as nats,
        running(nats.port, Path(directory), given.nodes, sync=not given.no_sync),
    ):
        figures = measure(nats.port, given.messages)
    if given.json:
        print(json.dumps(figures))
    else:
        shown = (
            f"{figures['msgs_per_s']:,.0f} msgs/sec | p50 {figures['p50_ms']:.2f} ms | p99 {figures['p99_ms']:.2f} ms"
        )
        print(f"Floor, nodes={given.nodes}: {shown}")


if __name__ == "__main__":
    main()
