"""The monitoring port of a real server with real clients on it: all pages, NATS's among them, health in its states, HTTPS."""

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress

import pytest
import stan_client
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.ports import free_port
from tests.kit.server import NatsServer, StanServer, until


class Answer:
    """What a page answers."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        try:
            with urllib.request.urlopen(url, timeout=20, context=context) as found:  # noqa: S310 - our own
                self.status, self.headers, body = found.status, found.headers, found.read()
        except urllib.error.HTTPError as error:
            self.status, self.headers, body = error.code, error.headers, error.read()
        self.text = body.decode()

    @property
    def json(self):
        return json.loads(self.text)


class Watched(StanServer):
    """A server with a monitoring port."""

    def __init__(self, directory, *flags, **told):
        self.http = free_port()
        super().__init__(directory, "-m", str(self.http), *flags, **told)

    def get(self, path):
        return Answer(f"http://127.0.0.1:{self.http}{path}")


@pytest.fixture
def server(tmp_path):
    with Watched(tmp_path) as server:
        yield server


async def get(server, path):
    return await asyncio.to_thread(server.get, path)


async def test_pages_tell_of_clients_as_they_come_and_go(server):
    async with await stan_client.connect(server.url, client_id="billing") as client:
        await client.publish_many("orders", [b"x" * 100] * 50)
        durable = await client.subscribe(
            "orders", durable="ledger", start=stan_client.everything(), manual_acks=True, max_in_flight=20
        )
        messages = [await anext(durable) for _ in range(20)]
        found = (await get(server, "/streaming/channelsz?channel=orders&subs=1")).json
        (sub,) = found["subscriptions"]
        assert (found["msgs"], found["last_seq"], found["subs_count"]) == (50, 50, 1)
        assert (sub["client_id"], sub["durable_name"], sub["last_sent"], sub["pending_count"]) == (
            "billing",
            "ledger",
            20,
            20,
        )
        assert sub["is_stalled"]
        for message in messages[:5]:
            message.ack()

        def freed():
            found = server.get("/streaming/clientsz?client=billing&subs=1").json
            return found["subscriptions"]["orders"][0]["last_sent"] == 25

        await asyncio.to_thread(until, freed)
        serverz = (await get(server, "/streaming/serverz")).json
        assert [serverz[name] for name in ("clients", "subscriptions", "channels", "total_msgs")] == [1, 1, 1, 50]
        assert (serverz["in_msgs"], serverz["out_msgs"], serverz["state"]) == (50, 25, "STANDALONE")
        assert (await get(server, "/streaming/storez")).json["total_bytes"] == found["bytes"]
        assert (await get(server, "/streaming/clientsz")).json["clients"][0]["id"] == "billing"
        families = {f.name: f for f in text_string_to_metric_families((await get(server, "/metrics")).text)}
        assert [sample.value for sample in families["stan_durable_pending_messages"].samples] == [20]
        assert [sample.value for sample in families["stan_durable_lag_messages"].samples] == [25]
        for name in ("exhausted_messages", "rejected_messages", "dead_letters", "paused_by_broker"):
            assert [sample.value for sample in families[f"stan_durable_{name}"].samples] == [0]
        (age,) = families["stan_durable_oldest_unacked_seconds"].samples
        assert 0 < age.value < 60
        syncs = {sample.name: sample.value for sample in families["stan_sync_seconds"].samples}
        assert syncs["stan_sync_seconds_count"] > 0
    (sub,) = (await get(server, "/streaming/channelsz?channel=orders&subs=1")).json["subscriptions"]
    assert (sub["is_offline"], sub["client_id"], sub["pending_count"]) == (True, "billing", 20)
    assert (await get(server, "/streaming/clientsz")).json["clients"] == []


def test_answers_are_those_of_the_original(server):
    page = server.get("/streaming/channelsz")
    assert page.headers["Content-Type"] == "application/json"
    assert page.headers["Access-Control-Allow-Origin"] == "*"
    called = server.get("/streaming/serverz?callback=f")
    assert called.headers["Content-Type"] == "application/javascript"
    assert json.loads(re.fullmatch(r"f\((.*)\)", called.text, re.DOTALL)[1])["cluster_id"] == "test-cluster"
    assert (server.get("/streaming/isFTActive").status, server.get("/streaming/isFTActive").text) == (204, "")
    for path in ("/streaming", "/streaming/"):
        assert "channelsz" in server.get(path).text
        assert server.get(path).headers["Content-Type"] == "text/html; charset=utf-8"
    for path, text in (
        ("/streaming/clientsz?client=nope", "Client nope not found\n"),
        ("/streaming/channelsz?channel=nope", "Channel nope not found\n"),
        ("/streaming/nope", "404 page not found\n"),
    ):
        refused = server.get(path)
        assert (refused.status, refused.text) == (404, text)
        assert refused.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert refused.headers["X-Content-Type-Options"] == "nosniff"


def test_pages_of_nats_server_are_on_the_same_port_also_after_it_was_restarted(server):
    assert server.get("/varz").json["port"] == server.port
    assert server.get("/connz?subs=1").json["connections"][0]["subscriptions_list"]
    assert server.get("/no_such_page").status == 404
    assert "/varz" in server.get("/").text
    before = server.get("/varz").json["server_id"]
    (nats,) = (int(number) for number in set(re.findall(r"\[(\d+)\].* Starting nats-server", server.log())))
    os.kill(nats, signal.SIGKILL)

    def is_back():
        with suppress(json.JSONDecodeError):  # in between there is an error in words
            return server.get("/varz").json["server_id"] != before
        return False

    until(is_back, why=server.log)
    until(lambda: server.get("/healthz/ready").status == 200, why=lambda: server.get("/healthz/ready").text)


def test_command_line_asks_whether_the_port_is_this_one(server):
    command = [sys.executable, "-m", "stan.cli.main", "channel", "list", "-s", f"nats://127.0.0.1:{server.http}"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert told.returncode == 3
    assert "Something takes the connection and says nothing: is it the monitoring port" in told.stderr


def test_dashboard_looks_at_the_cluster_from_the_start_on(server):
    def told():
        return server.get("/api/v1/news").json["sentence"]

    until(lambda: told().startswith("Everything works: this node is ready"), why=told)


def asked(server, path, host="127.0.0.1"):
    """Status, headers and text of a page asked for by a name."""
    with socket.create_connection(("127.0.0.1", server.http), timeout=20) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        with connection.makefile("rb") as file:
            head, _, body = file.read().decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return int(status.split()[1]), {name.lower(): text for name, text in (line.split(": ", 1) for line in lines)}, body


PAGES = (
    *(
        "/streaming",
        "/streaming/serverz",
        "/streaming/clientsz",
        "/streaming/channelsz?subs=1",
        "/varz",
        "/connz?subs=1",
    ),
    *("/metrics", "/dashboard/", "/api/v1/channels", "/api/v1/session", "/healthz/ready", "/"),
)
STRANGE = ("evil.example", "evil.example:8222", "127.0.0.1.evil.example", "xstan.example")
OWN = ("127.0.0.1", "[::1]:8222", "localhost", socket.gethostname(), "stan.example", "n1.nodes.example")


def test_site_whose_name_points_here_reads_no_page_wherever_the_server_listens(tmp_path):
    with Watched(tmp_path, "--http_host", "0.0.0.0", "--http_hosts", "stan.example, *.nodes.example") as server:  # noqa: S104
        for path in PAGES:
            for host in STRANGE:
                status, headers, body = asked(server, path, host)
                assert (status, "access-control-allow-origin" in headers) == (403, False), (path, host)
                assert "--http_hosts" in body
            for host in OWN:
                assert asked(server, path, host)[0] == 200, (path, host)


SCRIPTS = ("alert(1)//", "f;g", "a%20b", "%3Cscript%3E", "f%28", "f&callback=g(1)", "%0a", "f%00", "%C3%A9", "f" * 257)


def test_callback_is_the_name_of_a_function_and_no_script(server):
    for path in ("/streaming/serverz", "/streaming/clientsz", "/varz", "/connz"):
        for callback in SCRIPTS:
            status, headers, body = asked(server, f"{path}?callback={callback}")
            assert (status, body) == (400, "callback is not the name of a function\n"), (path, callback)
            assert headers["content-type"].startswith("text/plain")
        for callback in ("f", "jQuery17.$cb_1", "window.angular.callbacks._0"):
            status, _, body = asked(server, f"{path}?callback={callback}")
            assert status == 200
            assert path.startswith("/streaming") <= body.startswith(f"{callback}(")
        assert asked(server, f"{path}?callback=")[0] == 200


async def test_pages_that_tell_of_inboxes_are_not_for_other_sites(server):
    clients, channels = "/streaming/clientsz", "/streaming/channelsz"
    async with await stan_client.connect(server.url, client_id="billing") as client:
        await client.subscribe("orders", lambda _message: None, durable="ledger")
        for path in (clients, f"{clients}?subs=1", f"{channels}?subs=1", "/connz?subs=1", "/subsz"):
            for callback in ("", "callback=f"):
                where = f"{path}{'&' if '?' in path else '?'}{callback}"
                status, headers, _ = await asyncio.to_thread(asked, server, where)
                assert status == 200
                assert "access-control-allow-origin" not in headers, where
                assert headers["cross-origin-resource-policy"] == "same-origin"
        for path in ("/streaming/serverz", "/streaming/storez", channels, f"{channels}?subs=0", "/varz"):
            status, headers, body = await asyncio.to_thread(asked, server, path)
            assert (status, headers["access-control-allow-origin"]) == (200, "*")
            assert "_INBOX" not in body


async def test_248_pages_asked_for_while_it_starts_again(server):
    async with await stan_client.connect(server.url, client_id="me") as client:
        for number in range(50):
            await client.publish_many(f"c{number}", [b"x"] * 20)
        seen, over = [], threading.Event()

        def poll():
            while not over.is_set():
                for path in ("/streaming/channelsz?subs=1", "/streaming/serverz", "/metrics", "/healthz/ready"):
                    with suppress(OSError):
                        seen.append((path, server.get(path).status))

        polling = threading.Thread(target=poll)
        polling.start()
        try:
            for _ in range(2):
                await asyncio.to_thread(server.kill9)
                await asyncio.to_thread(server.start)
                before = len(seen)
                await asyncio.to_thread(until, lambda before=before: len(seen) > before + 4)
        finally:
            over.set()
            polling.join()
        assert {status for path, status in seen if path != "/healthz/ready"} == {200}
        await client.publish("c0", b"x")  # waits until the client is connected again
        assert (await get(server, "/streaming/serverz")).json["total_msgs"] == 1001


def test_what_strangers_send_reaches_no_other_server_and_no_log(server):
    def answer(line):
        with socket.create_connection(("127.0.0.1", server.http), timeout=20) as connection:
            connection.sendall(f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            with connection.makefile("rb") as file:
                return file.read().decode()

    before = server.log()
    for target, place in (
        ("//streaming/channelsz", "/streaming/channelsz"),
        ("/streaming//channelsz?subs=1", "/streaming/channelsz?subs=1"),
        ("/streaming/../varz/.", "/varz"),
        ("//other.example//", "/other.example/"),
        ("/../..", "/"),
    ):
        head = answer(f"GET {target}")
        assert head.split()[1] == "301"
        assert f"Location: {place}\r\n" in head
    for target in ("@127.0.0.1/varz", "http://127.0.0.1/varz", "127.0.0.1:80", "*"):
        assert answer(f"GET {target}").split()[1] in {"400", "404"}
    assert answer("GET /varz").split()[1] == "200"
    head, _, body = answer("HEAD /varz").partition("\r\n\r\n")
    assert (head.split()[1], body) == ("200", "")
    assert server.log() == before


def test_health_of_a_broker_whose_nats_goes_and_comes(tmp_path):
    with NatsServer(tmp_path) as nats, Watched(tmp_path, nats_url=nats.url) as server:
        for state in ("live", "startup", "ready"):
            answer = server.get(f"/healthz/{state}")
            assert (answer.status, answer.json) == (200, {"status": "ok", "reasons": []})
        assert server.get("/varz").status == 404
        nats.kill()
        until(lambda: server.get("/healthz/ready").status == 503)
        lost = {"status": "unavailable", "reasons": ["there is no connection to NATS"]}
        assert server.get("/healthz/ready").json == lost
        assert (server.get("/healthz/live").status, server.get("/healthz/startup").status) == (200, 200)
        nats.start()
        until(lambda: server.get("/healthz/ready").status == 200)


def test_it_listens_on_the_loopback_interface_unless_told_otherwise(tmp_path):
    def bound(server):
        (line,) = re.findall(r"STREAM: Starting http monitor on (.*)", server.log())
        return line

    (tmp_path / "one").mkdir()
    with Watched(tmp_path / "one", host="0.0.0.0") as server:  # noqa: S104 - of NATS
        assert bound(server) == f"127.0.0.1:{server.http}"
        assert f"Dashboard: http://127.0.0.1:{server.http}/dashboard/\n" in server.log()
        assert server.get("/streaming/serverz").status == 200
    (tmp_path / "two").mkdir()
    with Watched(tmp_path / "two", "--http_host", "0.0.0.0") as server:  # noqa: S104 - that is the point
        assert bound(server) == f"0.0.0.0:{server.http}"


def test_port_that_is_taken_ends_the_start_with_a_clear_error(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = StanServer(tmp_path, "-m", str(port))
        try:
            server.launch()
            assert server.wait_for_end() == 1
        finally:
            server.sweep()
    assert f"unable to start monitoring server on 127.0.0.1:{port}: address already in use" in server.log()


def test_pages_over_https(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1")
    ]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no openssl that makes a certificate")
    conf = tmp_path / "stan.conf"
    port = free_port()
    conf.write_text(f'https: "127.0.0.1:{port}"\n')
    with StanServer(
        tmp_path, "-c", str(conf), "--tlscert", str(certificate), "--tlskey", str(key), "--tls=false"
    ) as server:
        context = ssl.create_default_context(cafile=str(certificate))
        assert Answer(f"https://localhost:{port}/streaming/serverz", context).json["state"] == "STANDALONE"
        assert Answer(f"https://localhost:{port}/varz", context).status == 200
        before = server.log()
        with pytest.raises(OSError):  # noqa: PT011 - whatever the other side makes of it
            Answer(f"http://localhost:{port}/varz")
        assert server.log() == before


async def test_each_node_of_a_cluster_tells_what_it_knows(tmp_path):
    ports = {}
    cluster = StanCluster(tmp_path)
    for name, node in cluster.nodes.items():
        ports[name] = free_port()
        node._command += ["-m", str(ports[name])]

    def page(name, path):
        return Answer(f"http://127.0.0.1:{ports[name]}{path}")

    with cluster:
        async with await stan_client.connect(cluster.url.split(","), client_id="me") as client:
            await client.publish_many("orders", [b"x"] * 10)
            got = []
            await client.subscribe("orders", got.append, durable="d", start=stan_client.everything())
            await eventually(lambda: len(got) == 10, 20)
            leader = await asyncio.to_thread(cluster.leader_of, "orders")

            def seen(name):
                found = page(name, "/streaming/channelsz?channel=orders&subs=1")
                return found.status == 200 and (found.json["msgs"], found.json["subs_count"]) == (10, 1)

            for name in cluster.names:
                await asyncio.to_thread(until, lambda name=name: seen(name))  # copies follow
                state = (await asyncio.to_thread(page, name, "/streaming/serverz")).json
                assert (state["state"], state["node_id"], state["clients"]) == ("CLUSTERED", name, 1)
                assert state["role"] in {"Leader", "Follower"}
                metrics = (await asyncio.to_thread(page, name, "/metrics")).text
                assert ('stan_channel_messages{channel="orders"} 10.0' in metrics) == (name == leader)
                assert f'stan_group_leader{{group="{cluster.group_of("orders")}",node="{leader}"}} 1.0' in metrics
        left, *gone = cluster.names
        await asyncio.to_thread(cluster.kill9, *gone)

        def lonely():
            reasons = page(left, "/healthz/ready").json["reasons"]
            return reasons and all("leader" in reason or "majority" in reason for reason in reasons)

        await asyncio.to_thread(until, lonely, why=lambda: page(left, "/healthz/ready").text)


def keda_lag(page, queue):
    """The lag by which KEDA's `stan` scaler counts the pods of a queue group, from its one request."""
    sent = max([one["last_sent"] for one in page["subscriptions"] if one.get("queue_name") == queue], default=0)
    return page["last_seq"] - sent


async def test_keda_finds_the_fields_that_it_asks_for(server):
    async with await stan_client.connect(server.url, client_id="worker") as client:
        await client.publish_many("jobs", [b"x" * 100] * 50)
        start = stan_client.everything()
        options = {"durable": "shift", "queue": "packers", "start": start, "manual_acks": True, "max_in_flight": 20}
        queue = await client.subscribe("jobs", **options)
        [await anext(queue) for _ in range(20)]
        page = (await get(server, "/streaming/channelsz?channel=jobs&subs=1")).json
        assert keda_lag(page, "shift:packers") == 30
        assert [one["pending_count"] for one in page["subscriptions"]] == [20]
        assert (await get(server, "/streaming/channelsz?channel=nobody&subs=1")).status == 404
        assert (await get(server, "/streaming/channelsz")).status == 200
    text = (await get(server, "/metrics?legacy=nss")).text
    assert f'nss_server_active{{server_id="http://127.0.0.1:{server.http}"}} 0' in text
    assert (await get(server, "/metrics?legacy=other")).status == 400


async def test_metrics_and_pages_of_a_channel_with_parts_are_those_of_its_parts(server):
    async with await stan_client.connect(server.url, client_id="me") as client:
        await client.admin.create_parts("sales", 2)
        for number in range(20):
            await client.publish("sales", b"x", key=f"k{number}")
        await client.publish("plain", b"x")
        found = (await get(server, "/metrics?channel=sales")).text
        kept = dict(re.findall(r'stan_channel_messages\{channel="([^"]+)"\} ([0-9.]+)', found))
        assert sorted(kept) == ["sales.~0", "sales.~1"]
        assert sum(map(float, kept.values())) == 20
        page = (await get(server, "/api/v1/channel?name=sales")).json
        counts = [float(kept[name]) for name in sorted(kept)]
        assert (page["messages"], [part["messages"] for part in page["parts"]]) == (20, counts)
