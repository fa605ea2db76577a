"""Bounds of replication: entries on the way, elections, leases, and the transfer of a group to a node that lacks it."""

from stan_protocol.scalars import MILLISECOND, SECOND, KiB, MiB

from stan.limits.log import ENTRY_BYTES_MAX

# --- replication (RAFT) --------------------------------------------------------------------------------------------
RAFT_COMMAND_BYTES_MAX = ENTRY_BYTES_MAX
"""Largest body that a group replicates, the same as for its log; large ones travel in many frames."""
RAFT_APPEND_BYTES_MAX = 1 * MiB
"""Bodies in one AppendEntries (one larger entry goes alone): copies of more cost more than they save."""
RAFT_APPEND_ENTRIES_MAX = 4096
"""Entries in one AppendEntries."""
RAFT_WINDOW_BYTES_MAX = 8 * MiB
"""Bodies sent to one follower and not yet answered, per group; the leader's memory for a follower that lags."""
RAFT_WINDOW_APPENDS_MAX = 64
"""AppendEntries with entries sent to one follower and not yet answered, per group."""
RAFT_TAIL_BYTES_MAX = 16 * MiB
"""Newest bodies that a group keeps at hand for its followers; the bytes are shared with the log's tail cache."""
RAFT_TAIL_ENTRIES_MAX = 16_384
"""Newest entries that a group keeps at hand."""
RAFT_PROPOSALS_IN_FLIGHT = 3
"""Proposals of one group in flight; beyond this the next one waits and grows into a larger batch."""
RAFT_PROPOSAL_BYTES_IN_FLIGHT = 1 * MiB
"""The same in bytes."""
RAFT_UNCOMMITTED_BYTES_MAX = 64 * MiB + ENTRY_BYTES_MAX
"""Uncommitted proposed bytes above which a group refuses further proposals."""
RAFT_PROPOSAL_TIMEOUT = 5 * SECOND
"""A proposal that is neither committed nor replaced by then has an unknown outcome."""
RAFT_HEARTBEAT_INTERVAL = 100 * MILLISECOND
"""Longest silence of a leader: without entries to send it sends a heartbeat."""
RAFT_ELECTION_TIMEOUT_MIN = 500 * MILLISECOND
"""A follower that received a message of its leader this recently keeps to it, and refuses its vote to others."""
RAFT_ELECTION_TIMEOUT_MAX = 1 * SECOND
"""A follower without a message of a leader for a random time up to this asks for pre-votes."""
RAFT_ELECTION_SPREAD = 200 * MILLISECOND
"""Followers whose link to the leader ended campaign within this time, not all at once."""
RAFT_BACKOFF_MAX = 3
"""Election timeouts, a leader's patience and that of links double with each setback, at most this often ..."""
RAFT_STEADY = 60 * SECOND
"""... and are halved again by so much time without one, but stay doubled where an answer in that time nearly came too late."""
RAFT_LATE_MEMORY = 3 * SECOND
"""A node that was late itself this recently, for want of CPU, may be wrong about the silence of others."""
RAFT_LISTEN = 200 * MILLISECOND
"""A node that was stopped or busy listens for this long before it takes any other node for silent."""
RAFT_SILENCE_MAX = 5 * SECOND
"""A leader that was silent for this long is gone, however late this node itself was."""
RAFT_LEADER_PATIENCE = 1 * SECOND
"""A leader that no majority answered for this long steps down."""
RAFT_CLOCK_MARGIN = 50 * MILLISECOND
"""Clocks of two nodes differ by less over RAFT_ELECTION_TIMEOUT_MIN; a leader's lease is shorter by it."""
RAFT_SENT_STEP = 10 * MILLISECOND
"""The times at which AppendEntries leave are remembered no closer than this."""
RAFT_TRANSFER_TIMEOUT = 1 * SECOND
"""Proposals are refused for this long at most while leadership is handed over."""
RAFT_REFUSAL_TIMEOUT = 100 * MILLISECOND
"""This long before the end of a transfer no further follower is asked to take over: a refusal of the last one comes by then."""
RAFT_TICK_INTERVAL = 50 * MILLISECOND
"""Timers of all groups are looked at this often; messages and proposals never wait for it."""
RAFT_LAZY_INTERVAL = 25 * MILLISECOND
"""A follower that no majority needs gets entries at most this often..."""
RAFT_LAZY_BYTES_MAX = 16 * KiB
"""... unless that many bytes have come meanwhile."""
RAFT_LAZY_PATIENCE = 2 * SECOND
"""There is such a follower only while the others have been there for longer."""
RAFT_LOOK_INTERVAL = 250 * MILLISECOND
"""A leader at rest looks this often whether a majority still answers; between that it only sends heartbeats."""
RAFT_REST_MAX = 900 * MILLISECOND
"""Every group takes a turn this often; the library counts seconds by turns."""
RAFT_FRAME_BYTES_MAX = 512 * KiB
"""Content of one frame between two nodes; below the 1 MiB that a nats-server takes by default."""
RAFT_GARBLED_MAX = 3
"""Messages for one group that could not be understood, one after the other, after which the group is frozen instead of its
peer's link reset."""
RAFT_MESSAGE_BYTES_MAX = RAFT_COMMAND_BYTES_MAX + RAFT_APPEND_BYTES_MAX
"""Largest message between two groups, and the most that a link puts together from frames."""
RAFT_PING_INTERVAL = 100 * MILLISECOND
"""Longest silence of a link: without frames to send it sends a ping."""
RAFT_PEER_TIMEOUT = 450 * MILLISECOND
"""A peer from which no frame came for this long is down."""
RAFT_AWAY = 100 * MILLISECOND
"""A tick that comes so much later than it should: this node was busy, or stopped, and has not listened meanwhile."""
NODE_NAME_BYTES_MAX = 255
"""Longest name of a node."""

# --- transfer of a group to a member that lacks it -----------------------------------------------------------------
TRANSFER_CHUNK_BYTES = 256 * KiB
"""Bytes of a file in one answer; below the 1 MiB that a nats-server takes by default."""
TRANSFER_WINDOW = 8
"""Requests of one transfer that are on their way at once."""
TRANSFER_LEASE = 30 * SECOND
"""The sender keeps files for a transfer that nothing was asked of for no longer than this."""
TRANSFER_SESSIONS_MAX = 64
"""Transfers that one node sends at once."""
TRANSFER_OFFER_BYTES_MAX = 16 * MiB
"""Longest list of segments; enough for hundreds of thousands."""
