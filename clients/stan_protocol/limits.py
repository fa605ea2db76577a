"""Bounds of what clients and servers send each other, with name, unit and reason; used as `limits.NAME`."""

from stan_protocol.scalars import SECOND, KiB, MiB

CHANNEL_NAME_BYTES_MAX = 4 * KiB
"""Longest channel name."""
INBOX_BYTES_MAX = 1 * KiB
"""Longest inbox a client may name: nats-server ends a connection that sends a line above 4 KiB."""
KEY_BYTES_MAX = 1 * KiB
"""Longest key of a message."""
HEADERS_BYTES_MAX = 64 * KiB
"""All headers of a message, as encoded."""
REASON_BYTES_MAX = 1 * KiB
"""Longest reason that a client gives for a verdict about a message."""
COMPRESSED_ROWS_BYTES_MAX = 8 * MiB
"""Rows in one request that come compressed: the leader decompresses so much before it knows the rows."""
KEY_PATH_BYTES_MAX = 256
KEY_PATH_NAMES_MAX = 8
"""Of the path at which JSON data has the key of a message."""
KEY_DATA_BYTES_MAX = 256 * KiB
"""Longest data in which a key is looked for; that of a longer message is its client id."""
SCHEMA_BYTES_MAX = 64 * KiB
"""One version of a schema: its text, or its descriptors."""
SCHEMA_DEPTH_MAX = 64
"""Levels of a schema, and of data that is checked against one."""
SCHEMA_STEPS_MAX = 100_000
"""Parts, names and values that are looked at when two versions of a schema are compared, each time that they are."""
SCHEMA_CHAIN_MAX = 200
"""Parts of a JSON Schema that lead from one to the other with nothing of the data between them."""
SCHEMA_WEIGHT_MAX = 10_000
"""Parts of a JSON Schema that are applied to one value, each as often as it is."""
SCHEMA_WEIGHING_STEPS_MAX = 200_000
"""Steps to find out how much work a JSON Schema makes of data: less than a second."""
SCHEMA_PATTERNS_SIZE_MAX = 20_000
"""Characters of all regular expressions of a JSON Schema, with counted repeats written out: they are compiled in memory."""
SCHEMA_CHECK_STEPS_MAX = 10_000_000
"""Parts of a JSON Schema applied to the values of one message, at most: some 20 ns each."""
SCHEMA_MATCHING_STEPS_MAX = 64_000_000
"""Bytes of a message times the size of the patterns that they are matched with: some 15 ns each for the worst pattern, less than
1 ns for an ordinary one."""
SCHEMA_EXPLAINED_STEPS_MAX = 5_000
"""The steps of a check, as above, up to which a refusal names its place in the data if the schema has branches: all of their
reasons are collected for that, some 20 us each."""
SCHEMA_COMPLAINTS_MAX = 10
"""Reasons in one answer about a schema."""
DELAY_MAX = 365 * 24 * 3600 * SECOND
"""Longest delay of a message, by a policy or by its publisher; and longest lateness that a policy can name."""
TTL_MAX = 10 * 365 * 24 * 3600 * SECOND
"""Longest time to live of a message, by a policy or by its publisher."""
STAGE_CHANNELS_MAX = 1024
"""Channels of which one request may stage rows."""
COMMIT_CHANNELS_MAX = 1024
"""Channels that one request may commit together."""
COMMIT_TXNS_MAX = 5_000
"""Txns of all channels that one request names, if not of one channel: servers read 20,000 fields of a request."""
COMPRESSED_BYTES_MIN = 1 * KiB
"""Rows of a batch below this are not compressed: a message alone does not get smaller."""
COMPRESSED_BYTES_MAX = (1 << 24) - 1
"""Records of a compressed batch, whose size has 24 bits in its header; larger batches are stored as they are."""
NATS_PAYLOAD_BYTES_MAX = 64 * MiB
"""Largest NATS payload the kernel accepts; nats-server itself refuses more."""
NATS_CONTROL_LINE_BYTES_MAX = 64 * KiB
"""Longest protocol line (MSG, HMSG, INFO) the kernel accepts before it calls the stream broken."""
MESSAGE_PAYLOAD_BYTES_MAX = 1 * MiB
"""Largest payload of a message, unless NATS is configured otherwise; the default of a nats-server."""
