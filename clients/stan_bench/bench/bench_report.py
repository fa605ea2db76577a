"""The figures of a benchmark, and their presentation: report lines in the form of stan-bench, percentiles, JSON and CSV.

Pure. Rates count from the first to the last message of a sample; a group's from the earliest begin to the latest end of its
samples. Sizes are payload bytes, 1 MB = 1024 * 1024 as stan-bench has it.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

UNITS: Final = ("B", "KB", "MB", "GB", "TB")

LATENCY_BITS: Final = 7
"""Significant bits of a recorded latency: 1.6 % of error, and a few thousand different values at most."""

Latencies = dict[int, int]
"""Latency in ns, rounded down to LATENCY_BITS bits -> how many messages had it."""


def add_latency(latencies: Latencies, nanos: int, messages: int) -> None:
    """Count *messages* that took *nanos*."""
    shift = max(0, nanos.bit_length() - LATENCY_BITS)
    key = nanos >> shift << shift
    latencies[key] = latencies.get(key, 0) + messages


def percentile(latencies: Latencies, share: float) -> int:
    """The latency in ns that *share* (0..1) of the messages did not exceed; 0 when there are none."""
    rank = math.ceil(share * sum(latencies.values()))
    seen = 0
    for nanos in sorted(latencies):
        seen += latencies[nanos]
        if seen >= rank:
            return nanos
    return 0


def latencies_ms(latencies: Latencies, shares: tuple[float, ...] = (0.5, 0.9, 0.99, 0.999)) -> dict[str, float]:
    """Percentiles in milliseconds by name: "p50" is the latency that a share of 0.5 did not exceed."""
    return {f"p{share * 100:g}": round(percentile(latencies, share) / 1e6, 4) for share in shares}


@dataclass(slots=True, kw_only=True)
class Measurement:
    """The measurement of one publisher or subscriber."""

    name: str
    messages: int
    size: int  # payload bytes of one message
    began_ns: int  # monotonic, the same clock in all processes of a machine
    ended_ns: int
    redelivered: int = 0
    out_of_order: bool = False
    latencies: Latencies = field(default_factory=dict)  # publishes only

    @property
    def seconds(self) -> float:
        """Duration; never 0."""
        return max(self.ended_ns - self.began_ns, 1) / 1e9

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Encode for another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Measurement":
        """Back again; JSON has made text of the keys of `latencies`."""
        latencies = {int(nanos): count for nanos, count in data.pop("latencies").items()}
        return cls(**data, latencies=latencies)


def combined(name: str, samples: list[Measurement]) -> Measurement:
    """All samples as one; *samples* is not empty."""
    latencies: Latencies = {}
    for sample in samples:
        for nanos, count in sample.latencies.items():
            latencies[nanos] = latencies.get(nanos, 0) + count
    return Measurement(
        name=name,
        messages=sum(sample.messages for sample in samples),
        size=samples[0].size,
        began_ns=min(sample.began_ns for sample in samples),
        ended_ns=max(sample.ended_ns for sample in samples),
        redelivered=sum(sample.redelivered for sample in samples),
        out_of_order=any(sample.out_of_order for sample in samples),
        latencies=latencies,
    )


def human_bytes(count: float) -> str:
    """12.34 MB, as stan-bench writes it."""
    power = 0
    while count >= 1024 and power < len(UNITS) - 1:
        count /= 1024
        power += 1
    return f"{count:.2f} {UNITS[power]}"


def speed(sample: Measurement) -> str:
    """169,000 msgs/sec ~ 20.63 MB/sec."""
    return f"{sample.rate:,.0f} msgs/sec ~ {human_bytes(sample.rate * sample.size)}/sec"


def spread(samples: list[Measurement]) -> str:
    """Minimum, average, maximum and standard deviation of the rates of a group."""
    rates = [sample.rate for sample in samples]
    average = sum(rates) / len(rates)
    deviation = math.sqrt(sum((rate - average) ** 2 for rate in rates) / len(rates))
    return f"min {min(rates):,.0f} | avg {average:,.0f} | max {max(rates):,.0f} | stddev {deviation:,.0f} msgs"


@dataclass(slots=True, kw_only=True)
class BenchReport:
    """All of one run; `raw` are the samples of nats-server alone."""

    name: str = "NATS Streaming"
    publishers: list[Measurement] = field(default_factory=list)
    subscribers: list[Measurement] = field(default_factory=list)
    raw: list[Measurement] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=dict)  # seconds of each server that was started for it
    leader: str = ""  # the one of `cpu` that leads the channel

    @property
    def leader_us_per_delivery(self) -> float:
        """CPU time of the channel's leader for each message that a subscriber got, in us; 0: not known."""
        delivered = sum(sample.messages for sample in self.subscribers)
        return round(self.cpu.get(self.leader, 0) / delivered * 1e6, 3) if delivered else 0.0

    def lines(self) -> list[str]:
        """Return lines in the form of stan-bench, then latencies, oddities and the comparison with NATS."""
        lines = []
        indent = ""
        name = f"{self.name} "
        if self.publishers and self.subscribers:
            lines.append(f"{name}Pub/Sub stats: {speed(combined('all', self.publishers + self.subscribers))}")
            indent, name = " ", ""
        for title, samples in (("Pub", self.publishers), ("Sub", self.subscribers)):
            if samples:
                lines.append(f"{indent}{name}{title} stats: {speed(combined(title, samples))}")
                if len(samples) > 1:
                    lines += [
                        f"{indent} [{number}] {speed(sample)} ({sample.messages} msgs)"
                        for number, sample in enumerate(samples, 1)
                    ]
                    lines.append(f"{indent} {spread(samples)}")
        return lines + self._remarks(indent)

    def _remarks(self, indent: str) -> list[str]:
        lines = []
        if self.publishers and (latencies := combined("Pub", self.publishers).latencies):
            shown = latencies_ms(latencies, (0.5, 0.99))
            lines.append(
                f"{indent}Pub latency: " + " | ".join(f"{name} {value:.2f} ms" for name, value in shown.items())
            )
        if self.subscribers:
            subscribers = combined("Sub", self.subscribers)
            if subscribers.redelivered:
                lines.append(f"{indent}Redelivered: {subscribers.redelivered:,} msgs")
            if subscribers.out_of_order:
                lines.append(f"{indent}Out of order: some sequences did not go up")
        if self.cpu:
            lines.append(
                "CPU of servers: " + " | ".join(f"{name} {spent:.2f} s" for name, spent in sorted(self.cpu.items()))
            )
        if self.leader_us_per_delivery:
            lines.append(f"Leader {self.leader}: {self.leader_us_per_delivery:.2f} us of CPU per delivery")
        if self.raw:
            raw = combined("raw", self.raw)
            lines.append(f"Raw NATS pub->sub: {speed(raw)}")
            lines += [f"{title} / raw NATS: {ratio:.2f}" for title, ratio in self.ratios().items()]
        return lines

    def ratios(self) -> dict[str, float]:
        """Return the rates of publishers and subscribers as shares of nats-server's own; empty without `raw`."""
        if not self.raw:
            return {}
        raw = combined("raw", self.raw).rate
        groups = {"Pub": self.publishers, "Sub": self.subscribers}
        return {title: combined(title, samples).rate / raw for title, samples in groups.items() if samples}

    def to_json(self) -> dict[str, Any]:
        """Return everything as numbers: rates in messages and bytes a second, times in seconds and milliseconds."""
        groups = {"publishers": self.publishers, "subscribers": self.subscribers, "raw": self.raw}
        shown: dict[str, Any] = {title: _group(samples) for title, samples in groups.items() if samples}
        if self.publishers and self.subscribers:
            shown["total"] = _numbers(combined("all", self.publishers + self.subscribers))
        if self.cpu:
            shown["cpu_s"], shown["leader"] = self.cpu, self.leader
            shown["leader_us_per_delivery"] = self.leader_us_per_delivery
        if self.raw:
            shown["ratio_to_raw"] = {title: round(ratio, 4) for title, ratio in self.ratios().items()}
        return shown

    def csv_rows(self, run_id: str) -> list[list[str]]:
        """Header and one row per client, with the columns of stan-bench."""
        rows = [["#RunID", "ClientID", "MsgCount", "MsgBytes", "MsgsPerSec", "BytesPerSec", "DurationSecs"]]
        for sample in self.publishers + self.subscribers:
            size = sample.messages * sample.size
            row = [run_id, sample.name, sample.messages, size, int(sample.rate), f"{size / sample.seconds:f}"]
            rows.append([*map(str, row), f"{sample.seconds:f}"])
        return rows


def _numbers(sample: Measurement) -> dict[str, Any]:
    return {
        "messages": sample.messages,
        "seconds": round(sample.seconds, 6),
        "msgs_per_s": round(sample.rate, 1),
        "bytes_per_s": round(sample.rate * sample.size, 1),
    }


def _group(samples: list[Measurement]) -> dict[str, Any]:
    whole = combined("all", samples)
    shown = _numbers(whole)
    if whole.latencies:
        shown["latency_ms"] = latencies_ms(whole.latencies)
    shown["redelivered"] = whole.redelivered
    shown["in_order"] = not whole.out_of_order
    shown["clients"] = [{"name": sample.name, **_numbers(sample)} for sample in samples]
    return shown
