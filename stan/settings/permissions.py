"""The block `permissions` of the configuration file: users and rules, all mistakes with their lines; pure.

Users are those that NATS lets in: `{ user: alice, password: x, clients: "orders-*" }`. Rules stand in `allow`:
`{ user: alice, client: "orders-1", publish: "orders.>", subscribe: ["orders.>", audit] }`. All else is forbidden.
"""

from typing import Final

from stan_protocol.refusals import go_quote

from stan.permissions import NatsUser, Permissions, Right, Rule
from stan.settings.nats_conf import ConfNode
from stan.settings.node_reader import NodeReader

RIGHTS: Final = {
    "publish": Right.PUBLISH,
    "subscribe": Right.SUBSCRIBE,
    "durable": Right.DURABLE,
    "admin_read": Right.ADMIN_READ,
    "admin_write": Right.ADMIN_WRITE,
}
_USER_KEYS: Final = ("user", "password", "nkey", "clients")


def read_permissions(node: ConfNode) -> Permissions:
    """Read a block `permissions`; its mistakes are among the complaints of the result."""
    reader = _Reader()
    users: list[NatsUser] = []
    rules: list[Rule] = []
    for name, each in reader.map(node, "permissions").items():
        match name.lower():
            case "users":
                users += [reader.user(item) for item in reader.items(each, name)]
            case "allow":
                rules += [reader.rule(item) for item in reader.items(each, name)]
            case _:
                reader.complain(
                    each, f"permissions have {go_quote('users')} and {go_quote('allow')}, not {go_quote(name)}"
                )
    if not rules and not reader.complaints:
        reader.complain(node, "permissions without a rule in allow forbid everything to everybody")
    return Permissions(rules, users, reader.complaints)


class _Reader(NodeReader):
    """Reads users and rules."""

    def user(self, node: ConfNode) -> NatsUser:
        texts: dict[str, str] = {}
        clients: tuple[str, ...] = ()
        for name, each in self.map(node, "a user").items():
            if name.lower() == "clients":
                clients = self.texts(each, name)
            elif name.lower() in _USER_KEYS:
                texts[name.lower()] = self.text(each, name)
            else:
                self.complain(each, f"a user has {', '.join(_USER_KEYS)}, not {go_quote(name)}")
        name = texts.get("user", "")
        password, nkey = texts.get("password", ""), texts.get("nkey", "")
        return NatsUser(name=name, password=password, nkey=nkey, clients=clients, where=node.place)

    def rule(self, node: ConfNode) -> Rule:
        texts: dict[str, str] = {}
        rights: dict[Right, tuple[str, ...]] = {}
        for name, each in self.map(node, "a rule").items():
            key = name.lower()
            if key in ("user", "client"):
                texts[key] = self.text(each, name)
            elif key in RIGHTS:
                rights[RIGHTS[key]] = self.texts(each, name)
            else:
                words = ", ".join(("user", "client", *RIGHTS))
                self.complain(each, f"a rule has {words}, not {go_quote(name)}")
        return Rule(user=texts.get("user", ""), client=texts.get("client", ""), rights=rights, where=node.place)
