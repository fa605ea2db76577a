"""NATS accounts by which the broker learns the user of each request: one for the broker, one for each user.

See stan.protocol.user_subjects for the subjects. Promises: a user's account exports its clients' messages to the broker, under
that user's name alone, and imports the broker's messages to that user (an operator's also events), and nothing else; no client
reaches another user's account. For the embedded nats-server, and as text for a foreign one. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from urllib.parse import unquote

from stan_protocol.channels import REPLIES, Subjects

from stan.config import Config
from stan.edge.nats.nats_process import quoted
from stan.permissions import NatsUser, Permissions, Right
from stan.protocol.jetstream.advisories import PREFIX as ADVISORIES
from stan.protocol.user_subjects import BROKER, FROM, TO, ack_subject, reply_subject, stream_tokens

_CLIENTS = ("STANDARD", "WEBSOCKET", "MQTT")
"""Connections that a user may make."""
_API = ("$JS.API.>", "$JS.ACK.>", "$JS.FC.>")
_REQUESTS = ("*", "replica.*", "admin.>")
"""Ends of the subjects of requests, behind `_STAN.x.<cluster>`; events go the other way, to the clients."""


def accounts(config: Config, login: str, leaf_password: str = "") -> str:
    """A block `accounts` for nats-server.

    Args:
        config: with users in its permissions.
        login: name and credentials of the broker's own user, in nats-server's syntax.
        leaf_password: of the broker's leafnode connections into the accounts of users; "" where JetStream is not served.
    """
    permissions = config.permissions
    users = permissions.users if permissions is not None else ()
    operators = [user for user in users if permissions and _may_watch(permissions, user)]
    watching = ", ".join(quoted(_account(user)) for user in operators)
    events = f"{Subjects.of(config.cluster_id, config.discover_prefix).extension}.events.*"
    broker = [f"users: [{{ {login} }}]"]
    sent = _sent_to(users)
    sent += [f"{{ stream: {quoted(events)}, accounts: [{watching}] }}"] if operators else []
    broker += _list("exports", sent)
    broker += _list(
        "imports", [_import(user, subject, wrap=wrap) for user in users for subject, wrap in _published(config, user)]
    )
    blocks = [_block(BROKER, broker)]
    prefixes = (*REPLIES, *config.reply_prefixes, *([f"{ADVISORIES}."] if config.jetstream_api else []))
    for user in users:
        shown = [subject for subject, _ in _published(config, user)]
        lines = [f"users: [{_logins(user, leaf_password)}]"]
        lines += _list("exports", [f"{{ stream: {quoted(s)}, accounts: [{quoted(BROKER)}] }}" for s in shown])
        lines += _list("imports", _imports(user, prefixes, events if user in operators else ""))
        blocks.append(_block(_account(user), lines))
    return "accounts {\n" + "".join(blocks) + "}\n"


def with_accounts(config: Config, password: str) -> Config:
    """*config* of an embedded nats-server that lets in the users of the permissions, and us by *password*."""
    login = f"user: {quoted(BROKER)}, password: {quoted(password)}"
    nats = replace(config.nats, user=BROKER, password=password, token="", own=True)
    config = replace(config, nats=nats)
    return replace(config, embedded=replace(config.embedded, accounts=accounts(config, login, leaf_password(config))))


# --- leafnode connections -------------------------------------------------------------------------------------------------


def leaf_password(config: Config) -> str:
    """Our password on leafnode connections into the accounts of users; "" if JetStream is not served."""
    login, _, _ = config.jetstream_leaf.rpartition("@")
    if not config.jetstream_api:
        return ""
    return unquote(login.partition(":")[2]) if login else config.nats.password


def leaf_login(user: str) -> str:
    """Our name on the leafnode connection into a user's account: none that a user may have."""
    return f"{BROKER}.{user}"


def leaf_users(config: Config) -> list[str]:
    """The users into whose accounts deliveries of consumers may have to go: those who may read something."""
    found = config.permissions
    users = found.users if found is not None else ()
    return [user.name for user in users if found is not None and found.has(user.name, b"", Right.SUBSCRIBE)]


def _may_watch(permissions: Permissions, user: NatsUser) -> bool:
    """True if a user may receive events."""
    return any(permissions.allows(user.name, b"", right, b">") for right in (Right.ADMIN_READ, Right.ADMIN_WRITE))


def _account(user: NatsUser) -> str:
    return f"stan-user-{user.name}"


def _login(user: NatsUser) -> str:
    return (
        f"nkey: {quoted(user.nkey)}" if user.nkey else f"user: {quoted(user.name)}, password: {quoted(user.password)}"
    )


def _logins(user: NatsUser, leaf_password: str) -> str:
    """The logins of a user's account. Nobody but the broker may connect a leafnode: a leafnode chooses the subjects under which
    its messages are delivered, and so could speak for any user."""
    login = f"{{ {_login(user)}, {_allowed(*_CLIENTS)} }}"
    if not leaf_password:
        return login
    own = f"user: {quoted(leaf_login(user.name))}, password: {quoted(leaf_password)}"
    return f"{login}, {{ {own}, {_allowed('LEAFNODE')} }}"


def _allowed(*kinds: str) -> str:
    return f"allowed_connection_types: [{', '.join(map(quoted, kinds))}]"


def _published(config: Config, user: NatsUser) -> Iterator[tuple[str, bool]]:
    """Subjects that a user's clients publish to; True if NATS adds the user's name on the way to the broker."""
    subjects = Subjects.of(config.cluster_id, config.discover_prefix)
    for subject in (f"{subjects.pub_prefix}.>", f"{ack_subject(config.cluster_id)}.>"):
        yield f"{FROM}.{user.name}.{subject}", False
        yield subject, True  # from clients that were not instructed to name their user
    yield f"{reply_subject(config.cluster_id)}.*.*.{user.name}", False
    yield subjects.discover, True
    yield subjects.pings, True
    yield from ((subject, True) for subject in (subjects.sub, subjects.unsub, subjects.sub_close, subjects.close))
    yield from ((subject, True) for subject in (subjects.node_add, subjects.node_remove))
    yield from ((f"{subjects.extension}.{kind}", True) for kind in _REQUESTS)
    if config.jetstream_api:
        yield from ((subject, True) for subject in _of_jetstream(config))


def _of_jetstream(config: Config) -> Iterator[str]:
    """Subjects of JetStream's clients: its API, and those that streams may have. No two overlap, as a message would come twice.

    A stream's subjects are known only once it is made, and `>` cannot be exported beside inboxes that are imported: nats-server
    sees a cycle. So they are those that begin like a pattern of the permissions; of these the ones cross for which the broker
    listens."""
    yield from _API
    for token in sorted(stream_tokens(config)):
        yield from (token, f"{token}.>")


def _import(user: NatsUser, subject: str, *, wrap: bool) -> str:
    """Return an import of the broker's account."""
    renamed = f", to: {quoted(f'{FROM}.{user.name}.{subject}')}" if wrap else ""
    return f"{{ stream: {{ account: {quoted(_account(user))}, subject: {quoted(subject)} }}{renamed} }}"


def _sent_to(users: tuple[NatsUser, ...]) -> list[str]:
    return [f"{{ stream: {quoted(f'{TO}.{user.name}.>')}, accounts: [{quoted(_account(user))}] }}" for user in users]


def _imports(user: NatsUser, prefixes: Iterable[str], events: str) -> list[str]:
    """Return the imports of a user's account. *prefixes*: of subjects on which clients receive."""
    subs = ((f"{TO}.{user.name}.{prefix}>", f"{prefix}>") for prefix in prefixes)
    imports = [
        f"{{ stream: {{ account: {quoted(BROKER)}, subject: {quoted(name)} }}, to: {quoted(to)} }}" for name, to in subs
    ]
    return imports + ([f"{{ stream: {{ account: {quoted(BROKER)}, subject: {quoted(events)} }} }}"] if events else [])


def _list(name: str, items: list[str]) -> list[str]:
    return [f"{name}: [", *(f"  {item}" for item in items), "]"]


def _block(name: str, lines: list[str]) -> str:
    inside = "".join(f"    {line}\n" for line in lines)
    return f"  {quoted(name)} {{\n{inside}  }}\n"
