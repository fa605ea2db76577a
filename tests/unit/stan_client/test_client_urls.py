"""URLs of servers, and what connecting raises: one sentence each, of the client's errors, without secrets."""

import pytest
import stan_client
from stan_client.transport.connection import check_urls

from tests.kit.ports import free_port

NO_URLS = {
    "::::": "[Pp]ort",
    "nats://": "names no host",
    "nats://127.0.0.1:notaport": "[Pp]ort",
    "nats://127.0.0.1:70000": "[Pp]ort",
    "nats://127.0.0.1:0": "no port to connect to",
    "http://127.0.0.1:4222": "scheme is none of nats, tls, ws, wss",
    "": "names no host",
}


@pytest.mark.parametrize("url", NO_URLS)
async def test_what_is_no_url_is_named_by_both_clients(url) -> None:
    expected = f"stan: '.*' is no NATS URL: .*{NO_URLS[url]}"
    with pytest.raises(stan_client.InvalidUrlError, match=expected):
        await stan_client.connect(["nats://127.0.0.1:1", url], client_id="me", cluster_id="c")
    with pytest.raises(stan_client.StanClientError, match=expected):
        await stan_client.Direct([url]).open()


@pytest.mark.parametrize(
    "url", ["127.0.0.1", "localhost:4222", "nats://u:p@h:4222", "TLS://h", "wss://h:443/path", "nats://[::1]:1"]
)
def test_what_nats_takes_is_a_url(url) -> None:
    check_urls([url])


async def test_a_refused_connection_is_an_error_of_the_client_and_names_no_secret(tmp_path) -> None:
    url = f"nats://bob:swordfish@127.0.0.1:{free_port()}"
    with pytest.raises(stan_client.CannotConnectError, match=r"cannot connect to nats://\*+@127.0.0.1:\d+: ") as caught:
        await stan_client.connect(url, client_id="me", cluster_id="c")
    assert caught.value.passing
    assert isinstance(caught.value, OSError)
    assert "swordfish" not in str(caught.value)
    missing = {"tls_ca": str(tmp_path / "no.pem")}
    with pytest.raises(stan_client.CannotConnectError, match="No such file"):
        await stan_client.Direct(url, nats_options=missing).open()


async def test_a_url_in_the_place_of_the_cluster_id_is_told() -> None:
    with pytest.raises(stan_client.InvalidNameError, match="has a URL in it, not a cluster id"):
        await stan_client.connect(client_id="prod", cluster_id="nats://127.0.0.1:4222")
