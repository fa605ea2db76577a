"""A driver that reads a channel with its lake on request, as a process that may be killed: `lake_driver.py URL LAKE CHANNEL`.

For each line on stdin it makes a new batch reader, plans, and does all tasks one by one; then it prints one line of JSON: how
many messages came, whether they were in order without a gap from 1 on, each with what was published as it, and how many the lake
had.
"""

import json
import sys

import pyarrow as pa
from pyspark_stan.datasource import StanDataSource
from pyspark_stan.reading import cold


def read(url, lake, channel):
    options = {"servers": url, "subscribe": channel, "cold": lake, "fetch.numretries": "100"}
    source = StanDataSource({key.lower(): value for key, value in options.items()})
    reader = source.reader(source.schema())
    count, right = 0, True
    for part in reader.partitions():
        for batch in reader.read(part):
            expected = pa.array(range(count + 1, count + batch.num_rows + 1), pa.int64())
            right &= batch.column("sequence").equals(expected)
            right &= batch.column("value").cast(pa.string()).equals(expected.cast(pa.string()))
            count += batch.num_rows
    (known,) = cold._manifests.values()
    return {
        "count": count,
        "right": right,
        "cold": known.manifest.next - 1,
    }


def main():
    for _line in sys.stdin:
        print(json.dumps(read(*sys.argv[1:])), flush=True)


if __name__ == "__main__":
    main()
