"""The table of requests: each is served once, is what docs/admin-api.md says, and is refused by whoever would have answered."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from docs.generator.requests import comments
from stan.core.requests.table import ORIGINAL, REQUESTS, Scope
from stan.permissions import Right
from tests.kit.core_harness import CLUSTERED, CoreHarness

PAGE = Path(__file__).parents[3] / "docs" / "admin-api.md"
SECURITY = PAGE.with_name("security.md")
PREFIX = "_STAN.x.test-cluster."
OF_EDGE = {"fetch", "replica.fetch", "admin.nodes", "admin.options", "admin.verify", "admin.explain", "admin.step_down"}
ANSWERS = {
    "channel": Scope.CHANNEL,
    "app": Scope.APP,
    "each leader": Scope.LEADERS,
    "metadata": Scope.METADATA,
    "owner": Scope.OWNER,
    "group": Scope.GROUP,
    "each node": Scope.EACH_NODE,
    "node": Scope.NAMED_NODE,
    "replica": Scope.REPLICA,
}
RIGHTS = {
    "subscribe": Right.SUBSCRIBE,
    "publish": Right.PUBLISH,
    "admin_read": Right.ADMIN_READ,
    "admin_write": Right.ADMIN_WRITE,
}


def documented():
    """For each request of clients on the page, its name and its row's cells."""
    for line in PAGE.read_text(encoding="utf-8").partition("## Operators")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "Request" in line and line.startswith("| `"):
            yield cells[0].strip("`"), cells


ROWS = dict(documented())
COMMENTS = comments().blocks


def test_every_request_is_on_the_page():
    operators = PAGE.read_text(encoding="utf-8").partition("## Operators")[2]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^Requests?: .*", operators, re.MULTILINE))))
    assert ROWS.keys() | {"replica.fetch"} | {f"admin.{name}" for name in named} == REQUESTS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_a_request_is_what_the_page_says(name):
    _, messages, scope, rights, _ = ROWS[name]
    kind = REQUESTS[name]
    assert messages == f"{kind.request.DESCRIPTOR.name} → {kind.response.DESCRIPTOR.name}"
    assert kind.scope is ANSWERS[scope]
    named = {RIGHTS[word] for word in re.findall(r"`(\w+)`", rights) if word in RIGHTS}
    assert named
    assert named <= set(kind.rights)


@pytest.mark.parametrize("name", [name for name in REQUESTS if name.startswith("admin.")])
def test_a_request_of_operators_is_answered_by_whom_its_comment_names(name):
    said = COMMENTS[REQUESTS[name].request.DESCRIPTOR.name]
    assert f"`{name.removeprefix('admin')}`" in said
    assert REQUESTS[name].scope is ANSWERS[re.match(r"[^:]*: ([a-z ]+)", said)[1]]


def said_of_security():
    """Of each right, the requests that its row in the page about permissions names."""
    for line in SECURITY.read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| `(\w+)` \| (.*) \|", line)
        if row is not None and row[1] in RIGHTS:
            names = [name if name in REQUESTS else f"admin.{name}" for name in re.findall(r"`(\w+)`", row[2])]
            yield RIGHTS[row[1]], {name for name in names if name in REQUESTS}


def test_the_page_about_permissions_says_which_right_a_request_needs():
    said = dict(said_of_security())
    assert said.keys() == set(RIGHTS.values())
    wrong = {(right, name) for right, names in said.items() for name in names if right not in REQUESTS[name].rights}
    assert not wrong
    lists = {name for name, kind in REQUESTS.items() if name.startswith("admin.") and name.endswith("s")}
    for right in (Right.PUBLISH, Right.SUBSCRIBE, Right.ADMIN_READ):
        needing = {name for name, kind in REQUESTS.items() if kind.rights[0] is right}
        assert needing - {"replica.fetch", "admin.delayed"} - lists <= said[right]


def test_each_request_is_served_once():
    of_core = {subject.removeprefix(PREFIX) for subject in CoreHarness().broker.frames.routes}
    assert not of_core & OF_EDGE
    assert of_core | OF_EDGE == REQUESTS.keys()


def test_each_request_of_the_original_is_served():
    config = replace(CLUSTERED, cluster=replace(CLUSTERED.cluster, allow_add_remove=True))
    broker = CoreHarness(config=config).broker
    assert {getattr(broker.view.subjects, name).encode() for name in ORIGINAL} == broker.frames.original.keys()


@pytest.mark.parametrize("name", REQUESTS)
def test_every_answer_can_carry_an_error(name):
    fields = REQUESTS[name].response.DESCRIPTOR.fields_by_name
    assert {"error", "retry"} <= set(fields)
    assert (REQUESTS[name].scope is Scope.LEADERS) == ("pool" in fields)


@pytest.mark.parametrize("name", [name for name in REQUESTS if name.startswith("admin.")])
def test_every_request_of_operators_has_a_version(name):
    assert "version" in REQUESTS[name].request.DESCRIPTOR.fields_by_name
    changing = REQUESTS[name].rights == (Right.ADMIN_WRITE,)
    assert changing == (REQUESTS[name].response.DESCRIPTOR.name == "ChangeResponse")
