"""Policies of delivery: the state machine, what is in force, requests of operators, and who hears of changes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.patterns import matches, width
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import NOT_FOUNDED
from stan_protocol.scalars import SECOND, RaftIndex

from stan import limits
from stan.config import Config
from stan.core.base.delivery_policy import DEFAULT, DeliveryPolicy
from stan.core.leader.membership import LiveMembership
from stan.core.metadata.meta import MetaMachine
from stan.core.metadata.policies import TOO_MANY, Policies, row_of, rule_of, shown_policy
from stan.policies import OPTIONS, PolicyRule
from stan.protocol.proto import entries_pb2 as entries
from tests.kit.core_harness import CoreHarness

PREFIX = "_STAN.x.test-cluster.admin"


def machine() -> MetaMachine:
    made = MetaMachine()
    made.apply(entries.MetaChange(cluster_info=entries.ClusterInfo(cluster_id=b"c")), RaftIndex(1))
    made.take_changed_rows()
    return made


def put(meta, pattern, name="", **told):
    change = entries.MetaChange(set_policy=row_of(PolicyRule(pattern=pattern, name=name, **told)))
    return meta.apply(entries.MetaChange.FromString(change.SerializeToString()), RaftIndex(2))


def kept(meta):
    return [rule_of(row) for row in meta.info.policies]


def test_a_suffix_makes_dead_letter_channels_of_the_channels_that_its_policy_covers_alone():
    info = entries.ClusterInfo(cluster_id=b"c")
    policies = Policies().brought_up_to(
        (PolicyRule(pattern="test.>", dead_letter=".pay"), PolicyRule(pattern="orders.>", dead_letter=".dlq")), info
    )
    assert policies.source_of(b"test.x.pay") == b"test.x"
    assert policies.source_of(b"orders.pay") == b""
    assert policies.of(b"orders.pay", b"").dead_letter == ".dlq"
    assert policies.of(b"orders.pay.dlq", b"").dead_letter == ""


# --- the state machine ---------------------------------------------------------------------------------------------------


def test_a_policy_takes_the_place_of_the_earlier_one_and_an_empty_one_removes_it() -> None:
    meta = machine()
    assert put(meta, "b.>", max_deliver=5, backoff=(SECOND,)).policies_changed
    assert put(meta, "a", "d", max_hold=0, adaptive_window=False).policies_changed
    assert put(meta, "b.>", backoff=()).policies_changed
    assert kept(meta) == [
        PolicyRule(pattern="a", name="d", max_hold=0, adaptive_window=False),
        PolicyRule(pattern="b.>", backoff=()),
    ]
    assert meta.take_changed_rows().info is not None
    assert not put(meta, "b.>", backoff=()).policies_changed
    assert not put(meta, "c").policies_changed
    assert meta.take_changed_rows().info is None
    assert put(meta, "b.>").policies_changed
    assert [rule.key for rule in kept(meta)] == [("a", "d")]


def test_no_policy_is_taken_without_an_identity() -> None:
    assert put(MetaMachine(), "a", max_deliver=1).error == NOT_FOUNDED


def test_policies_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr("stan.core.metadata.policies.POLICIES_MAX", 2)
    meta = machine()
    assert [put(meta, name, max_deliver=1).error for name in "abc"] == ["", "", TOO_MANY]
    assert put(meta, "b", max_deliver=2).error == ""  # in place of one
    assert put(meta, "b").policies_changed
    assert put(meta, "c", max_deliver=1).error == ""


def test_snapshots_have_the_policies() -> None:
    meta = machine()
    put(meta, "a.*", "d", max_deliver=3)
    put(meta, "a.>", adaptive_window=True)
    snapshot = entries.Snapshot()
    meta.snapshot(snapshot)
    other = MetaMachine()
    other.restore(entries.Snapshot.FromString(snapshot.SerializeToString()))
    assert kept(other) == kept(meta)
    again = entries.Snapshot()
    other.snapshot(again)
    assert again.SerializeToString(deterministic=True) == snapshot.SerializeToString(deterministic=True)


# --- what is in force ----------------------------------------------------------------------------------------------------

RULES = st.builds(
    PolicyRule,
    pattern=st.sampled_from(["a", "b", "*", ">", "a.b", "a.*", "*.b", "a.>", "a.b.c"]),
    name=st.sampled_from(["", "", "d", "q"]),
    max_deliver=st.none() | st.integers(0, 9),
    backoff=st.none() | st.lists(st.integers(0, 9), max_size=3).map(tuple),
    max_hold=st.none() | st.integers(0, 9),
    adaptive_window=st.none() | st.booleans(),
    dead_letter=st.none() | st.sampled_from(["", ".dlq", "dead"]),
    dead_letter_rate=st.none() | st.integers(0, 9),
    failover=st.none() | st.booleans(),
    ordered_by_key=st.none() | st.booleans(),
    delay=st.none() | st.integers(0, 9),
    target=st.none() | st.sampled_from(["", "a"]),
    max_late=st.none() | st.integers(0, 9),
)


@given(st.lists(RULES, max_size=6), st.lists(RULES, max_size=6, unique_by=lambda rule: rule.key), st.data())
def test_each_option_is_that_of_the_narrowest_policy_that_sets_it(configured, told, data) -> None:
    channel = data.draw(st.sampled_from(["a", "b", "a.b", "a.c", "c.b", "a.b.c", "x"]))
    name = data.draw(st.sampled_from(["", "d", "q", "z"]))
    configured = list({rule.key: rule for rule in configured}.values())
    info = entries.ClusterInfo(policies=map(row_of, data.draw(st.permutations(told))))
    found = (
        Policies()
        .brought_up_to(tuple(data.draw(st.permutations(configured))), info)
        .of(channel.encode(), name.encode())
    )
    for option in OPTIONS:
        setting = [
            (origin, width(rule.pattern), rule.pattern, bool(rule.name), getattr(rule, option))
            for origin, rules in enumerate((configured, told))
            for rule in rules
            if getattr(rule, option) is not None and matches(rule.pattern, channel) and rule.name in ("", name)
        ]
        wanted = max(setting, key=lambda one: one[:4])[4] if setting else getattr(DEFAULT, option)
        assert getattr(found, option) == wanted


def test_answers_are_remembered_until_policies_change() -> None:
    policies, info = Policies(), entries.ClusterInfo()
    rules = (PolicyRule(pattern="a", max_deliver=1),)
    assert policies.brought_up_to((), info).of(b"a", b"") is DEFAULT
    first = policies.brought_up_to(rules, info).of(b"a", b"")
    assert first == DeliveryPolicy(max_deliver=1)
    assert policies.brought_up_to(rules, info).of(b"a", b"") is first
    changed = entries.ClusterInfo(policies=[row_of(PolicyRule(pattern="a", max_deliver=2))])
    assert policies.brought_up_to(rules, changed).of(b"a", b"").max_deliver == 2


# --- requests ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def harness():
    return CoreHarness()


def set_policy(harness, pattern, policy=None, name=""):
    request = pb.SetPolicyRequest(version=1, pattern=pattern.encode(), name=name.encode(), policy=policy)
    answer = harness.ask(f"{PREFIX}.set_policy", request, pb.ChangeResponse)
    return answer.error.decode(), answer.changed


def policies(harness, **asked):
    return harness.ask(f"{PREFIX}.policies", pb.PoliciesRequest(version=1, **asked), pb.PoliciesResponse)


def test_operators_set_list_and_remove_policies(harness) -> None:
    policy = pb.DeliveryPolicy(max_deliver=5, backoff=pb.Backoff(pauses=[SECOND]))
    assert set_policy(harness, "orders.>", policy) == ("", 1)
    assert set_policy(harness, "orders.>", policy) == ("", 0)
    assert set_policy(harness, "orders.eu", pb.DeliveryPolicy(adaptive_window=True), "billing") == ("", 1)
    listed = policies(harness)
    assert [(one.pattern, one.name, one.configured) for one in listed.policies] == [
        (b"orders.>", b"", False),
        (b"orders.eu", b"billing", False),
    ]
    assert (listed.policies[0].policy, listed.more, listed.HasField("in_force")) == (policy, False, False)
    asked = policies(harness, channel=b"orders.eu", name=b"billing")
    wanted = shown_policy(DeliveryPolicy(max_deliver=5, backoff=(SECOND,), adaptive_window=True))
    assert asked.in_force == wanted
    assert len(asked.policies) == 2
    assert [one.name for one in policies(harness, pattern=b"orders.eu").policies] == [b"billing"]
    assert set_policy(harness, "orders.>") == ("", 1)
    assert set_policy(harness, "orders.>") == ("", 0)
    assert len(policies(harness).policies) == 1


def test_lists_come_in_pages(harness) -> None:
    for name in "abc":
        set_policy(harness, name, pb.DeliveryPolicy(max_deliver=1))
    first = policies(harness, max=2)
    rest = policies(harness, max=2, after=2)
    assert ([one.pattern for one in first.policies], first.more) == ([b"a", b"b"], True)
    assert ([one.pattern for one in rest.policies], rest.more) == ([b"c"], False)


@pytest.mark.parametrize(
    ("pattern", "policy", "complaint"),
    [
        ("a..b", pb.DeliveryPolicy(max_deliver=1), 'invalid channel name "a..b"'),
        ("a", pb.DeliveryPolicy(max_deliver=limits.MAX_DELIVER_MAX + 1), "max_deliver must be between 0 and 1000000"),
        ("a", pb.DeliveryPolicy(backoff=pb.Backoff(pauses=[1] * 33)), "backoff has at most 32 pauses, not 33"),
        ("a", pb.DeliveryPolicy(backoff=pb.Backoff(pauses=[-1])), "backoff: a pause must be between 0 and 168h0m0s"),
        ("a", pb.DeliveryPolicy(max_hold=-1), "max_hold must be between 0 and"),
        ("a", pb.DeliveryPolicy(dead_letter=b".a..b"), 'dead_letter: invalid channel name ".a..b"'),
        ("a", pb.DeliveryPolicy(dead_letter=b"a.>"), 'dead_letter: invalid channel name "a.>"'),
        ("a", pb.DeliveryPolicy(delay=-1), "delay must be between 0 and 8760h0m0s, not -1ns"),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_its_name(harness, pattern, policy, complaint) -> None:
    error, _ = set_policy(harness, pattern, policy)
    assert error.startswith(f"stan: policy: {complaint}")
    assert not harness.state.cluster.policies


def test_a_name_needs_a_channel_and_a_channel_no_wildcards(harness) -> None:
    assert policies(harness, name=b"d").error
    assert policies(harness, channel=b"a.*").error


def test_positions_tell_their_policy(harness) -> None:
    harness.connect()
    harness.subscribe("orders", "in", durable="billing")
    set_policy(harness, "orders", pb.DeliveryPolicy(max_deliver=3), "billing")
    set_policy(harness, "orders", pb.DeliveryPolicy(max_deliver=9), "other")
    request = pb.SubscriptionsRequest(version=1)
    (cursor,) = harness.ask(f"{PREFIX}.subscriptions", request, pb.SubscriptionsResponse).cursors
    assert cursor.policy.max_deliver == 3


def test_led_groups_hear_of_changes_of_metadata_and_configuration(harness, monkeypatch) -> None:
    heard = []
    monkeypatch.setattr(
        LiveMembership, "policies_changed", lambda _: heard.append(harness.state.policy(b"a").max_deliver)
    )
    set_policy(harness, "a", pb.DeliveryPolicy(max_deliver=2))
    set_policy(harness, "a", pb.DeliveryPolicy(max_deliver=2))  # no change
    set_policy(harness, "a")
    harness.broker.reconfigure(replace(Config(), policies=(PolicyRule(pattern="a", max_deliver=7),)))
    assert heard == [2, 0, 7]


def test_policies_outlive_a_restart(harness) -> None:
    set_policy(harness, "a", pb.DeliveryPolicy(max_deliver=2))
    harness.restart()
    assert harness.state.policy(b"a", b"d") == DeliveryPolicy(max_deliver=2)
