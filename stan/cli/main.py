"""The operator's tool: `stan pub`, `sub`, `bench`, `demo`, `pipeline`, `migrate`. Each lives in a module of its own."""

from typing import Any

import typer
from typer.core import TyperGroup

from stan.cli.bench import bench
from stan.cli.bench_failover import bench_failover
from stan.cli.demo import demo
from stan.cli.migrate import app as migrate
from stan.cli.pipeline import app as pipeline
from stan.cli.pubsub import pub, sub


class _Commands(TyperGroup):
    """Commands of one word, and of two: `bench failover` beside `bench CHANNEL`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take two words for one command where there is one."""
        two = " ".join(args[:2])
        return super().resolve_command(ctx, [two, *args[2:]] if two in self.commands else args)


app = typer.Typer(
    name="stan",
    cls=_Commands,
    help="Publish, subscribe and measure: the operator's tool of the stan broker.",
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command()(pub)
app.command()(sub)
app.command()(bench)
app.command("bench failover")(bench_failover)
app.command()(demo)
app.add_typer(pipeline, name="pipeline")
app.add_typer(migrate, name="migrate")


def main() -> None:
    """Entry point of the `stan` command."""
    app()


if __name__ == "__main__":
    main()
