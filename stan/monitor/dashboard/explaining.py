"""The history of one message of a position, for the browser: the steps in sentences, from the servers' log."""

from typing import Any

from stan_protocol.admin_types import ExplainStep
from stan_protocol.proto import admin_pb2 as admin

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.monitor.dashboard.formatting import millis, shown
from stan.monitor.explained import BEGINS_LATE, GOES_ON, STATES, sentence_of

Json = dict[str, Any]


async def explained(cluster_client: ClusterClient, channel: bytes, cursor_id: int, sequence: int) -> Json:
    """Return the steps of a message in the order of the log. Errors as of `ClusterClient.ask`."""
    which = admin.Which(channel=channel, cursor_id=cursor_id)
    request = admin.ExplainRequest(version=1, which=which, sequence=sequence)
    steps: list[ExplainStep] = []
    note = ""
    for _ in range(limits.EXPLAIN_ANSWERS_MAX):
        answer = await cluster_client.ask("admin.explain", request, admin.ExplainResponse)
        note = BEGINS_LATE if answer.begins_late else note
        steps += map(ExplainStep.from_pb, answer.steps)
        if not answer.more:
            break
        getattr(request, "from").CopyFrom(answer.next)
    else:
        note = GOES_ON
    return {
        "state": STATES.get(answer.state, answer.state),
        "note": note,
        "steps": [
            {
                "time": millis(step.at) if step.at else 0,
                "leader": step.node,
                "cause": step.cause,
                "text": shown(sentence_of(step)),
            }
            for step in steps
        ],
    }
