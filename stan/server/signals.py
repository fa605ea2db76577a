"""`--signal`: find a running server and send it a signal; a part of `stan-server` that serves nothing.

Promises: the signals, the ways to name a process and the texts of the original (STAN-SPEC 12.5). Without a pid only a process of
our program, or of the original, is chosen.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from stan_protocol.refusals import go_quote

from stan.errors import StartError

PROGRAMS = frozenset({"nats-streaming-server", "stan-server"})
_NAME = "nats-streaming-server"
_SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


def send(text: str) -> None:
    """Send the signal of `-signal` with the value *text*, `<signal>[=<pid or pid file>]`.

    Raises:
        StartError: unknown signal, or no process, or not exactly one.
    """
    word, _, target = text.partition("=")
    number = _SIGNALS.get(word)
    if number is None:
        raise StartError(f"unknown signal {go_quote(word)}")
    pid = _pid_of(target) if target else _only_pid()
    try:
        os.kill(pid, number)
    except OSError as error:
        raise StartError(f"unable to signal process {pid}: {error.strerror}") from error


def _pid_of(target: str) -> int:
    text = target
    if not text.isdigit():
        try:
            text = Path(target).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            text = ""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise StartError(f"invalid pid: {text or target}")
    return int(text)


def _only_pid() -> int:
    pids = [pid for pid, command in _processes() if pid != os.getpid() and runs_server(command)]
    if not pids:
        raise StartError(f"no {_NAME} processes running")
    if len(pids) > 1:
        raise StartError("\n".join([f"multiple {_NAME} processes running:", *map(str, pids)]))
    return pids[0]


def runs_server(command: list[str]) -> bool:
    """Return True if a command line is a server's: the program itself, or a Python that runs it."""
    names = [Path(word).name for word in command[:2]]
    return bool(names) and (names[0] in PROGRAMS or (names[0].startswith("python") and names[-1] in PROGRAMS))


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Process ids and command lines of all processes of this machine that we may see."""
    proc = Path("/proc")
    if (proc / "self/cmdline").exists():
        for folder in proc.iterdir():
            if folder.name.isdigit():
                try:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue  # it has just ended
                yield int(folder.name), [os.fsdecode(word) for word in words if word]
        return
    listing = subprocess.run(["/bin/ps", "-axo", "pid=,args="], capture_output=True, text=True, check=False)
    for line in listing.stdout.splitlines():
        pid, *arguments = line.split()
        yield int(pid), arguments
