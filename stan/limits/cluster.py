"""Bounds between nodes: membership, balance, standby servers, partitioning, verifying of copies."""

from stan_protocol.scalars import MILLISECOND, SECOND, KiB, MiB

# --- fault tolerance group -----------------------------------------------------------------------------------------
FT_HEARTBEAT_INTERVAL = 1 * SECOND
"""Between heartbeats of the active server to the standbys (STAN-SPEC 10); each server takes up to 10 % more or less."""
FT_MISSED_INTERVAL = 1250 * MILLISECOND
"""Silence after which a standby asks the store whether it may take over; each server takes up to 10 % more or less."""
FT_LOOK_INTERVAL = SECOND // 4
"""Between a standby's looks at the lease."""
FT_COMPLAINT_MAX = 60 * SECOND
"""Longest time between two lines of a standby that cannot have the lock; it begins with 1 s and doubles."""
LEASE_RENEWAL = 1 * SECOND
"""Between the renewals of the lease of a store."""
LEASE_HELD = 4 * SECOND
"""How long a renewal counts for its holder, from before it was written; longer than the stalls of a busy disk."""
LEASE_TAKEN = 5 * SECOND
"""A standby takes the lease after it has seen no renewal for this long: clocks may run differently, and it only polls."""
LEASE_RECORD_BYTES_MAX = 4 * KiB
"""Longest lease file in bytes; a longer file is not a lease."""
COPY_ATTEMPTS_MAX = 8
"""How often a file is copied again that another process has written to meanwhile."""

# --- partitioning --------------------------------------------------------------------------------------------------
PARTITION_REPLY_TIMEOUT = 1 * SECOND
"""Silence after which no other server objects to the channels of this one (STAN-SPEC 11.2)."""
PARTITION_REPLIES_MAX = 1024
"""Replies of other servers that wait to be read."""
PARTITION_CHECK_DELAY = SECOND // 2
"""From the news of another nats-server to the next check ..."""
PARTITION_CHECKS = 4
"""... and so many are made, each after a pause 4 times as long: routes may come, go and come again before they stay."""
PARTITION_CLIENT_PATIENCE = 1 * SECOND
"""How long a request of a client waits that was not let in yet, as each server lets clients in by itself."""
PARTITION_STRANGERS_MAX = 256
"""Clients that are remembered to have been waited for in vain; beyond, the oldest are forgotten."""
PARTITION_STRANGERS_PRUNED = 33
"""Number of them forgotten at once."""

# --- verifying copies (VERIFY) -------------------------------------------------------------------------------------
VERIFY_BYTES_MAX = 8 * MiB
"""Record bytes that are read for one answer: some ten milliseconds of a thread that reads for others, too."""
EXPLAIN_ENTRIES_MAX = 6000
"""Entries that are read for one answer to `.admin.explain` ..."""
EXPLAIN_ENTRIES_AT_ONCE = 500
"""... and how many at once, until the outcome of the message is clear."""
EXPLAIN_STEPS_MAX = 500
"""Steps in one of these answers, about."""
EXPLAIN_ANSWERS_MAX = 20
"""Answers for which the dashboard and `stan explain` ask: some seconds of work for the leader."""
VERIFIES_UNDER_WAY_MAX = 4
"""Requests to verify that wait for the disk; further ones are answered "retry"."""
VERIFY_DAMAGE_MAX = 16
"""Damaged batches in one answer; it ends with the last of them."""

# --- cluster settings ----------------------------------------------------------------------------------------------
CLUSTER_PEERS_MAX = 64
"""Other voters that may be configured for a node; every node receives the messages of every other."""
RAFT_GROUPS_MAX = 1024
"""Groups of channels; each has files, timers and a leader of its own."""

# --- subscriptions that other nodes serve than the leader --------------------------------------------------------------
SERVING_REPORT_INTERVAL = SECOND // 2
"""A node that serves subscriptions reports its progress, and that it is alive, to the leader this often."""
SERVING_ANSWER_WAIT = 1 * SECOND
"""A report without an answer counts as lost after this."""
SERVING_LEASE = 2 * SECOND
"""How long a node may serve behind a report that the leader has taken."""
SERVING_TAKEN_BACK = 2 * SECOND + SECOND // 2
"""The leader takes the subscriptions of a node back that has not reported for this long: clocks may run differently."""
SERVING_LAG_MAX = 5 * SECOND
"""A node that has not applied the leader's state of so long ago may not serve."""
SERVING_RETRY = 10 * SECOND
"""A node from which subscriptions were taken back is given none for this long."""
SERVING_BYTES_MAX = 256 * KiB
"""Progress in one report, about."""
SERVING_CURSORS_MAX = 1000
"""Subscriptions in one entry that gives them to a node, or takes them back."""

# --- membership and balance ----------------------------------------------------------------------------------------
HELLO_INTERVAL = 1 * SECOND
"""A node sends its hello this often, and at once if something about it has changed."""
HELLO_ANSWER_MAX = 100 * MILLISECOND
"""The hello of an unknown process is answered within a random time up to this."""
HELLO_LISTEN = 500 * MILLISECOND
"""A node that starts a cluster or doubts its settings listens this long; nodes that sent no hello by then count as absent."""
LISTENING_PATIENCE = 2 * SECOND
"""A node that listens to clients says that it is ready once all nodes listen that are there, but no later than this: one
that hangs does not tell it."""
NODE_TIMEOUT = 3 * SECOND + 500 * MILLISECOND
"""A node whose hellos have not come for this long is away: three were lost."""
NODE_FORGET = 60 * SECOND
"""A node without a vote whose hellos have not come for this long is no longer listed."""
NODES_MAX = 256
"""Nodes listed; hellos of further ones are ignored."""
TRANSFER_COOLDOWN = 60 * SECOND
"""A group that an operator had handed over is left where it is for this long, unless its leader drains."""
BALANCE_SETTLE = 3 * SECOND
"""A leadership is handed over for the balance's sake after it lasted this long, and to a node that was there this long."""
LABELS_SETTLE = 3 * SECOND
"""Labels of nodes are adopted when the hellos of all live nodes agree for this long: nodes start one after the other."""
BALANCE_PAUSE = 1 * SECOND
"""Between two rounds of handing over for the balance's sake."""
BALANCE_MOVES_MAX = 2
"""Leaderships handed over in one round by one node."""
BALANCE_LAG_MAX = 64
"""Entries that a node which takes over may lack; the group refuses proposals until it has them."""
BALANCE_RETRY_MIN = 2 * SECOND
"""Pause before a handover that failed is tried again; doubles up to BALANCE_RETRY_MAX."""
BALANCE_RETRY_MAX = 64 * SECOND
