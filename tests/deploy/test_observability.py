"""The dashboard of Grafana and the alerts of Prometheus ask for what a real server tells."""

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest
import yaml

from tests.kit.ports import free_port
from tests.kit.server import ROOT, StanServer, until

DASHBOARD = ROOT / "deploy" / "grafana" / "stan.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
SUFFIXES = ("", "_total", "_bucket", "_sum", "_count", "_info")
OF_PROMETHEUS = {"up"}


def panels() -> list[dict]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def asked_by_dashboard() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [expr.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$channel", ".*") for expr in asked]


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def names_in(expression: str) -> set[str]:
    """Metrics that a query asks for; it must be one."""
    promql_parser.parse(expression)
    return set(re.findall(r"\b(?:stan_\w+|up)\b(?=\s*(?:\{|[\[)=<>]|$))", expression))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """Names of all series that a server tells of."""
    port = free_port()
    with StanServer(tmp_path_factory.mktemp("server"), "-m", str(port)):
        page: list[str] = []

        def asked() -> bool:
            with (
                contextlib.suppress(OSError),  # it is asked again
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer,
            ):
                page[:] = answer.read().decode().splitlines()
            return any("stan_sync_seconds" in line for line in page)

        until(asked)
        families = {line.split()[2] for line in page if line.startswith("# TYPE")}
        yield {name + suffix for name in families for suffix in SUFFIXES} | OF_PROMETHEUS


def test_every_panel_asks_for_something_that_is_told(told):
    asked = asked_by_dashboard()
    assert len(asked) >= 15
    for expression in asked:
        names = names_in(expression)
        assert names, expression
        assert names <= told, expression


def test_every_alert_asks_for_something_that_is_told_and_says_what_it_means(told):
    for rule in rules():
        names = names_in(rule["expr"])
        assert names, rule
        assert names <= told, rule
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_panels_do_not_overlap_and_have_numbers_of_their_own():
    places = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places, panel["title"]
        assert max(x for x, _ in cells) < 24
        places |= cells
    numbers = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(numbers) == len(set(numbers))


def test_prometheus_is_told_of_the_nodes_and_the_alerts():
    prometheus = yaml.safe_load((ALERTS.parent / "prometheus.yml").read_text())
    assert all((ALERTS.parent / name).exists() for name in prometheus["rule_files"])
    (job,) = prometheus["scrape_configs"]
    (static,) = job["static_configs"]
    compose = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())
    assert {target.split(":")[0] for target in static["targets"]} <= set(compose["services"])


def test_grafana_finds_its_dashboard_and_its_source():
    provisioning = Path(ROOT / "deploy" / "compose" / "grafana" / "provisioning")
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "stan.yaml").read_text())["providers"]
    compose = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())
    assert f"../grafana:{provider['options']['path']}:ro" in compose["services"]["grafana"]["volumes"]
