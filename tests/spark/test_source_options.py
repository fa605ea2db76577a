"""Options: what each one gives, and that all mistakes are told at once with the option's name."""

import pickle

import pytest
from pyspark_stan.errors import OptionsError
from pyspark_stan.options import EARLIEST, LATEST, ConnectionOptions, OptionReader, source_options

SERVERS = {"servers": "nats://a:1"}


def complaints_of(kind="any", **options):
    with pytest.raises(OptionsError) as caught:
        source_options({**SERVERS, **options}, kind)
    return caught.value.complaints


def read(kind="any", **options):
    return source_options({**SERVERS, "subscribe": "orders", **options}, kind)


def test_defaults():
    found = read()
    assert found.channels == ("orders",)
    assert found.connection == ConnectionOptions(("nats://a:1",))
    assert found.fail_on_data_loss
    assert not found.headers
    assert not found.from_replica


def test_keys_in_any_case_as_spark_hands_them_over():
    found = source_options({"SERVERS": "nats://a:1", "subscribe": "o", "maxoffsetspertrigger": "7", "CLUSTERID": "c"})
    assert found.rows_per_trigger == 7
    assert found.connection.cluster_id == "c"


@pytest.mark.parametrize("key", ["subscribe", "path"])
def test_channels_by_name_in_order(key):
    assert source_options({**SERVERS, key: "b, a,b"}).channels == ("a", "b")


def test_where_a_read_starts_by_default():
    assert read("batch").start.default == EARLIEST
    assert read("stream").start.default == LATEST


def test_every_mistake_is_told_at_once_with_its_option():
    with pytest.raises(OptionsError) as caught:
        source_options(
            {
                "subscribe": "a",
                "assign": '{"a": 1}',
                "maxOffsetsPerTrigger": "many",
                "failOnDataLoss": "maybe",
                "startingOffsets": "soon",
                "minPartitons": "2",
                "fetchBytes": "1",
                "user": "me",
            }
        )
    names = [text.split(":")[0] for text in caught.value.complaints]
    assert names == [
        "servers",
        "user and password",
        "subscribe, subscribePattern, assign or load(path)",
        "startingOffsets",
        "startingOffsets",
        "maxOffsetsPerTrigger",
        "failOnDataLoss",
        "fetchBytes",
        "minpartitons",
    ]
    assert "minPartitions?" in caught.value.complaints[-1]
    assert all(text in str(caught.value) for text in caught.value.complaints)


def test_an_error_survives_the_way_to_the_driver():
    error = OptionsError(["a: wrong", "b: wrong"])
    assert pickle.loads(pickle.dumps(error)).complaints == error.complaints  # noqa: S301 - its own


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "subscribe, subscribePattern"),
        ({"subscribe": ""}, "subscribe"),
        ({"subscribe": "a.b*"}, "subscribe"),
        ({"subscribe": "a..b"}, "subscribe"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"subscribe": "a", "path": "b"}, "subscribe, subscribePattern"),
        ({"assign": "[1]"}, "assign"),
        ({"assign": '{"a": [1]}'}, "assign"),
        ({"assign": '{"a": [9, 3]}'}, "assign"),
        ({"assign": '{"a": 1}', "startingOffsets": "earliest"}, "startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"b": 1}'}, "startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": 1.5}'}, "startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": -3}'}, "startingOffsets"),
        ({"subscribe": "a", "startingOffsets": '{"a": 9223372036854775808}'}, "startingOffsets"),
        ({"subscribe": "a", "startingOffsets": "earliest", "startingTimestamp": "1"}, "startingOffsets and"),
        ({"subscribe": "a", "startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "guess"}, "startingOffsetsByTimestampStrategy"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "endingOffsets"),
        (
            {"subscribe": "a", "startingOffsets": '{"a": 5}', "endingOffsets": '{"a": 3}'},
            "endingOffsets: 'a' ends at 3",
        ),
        ({"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "minOffsetsPerTrigger"),
        ({"subscribe": "a", "maxTriggerDelay": "1m"}, "maxTriggerDelay"),
        ({"subscribe": "a", "maxTriggerDelay": "soon", "minOffsetsPerTrigger": "9"}, "maxTriggerDelay"),
        ({"subscribe": "a", "user": "u", "password": "p", "token": "t"}, "user, token, creds and nkey"),
        ({"subscribe": "a", "tls.cert": "file"}, "tls.cert and tls.key"),
        ({"subscribe": "a", "stan.ping_interval": "often"}, "stan.ping_interval"),
        ({"subscribe": "a", "stan.no_such": "x"}, "stan.no_such"),
    ],
)
def test_what_is_refused(options, name):
    found = complaints_of(**options)
    assert any(text.startswith(name) for text in found), found


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        ("stream", {"endingOffsets": "latest"}, "endingOffsets"),
        ("stream", {"pushdown": "true"}, "pushdown"),
        ("batch", {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger"),
        ("batch", {"consumerName": "me"}, "consumerName"),
        ("batch", {"startingOffsets": "latest"}, "startingOffsets"),
        ("batch", {"startingOffsets": '{"a": -1}'}, "startingOffsets"),
    ],
)
def test_what_only_one_kind_of_read_takes(kind, options, name):
    assert complaints_of(kind, subscribe="a", **options)[0].startswith(name)
    if "startingOffsets" not in options:
        source_options({**SERVERS, "subscribe": "a", **options}, "stream" if kind == "batch" else "batch")


def test_a_stream_that_is_assigned_an_end_is_refused():
    assert complaints_of("stream", assign='{"a": [1, 9]}') == ["assign: a stream has no end"]


def test_assign():
    found = source_options({**SERVERS, "assign": '{"b": 7, "a": [-2, 9]}'}, "batch")
    assert found.channels == ("a", "b")
    assert found.start.sequences == {"a": EARLIEST, "b": 7}
    assert found.end.sequences == {"a": 9, "b": LATEST}


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1700000000123", 1700000000123_000_000),
        ("2023-11-14T22:13:20.123456", 1700000000123_456_000),
        ("2023-11-14T23:13:20+01:00", 1700000000_000_000_000),
        ("2023-11-14", 1699920000_000_000_000),
        ("1960-01-01", 1),
        ("9999-12-31", (1 << 63) - 1),
        ("99999999999999", (1 << 63) - 1),
    ],
)
def test_times(text, nanoseconds):
    assert read(startingTimestamp=text).start.time_ns == nanoseconds
    by_channel = read(startingOffsetsByTimestamp=f'{{"orders": "{text}"}}').start
    assert by_channel.times_ns == {"orders": nanoseconds}


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("1.5s", 1.5), ("15m", 900), ("2h", 7200), ("250", 0.25)]
)
def test_durations(text, seconds):
    assert read(minOffsetsPerTrigger="5", maxTriggerDelay=text).trigger_delay_s == seconds


def test_connection_settings():
    found = read(
        **{
            "servers": "nats://a:1, nats://b:2",
            "user": "me",
            "password": "secret",
            "tls.ca": "ca.pem",
            "tls.ciphers": "ECDHE+AESGCM",
            "tls.minVersion": "1.2",
            "stan.ping_interval": "7",
            "stan.tls_handshake_first": "true",
            "requestTimeoutMs": "1500",
        }
    ).connection
    assert found.servers == ("nats://a:1", "nats://b:2")
    assert dict(found.secrets) == {"user": "me", "password": "secret"}
    assert dict(found.nats) == {"ping_interval": 7, "tls_handshake_first": True}
    assert dict(found.tls) == {"tls_ca": "ca.pem", "tls_ciphers": "ECDHE+AESGCM", "tls_min_version": "1.2"}
    assert found.timeout_s == 1.5
    assert "secret" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - its own
    assert hash(found)


def test_logins_are_never_shown():
    of_file = read(nkey="/secrets/sesame.nk").connection
    assert dict(of_file.secrets) == {"nkeys_seed": "/secrets/sesame.nk"}
    login = {"user": "me", "password": "sesame"}
    for shown in (repr(of_file), repr(read(**login)), *complaints_of(subscribe="a", servers="nats://me:sesame@a:1")):
        assert "sesame" not in shown


def test_a_login_in_a_url_is_refused_for_spark_would_show_it():
    (told,) = complaints_of(subscribe="a", servers="nats://a:1,nats://me:sesame@b:1")
    assert told.startswith("servers: Spark's plans show a login in a URL; use user and password")


def test_versions_of_tls():
    (told,) = complaints_of(subscribe="a", **{"tls.minVersion": "1.1"})
    assert told == "tls.minVersion: '1.1' is not one of 1.2, 1.3"


def test_the_reader_takes_what_the_sink_asks_for():
    take = OptionReader({"path": "x", "checkpointLocation": "y", "queryName": "z", "OnError": "Fail"})
    assert take.choice("onError", ("fail", "skip"), "skip") == "fail"
    take.finish()


def test_what_the_catalog_adds_to_the_options_of_a_table_is_no_mistake():
    said = {**SERVERS, "subscribe": "orders"}
    of_catalog = {"provider": "stan", "owner": "me", "comment": "c", **{f"option.{key}": said[key] for key in said}}
    assert source_options({**said, **of_catalog}).channels == ("orders",)
    assert complaints_of(subscribe="orders", **{"option.minpartitons": "2"}) == [
        "option.minpartitons: no such option; minPartitions?"
    ]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("kafka.bootstrap.servers", "an option of Kafka; here it is servers (NATS URLs)"),
        ("kafka.ssl.truststore.location", "an option of Kafka; here it is tls.ca (a file in PEM)"),
        ("fetchOffset.numRetries", "an option of Kafka; here it is fetch.numRetries"),
        ("groupIdPrefix", "an option of Kafka; here it is consumerName (the broker keeps no group for a query)"),
        ("kafka.isolation.level", "an option of Kafka, only committed rows are read"),
        ("kafka.acks", "an option of Kafka, which has no use here"),
        ("kafkaConsumer.cache.timeout", "an option of Kafka, which has no use here"),
        ("topic", "no such option"),
    ],
)
def test_options_of_kafka_are_told_what_they_are_here(option, told):
    assert complaints_of(subscribe="orders", **{option: "x"}) == [f"{option.lower()}: {told}"]


def test_partitions_of_kafka_are_no_sequences():
    (complaint,) = complaints_of(subscribe="orders", startingOffsets='{"orders": {"0": 23}}')
    assert complaint.endswith("is no sequence, nor -2 or -1; a channel has no partitions, and its parts are channels")
    assert complaints_of(assign='{"payments": 1, "orders": [0, 1]}') == [
        "assign: 'orders' starts at 0, and sequences begin at 1; these are no partitions"
    ]


def test_without_any_option_the_way_out_is_told():
    with pytest.raises(OptionsError, match=r"no options at all: .* WITH \(servers"):
        source_options({})
