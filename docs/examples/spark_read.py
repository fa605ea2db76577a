"""Read a channel with Spark, in one batch.

It prints:

    1 a pot
    2 two cups
"""

import os

import pyspark_stan
from pyspark.sql import SparkSession
from stan_client import encode_rows
from stan_client.blocking import BlockingClient

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")

with BlockingClient(SERVERS) as client:  # something to read
    client.publish_batch("ex.spark.in", encode_rows([b"a pot", b"two cups"]), 2)

pyspark_stan.ensure_java()
spark = SparkSession.builder.master("local[2]").getOrCreate()
orders = spark.read.format("stan").option("servers", SERVERS).load("ex.spark.in")
for row in orders.selectExpr("sequence", "cast(value as string) as text").orderBy("sequence").collect():
    print(row.sequence, row.text)
spark.stop()
