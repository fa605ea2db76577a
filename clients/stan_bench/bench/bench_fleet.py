"""The load processes of one run, seen from `stan bench`: spawned, started together, listened to, and gone at the end.

Promises that no process is left behind, whatever happens. Talks to them in the lines that load.py describes.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from stan.cli.support.common import CliError
from stan_bench.bench.bench_drivers import Job
from stan_bench.bench.bench_report import Measurement

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest line of a load process: the samples of all its clients."""

LEAVE_TIMEOUT_S: Final = 3
"""How long load processes may take to close their clients before they are killed."""

OnProgress = Callable[[str, int], None]
"""Takes the role and the messages done by all processes of that role."""


class Fleet:
    """Use as `async with`; leaving the block ends all processes."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._members: list[tuple[Job, Process]] = []
        self._progress: dict[Process, int] = {}

    async def __aenter__(self) -> "Fleet":
        return self

    async def __aexit__(self, *_exc: object) -> None:
        processes = [process for _, process in self._members]
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()  # tells it to leave, and so to close its clients
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*[process.wait() for process in processes]), LEAVE_TIMEOUT_S)
        for process in processes:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def prepare(self, jobs: list[Job]) -> None:
        """Spawn one process per job and wait until all their clients are connected.

        Raises:
            CliError: one of them could not.
        """
        members = [(job, await self._spawn(job)) for job in jobs]
        for job, process in members:
            await self._answer(job, process, "ready")

    async def _spawn(self, job: Job) -> Process:
        # The children see the packages that we see, installed or not.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "stan_bench.bench.load",
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            limit=LINE_BYTES_MAX,
        )
        self._members.append((job, process))
        _write(process, job.to_json() + "\n")
        return process

    async def run(self) -> dict[str, list[Measurement]]:
        """Let all begin, wait for all; samples by role.

        Raises:
            CliError: one of them failed.
        """
        for _, process in self._members:
            _write(process, "go\n")
        answers = await asyncio.gather(*[self._answer(job, process, "samples") for job, process in self._members])
        samples: dict[str, list[Measurement]] = {}
        for (job, _), answer in zip(self._members, answers, strict=True):
            samples.setdefault(job.role, []).extend(Measurement.from_json(sample) for sample in answer["samples"])
        return samples

    async def _answer(self, job: Job, process: Process, key: str) -> dict[str, Any]:
        while True:
            line = await process.stdout.readline() if process.stdout is not None else b""
            if not line:
                raise CliError(f"A load process ({job.role}) ended early with exit code {await process.wait()}.")
            answer: dict[str, Any] = json.loads(line)
            if "error" in answer:
                raise CliError(f"{job.role}: {answer['error']}")
            if key in answer:
                return answer
            self._progress[process] = answer.get("progress", 0)
            done = sum(self._progress.get(member, 0) for other, member in self._members if other.role == job.role)
            self._on_progress(job.role, done)


def _write(process: Process, text: str) -> None:
    if process.stdin is not None:
        process.stdin.write(text.encode())
