"""A real server that traces: what a receiver gets, and that nothing happens when it dies."""

import asyncio
import urllib.request

import pytest
import stan_client

from tests.kit.otlp import OtlpReceiver
from tests.kit.ports import free_port
from tests.kit.server import CLUSTER_ID, StanServer, until


async def publish(url, count):
    async with await stan_client.connect(url, client_id="writer", cluster_id=CLUSTER_ID) as client:
        return await client.publish_many("orders", [b"%d" % number for number in range(count)])


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@pytest.mark.parametrize("store", ["FILE", "MEMORY"])
def test_the_death_of_the_receiver_harms_nothing(tmp_path, store):
    port = free_port()
    with OtlpReceiver() as receiver:
        flags = ("--trace_sample", "1", "--trace_endpoint", receiver.url, "-m", str(port))
        with StanServer(tmp_path, *flags, store=store) as server:
            asyncio.run(publish(server.url, 20))
            found = receiver.wait_for("store orders", 20)
            assert [span.about["stan.sequence"] for span in found] == list(range(1, 21))
            assert len({span.trace for span in found}) == 20
            assert {span.parent for span in found} == {""}
            until(lambda: metric(port, "stan_trace_spans_total") >= 60)
            receiver.kill()
            asyncio.run(publish(server.url, 200))
            until(lambda: metric(port, "stan_trace_spans_dropped_total") >= 600)
            assert server.log().count("Traces cannot be sent") == 1
            assert server.terminate() == 143


def test_one_in_many_is_traced(tmp_path):
    with OtlpReceiver() as receiver:
        (tmp_path / "stan.conf").write_text(f'trace_sample: 0.001\ntrace_endpoint: "{receiver.url}"\n')
        with StanServer(tmp_path, "-sc", str(tmp_path / "stan.conf")) as server:
            asyncio.run(publish(server.url, 10_000))
            assert server.terminate() == 143
        assert 9 <= len(receiver.named("store orders")) <= 11
