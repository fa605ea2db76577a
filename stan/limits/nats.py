"""Bounds of the traffic with NATS, and of the nats-server that a broker starts."""

from stan_protocol.scalars import MILLISECOND, SECOND, KiB, MiB

# --- NATS connection -----------------------------------------------------------------------------------------------
OUTBOUND_BYTES_HIGH = 8 * MiB
"""Unsent bytes towards NATS above which delivery pauses until the socket has drained."""
TURN_BYTES_MAX = 4 * MiB
"""Work on bytes from NATS in one turn of a server alone, in bytes; frames that wait longer take turns by sender."""
RANGE_WORK = 512
"""What a range of acks that does not follow the one before counts for besides its bytes ..."""
BATCH_WORK = 8 * KiB
"""... the same for the publishes of one read to one channel, its acks on one inbox, a verdict and a malformed frame, which take
some tens of microseconds each, more if they are refused ..."""
REQUEST_WORK = 64 * KiB
"""... a request, which takes some hundred microseconds ..."""
COMPRESSED_WORK = 1 * MiB
"""... and one with a zstd frame, which may become COMPRESSED_ROWS_BYTES_MAX and then takes 7 ms."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""How a zstd frame begins (RFC 8878, 3.1.1)."""
BACKLOG_BYTES_MAX = 64 * MiB
"""Bytes that wait for later turns above which reading from NATS pauses."""

# --- embedded nats-server ------------------------------------------------------------------------------------------
EMBEDDED_PAYLOAD_BYTES_MAX = 8 * MiB
"""Largest payload of the nats-server that a broker starts, unless its configuration says otherwise: as much as nats-server does
without a warning. It is for answers and batches; messages have at most MESSAGE_PAYLOAD_BYTES_MAX there."""
EMBEDDED_PENDING_BYTES_MAX = 256 * MiB
"""Bytes that nats-server buffers for a client that does not read, unless its configuration says otherwise: those for a broker
that is busy for ten seconds, at 25 MB/s. nats-server's own default is 64 MiB."""
EMBEDDED_WRITE_DEADLINE = 30 * SECOND
"""How long a client may take nothing before nats-server disconnects it, unless its configuration says otherwise; its: 10 s."""
NATS_READY_TIMEOUT = 10 * SECOND
"""How long nats-server has until it accepts connections (STAN-SPEC 12.4)."""
NATS_POLL_INTERVAL = 3 * MILLISECOND
"""Pause between two looks at whether nats-server accepts connections."""
NATS_GATE_PATIENCE = 2 * SECOND
"""How long a nats-server that listens waits for the broker's connection before it takes those of clients."""
NATS_PORT_PATIENCE = 1 * SECOND
"""How long a start waits for its port: the server that is being replaced may still be on the way out."""
NATS_STOP_TIMEOUT = 2 * SECOND
"""How long nats-server has to end after a SIGTERM before it is killed."""
NATS_RESTART_MIN = 50 * MILLISECOND
"""Pause before nats-server is started again; doubles up to NATS_RESTART_MAX while it keeps ending."""
NATS_RESTART_MAX = 2 * SECOND
NATS_LINES_KEPT = 5
"""Last log lines of nats-server that an error text shows."""

# --- leafnode connection -------------------------------------------------------------------------------------------
LEAF_CONNECT_TIMEOUT = 2 * SECOND
"""How long a leafnode connection may take to be made."""
LEAF_RETRY_PAUSE = SECOND // 4
"""Pause before it is made again."""
LEAF_LINE_BYTES_MAX = 1 * MiB
"""Longest line of nats-server on it: an INFO of a large cluster."""
LEAF_SUBJECTS_MAX = 1_000_000
"""Subjects of NATS's interest that are known; consumers that push to others wait."""
