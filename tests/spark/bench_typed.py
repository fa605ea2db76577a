"""What odd messages cost a typed read of JSON, without Spark or a broker.

`python -m tests.spark.bench_typed [--rows N] [--every N] [--repeats N]`: answers of so many messages, of which one in so many is
odd, are decoded in turns with answers that have none. Prints the CPU time of each kind as multiples of theirs, medians of
the repeats: of the first answer with such messages, and of the next ones.
"""

import argparse
import json
import statistics
import time

from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructField, StructType, TimestampType
from pyspark_stan.options import source_options
from pyspark_stan.payloads.schema import PayloadSchema
from pyspark_stan.reading.registry import Registered
from pyspark_stan.reading.typed_decode import TypedDecoder

from tests.spark.source_broker import SourceBroker

SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "total": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "text": {"type": "string"},
    }
}
KINDS = {
    "id": LongType(),
    "total": DoubleType(),
    "at": TimestampType(),
    "text": StringType(),
    "_malformed": BinaryType(),
}
GOOD = '{"id": %d, "total": %d.5, "at": "2026-03-01T12:00:00.25Z", "text": "some words about number %d of it"}'
ODD = {
    "tombstone": "",
    "cut off": '{"id": %d, "total": 2.5, "at": "2026-03-01T12:0',
    "no JSON": '{"id": %d, "total" 2.5, "at": "2026-03-01T12:00:00Z", "text": "some words about number"}',
    "a comma too many": '{"id": %d, "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": "some words",}',
    "no JSON, nested": '{"id": %d, "more": {"a": [1, {"b": [{"c": nul}]}]}, "total": 2.5}',
    "two objects": '{"id": %d}{"id": 1, "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": "some words"}',
    "a field twice": '{"id": %d, "id": 1, "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": "some words"}',
    "fraction for an integer": '{"id": %d.5, "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": "some words"}',
    "too large an integer": '{"id": 99999999999999999%d, "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": "some words"}',
    "text for an integer": '{"id": "%d", "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": "some words"}',
    "number for a text": '{"id": %d, "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": 5}',
    "NaN": '{"id": %d, "total": NaN, "at": "2026-03-01T12:00:00Z", "text": "some words"}',
    "time without a zone": '{"id": %d, "total": 2.5, "at": "2026-03-01T12:00:00", "text": "some words"}',
    "no time": '{"id": %d, "total": 2.5, "at": "soon", "text": "some words"}',
    "impossible date": '{"id": %d, "total": 2.5, "at": "2026-02-31T12:00:00Z", "text": "some words"}',
    "impossible hour": '{"id": %d, "total": 2.5, "at": "2026-02-21T25:00:00Z", "text": "some words"}',
    "no UTF-8": '{"id": %d, "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": "\udcff"}',
    "half a surrogate": '{"id": %d, "total": 2.5, "at": "2026-03-01T12:00:00Z", "text": "\\ud800"}',
}
ODD["each in turn"] = ""


def answer(kind, rows, every):
    """An answer with odd messages of a kind."""
    channel = SourceBroker(orders=[])
    channel.answer_rows = rows
    texts = [text for name, text in ODD.items() if kind in ("each in turn", name)]
    for number in range(rows):
        odd = kind and number % every == every // 2
        text = texts[number // every % len(texts)] if odd else GOOD.replace("%d", str(number))
        channel["orders"].add(text.replace("%d", str(number)).encode("utf-8", "surrogateescape"))
    (found,) = channel.read_range("orders", 1, rows)
    return found


def figures(rows, every, repeats):
    """CPU time of each kind, as multiples of that of clean answers."""
    schema = StructType([StructField(name, kind) for name, kind in KINDS.items()])
    options = source_options({"servers": "nats://a:1", "subscribe": "orders", "schema": "auto", "malformed": "keep"})
    registered = Registered("orders", {1: PayloadSchema("json", json.dumps(SCHEMA).encode(), "")})
    decoder = TypedDecoder(schema, [registered], options)
    clean = answer("", rows, every)
    answers = {kind: answer(kind, rows, every) for kind in ODD}
    spent = {kind: [] for kind in answers}
    for _ in range(repeats):
        for kind, found in answers.items():
            decoder.batch(clean)  # what it has learned from the kind before is forgotten
            once, *others = [cpu_time(decoder, each) for each in (clean, found, found, found, clean)]
            usual = min(once, others.pop())
            spent[kind].append((others[0] / usual, min(others[1:]) / usual))
    return {
        kind: [round(statistics.median(part), 2) for part in zip(*each, strict=True)] for kind, each in spent.items()
    }


def cpu_time(decoder, found):
    """Seconds that an answer takes."""
    begin = time.process_time()
    decoder.batch(found)
    return time.process_time() - begin


def main():
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=31)
    said = parser.parse_args()
    for kind, (first, later) in figures(said.rows, said.every, said.repeats).items():
        print(f"{kind:26} {first:6} {later:6}")


if __name__ == "__main__":
    main()
