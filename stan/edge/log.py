"""The server's log: lines in the format of the original, on standard error, in a file, or in the syslog.

Promises: `[pid] YYYY/MM/DD HH:MM:SS.micros [LVL] STREAM: text` (STAN-SPEC 12.6); each line is one write, so that lines
of nats-server and ours never mix; a log that cannot be written never stops the server. Never shows a secret that went
through `redacted`. Needs no event loop: it begins before all else. The library's own file handlers do not keep these
promises: they buffer, so that lines refused by a full disk are written late or raised at the end, and rotate before a line.
"""

import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stan.config import LogConfig
from stan.errors import StartError

if TYPE_CHECKING:
    from logging.handlers import SysLogHandler

REDACTED = "[REDACTED]"
_STDERR = 2
_FACILITY_DAEMON = 3
_TRACE = 5
_MARKS = {logging.INFO: "INF", logging.WARNING: "WRN", logging.ERROR: "ERR", logging.DEBUG: "DBG", _TRACE: "TRC"}
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {9: "\\t", 10: "\\n", 13: "\\r"}
"""Control characters, which would begin another line or be commands to a terminal, and how the log shows them."""
_SYSLOG_SOCKETS = ("/dev/log", "/var/run/syslog")


class ServerLog(logging.Logger):
    """Writes log lines. Usable from any thread; `reopen` may be called from a signal handler of the event loop.

    Where the text of a debug or trace line costs something, check `debug_on` or `trace_on` first.
    """

    def __init__(self, config: LogConfig) -> None:
        """Open the log.

        Raises:
            StartError: the file or the syslog cannot be opened.
        """
        super().__init__("stan")
        self.set_levels(config)
        self._lines = _Lines(config)
        self.addHandler(_open_syslog(config) if config.syslog else self._lines)

    def set_levels(self, config: LogConfig) -> None:
        """Debug and trace lines as *config* has them, from now on."""
        self.debug_on = config.debug
        self.trace_on = config.trace

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - of Logger
        """Return True if lines of *level* are written: debug and trace are switched one without the other."""
        return {logging.DEBUG: self.debug_on, _TRACE: self.trace_on}.get(level, True)

    def trace(self, text: str) -> None:
        """All details."""
        self.log(_TRACE, text)

    def raw(self, lines: bytes) -> None:
        """Write whole lines of another program as they are; they are not sent to the syslog."""
        self._lines.write(lines)

    def reopen(self) -> None:
        """Open the log file again, after another program has moved it away (STAN-SPEC 12.5, SIGUSR1)."""
        try:
            self.info("File log re-opened" if self._lines.reopen() else "File log re-open ignored, not a file logger")
        except StartError as error:
            self.error(str(error))

    def close(self) -> None:
        """Close the log file; later lines go to standard error."""
        self._lines.close()


class _Lines(logging.Handler):
    """Standard error or the log file, unbuffered: a line without room is lost, none comes late or in pieces."""

    def __init__(self, config: LogConfig) -> None:
        super().__init__()
        self._config = config
        self._clock = time.gmtime if config.logtime_utc else time.localtime
        self._fd = _STDERR if config.file is None else _open_file(config.file)

    def emit(self, record: logging.LogRecord) -> None:
        now = ""
        if self._config.logtime:
            seconds = time.strftime("%Y/%m/%d %H:%M:%S", self._clock(record.created))
            now = f"{seconds}.{int(record.created % 1 * 1e6):06d} "
        line = f"[{record.process}] {now}[{_MARKS.get(record.levelno, 'FTL')}] {_text(record)}\n"
        self.write(line.encode("utf-8", "surrogateescape"))

    def write(self, lines: bytes) -> None:
        """Write whole lines; then a full file is moved aside under a name with the time, and a new one begun."""
        self.acquire()
        try:
            os.write(self._fd, lines)
            path = self._config.file if self._fd != _STDERR else None
            if path is not None and 0 < self._config.file_bytes_max <= os.fstat(self._fd).st_size:
                seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
                stamp = time.strftime("%Y.%m.%d.%H.%M.%S", self._clock(seconds))
                path.rename(path.with_name(f"{path.name}.{stamp}.{nanos:09d}"))
                self.reopen()
        except (OSError, StartError):
            pass  # a full disk or a closed terminal must not stop the server
        finally:
            self.release()

    def reopen(self) -> bool:
        """Open the file again, False if there is none. Raises StartError, and the old one stays open."""
        if self._config.file is None or self._fd == _STDERR:
            return False
        fresh = _open_file(self._config.file)
        os.dup2(fresh, self._fd, inheritable=False)  # at once, for other writers too
        os.close(fresh)
        return True

    def close(self) -> None:
        self.acquire()
        old, self._fd = self._fd, _STDERR
        self.release()
        if old != _STDERR:
            os.close(old)


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.levelno != logging.CRITICAL:  # else the text is ours alone, and may have many lines
        text = text.translate(_ESCAPED)
    return f"STREAM: {text}"


def redacted(text: str) -> str:
    """*text* with the passwords and tokens of its URLs replaced (STAN-SPEC 12.4)."""
    return _URL.sub(_hide, text)


_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)?(?P<user>[^\s/@:,]*)(?P<password>:[^\s/@,]*)?@")


def _hide(match: re.Match[str]) -> str:
    scheme = match["scheme"] or ""
    if match["password"] is None:
        return f"{scheme}{REDACTED}@"
    return f"{scheme}{match['user']}:{REDACTED}@"


def _open_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"unable to open log file {path}: {error.strerror}") from error


def _open_syslog(config: LogConfig) -> "SysLogHandler":
    from logging.handlers import SysLogHandler  # noqa: PLC0415 - only its few users pay for it
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
    handler.format = _text  # type: ignore[method-assign]
    handler.priority_map = {**handler.priority_map, f"Level {_TRACE}": "debug"}  # type: ignore[misc]
    handler.handleError = lambda record: None  # type: ignore[method-assign] # noqa: ARG005 - a lost line is no traceback on standard error
    handler.ident = f"{config.syslog_name or Path(sys.argv[0]).name}[{os.getpid()}]: "
    return handler
