"""Rules of permissions: what covers what, who fits, and what is wrong with a configuration."""

import pytest

from stan.permissions import NatsUser, Permissions, Right, Rule, covers
from stan.settings.nats_conf import parse
from stan.settings.permissions import read_permissions

HIDDEN = "geheim"


def rule(**told):
    rights = {right: told.pop(right.name.lower()) for right in Right if right.name.lower() in told}
    return Rule(**told, rights={right: tuple(names.split()) for right, names in rights.items()})


@pytest.mark.parametrize(
    ("pattern", "name", "yes"),
    [
        ("foo", "foo", True),
        ("foo", "foo.bar", False),
        ("foo.*", "foo.bar", True),
        ("foo.*", "foo", False),
        ("foo.*", "foo.bar.x", False),
        ("foo.>", "foo.bar.x", True),
        ("foo.>", "foo", False),
        (">", "foo", True),
        ("*", ">", False),
        ("foo.*", "foo.>", False),
        ("foo.>", "foo.*", True),
        ("foo.*.x", "foo.*.x", True),
        ("foo.bar", "foo.*", False),
        ("foo.>", "foo.>", True),
        ("foo.>", ">", False),
        (">", ">", True),
        ("*.*", "foo.>", False),
        ("*", "", True),
        ("foo", "", False),
    ],
)
def test_pattern_covers_names_and_narrower_patterns(pattern, name, yes):
    assert covers(pattern, name) is yes


def test_what_no_rule_allows_is_forbidden():
    none = Permissions([])
    assert not none.admits("", b"me")
    assert not any(none.allows("", b"me", right, b"foo") for right in Right)


@pytest.mark.parametrize(
    ("user", "client", "yes"),
    [
        ("alice", b"orders-1", True),
        ("alice", b"orders-", True),
        ("alice", b"orders", False),
        ("alice", b"my-orders-1", False),
        ("alice", b"", False),
        ("bob", b"orders-1", False),
        ("", b"orders-1", False),
    ],
)
def test_rule_counts_for_who_fits_all_that_it_names(user, client, yes):
    permissions = Permissions([rule(user="alice", client="orders-*", publish="a.>")])
    assert permissions.admits(user, client) is yes
    assert permissions.allows(user, client, Right.PUBLISH, b"a.b") is yes
    assert permissions.has(user, client, Right.PUBLISH) is yes
    assert not permissions.allows(user, client, Right.SUBSCRIBE, b"a.b")
    assert not permissions.allows(user, client, Right.PUBLISH, b"b")


def test_rules_add_up_and_one_without_names_is_for_all():
    permissions = Permissions(
        [rule(publish="open"), rule(client="*", subscribe="x y.>"), rule(user="ops", admin_write=">")]
    )
    assert permissions.allows("", b"", Right.PUBLISH, b"open")
    assert permissions.allows("", b"c", Right.SUBSCRIBE, b"y.z")
    assert not permissions.allows("", b"", Right.SUBSCRIBE, b"x")  # nobody's client id is none
    assert permissions.allows("ops", b"", Right.ADMIN_WRITE, b">")
    assert not permissions.allows("", b"", Right.ADMIN_WRITE, b"x")


def test_user_may_use_his_own_client_ids_alone():
    users = [NatsUser(name="alice", clients=("a-*", "x")), NatsUser(name="bob")]
    permissions = Permissions([rule(publish="foo")], users)
    may = [
        (user, client)
        for user in ("alice", "bob")
        for client in (b"a-1", b"x", b"b", b"")
        if permissions.admits(user, client)
    ]
    assert may == [("alice", b"a-1"), ("alice", b"x"), ("bob", b"a-1"), ("bob", b"x"), ("bob", b"b"), ("bob", b"")]


def test_verdicts_in_memory_are_bounded(monkeypatch):
    monkeypatch.setattr("stan.remembered.REMEMBERED_MAX", 10)
    monkeypatch.setattr("stan.remembered.REMEMBERED_BYTES_MAX", 1000)
    permissions = Permissions([rule(publish="a.*")])
    for n in range(100):
        assert permissions.allows("", b"c", Right.PUBLISH, b"a.%d" % n)
        assert len(permissions._known) <= 10
    for size in (400, 500, 600, 2000):
        assert permissions.allows("", b"c", Right.PUBLISH, b"a." + b"x" * size)
        assert sum(len(channel) for _, _, _, channel in permissions._known) <= 1000


def test_client_id_is_gone_through_once_whatever_it_looks_like():
    """A pattern with many `*` does not try where each of them may end."""
    permissions = Permissions([rule(client="*a" * 40 + "*b", subscribe="x")])
    assert not permissions.admits("", b"a" * 1000)
    assert permissions.admits("", b"a" * 1000 + b"b")
    assert permissions.admits("", b"-a" * 40 + b"-ab")
    assert not permissions.admits("", b"a" * 39 + b"b")


def test_same_rules_are_equal_and_no_password_is_shown():
    made = [Permissions([rule(user="a", publish="x")], [NatsUser(name="a", password=HIDDEN)]) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0] != Permissions([])
    assert HIDDEN not in repr(made[0]) + repr(made[0].users) + made[0].text()
    assert made[0].text() == "a may publish x"


# --- in a file --------------------------------------------------------------------------------------------------------


def read(text):
    return read_permissions(parse(b"permissions " + text.encode(), "f")["permissions"])


def test_block_is_read():
    found = read(
        """{
          users: [ {user: alice, password: 123, clients: ["o-*"]}, {user: bob, nkey: UABC} ]
          allow: [
            { user: alice, client: "o-*", publish: "o.>", subscribe: [a, "b.*"], durable: "b.*" }
            { Admin_Read: ">" }
          ]
        }"""
    )
    assert found.complaints() == []
    assert [(user.name, user.password, user.nkey) for user in found.users] == [
        ("alice", "123", ""),
        ("bob", "", "UABC"),
    ]
    assert [user.clients for user in found.users] == [("o-*",), ()]
    assert [(one.user, one.client, one.where) for one in found.rules] == [("alice", "o-*", "f:4"), ("", "", "f:5")]
    assert found.rules[0].rights == {Right.PUBLISH: ("o.>",), Right.SUBSCRIBE: ("a", "b.*"), Right.DURABLE: ("b.*",)}
    assert found.rules[1].rights == {Right.ADMIN_READ: (">",)}


def test_all_mistakes_are_told_with_their_lines():
    found = read(
        """{
          users: [ {user: "a b", password: x}, {user: bob}, {user: c, password: x, nkey: y}, {user: d, password: x}
                   {user: d, password: x} ]
          allow: [
            { user: nobody, publish: "foo..bar" }
            { client: "a.b", publish: [ true ], pub: x }
            17
          ]
          deny: []
        }"""
    )
    assert found.complaints() == [
        "f:6: expected publish to be a string that is not empty",
        'f:6: a rule has user, client, publish, subscribe, durable, admin_read, admin_write, not "pub"',
        "f:7: expected a rule to be a map in braces",
        'f:9: permissions have "users" and "allow", not "deny"',
        'f:2: invalid user "a b": 1 to 64 letters, digits, `-` or `_`',
        'f:2: user "bob" needs either a password or an nkey',
        'f:2: user "c" needs either a password or an nkey',
        'f:5: invalid channel name "foo..bar"',
        'f:6: invalid client id "a.b": letters, digits, `-`, `_`, and `*` for any of them',
        'f:3: user "d" is there twice',
        'f:5: nobody is the user "nobody": add it to users',
    ]


@pytest.mark.parametrize("text", ["{}", "{ users: [] }", "17", "{ allow: [] }"])
def test_permissions_without_a_rule_are_refused(text):
    assert read(text).complaints()


def test_what_had_better_be_known_is_noticed():
    assert "what a client says of itself" in read("{ allow: [ {client: a, publish: x} ] }").notices()[0]
    users = "users: [ {user: a, password: x} ]"
    assert "every user may use" in read(f"{{ {users}, allow: [ {{client: a, publish: x}} ] }}").notices()[0]
    assert read(f"{{ {users}, allow: [ {{user: a, client: a, publish: x}} ] }}").notices() == []
