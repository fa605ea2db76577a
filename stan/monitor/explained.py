"""The history of a message, in sentences: for the command line and for the dashboard. Pure."""

from datetime import UTC, datetime
from typing import Final

from stan_protocol.admin_types import ExplainStep

CAUSES: Final = {
    "new": "for the first time",
    "ack wait over": "again, as the delivery before was not acked in time",
    "negative ack": "again, as the client had failed with it (negative ack)",
    "member gone": "again, as the member that had it has left",
    "leader changed": "as a possible repeat: the leader before may have sent it, and no entry tells whether it has",
    "server changed": "as a possible repeat: the node that served the subscription before may have sent it, and no entry tells "
    "whether it has",
    "resumed": "again, as it was not acked when the last member left",
    "moved": "again, as an operator had moved the position back, or asked for it to be sent again",
    "not sent": "once more, as the delivery before never left the server",
    "owed": "again; the entries that tell why are gone",
}
"""By the causes' names in answers, how a delivery goes on."""
OTHERS: Final = {
    "staged": "staged by application {app}, version {version}, as message {sequence} of the group's hidden channel "
    "(entry {index})",
    "committed": "committed: visible in the channel from then on (entry {index})",
    "maybe delivered": "a new leader began: the one before may have sent it, and no entry tells whether it has",
    "acked": "acked",
    "rejected": "rejected by its client: not sent any more",
    "exhausted": "given up: delivered as often as the policy allows",
    "dead letter": "moved into the dead letter channel",
    "left": "the member that had it (subscription {subscription}) left",
    "moved": "an operator moved the position: message {sequence} came next",
    "skipped": "skipped by an operator: settled without an ack",
    "sent again": "an operator asked for it to be sent again",
    "expired": "expired, as its time to live was over: settled without an ack",
    "removed": "removed from the channel, by its limits or an operator: settled without an ack",
    "paused": "an operator paused the position",
    "resumed": "an operator resumed the position",
}
STATES: Final = {
    "not sent": "It was not sent yet.",
    "pending": "A member has it, and has not acked it yet.",
    "owed": "It is to be sent again.",
    "gone": "It was gone from the channel before it was sent.",
    "rejected": "Its client has rejected it. It is not sent any more unless an operator asks for it.",
    "exhausted": "It was delivered as often as the policy allows, and is not sent any more unless an operator asks for it.",
    "settled": "It is settled.",
}
BEGINS_LATE: Final = "The log no longer has all entries from the message's own on: what happened first may be missing."
GOES_ON: Final = (
    "The log goes on: what happened since may be missing, but for its state. `stan explain --all` reads the rest."
)


def sentence_of(step: ExplainStep) -> str:
    """Return a step in words, without its time."""
    if step.what == "paused" and step.reason:
        return f"the broker paused the position: {step.reason}"
    if step.what != "delivered":
        return OTHERS.get(step.what, step.what).format(
            subscription=step.subscription_id,
            sequence=f"{step.sequence:,}",
            app=step.app,
            version=step.app_version,
            index=f"{step.index:,}",
        )
    text = f"sent to {step.client_id} (subscription {step.subscription_id}) {CAUSES.get(step.cause, step.cause)}"
    return f"{text}; redelivery {step.count}" if step.count else text


def moment_of(step: ExplainStep) -> str:
    """Return the time of a step, in the local zone, to the millisecond; "-" if it is not known."""
    if not step.at:
        return "-"
    at = datetime.fromtimestamp(step.at // 1_000_000 / 1000, UTC).astimezone()
    return at.isoformat(" ", "milliseconds")
