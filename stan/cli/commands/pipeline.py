"""`stan pipeline`: run the pipeline of a TOML file, check it, and see two examples work.

A pipeline reads channels, decodes messages, transforms them with Spark, and publishes the results. All mistakes in its file
are reported together, each with its line. SIGINT and SIGTERM stop it with exit code 0; the next start goes on from its
checkpoint.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pyspark_stan.examples import EXAMPLES, Example
from pyspark_stan.pipeline.config import Pipeline, PipelineConfigError, read_pipeline, summary
from pyspark_stan.pipeline.run import PipelineError, run
from pyspark_stan.pipeline.session import SparkMissingError, require_spark

from stan.cli.commands.pipeline_screen import screen
from stan.cli.support.common import EXIT_INTERRUPTED, EXIT_USAGE, Target, fail, group_of_commands, run_until_signalled
from stan.cli.support.options import injected
from stan.cli.support.terminal import out

BURST: Final = 500
"""Messages of `feed` that are published together, at most."""

app = group_of_commands("Pipelines on Spark: channels in, SQL or Python, channels out.")
File = Annotated[Path, typer.Argument(metavar="FILE.toml", help="The file that tells the pipeline.")]


@app.command("run")
def run_pipeline(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then end.")] = False,  # noqa: FBT002
    master: Annotated[str, typer.Option(help="Spark master, instead of the file's.")] = "",
) -> None:
    """Run a pipeline until Ctrl-C; it goes on where it was when it is started again."""
    pipeline = _read(file)
    if once:
        pipeline = replace(pipeline, available_now=True, every="")
    if master:
        pipeline = replace(pipeline, spark=replace(pipeline.spark, master=master))
    stop = _stop_on_signals()
    try:
        with screen(pipeline.name) as shown:
            shown.announce(f"pipeline {pipeline.name}: {pipeline.title}")
            run(pipeline, stop, shown.announce, shown.show)
    except (SparkMissingError, PipelineError) as error:
        fail(f"pipeline {pipeline.name}: {error}")
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    out.print(
        f"stopped; the next start goes on from {pipeline.checkpoint}" if stop.is_set() else "done: all of it is read",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@app.command()
def check(file: File) -> None:
    """Tell everything that is wrong with a pipeline's file, or what it would do; runs nothing."""
    pipeline = _read(file)
    for name, text in summary(pipeline):
        out.print(f"{name:<10} {text}", highlight=False, markup=False, soft_wrap=True)
    try:
        require_spark()
    except SparkMissingError as error:
        out.print(f"{'but':<10} {error}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def examples(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Which; all if none is named.")] = None,
    into: Annotated[Path | None, typer.Option(help="Write the files into this directory.")] = None,
) -> None:
    """List the examples, or write them out as files to start from."""
    for example in [_example(name) for name in names or EXAMPLES]:
        if into is None:
            out.print(f"{example.name:<10} {example.title}", highlight=False, soft_wrap=True)
            continue
        path = into / f"{example.name}.toml"
        try:
            into.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(example.toml)
        except OSError as error:
            fail(f"cannot write {path}: {error.strerror}")
        out.print(
            f"{path}  (stan pipeline feed {example.name}; stan pipeline run {path})", highlight=False, soft_wrap=True
        )


@app.command()
@injected
def feed(
    name: Annotated[str, typer.Argument(help="An example: " + ", ".join(EXAMPLES))],
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Messages; 0: until Ctrl-C.")] = 0,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another seed, other data.")] = 1,
    *,
    target: Target,
) -> None:
    """Publish an example's data."""
    example = _example(name)
    messages = example.messages(seed)
    run_until_signalled(_feed(target, example, islice(messages, count) if count else messages, rate))


# --- inside ---------------------------------------------------------------------------------------------------------


async def _feed(target: Target, example: Example, messages: Iterator[bytes], rate: int) -> int:
    published = 0
    async with target.connect("feed") as client:
        began = time.monotonic()
        try:
            while burst := list(islice(messages, max(1, min(BURST, rate // 10)))):
                published += await client.publish_many(example.channel, burst)
                ahead = published / rate - (time.monotonic() - began)
                if ahead > 0:
                    await asyncio.sleep(ahead)
        finally:
            out.print(f"{published:,} messages published to {example.channel}", highlight=False)
    return 0


def _read(file: Path) -> Pipeline:
    try:
        return read_pipeline(file, os.environ)
    except PipelineConfigError as error:
        count = len(error.complaints)
        fail(
            f"{file}: {count} mistake{'s' if count > 1 else ''}\n" + "\n".join(f"  {each}" for each in error.complaints)
        )


def _example(name: str) -> Example:
    if name not in EXAMPLES:
        fail(f"There is no example {name!r}; there are {', '.join(EXAMPLES)}.", EXIT_USAGE)
    return EXAMPLES[name]


def _stop_on_signals() -> threading.Event:
    """Set by the first SIGINT or SIGTERM; the second one ends everything at once."""
    stop = threading.Event()

    def heed(_number: int, _frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heed)
    return stop
