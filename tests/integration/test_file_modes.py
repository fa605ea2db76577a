"""Nobody but its owner may read what a server keeps, whatever umask it is started with."""

import asyncio
import os
import stat

import pytest
import stan_client

from tests.kit.server import StanServer


async def publish(url):
    client = await stan_client.connect(url, client_id="writer")
    await client.publish_many("foo", [b"x" * 1000] * 50)
    await client.close()


@pytest.mark.parametrize("store", ["FILE", "SQL"])
def test_all_files_of_a_server_are_its_owners_alone(tmp_path, store):
    before = os.umask(0o022)
    try:
        with StanServer(tmp_path, store=store) as server:
            asyncio.run(publish(server.url))
            kept = {path for path in tmp_path.rglob("*") if path.name != "server.log"}  # which the test has made
            assert len(kept) >= 3
            open_to_others = {str(path) for path in kept if stat.S_IMODE(path.lstat().st_mode) & 0o077}
            assert not open_to_others
            server.terminate()
    finally:
        os.umask(before)
