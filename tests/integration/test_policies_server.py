"""Policies of delivery on a real server: of its file, set by an operator, over a restart, and changed by a reload."""

import signal
from dataclasses import replace

import pytest
import stan_client
from stan_client import Direct
from stan_protocol.admin_types import DeliveryPolicy

from stan.core.base.delivery_policy import DEFAULT
from stan.core.metadata.policies import shown_policy
from tests.integration.test_config_file import FromFile
from tests.kit.server import until

FILE = """
listen: "127.0.0.1:{port}"
streaming {{
  store: FILE
  dir: {directory}
  cluster_id: policies
  policies {{ "orders.>" {{ max_deliver: {most}, backoff: ["1s", "1m"] }} }}
}}
"""


class WithPolicies(FromFile):
    """A server whose file has a policy."""

    def __init__(self, directory):
        super().__init__(directory, "-sc", FILE, most=5)
        self._file, self._store = directory / "stan.conf", directory / "store"

    def reload(self, most: int) -> None:
        """Write the file with another policy, and say so."""
        self._file.write_text(FILE.format(port=self.port, directory=self._store, most=most))
        self.signal(signal.SIGHUP)
        until(lambda: f"Reloaded: policies.orders.>.max_deliver = {most} (was 5, " in self.log(), why=self.log)


@pytest.fixture
def server(tmp_path):
    with WithPolicies(tmp_path) as server:
        yield server


async def in_force(server) -> DeliveryPolicy:
    """What the durable is told to have."""
    async with Direct(server.url, cluster_id="policies") as direct:
        (cursor,) = await direct.admin.subscriptions("orders.eu", name="billing")
        return cursor.policy


async def test_policies_of_file_and_operator_are_in_force_over_restart_and_reload(server):
    client = await stan_client.connect(server.url, client_id="me", cluster_id="policies")
    await client.subscribe("orders.eu", durable="billing")
    backoff = (10**9, 60 * 10**9)
    usual = DeliveryPolicy.from_pb(shown_policy(DEFAULT))
    wanted = replace(usual, max_deliver=5, backoff=backoff)
    assert await in_force(server) == wanted
    async with Direct(server.url, cluster_id="policies") as direct:
        policy = DeliveryPolicy(adaptive_window=True, max_hold=10**9)
        assert (await direct.admin.set_policy("orders.eu", policy, name="billing")).changed == 1
    wanted = replace(wanted, adaptive_window=True, max_hold=10**9)
    assert await in_force(server) == wanted
    await client.close()
    server.restart()
    assert await in_force(server) == wanted
    server.reload(7)
    wanted = replace(wanted, max_deliver=7)
    assert await in_force(server) == wanted
    async with Direct(server.url, cluster_id="policies") as direct:
        found = await direct.admin.policies("orders.eu", "billing")
        assert [(one.configured, one.name) for one in found.policies] == [(True, ""), (False, "billing")]
        await direct.admin.set_policy("orders.eu", name="billing")
    assert await in_force(server) == replace(usual, max_deliver=7, backoff=backoff)
