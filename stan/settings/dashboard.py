"""The block `dashboard` of the configuration file: who may log in to the pages, all mistakes with their lines; pure.

`dashboard { users: [{ user: alice }, { user: ops, token: $TOKEN, role: act }], proxy { addresses: [10.0.0.7] }, session: "8h" }`.
"""

from typing import Final

from stan_protocol.refusals import go_quote
from stan_protocol.units import parse_duration

from stan.logins import PROXY_HEADER_DEFAULT, SESSION_DEFAULT, Logins, PageProxy, PageUser
from stan.settings.nats_conf import ConfNode
from stan.settings.node_reader import NodeReader

ROLES: Final = {"read": False, "act": True}
USER_KEYS: Final = ("user", "password", "token", "channels", "role")
PROXY_KEYS: Final = ("addresses", "header", "channels", "role")


def read_logins(node: ConfNode) -> Logins:
    """Read a block `dashboard`; its mistakes are among the complaints of the result."""
    reader = _Reader()
    users: list[PageUser] = []
    proxy: PageProxy | None = None
    session = SESSION_DEFAULT
    for name, each in reader.map(node, "dashboard").items():
        match name.lower():
            case "users":
                users += [reader.user(item) for item in reader.items(each, name)]
            case "proxy":
                proxy = reader.proxy(each)
            case "session":
                session = reader.duration(each, name)
            case _:
                reader.complain(each, f"dashboard has users, proxy and session, not {go_quote(name)}")
    return Logins(
        users=tuple(users), proxy=proxy, session_ns=session, where=node.place, mistakes=tuple(reader.complaints)
    )


class _Reader(NodeReader):
    def duration(self, node: ConfNode, name: str) -> int:
        try:
            return parse_duration(self.text(node, name))
        except ValueError as error:
            self.complain(node, f"{name}: {error}")
            return SESSION_DEFAULT

    def acts(self, node: ConfNode) -> bool:
        role = self.text(node, "role").lower()
        if role and role not in ROLES:
            self.complain(node, f"role is one of {', '.join(ROLES)}, not {go_quote(role)}")
        return ROLES.get(role, False)

    def user(self, node: ConfNode) -> PageUser:
        texts: dict[str, str] = {}
        channels: tuple[str, ...] = ()
        acts = False
        for name, each in self.map(node, "a user").items():
            match name.lower():
                case "channels":
                    channels = self.texts(each, name)
                case "role":
                    acts = self.acts(each)
                case "user" | "password" | "token" as key:
                    texts[key] = self.text(each, name)
                case _:
                    self.complain(each, f"a user has {', '.join(USER_KEYS)}, not {go_quote(name)}")
        return PageUser(
            name=texts.get("user", ""),
            password=texts.get("password", ""),
            token=texts.get("token", ""),
            channels=channels,
            acts=acts,
            where=node.place,
        )

    def proxy(self, node: ConfNode) -> PageProxy:
        header = PROXY_HEADER_DEFAULT
        addresses: tuple[str, ...] = ()
        channels: tuple[str, ...] = ()
        acts = False
        for name, each in self.map(node, "proxy").items():
            match name.lower():
                case "addresses":
                    addresses = self.texts(each, name)
                case "channels":
                    channels = self.texts(each, name)
                case "header":
                    header = self.text(each, name)
                case "role":
                    acts = self.acts(each)
                case _:
                    self.complain(each, f"proxy has {', '.join(PROXY_KEYS)}, not {go_quote(name)}")
        return PageProxy(addresses=addresses, header=header, channels=channels, acts=acts, where=node.place)
