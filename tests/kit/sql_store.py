"""A NATS Streaming Server's SQL store, written row by row as the original does: to be read, damaged and measured."""

import json

from stan_protocol.kernel.wire_py import number, text

from tests.kit.old_store import EPOCH, FIXTURES, message

DUMPS = FIXTURES / "stan-sqlstore"
CLUSTER_ID = "test-cluster"
_COLUMNS = {
    "ServerInfo": "uniquerow INTEGER DEFAULT 1 PRIMARY KEY, id VARCHAR(1024), proto {bytes}, version INTEGER",
    "Clients": "id VARCHAR(256) PRIMARY KEY, hbinbox TEXT, proto {bytes}",
    "Channels": "id INTEGER PRIMARY KEY, name VARCHAR(1024) NOT NULL, maxseq {number} DEFAULT 0, maxmsgs INTEGER DEFAULT 0, "
    "maxbytes BIGINT DEFAULT 0, maxage BIGINT DEFAULT 0, deleted BOOL DEFAULT FALSE",
    "Messages": "id INTEGER, seq {number}, timestamp BIGINT, size INTEGER, data {bytes}, PRIMARY KEY (id, seq)",
    "Subscriptions": "id INTEGER, subid {number}, lastsent {number} DEFAULT 0, proto {bytes}, deleted BOOL DEFAULT FALSE, "
    "PRIMARY KEY (id, subid)",
    "SubsPending": "subid {number}, {row} {number}, seq {number} DEFAULT 0, lastsent {number} DEFAULT 0, pending {bytes}, "
    "acks {bytes}, PRIMARY KEY (subid, {row})",
    "StoreLock": "id VARCHAR(30), tick {number} DEFAULT 0",
}
TYPES = {
    "postgres": {"bytes": "BYTEA", "number": "BIGINT", "row": '"row"'},
    "mysql": {"bytes": "LONGBLOB", "number": "BIGINT UNSIGNED", "row": "`row`"},
}


class SqlStoreWriter:
    """Writes into a database, which is emptied first."""

    def __init__(self, database):
        self.database = database
        self._types = TYPES[database.url.partition(":")[0]]
        self._pending = f"SubsPending (subid, {self._types['row']}, seq, lastsent, pending, acks)"
        for table in _COLUMNS:
            database.execute(f"DROP TABLE IF EXISTS {table}")

    def tables(self):
        """Make the tables."""
        for table, columns in _COLUMNS.items():
            self.database.execute(f"CREATE TABLE {table} ({columns.format(**self._types)})")

    def server(self, cluster_id=CLUSTER_ID, *, node_id="", version=1):
        """Make the tables, and write the server's identity; *node_id*: of a node of a cluster."""
        self.tables()
        proto = text(1, cluster_id.encode()) + (text(9, node_id.encode()) if node_id else b"")
        self._insert("ServerInfo (id, proto, version)", [(cluster_id, proto, version)])

    def client(self, name):
        """Write a client that is registered."""
        self._insert("Clients (id, hbinbox, proto)", [(name, f"_HB.{name}", text(1, name.encode()))])

    def channel(
        self, number_of_channel, name, payloads=(), *, first=1, step=1_000_000, reply=b"", maxseq=0, deleted=False
    ):
        """Write a channel; the payloads are consecutive messages."""
        self._insert("Channels (id, name, maxseq, deleted)", [(number_of_channel, name, maxseq, deleted)])
        rows = []
        for sequence, data in enumerate(payloads, first):
            time = EPOCH + sequence * step
            encoded = message(name.encode(), sequence, data, time, reply)
            rows.append((number_of_channel, sequence, time, len(encoded), encoded))
        self._insert("Messages (id, seq, timestamp, size, data)", rows)

    def message(self, number_of_channel, sequence, data):
        """Write one message as it is given."""
        size = 0 if data is None else len(data)
        self._insert("Messages (id, seq, timestamp, size, data)", [(number_of_channel, sequence, EPOCH, size, data)])

    def subscription(self, number_of_channel, subid, proto, *, last_sent=0, deleted=False):
        """Write a subscription."""
        row = (number_of_channel, subid, last_sent, proto, deleted)
        self._insert("Subscriptions (id, subid, lastsent, proto, deleted)", [row])

    def pending(self, subid, row, *, last_sent=0, sent=None, acked=None):
        """Write a row of lists of what was sent and acked; a list becomes JSON."""
        lists = [
            json.dumps(one, separators=(",", ":")).encode() if isinstance(one, list) else one for one in (sent, acked)
        ]
        self._insert(self._pending, [(subid, row, 0, last_sent, *lists)])

    def single_pending(self, subid, sequences, *, first_row=1):
        """Write a row for each sequence that is pending."""
        self._insert(self._pending, [(subid, row, one, 0, None, None) for row, one in enumerate(sequences, first_row)])

    def lock(self, holder, tick):
        """Write the lock of the store."""
        self._insert("StoreLock (id, tick)", [(holder, tick)])

    def _insert(self, columns, rows):
        if rows:
            places = ", ".join(["%s"] * len(rows[0]))
            self.database.execute(f"INSERT INTO {columns} VALUES ({places})", rows)  # noqa: S608 - a test's


def durable(subid, client, name, *, group=b"", last_sent=0):
    """The proto of a durable, or of a member of a durable queue group."""
    who = number(1, subid) + text(2, client) + (text(3, name + b":" + group) if group else b"") + text(4, b"_INBOX.x")
    named = number(6, 10) + number(7, 30) + (b"" if group else text(8, name))
    return who + named + (number(9, last_sent) if last_sent else b"") + number(10, 1)
