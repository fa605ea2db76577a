"""The operator's tool: `stan pub`, `stan sub`, `stan bench`, `stan demo`. Each subcommand lives in a module of its own."""

import typer

from stan.cli.bench import bench
from stan.cli.demo import demo
from stan.cli.pubsub import pub, sub

app = typer.Typer(
    name="stan",
    help="Publish, subscribe and measure: the operator's tool of the stan broker.",
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command()(pub)
app.command()(sub)
app.command()(bench)
app.command()(demo)


def main() -> None:
    """Entry point of the `stan` command."""
    app()


if __name__ == "__main__":
    main()
