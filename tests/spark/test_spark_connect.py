"""Source, sink and foreach_batch through Spark Connect, whose sessions know no SparkContext."""

from collections import Counter

import pyspark_stan
import pytest

from tests.spark.filling import fill


@pytest.fixture
def counted(connect, broker, channel):
    """A stream that counts the values of the test's channel."""
    reader = connect.readStream.format("stan").options(servers=broker.url, startingOffsets="earliest")
    return reader.load(channel).groupBy("value").count().selectExpr("concat(value, count) AS value")


def finish(frame, write, checkpoint):
    """Run a stream in update mode for what there is now."""
    writer = frame.writeStream.outputMode("update").foreachBatch(write).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def values(client, channel):
    info = client.info([channel]).get(channel)
    answers = client.read_range(channel, 1, info.last) if info and info.last else ()
    return sorted(message.data for answer in answers for message in answer.messages())


def test_update_mode_writes_what_has_changed_once(client, counted, broker, channel, tmp_path):
    target = f"{channel}.out"
    write = pyspark_stan.foreach_batch(servers=broker.url, channel=target, txnAppId=target)
    fill(client, channel, [b"a", b"a", b"b"])
    finish(counted, write, tmp_path / "1")
    fill(client, channel, [b"b", b"c"])
    finish(counted, write, tmp_path / "1")
    next((tmp_path / "1" / "commits").glob("1")).unlink()  # as after a crash before Spark has noted the batch
    (tmp_path / "1" / "commits" / ".1.crc").unlink(missing_ok=True)
    fill(client, channel, [b"c"])
    finish(counted, write, tmp_path / "1")
    assert values(client, target) == [b"a2", b"b1", b"b2", b"c1", b"c2"]

    with pytest.raises(Exception, match=f"batch 0 of '{target}' is another one than its batch 2"):
        finish(counted, write, tmp_path / "2")
    assert len(values(client, target)) == 5


def test_a_first_batch_under_the_name_of_another_query_is_refused_and_a_repeated_one_is_not(
    client, counted, broker, channel, tmp_path
):
    target = f"{channel}.out"
    write = pyspark_stan.foreach_batch(servers=broker.url, channel=target, txnAppId=target)
    fill(client, channel, [b"a", b"a", b"b"])
    for _ in range(2):
        finish(counted, write, tmp_path / "1")
        for file in (tmp_path / "1" / "commits").glob("*0*"):
            file.unlink()  # as after a crash before Spark has noted the batch
    assert values(client, target) == [b"a2", b"b1"]
    fill(client, channel, [b"b"])
    with pytest.raises(Exception, match="Then give it a txnAppId of its own"):
        finish(counted, write, tmp_path / "2")
    assert values(client, target) == [b"a2", b"b1"]


def test_without_a_name_a_batch_is_refused_unless_it_may_come_twice(client, counted, broker, channel, tmp_path):
    options = {"servers": broker.url, "channel": f"{channel}.out"}
    fill(client, channel, [b"a", b"a"])
    with pytest.raises(Exception, match="txnAppId: needed on Spark Connect"):
        finish(counted, pyspark_stan.foreach_batch(options), tmp_path / "1")
    finish(counted, pyspark_stan.foreach_batch(options, delivery="at-least-once"), tmp_path / "2")
    assert values(client, options["channel"]) == [b"a2"]


def test_source_and_sink_need_nothing_more(client, connect, broker, channel, tmp_path):
    fill(client, channel, [b"%d" % number for number in range(100)])
    stream = connect.readStream.format("stan").options(servers=broker.url, startingOffsets="earliest").load(channel)
    writer = stream.writeStream.format("stan").options(servers=broker.url, checkpointLocation=str(tmp_path))
    query = writer.trigger(availableNow=True).start(f"{channel}.out")
    query.awaitTermination()
    assert pyspark_stan.lag(query.lastProgress) == {channel: 0}
    rows = connect.read.format("stan").option("servers", broker.url).load(f"{channel}.out").collect()
    assert Counter(row.value for row in rows) == Counter(b"%d" % number for number in range(100))
