"""Every bound of the broker that no operator should change, with its name, unit and reason, by owner; used as `limits.NAME`.

Relations between bounds are checked at import, so that a change of one cannot silently break another.
"""

from stan_protocol.limits import *
from stan_protocol.scalars import GiB, KiB

from stan.invariant import invariant
from stan.limits.cluster import *
from stan.limits.core import *
from stan.limits.log import *
from stan.limits.monitor import *
from stan.limits.nats import *
from stan.limits.raft import *

invariant(NATS_RESTART_MIN <= NATS_RESTART_MAX, "a pause may only grow")
invariant(ENTRY_BYTES_MAX > NATS_PAYLOAD_BYTES_MAX, "the largest message must fit into one entry")
invariant(1 * GiB > ENTRY_BYTES_MAX, "an entry's length is kept in 32 bits, with room to spare")
invariant(PUBLISHERS_PER_BATCH_MAX < 1 << 16, "a publisher's index has 16 bits")
invariant(READ_BYTES_MAX <= TAIL_CACHE_BYTES_MAX, "one read must fit into the tail cache")
invariant(RAFT_ELECTION_TIMEOUT_MIN > 3 * RAFT_HEARTBEAT_INTERVAL, "two lost heartbeats are no reason for an election")
invariant(RAFT_LAZY_PATIENCE > LISTEN_BEFORE_LEADING, "who is needed for a majority may lead")
invariant(RAFT_ELECTION_TIMEOUT_MAX > RAFT_ELECTION_TIMEOUT_MIN, "elections need chance")
invariant(
    RAFT_CLOCK_MARGIN < RAFT_ELECTION_TIMEOUT_MIN - 2 * RAFT_HEARTBEAT_INTERVAL, "a lease outlasts two heartbeats"
)
invariant(
    EPHEMERAL_REFUSED_AGE_MAX > RAFT_ELECTION_TIMEOUT_MAX << RAFT_BACKOFF_MAX, "an election is over before that age"
)
invariant(RAFT_TAIL_BYTES_MAX >= RAFT_WINDOW_BYTES_MAX, "what is resent after a reset is still at hand")
invariant(RAFT_APPEND_BYTES_MAX + KiB * RAFT_APPEND_ENTRIES_MAX // 16 < RAFT_MESSAGE_BYTES_MAX, "headers have room")
invariant(HELLO_ANSWER_MAX < HELLO_LISTEN, "answers are heard in time")
invariant(NODE_TIMEOUT > 3 * HELLO_INTERVAL, "two lost hellos make no node absent")
invariant(BALANCE_RETRY_MIN > RAFT_TRANSFER_TIMEOUT, "a handover has ended before it is asked for again")
invariant(
    FINGERPRINT_AGE_MIN > MOVE_KNOWN_MIN, "a move waits for no pause of the publishers, however much they publish"
)
invariant(MOVE_MEMORY > REPLAY_AGE_MAX, "an ack of before a move is known by then, with room for clocks that differ")
