"""Looks, before this server answers clients of JetStream, whether somebody else does."""

import json
from typing import Final

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config
from stan.edge.nats.own_requests import OwnRequests
from stan.protocol.jetstream.api import ASKS_SERVER, PREFIX
from stan.protocol.user_subjects import BROKER, FROM, with_users

OWN_JETSTREAM: Final = (
    "jetstream_api is on, and the NATS server answers clients of JetStream itself: switch its JetStream off, or that of the "
    "account which this server uses"
)


async def jetstream_conflict(requests: OwnRequests, config: Config) -> str:
    """Return why this server must not answer clients of JetStream here; "" if it may: nobody else does, or only nodes of its own
    cluster."""
    subjects = [f"{PREFIX}INFO"]
    if with_users(config):  # NATS itself answers in our account, streaming servers answer users and each other
        subjects.append(f"{FROM}.{BROKER}.{PREFIX}INFO")
    for subject in subjects:
        answer = await requests.ask(subject, ASKS_SERVER, limits.STANDALONE_PROBE_TIMEOUT / SECOND)
        conflict = "" if answer is None else _conflict(answer, config.cluster_id)
        if conflict:
            return conflict
    return ""


def _conflict(answer: bytes, cluster_id: str) -> str:
    """Why the answer of somebody keeps this server from answering, too; "": it is a node of its own cluster."""
    try:
        told = json.loads(answer)
    except ValueError:
        return OWN_JETSTREAM
    other = told.get("stan") if isinstance(told, dict) else None
    if not isinstance(other, str):
        return OWN_JETSTREAM
    if other == cluster_id:
        return ""
    return f"jetstream_api is on, and the streaming server {go_quote(other)} answers clients of JetStream on this NATS"
