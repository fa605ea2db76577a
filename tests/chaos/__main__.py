"""Mixed chaos for as long as one likes: PYTHONPATH=clients python -m tests.chaos --runs 50 --seconds 60 --seed 1

Each run makes a cluster, loads a few channels, lets faults happen one after the other, heals everything and judges what the
clients saw. It prints one line; a run that found something leaves its directory and says where. Exit code 1 if any did.
"""

import argparse
import asyncio
import contextlib
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.chaos.faults import Faults, elections_watched
from tests.chaos.load import LASTING_KINDS, ON_ITS_WAY_S, ONE_WAY_S, Load, Pace
from tests.chaos.replicas import disagreements
from tests.kit.cluster import StanCluster, names_of
from tests.kit.network import Network, why_not
from tests.kit.server import NatsServer

CHANNELS = ("orders", "lamps", "chaos")  # of different groups
LOAD_S = (0.0, 3.0)  # between two faults
PACE = Pace(writers=2, burst=4, pause_s=0.01, in_flight_max=8192, ack_wait_s=3, ack_timeout_s=5, catch_up_s=120)
PACES = (PACE, replace(PACE, kinds=LASTING_KINDS))


@dataclass
class Result:
    """What a run has to tell."""

    shape: str
    faults: Counter[str] = field(default_factory=Counter)
    elections: int = 0
    acked: int = 0
    delivered: int = 0
    lost: int = 0
    repeats: int = 0
    unknown: int = 0
    stood_still: float = 0.0
    gap: float = 0.0
    gap_of: str = ""
    findings: list[str] = field(default_factory=list)

    def line(self) -> str:
        """One line for all of it."""
        still = f" (this process stood still for {self.stood_still:.1f} s)" if self.stood_still else ""
        faults = " ".join(f"{name}x{count}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.shape}: acked {self.acked} delivered {self.delivered} lost {self.lost} repeats {self.repeats} "
            f"unknown {self.unknown} elections {self.elections} longest gap {self.gap:.1f} s ({self.gap_of}){still} "
            f"faults {sum(self.faults.values())}: {faults}"
        )


async def run(directory: Path, seed: int, seconds: float, shape: str, only: list[str]) -> Result:
    """One cluster, from its start to its judgement."""
    dice = random.Random(seed)
    result = Result(shape)
    load: Load | None = None
    try:
        with contextlib.ExitStack() as stack:
            nats = stack.enter_context(NatsServer(directory)) if shape == "one nats" else None
            network = stack.enter_context(Network(names_of(3))) if shape == "network" else None
            cluster = stack.enter_context(StanCluster(directory, nats=nats, network=network))
            load = Load(cluster, CHANNELS[: dice.randint(1, 3)], dice.choice(PACES))
            load.on_its_way_s = ONE_WAY_S if nats else ON_ITS_WAY_S
            faults = Faults(cluster, load, dice, nats=nats, network=network)
            async with load:
                async with elections_watched(cluster, load) as elections:
                    await _under_faults(load, faults, only, dice, seconds, result)
                    await load.finish()
                result.elections = len(elections)
                _judge(load, result)
        result.findings += disagreements(cluster)
    except (AssertionError, pytest.fail.Exception, Exception):  # noqa: BLE001 - the next run shall take place
        result.findings.append(traceback.format_exc())
    if result.findings and load is not None:
        load.write_down(directory / "seen.txt")
    return result


async def _under_faults(
    load: Load, faults: Faults, only: list[str], dice: random.Random, seconds: float, result: Result
) -> None:
    await load.acknowledged(100)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(dice.uniform(*LOAD_S))
        name = dice.choice(only or faults.names())
        result.faults[name] += 1
        for lane in load.lanes:
            lane.forget_gap()
        await faults.happen(name)
        ended = faults.ended
        assert not ended, f"{name}: {ended} ended by itself"
        longest = max(lane.longest_gap for lane in load.lanes)
        if longest > result.gap:
            result.gap, result.gap_of = longest, name
    await load.acknowledged(100)


def _judge(load: Load, result: Result) -> None:
    result.stood_still = load.stood_still
    for lane in load.lanes:
        history = lane.history
        stored = {data for _, data in history.stored}
        result.acked += len(history.acked)
        result.lost += len(history.acked - stored)
        result.unknown += len(history.published - history.acked - history.refused)
        for reader in history.readers:
            deliveries = list(reader.deliveries())
            result.delivered += len(deliveries)
            result.repeats += len(deliveries) - len({event.sequence for event in deliveries})
    result.findings += load.violations() + load.unexplained_repeats()


def main() -> int:
    """Run, print, tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of faults in each run")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--shape", choices=["one nats", "routes", "network"], help="by default in turn")
    parser.add_argument(
        "--faults", type=lambda text: text.split(","), default=[], help="by default all that can happen"
    )
    options = parser.parse_args()
    shapes = [options.shape] if options.shape else ["one nats", "routes", *([] if why_not() else ["network"])]
    bad = 0
    for seed in range(options.seed, options.seed + options.runs):
        directory = Path(tempfile.mkdtemp(prefix="stan-chaos-"))
        shape = shapes[seed % len(shapes)]
        result = asyncio.run(run(directory, seed, options.seconds, shape, options.faults))
        print(f"seed {seed}, {result.line()}", flush=True)
        if result.findings:
            bad += 1
            print(*result.findings, f"logs: {directory}", sep="\n", flush=True)
        else:
            shutil.rmtree(directory)
    print(f"{options.runs} runs, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
