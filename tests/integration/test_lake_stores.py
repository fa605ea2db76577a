"""Stores of a lake keep their promises: a local directory, and an object store over HTTP (moto's, on the loopback interface)."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest
from moto.server import ThreadedMotoServer
from stan_lake import LakeError, LakeTable, channels, incarnations, open_store
from stan_lake.tierer import ChannelTierer, TierSettings

from tests.kit.lake import UID, OneChannel, iceberg_of, rows_of
from tests.kit.ports import free_port

WRITERS = 8
S3 = {"s3.access-key-id": "me", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}


class OneByOne:
    """An S3 looks and writes in one step where a request says so (If-None-Match); moto's does not, and two of its threads may
    both find nothing: they take turns."""

    def __init__(self, app):
        self.app = app
        self.turn = Lock()

    def __call__(self, environ, start_response):
        with self.turn:
            return [*self.app(environ, start_response)]


@pytest.fixture(scope="module")
def s3():
    """The URL of an S3 that forgets everything at the end."""
    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    server._server.app = OneByOne(server._server.app)
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(params=["disk", "s3"])
def url(request, tmp_path, monkeypatch):
    if request.param == "disk":
        return str(tmp_path / "lake")
    endpoint = request.getfixturevalue("s3")
    for name, value in {
        "AWS_ACCESS_KEY_ID": S3["s3.access-key-id"],
        "AWS_SECRET_ACCESS_KEY": S3["s3.secret-access-key"],
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": S3["s3.region"],
    }.items():
        monkeypatch.setenv(name, value)
    import boto3  # noqa: PLC0415 - it comes with moto

    bucket = tmp_path.name.replace("_", "-").lower()
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=bucket)
    return f"s3://{bucket}/lake"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_store_keeps_its_promises(url):
    store = open_store(url)
    assert store.children("") == ([], [])
    assert store.put_new("a/b/1", b"one")
    assert not store.put_new("a/b/1", b"two")
    assert store.put_new("a/b/2", b"")
    assert store.put_new("a/c", b"three")
    assert store.get("a/b/1") == b"one"
    assert store.children("a") == (["b"], ["c"])
    assert store.children("a/b") == ([], ["1", "2"])
    store.delete("a/b/1")
    store.delete("a/b/1")
    with pytest.raises(FileNotFoundError):
        store.get("a/b/1")
    assert store.location("a/c") == f"{url}/a/c"
    with ThreadPoolExecutor(WRITERS) as threads:
        done = list(threads.map(lambda number: store.put_new("race", b"%d" % number), range(WRITERS)))
    assert done.count(True) == 1
    assert store.get("race") == b"%d" % done.index(True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
async def test_channel_with_any_name_is_found_again(url):
    store = open_store(url)
    names = ["orders", "größe.x", "a/b%=c", "\udcff", "x" * 300, f"{'x' * 300}y"]
    for name in names:
        channel = OneChannel(name)
        channel.publish(20)
        tierer = ChannelTierer(
            LakeTable(store, name, UID), channel, TierSettings(name="lake", target_bytes=200, age_s=0)
        )
        await tierer.begin(channel.info)
        await tierer.step(channel.info)
        assert [at for at, _ in rows_of(store, name)] == list(range(1, 21))
        assert len(tierer.manifest.files) > 1
        assert incarnations(store, name) == [UID]
        reader = {**S3, "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL", "")}
        found = iceberg_of(store, LakeTable(store, name, UID), **reader).scan().to_arrow()
        assert sorted(found["sequence"].to_pylist()) == list(range(1, 21))
    assert channels(store) == sorted(names)


def test_store_that_cannot_be_is_refused(tmp_path):
    for wrong in ("", "nope://x/y", "file://host/x"):
        with pytest.raises(LakeError):
            open_store(wrong)
