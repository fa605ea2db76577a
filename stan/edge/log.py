"""The server's log: lines in the format of the original, on standard error, in a file, or in the syslog.

Promises: `[pid] YYYY/MM/DD HH:MM:SS.micros [LVL] STREAM: text` (STAN-SPEC 12.6); each line is one write, so that lines
of nats-server and ours never mix; a log that cannot be written never stops the server. Never shows a secret that went
through `redacted`. Needs no event loop and imports little: it is there before anything else.
"""

import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stan.config import LogConfig
from stan.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Callable
    from logging.handlers import SysLogHandler

REDACTED = "[REDACTED]"
_STDERR = 2
_FACILITY_DAEMON = 3
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {9: "\\t", 10: "\\n", 13: "\\r"}
"""What would begin a line of its own, or speak to a terminal."""
_SYSLOG_SOCKETS = ("/dev/log", "/var/run/syslog")


class ServerLog:
    """Writes log lines. Usable from any thread; `reopen` may be called from a signal handler of the event loop."""

    def __init__(self, config: LogConfig) -> None:
        """Open the log.

        Raises:
            StartError: the file or the syslog cannot be opened.
        """
        self.debug_on = config.debug
        self.trace_on = config.trace
        self._config = config
        self._prefix = f"[{os.getpid()}] "
        self._clock: Callable[[float], time.struct_time] = time.gmtime if config.logtime_utc else time.localtime
        self._lock = threading.Lock()
        self._syslog = _open_syslog(config) if config.syslog else None
        self._fd = _STDERR if config.file is None else _open_file(config.file)

    def info(self, text: str) -> None:
        """Something that an operator wants to know."""
        self._stream("INF", text)

    def warning(self, text: str) -> None:
        """Something that may become a problem."""
        self._stream("WRN", text)

    def error(self, text: str) -> None:
        """Something failed; the server goes on."""
        self._stream("ERR", text)

    def fatal(self, text: str) -> None:
        """Say why the server stops; the caller stops it."""
        self._stream("FTL", text)

    def debug(self, text: str) -> None:
        """Details; where building the text costs something, ask `debug_on` first."""
        if self.debug_on:
            self._stream("DBG", text)

    def trace(self, text: str) -> None:
        """All details; where building the text costs something, ask `trace_on` first."""
        if self.trace_on:
            self._stream("TRC", text)

    def raw(self, lines: bytes) -> None:
        """Write whole lines of another program as they are; they are not sent to the syslog."""
        with self._lock:
            self._write(lines)

    def reopen(self) -> None:
        """Open the log file again, after something has moved it away (STAN-SPEC 12.5, SIGUSR1)."""
        path = self._config.file
        if path is None:
            self.info("File log re-open ignored, not a file logger")
            return
        try:
            self._replace(path)
        except StartError as error:
            self.error(str(error))
        else:
            self.info("File log re-opened")

    def set_levels(self, config: LogConfig) -> None:
        """Debug and trace lines as *config* has them, from now on."""
        self.debug_on = config.debug
        self.trace_on = config.trace

    def close(self) -> None:
        """Close the log file; later lines go to standard error."""
        with self._lock:
            old, self._fd = self._fd, _STDERR
        if old != _STDERR:
            os.close(old)

    def _stream(self, level: str, text: str) -> None:
        if level != "FTL":  # else the text is ours alone, and may have many lines
            text = text.translate(_ESCAPED)
        if self._syslog is not None:
            _to_syslog(self._syslog, level, f"STREAM: {text}")
            return
        now = self._now() if self._config.logtime else ""
        line = f"{self._prefix}{now}[{level}] STREAM: {text}\n".encode("utf-8", "surrogateescape")
        with self._lock:
            self._write(line)

    def _now(self) -> str:
        seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
        return f"{time.strftime('%Y/%m/%d %H:%M:%S', self._clock(seconds))}.{nanos // 1000:06d} "

    def _write(self, lines: bytes) -> None:
        try:
            os.write(self._fd, lines)
            size = self._config.file_bytes_max
            if size > 0 and self._fd != _STDERR and os.fstat(self._fd).st_size >= size:
                self._rotate()
        except (OSError, StartError):
            pass  # a full disk or a closed terminal must not stop the server

    def _rotate(self) -> None:
        """Move the full file aside under a name with the time, and begin a new one; the lock is held."""
        path = self._config.file
        if path is not None:
            seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
            stamp = time.strftime("%Y.%m.%d.%H.%M.%S", self._clock(seconds))
            path.rename(path.with_name(f"{path.name}.{stamp}.{nanos:09d}"))
            old, self._fd = self._fd, _open_file(path)
            os.close(old)

    def _replace(self, path: Path) -> None:
        fresh = _open_file(path)
        with self._lock:
            old, self._fd = self._fd, fresh
        if old != _STDERR:
            os.close(old)


def redacted(text: str) -> str:
    """*text* with the passwords and tokens of its URLs replaced (STAN-SPEC 12.4)."""
    return _URL.sub(_hide, text)


_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)?(?P<user>[^\s/@:,]*)(?P<password>:[^\s/@,]*)?@")


def _hide(found: re.Match[str]) -> str:
    scheme = found["scheme"] or ""
    if found["password"] is None:
        return f"{scheme}{REDACTED}@"
    return f"{scheme}{found['user']}:{REDACTED}@"


def _open_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"unable to open log file {path}: {error.strerror}") from error


def _open_syslog(config: LogConfig) -> "SysLogHandler":
    from logging.handlers import SysLogHandler  # noqa: PLC0415 - only the few who ask for it pay for it
    from socket import SOCK_DGRAM, SOCK_STREAM  # noqa: PLC0415

    address: str | tuple[str, int]
    kind = SOCK_DGRAM
    if config.remote_syslog:
        scheme, _, rest = config.remote_syslog.partition("://")
        host, _, port = rest.rpartition(":")
        if scheme not in {"udp", "tcp"} or not host or not port.isdigit():
            raise StartError(f"remote syslog must be udp://host:port or tcp://host:port, not {config.remote_syslog}")
        address = host, int(port)
        kind = SOCK_STREAM if scheme == "tcp" else SOCK_DGRAM
    else:
        address = next((path for path in _SYSLOG_SOCKETS if Path(path).exists()), _SYSLOG_SOCKETS[0])
    try:
        handler = SysLogHandler(address, _FACILITY_DAEMON, kind)
    except OSError as error:
        raise StartError(f"unable to connect to the syslog: {error}") from error
    handler.handleError = _forget  # type: ignore[assignment, method-assign]
    handler.ident = f"{config.syslog_name or Path(sys.argv[0]).name}[{os.getpid()}]: "
    return handler


def _forget(_record: object) -> None:
    """A lost syslog line must not become a traceback on standard error."""


def _to_syslog(handler: "SysLogHandler", level: str, text: str) -> None:
    from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING, LogRecord  # noqa: PLC0415

    levels = {"INF": INFO, "WRN": WARNING, "ERR": ERROR, "FTL": CRITICAL}
    record = LogRecord("stan", levels.get(level, DEBUG), "", 0, text, (), None)
    handler.handle(record)
