"""Published STAN clients of other languages, as processes on a leash: one driver program each, one small line protocol.

A driver is started with `<url> <cluster id> <client id> <ping interval, s> <pings out> <patience, s>`, connects, and then obeys
lines:

    publish <channel> <payload in hex>      asynchronous; told as `acked` when its PubAck has come
    subscribe <name> <channel> [durable=D] [queue=Q] [start=new|last|first|sequence:N|delta:MS] [manual=1]
              [ack_wait=MS] [max_in_flight=N]
    ack <name> <sequence>                   of a message that came to that subscription
    unsubscribe <name> | close <name>       ends a subscription
    disconnect                              closes the connection and ends the program

It tells what happens as JSON lines with an "event": connected, refused, acked, subscribed, failed, message, acking,
ack_sent, unsubscribed, closed, disconnected, reconnected, connection_lost. A test waits for events, with a deadline.
Never talks STAN itself: what the wire looks like is the published client's business.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
EVENT_SECONDS_MAX = 60.0
PATIENCE_S = 10  # two seconds, as all of them have by themselves, are little on a busy machine while nodes elect
SEEN_MAX = 5  # events in the text of a failure

Event = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """A driver that can be run."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    counts_redeliveries: bool = True  # whether the client's API shows the redelivery count


def javascript() -> Program:
    """The JavaScript driver, with npm's node-nats-streaming in a cache outside the repository."""
    return _javascript("js", "driver.js")


def jetstream(story: str) -> Program:
    """A story of JetStream's JavaScript clients, likewise."""
    return _javascript("jetstream", f"{story}.js")


def _javascript(folder: str, program: str) -> Program:
    """A program with the packages that its folder names."""
    source = HERE / folder
    modules = node_modules(source)
    node = shutil.which("node")
    assert node is not None
    return Program(folder, (node, str(source / program)), {"NODE_PATH": str(modules)})


def node_modules(source: Path) -> Path:
    """The packages that `package.json` and its lock in *source* name, by npm, in a cache outside the repository."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("packages of JavaScript need node and npm on PATH (Debian: apt-get install nodejs npm)")
    files = [source / "package.json", source / "package-lock.json"]

    def install(new: Path) -> list[str]:
        for file in files:
            shutil.copy(file, new)
        return [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]

    return cached(source.name, files, install) / "node_modules"


def python() -> Program:
    """The Python driver, with PyPI's asyncio-nats-streaming in a cache outside the repository, where nobody else sees it."""
    source = HERE / "py"
    requirements = source / "requirements.txt"

    def install(new: Path) -> list[str]:
        packages = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(new)]
        return [*packages, "--requirement", str(requirements)]

    installed = cached(f"py-{sys.version_info.major}.{sys.version_info.minor}", [requirements], install)
    command = (sys.executable, "-P", str(source / "driver.py"))
    return Program("py", command, {"PYTHONPATH": str(installed)}, counts_redeliveries=False)


def cached(name: str, files: list[Path], install: Callable[[Path], list[str]]) -> Path:
    """A directory of packages that *files* name; made once, by the command that *install* gives for a new directory."""
    version = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stan-tests"
    installed = cache / f"{name}-{version}"
    if not installed.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as parent:
            new = Path(parent) / "new"
            new.mkdir()
            done = subprocess.run(install(new), cwd=new, capture_output=True, text=True, timeout=110, check=False)
            assert done.returncode == 0, done.stderr
            with contextlib.suppress(OSError):  # another run was faster: it is there, and not empty
                new.rename(installed)
            assert installed.exists()
    return installed


def c(directory: Path) -> Program:
    """The C driver, compiled into *directory* against the system's libnats."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the C client needs a C compiler on PATH (Debian: apt-get install gcc libc6-dev)")
    probe = subprocess.run(
        [compiler, "-E", "-"], input="#include <nats/nats.h>\n", capture_output=True, text=True, check=False
    )
    if probe.returncode != 0:
        pytest.skip("the C client needs nats/nats.h (Debian: apt-get install libnats-dev)")
    binary = directory / "driver"
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(binary), str(HERE / "c" / "driver.c")]
    done = subprocess.run([*command, "-lnats", "-lpthread"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Program("c", (str(binary),), counts_redeliveries=False)


class Client:
    """One running driver, i.e. one STAN client."""

    def __init__(
        self,
        program: Program,
        url: str,
        cluster_id: str,
        client_id: str,
        pings: tuple[int, int],
        patience_s: int = PATIENCE_S,
    ) -> None:
        """Start it. *patience_s*: how long it waits for the answer to a request, other than a publish."""
        self.program = program
        self.client_id = client_id
        arguments = [url, cluster_id, client_id, *map(str, (*pings, patience_s))]
        self._process = subprocess.Popen(
            [*program.command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | program.env
        )
        self._events: list[Event] = []
        self._told = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._told:
                self._events.append(json.loads(line))
                self._told.notify_all()
        with self._told:
            self._ended = True
            self._told.notify_all()

    # --- commands -------------------------------------------------------------------------------------------------------

    def tell(self, *lines: str) -> None:
        """Give it command lines."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self._process.stdin.flush()

    def publish(self, channel: str, *payloads: bytes) -> None:
        """Publish asynchronously, in this order."""
        self.tell(*(f"publish {channel} {payload.hex()}" for payload in payloads))

    def publish_and_wait(self, channel: str, *payloads: bytes) -> list[Event]:
        """Publish, and wait until each one is acked without an error; returns those events."""
        before = len(self.seen("acked", channel=channel))
        self.publish(channel, *payloads)
        acked = self.wait("acked", before + len(payloads), channel=channel)[before:]
        errors = [event["error"] for event in acked]
        assert errors == [""] * len(payloads), errors
        return acked

    def subscribe(self, name: str, channel: str, **settings: str | int) -> None:
        """Subscribe and wait until it is accepted."""
        before = len(self.seen("subscribed", sub=name))
        self.tell(" ".join(["subscribe", name, channel, *(f"{key}={value}" for key, value in settings.items())]))
        self.wait("subscribed", before + 1, sub=name)

    def ack(self, name: str, *sequences: int) -> None:
        """Ack messages of a subscription with manual acks."""
        self.tell(*(f"ack {name} {sequence}" for sequence in sequences))

    def close(self, name: str) -> None:
        """Close a subscription and wait until that is accepted."""
        before = len(self.seen("closed", sub=name))
        self.tell(f"close {name}")
        self.wait("closed", before + 1, sub=name)

    def unsubscribe(self, name: str) -> None:
        """Unsubscribe and wait until that is accepted."""
        before = len(self.seen("unsubscribed", sub=name))
        self.tell(f"unsubscribe {name}")
        self.wait("unsubscribed", before + 1, sub=name)

    def disconnect(self) -> None:
        """Close the connection in order."""
        self.tell("disconnect")
        (event,) = self.wait("disconnected")
        assert event["error"] == ""
        self._process.wait(EVENT_SECONDS_MAX)

    def signal(self, number: int) -> None:
        """Send the process a signal: SIGSTOP to freeze it, SIGCONT to go on."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """The client dies without a word."""
        self._process.send_signal(signal.SIGKILL)
        self.release()

    def release(self) -> None:
        """End it, if it has not ended, and free what it holds."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    # --- events ---------------------------------------------------------------------------------------------------------

    def seen(self, event: str, **match: object) -> list[Event]:
        """The events of this kind up to now whose fields are as in *match*."""
        with self._told:
            return self._matching(event, match)

    def wait(self, event: str, count: int = 1, **match: object) -> list[Event]:
        """Wait for *count* such events at least; returns all there are."""
        deadline = time.monotonic() + EVENT_SECONDS_MAX
        with self._told:
            while len(found := self._matching(event, match)) < count:
                left = deadline - time.monotonic()
                if self._ended or not self._told.wait(left):
                    why = "it has ended" if self._ended else f"within {EVENT_SECONDS_MAX:g} s"
                    wanted = f"{count} x {event} {match or ''} from {self.program.name} client {self.client_id}"
                    last = "\n".join(map(str, self._events[-SEEN_MAX:]))
                    pytest.fail(f"{wanted}, got {len(found)}: {why}. Its last events:\n{last}")
            return found

    def messages(self, name: str, count: int, **match: object) -> list[Event]:
        """Wait for *count* messages at least of a subscription; returns all there are."""
        return self.wait("message", count, sub=name, **match)

    def history(self) -> list[Event]:
        """Every event up to now, in order."""
        with self._told:
            return list(self._events)

    def _matching(self, event: str, match: dict[str, object]) -> list[Event]:
        return [e for e in self._events if e["event"] == event and match.items() <= e.items()]


def story_of(program: Program, url: str) -> list[object]:
    """What clients tell of one server, step by step, until they end by themselves."""
    done = subprocess.run(
        [*program.command, url], capture_output=True, env=os.environ | program.env, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def payloads(messages: list[Event]) -> list[bytes]:
    """What the messages carry."""
    return [bytes.fromhex(message["data"]) for message in messages]


def sequences(messages: list[Event]) -> list[int]:
    """Their places in the channel."""
    return [message["sequence"] for message in messages]


def numbered(prefix: str, count: int) -> list[bytes]:
    """`<prefix>1`, `<prefix>2`, … as payloads."""
    return [f"{prefix}{number}".encode() for number in range(1, count + 1)]
