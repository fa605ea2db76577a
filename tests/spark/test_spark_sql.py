"""Channels in SQL: tables, views over them, and what Spark does not pass on."""
# ruff: noqa: S608 - the texts are those of this file

import pytest
from pyspark.errors import PySparkException
from stan_client.blocking import BlockingClient

from tests.spark.filling import fill


@pytest.fixture
def given(broker, channel):
    """The options of a read of a channel with three messages, as SQL has them."""
    with BlockingClient(broker.url) as client:
        fill(client, channel, [b"one", b"two", b"three"])
    return f"servers = '{broker.url}', subscribe = '{channel}'"


@pytest.fixture
def named(spark, channel):
    """The beginning of names of tables and views, all of which are dropped in the end."""
    begin = channel.replace(".", "_")
    yield begin
    for each in spark.catalog.listTables():
        if each.name.startswith(begin):
            spark.sql(f"DROP {'VIEW' if each.tableType == 'VIEW' else 'TABLE'} {each.name}")


def texts(frame):
    return sorted(row[0] for row in frame.selectExpr("cast(value AS string)").collect())


ALL = ["one", "three", "two"]


def test_a_table_has_the_columns_of_its_options_and_is_read_with_them(spark, given, named):
    spark.sql(f"CREATE TABLE {named} USING stan OPTIONS ({given}, includeKey = 'true') COMMENT 'orders'")
    assert spark.table(named).columns == ["channel", "sequence", "timestamp", "value", "reply", "key"]
    assert texts(spark.sql(f"SELECT * FROM {named} WITH ({given}, includeKey = 'true')")) == ALL

    with pytest.raises(PySparkException, match="no options at all: Spark passes those of CREATE TABLE on to no query"):
        spark.table(named).collect()


def test_a_view_over_a_table_keeps_the_options(spark, given, named):
    spark.sql(f"CREATE TABLE {named} (value binary, sequence bigint) USING stan")
    spark.sql(f"CREATE VIEW {named}_view AS SELECT * FROM {named} WITH ({given})")
    assert texts(spark.table(f"{named}_view")) == ALL
    assert spark.sql(f"SELECT max(sequence) FROM {named}_view").first()[0] == 3


def test_a_temporary_view_needs_no_table(spark, given, named):
    spark.sql(f"CREATE TEMPORARY VIEW {named} USING stan OPTIONS ({given})")
    assert texts(spark.table(named)) == ALL


def test_insert_names_the_work(spark, given, named, broker, channel):
    spark.sql(f"CREATE TABLE {named} (value binary) USING stan")
    options = f"servers = '{broker.url}', channel = '{channel}.out', txnAppId = '{channel}', txnVersion = '1'"
    for _ in range(2):  # the second time it is a repetition
        spark.sql(f"INSERT INTO {named} WITH ({options}) SELECT value FROM {named} WITH ({given})")
    assert (
        texts(spark.sql(f"SELECT * FROM {named} WITH (servers = '{broker.url}', subscribe = '{channel}.out')")) == ALL
    )


def test_a_stream_in_sql(spark, given, named, tmp_path):
    spark.sql(f"CREATE TABLE {named} USING stan OPTIONS ({given})")
    stream = spark.sql(f"SELECT value FROM STREAM {named} WITH ({given}, startingOffsets = 'earliest')")
    query = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).format("memory")
    query.queryName(f"{named}_seen").start().awaitTermination()
    assert texts(spark.table(f"{named}_seen")) == ALL


def test_mistakes_are_told_when_the_table_is_made(spark, given, named):
    with pytest.raises(PySparkException) as caught:
        spark.sql(f"CREATE TABLE {named} USING stan OPTIONS ({given}, minPartitons = '2')")
    told = str(caught.value)
    assert "minpartitons: no such option; minPartitions?" in told.lower().replace("minpartitions", "minPartitions")
    assert "option." not in told
    assert "owner" not in told
