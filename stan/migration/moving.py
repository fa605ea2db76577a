"""From an old store to a target, or to a report alone: the order of the steps, and the handling of missing messages.

Nothing is given out twice: where messages are missing at the end of a channel, an empty one stands for the last of them, as the
original fills gaps; in the middle they are missing as after any damage, and readers pass over them.
"""

from collections.abc import Callable
from pathlib import Path

from stan_protocol.channels import folded
from stan_protocol.scalars import MiB

from stan.errors import StartError
from stan.migration.crypto import ENCRYPTED, WRONG_KEY, Opener, opener
from stan.migration.plan import WITHOUT_DURABLES, MigrationPlan, OpenTarget
from stan.migration.report import ChannelReport, MigrationReport, PositionReport
from stan.migration.source import ChannelSink, MessageRun, OldServerCheck, Source, SourceChannel, StoreSink
from stan.migration.target import MigrationTarget
from stan.protocol.kernel.server import seal

CLIENTS_END = (
    "clients are not registered any more and connect anew, as after a restart of a server with a memory store; their durables "
    "wait for them, and get what they had not acknowledged first"
)
OF_A_CLUSTER = (
    "this was node {node} of a cluster, which has durables and queue groups in its Raft log. All of them begin anew: a client "
    "that resumes its durable with the usual start, new messages only, skips everything that it had not acknowledged, and one "
    "that asks for all gets all of it again"
)
RUNS = (
    "the server of {source} seems to run: {why}. What it takes from now on would not be moved: stop it first. "
    "If it is stopped, say so with --stopped"
)
NOT_SEEN = "no server seems to use {source}: {reason}"
NOW_PLAIN = "payloads are decrypted and stored in plain; a server started with --encrypt encrypts what comes after them"

HOLDERS_SHOWN = 3
"""Processes named in a message at most."""

Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""
_PROGRESS_BYTES = 1 * MiB


def move(plan: MigrationPlan, begin: Callable[[int], None], progress: Progress) -> MigrationReport:
    """Move the store. *begin* is called with the number of bytes to read.

    Raises:
        StartError: the plan cannot be carried out; a directory that was begun is no store.
        StanError, OSError: the target cannot be written.
    """
    source = plan.source(plan)
    try:
        return _Migration(plan, source, progress).run(begin)
    finally:
        source.close()


class _Migration:
    """A migration, from an open source to its report."""

    def __init__(self, plan: MigrationPlan, source: Source, progress: Progress) -> None:
        self._plan = plan
        self._source = source
        self._report = source.report
        self._progress = progress
        self._key = b"" if plan.plain else plan.key

    def run(self, begin: Callable[[int], None]) -> MigrationReport:
        """Move the store, or look at it."""
        plan, source, report = self._plan, self._source, self._report
        if source.node_id and not plan.without_durables:
            raise StartError(WITHOUT_DURABLES.format(why=self._of_a_cluster()))
        cluster_id = source.cluster_id or plan.cluster_id.encode()
        self._describe(cluster_id)
        if plan.target is None:
            begin(source.size)
            self._move_channels(None)
            if not plan.stopped:
                check = self._check_server()
                report.notes.append(self._verdict(check.runs or source.watch.changed(), check))
            return report
        if not cluster_id:
            raise StartError(f"{report.source} does not tell its cluster id; give it with --cluster-id")
        if not plan.stopped and (check := self._check_server()).runs:
            raise StartError(self._verdict(check.runs, check))
        begin(source.size)
        with self._open(plan.target, cluster_id) as target:
            self._move_channels(target)
            if not plan.stopped:  # again: it may have been started meanwhile
                changed, check = source.watch.changed(), self._check_server()
                if changed or check.runs:
                    raise StartError(self._verdict(changed or check.runs, check))
                report.notes.append(self._verdict("", check))
            target.finish()
        return report

    def _describe(self, cluster_id: bytes) -> None:
        """Begin the report. Raises StartError: the key is missing or wrong."""
        source, report = self._source, self._report
        report.decrypted |= _check_encryption(source, self._key, plain=self._plan.plain)
        report.cluster_id = cluster_id.decode(errors="replace")
        report.clients = [client.decode(errors="replace") for client in source.clients()]
        report.notes += [self._of_a_cluster()] if source.node_id else []
        report.notes += [CLIENTS_END] if report.clients else []
        report.notes += [NOW_PLAIN] if report.decrypted else []

    def _of_a_cluster(self) -> str:
        return OF_A_CLUSTER.format(node=self._source.node_id.decode(errors="replace"))

    def _open(self, target: Path | OpenTarget, cluster_id: bytes) -> StoreSink:
        if isinstance(target, Path):
            return MigrationTarget(target, cluster_id, self._plan.raft_groups)
        return target(self._report)

    def _check_server(self) -> OldServerCheck:
        """Return the signs that the old server runs, at this moment."""
        check = self._plan.ask(self._report.cluster_id)
        holders = self._source.watch.holders()[:HOLDERS_SHOWN]
        return check._replace(runs="; ".join([*holders, *filter(None, [check.runs])]))

    def _verdict(self, why: str, check: OldServerCheck) -> str:
        title, not_seen = self._report.source, self._source.watch.not_seen
        if why:
            return RUNS.format(source=title, why=why)
        return NOT_SEEN.format(source=title, reason=not_seen.format(nats=check.outcome))

    def _move_channels(self, target: StoreSink | None) -> None:
        names: set[bytes] = set()
        report, key = self._report, self._key
        for channel in self._source.channels:
            if folded(channel.name) in names:
                channel.report("left out: another channel has the same name in lower case")
                continue
            names.add(folded(channel.name))
            summary = ChannelReport(channel.name.decode(errors="replace"))
            report.channels.append(summary)
            before = report.problem_count
            sink = None if target is None else target.channel(channel.name)
            open_payload = opener(key, channel.name) if key else None
            _Mover(channel, summary, sink, open_payload).run(self._progress)
            summary.problems = report.problem_count - before


def _check_encryption(source: Source, key: bytes, *, plain: bool) -> bool:
    """Return True if there are payloads to decrypt. Raises StartError: the key is missing or wrong."""
    if plain:
        return False
    samples = list(source.samples())
    encrypted = [(name, payload) for name, payload in samples if payload]
    if not key:
        if encrypted and len(encrypted) == len(samples):
            raise StartError(ENCRYPTED)
        return False
    if encrypted and not any(_opens(opener(key, name), payload) for name, payload in encrypted):
        raise StartError(WRONG_KEY)
    return bool(encrypted)


def _opens(open_payload: Opener, payload: bytes) -> bool:
    try:
        open_payload(payload)
    except ValueError:
        return False
    return True


class _Mover:
    """Moves one channel."""

    def __init__(
        self,
        channel: SourceChannel,
        summary: ChannelReport,
        sink: ChannelSink | None,
        open_payload: Opener | None,
    ) -> None:
        self._channel = channel
        self._summary = summary
        self._sink = sink
        self._open_payload = open_payload
        self._time = 1  # of the newest message

    def run(self, progress: Progress) -> None:
        """Messages first, then positions, so that these never point behind the end."""
        positions, self._summary.subscriptions_ended = self._channel.positions()
        done = 0
        for batch in self._channel.runs(self._open_payload):
            self._summary.lost += batch.base - self._summary.last - 1 if batch.gap else 0
            self._add(batch)
            done += len(batch.records) + 4 * batch.count
            if done > _PROGRESS_BYTES:
                progress(done)
                done = 0
        progress(done)
        self._summary.lost += self._channel.lost
        self._end(max((position.last_sent for position in positions), default=0))
        for position in positions:
            self._summary.positions.append(
                PositionReport(
                    position.name.decode(errors="replace"),
                    "" if position.queue_group else position.client_id.decode(errors="replace"),
                    position.last_sent,
                    len(position.pending),
                )
            )
            if self._sink is not None:
                self._sink.position(position)

    def _add(self, batch: MessageRun) -> None:
        summary = self._summary
        summary.first = summary.first or batch.base
        summary.last = batch.base + batch.count - 1
        summary.messages += batch.count
        summary.bytes += len(batch.records) - 4 * batch.count
        self._time = max(self._time, batch.timestamp)
        if self._sink is not None:
            self._sink.add(batch)

    def _end(self, sent: int) -> None:
        """Make sure that no known sequence is given out again."""
        summary, last = self._summary, self._summary.last
        newest = max(self._channel.newest(), sent)
        if newest <= last:
            return
        if last or not self._channel.may_be_empty:
            self._channel.report(f"messages {last + 1} to {newest} are missing at the end")
            summary.lost += newest - last
        if last:
            filler = seal(self._channel.name, newest, self._time, [bytes(4)])
            self._add(MessageRun(newest, 1, self._time, filler, newest > last + 1))
            return
        summary.first, summary.last = newest + 1, newest
        if self._sink is not None:
            self._sink.begin_behind(newest)
