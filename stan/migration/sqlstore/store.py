"""The SQL store of a NATS Streaming Server as a source: its public tables, as the original reads them when it recovers.

    ServerInfo ─► Clients ─► Channels ─► of each: Subscriptions, SubsPending, Messages

Promises: everything is of one moment; damage is reported with table and key, and everything else is read. Rows that the original
would leave out, those of deleted channels and subscriptions, are left out and are no damage.
"""

from collections.abc import Iterator
from typing import Final

from stan_protocol.channels import is_channel_name
from stan_protocol.units import counted

from stan.errors import StartError
from stan.migration.crypto import Opener, looks_encrypted
from stan.migration.plan import OpenSource
from stan.migration.records import ProtoFields
from stan.migration.report import MigrationReport
from stan.migration.source import MessageRun
from stan.migration.sqlstore.database import Row, SqlAddress, SqlConnection
from stan.migration.sqlstore.messages import RowReader
from stan.migration.sqlstore.subscriptions import SubscriptionReader
from stan.migration.sqlstore.watch import SqlWatch
from stan.migration.subscriptions import OldPosition

VERSION: Final = 1
"""Of the tables."""
NAME_BYTES_MAX: Final = 4096
PROTO_BYTES_MAX: Final = 65_535
PAGE_ROWS: Final = 1000
CLIENTS_MAX: Final = 10_000
LEAST_ID: Final = -(1 << 31)
SAMPLE: Final = 20
"""Messages of a channel by which its encryption is judged."""
SERVER: Final = """
SELECT CASE WHEN octet_length(id) <= %s THEN id END, CASE WHEN octet_length(proto) <= %s THEN proto END, version
FROM ServerInfo WHERE uniquerow = 1 LIMIT 1
"""
CLIENTS: Final = "SELECT CASE WHEN octet_length(id) <= %s THEN id END FROM Clients ORDER BY id LIMIT %s"
CHANNELS: Final = """
SELECT id, CASE WHEN octet_length(name) <= %s THEN name END, maxseq, COALESCE(deleted, TRUE)
FROM Channels WHERE id >= %s ORDER BY id LIMIT %s
"""
OWNER: Final = "SELECT MIN(id) FROM Messages WHERE id > %s"
SAMPLES: Final = "SELECT data FROM Messages WHERE id = %s AND octet_length(data) <= %s ORDER BY seq LIMIT %s"


def sql_store(url: str, password: str) -> OpenSource:
    """Return the source for a plan. Raises StartError: the URL is wrong."""
    address = SqlAddress.parse(url, password)
    return lambda plan: SqlStore(address, plan.watch_s)


class SqlStore:
    """A SQL store of NATS Streaming Server. Raises StartError: the database cannot be read, or has no such store."""

    size = 0

    def __init__(self, address: SqlAddress, watch_s: float = 0) -> None:
        self.report = MigrationReport(address.title)
        self.cluster_id = b""
        self.node_id = b""  # of a server of a cluster
        self.channels: list[SqlChannel] = []
        self._present = address.present()
        try:
            self._connection = address.snapshot()
        except BaseException:
            self._present.close()
            raise
        try:
            self.watch = SqlWatch(self._present, [self._connection], watch_s)
            self._read_server()
            self._read_channels()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._present.close()

    def clients(self) -> list[bytes]:
        """Ids of the clients that were registered, of very many the first ones."""
        return [
            name.encode("utf-8", "replace")
            for (name,) in self._connection.rows(CLIENTS, NAME_BYTES_MAX, CLIENTS_MAX)
            if name is not None
        ]

    def samples(self) -> Iterator[tuple[bytes, bytes]]:
        """Channel and payload of some messages that may be encrypted, and b"" in place of other payloads."""
        for channel in self.channels:
            for (data,) in self._connection.rows(SAMPLES, channel.number, PROTO_BYTES_MAX, SAMPLE):
                try:
                    payload = ProtoFields(bytes(data)).text(4)
                except ValueError:
                    continue
                if payload:
                    yield channel.name, payload if looks_encrypted(payload) else b""

    def _read_server(self) -> None:
        rows = self._connection.rows(SERVER, NAME_BYTES_MAX, PROTO_BYTES_MAX)
        if not rows:
            self.report.note_row("ServerInfo", "uniquerow=1", "there is no such row")
            return
        column, proto, version = rows[0]
        if version != VERSION:
            raise StartError(f"{self.report.source} has tables of version {version}; version {VERSION} can be read")
        self.cluster_id = (column or "").encode("utf-8", "replace")
        try:
            info = ProtoFields(bytes(proto or b""))
        except ValueError as error:
            self.report.note_row("ServerInfo", "uniquerow=1", f"proto: {error}")
            return
        if info.text(1) != self.cluster_id:
            self.report.note_row("ServerInfo", "uniquerow=1", "id and proto are of different clusters; id counts")
        self.node_id = info.text(9)

    def _read_channels(self) -> None:
        ids: set[int] = set()
        deleted, least = 0, LEAST_ID
        page: list[Row] = [()] * PAGE_ROWS
        while len(page) == PAGE_ROWS:
            page = self._connection.rows(CHANNELS, NAME_BYTES_MAX, least, PAGE_ROWS)
            for number, name, newest, gone in page:
                ids.add(number)
                least = number + 1
                encoded = (name or "").encode("utf-8", "replace")
                if gone:
                    deleted += 1
                elif is_channel_name(encoded):
                    self.channels.append(SqlChannel(self._connection, number, encoded, newest or 0, self.report))
                else:
                    self.report.note_row("Channels", f"id={number}", "left out: not the name of a channel")
        if deleted:
            self.report.notes.append(f"left out: {counted(deleted, 'channel')} that were being deleted")
        self._report_orphans(ids)

    def _report_orphans(self, ids: set[int]) -> None:
        """Report messages of channels that have no row."""
        owner = LEAST_ID - 1
        while (following := self._connection.rows(OWNER, owner)[0][0]) is not None:
            owner = following
            if owner not in ids:
                self.report.note_row("Messages", f"id={owner}", "left out: Channels has no row with this id")


class SqlChannel:
    """A channel of the store."""

    lost = 0  # at its beginning: none that this store would know of
    may_be_empty = True  # the original remembers in its row where it was

    def __init__(
        self, connection: SqlConnection, number: int, name: bytes, newest: int, report: MigrationReport
    ) -> None:
        self.name = name
        self.number = number
        self._connection = connection
        self._newest = newest  # that its row has, which is not always up to date
        self._report = report

    def positions(self) -> tuple[list[OldPosition], int]:
        """Return the durables, and the number of subscriptions that end because they are not durable."""
        reader = SubscriptionReader(self._connection, self.number, self._report.note_row)
        positions = reader.read()
        self._newest = max(self._newest, reader.newest)
        return positions

    def runs(self, open_payload: Opener | None) -> Iterator[MessageRun]:
        """The messages, page by page."""
        reader = RowReader(self._connection, self.number, self.name, self._report.note_row, open_payload)
        yield from reader.read()
        if reader.rewritten:
            self._report.notes.append(
                f"in channel {self.name.decode(errors='replace')} {counted(reader.rewritten, 'message')} had another "
                "sequence or channel in data than in their row, and have those of the row now"
            )

    def newest(self) -> int:
        """The newest sequence that the row of the channel, a message or a subscription has."""
        return self._newest

    def report(self, fault: str) -> None:
        """Report a fault of the whole channel."""
        self._report.note_row("Channels", f"id={self.number}", fault)
