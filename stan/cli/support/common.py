"""Common parts of all subcommands of `stan`: reaching the cluster, running, failing.

Promises that every failure is one sentence with the next step on stderr, and an exit code a script can use: 1 refused or failed,
2 wrong usage, 3 NATS not reachable, 4 no answer for this cluster id, 130 interrupted. Colours and tables only on a terminal.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar

import stan_client
import typer
from stan_client.transport.session import fresh_id
from stan_protocol.secure import without_secrets

from stan.cli.support.terminal import err

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_NO_ANSWER: Final = 4
EXIT_INTERRUPTED: Final = 130
KEYS_MAX: Final = 1024
"""Bytes that are read of a terminal at once."""

DEFAULT_SERVER: Final = "nats://127.0.0.1:4222"
DEFAULT_CLUSTER_ID: Final = "test-cluster"

ClientId = Annotated[str, typer.Option("--client-id", help="Client id; a fresh one if not given.")]

T = TypeVar("T")


def group_of_commands(text: str) -> typer.Typer:
    """An empty group of commands that shows its help if none is named."""
    return typer.Typer(help=text, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})


class CliError(Exception):
    """A failure with its exit code; the text names the cause and the next step."""

    def __init__(self, text: str, code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster to reach, and the login."""

    server: str = DEFAULT_SERVER
    cluster_id: str = DEFAULT_CLUSTER_ID
    client_id: str = ""
    creds: Path | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def nats_options(self) -> dict[str, Any]:
        """Credentials as stan_client.transport.connection.for_nats takes them."""
        given = {
            "user_credentials": self.creds,
            "nkeys_seed": self.nkey,
            "user": self.user,
            "password": self.password,
            "token": self.token,
            "tls_ca": self.tls_ca,
            "tls_cert": self.tls_cert,
            "tls_key": self.tls_key,
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    @contextlib.asynccontextmanager
    async def connect(self, purpose: str) -> AsyncIterator[stan_client.Client]:
        """A connected client, closed behind the block; *purpose* begins a fresh client id."""
        client_id = self.client_id or f"stan-{purpose}-{fresh_id()}"
        with explained(self):
            client = await stan_client.connect(
                self.server, client_id=client_id, cluster_id=self.cluster_id, nats_options=self.nats_options()
            )
        try:
            yield client
        finally:
            with contextlib.suppress(stan_client.StanClientError):
                await client.close()


@contextlib.contextmanager
def explained(target: Target) -> Iterator[None]:
    """Turn errors of connecting into a CliError with the next step."""
    try:
        yield
    except stan_client.ConnectRequestTimeoutError as error:
        raise CliError(
            f"{error}\nNATS answers at {without_secrets(target.server)}, but no server of cluster {target.cluster_id!r} does. "
            "Is stan-server running there, and is its cluster id the same (--cluster-id)?",
            EXIT_NO_ANSWER,
        ) from None
    except stan_client.ServerError as error:
        hint = (
            " Choose another --client-id, or close the client that uses it."
            if error.code == "client_registered"
            else ""
        )
        raise CliError(f"The server refuses: {error}.{hint}") from None
    except ImportError as error:
        raise CliError(
            f"--creds and --nkey need the package nkeys ({error}). Install it: pip install nkeys", EXIT_USAGE
        ) from None
    except stan_client.InvalidUrlError as error:
        raise CliError(f"{error}. A NATS URL is for example {DEFAULT_SERVER} (--server).", EXIT_USAGE) from None
    except stan_client.CannotConnectError as error:
        reason = error.reason
        step = "Is the server running there (--server, or the context: `stan context show`)?"
        if "authorization" in reason.lower():
            step = "Check --creds, --nkey, --user, --password or --token, or the context (`stan context show`)."
        if "secure connection not available" in reason:
            step = "It offers no TLS, so nothing was said to it. In clear: nats://, and no certificates (`stan context show`)."
        if isinstance(error.__cause__, TimeoutError):
            step = "Something takes the connection and says nothing: is it the monitoring port, or another program?"
        raise CliError(f"Cannot connect to {error.where}: {reason}. {step}", EXIT_UNREACHABLE) from None


@contextlib.contextmanager
def needing_distributions(command: str) -> Iterator[None]:
    """Leave with a sentence if *command* imports a distribution that the broker does without, and that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in {"pyspark_stan", "stan_bench", "stan_lake"}:
            raise
        distribution = error.name.replace("_", "-")
        fail(f"`stan {command}` needs {distribution}, which is not installed: pip install {distribution}", EXIT_USAGE)


def fail(text: str, code: int = EXIT_FAILED) -> NoReturn:
    """Leave with a sentence and an exit code."""
    err.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code)


def run(main: Coroutine[Any, Any, int]) -> None:
    """Run a command to its end and leave with its exit code; failures as the module's text says."""
    try:
        code = run_fast(main)
    except CliError as error:
        err.print(str(error), style="red", highlight=False, markup=False, soft_wrap=True)
        code = error.code
    except stan_client.StanClientError as error:
        err.print(str(error), style="red", highlight=False, markup=False, soft_wrap=True)
        code = EXIT_FAILED
    except BrokenPipeError:
        code = EXIT_FAILED  # the reader of our output has left
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def run_until_signalled(main: Coroutine[Any, Any, int]) -> None:
    """Run *main* as a task that Ctrl-C, SIGTERM and SIGHUP cancel, so that everything is cleaned up."""
    run(_cancellable(main))


async def _cancellable(main: Coroutine[Any, Any, int]) -> int:
    task = asyncio.ensure_future(main)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        err.print("Interrupted; processes and files are removed.")
        return EXIT_INTERRUPTED


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, on uvloop where it is there."""
    try:
        import uvloop  # noqa: PLC0415 - not installed everywhere
    except ImportError:
        return asyncio.run(main)
    result: T = uvloop.run(main)
    return result


def stop_on_key(stop: asyncio.Event, key: str) -> None:
    """Let a key on the terminal set *stop*, too, without Enter. The terminal is as before when the process ends."""
    if not sys.stdin.isatty():
        return
    import termios  # noqa: PLC0415 - Windows has none
    import tty  # noqa: PLC0415 - the same

    descriptor = sys.stdin.fileno()
    atexit.register(termios.tcsetattr, descriptor, termios.TCSADRAIN, termios.tcgetattr(descriptor))
    tty.setcbreak(descriptor)

    def pressed() -> None:
        typed = os.read(descriptor, KEYS_MAX)
        if not typed or key.encode() in typed:
            asyncio.get_running_loop().remove_reader(descriptor)
            stop.set()

    asyncio.get_running_loop().add_reader(descriptor, pressed)


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGINT and SIGTERM set *stop* instead of tearing the loop down, so that acks and closes still leave."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C then raises KeyboardInterrupt
            loop.add_signal_handler(number, stop.set)
