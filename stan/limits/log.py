"""Bounds of the log of a group, in files or SQL, and of the rows of its state."""

from stan_protocol.scalars import MILLISECOND, SECOND, KiB, MiB

# --- log -----------------------------------------------------------------------------------------------------------
ENTRY_BYTES_MAX = 72 * MiB
"""Largest body of one log entry; larger than the largest NATS payload."""
SEGMENT_BYTES_MAX = 64 * MiB
"""A segment is rolled once it holds this much."""
TAIL_CACHE_BYTES_MAX = 16 * MiB
"""Record batches cached at the end of each group's log."""
DECOMPRESSED_BYTES_MAX = 8 * MiB
"""Records of compressed batches that each log remembers, so that subscribers and readers share them."""
DECOMPRESSED_PLACES_MAX = 4096
"""Compressed batches of which each log knows that it has decompressed them, though their records had to go."""
CIPHER_KEYS_MAX = 4096
"""Keys of encrypted logs in memory: one for each time that a log was opened, as long as batches of then are read."""
READ_BYTES_MAX = 1 * MiB
"""Records handed to one cursor by one read (a single larger message is handed out alone)."""
BATCHES_PER_READ_MAX = 256
"""Record batches handed to one cursor by one read."""
INDEX_BATCHES_FLUSH = 4096
"""Index rows buffered before they are written to the index file."""
SEGMENT_FILES_OPEN_MAX = 32
"""Sealed segment files each group keeps open for reading; a thousand groups' worth of files would exhaust the process."""
SCAN_BYTES = 1 * MiB
"""Read at once when a segment file is walked through."""
SURVIVOR_BYTES_MAX = 256 * MiB
"""Bodies checked while looking for right entries behind damage; a hostile payload could look like any number of them."""
CHANGES_BYTES_MAX = 8 * MiB
"""Bodies of entries that a log without segment files reads at once to find the changes in them."""
MARK_BYTES = 64 * KiB
"""Distance of the remembered entries of a segment: walking to any other entry reads no more than this."""
CLEAN_BELOW_PERCENT = 25
"""A sealed segment that keeps less of its bytes than this is rewritten: at most a third as much is written as gets free."""
COMPACTION_KEYS_MAX = 250_000
"""Keys that one pass of a compaction has in memory, some 150 bytes each; a log with more new keys needs several passes."""
COMPACTION_PAUSE = 240
"""Looks, one with each flush of the state, for which a log rests after a pass of its compaction that failed: about a minute."""
COMPACTION_DIRTY_PERCENT = 50
"""A channel is compacted once its new bytes are this much of its compacted ones: reads and writes for it stay in
proportion to the published bytes."""

# --- SQL store -----------------------------------------------------------------------------------------------------
SQL_BUSY_TIMEOUT = 30 * SECOND
"""How long a transaction waits for another one, such as that of a person who reads the file."""
SQL_ROWS_PER_READ = 4096
"""Rows read, or batches deleted, at once."""
SQL_ENTRIES_PER_READ = 256
"""Entries read at once."""

# --- state ---------------------------------------------------------------------------------------------------------
STATE_FLUSH_INTERVAL = 250 * MILLISECOND
"""Changed rows go to SQLite about this often."""
STATE_HASH_ENTRIES = 1024
"""Nodes hash a group's state at each entry whose number this divides, so that theirs can be compared while it changes."""
STATE_HASHES_KEPT = 16
"""Such hashes a node remembers of each group."""
RETENTION_INTERVAL = 1 * SECOND
"""Age limits are looked at this often."""
