"""The chart of deploy/helm, rendered by Helm itself: schemas, what the server says to the configuration, and what is refused.

Without a helm, and without an index that has one (tests.kit.helm), all but the first tests are skipped.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from stan.product import VERSION
from stan.settings.config_check import examine
from tests.deploy.test_deploy_files import KUBERNETES, checked
from tests.kit.certificates import Authority
from tests.kit.helm import FETCH_SECONDS_MAX, helm_program
from tests.kit.ports import free_port
from tests.kit.server import CLUSTER_ID, ROOT, StanServer, until
from tests.version import for_chart

CHART = ROOT / "deploy" / "helm" / "stan"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
NAMES = [path.name.removesuffix("-values.yaml") for path in VALUES]
SECRETS = {
    "stan-nats/nats.conf": 'authorization { users: [{ user: alice, password: "s3cret" }] }',
    "stan-streaming/streaming.conf": 'encryption_key: "a key of sixteen bytes or more"',
    "stan-creds/sys.creds": "",
}
"""Files of the secrets that the values name, below /etc."""

pytestmark = pytest.mark.timeout(FETCH_SECONDS_MAX)

Rendering = dict[tuple[str, str], dict]
Render = Callable[..., Rendering]


def manifests(text: str) -> Rendering:
    """Manifests by kind and name."""
    return {(m["kind"], m["metadata"]["name"]): m for m in yaml.safe_load_all(text) if m}


@pytest.fixture(scope="session")
def helm(tmp_path_factory):
    """Runs helm in the chart's directory, with files of its own in a temporary directory."""
    home = tmp_path_factory.mktemp("helm")
    program = helm_program(home)
    if program is None:
        pytest.skip("there is no helm, and none in the index")
    homes = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}

    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [str(program), *arguments]
        return subprocess.run(command, cwd=CHART, env=os.environ | homes, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def render(helm) -> Render:
    """Renders the chart with a values file, or with what `--set` says."""

    def rendered(*arguments: str) -> Rendering:
        done = helm("template", "stan", ".", "--namespace", "messages", *arguments)
        assert done.returncode == 0, done.stderr
        return manifests(done.stdout)

    return rendered


@pytest.fixture(scope="session", params=VALUES, ids=NAMES)
def each(request, render) -> Rendering:
    return render("-f", str(request.param))


@pytest.fixture(scope="session")
def cluster(render) -> Rendering:
    return render("-f", str(CHART / "ci" / "cluster-values.yaml"))


@pytest.fixture(scope="session")
def secured(render) -> Rendering:
    return render("-f", str(CHART / "ci" / "tls-auth-values.yaml"))


def pod_of(found: Rendering) -> dict:
    return found["StatefulSet", "stan"]["spec"]["template"]["spec"]


def configuration_in(found: Rendering, folder: Path) -> Path:
    """The configuration as a file, and beside it what the pods have below /etc."""
    etc = folder / "etc"
    for name in ("stan", "stan-tls", "stan-routes-tls", "nats/certs", "stan-nats", "stan-streaming", "stan-creds"):
        (etc / name).mkdir(parents=True)
    for name, text in SECRETS.items():
        (etc / name).write_text(text)
    authority = Authority(folder)
    pair = authority.sign("stan", host="127.0.0.1")
    for name in ("stan-tls", "stan-routes-tls", "nats/certs"):
        (etc / name / "ca.crt").write_bytes(authority.ca.read_bytes())
        (etc / name / "tls.crt").write_bytes(pair.cert.read_bytes())
        (etc / name / "tls.key").write_bytes(pair.key.read_bytes())
    text = found["ConfigMap", "stan"]["data"]["stan.conf"]
    conf = etc / "stan" / "stan.conf"
    conf.write_text(text.replace('"/etc/', f'"{etc}/').replace('"/data/', f'"{folder}/data/'))
    return conf


# --- without helm ---------------------------------------------------------------------------------------------------------


def test_chart_is_of_the_version_of_the_server():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (for_chart(VERSION), VERSION)


def test_every_value_has_a_place_in_the_schema():
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(yaml.safe_load((CHART / "values.yaml").read_text())) <= set(schema["properties"])
    checked("check-jsonschema", "--check-metaschema", CHART / "values.schema.json")


def test_every_value_is_explained():
    readme = (CHART / "README.md").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    for name, section in schema["properties"].items():
        assert f"`{name}" in readme, name
        for inner in section.get("properties", {}):
            assert f"`{name}.{inner}" in readme or f"`{inner}`" in readme, f"{name}.{inner}"


# --- with helm ------------------------------------------------------------------------------------------------------------


def test_chart_has_no_lint(helm):
    done = helm("lint", "--strict", ".", *(f"--values={path}" for path in VALUES[:1]))
    assert done.returncode == 0, done.stdout + done.stderr


def test_manifests_fit_their_schemas(each, tmp_path):
    known = [manifest for (kind, _), manifest in each.items() if kind != "ServiceMonitor"]  # Prometheus' operator's
    assert len(known) >= 3
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(yaml.safe_dump_all(known))
    checked("kubernetes-validate", "--strict", "-k", KUBERNETES, rendered)


def test_configuration_is_one_that_the_server_takes(each, tmp_path):
    """Of NATS's part the bundled nats-server is asked."""
    environ = os.environ | {"STAN_NODE": "stan-1", "STAN_TRACES": "http://traces:4318"}
    (tmp_path / "data" / "stan").mkdir(parents=True)
    found = examine(configuration_in(each, tmp_path), [], environ)
    assert not found.complaints
    assert not found.notices


def test_pods_are_as_restricted_as_can_be_and_probed(each):
    pod = pod_of(each)
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    probes = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert probes == {"startup": "/healthz/startup", "readiness": "/healthz/ready", "liveness": "/healthz/live"}


def test_what_is_mounted_is_there(each):
    stateful = each["StatefulSet", "stan"]["spec"]
    claimed = {claim["metadata"]["name"] for claim in stateful.get("volumeClaimTemplates", [])}
    volumes = {volume["name"] for volume in pod_of(each)["volumes"]} | claimed
    (container,) = pod_of(each)["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_what_selects_selects_the_pods(each):
    stateful = each["StatefulSet", "stan"]["spec"]
    labels = stateful["template"]["metadata"]["labels"].items()
    selectors = [stateful["selector"]["matchLabels"]]
    for (kind, _), manifest in each.items():
        match kind:
            case "Service":
                selectors.append(manifest["spec"]["selector"])
            case "PodDisruptionBudget":
                selectors.append(manifest["spec"]["selector"]["matchLabels"])
            case "NetworkPolicy":
                selectors.append(manifest["spec"]["podSelector"]["matchLabels"])
    assert len(selectors) >= 2
    assert all(selector.items() <= labels for selector in selectors)


def test_nodes_of_a_cluster_find_each_other_before_they_are_ready(cluster):
    stateful, service = cluster["StatefulSet", "stan"]["spec"], cluster["Service", "stan-nodes"]["spec"]
    assert (stateful["serviceName"], stateful["podManagementPolicy"], stateful["replicas"]) == (
        "stan-nodes",
        "Parallel",
        3,
    )
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"]
    assert cluster["PodDisruptionBudget", "stan"]["spec"]["maxUnavailable"] == 1
    text = cluster["ConfigMap", "stan"]["data"]["stan.conf"]
    for node in range(3):
        assert f"nats://stan-{node}.stan-nodes:6222" in text


def test_options_win_over_values_and_keep_their_kinds(cluster):
    text = cluster["ConfigMap", "stan"]["data"]["stan.conf"]
    for part in (
        '"max_bytes":10GB',
        '"raft_groups":16',
        '"orders.>"',
        "trace_endpoint: $STAN_TRACES",
        '"node_id":$STAN_',
    ):
        assert part in text


def test_monitor_asks_the_nodes(cluster):
    monitor = cluster["ServiceMonitor", "stan"]
    service = cluster["Service", "stan-nodes"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["selector"]["matchLabels"].items() - cluster["Service", "stan"]["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")


def test_no_secret_is_in_the_configuration_and_those_named_are_mounted(secured):
    mounted = {volume["secret"]["secretName"] for volume in pod_of(secured)["volumes"] if "secret" in volume}
    assert mounted == {"stan-tls", "stan-routes", "stan-users", "stan-keys"}
    policy = secured["NetworkPolicy", "stan"]["spec"]["ingress"]
    (clients,) = (rule for rule in policy if rule["ports"][0]["port"] == "clients")
    assert len(clients["from"]) == 2, "those named, and the pods themselves"


def test_zones_are_spread_over_as_asked(secured):
    (spread,) = pod_of(secured)["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "DoNotSchedule")
    assert spread["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "stan"


def test_external_nats_leaves_no_port_for_clients(render):
    found = render("-f", str(CHART / "ci" / "external-nats-values.yaml"))
    assert ("Service", "stan") not in found
    (container,) = pod_of(found)["containers"]
    assert [port["name"] for port in container["ports"]] == ["monitor"]


OLD = """
stan:
  clusterID:
  logging: { debug: , trace: }
  auth: { enabled: false }
  nats: { url: , serviceRoleAuth: { enabled: false, natsClusterName: } }
store:
  ft: { group: }
  backup: { enabled: false, sleepTime: 3600 }
  volume: { storageClass: }
  sql: { driver: postgres, source: "", initdb: { enabled: false, image: "postgres:11" }, dbPort: 5432 }
nats: { image: nats, pingInterval: , limits: { maxPings: }, logging: { logtime: } }
cluster: { enabled: true }
gateway: { enabled: false, name: default }
reloader: { enabled: true }
bootconfig: { pullPolicy: IfNotPresent }
securityContext:
readinessProbe: { httpGet: { path: /streaming/serverz, port: monitor } }
"""
"""Values that the old chart has by itself, and that people's files repeat."""


def test_values_that_the_old_chart_has_by_itself_change_nothing(render, tmp_path):
    values = tmp_path / "old.yaml"
    values.write_text(OLD)
    old, new = render("-f", str(values)), render()
    probes = [pod_of(found)["containers"][0].pop("readinessProbe") for found in (old, new)]
    assert probes[0]["httpGet"]["path"] == "/streaming/serverz"
    assert old == new


class Visitor:
    """Publishes by `stan pub`, by TLS, with or without a certificate of its own."""

    def __init__(self, etc: Path) -> None:
        self._trusting = ("--tls-ca", etc / "stan-tls" / "ca.crt")
        self._own = ("--tls-cert", etc / "stan-tls" / "tls.crt", "--tls-key", etc / "stan-tls" / "tls.key")

    def publishes(self, server: StanServer, login: str = "alice:s3cret", *, shown: bool = True) -> bool:
        """Whether it could."""
        url = server.url.replace("nats://", f"tls://{login}@")
        options = ("-c", CLUSTER_ID, "-s", url, *self._trusting, *(self._own if shown else ()))
        command = (sys.executable, "-m", "stan.cli.main", "pub", "orders", "hello", *options)
        return subprocess.run([*map(str, command)], capture_output=True, check=False).returncode == 0


def test_secured_server_takes_those_with_a_login_and_a_certificate(render, tmp_path):
    one = ("stan.replicas=1", "store.cluster.enabled=false")
    found = render("-f", str(CHART / "ci" / "tls-auth-values.yaml"), *(f"--set={value}" for value in one))
    conf = configuration_in(found, tmp_path)
    visitor = Visitor(conf.parents[1])
    with StanServer(tmp_path, "-c", str(conf), "-m", str(free_port()), "--http_host", "127.0.0.1") as server:
        assert visitor.publishes(server)
        assert not visitor.publishes(server, "alice:wrong")
        assert not visitor.publishes(server, shown=False)


def test_secured_nodes_become_a_cluster(secured, tmp_path, monkeypatch):
    """With the pods' configuration, but for names of machines and ports."""
    conf = configuration_in(secured, tmp_path)
    names = [f"stan-{number}" for number in range(3)]
    ports = {name: str(free_port()) for name in names}
    text = conf.read_text()
    for name, port in ports.items():
        text = text.replace(f"{name}.stan-nodes:6222", f"127.0.0.1:{port}")
    nodes = {}
    with contextlib.ExitStack() as stack:
        for name, port in ports.items():
            own, home = conf.with_name(f"{name}.conf"), tmp_path / name
            own.write_text(text.replace('"port":6222', f'"port":{port}'))
            home.mkdir()
            flags = ("-c", str(own), "-m", str(free_port()), "--http_host", "127.0.0.1")
            nodes[name] = StanServer(home, *flags)
            monkeypatch.setenv("STAN_NODE", name)
            nodes[name].launch()
            stack.callback(nodes[name].sweep)
        for node in nodes.values():
            node.wait_until_ready()
        visitor = Visitor(conf.parents[1])
        assert all(visitor.publishes(node) for node in nodes.values())
        nodes["stan-0"].kill9()
        until(lambda: visitor.publishes(nodes["stan-1"]))


REFUSED = {
    "stan.image=nats-streaming:0.25.6": "old server",
    "stan.nats.serviceRoleAuth.enabled=true": "operator of NATS is gone",
    "stan.auth.password=hunter2": "config.secrets.streaming",
    "auth.enabled=true": "config.secrets.nats",
    "leafnodes.enabled=true": "config.nats",
    "gateway.enabled=true": "config.nats",
    "nats.externalAccess=true": "service.type",
    "clusterReadinessProbe.enabled=true": "ready by itself",
    "store.backup.enabled=true": "stan backup",
    "store.type=sql,store.sql.driver=postgres": "one SQLite file",
    "store.type=sql,store.sql.source=dbname=postgres": "one SQLite file",
    "store.type=memory,store.cluster.enabled=true,stan.replicas=3": "has no cluster",
    "store.cluster.enabled=true": "3 nodes or more",
    "stan.replicas=3": "store.cluster.enabled",
    "store.ft.group=pair,stan.replicas=2": "claimName",
    "store.volume.enabled=false": "lose acknowledged messages",
    "store.file.path=/srv/stan": "store.volume.mount",
    "store.file.path=/data/stanza": "store.volume.mount",
    "stan.tls.enabled=true,stan.nats.url=nats://n:4222": "stan.tls.secretName",
    "stan.tls.enabled=true,stan.tls.secretName=s": "nats.tls",
    "stan.nats.url=nats://n:4222,nats.tls.secret.name=s": "names another one",
    "nats.tls.ca=ca.crt": "secret.name",
    "config.nats.port=4223": "sets the ports",
    "config.streaming.dir=/tmp": "store.file.path",
    "stan.replica=3": "replica",
    "store.type=mongo": "store",
}


@pytest.mark.parametrize("values", REFUSED)
def test_what_cannot_be_is_refused_with_one_sentence(helm, values):
    done = helm("template", "stan", ".", "--set", values)
    assert done.returncode != 0
    assert REFUSED[values] in done.stderr
    if "values.schema.json" not in done.stderr and "schema" not in done.stderr:
        assert done.stderr.count("\n") <= 3, done.stderr


def test_names_of_two_releases_do_not_meet(helm):
    first, second = (manifests(helm("template", name, ".").stdout) for name in ("orders", "bills"))
    assert not first.keys() & second.keys()
    assert first["ConfigMap", "orders"]["data"]["stan.conf"] != second["ConfigMap", "bills"]["data"]["stan.conf"]
