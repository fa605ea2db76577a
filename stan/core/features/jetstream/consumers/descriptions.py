"""Descriptions of consumers for answers: the configuration, and how far the consumer has come."""

from stan_protocol.scalars import Nanos

from stan.core.features.jetstream.streams.descriptions import cluster_of
from stan.core.leader.cursors import LiveCursor
from stan.core.leader.local_group import ChannelGroup
from stan.core.services.services import Services
from stan.core.state.consumers import Consumer
from stan.core.state.consuming import cursor_of_consumer
from stan.core.state.cursors import Cursor
from stan.protocol.jetstream.moments import shown_moment


def described(services: Services, group: ChannelGroup, cursor: Cursor, consumer: Consumer) -> dict[str, object]:
    """A consumer on the leader of its group, as clients read it."""
    live, clock = group.live(cursor.cursor_id), services.node.clock
    told: dict[str, object] = {
        "stream_name": consumer.stream.decode(),
        "name": consumer.config.name,
        "created": shown_moment(consumer.created),
        "config": consumer.config.document(),
    }
    if live is not None and live.members and live.members[0].consumer is not None:
        told |= _position(services, group, live)
    if services.node.clustered:  # as NATS's own server alone answers
        told["cluster"] = cluster_of(services.node)
    pause = consumer.config.pause_until - clock.wall
    if pause > 0:
        told |= {"paused": True, "pause_remaining": pause}
    return told | {"ts": shown_moment(clock.wall)}


def ack_floor(live: LiveCursor) -> int:
    """The message up to which a consumer with acks has them all."""
    return min((run.first for runs in live.pending.everywhere for run in runs), default=live.last_sent + 1) - 1


def _position(services: Services, group: ChannelGroup, live: LiveCursor) -> dict[str, object]:
    """How far a consumer has come. The numbers of its deliveries count from its beginning."""
    member, pending = live.members[0], live.pending
    consumer = member.consumer
    assert consumer is not None  # noqa: S101 - for mypy
    unacked = sum(runs.size for runs in pending.everywhere)
    floor = ack_floor(live)
    newest = services.stored.indexes(group.machine.group, live.cursor.uid).last_sequence
    again = sum(run.size for runs in pending.everywhere for run in runs if run.count > 0)
    started = consumer.sent > 0
    told: dict[str, object] = {
        "delivered": {"consumer_seq": consumer.sent, "stream_seq": live.last_sent},
        "ack_floor": {
            "consumer_seq": consumer.sent - unacked if consumer.config.acks else 0,
            "stream_seq": (floor if started else live.last_sent) if consumer.config.acks else 0,
        },
        "num_ack_pending": unacked if consumer.config.acks else 0,
        "num_redelivered": again,
        "num_waiting": len(consumer.pulls),
        "num_pending": consumer.remaining(live.last_sent, max(0, newest - live.last_sent - live.ahead.skip.size)),
    }
    if consumer.presence.active:
        told["push_bound"] = True
    return told


def consumer_named(group: ChannelGroup, uid: int, name: bytes) -> tuple[Cursor, Consumer] | None:
    """A consumer of a group, and its cursor; None: there is none of that name."""
    machine = group.machine
    consumer = machine.consumers.by_channel.get(uid, {}).get(name)  # type: ignore[call-overload]
    return None if consumer is None else (cursor_of_consumer(machine, uid, name), consumer)  # type: ignore[arg-type]


def inactive_since(now: Nanos) -> Nanos:
    """A moment from which on inactivity counts; never 0, which means that there is none."""
    return Nanos(max(1, now))
