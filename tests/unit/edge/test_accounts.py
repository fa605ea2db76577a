"""The accounts of NATS: nats-server takes them, and users whose names look odd stay apart."""

import subprocess
from dataclasses import replace

from stan.config import Config
from stan.edge.nats.accounts import BROKER, accounts, with_accounts
from stan.edge.nats.nats_process import find_binary
from stan.permissions import NatsUser, Permissions, Right, Rule

NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
ODD, HASH = 'a "quoted\\ one', "$2a$11$x"
USERS = (
    NatsUser(name="alice", password=ODD),
    NatsUser(name="b-_1", nkey=NKEY),
    NatsUser(name="bob", password=HASH),
)
CONFIG = Config(permissions=Permissions([Rule(), Rule(user="bob", rights={Right.ADMIN_READ: (">",)})], USERS))


def test_nats_server_takes_them(tmp_path):
    for number, config in enumerate((CONFIG, Config(permissions=Permissions([Rule()])))):
        file = tmp_path / f"{number}.conf"
        file.write_text(accounts(config, 'user: "stan-broker", password: "x"'))
        told = subprocess.run([find_binary(), "-t", "-c", file], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr


def test_each_account_gets_what_is_sent_to_its_user_alone():
    text = accounts(CONFIG, "")
    for user in ("alice", "b-_1", "bob"):
        assert text.count(f'{{ stream: "_STAN.to.{user}.>", accounts: ["stan-user-{user}"] }}') == 1
        assert (
            text.count(
                f'{{ stream: {{ account: "stan-broker", subject: "_STAN.to.{user}._INBOX.>" }}, to: "_INBOX.>" }}'
            )
            == 1
        )
        assert f'subject: "_STAN.sub.test-cluster" }}, to: "_STAN.from.{user}._STAN.sub.test-cluster"' in text
        for said in ("_STAN.pub.test-cluster.>", "_STAN.ack.test-cluster.>"):  # without a change of name, which costs
            taken = f'{{ account: "stan-user-{user}", subject: "_STAN.from.{user}.{said}" }}'
            assert f"{{ stream: {taken} }}" in text


def test_accounts_change_with_what_the_page_names():
    """After any of these changes the accounts of a NATS elsewhere are to be printed again; after changes of other rules not."""
    before = accounts(CONFIG, "")
    users, rules = CONFIG.permissions.users, CONFIG.permissions.rules
    operator = Rule(user="alice", rights={Right.ADMIN_WRITE: (">",)})
    for changed in (
        replace(CONFIG, permissions=Permissions(rules, users[1:])),
        replace(CONFIG, permissions=Permissions([*rules, operator], users)),
        replace(CONFIG, cluster_id="other"),
        replace(CONFIG, discover_prefix="_STAN.other"),
        replace(CONFIG, reply_prefixes=("my.inbox.",)),
    ):
        assert accounts(changed, "") != before
    reader = Rule(user="alice", rights={Right.SUBSCRIBE: (">",), Right.ADMIN_READ: ("foo.>",)})
    assert accounts(replace(CONFIG, permissions=Permissions([*rules, reader], users)), "") == before


def test_events_are_for_operators():
    assert accounts(CONFIG, "").count("_STAN.x.test-cluster.events.*") == 2  # exported, and imported by one


def test_embedded_server_knows_our_own_user():
    config = with_accounts(CONFIG, "ours")
    assert (config.nats.user, config.nats.password, config.nats.own) == (BROKER, "ours", True)
    assert 'password: "ours"' in config.embedded.accounts
    assert "ours" not in repr(config)


def test_our_own_user_stays_after_a_reload():
    config = with_accounts(CONFIG, "ours")
    reloaded = config.reloaded(CONFIG)  # what the files say
    assert reloaded.nats == config.nats
    assert reloaded.embedded == config.embedded


# --- with clients of JetStream ----------------------------------------------------------------------------------------------

STREAMS = {Right.PUBLISH: ("orders.>", "*.x", ">"), Right.ADMIN_WRITE: ("orders.new", "my.x", "two words.x", "$KV.b")}
SERVED = replace(
    CONFIG,
    jetstream_api=True,
    reply_prefixes=("my.inbox.",),
    permissions=Permissions([Rule(user="bob", rights=STREAMS)], USERS),
)


def test_without_clients_of_jetstream_nothing_of_theirs_is_there():
    assert not any(word in accounts(CONFIG, "") for word in ("$JS", "LEAFNODE"))


def test_nats_server_takes_those_of_jetstream_in_whatever_order_it_reads_them(tmp_path):
    file = tmp_path / "nats.conf"
    file.write_text(accounts(SERVED, 'user: "stan-broker", password: "x"', "leaf"))
    for _ in range(
        20
    ):  # it goes through accounts at random, and an import that may form a cycle is refused in some orders
        told = subprocess.run([find_binary(), "-t", "-c", file], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr


def test_subjects_of_streams_are_those_that_begin_like_a_pattern_of_the_rules():
    text = accounts(SERVED, "", "leaf")
    for subject in ("$JS.API.>", "$JS.ACK.>", "$KV.>", "$O.>", "orders", "orders.>"):
        assert text.count(f'subject: "{subject}" }}, to: "_STAN.from.alice.{subject}"') == 1
    for subject in ("my.>", "two words.>", "*.>", ">"):
        assert f'"{subject}"' not in text


def test_each_account_gets_the_advisories_that_are_sent_to_its_user_alone():
    text = accounts(SERVED, "", "leaf")
    for user in ("alice", "b-_1", "bob"):
        sent = f'account: "stan-broker", subject: "_STAN.to.{user}.$JS.EVENT.ADVISORY.>"'
        assert text.count(f'{{ stream: {{ {sent} }}, to: "$JS.EVENT.ADVISORY.>" }}') == 1


def test_no_user_may_connect_a_leafnode_but_the_broker_into_each_account():
    text = accounts(SERVED, "", "leaf")
    for user in ("alice", "b-_1", "bob"):
        login = f'user: "stan-broker.{user}", password: "leaf", allowed_connection_types: ["LEAFNODE"]'
        assert text.count(login) == 1
    for each in (text, accounts(CONFIG, "")):  # also where JetStream is not served: it could speak for any user
        assert each.count('allowed_connection_types: ["STANDARD", "WEBSOCKET", "MQTT"]') == len(USERS)
