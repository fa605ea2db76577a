"""The results of `stan bench --compare`: the runs of two servers in pairs, their medians and ratios, as lines and as JSON.

Pure. A rate of a server is the median of its rounds; latencies are of all publishes of all its rounds. A ratio is server A's
rate as a share of server B's: above 1, A is the faster one. The spread of the pairs' ratios shows how far to trust that of the
medians, as the two runs of a round met the same state of the machine.
"""

from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from stan_protocol.units import counted

from stan_bench.bench.bench_report import BenchReport, Measurement, combined, human_bytes, latencies_ms

TITLES: Final = {"Pub": "publishers", "Sub": "subscribers"}

RUN_SECONDS_MIN: Final = 0.1
"""A shorter run is reported: a subscriber whose messages all come in one read has no duration at all."""


@dataclass(slots=True, kw_only=True)
class ComparedServer:
    """A server, and its runs in the order of the rounds."""

    letter: str  # "A": ours, "B": the other
    url: str  # without credentials
    title: str = ""  # a name for people, beside the URL
    facts: dict[str, Any] = field(default_factory=dict)  # more about it, for the JSON
    kept: bool = True  # False: it was started for the comparison, and is removed with its channels
    holders: str = "channel"  # what holds the messages of a run: a channel, or a stream
    channels: list[str] = field(default_factory=list)  # those of the runs that are still there, by name
    runs: list[BenchReport] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.title} at {self.url}" if self.title else self.url

    def samples(self, title: str) -> list[Measurement]:
        """The publishers ("Pub") or subscribers ("Sub") of each run as one; empty if there are none."""
        groups = [getattr(run, TITLES[title]) for run in self.runs]
        return [combined(title, samples) for samples in groups if samples]

    def left_behind(self) -> str:
        """Return a sentence about the channels or streams that stay at the server; "" if none do."""
        if not self.kept or not self.channels:
            return ""
        names = self.channels[0] if len(self.channels) == 1 else f"{self.channels[0]} to {self.channels[-1]}"
        return f"Left behind at {self.url}: {counted(len(self.channels), self.holders)}, {names}"

    def remarks(self) -> list[str]:
        """Return remarks on runs that were too short, and on repeated or unordered messages of its subscribers."""
        subscribers = self.samples("Sub")
        redelivered = sum(sample.redelivered for sample in subscribers)
        remarks = []
        if any(sample.seconds < RUN_SECONDS_MIN for title in TITLES for sample in self.samples(title)):
            remarks.append(f"{self.letter}: less than {RUN_SECONDS_MIN:g} s in some runs; measure more messages (-n)")
        if redelivered:
            remarks.append(f"{self.letter}: {redelivered:,} msgs redelivered")
        if any(sample.out_of_order for sample in subscribers):
            remarks.append(f"{self.letter}: out of order, some sequences did not go up")
        return remarks


@dataclass(frozen=True, slots=True)
class Ratios:
    """The ratios of server A's rates to server B's."""

    of_medians: float
    of_pairs: list[float]  # one for each round

    @classmethod
    def of(cls, ours: list[Measurement], theirs: list[Measurement]) -> "Ratios":
        """Return the ratios of the rounds of both, equally many, at least one."""
        pairs = [own.rate / their.rate for own, their in zip(ours, theirs, strict=True)]
        return cls(_median_rate(ours) / _median_rate(theirs), pairs)

    def __str__(self) -> str:
        return f"{self.of_medians:.2f} (rounds {min(self.of_pairs):.2f} to {max(self.of_pairs):.2f})"

    def to_json(self) -> dict[str, float]:
        """Four significant digits."""
        numbers = {"of_medians": self.of_medians, "min": min(self.of_pairs), "max": max(self.of_pairs)}
        return {name: float(f"{number:.4g}") for name, number in numbers.items()}


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """Both servers; `lines` and `to_json` need at least one whole round."""

    ours: ComparedServer
    other: ComparedServer

    def round_line(self) -> str:
        """The rates of the last round and their ratios."""
        rates = []
        for title in TITLES:
            ours, others = self.ours.samples(title), self.other.samples(title)
            if ours and others:
                one, other = ours[-1].rate, others[-1].rate
                rates.append(f"{title} A {one:,.0f} | B {other:,.0f} msgs/sec | A/B {one / other:.2f}")
        return f" [{len(self.ours.runs)}] {', '.join(rates)}"

    def lines(self) -> list[str]:
        """Return lines for the terminal, after those of the rounds."""
        lines = []
        for title, ratios in self.ratios().items():
            lines += [f"{title} {one.letter}: {_summary(one.samples(title))}" for one in (self.ours, self.other)]
            lines.append(f"{title} A/B: {ratios}")
        return lines + self.ours.remarks() + self.other.remarks() + self.left_behind()

    def left_behind(self) -> list[str]:
        """Return the channels to remove, a line for each server that keeps some."""
        return [line for server in (self.ours, self.other) if (line := server.left_behind())]

    def ratios(self) -> dict[str, Ratios]:
        """Return the ratios of the publishers ("Pub") and the subscribers ("Sub"), if there are some."""
        groups = {title: (self.ours.samples(title), self.other.samples(title)) for title in TITLES}
        return {title: Ratios.of(*samples) for title, samples in groups.items() if all(samples)}

    def to_json(self) -> dict[str, Any]:
        """Return everything as numbers: rates in messages a second, latencies in milliseconds; servers as "a" and "b"."""
        servers = {"a": self.ours, "b": self.other}
        shown: dict[str, Any] = {"servers": {name: {"url": one.url, **one.facts} for name, one in servers.items()}}
        for title, ratios in self.ratios().items():
            medians = {name: _numbers(one.samples(title)) for name, one in servers.items()}
            shown[TITLES[title]] = {**medians, "ratio": ratios.to_json()}
        shown["rounds"] = [
            {"a": ours.to_json(), "b": other.to_json()}
            for ours, other in zip(self.ours.runs, self.other.runs, strict=True)
        ]
        shown["left_behind"] = {name: one.channels if one.kept else [] for name, one in servers.items()}
        return shown


def _median_rate(samples: list[Measurement]) -> float:
    return median(sample.rate for sample in samples)


def _summary(samples: list[Measurement]) -> str:
    rate = _median_rate(samples)
    text = f"median {rate:,.0f} msgs/sec ~ {human_bytes(rate * samples[0].size)}/sec"
    if latencies := combined("all", samples).latencies:
        shown = latencies_ms(latencies, (0.5, 0.99))
        text += "".join(f" | {name} {value:.2f} ms" for name, value in shown.items())
    return text


def _numbers(samples: list[Measurement]) -> dict[str, Any]:
    shown: dict[str, Any] = {"msgs_per_s": round(_median_rate(samples), 1)}
    if latencies := combined("all", samples).latencies:
        shown["latency_ms"] = latencies_ms(latencies)
    return shown
