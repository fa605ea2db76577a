"""The registered clients of the cluster, by id and by connection. Promises: a client id has one connection, which is a later
incarnation of the client's than the one that it has replaced; and a connection id belongs to one client.
"""

from dataclasses import dataclass

from stan_protocol.scalars import RaftIndex

from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.user_subjects import user_of


@dataclass(slots=True)
class Client:
    """A registered connection of a client id (STAN-SPEC 2.3, 3)."""

    client_id: bytes
    conn_id: bytes  # b"" for protocol 0
    heartbeat_inbox: bytes
    protocol: int
    ping_interval: int
    ping_max_out: int
    incarnation: int  # raft index of its connect
    failing: bool = False  # its newest heartbeat was not answered

    @property
    def connection(self) -> tuple[bytes, bytes]:
        """Its user, b"" without users, and its connection id: a user may connect with an id of another user's connection."""
        return user_of(self.heartbeat_inbox).encode(), self.conn_id


class RegisteredClients(dict[bytes, Client]):
    """Clients by id."""

    def __init__(self) -> None:
        super().__init__()
        self.by_connection: dict[tuple[bytes, bytes], Client] = {}  # those with a connection id
        self.dirty: set[bytes] = set()  # ids whose rows have changed since they were last taken to be written

    def connect(self, connect: pb.Connect, index: RaftIndex) -> Client | None:
        """Register a client, in place of the incarnation that the request replaces; None: another one is registered."""
        row = connect.client
        old = self.get(row.client_id)
        if (old.incarnation if old else 0) != connect.replaces:
            return None
        row.incarnation = index
        if old is not None:
            self._forget_connection(old)
        self.dirty.add(row.client_id)
        return self.load(row)

    def disconnect(self, change: pb.Disconnect) -> Client | None:
        """Remove a client; None: that incarnation is not registered."""
        old = self._incarnation(change.client_id, change.incarnation)
        if old is not None:
            del self[old.client_id]
            self._forget_connection(old)
            self.dirty.add(old.client_id)
        return old

    def heartbeat(self, change: pb.Heartbeat) -> Client | None:
        """Note if a client answers heartbeats; None: that incarnation is not registered."""
        client = self._incarnation(change.client_id, change.incarnation)
        if client is not None:
            client.failing = change.failing
            self.dirty.add(client.client_id)
        return client

    def _incarnation(self, client_id: bytes, incarnation: int) -> Client | None:
        client = self.get(client_id)
        return client if client is not None and client.incarnation == incarnation else None

    def _forget_connection(self, old: Client) -> None:
        if self.by_connection.get(old.connection) is old:
            del self.by_connection[old.connection]

    def load(self, row: pb.Client) -> Client:
        """Take in one row."""
        fields = (row.heartbeat_inbox, row.protocol, row.ping_interval, row.ping_max_out, row.incarnation, row.failing)
        client = self[row.client_id] = Client(row.client_id, row.conn_id, *fields)
        if client.conn_id:
            self.by_connection[client.connection] = client
        return client

    def row(self, client_id: bytes) -> pb.Client | None:
        """The row of a client; None if it is gone."""
        client = self.get(client_id)
        return None if client is None else pb.Client(**{name: getattr(client, name) for name in Client.__slots__})
