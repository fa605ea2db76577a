"""From an old store to a new directory, or to a report alone: the order of the steps, and the handling of missing messages.

Nothing is given out twice: where messages are missing at the end of a channel, an empty one stands for the last of them, as the
original fills gaps; in the middle they are missing as after any damage, and readers pass over them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stan_protocol.channels import folded
from stan_protocol.scalars import MiB

from stan.errors import StartError
from stan.migration.cluster.nodes import ClusterChannel, ClusterStore, find_raft
from stan.migration.crypto import ENCRYPTED, WRONG_KEY, Opener, opener
from stan.migration.messages import MessageRun
from stan.migration.old_store import OldChannel, OldStore
from stan.migration.quiet_watch import QuietWatch
from stan.migration.report import ChannelReport, MigrationReport, PositionReport
from stan.migration.subscriptions import OldPosition
from stan.migration.target import MigrationTarget, TargetChannel
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
WITHOUT_DURABLES = (
    "{why}. If it is lost, --without-durables moves the messages alone; then put each durable where it was before its client "
    "comes: stan durable create CHANNEL CLIENT/DURABLE --at SEQUENCE (the old server's page /streaming/channelsz?subs=1 tells "
    "last_sent)"
)
ALONE = "give the directory of a server that is no node of a cluster alone, and one directory with --without-durables"
ONE_LOG_EACH = "give one --raft for each directory, in the same order"
RUNS = (
    "the server of {source} seems to run: {why}. What it takes from now on would be missing in the new directory: stop it first. "
    "If it is stopped, say so with --stopped"
)
NOT_SEEN = (
    "no server seems to use {source}: no process that may be looked at has its files open to write, none of them changes, "
    "and {nats}. One on another machine, of another user or behind another NATS is not seen: make sure that it is stopped"
)
NOW_PLAIN = "payloads are decrypted and stored in plain; a server started with --encrypt encrypts what comes after them"

HOLDERS_SHOWN = 3
"""Processes named in a message at most."""

Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""
_PROGRESS_BYTES = 1 * MiB


class OldServerCheck(NamedTuple):
    """The result of asking on NATS if the old server runs."""

    runs: str = ""  # the server that answers, "" if none does
    outcome: str = "nobody was asked"


def nobody_asked(_cluster_id: str) -> OldServerCheck:
    """Ask no server: for a migration without the address of the old server's NATS."""
    return OldServerCheck()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """The settings of one migration."""

    sources: tuple[Path, ...]  # the store of the server, or of nodes of one cluster
    raft_logs: tuple[
        Path, ...
    ] = ()  # Raft directories of these nodes in the same order; without any they are looked for
    target: Path | None = None  # None: only look
    key: bytes = b""
    plain: bool = False  # treat all payloads as not encrypted, whatever they look like
    cluster_id: str = ""  # for a store that does not record its own
    raft_groups: int = 1
    without_durables: bool = False  # move a store that does not tell them: of a node of a cluster
    stopped: bool = False  # the old server, whatever it looks like
    watch_s: float = 0  # for how many seconds at least it is looked whether something changes
    ask: Callable[[str], OldServerCheck] = nobody_asked  # the old server, by its cluster id, on its NATS

    @property
    def source(self) -> str:
        """The directories, for messages."""
        return ", ".join(map(str, self.sources))


def move(plan: MigrationPlan, begin: Callable[[int], None], progress: Progress) -> MigrationReport:
    """Move the store. *begin* is called with the number of bytes to read.

    Raises:
        StartError: the plan cannot be carried out; a directory that was begun is no store.
        StanError, OSError: the new directory cannot be written.
    """
    stores = [OldStore(path) for path in plan.sources]
    raft_logs = _raft_logs(plan, stores)
    watch = QuietWatch([*plan.sources, *raft_logs], plan.watch_s)
    store = ClusterStore(stores, raft_logs, plan.key, plain=plan.plain) if raft_logs else stores[0]
    report = store.report
    key = b"" if plan.plain else plan.key
    report.decrypted |= _check_encryption(store, key, plain=plan.plain)
    cluster_id = store.cluster_id or plan.cluster_id.encode()
    report.cluster_id = cluster_id.decode(errors="replace")
    report.clients = [client.decode(errors="replace") for client in store.clients()]
    report.notes += [CLIENTS_END] if report.clients else []
    report.notes += [NOW_PLAIN] if report.decrypted else []
    if plan.target is None:
        begin(store.size)
        _move_channels(store, None, report, key, progress)
        if not plan.stopped:
            check = _check_server(plan, watch, report.cluster_id)
            report.notes.append(_verdict(plan, check.runs or watch.changed(), check))
        return report
    if not cluster_id:
        raise StartError(f"{plan.source} does not tell its cluster id; give it with --cluster-id")
    if any(plan.target.resolve().is_relative_to(path.resolve()) for path in plan.sources):
        raise StartError("the new directory must not lie in the old one, where it would look like a channel")
    if not plan.stopped and (check := _check_server(plan, watch, report.cluster_id)).runs:
        raise StartError(_verdict(plan, check.runs, check))
    begin(store.size)
    with MigrationTarget(plan.target, cluster_id, plan.raft_groups) as target:
        _move_channels(store, target, report, key, progress)
        if not plan.stopped:  # again: it may have been started meanwhile
            changed, check = watch.changed(), _check_server(plan, watch, report.cluster_id)
            if changed or check.runs:
                raise StartError(_verdict(plan, changed or check.runs, check))
            report.notes.append(_verdict(plan, "", check))
        target.finish()
    return report


def _raft_logs(plan: MigrationPlan, stores: list[OldStore]) -> list[Path]:
    """Return the Raft directories of the nodes, none for a server alone, or if its durables are not to be moved."""
    of_nodes = all(store.node_id for store in stores)
    if not of_nodes or plan.without_durables:
        if len(stores) > 1:
            raise StartError(ALONE)
        (store,) = stores
        store.report.notes += [OF_A_CLUSTER.format(node=store.node_id.decode(errors="replace"))] if of_nodes else []
        return []
    given = plan.raft_logs or [None] * len(stores)
    if len(given) != len(stores):
        raise StartError(ONE_LOG_EACH)
    try:
        return [find_raft(store, path) for store, path in zip(stores, given, strict=True)]
    except StartError as error:
        raise StartError(WITHOUT_DURABLES.format(why=error)) from error


def _check_server(plan: MigrationPlan, watch: QuietWatch, cluster_id: str) -> OldServerCheck:
    """Return the signs that the old server runs, at this moment."""
    check = plan.ask(cluster_id)
    return check._replace(runs="; ".join([*watch.holders()[:HOLDERS_SHOWN], *filter(None, [check.runs])]))


def _verdict(plan: MigrationPlan, why: str, check: OldServerCheck) -> str:
    return RUNS.format(source=plan.source, why=why) if why else NOT_SEEN.format(source=plan.source, nats=check.outcome)


def _check_encryption(store: OldStore | ClusterStore, key: bytes, *, plain: bool) -> bool:
    """Return True if there are payloads to decrypt. Raises StartError: the key is missing or wrong."""
    if plain:
        return False
    samples = list(store.samples())
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


def _move_channels(
    store: OldStore | ClusterStore,
    target: MigrationTarget | None,
    report: MigrationReport,
    key: bytes,
    progress: Progress,
) -> None:
    names: set[bytes] = set()
    for channel in store.channels:
        if folded(channel.name) in names:
            report.note(str(channel.directory), 0, "left out: another channel has the same name in lower case")
            continue
        names.add(folded(channel.name))
        channel_report = ChannelReport(channel.name.decode(errors="replace"))
        report.channels.append(channel_report)
        before = report.problem_count
        sink = None if target is None else target.channel(channel.name)
        _Mover(channel, report, channel_report, sink, opener(key, channel.name) if key else None).run(progress)
        channel_report.problems = report.problem_count - before


class _Mover:
    """Moves one channel."""

    def __init__(
        self,
        channel: OldChannel | ClusterChannel,
        report: MigrationReport,
        summary: ChannelReport,
        sink: TargetChannel | None,
        open_payload: Opener | None,
    ) -> None:
        self._channel = channel
        self._report = report
        self._summary = summary
        self._sink = sink
        self._opener = open_payload
        self._time = 1  # of the newest message

    def run(self, progress: Progress) -> None:
        """Messages first, then positions, so that these never point behind the end."""
        positions, self._summary.subscriptions_ended = self._channel.positions()
        done = 0
        for batch in self._channel.runs(self._opener):
            self._summary.lost += batch.base - self._summary.last - 1 if batch.gap else 0
            self._add(batch)
            done += len(batch.records) + 4 * batch.count
            if done > _PROGRESS_BYTES:
                progress(done)
                done = 0
        progress(done)
        self._summary.lost += self._channel.lost
        self._end(positions)
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

    def _end(self, positions: list[OldPosition]) -> None:
        """Make sure that no known sequence is given out again."""
        last, summary = self._summary.last, self._summary
        newest = max([self._channel.newest(), *(position.last_sent for position in positions)])
        if newest <= last:
            return
        self._report.note(str(self._channel.directory), 0, f"messages {last + 1} to {newest} are missing at the end")
        summary.lost += newest - last
        if last:
            filler = seal(self._channel.name, newest, self._time, [bytes(4)])
            self._add(MessageRun(newest, 1, self._time, filler, newest > last + 1))
            return
        summary.first, summary.last = newest + 1, newest
        if self._sink is not None:
            self._sink.begin_behind(newest)
