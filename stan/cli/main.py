"""The operator's tool: `stan`. Each command lives in a module of its own, which is imported when the command is used.

So an answer does not wait for imports of other commands, and `stan --help` shows the list of commands here.
"""

import os
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.completion import completion_init  # type: ignore[attr-defined] # public in the text, not in the module
from typer.core import TyperCommand, TyperGroup

from stan.log.files.disk import OWNER_ALONE
from stan.product import VERSION

WATCH_S: Final = 2.0

MESSAGES: Final = "Messages"
LOOK: Final = "Look and mend"
CLUSTER: Final = "The cluster"
WATCH: Final = "Watch"
SET_UP: Final = "Set up"
MEASURE: Final = "Measure and try"


class CommandEntry(NamedTuple):
    """An entry of the list of commands."""

    name: str
    place: str  # module:attribute, a function or a Typer
    help: str
    panel: str


_TABLE: Final = (  # name, module (below stan.cli, or of another distribution) and attribute, panel, help
    ("pub", "commands.pub:pub", MESSAGES, "Publish messages to a channel and wait for their acks."),
    ("sub", "commands.sub:sub", MESSAGES, "Read a channel: payloads, one a line, or JSON."),
    ("find", "commands.find:find", MESSAGES, "Find messages by contents, key or header."),
    ("channel", "commands.channel:app", LOOK, "Channels: list, show, get messages, purge, delete, limits, verify."),
    (
        "durable",
        "commands.durable:durables",
        LOOK,
        "Durables: list, show, why they get nothing, move, skip, redeliver, pause.",
    ),
    ("queue", "commands.durable:queues", LOOK, "Queue groups: the same."),
    ("consumer-group", "commands.consumer_group:app", LOOK, "Consumer groups and who owns which channel: list, show."),
    (
        "explain",
        "commands.explain:explain",
        LOOK,
        "Why a message came twice, late, or not at all: each delivery, from the log.",
    ),
    ("table", "commands.table:table", LOOK, "A channel as a table: the newest message of each key."),
    ("delayed", "commands.delayed:app", LOOK, "Messages that wait for their time: list, cancel."),
    ("policy", "commands.policy:app", LOOK, "Policies of delivery: list, show, set, unset."),
    ("schema", "commands.schema:app", LOOK, "Schemas of messages: list, show, check, add, compare, remove."),
    ("dlq", "commands.dlq:app", LOOK, "Dead letters: list, show, put back, drop."),
    ("subscription", "commands.subscription:app", LOOK, "Subscriptions that are online: list, evict."),
    ("client", "commands.client:app", LOOK, "Clients: list, show, evict."),
    ("node", "commands.node:app", CLUSTER, "Nodes: list, show, add, remove."),
    ("cluster", "commands.cluster:app", CLUSTER, "The cluster: rescue it when a majority is gone for good."),
    ("group", "commands.group:app", CLUSTER, "Groups of channels and their leaders: list, step-down."),
    ("top", "commands.top:top", WATCH, "Rates, lag and redeliveries, live."),
    ("events", "commands.events:events", WATCH, "What happens: leaders, clients, channels, trouble."),
    ("check", "commands.check:check", WATCH, "Whether all is well, as an exit code for alerting: 0, 1, 2, 3."),
    ("doctor", "commands.doctor:doctor", WATCH, "What is wrong, and what to do about it, on one page."),
    ("backup", "commands.backup:backup", LOOK, "Save channels with their positions into files."),
    ("restore", "commands.backup:restore", LOOK, "Put channels of a backup back."),
    (
        "export",
        "commands.exchange:export",
        MESSAGES,
        "Write a channel's messages as lines, or channels as streams of JetStream.",
    ),
    ("import", "commands.exchange:import_", MESSAGES, "Publish lines of a file."),
    ("lake", "commands.lake:app", LOOK, "A lake of Parquet files beside the broker: run the tierer, list, files."),
    ("context", "commands.context:app", SET_UP, "Clusters by name: how to reach them, as whom."),
    ("cheat", "commands.cheat:cheat", SET_UP, "Commands that are needed most, by task."),
    ("completion", "commands.completion:completion", SET_UP, "Completion for bash, zsh or fish."),
    ("config", "commands.config:app", SET_UP, "Configuration files of the server: check, show, accounts."),
    ("user", "commands.user:app", SET_UP, "Users of a configuration file, and their rights: list, can."),
    ("migrate", "commands.migrate:app", SET_UP, "Move in from another server that is stopped."),
    ("takeover", "commands.takeover:takeover", SET_UP, "Replace a running server of NATS Streaming."),
    (
        "bench",
        "stan_bench.bench.bench:bench",
        MEASURE,
        "Measure how many messages a second the broker takes and delivers.",
    ),
    (
        "bench failover",
        "stan_bench.bench.bench_failover:bench_failover",
        MEASURE,
        "Measure what a kill -9 of a node costs: a cluster of its own, under load, one node after the other.",
    ),
    (
        "demo",
        "stan_bench.demo.demo:demo",
        MEASURE,
        "Show in half a minute what the broker promises, on a broker of its own that is killed under load.",
    ),
    ("rtt", "commands.rtt:rtt", MEASURE, "Measure round trips to NATS and to the nodes."),
    ("pipeline", "commands.pipeline:app", MEASURE, "Pipelines on Spark: channels in, SQL or Python, channels out."),
)
ENTRIES: Final = tuple(
    CommandEntry(name, place if place.startswith("stan_") else f"stan.cli.{place}", text, panel)
    for name, place, panel, text in _TABLE
)


class _UsageCommand(TyperCommand):
    """A command that may have an exit code of its own for wrong usage, as `injected` gave it."""

    usage_exit = 2

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the arguments; a mistake in them carries the exit code."""
        try:
            return super().make_context(*args, **extra)
        except typer.Exit:
            raise
        except Exception as error:
            if hasattr(error, "exit_code"):
                error.exit_code = self.usage_exit
            raise


class _Commands(TyperGroup):
    """Commands that are imported when they are used; of one word, and of two: `bench failover` beside `bench CHANNEL`."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for entry in ENTRIES:
            self.commands[entry.name] = TyperCommand(
                name=entry.name, help=entry.help, rich_help_panel=entry.panel, callback=_nothing
            )

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as they are listed above, not sorted
        """Names, in the order of the help."""
        return list(self.commands)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let `--watch` stand alone."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*watch_alone(args[:end]), *args[end:]])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take two words for one command where there is one, and import it."""
        two = " ".join(args[:2])
        name, command, rest = super().resolve_command(ctx, [two, *args[2:]] if two in self.commands else args)
        for entry in ENTRIES:
            if command is not None and entry.name == name:
                return name, loaded(entry), rest
        return name, command, rest


def watch_alone(args: list[str]) -> list[str]:
    """Insert the default interval after a bare `--watch`."""
    out = []
    for at, arg in enumerate(args):
        out.append(arg)
        if arg == "--watch" and not _is_number(args[at + 1 : at + 2]):
            out.append(f"{WATCH_S:g}")
    return out


def _is_number(args: list[str]) -> bool:
    try:
        return bool(args) and float(args[0]) >= 0
    except ValueError:
        return False


def loaded(entry: CommandEntry) -> Any:
    """The command itself."""
    module, _, attribute = entry.place.partition(":")
    from stan.cli.support.common import needing_distributions  # noqa: PLC0415 - the help does without

    with needing_distributions(entry.name):
        target: Any = getattr(import_module(module), attribute)
    if isinstance(target, typer.Typer):
        command: Any = typer.main.get_group(target)
    else:
        alone = typer.Typer(add_completion=False, context_settings=HELP, pretty_exceptions_enable=False)
        alone.command(entry.name, cls=_UsageCommand)(target)
        command = typer.main.get_command(alone)
        command.usage_exit = getattr(target, "usage_exit", _UsageCommand.usage_exit)
    command.name = entry.name
    return command


def _nothing() -> None:
    """Do nothing: stands for a command that is not imported yet."""


HELP: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="stan",
    cls=_Commands,
    help="The operator's tool of the stan broker. Where it asks: --server, STAN_SERVER, or a context (`stan context add`).",
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP,
    pretty_exceptions_enable=False,
)


def _show_version(requested: bool) -> None:  # noqa: FBT001 - typer's way to call it
    if requested:
        from stan.cli.support.terminal import write  # noqa: PLC0415 - commands are imported when they are used

        write([f"stan {VERSION}"])
        raise typer.Exit


@app.callback()
def stan(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The operator's tool of the stan broker. Where it asks: --server, STAN_SERVER, or a context (`stan context add`)."""


def main() -> None:
    """Entry point of the `stan` command."""
    if "_STAN_COMPLETE" in os.environ:  # a shell asks
        completion_init()
    os.umask(OWNER_ALONE)  # backups hold messages, contexts passwords
    app(prog_name="stan")


if __name__ == "__main__":
    main()
