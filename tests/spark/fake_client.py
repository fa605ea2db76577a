"""A broker of one process's memory behind the interface of `BlockingClient`, for what the sink does without Spark and network.

Promises what the broker promises about batches and transactions, and counts what it was asked for.
"""

from collections import Counter
from concurrent.futures import Future

from stan_client import BatchAck, Committed
from stan_client.errors import ServerError
from stan_protocol.admin_types import PartedStatus
from stan_protocol.kernel.rows import ID_BYTES, check_rows
from stan_protocol.parted import part_of
from stan_protocol.proto.wire_pb2 import MsgProto
from stan_protocol.refusals import ANOTHER_WRITER, HAS_PARTS


def messages_of(rows, count):
    """The messages of packed rows."""
    assert check_rows(rows, count) == -1
    found, at = [], 0
    for _ in range(count):
        size = int.from_bytes(rows[at : at + 4], "little")
        found.append(MsgProto.FromString(rows[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


class FakeClient:
    """See the module's docstring."""

    def __init__(self, max_payload=1 << 20):
        self.max_payload = max_payload
        self.channels = {}  # name -> messages that readers see
        self.staged = {}  # (txn, channel) -> part -> messages
        self.ids = {}  # (producer, channel) -> version -> ids
        self.versions = {}  # (app, channel) -> committed version
        self.finished = {}  # app -> version
        self.writers = {}  # app -> who committed the newest version
        self.asked = Counter()
        self.parted = {}  # channels with parts: name -> number of parts, where JSON data has the key
        self.failures = []  # exceptions that the next requests get

    def data(self, channel):
        """What a reader sees."""
        return [message.data for message in self.channels.get(channel, [])]

    def parts(self, channel):
        self.asked["parts"] += 1
        number, path = self.parted.get(channel, (0, ""))
        return [PartedStatus(channel=channel, parts=number, key=path)] if number else []

    def _check_parts(self, channel, rows, count):
        if channel in self.parted:
            last = self.parted[channel][0] - 1
            raise ServerError(HAS_PARTS.format(f'"{channel}.~0"', f'"{channel}.~{last}"'))
        whole, _, number = channel.rpartition(".~")
        if whole in self.parted:
            keys = [message.key for message in messages_of(rows, count) if message.key]
            assert {part_of(key, self.parted[whole][0]) for key in keys} <= {int(number)}

    def message_bytes_max(self):
        return self.max_payload

    def publish_batch_nowait(self, channel, rows, count, *, producer="", version=0, ids=b""):
        return self._done("batch", lambda: self._publish(channel, rows, count, producer, version, ids), len(rows))

    def stage_together_nowait(self, app, version, txn, parts):
        def stage():
            for part in parts:
                self._check_parts(part.channel, part.rows, part.count)
            for part in parts:
                self.staged.setdefault((txn, part.channel), {})[part.part] = messages_of(part.rows, part.count)

        assert len({part.channel for part in parts}) == len(parts)
        return self._done("stage", stage, sum(len(part.rows) + len(part.channel) for part in parts))

    def commit(self, app, version, txns, *, writer="", timeout_s=None):
        self.asked["commit"] += 1
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        self._check_writer(app, version, writer)
        self.writers[app] = writer
        found = {}
        for channel, staged in txns.items():
            already = version <= self.versions.get((app, channel), -1)
            if not already:
                rows = []
                for txn, parts in staged:
                    assert len(self.staged.get((txn, channel), {})) == parts, "staged rows are gone"
                    rows += [row for part in range(parts) for row in self.staged[txn, channel][part]]
                self.channels.setdefault(channel, []).extend(rows)
                self.versions[app, channel] = version
            for txn, _ in staged:
                self.staged.pop((txn, channel), None)
            found[channel] = Committed(already, 0, 0)
        self.finished[app] = max(version, self.finished.get(app, -1))
        return found

    def abort(self, txns):
        self.asked["abort"] += 1
        for channel, names in txns.items():
            for txn in names:
                self.staged.pop((txn, channel), None)

    def last_committed(self, app, *, writer="", version=0):
        self._check_writer(app, version, writer)
        return self.finished.get(app, -1)

    def _check_writer(self, app, version, writer):
        known = self.writers.get(app, "")
        if version <= self.finished.get(app, -1) and writer and known not in ("", writer):
            raise ServerError(ANOTHER_WRITER.format(version, app, known))

    def _publish(self, channel, rows, count, producer, version, ids):
        self._check_parts(channel, rows, count)
        messages = messages_of(rows, count)
        known = set()
        if ids:
            window = self.ids.setdefault((producer, channel), {})
            for old in sorted(window)[:-2]:
                del window[old]
            known = set().union(*window.values())
            mine = window.setdefault(version, set())
        stored = self.channels.setdefault(channel, [])
        before = len(stored)
        for place, message in enumerate(messages):
            ident = ids[ID_BYTES * place : ID_BYTES * (place + 1)]
            if ids and ident in known:
                continue
            stored.append(message)
            if ids:
                known.add(ident)
                mine.add(ident)
        return BatchAck(before + 1, len(stored), count - (len(stored) - before))

    def _done(self, kind, work, size):
        assert size < self.max_payload
        self.asked[kind] += 1
        future = Future()
        if self.failures and (failure := self.failures.pop(0)) is not None:
            future.set_exception(failure)
        else:
            try:
                future.set_result(work())
            except ServerError as error:
                future.set_exception(error)
        return future
