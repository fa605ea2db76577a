"""A broker of our own for one measurement, `stan bench --start`: file store in a temporary directory, free port.

Promises that process and directory are gone afterwards.
"""

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import stan_client
from stan_client.connection import CONNECT_FAILURES
from stan_client.session import fresh_id

from stan.cli.common import CliError, Target

START_TIMEOUT_S: Final = 15
STOP_TIMEOUT_S: Final = 15
RETRY_PAUSE_S: Final = 0.05
LOG_LINES_SHOWN: Final = 20


@asynccontextmanager
async def own_broker(cluster_id: str) -> AsyncIterator[Target]:
    """A running `stan-server`; yields how to reach it.

    Raises:
        CliError: it did not start; the text holds the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="stan-bench-") as directory:
        port, log = _free_port(), Path(directory, "log")
        command = ["-m", "stan.cli.server", "-a", "127.0.0.1", "-p", str(port), "-cid", cluster_id]
        command += ["-st", "file", "-dir", str(Path(directory, "store"))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        out = os.open(log, os.O_WRONLY | os.O_CREAT)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=environment
            )
        finally:
            os.close(out)
        target = Target(server=f"nats://127.0.0.1:{port}", cluster_id=cluster_id)
        try:
            await _until_it_answers(target, process, log)
            yield target
        finally:
            await _stop(process)


async def _until_it_answers(target: Target, process: asyncio.subprocess.Process, log: Path) -> None:
    probe = replace(target, client_id=f"stan-bench-probe-{fresh_id()}")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_TIMEOUT_S):
            while process.returncode is None:
                try:
                    client = await stan_client.connect(probe.cluster_id, probe.client_id, servers=probe.server)
                except (stan_client.StanClientError, *CONNECT_FAILURES):
                    await asyncio.sleep(RETRY_PAUSE_S)
                else:
                    await client.close()
                    return
    raise CliError(f"The broker did not start. Its log ends so:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
