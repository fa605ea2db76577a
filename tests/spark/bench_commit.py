"""What a transaction costs the broker beside a plain publish, and reading its rows beside reading plain ones, without Spark: CPU
seconds per million rows.

`python -m tests.spark.bench_commit [--rows N] [--runs N] [--sizes BYTES ...]`: a broker with fsync and the requests of the sink,
as many on their way as a task has, none of them compressed. At least once, stage and commit alternate in each run, and so do
reads of rows that were published and of rows that a commit refers to; printed are the medians. The trees of two versions are
compared by running it with PYTHONPATH set to one and to the other.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections import deque
from itertools import pairwise
from pathlib import Path

from stan_client.blocking import BlockingClient

from tests.kit.batches import rows_of
from tests.kit.server import StanServer

IN_FLIGHT = 8
READS_PER_RUN = 3
REQUEST_BYTES = 1 << 20
"""As the sink makes them."""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def requests(rows, size, bytes_max):
    """(rows of one request, their number) until there are *rows* of *size* bytes."""
    each = min(rows, bytes_max // (size + 32))
    packed = rows_of([b"%0*d" % (size, number) for number in range(each)])
    made = [(packed, each)] * (rows // each)
    rest = rows - len(made) * each
    return made + ([(rows_of([b"x" * size] * rest), rest)] if rest else [])


def send(client, made, begin):
    """Send all, some on their way; *begin* begins one."""
    waiting = deque()
    for part, (rows, count) in enumerate(made):
        if len(waiting) >= IN_FLIGHT:
            waiting.popleft().result()
        waiting.append(begin(part, rows, count))
    for one in waiting:
        one.result()


def measure(server, client, size, rows, run):
    """CPU seconds of the broker per million rows: at least once, stage, commit."""
    made = requests(rows, size, min(client.max_payload - 4096, REQUEST_BYTES))
    name, marks = f"run.{size}.{run}", [cpu_s(server.pid)]
    send(
        client,
        made,
        lambda _part, packed, count: client.publish_batch_nowait(f"{name}.plain", packed, count, compress=False),
    )
    marks.append(cpu_s(server.pid))
    send(
        client,
        made,
        lambda part, packed, count: client.stage_nowait("app", run, "t", part, f"{name}.staged", packed, count),
    )
    marks.append(cpu_s(server.pid))
    done = client.commit("app", run, {f"{name}.staged": [("t", len(made))]}, timeout_s=300)
    marks.append(cpu_s(server.pid))
    (committed,) = done.values()
    assert committed.last - committed.first + 1 == rows
    return [(after - before) * 1e6 / rows for before, after in pairwise(marks)]


def measure_reads(server, client, size, rows, runs):
    """CPU seconds of the broker per million rows, of each run: to read published rows, and rows that a commit refers to."""
    made = requests(rows, size, min(client.max_payload - 4096, REQUEST_BYTES))
    plain, staged = f"read.{size}.plain", f"read.{size}.staged"
    send(client, made, lambda _, packed, count: client.publish_batch_nowait(plain, packed, count, compress=False))
    send(client, made, lambda part, packed, count: client.stage_nowait("app", 0, "r", part, staged, packed, count))
    client.commit("app", 0, {staged: [("r", len(made))]}, timeout_s=300)
    found = []
    for _ in range(runs + 1):
        marks = [cpu_s(server.pid)]
        for channel in (plain, staged):
            assert sum(one.count for one in client.read_range(channel, 1, rows)) == rows
            marks.append(cpu_s(server.pid))
        found.append([(after - before) * 1e6 / rows for before, after in pairwise(marks)])
    return found[1:]


def main():
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[128, 1024])
    given = arguments.parse_args()
    found = {}
    for size in given.sizes:
        rows = given.rows * 128 // size if size > 128 else given.rows
        with (
            tempfile.TemporaryDirectory() as directory,
            StanServer(Path(directory)) as server,
            BlockingClient(server.url, cluster_id=server.cluster_id, timeout_s=120) as client,
        ):
            measured = [measure(server, client, size, rows, run) for run in range(given.runs + 1)][1:]
            reads = measure_reads(server, client, size, rows, READS_PER_RUN * given.runs)
        plain, stage, commit = (statistics.median(column) for column in zip(*measured, strict=True))
        found[size] = {
            "at_least_once": round(plain, 2),
            "stage": round(stage, 2),
            "commit": round(commit, 2),
            "ratio": round((stage + commit) / plain, 2),
            "read_published": round(statistics.median(column[0] for column in reads), 3),
            "read_committed": round(statistics.median(column[1] for column in reads), 3),
            "read_ratio": round(sum(column[1] for column in reads) / sum(column[0] for column in reads), 2),
        }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
