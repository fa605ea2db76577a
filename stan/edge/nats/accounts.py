"""The accounts of NATS that make it known who asks: one for the broker, one for each user (stan.protocol.user_subjects).

Promises: a user's account hands to the broker what clients say, under that user's name alone, and gets what the broker sends to
that user, and nothing else. Nobody in it hears or says anything in another one. For the embedded nats-server, and as text for one
that somebody else runs. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from stan.config import Config
from stan.edge.nats.nats_process import quoted
from stan.permissions import NatsUser, Right
from stan.protocol.channels import REPLIES, Subjects
from stan.protocol.user_subjects import BROKER, FROM, TO, ack_subject, reply_subject

_REQUESTS = ("*", "replica.*", "admin.>")
"""What is asked behind `_STAN.x.<cluster>`; events come the other way."""


def accounts(config: Config, login: str) -> str:
    """A block `accounts` for nats-server. *login*: how the broker's own user proves who it is, as nats-server reads it."""
    permissions = config.permissions
    users = permissions.users if permissions is not None else ()
    operators = [user for user in users if permissions and permissions.allows(user.name, b"", Right.ADMIN_READ, b">")]
    watching = ", ".join(quoted(_account(user)) for user in operators)
    events = f"{Subjects.of(config.cluster_id, config.discover_prefix).extension}.events.*"
    broker = [f"users: [{{ {login} }}]"]
    sent = _sent_to(users)
    sent += [f"{{ stream: {quoted(events)}, accounts: [{watching}] }}"] if operators else []
    broker += _list("exports", sent)
    broker += _list(
        "imports", [_taken(user, subject, wrap=wrap) for user in users for subject, wrap in _said(config, user)]
    )
    blocks = [_block(BROKER, broker)]
    prefixes = (*REPLIES, *config.reply_prefixes)
    for user in users:
        shown = [subject for subject, _ in _said(config, user)]
        lines = [f"users: [{{ {_login(user)} }}]"]
        lines += _list("exports", [f"{{ stream: {quoted(s)}, accounts: [{quoted(BROKER)}] }}" for s in shown])
        lines += _list("imports", _got(user, prefixes, events if user in operators else ""))
        blocks.append(_block(_account(user), lines))
    return "accounts {\n" + "".join(blocks) + "}\n"


def with_accounts(config: Config, password: str) -> Config:
    """*config* of an embedded nats-server that lets in the users of the permissions, and us by *password*."""
    login = f"user: {quoted(BROKER)}, password: {quoted(password)}"
    embedded = replace(config.embedded, accounts=accounts(config, login))
    return replace(config, embedded=embedded, nats=replace(config.nats, user=BROKER, password=password, token=""))


def _account(user: NatsUser) -> str:
    return f"stan-user-{user.name}"


def _login(user: NatsUser) -> str:
    return (
        f"nkey: {quoted(user.nkey)}" if user.nkey else f"user: {quoted(user.name)}, password: {quoted(user.password)}"
    )


def _said(config: Config, user: NatsUser) -> Iterator[tuple[str, bool]]:
    """What clients say, and whether the broker hears it under the user's name."""
    subjects = Subjects.of(config.cluster_id, config.discover_prefix)
    for subject in (f"{subjects.pub_prefix}.>", f"{ack_subject(config.cluster_id)}.>"):
        yield f"{FROM}.{user.name}.{subject}", False
        yield subject, True  # of who was let in by a server that did not tell him to say his name
    yield f"{reply_subject(config.cluster_id)}.*.*.{user.name}", False
    yield subjects.discover, True
    yield subjects.pings, True
    yield from ((subject, True) for subject in (subjects.sub, subjects.unsub, subjects.sub_close, subjects.close))
    yield from ((subject, True) for subject in (subjects.node_add, subjects.node_remove))
    yield from ((f"{subjects.extension}.{kind}", True) for kind in _REQUESTS)


def _taken(user: NatsUser, subject: str, *, wrap: bool) -> str:
    """An import of the broker's account."""
    renamed = f", to: {quoted(f'{FROM}.{user.name}.{subject}')}" if wrap else ""
    return f"{{ stream: {{ account: {quoted(_account(user))}, subject: {quoted(subject)} }}{renamed} }}"


def _sent_to(users: tuple[NatsUser, ...]) -> list[str]:
    return [f"{{ stream: {quoted(f'{TO}.{user.name}.>')}, accounts: [{quoted(_account(user))}] }}" for user in users]


def _got(user: NatsUser, prefixes: Iterable[str], events: str) -> list[str]:
    """The imports of a user's account. *prefixes*: of what clients want to be told on."""
    told = ((f"{TO}.{user.name}.{prefix}>", f"{prefix}>") for prefix in prefixes)
    found = [
        f"{{ stream: {{ account: {quoted(BROKER)}, subject: {quoted(said)} }}, to: {quoted(to)} }}" for said, to in told
    ]
    return found + ([f"{{ stream: {{ account: {quoted(BROKER)}, subject: {quoted(events)} }} }}"] if events else [])


def _list(name: str, items: list[str]) -> list[str]:
    return [f"{name}: [", *(f"  {item}" for item in items), "]"]


def _block(name: str, lines: list[str]) -> str:
    inside = "".join(f"    {line}\n" for line in lines)
    return f"  {quoted(name)} {{\n{inside}  }}\n"
