"""Schemas on real servers: garbage of a published client, a cluster whose nodes agree, restarts, permissions."""

import json
from array import array
from itertools import accumulate

import pytest
import stan_client
from stan_protocol.admin_types import DeliveryPolicy
from stan_protocol.kernel.rows import pack_rows

from tests.conformance.clients import Client, javascript
from tests.integration.test_permissions_clients import as_user
from tests.kit.cluster import StanCluster
from tests.kit.server import CLUSTER_ID, StanServer

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}
TEXT = json.dumps(SCHEMA).encode()
CONF = """
streaming {
  policies { "people" { schema: valid } }
  permissions {
    users: [{ user: alice, password: pa }, { user: bob, password: pb }, { user: ops, password: po }]
    allow: [
      { user: alice, publish: "people" }
      { user: bob, publish: "other" }
      { user: ops, admin_write: "people" }
    ]
  }
}
"""


def rows(*found):
    """Rows of a batch, and how many they are."""
    ends = array("i", [0, *accumulate(map(len, found))])
    return pack_rows(ends.tobytes(), b"".join(found), 0, len(found)), len(found)


async def test_garbage_of_a_published_javascript_client_is_refused_with_the_path(tmp_path):
    program = javascript()
    with StanServer(tmp_path) as server:
        async with stan_client.Direct(server.url, cluster_id=CLUSTER_ID) as direct:
            await direct.admin.add_schema("people", TEXT)
            await direct.admin.set_policy("people", DeliveryPolicy(schema=2))
            client = Client(program, server.url, CLUSTER_ID, "old", (5, 3))
            try:
                client.wait("connected")
                client.publish("people", b'{"age": 7}', b'{"age": -1}', b"garbage", b'{"age": 8}')
                acked = client.wait("acked", 4)
                client.disconnect()
            finally:
                client.release()
            why = 'stan: the message does not fit version 1 of the schema of "people": '
            assert sorted(one["error"] for one in acked) == [
                "", "", f"{why}/: is no JSON in UTF-8", f"{why}/age: -1 is less than the minimum of 0",
            ]  # fmt: skip
            assert [message.data async for message in direct.read("people")] == [b'{"age": 7}', b'{"age": 8}']


@pytest.mark.timeout(300)
async def test_all_nodes_agree_and_remember(tmp_path):
    """Versions come and are refused through any node; a node that starts again has them."""
    with StanCluster(tmp_path) as cluster:
        servers = cluster.url
        async with stan_client.Direct(servers, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
            assert (await direct.admin.add_schema("people", TEXT)).schema_version == 1
            await direct.admin.set_policy("people", DeliveryPolicy(schema=2))
            worse = json.dumps({**SCHEMA, "required": ["age", "name"]}).encode()
            with pytest.raises(
                stan_client.ServerError, match="not backward compatible: it does not read version 1: /name"
            ):
                await direct.admin.add_schema("people", worse)
            assert (await direct.admin.check_schema("people", worse))[0].startswith("does not read version 1: /name")
            async with await stan_client.connect(servers, client_id="me", cluster_id=cluster.cluster_id) as client:
                better = json.dumps({**SCHEMA, "title": "People"}).encode()
                for number in range(20):  # whoever leads the channel knows at once what was answered
                    answer = await direct.admin.add_schema("people", better.replace(b"People", b"P%d" % number))
                    version = str(answer.schema_version)
                    assert answer.schema_version == number + 2
                    await client.publish("people", b'{"age": 1}', headers={"stan-schema": version})
                    with pytest.raises(stan_client.ServerError, match=f'"{number + 3}" is no version'):
                        await client.publish("people", b'{"age": 1}', headers={"stan-schema": str(number + 3)})
                with pytest.raises(stan_client.ServerError, match="/age: -1 is less"):
                    await client.publish("people", b'{"age": -1}')
            before = await direct.admin.schemas("people")
            assert len(before) == 21
            for name in cluster.names:
                cluster.restart(name)
            assert await direct.admin.schemas("people", timeout_s=60) == before


async def test_rights(tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text(CONF)
    with StanServer(tmp_path, "-c", str(file)) as server:
        async with (
            stan_client.Direct(as_user(server.url, "alice"), cluster_id=CLUSTER_ID) as alice,
            stan_client.Direct(as_user(server.url, "bob"), cluster_id=CLUSTER_ID) as bob,
            stan_client.Direct(as_user(server.url, "ops"), cluster_id=CLUSTER_ID) as ops,
        ):
            await ops.admin.add_schema("people", TEXT)
            for who in (alice, bob):
                with pytest.raises(stan_client.ServerError, match="no permission"):
                    await who.admin.add_schema("people", TEXT)
                with pytest.raises(stan_client.ServerError, match="no permission"):
                    await who.admin.remove_schema("people")
                with pytest.raises(stan_client.ServerError, match="no permission"):
                    await who.admin.schemas()
            assert [one.schema_version for one in await alice.admin.schemas("people")] == [1]
            with pytest.raises(stan_client.ServerError, match="no permission"):
                await bob.admin.schemas("people")
            with pytest.raises(stan_client.ServerError, match="/age"):
                await alice.batches.publish("people", *rows(b'{"age": 1}', b'{"age": "old"}'))
            await alice.batches.publish("people", *rows(b'{"age": 1}'))
