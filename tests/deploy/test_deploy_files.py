"""The files of deploy/, checked as far as a machine without a container engine can: schemas, linters, and the server itself."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stan.monitor.guard import Guard
from stan.monitor.login.authentication import Authentication
from stan.settings.nats_conf import load
from stan.settings.settings import parse
from tests.kit.server import ROOT

DEPLOY = ROOT / "deploy"
NODES = ("stan-0", "stan-1", "stan-2")
CONFIGURATIONS = sorted(DEPLOY.rglob("stan.conf"))
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
KUBERNETES = "1.31"


def tool(name: str) -> str:
    """A program that was installed beside this Python, or for everybody."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def checked(*command: str | Path) -> None:
    """Run a linter; what it says is the reason of a failure."""
    done = subprocess.run([tool(str(command[0])), *map(str, command[1:])], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def documents(path: Path) -> list[dict]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


def manifest(kind: str, name: str = "stan") -> dict:
    found = [m for path in MANIFESTS for m in documents(path) if (m["kind"], m["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1
    return found[0]


# --- the image ------------------------------------------------------------------------------------------------------------


def test_dockerfile_is_clean():
    checked("hadolint", DEPLOY / "Dockerfile")


def test_dockerfile_copies_what_is_there_and_what_is_not_ignored():
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for name in line.split()[:-1]]
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().split() if line.startswith("!")}
    assert set(copied) == kept
    assert all((ROOT / name).exists() for name in copied)


def test_image_runs_as_nobody_special_and_asks_for_its_health():
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert "/healthz/ready" in text
    command = json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)[1])
    config = parse(command).config
    assert (config.store.kind, str(config.store.directory), config.monitor.port) == ("file", "/data", 8222)


@pytest.fixture
def _node_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAN_NODE", "stan-1")


# --- configurations ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_node_of_the_environment")
@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.parent.name)
def test_configuration_is_one_that_the_server_takes(path):
    parsed = parse(["-c", str(path)], load, {})
    assert not parsed.complaints
    assert not parsed.config.validate()
    assert parsed.config.store.kind == "file"
    node = "" if parsed.config.cluster is None else parsed.config.cluster.node_id
    assert node == ("" if path.parent.name == "systemd" else "stan-1")


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_every_node_of_the_three_agrees_about_the_peers(kind):
    text = (DEPLOY / kind / "stan.conf").read_text()
    assert re.search(r"node_id: \$STAN_NODE", text)
    peers = re.search(r"peers: \[(.*)\]", text)[1]
    assert tuple(json.loads(f"[{peers}]")) == NODES
    routes = json.loads("[" + re.search(r"routes: \[(.*)\]", text)[1] + "]")
    assert [route.split("/")[2].split(".")[0].split(":")[0] for route in routes] == list(NODES)


@pytest.mark.usefixtures("_node_of_the_environment")
@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_pages_answer_to_the_names_by_which_they_are_asked_for(kind):
    config = parse(["-c", str(DEPLOY / kind / "stan.conf")], load, {}).config
    guard = Guard(config.monitor, Authentication(config))
    (prometheus,) = documents(DEPLOY / "prometheus" / "prometheus.yml")
    (job,) = prometheus["scrape_configs"]
    names = [f"{name}.stan-nodes{rest}" for name in NODES for rest in ("", ".stan.svc", ".stan.svc.cluster.local")]
    asked = {"compose": job["static_configs"][0]["targets"], "kubernetes": [f"{name}:8222" for name in names]}[kind]
    for host in (*asked, "10.0.0.7:8222", "127.0.0.1:8222"):  # probes ask for the pod's address
        assert not guard.refuses({"Host": host}), host
    assert guard.refuses({"Host": "stan-0.evil.example:8222"})


# --- compose ---------------------------------------------------------------------------------------------------------------


def test_compose_file_fits_its_schema():
    checked("check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose" / "compose.yaml")


def test_compose_has_three_nodes_with_a_volume_each_and_mounts_what_is_there():
    (compose,) = documents(DEPLOY / "compose" / "compose.yaml")
    for name in NODES:
        node = compose["services"][name]
        assert node["environment"] == {"STAN_NODE": name}
        assert f"{name}:/data" in node["volumes"]
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / "compose" / source).exists(), volume
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), "not for the whole world"


# --- Kubernetes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_fits_its_schema(path):
    checked("kubernetes-validate", "--strict", "-k", KUBERNETES, path)


def test_kustomization_names_every_file_and_nothing_else():
    (kustomization,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert set(kustomization["resources"]) == {path.name for path in MANIFESTS}
    for made in kustomization["configMapGenerator"]:
        assert all((DEPLOY / "kubernetes" / name).exists() for name in made["files"])


def test_pods_are_as_restricted_as_can_be_and_probed():
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    probes = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert probes == {"startup": "/healthz/startup", "readiness": "/healthz/ready", "liveness": "/healthz/live"}


def test_nodes_find_each_other_before_they_are_ready():
    stateful, service = manifest("StatefulSet"), manifest("Service", "stan-nodes")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    assert stateful["spec"]["serviceName"] == "stan-nodes"
    assert stateful["spec"]["podManagementPolicy"] == "Parallel"
    assert [f"{stateful['metadata']['name']}-{n}" for n in range(stateful["spec"]["replicas"])] == list(NODES)


def test_what_selects_selects_the_pods():
    labels = manifest("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        manifest("StatefulSet")["spec"]["selector"]["matchLabels"],
        manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        manifest("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        manifest("Service")["spec"]["selector"],
        manifest("Service", "stan-nodes")["spec"]["selector"],
    ]
    assert all(selector == labels for selector in selectors)
    assert manifest("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


# --- systemd -------------------------------------------------------------------------------------------------------------------


def test_unit_is_one_that_systemd_takes(tmp_path):
    """Its program is replaced by one that is there: systemd looks for it."""
    text = (DEPLOY / "systemd" / "stan-server.service").read_text()
    unit = tmp_path / "stan-server.service"
    unit.write_text(text.replace("/opt/stan/bin/stan-server", "/bin/true").replace("User=stan\nGroup=stan\n", ""))
    checked("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)


def test_unit_is_hardened():
    text = (DEPLOY / "systemd" / "stan-server.service").read_text()
    for setting in ("NoNewPrivileges=yes", "ProtectSystem=strict", "User=stan", "CapabilityBoundingSet=\n"):
        assert setting in text
    assert "KillMode=mixed" in text, "the embedded nats-server goes with its broker, by its doing"
