"""The server's log: format, levels, file, rotation, syslog, redaction."""

import os
import re
import socket

import pytest

from stan.config import LogConfig
from stan.edge.log import ServerLog, redacted
from stan.errors import StartError

STAMP = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"


def logged(capfd) -> list[str]:
    return capfd.readouterr().err.splitlines()


def test_line_has_the_format_of_the_original(capfd):
    ServerLog(LogConfig()).info("Streaming Server is ready")
    (line,) = logged(capfd)
    assert re.fullmatch(rf"\[{os.getpid()}\] {STAMP} \[INF\] STREAM: Streaming Server is ready", line)


def test_levels_have_their_marks_and_debug_is_off(capfd):
    log = ServerLog(LogConfig(logtime=False))
    for write in (log.info, log.warning, log.error, log.fatal, log.debug, log.trace):
        write("x")
    assert logged(capfd) == [f"[{os.getpid()}] [{level}] STREAM: x" for level in ("INF", "WRN", "ERR", "FTL")]
    assert not log.debug_on
    assert not log.trace_on


def test_debug_and_trace_are_switched_on_by_config(capfd):
    log = ServerLog(LogConfig(logtime=False, debug=True, trace=True))
    log.debug("a")
    log.trace("b")
    assert logged(capfd) == [f"[{os.getpid()}] [DBG] STREAM: a", f"[{os.getpid()}] [TRC] STREAM: b"]


def test_a_line_is_one_line_and_speaks_to_no_terminal(tmp_path):
    """Whatever somebody has called his durable."""
    log = ServerLog(LogConfig(file=tmp_path / "log", logtime=False))
    log.error("a\n[1] [ERR] forged\r\x1b[2J\x00\x7f\x85\t\xe9 end")
    log.close()
    shown = "a\\n[1] [ERR] forged\\r\\x1b[2J\\x00\\x7f\\x85\\t\xe9 end\n"
    assert (tmp_path / "log").read_text() == f"[{os.getpid()}] [ERR] STREAM: {shown}"


def test_text_that_is_not_utf8_is_written_as_it_came(tmp_path):
    log = ServerLog(LogConfig(file=tmp_path / "log", logtime=False))
    log.info(b"\xff\xfe".decode("utf-8", "surrogateescape"))
    assert (tmp_path / "log").read_bytes().endswith(b"STREAM: \xff\xfe\n")
    log.close()


def test_file_is_appended_to_and_reopened(tmp_path):
    path = tmp_path / "log"
    path.write_text("before\n")
    log = ServerLog(LogConfig(file=path, logtime=False))
    log.raw(b"[1] raw line\n")
    path.rename(tmp_path / "old")
    log.info("to the old file")
    log.reopen()
    log.info("to the new file")
    log.close()
    pid = os.getpid()
    assert (tmp_path / "old").read_text() == f"before\n[1] raw line\n[{pid}] [INF] STREAM: to the old file\n"
    assert path.read_text() == f"[{pid}] [INF] STREAM: File log re-opened\n[{pid}] [INF] STREAM: to the new file\n"


def test_reopen_without_file_says_so(capfd):
    ServerLog(LogConfig(logtime=False)).reopen()
    assert logged(capfd) == [f"[{os.getpid()}] [INF] STREAM: File log re-open ignored, not a file logger"]


def test_reopen_of_lost_folder_keeps_the_old_file(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    log = ServerLog(LogConfig(file=folder / "log", logtime=False))
    folder.rename(tmp_path / "moved")
    log.reopen()
    log.close()
    assert "[ERR] STREAM: unable to open log file" in (tmp_path / "moved/log").read_text()


def test_full_file_is_moved_aside(tmp_path):
    log = ServerLog(LogConfig(file=tmp_path / "log", file_bytes_max=50, logtime=False))
    for number in range(4):
        log.info(str(number).zfill(20))
    log.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert b"".join(file.read_bytes() for file in [*files[1:], files[0]]).count(b"\n") == 4


def test_file_that_cannot_be_opened_is_a_start_error(tmp_path):
    with pytest.raises(StartError, match="unable to open log file"):
        ServerLog(LogConfig(file=tmp_path / "none/log"))


def test_log_that_cannot_be_written_stops_nothing(tmp_path):
    log = ServerLog(LogConfig(file=tmp_path / "log"))
    os.close(log._lines._fd)
    log._lines._fd = os.open("/dev/full", os.O_WRONLY) if os.path.exists("/dev/full") else -1  # noqa: PTH110
    log.info("lost")
    assert (tmp_path / "log").read_bytes() == b""


def test_remote_syslog_gets_the_lines(capfd):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)
        url = f"udp://127.0.0.1:{server.getsockname()[1]}"
        log = ServerLog(LogConfig(syslog=True, remote_syslog=url, syslog_name="me"))
        log.error("100% bad")
        line = server.recv(1000)
    assert line.startswith(f"<27>me[{os.getpid()}]: STREAM: 100% bad".encode())
    assert logged(capfd) == []
    log.handlers[0].close()


def test_the_syslog_gets_each_level_with_its_priority():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)
        url = f"udp://127.0.0.1:{server.getsockname()[1]}"
        log = ServerLog(LogConfig(syslog=True, remote_syslog=url, debug=True, trace=True))
        for write in (log.fatal, log.error, log.warning, log.info, log.debug, log.trace):
            write("x\ny")
        lines = [server.recv(1000) for _ in range(6)]
    assert [line.partition(b">")[0] for line in lines] == [b"<26", b"<27", b"<28", b"<30", b"<31", b"<31"]
    assert lines[0].endswith(b"STREAM: x\ny\x00")
    assert lines[1].endswith(b"STREAM: x\\ny\x00")
    log.handlers[0].close()


def test_debug_and_trace_are_switched_while_it_runs_one_without_the_other(capfd):
    log = ServerLog(LogConfig(logtime=False))
    for config in (LogConfig(trace=True), LogConfig(debug=True), LogConfig()):
        log.set_levels(config)
        log.debug("d")
        log.trace("t")
    assert [line.partition("] ")[2] for line in logged(capfd)] == ["[TRC] STREAM: t", "[DBG] STREAM: d"]


@pytest.mark.parametrize("url", ["localhost:514", "http://localhost:514", "udp://localhost"])
def test_bad_syslog_address_is_a_start_error(url):
    with pytest.raises(StartError, match="remote syslog must be"):
        ServerLog(LogConfig(syslog=True, remote_syslog=url))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nats://u:p@h:4222", "nats://u:[REDACTED]@h:4222"),
        ("nats://token@h:4222", "nats://[REDACTED]@h:4222"),
        ("u:p@h:1, nats://x:y@z", "u:[REDACTED]@h:1, nats://x:[REDACTED]@z"),
        ("cannot reach tls://a:b@c:1: refused", "cannot reach tls://a:[REDACTED]@c:1: refused"),
        ("nats://h:4222", "nats://h:4222"),
        ("nothing here", "nothing here"),
    ],
)
def test_passwords_and_tokens_of_urls_are_redacted(text, shown):
    assert redacted(text) == shown
