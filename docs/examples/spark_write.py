"""Count with Spark as messages come, and write each result once.

The checkpoint has the query's place, the commit of the sink its results; whatever dies, each result is there once. The query
ends at the end of the channel; without its trigger it goes on. It prints:

    {"shop":"north","orders":2}
    {"shop":"south","orders":1}
"""

import os
import tempfile

import pyspark_stan
from pyspark.sql import SparkSession
from stan_client import NewMessage, encode_rows
from stan_client.blocking import BlockingClient

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")

with BlockingClient(SERVERS) as client:  # something to count
    orders = [NewMessage(b"a pot", key="north"), NewMessage(b"a cup", key="south"), NewMessage(b"a jug", key="north")]
    client.publish_batch("ex.spark.orders", encode_rows(orders), len(orders))

pyspark_stan.ensure_java()
spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
stream = spark.readStream.format("stan").option("servers", SERVERS).option("startingOffsets", "earliest")
shops = stream.option("includeKey", "true").load("ex.spark.orders").selectExpr("cast(key as string) as shop")
counts = shops.groupBy("shop").count().selectExpr("to_json(struct(shop, count as orders)) as value")
with tempfile.TemporaryDirectory() as checkpoint:  # a real query keeps it
    sink = counts.writeStream.format("stan").option("servers", SERVERS).option("checkpointLocation", checkpoint)
    sink.outputMode("complete").trigger(availableNow=True).start("ex.spark.counts").awaitTermination()
spark.stop()

with BlockingClient(SERVERS) as client:
    last = client.info(["ex.spark.counts"])["ex.spark.counts"].last
    print(
        *sorted(m.data.decode() for batch in client.read_range("ex.spark.counts", 1, last) for m in batch.messages()),
        sep="\n",
    )
