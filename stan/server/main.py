"""`stan-server`: the process around the broker. Command line, signals, exit codes, log, and the embedded nats-server.

Promises: flags, exit codes and signals of the original (STAN-SPEC 12.5). The port of the embedded nats-server opens when the
broker answers there.
Never holds logic of the broker, which is `stan.server.compose.serve`.
"""

import contextlib
import errno
import gc
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stan import limits
from stan.edge.log import ServerLog
from stan.edge.nats.nats_process import find_binary, new_secret, refuse_used_port, version
from stan.errors import Aborted, StartError
from stan.log.files.disk import OWNER_ALONE
from stan.product import COMPATIBLE_VERSION, VERSION
from stan.server.process_title import hide_arguments
from stan.settings.settings import Action, Parsed, parse

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Sequence

    from stan.config import Config
    from stan.edge.nats.embedded import EmbeddedNats
    from stan.server.reload import Reloader
    from stan.settings.nats_conf import Document

_NAME = "nats-streaming-server"
_EXIT_CODES = {signal.SIGINT: 0, signal.SIGTERM: 128 + signal.SIGTERM}


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run the command with *argv*, by default the process's own arguments; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    own_password = os.urandom(24).hex()
    parsed = parse(words, _read, os.environ, own_password)
    hide_arguments()
    match parsed.action:
        case Action.SERVE:
            os.umask(OWNER_ALONE)
            return _serve(parsed, lambda: parse(words, _read_again, os.environ, own_password))
        case Action.HELP:
            from stan.server.help import help_text  # noqa: PLC0415 - not needed to serve

            if parsed.complaint:
                _complain(parsed.complaint)
            sys.stdout.write(help_text())
            return 0
        case Action.REFUSE:
            _complain(f"{_NAME}: {parsed.complaint}")
            return parsed.exit_code
        case _:
            try:
                return _ask(parsed)
            except StartError as error:
                _complain(f"{_NAME}: {error}")
                return 1


def _read(file: Path) -> "Document":
    from stan.settings.nats_conf import load  # noqa: PLC0415 - not needed without a file

    return load(file)


def _read_again(file: Path) -> "Document":
    """Read a file for a reload, which must not block: a pipe was read at the start and has nothing more to give."""
    if file.exists() and not file.is_file():
        raise OSError(errno.EINVAL, "not a file that can be read again")
    return _read(file)


def _ask(parsed: Parsed) -> int:
    """Carry out actions that need a nats-server or another process but no broker; returns the exit code."""
    match parsed.action:
        case Action.SIGNAL:
            from stan.server.signals import send  # noqa: PLC0415 - not needed to serve

            send(parsed.signal)
            return 0
        case Action.VERSION:
            try:
                nats_version = version(find_binary())
            except StartError:
                nats_version = "none found"
            sys.stdout.write(f"{_NAME} version {COMPATIBLE_VERSION}, nats-server: {nats_version}\n")
            sys.stdout.write(f"stan {VERSION}\n")
            return 0
        case Action.CHECK:
            from stan.settings.nats_conf_check import check  # noqa: PLC0415 - not needed to serve

            if not parsed.files:
                return _refuse(["-t needs a configuration file, -c or -sc"])
            complaints, notices = _complaints(parsed), [*parsed.config.notices]
            if not parsed.config.nats.urls:
                verdict = check(parsed.config)
                complaints, notices = [*complaints, *verdict.complaints], notices + verdict.notices
            if complaints:
                return _refuse(complaints)
            for notice in notices:
                _complain(f"{_NAME}: {notice}")
            _complain(f"{_NAME}: configuration file {' and '.join(parsed.files)} is valid")
            return 0
        case _:
            return _become_nats("--help_tls")


def _become_nats(*arguments: str) -> NoReturn:
    """Replace this process by nats-server with *arguments*."""
    binary = find_binary()
    sys.stdout.flush()
    os.execv(binary, [str(binary), *arguments])  # noqa: S606 - no shell is needed


def _serve(parsed: Parsed, again: "Callable[[], Parsed]") -> int:
    """Serve; *again* reads the command line and its files once more, for a reload."""
    config = parsed.config
    complaints = _complaints(parsed)
    if complaints:
        return _refuse(complaints)
    try:
        log = ServerLog(config.log)
    except StartError as error:
        return _refuse([str(error)])
    received: list[signal.Signals] = []
    _raise_descriptors()
    _handle_early_signals(received)
    try:
        for notice in config.notices:
            log.warning(notice)
        config = _with_accounts(config)
        if not config.nats.urls:
            find_binary()
            refuse_used_port(config.embedded, limits.NATS_PORT_PATIENCE)
        if config.pid_file is not None:
            _write_pid(config.pid_file)
        return _run(config, log, received, again)
    except StartError as error:
        log.fatal(f"Failed to start: {error}")
        return 1
    except Aborted as error:
        log.fatal(str(error))
        return 1
    finally:
        if config.pid_file is not None:
            _remove_pid(config.pid_file)
        log.close()


def _raise_descriptors() -> None:
    """Allow this process, and the nats-server that it starts, as many open files as the system gives."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # some systems give less than they promise
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _with_accounts(config: "Config") -> "Config":
    """Let the embedded nats-server know the users that have permissions."""
    if config.permissions is None or not config.permissions.users or config.nats.urls:
        return config
    from stan.edge.nats.accounts import with_accounts  # noqa: PLC0415 - slow to import, and not always needed

    return with_accounts(config, new_secret())


def _run(
    config: "Config",
    log: ServerLog,
    received: list[signal.Signals],
    again: "Callable[[], Parsed]",
) -> int:
    """Serve until a signal ends it; *received* has those that came before. Returns the exit code."""
    gc.disable()  # imported modules stay; no collection needs to look at them, now or later
    import asyncio  # noqa: PLC0415

    from stan.server.compose import serve  # noqa: PLC0415

    gc.freeze()
    gc.enable()

    async def shell() -> None:
        from stan.edge.reloading import Reloading  # noqa: PLC0415
        from stan.server.reload import Reloader  # noqa: PLC0415 - imports asyncio

        stop = asyncio.Event()
        embedded = _embedded(config, log)
        reloading = Reloading()
        reloader = Reloader(config, again, embedded, log, reloading)
        _handle_signals(reloader, log, stop, received)
        try:
            if received:  # while we were imported
                log.info("Shutting down.")
                return
            await serve(config, embedded, log, stop, reloading)
        finally:
            await reloader.stop()
            if embedded is not None:
                await embedded.stop()

    _run_on_loop(shell())
    return _EXIT_CODES[received[0]] if received else 0


def _embedded(config: "Config", log: ServerLog) -> "EmbeddedNats | None":
    if config.nats.urls:
        return None
    from stan.edge.nats.embedded import EmbeddedNats  # noqa: PLC0415 - imports asyncio

    return EmbeddedNats(config.embedded, log, leafnode=config.jetstream_api and not config.jetstream_leaf)


def _run_on_loop(main_task: "Coroutine[object, object, None]") -> None:
    """Run on uvloop where it is installed, else on asyncio's own loop."""
    import asyncio  # noqa: PLC0415

    factory: Callable[[], asyncio.AbstractEventLoop] | None
    try:
        from uvloop import new_event_loop as factory  # noqa: PLC0415
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main_task)


def _handle_early_signals(received: list[signal.Signals]) -> None:
    """Note signals that end the server until the event loop runs, and let no other signal end it.

    Raising an exception would not do: Python drops exceptions that a handler raises inside Python's own callbacks, which run
    during imports.
    """

    def note(number: int, _frame: object) -> None:
        received.append(signal.Signals(number))

    for number in _EXIT_CODES:
        signal.signal(number, note)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def _handle_signals(
    reloader: "Reloader", log: ServerLog, stop: "asyncio.Event", received: list[signal.Signals]
) -> None:
    """Install handlers for the signals of STAN-SPEC 12.5; *received* gets those that end the server."""
    import asyncio  # noqa: PLC0415

    def end(number: signal.Signals) -> None:
        if not received:
            log.info("Shutting down.")
        received.append(number)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in _EXIT_CODES:
        loop.add_signal_handler(number, end, number)
    loop.add_signal_handler(signal.SIGUSR1, log.reopen)
    loop.add_signal_handler(signal.SIGUSR2, lambda: None)
    loop.add_signal_handler(signal.SIGHUP, reloader.ask)


def _complaints(parsed: Parsed) -> list[str]:
    """Return all complaints about these settings."""
    return [*parsed.complaints, *parsed.config.validate()]


def _refuse(complaints: list[str]) -> int:
    for complaint in complaints:
        _complain(f"{_NAME}: {complaint}")
    return 1


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _write_pid(path: Path) -> None:
    try:
        path.write_text(str(os.getpid()), encoding="ascii")
    except OSError as error:
        raise StartError(f"unable to write pid file {path}: {error.strerror}") from error


def _remove_pid(path: Path) -> None:
    """Remove the pid file if it is ours."""
    try:
        if path.read_text(encoding="ascii") == str(os.getpid()):
            path.unlink()
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    sys.exit(main())
