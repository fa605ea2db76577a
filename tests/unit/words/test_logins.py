"""The block `dashboard`: what is configured, each mistake with its line, and what is warned of."""

from pathlib import Path

import pytest

from stan.logins import SESSION_DEFAULT, PageProxy, PageUser
from stan.settings.nats_conf import parse as parse_conf
from stan.settings.settings import Parsed, parse

TOKEN = "0123456789abcdef"  # noqa: S105 - of a test
PERMISSIONS = """
permissions {
  users: [{ user: alice, password: secret }, { user: hashed, password: "$2a$11$abcdefghijklmnopqrstuv" }
    { user: keyed, nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 }]
  allow: [{ user: alice, admin_read: "orders.>" }, { user: hashed, admin_read: ">" }]
}
"""


def understand(text: str, *argv: str) -> Parsed:
    def read(file: Path):
        return parse_conf(text.encode(), str(file), {})

    return parse(["-sc", "s.conf", *argv], read)


def complaints(text: str) -> list[str]:
    parsed = understand(text)
    return [*parsed.complaints, *parsed.config.validate()]


def test_everything_of_the_block_is_read():
    block = """dashboard {
      users: [{ user: alice, role: act }, { user: ci, token: "0123456789abcdef", channels: ["ci.>", audit] }]
      proxy { addresses: ["10.0.0.0/8", "::1"], header: X-Email, channels: "public.>", role: read }
      session: "8h"
    }"""
    parsed = understand(block + PERMISSIONS)
    assert not [*parsed.complaints, *parsed.config.validate()]
    logins = parsed.config.monitor.logins
    assert logins is not None
    alice, ci = logins.users
    assert (alice.name, alice.acts, alice.channels) == ("alice", True, ())
    assert ci == PageUser(name="ci", token=TOKEN, channels=("ci.>", "audit"), where="s.conf:2")
    assert logins.proxy == PageProxy(
        addresses=("10.0.0.0/8", "::1"), header="X-Email", channels=("public.>",), where="s.conf:3"
    )
    assert logins.session_ns == 8 * 3600 * 10**9


def test_user_with_a_hashed_password_needs_nothing_more():
    assert not complaints("store: memory; dashboard { users: [{ user: hashed }] }" + PERMISSIONS)


def test_session_lasts_twelve_hours_unless_configured():
    logins = understand("dashboard { users: [{ user: a, password: b }] }").config.monitor.logins
    assert logins is not None
    assert logins.session_ns == SESSION_DEFAULT == 12 * 3600 * 10**9


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("dashboard { users: [] }", "s.conf:1: dashboard without users: nobody could log in"),
        ("dashboard { people: [] }", 's.conf:1: dashboard has users, proxy and session, not "people"'),
        (
            "dashboard {\nusers: [{ user: a, password: b, pin: 1 }] }",
            's.conf:2: a user has user, password, token, channels, role, not "pin"',
        ),
        (
            "dashboard {\nusers: [{ user: a, password: b, role: admin }] }",
            's.conf:2: role is one of read, act, not "admin"',
        ),
        (
            "dashboard { users: [{ user: a }] }",
            's.conf:1: "a" has no password and no token: add a token, or a password',
        ),
        (
            'dashboard { users: [{ user: a, token: "short" }] }',
            's.conf:1: the token of "a" is shorter than 16 characters',
        ),
        (
            'dashboard { users: [{ user: "a b", password: x }] }',
            's.conf:1: invalid user "a b": no spaces and no quotes',
        ),
        (
            'dashboard { users: [{ user: a, password: x, channels: "a..b" }] }',
            's.conf:1: invalid channel name "a..b"',
        ),
        (
            "dashboard { users: [{ user: a, password: x },\n{ user: a, password: y }] }",
            's.conf:2: the user "a" is there twice',
        ),
        (
            'dashboard { users: [{ user: a, token: "0123456789abcdef" },\n{ user: b, token: "0123456789abcdef" }] }',
            's.conf:2: the token of "b" is there twice',
        ),
        (
            "dashboard {\nproxy { header: X }\nusers: [{ user: a }] }",
            "s.conf:2: a proxy needs the addresses that it connects from",
        ),
        (
            'dashboard {\nproxy { addresses: ["here"] }\nusers: [{ user: a }] }',
            's.conf:2: "here" is no address and no network',
        ),
        (
            'dashboard {\nproxy { addresses: ["::1"], header: "a b" }\nusers: [{ user: a }] }',
            's.conf:2: "a b" is no name of a header',
        ),
        (
            'dashboard { users: [{ user: a, password: x }]\nsession: "1s" }',
            "s.conf:1: session must be between 1m0s and 720h0m0s, not 1s",
        ),
        (
            "dashboard { users: [{ user: alice, channels: a }] }" + PERMISSIONS,
            's.conf:1: the rights of "alice" are in permissions: leave out channels',
        ),
        (
            "dashboard { users: [{ user: alice, password: x }] }" + PERMISSIONS,
            's.conf:1: the password of "alice" is in permissions: leave it out here',
        ),
        (
            "dashboard { users: [{ user: bob, password: x }] }" + PERMISSIONS,
            's.conf:1: "bob" is no user of permissions: add channels that it may see',
        ),
        (
            "dashboard { users: [{ user: keyed }] }" + PERMISSIONS,
            's.conf:1: "keyed" has no password and no token: add a token, or a password',
        ),
    ],
)
def test_each_mistake_is_told_with_its_line(block, complaint):
    assert complaints(f"store: memory; {block}") == [complaint]


@pytest.mark.parametrize(
    ("more", "argv", "warned"),
    [
        ("", ["-m", "1"], ""),
        ("", ["-m", "1", "--http_host", "::"], "passwords and tokens cross the network in clear"),
        ("dashboard_actions: true\n", ["-m", "1"], "dashboard_actions has no effect beside logins"),
        ("", [], "has no effect without a monitoring port"),
    ],
)
def test_logins_that_do_not_protect_are_warned_of(more, argv, warned):
    parsed = understand(more + "dashboard { users: [{ user: a, password: secret }] }", *argv)
    told = [notice for notice in parsed.config.notices if "clear" in notice or "no effect" in notice]
    assert [warned in notice for notice in told] == ([True] if warned else [])


def test_the_configuration_in_force_shows_logins_without_secrets():
    text = 'dashboard { users: [{ user: a, password: hidden, role: act }, { user: b, token: "0123456789abcdef", channels: x }] }'
    (setting,) = (one for one in understand(text).config.shown() if one.name == "dashboard")
    assert (setting.value, setting.source) == ("a changes all it may; b sees x", "s.conf:1")
    assert "hidden" not in repr(understand(text).config)
