"""Reads the changelog of the pipeline `orders` as a table, and shows how many orders are in which state.

`python -m pyspark_stan.examples.orders_table [NATS URL]`
"""

import sys

from pyspark_stan.examples.orders import COLUMNS, TABLE
from pyspark_stan.pipeline.session import QUIET, spark_session
from pyspark_stan.pipeline.table import read_table


def main(servers: str = "nats://127.0.0.1:4222") -> None:
    """Print the table's summary."""
    with spark_session({**QUIET, "spark.master": "local[*]", "spark.app.name": "orders-table"}) as spark:
        table = read_table(spark, COLUMNS, "order_id", servers=servers, subscribe=TABLE)
        table.groupBy("status").count().orderBy("status").show()


if __name__ == "__main__":
    main(*sys.argv[1:])
