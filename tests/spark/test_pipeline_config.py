"""The file of a pipeline: what it says, and that every mistake in it is told at once, where it is. No Spark, no Java."""

import json
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2 as d
from pyspark_stan.payloads.avro import AvroSchemaError, avro_columns
from pyspark_stan.payloads.types import TypeTextError, parse_type
from pyspark_stan.pipeline.config import PipelineConfigError, parse_pipeline, read_pipeline, summary
from pyspark_stan.pipeline.lines import KeyLines
from pyspark_stan.pipeline.session import conf_of

GOOD = """\
name = "pages"
checkpoint = "state"

[connection]
servers = "nats://10.0.0.1:4222"
user = "spark"
password_env = "STAN_PASSWORD"

[source]
channels = ["clicks"]
max_per_trigger = 1000

[payload]
malformed = "drop"

[payload.schema]
page = "string"
at = "timestamp"

[watermark]
column = "at"
delay = "10 seconds"

[query]
sql = '''
SELECT page, count(*) AS clicks,
  name = 1 AS odd  -- looks like a key
FROM events GROUP BY page, window(at, '10 seconds')
'''

[sink]
channel = "counts"
"""
ENVIRONMENT = {"STAN_PASSWORD": "geheim"}


def pipeline_of(text: str = GOOD, directory: Path = Path("/etc/pipes"), environment=None):
    return parse_pipeline(text, directory, ENVIRONMENT if environment is None else environment)


def complaints_of(text: str, directory: Path = Path("/etc/pipes"), environment=None) -> list[str]:
    with pytest.raises(PipelineConfigError) as error:
        pipeline_of(text, directory, environment)
    return [str(complaint) for complaint in error.value.complaints]


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_files_of_a_login_and_of_tls_are_beside_the_pipeline():
    login = 'user = "spark"\npassword_env = "STAN_PASSWORD"'
    pipeline = pipeline_of(changed(login, 'nkey = "spark.nk"\ntls_ca = "ca.pem"'))
    for options in (pipeline.source_options(pipeline.inputs[0]), pipeline.sink_options()):
        assert (options["nkey"], options["tls.ca"]) == ("/etc/pipes/spark.nk", "/etc/pipes/ca.pem")
        assert "user" not in options
    waiting = changed("max_per_trigger = 1000", "options = { waitForChannels = true }")
    assert pipeline_of(waiting).source_options(pipeline_of(waiting).inputs[0])["waitForChannels"] == "true"


def test_a_good_file_says_everything():
    pipeline = pipeline_of()
    assert pipeline.checkpoint == "/etc/pipes/state"
    assert pipeline.inputs[0].payload.columns == {"page": "string", "at": "timestamp"}
    assert pipeline.inputs[0].watermark == ("at", "10 seconds")
    assert (pipeline.sink.mode, pipeline.sink.value, pipeline.spark.master) == ("append", "json", "local[*]")
    assert pipeline.source_options(pipeline.inputs[0]) == {
        "servers": "nats://10.0.0.1:4222",
        "clusterId": "test-cluster",
        "user": "spark",
        "password": "geheim",
        "subscribe": "clicks",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
    }
    assert pipeline.sink_options()["channel"] == "counts"


def test_secrets_are_shown_nowhere():
    pipeline = pipeline_of()
    assert "geheim" not in repr(pipeline) + str(pipeline) + str(summary(pipeline))
    by_variable = pipeline_of(changed('password_env = "STAN_PASSWORD"', 'password = "${STAN_PASSWORD}"'))
    assert by_variable.connection.password.reveal() == "geheim"
    assert "geheim" not in repr(by_variable)


@pytest.mark.parametrize("written", ["geheim", "${STAN_PASSWORD:-geheim}", "geheim${STAN_PASSWORD}"])
def test_what_is_secret_may_not_stand_in_the_file(written):
    (complaint,) = complaints_of(changed('password_env = "STAN_PASSWORD"', f'password = "{written}"'))
    assert complaint.startswith("line 7: connection.password: must not stand in the file")
    assert "geheim" not in complaint


def test_a_variable_may_have_a_text_in_its_place():
    text = changed("nats://10.0.0.1:4222", "${STAN_SERVER:-nats://here:1}")
    assert pipeline_of(text).connection.servers == "nats://here:1"
    assert (
        pipeline_of(text, environment={**ENVIRONMENT, "STAN_SERVER": "nats://x:2"}).connection.servers == "nats://x:2"
    )


def test_credentials_are_not_part_of_an_address():
    (complaint,) = complaints_of(changed("nats://10.0.0.1", "nats://me:geheim@10.0.0.1"))
    assert complaint.startswith("line 5: connection.servers: has a user or password in it")
    assert "geheim" not in complaint


def test_all_mistakes_are_told_at_once_with_their_lines():
    text = """\
checkpoint = 7
colour = "red"

[source]
chanels = ["clicks"]
start = "yesterday"

[payload]
format = "jsn"

[payload.schema]
page = "strng"

[watermark]
column = "at"
delay = "soon"

[query]
sql = "SELECT 1"
function = "nowhere.module:f"

[sink]
channel = "a b"
mode = "replace"

[spark]
master = "there"
"""
    assert [complaint.split(": ")[:2] for complaint in complaints_of(text)] == [
        ["line 1", "checkpoint"],
        ["line 1", "name"],
        ["line 2", "colour"],
        ["line 4", "source.channels"],
        ["line 5", "source.chanels"],
        ["line 6", "source.start"],
        ["line 9", "payload.format"],
        ["line 12", "payload.schema.page"],
        ["line 15", "watermark.column"],
        ["line 16", "watermark.delay"],
        ["line 20", "query.function"],
        ["line 20", "query.function"],
        ["line 23", "sink.channel"],
        ["line 24", "sink.mode"],
        ["line 27", "spark.master"],
    ]
    assert "do you mean 'channels'?" in "\n".join(complaints_of(text))


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('name = "pages"\n', 'name = ""\n', "line 1: name: is empty"),
        ('name = "pages"\n', "name = 3\n", "line 1: name: must be a text"),
        ('"clicks"]', '"clicks", 3]', "line 10: source.channels: must be a list of texts"),
        ('channels = ["clicks"]', 'channels = ["clicks"]\npattern = "c.*"', "line 11: source.pattern: give channels or"),
        ('channels = ["clicks"]', "channels = []", "line 10: source.channels: is empty"),
        ('channels = ["clicks"]', 'pattern = ""', "line 10: source.pattern: is empty"),
        ('channels = ["clicks"]', 'pattern = "c.*"', "line 32: sink.channel: is read by this pipeline"),
        ('channel = "counts"', 'channel = "c"\noptions.txnVersion = 1', "line 31: sink: txnVersion: a stream has many"),
        ('page = "string"', 'page = "strng"', "line 17: payload.schema.page: the type 'strng' has 'strng' in it, which"),
        ('channels = ["clicks"]', 'channels = ["c*"]', "line 9: source: subscribe: 'c*' is no channel's name"),
        ("max_per_trigger = 1000", "max_per_trigger = 0", "line 11: source.max_per_trigger: must be at least 1, not 0"),
        ("max_per_trigger = 1000", "options.fetchByte = 1", "line 9: source: fetchbyte: no such option"),
        ("max_per_trigger = 1000", "start = { other = 1 }", "line 9: source: startingOffsets: nothing is said about clicks"),
        ('page = "string"', 'page = "array<string"', "line 17: payload.schema.page: the type 'array<string' wants '>'"),
        ('page = "string"', 'AT = "string"', "line 17: payload.schema.AT: is there twice, for Spark"),
        ('page = "string"', '_sequence = "int"', "line 16: payload.schema: '_sequence' is the name of a column that every"),
        ('at = "timestamp"', 'at = "string"', "line 21: watermark.column: 'at' is string, and must be timestamp"),
        ('column = "at"', 'column = "when"', "line 21: watermark.column: the payload has no column 'when'"),
        ('channel = "counts"', 'channel = "clicks"', "line 32: sink.channel: is read by this pipeline"),
        ('channel = "counts"', "", "line 31: sink.channel: is missing"),
        ('channel = "counts"', 'channel = "c"\ndelivery = "maybe"', "line 33: sink.delivery: must be one of transactional"),
        ("[sink]", '[trigger]\nevery = "1 second"\navailable_now = true\n[sink]', "line 32: trigger.every: give every or"),
        ('user = "spark"', "", "line 9: source: user and password: one goes with the other"),
        ('"STAN_PASSWORD"', '"OTHER"', "line 7: connection.password_env: the environment has no variable OTHER"),
        ("sql = '''", "view = 'my view'\nsql = '''", "line 25: query.view: must be a name such as"),
    ],
)  # fmt: skip
def test_each_mistake_is_told(old, new, complaint):
    found = complaints_of(changed(old, new))
    assert any(each.startswith(complaint) for each in found), found


def test_what_is_not_toml_is_told_with_its_line():
    assert complaints_of('name = "a"\nname = "b"\n')[0].startswith("line 2: not TOML: Cannot overwrite a value")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(PipelineConfigError, match=r"cannot read .*none.toml: No such file"):
        read_pipeline(tmp_path / "none.toml", {})


def test_a_query_may_be_in_a_file_of_its_own(tmp_path):
    (tmp_path / "q.sql").write_text("SELECT * FROM events;\n")
    text = GOOD[: GOOD.index("[query]")] + '[query]\nsql_file = "q.sql"\n[sink]\nchannel = "counts"\n'
    assert pipeline_of(text, tmp_path).query.sql == "SELECT * FROM events"
    (tmp_path / "q.sql").unlink()
    assert "line 25: query.sql_file: cannot read" in complaints_of(text, tmp_path)[0]


@pytest.mark.parametrize(
    ("function", "content", "complaint"),
    [
        ("steps.py:count", "def count(rows): return rows", ""),
        ("steps.py:count", "from elsewhere import count", ""),
        ("steps.py:count", "def other(): pass", "has no function 'count'"),
        ("steps.py:count", "def count(", "is not Python"),
        ("steps.py:count", None, "cannot read"),
        ("my-steps.py:count", "def count(rows): return rows", "cannot be imported"),
        ("json:dumps", None, ""),
        ("no.such.module:f", None, "there is no module 'no.such.module'"),
        ("steps", None, "must be 'file.py:function' or 'module:function'"),
    ],
)
def test_a_function_is_looked_for_and_not_run(tmp_path, function, content, complaint):
    if content is not None:
        (tmp_path / function.partition(":")[0]).write_text("raise SystemExit\n" * (complaint == "") + content)
    text = GOOD[: GOOD.index("[query]")] + f'[query]\nfunction = "{function}"\n[sink]\nchannel = "counts"\n'
    if complaint:
        assert complaint in complaints_of(text, tmp_path)[0]
    else:
        assert pipeline_of(text, tmp_path).query.function == function.rpartition(":")[2]


@pytest.mark.parametrize(
    "text",
    [
        "string",
        "ARRAY<int>",
        "map<string, array<bigint>>",
        "struct<a:int,b:struct<c:date>>",
        "decimal(10,2)",
        "decimal",
    ],
)
def test_types_are_known(text):
    parse_type(text)


@pytest.mark.parametrize(
    "text",
    ["", "strng", "array", "array<>", "map<string>", "struct<>", "struct<a>", "int int", "decimal(39,2)", "decimal(2,3)", "a!"],
)  # fmt: skip
def test_what_is_no_type_is_refused(text):
    with pytest.raises(TypeTextError):
        parse_type(text)


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "before", "type": "Kind"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "tags", "type": {"type": "map", "values": "int"}}]}}},
    ],
}  # fmt: skip


def test_an_avro_schema_gives_columns():
    columns = avro_columns(AVRO)
    assert columns == {
        "id": "bigint",
        "note": "string",
        "at": "timestamp",
        "kind": "string",
        "before": "string",
        "price": "decimal(9,2)",
        "lines": "array<struct<`sku`:string,`tags`:map<string,int>>>",
    }


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (["null", "int", "string"], "x is a union of several types"),
        ("R", "x contains itself"),
        ({"type": "array", "items": "R"}, "x contains itself"),
        ("Nowhere", "x has the unknown type 'Nowhere'"),
        ({"type": "long", "logicalType": "time-micros"}, "x has the logical type 'time-micros'"),
        ({"type": "record", "name": "Inner"}, "x needs a name and fields"),
    ],
)
def test_what_spark_has_no_type_for_is_refused(kind, complaint):
    with pytest.raises(AvroSchemaError, match=complaint):
        avro_columns({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})


@pytest.mark.parametrize("schema", ["string", [], {"type": "array", "items": "int"}, {"type": "record", "name": "R"}])
def test_an_avro_payload_is_a_record(schema):
    with pytest.raises(AvroSchemaError):
        avro_columns(schema)


def test_an_avro_schema_may_be_in_the_file_or_beside_it(tmp_path):
    head = GOOD[: GOOD.index("[payload]")].replace("[source]", "[source]\n")
    tail = '[query]\nsql = "SELECT * FROM events"\n[sink]\nchannel = "counts"\n'
    inside = f"{head}[payload]\nformat = 'avro'\nschema = '''{json.dumps(AVRO)}'''\n{tail}"
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    beside = f"{head}[payload]\nformat = 'avro'\nschema_file = 'order.avsc'\n{tail}"
    assert pipeline_of(inside).inputs[0].payload == pipeline_of(beside, tmp_path).inputs[0].payload
    (tmp_path / "order.avsc").write_text("{")
    assert "payload.schema_file: is not an Avro schema that can be used" in complaints_of(beside, tmp_path)[0]


def test_lines_of_keys_are_found():
    lines = KeyLines('a = 1\n[t."x.y"]\n# b = 2\nb = """\nc = 3\n"""\nd.e = 4\n[[u]]\nf = 5\n')
    found = {key: lines.line_of(key) for key in [("a",), ("t", "x.y", "b"), ("t", "x.y", "d", "e"), ("u", "f")]}
    assert list(found.values()) == [1, 4, 7, 9]
    assert lines.line_of(("t", "x.y", "c")) == 2
    assert lines.line_of(("z",)) == 1


@pytest.mark.parametrize(
    ("old", "new", "quick"),
    [
        ("", "", True),
        ('"state"', '"file:///var/state"', True),
        ('"state"', '"hdfs://names/state"', False),
        ('"state"', '"s3a://bucket/state"', False),
        ("[sink]", '[spark]\nmaster = "spark://10.0.0.1:7077"\n[sink]', False),
        ("[sink]", '[spark.conf]\n"spark.hadoop.fs.defaultFS" = "hdfs://names"\n[sink]', False),
    ],
    ids=["path", "file", "hdfs", "object store", "cluster", "paths of another file system"],
)
def test_checkpoints_on_a_disk_of_this_machine_are_written_without_helper_processes(old, new, quick):
    conf = conf_of(pipeline_of(changed(old, new)))

    assert ("spark.sql.streaming.checkpointFileManagerClass" in conf) is quick


def test_a_file_may_say_how_checkpoints_are_written():
    text = changed("[sink]", '[spark.conf]\n"spark.sql.streaming.checkpointFileManagerClass" = "my.Manager"\n[sink]')

    assert conf_of(pipeline_of(text))["spark.sql.streaming.checkpointFileManagerClass"] == "my.Manager"


SEVERAL = """
name = "join"
checkpoint = "state"
[sources.orders]
channels = ["orders"]
payload.format = "registered"
watermark = { column = "_timestamp", delay = "1 minute" }
[sources.paid]
pattern = "paid.*"
payload.format = "raw"
[query]
sql = "SELECT 1"
[sink]
delta = "tables/orders"
keys = ["id"]
order = "n"
deletes = "state = 'gone'"
app = "orders"
mode = "update"
"""


def test_several_sources_and_a_table():
    pipeline = pipeline_of(SEVERAL)
    orders, paid = pipeline.inputs
    assert (orders.view, orders.source.channels, orders.watermark) == (
        "orders",
        ("orders",),
        ("_timestamp", "1 minute"),
    )
    assert (paid.view, paid.source.pattern, paid.payload.format) == ("paid", "paid.*", "raw")
    assert pipeline.source_options(orders)["schema"] == "auto"
    assert "schema" not in pipeline.source_options(paid)
    table = pipeline.sink.table
    assert table.name == "/etc/pipes/tables/orders"
    assert (table.keys, table.order, table.deletes, table.app) == (("id",), "n", "state = 'gone'", "orders")
    told = dict(summary(pipeline))["publish"]
    assert told == "to the delta table /etc/pipes/tables/orders, update: each result again when it has changed"


def test_mistakes_in_several_sources_and_tables_are_all_told():
    text = SEVERAL.replace('payload.format = "raw"', 'payload.format = "raw"\nmax_per_trigger = 0')
    more = '[source]\nchannels = ["a"]\n[sources."a b"]\nchannels = ["c"]\npayload.format = "raw"\n[query]\nview = "x"'
    text = text.replace("[query]", more)
    text = text.replace('keys = ["id"]', 'delivery = "idempotent"\niceberg = "orders"')
    told = "\n".join(complaints_of(text))
    for wanted in (
        "source: goes into the tables of sources",
        "sources.paid.max_per_trigger: must be at least 1",
        "sources.a b: must be a name such as clicks",
        "query.view: has no meaning for several sources",
        "sink.iceberg: does not go with delta",
        "sink.delivery: does not go with delta",
        "sink.order: goes with keys",
        "sink.deletes: goes with keys",
        "sink.keys: is missing: which columns identify a row that is updated",
    ):
        assert wanted in told


@pytest.mark.parametrize(
    ("sink", "wanted"),
    [
        ('channel = "a"\nkeys = ["id"]', "sink.keys: goes with delta or iceberg"),
        ('iceberg = "orders"', "sink.iceberg: must be a name with that of its namespace"),
        ('delta = "a"\nmode = "complete"', "sink.mode: complete does not go with a table"),
        ('delta = "a"\ncatalog.uri = "x"', "sink.catalog: goes with iceberg"),
        ('channel = "a"\napp = "x"', "sink.app: goes with delta or iceberg"),
        ('delta = "a"\nkeys = ["id", "ID"]', "sink: keys: 'ID' comes twice"),
        ('iceberg = "a.b"\nkeys = ["a.id"]', "sink: keys: 'a.id' has a ., which pyiceberg takes for a field"),
        ('channel = "a"\nvalue = "avro"', "sink.schema: is missing"),
        ('channel = "a"\nvalue = "avro"\nschema = "}"', "sink.schema: is not an Avro schema"),
    ],
)
def test_mistakes_in_sinks(sink, wanted):
    assert wanted in "\n".join(complaints_of(changed('channel = "counts"', sink)))


def test_protobuf_is_read_from_a_file(tmp_path):
    file = d.FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    (tmp_path / "order.pb").write_bytes(d.FileDescriptorSet(file=[file]).SerializeToString())
    payload = '[payload]\nformat = "protobuf"\ndescriptor_file = "order.pb"\nmessage = "shop.Order"\n'
    text = GOOD[: GOOD.index("[payload]")] + payload + GOOD[GOOD.index("[query]") :]
    assert pipeline_of(text, tmp_path).inputs[0].payload.columns == {"id": "bigint"}
    (complaint,) = complaints_of(text.replace("shop.Order", "shop.Nothing"), tmp_path)
    assert "payload.message: no message 'shop.Nothing'" in complaint
    (complaint,) = complaints_of(text.replace("order.pb", "other.pb"), tmp_path)
    assert "payload.descriptor_file: cannot read" in complaint
    assert len(complaints_of(text.replace('message = "shop.Order"\n', ""), tmp_path)) == 1
