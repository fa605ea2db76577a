"""A real server that encrypts: nothing of a message on the disk, nothing of the key anywhere, another key refused."""

import asyncio
from pathlib import Path

import pytest
import stan_client

from tests.kit.server import StanServer

KEY = "tellnobodythiskey"
WRONG = "thisisnotthekeyatall"
SECRET = b"what is in the message"
ENVIRONMENT = "NATS_STREAMING_ENCRYPTION_KEY"


async def publish(url, count, first=1):
    client = await stan_client.connect(url, client_id="writer")
    await client.publish_many("foo", [SECRET + b" %d" % n for n in range(first, first + count)])
    await client.close()


def read(server, count):
    async def take():
        client = await stan_client.connect(server.url, client_id="reader")
        sub = await client.subscribe("foo", start=stan_client.everything())
        got = []
        async for message in sub:
            got.append(message.data)
            if len(got) == count:
                break
        await client.close()
        return got

    return asyncio.run(asyncio.wait_for(take(), 60))


def on_disk(directory):
    """All bytes of the data directory."""
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("cipher", ["AES", "CHACHA"])
def test_messages_are_encrypted_and_readable_after_a_kill(tmp_path, monkeypatch, cipher):
    monkeypatch.setenv(ENVIRONMENT, KEY)
    wanted = [SECRET + b" %d" % n for n in range(1, 301)]
    with StanServer(tmp_path, "--encrypt", "--encryption_cipher", cipher) as server:
        asyncio.run(publish(server.url, 300))
        assert read(server, 300) == wanted
        server.kill9()
        files = on_disk(tmp_path / "store")
        assert sum(map(len, files.values())) > 300 * len(SECRET)
        assert [path for path, data in files.items() if SECRET in data or KEY.encode() in data] == []
        server.start()
        assert read(server, 300) == wanted
        assert KEY not in server.log()


@pytest.mark.parametrize(("flags", "key"), [(["--encrypt"], WRONG), ([], KEY)])
def test_another_key_is_refused_and_nothing_is_changed(tmp_path, monkeypatch, flags, key):
    monkeypatch.setenv(ENVIRONMENT, KEY)
    with StanServer(tmp_path, "--encrypt") as server:
        asyncio.run(publish(server.url, 10))
        server.terminate()
        before = on_disk(tmp_path / "store")
        monkeypatch.setenv(ENVIRONMENT, key)
        other = StanServer(tmp_path, *flags)
        try:
            other.launch()
            assert other.wait_for_end() == 1
        finally:
            other.sweep()
        assert f"{tmp_path}/store/stan.json: the messages here are encrypted" in other.log_since_start()
        assert on_disk(tmp_path / "store") == before
        monkeypatch.setenv(ENVIRONMENT, KEY)
        server.start()
        assert len(read(server, 10)) == 10
        assert WRONG not in server.log()


def test_headers_keys_and_replies_are_encrypted_too(tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, KEY)
    hidden = [b"hidden-header", b"hidden-value", b"hidden-key", b"hidden-reply", SECRET]

    async def scene(url):
        async with await stan_client.connect(url, client_id="writer") as client:
            told = {"headers": {"hidden-header": "hidden-value"}, "key": "hidden-key", "reply": "hidden-reply"}
            await client.publish("foo", SECRET, **told)
            message = await anext(aiter(await client.subscribe("foo", start=stan_client.everything())))
            assert (message.data, message.key, message.reply) == (SECRET, b"hidden-key", "hidden-reply")
            assert message.headers["hidden-header"] == b"hidden-value"

    with StanServer(tmp_path, "--encrypt") as server:
        asyncio.run(asyncio.wait_for(scene(server.url), 60))
        server.terminate()
    files = on_disk(tmp_path / "store")
    assert any(b"foo" in data for data in files.values())  # names of channels are in clear
    assert [(path, one) for path, data in files.items() for one in hidden if one in data] == []


def test_the_memory_store_writes_no_message(tmp_path):
    with StanServer(tmp_path, store="MEMORY") as server:
        asyncio.run(publish(server.url, 10))
        server.terminate()
    assert [path for path, data in on_disk(tmp_path).items() if SECRET in data] == []


def test_store_in_clear_is_encrypted_from_now_on(tmp_path, monkeypatch):
    with StanServer(tmp_path) as server:
        asyncio.run(publish(server.url, 10))
        server.terminate()
        clear = sum(data.count(SECRET) for data in on_disk(tmp_path / "store").values())
        monkeypatch.setenv(ENVIRONMENT, KEY)
        encrypted = StanServer(tmp_path, "--encrypt")
        with encrypted:
            asyncio.run(publish(encrypted.url, 10, first=11))
            assert read(encrypted, 20) == [SECRET + b" %d" % n for n in range(1, 21)]
        assert sum(data.count(SECRET) for data in on_disk(tmp_path / "store").values()) == clear


def test_key_is_not_shown_by_the_list_of_processes(tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, KEY)
    with StanServer(tmp_path, "--encryption_key", WRONG) as server:
        mine = {server.pid, *server.survivors()}
        assert len(mine) > 1
        for pid in mine:
            assert WRONG.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            if pid != server.pid:
                assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert "Others on this machine may have seen" not in server.log()  # the environment has won
        assert WRONG not in server.log()
    monkeypatch.delenv(ENVIRONMENT)
    (tmp_path / "store").rename(tmp_path / "other")
    with StanServer(tmp_path, "--encryption_key", WRONG) as server:
        assert "Others on this machine may have seen" in server.log()
        assert WRONG not in server.log()
