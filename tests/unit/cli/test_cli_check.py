"""`stan check` and `stan doctor`: exit codes, thresholds, and the next step for what is wrong."""

import base64
import json
import time

import pytest
import stan_client
from stan_client.requests.admin import Nodes
from stan_protocol.admin_types import ClientStatus, GroupStatus, NodeStatus
from stan_protocol.scalars import SECOND
from typer.testing import CliRunner

from stan.cli.main import app
from stan.cli.support import session
from stan.errors import NO_VOTE
from stan.monitor.dashboard import rows
from stan.status.findings import check_groups
from stan.status.groups import groups_of
from stan.troubles import VOTELESS
from tests.kit.fake_operator import FakeDirect, channel, durable, member

DAY = 86_400 * SECOND


@pytest.fixture(autouse=True)
def servers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake = FakeDirect()
    fake.admin.all_channels = [channel()]
    monkeypatch.setattr(session, "open_direct", lambda *_: fake)
    return fake


def stan(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("left", "arguments", "word"),
    [
        (15 * DAY, (), "OK"),
        (13 * DAY, (), "WARNING - the certificate of NATS ends in 12d"),
        (DAY, (), "CRITICAL"),
        (-DAY, (), "CRITICAL - the certificate of NATS has ended"),
        (DAY, ("--expiry", "2h,1h"), "OK"),
    ],
)
def test_a_certificate_that_ends_soon_is_told_in_time(servers, left, arguments, word):
    servers.certificate_until_ns = time.time_ns() + left
    done = stan("check", *arguments)
    assert done.stdout.startswith(f"STAN {word}"), done.stdout


def test_a_login_that_ends_soon_is_told_in_time(tmp_path):
    file = tmp_path / "me.creds"

    def credentials(claims):
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        file.write_text(f"-----BEGIN NATS USER JWT-----\nhead.{body}.signature\n------END NATS USER JWT------\n")
        return stan("check", "--creds", str(file)).stdout

    assert f"CRITICAL - the login in {file} ends in 59m" in credentials({"exp": int(time.time()) + 3599})
    assert "OK" in credentials({"exp": int(time.time()) + 100 * DAY // SECOND})
    for claims in ({}, {"exp": 0}, {"exp": "x"}, [1], None):
        assert "OK" in credentials(claims), claims
    file.write_text("nothing")
    assert "OK" in stan("check", "--creds", str(file)).stdout


def test_all_is_well():
    done = stan("check", "--nodes", "1")
    assert done.exit_code == 0
    assert done.stdout.startswith("STAN OK - all is well | nodes=1")
    assert stan("doctor").exit_code == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--lag", "11,20"), 0),
        (("--lag", "5,20"), 1),
        (("--lag", "5,10"), 2),
        (("--lag", "10"), 2),
        (("--lag", "5,"), 1),
        (("--pending", "2,9"), 1),
        (("--oldest", "5m,1h"), 2),
        (("--stuck",), 2),
        (("--nodes", "2"), 2),
        (("--channel", "other", "--lag", "1"), 0),
        (("--lag", "many"), 3),
        (("--lag", "20,10"), 3),
        (("--disk", "5,15"), 3),
        (("--name", "gone"), 2),
    ],
)
def test_thresholds(servers, options, code):
    servers.admin.all_cursors = [durable(pending=3, waiting=7, oldest_pending=1)]
    assert stan("check", *options).exit_code == code


def test_disks(servers):
    servers.admin.all_nodes = Nodes([NodeStatus(disk_free=10, disk_total=100)], [])
    assert stan("check").exit_code == 1
    assert stan("check", "--disk", "9,5").exit_code == 0
    assert stan("check", "--disk", "20,10").exit_code == 2


def test_groups_without_leader_and_nodes_that_are_away_are_critical(servers):
    groups = [GroupStatus(group=1, role="follower", term=4)]
    servers.admin.all_nodes = Nodes([NodeStatus(node="a", groups=groups, nodes=["a", "b"])], ["b"])
    done = stan("check", "--json")
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    assert {one["what"] for one in found["found"]} == {"node", "leader"}
    assert found["figures"]["groups_without_leader"] == 1
    page = stan("doctor")
    assert page.exit_code == 1
    assert "-> Start nodes until a majority" in page.stdout


def test_silence_is_critical_and_no_nats_unknown(servers, monkeypatch):
    servers.admin.failure = stan_client.RequestTimeoutError("late")
    assert stan("check").exit_code == 2

    def refused(*_):
        raise OSError("refused")

    monkeypatch.setattr(session, "open_direct", refused)
    done = stan("check")
    assert done.exit_code == 3
    assert done.stdout.startswith("STAN UNKNOWN")


def test_the_doctor_names_the_next_step(servers):
    servers.admin.all_cursors = [
        durable(members=[member(stalled=True, pending=5)], pending=5, oldest_pending=1),
        *(durable(f"d{number}", cursor_id=number) for number in range(9)),
    ]
    servers.admin.all_clients = [ClientStatus(client_id="gone", failing=True)]
    servers.admin.all_nodes = Nodes([NodeStatus(sync="never", store="FILE", kernel="python")], [])
    done = stan("doctor")
    assert done.exit_code == 1
    for text in (
        "3 things need attention.",
        "-> stan durable why orders acct/billing",
        "-> stan client show gone",
        "a loss of power may lose acknowledged messages",
        "and 4 more: offline",
    ):
        assert text in done.stdout
    assert json.loads(stan("doctor", "--json").stdout)["well"] is False


def test_a_state_that_a_node_has_seen_to_differ_is_damage(servers):
    group = GroupStatus(group=1, role="leader", differs="the state here as of entry 7 is not that of node b")
    servers.admin.all_nodes = Nodes([NodeStatus(node="a", groups=[group])], [])
    servers.admin.all_channels = []
    done = stan("channel", "verify", "--all")
    assert done.exit_code == 1
    assert "Group 1: a: the state here as of entry 7 is not that of node b." in done.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ("--no-such-option",),
        ("--nodes", "many"),
        ("--lag", "x"),
        ("--channel", "a..b"),
        ("--context", "nowhere"),
        ("--creds", "no.creds"),
        ("--json", "--names"),
    ],
)
def test_wrong_usage_of_check_is_unknown_and_not_critical(wrong):
    assert stan("check", *wrong).exit_code == 3


def test_an_unexpected_error_of_check_is_a_line_and_unknown(servers, monkeypatch):
    async def broken(*_arguments, **_named):
        raise LookupError("no such thing")

    monkeypatch.setattr(servers.admin, "nodes", broken)
    done = stan("check")
    assert done.exit_code == 3
    assert done.stdout.startswith("STAN UNKNOWN - it could not be looked: LookupError: no such thing")


def test_a_url_that_is_none_is_one_sentence(monkeypatch):
    monkeypatch.undo()
    done = stan("check", "--server", "::::")
    assert done.exit_code == 3
    assert "'::::' is no NATS URL" in done.stdout
    listed = stan("channel", "list", "--server", "nats://127.0.0.1:notaport")
    assert listed.exit_code == 2
    assert "is no NATS URL" in listed.stderr
    assert len(listed.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "doctor", "check", "dashboard"),
    [("frozen", "broken", "CRITICAL", "bad"), ("refusing", "attention", "WARNING", "warn")],
)
def test_a_finding_is_equally_bad_in_doctor_check_and_dashboard(servers, kind, doctor, check, dashboard):
    group = GroupStatus(group=1, role="leader", trouble="it is so", trouble_kind=kind, trouble_since=SECOND)
    servers.admin.all_nodes = Nodes([NodeStatus(groups=[group], not_ready=["group 1: it is so"])], [])
    (found,) = json.loads(stan("doctor", "--json").stdout)["findings"]
    assert (found["level"], found["text"], found["since_ns"]) == (doctor, "Group 1: it is so.", SECOND)
    assert "Group 1: it is so (since " in stan("doctor").stdout
    assert json.loads(stan("check", "--json").stdout)["found"] == [
        {"level": check, "what": "group", "text": "Group 1: it is so"}
    ]
    (finding,) = check_groups(servers.admin.all_nodes, groups_of(servers.admin.all_nodes))
    problem = rows.problem(finding)
    assert (problem["level"], problem["text"], problem["since"]) == (dashboard, "Group 1: it is so.", 1000)


def test_groups_without_a_leader_are_explained_alike_wherever_they_show(servers):
    group = GroupStatus(group=1, role="follower", trouble=NO_VOTE, trouble_kind="voteless", voters=["a", "b"])
    servers.admin.all_nodes = Nodes([NodeStatus(node=name, groups=[group]) for name in "ab"], [])
    why = "Group 1 has no leader: its channels take and deliver nothing. Nodes a and b run and have no vote"
    assert f"broken  {why}" in stan("doctor").stdout
    assert why in stan("check").stdout
    assert f"{why}: their disks have lost what they had. {VOTELESS.step}" in stan("group", "list").stdout
    servers.admin.failure = stan_client.RequestTimeoutError("late")
    assert why in stan("channel", "list").output.replace("\n", " ")


def test_tiers_and_compression_of_a_channel_are_shown(servers):
    servers.admin.all_channels = [channel(tier="lake", tier_kept=7)]
    assert "no tierer has come yet" in stan("channel", "show", "orders").stdout
    servers.admin.all_channels = [channel(tier="lake", tier_next=5, tier_kept=7, tier_lost=3)]
    assert "has to pass 5; 7 messages over the limits wait for it; 3" in stan("channel", "show", "orders").stdout
    size = {"bytes": 3 << 20, "clear_bytes": 2_100_000, "compress": 1}
    servers.admin.all_channels = [channel(**size)]
    assert "by its policy; nothing is smaller yet" in stan("channel", "show", "orders").stdout
    servers.admin.all_channels = [channel(**size, kept_bytes=700_000)]
    assert "to 684 KiB, 3.0 times smaller" in stan("channel", "show", "orders").stdout
