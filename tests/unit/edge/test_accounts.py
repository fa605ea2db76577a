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
