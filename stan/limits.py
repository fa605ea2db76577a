"""Every bound of the broker that no operator should change, with its name, unit and reason.

Relations between bounds are checked at import, so that a change of one cannot silently break another.
"""

from stan.invariant import invariant
from stan.types import MILLISECOND, SECOND, GiB, KiB, MiB

# --- NATS connection -------------------------------------------------------------------------------------------
NATS_PAYLOAD_BYTES_MAX = 64 * MiB
"""Largest NATS payload the kernel accepts; nats-server itself refuses more."""
NATS_CONTROL_LINE_BYTES_MAX = 64 * KiB
"""Longest protocol line (MSG, HMSG, INFO) the kernel accepts before it calls the stream broken."""
OUTBOUND_BYTES_HIGH = 8 * MiB
"""Unsent bytes towards NATS above which delivery pauses until the socket has drained."""
TURN_BYTES_MAX = 4 * MiB
"""Bytes read from NATS that one turn of the driver handles at most."""

# --- log -------------------------------------------------------------------------------------------------------
ENTRY_BYTES_MAX = 72 * MiB
"""Largest body of one log entry; larger than the largest NATS payload."""
SEGMENT_BYTES_MAX = 64 * MiB
"""A segment is rolled once it holds this much."""
TAIL_CACHE_BYTES_MAX = 16 * MiB
"""Record batches kept in memory behind the end of each group's log."""
PERMISSION_RULES_MAX = 10_000
"""Rules of permissions in a configuration."""
REMEMBERED_MAX = 65_536
"""Answers about names that clients made up which are remembered in one place: verdicts of permissions, whose a channel is, ..."""
REMEMBERED_BYTES_MAX = 16 * MiB
"""And bytes of those names."""
COMPLAINTS_MAX = 100
"""Lines of the log a minute about what clients send."""
COMPLAINT_CHARS_MAX = 1000
"""Longest of them."""
VAULT_KEYS_MAX = 4096
"""Keys of encrypted logs in memory: one for each time that a log was opened, as long as batches of then are read."""
READ_BYTES_MAX = 1 * MiB
"""Records handed to one cursor by one read (a single larger message is handed out alone)."""
BATCHES_PER_READ_MAX = 256
"""Record batches handed to one cursor by one read."""
INDEX_BATCHES_FLUSH = 4096
"""Index rows buffered before they are written to the sidecar file."""
SEGMENT_FILES_OPEN_MAX = 32
"""Sealed segment files each group keeps open for reading; a thousand groups' worth of files would exhaust the process."""
SCAN_BYTES = 1 * MiB
"""Read at once when a segment file is walked through."""
SURVIVOR_BYTES_MAX = 256 * MiB
"""Bodies checked while looking for right entries behind damage; a hostile payload could look like any number of them."""
MARK_BYTES = 64 * KiB
"""Distance of the remembered entries of a segment: walking to any other entry reads no more than this."""
CLEAN_BELOW_PERCENT = 25
"""A sealed segment that keeps less of its bytes than this is rewritten: at most a third as much is written as gets free."""

# --- SQL store -------------------------------------------------------------------------------------------------
SQL_BUSY_TIMEOUT = 30 * SECOND
"""How long a transaction waits for another one, as of a person who looks at the file."""
SQL_ROWS_PER_READ = 4096
"""Rows read, or batches deleted, at once."""
SQL_ENTRIES_PER_READ = 256
"""Entries read at once."""

# --- fault tolerance group -------------------------------------------------------------------------------------
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
"""How long a standby must see no renewal before it takes the lease: clocks may run differently, and it looks now and then."""
LEASE_RECORD_BYTES_MAX = 4 * KiB
"""Of a lease's file; what is longer is none."""
COPY_ATTEMPTS_MAX = 8
"""How often a file is copied again that another process has written to meanwhile."""

# --- partitioning ----------------------------------------------------------------------------------------------
PARTITION_REPLY_TIMEOUT = 1 * SECOND
"""Silence after which no other server has something against the channels of this one (STAN-SPEC 11.2)."""
PARTITION_REPLIES_MAX = 1024
"""Replies of other servers that are kept until they are looked at."""
PARTITION_CHECK_DELAY = SECOND // 2
"""From the news of another nats-server to the next check ..."""
PARTITION_CHECKS = 4
"""... and so many are made, each after a pause 4 times as long: routes may come, go and come again before they stay."""
PARTITION_CLIENT_PATIENCE = 1 * SECOND
"""How long a request of a client waits that was not let in yet, as each server lets clients in by itself."""
PARTITION_STRANGERS_MAX = 256
"""Clients that are remembered to have been waited for in vain; beyond, the oldest are forgotten."""
PARTITION_STRANGERS_PRUNED = 33
"""How many of them at once."""

# --- publish ---------------------------------------------------------------------------------------------------
UNCOMMITTED_BYTES_MAX = 64 * MiB
"""Published bytes waiting for their commit above which reading from NATS pauses."""
CHANNEL_NAME_BYTES_MAX = 4 * KiB
"""Longest channel name."""
INBOX_BYTES_MAX = 1 * KiB
"""Longest inbox a client may name: nats-server ends a connection that sends a line above 4 KiB."""
NAME_BYTES_MAX = 1 * KiB
"""Longest client id, connection id, name of a durable or of a queue group."""
REPLY_PREFIX_CHARS_MAX = 128
REPLY_PREFIXES_MAX = 8
"""Beginnings of reply subjects of publishes that a configuration adds to the usual ones."""
PUBLISHERS_PER_BATCH_MAX = 64 * KiB - 1
"""Different publishers of one channel in one batch of the kernel; an index of one has 16 bits, and one more is needed."""
ROWS_BYTES_MAX = 32 * MiB
"""Bytes as messages of the rows in one request: they are stored in one entry."""
BATCH_BYTES_WAITING_MAX = 16 * MiB
"""Rows of one group that wait for their channel or for their producer's rows before them; more are told to come again."""
PRODUCER_BYTES_MAX = 255
"""Longest name of a producer."""
PRODUCER_AGE_MAX = 24 * 3600 * SECOND
"""The ids of a producer that is not heard for this long are forgotten."""
WINDOWS_MAX = 16_384
"""Producers and channels of which one group remembers ids."""
WINDOW_IDS_MAX = 2 * 1024 * 1024
"""Ids that are remembered of one version of a producer's work in one channel."""
GROUP_IDS_MAX = 4 * WINDOW_IDS_MAX
"""Ids that one group remembers; they take some 50 bytes of memory each."""

# --- replication (RAFT) ----------------------------------------------------------------------------------------
RAFT_COMMAND_BYTES_MAX = ENTRY_BYTES_MAX
"""Largest body that a group replicates: whatever its log can hold; large ones travel in many frames."""
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
"""Proposals of one group that travel before the next had better grow into a larger batch."""
RAFT_PROPOSAL_BYTES_IN_FLIGHT = 1 * MiB
"""The same in bytes."""
RAFT_UNCOMMITTED_BYTES_MAX = 64 * MiB + ENTRY_BYTES_MAX
"""Proposed bytes waiting for their commit above which a group refuses more."""
RAFT_PROPOSAL_TIMEOUT = 5 * SECOND
"""A proposal that is neither committed nor replaced by then has an unknown outcome."""
RAFT_HEARTBEAT_INTERVAL = 100 * MILLISECOND
"""A leader is silent for no longer."""
RAFT_ELECTION_TIMEOUT_MIN = 500 * MILLISECOND
"""A follower believes in a leader that it heard this recently, and refuses its vote to others."""
RAFT_ELECTION_TIMEOUT_MAX = 1 * SECOND
"""A follower that heard nothing for a random time up to this asks whether it could win an election."""
RAFT_ELECTION_SPREAD = 200 * MILLISECOND
"""Followers whose link to the leader ended campaign within this time, not all at once."""
RAFT_BACKOFF_MAX = 3
"""Election timeouts, a leader's patience and that of links double with each setback, at most this often ..."""
RAFT_STEADY = 10 * SECOND
"""... and are halved again by so much time without one."""
RAFT_LATE_MEMORY = 3 * SECOND
"""Who was late itself, for want of CPU, this recently may be wrong about the silence of others."""
RAFT_LISTEN = 200 * MILLISECOND
"""Who was stopped or busy listens for so long before it takes anybody for silent."""
RAFT_SILENCE_MAX = 5 * SECOND
"""A leader that was not heard for this long is gone, however late this node itself was."""
RAFT_LEADER_PATIENCE = 1 * SECOND
"""A leader that no majority answered for this long steps down."""
RAFT_CLOCK_MARGIN = 50 * MILLISECOND
"""Clocks of two nodes differ by less over RAFT_ELECTION_TIMEOUT_MIN; a leader's lease is shorter by it."""
RAFT_SENT_STEP = 10 * MILLISECOND
"""The times at which AppendEntries leave are remembered no closer than this."""
RAFT_TRANSFER_TIMEOUT = 1 * SECOND
"""Proposals are refused for this long at most while leadership is handed over."""
RAFT_REFUSAL_TIMEOUT = 100 * MILLISECOND
"""At the end of it nobody is asked any more to take over: whether the last one has refused shows by then."""
RAFT_TICK_INTERVAL = 50 * MILLISECOND
"""Timers of all groups are looked at this often; messages and proposals never wait for it."""
RAFT_SPARE_INTERVAL = 10 * MILLISECOND
"""A follower that no majority needs gets entries at most this often..."""
RAFT_SPARE_BYTES_MAX = 16 * KiB
"""... unless that many bytes have come meanwhile."""
RAFT_SPARE_PATIENCE = 2 * SECOND
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
"""A link is silent for no longer."""
RAFT_PEER_TIMEOUT = 450 * MILLISECOND
"""A peer from which no frame came for this long is down."""
RAFT_AWAY = 100 * MILLISECOND
"""A tick that comes so much later than it should: this node was busy, or stopped, and has not listened meanwhile."""
NODE_NAME_BYTES_MAX = 255
"""Longest name of a node."""

# --- fetch (FETCH) ---------------------------------------------------------------------------------------------
FETCHES_UNDER_WAY_MAX = 32
"""Fetch requests that wait for the disk or for news of the metadata; more are told to ask again."""
FETCH_UNSENT_BYTES_MAX = OUTBOUND_BYTES_HIGH // 2
"""Unsent bytes towards NATS above which a fetch is told to ask again: the rest is for deliveries."""
FETCH_BATCHES_MAX = 1024
"""Record batches in one answer; looking them up takes the event loop's time."""

# --- verifying copies (VERIFY) ---------------------------------------------------------------------------------
VERIFY_BYTES_MAX = 8 * MiB
"""Record bytes that are read for one answer: some ten milliseconds of a thread that reads for others, too."""
VERIFIES_UNDER_WAY_MAX = 4
"""Requests to verify that wait for the disk; more are told to ask again."""
VERIFY_DAMAGE_MAX = 16
"""Damaged batches in one answer; it ends with the last of them."""

# --- questions about channels (ASK) ----------------------------------------------------------------------------
QUESTIONS_WAITING_MAX = 1024
"""Questions that wait for news of the metadata; more are told to ask again."""
INFO_CHANNELS_MAX = 2000
"""Channels in one answer; putting them together takes the event loop's time."""
INFO_WAIT_MAX = 30 * SECOND
"""An answer that waits for newer messages waits no longer."""
INFO_WAIT_TICK = 50 * MILLISECOND
"""By so much later an answer may leave that has waited in vain."""
WATCHED_MAX = 65_536
"""Channels that are watched for newer messages, counted once for each question; more questions are told to ask again."""
BOOKMARK_NAME_BYTES_MAX = 255
"""Longest name of a bookmark."""
BOOKMARKS_MAX = 16_384
"""Bookmarks in the channels of one group; all of them are in memory."""
RESTORED_GAP_MAX = (1 << 32) - 1
"""Sequences in a row that a restore leaves unused: what the header of a record batch counts."""
DELETED_RUNS_MAX = 10_000
"""Runs of messages of one channel that were deleted one by one; they are in memory, and are written whole when one is added."""
RESTORE_NAME_BYTES_MAX = 64
"""Name of a restore."""
CHANNEL_CHANGES_WAITING_MAX = 1_000
"""Requests of operators that wait until a channel is made, or is out of the registry."""

# --- transactions (TRANSACT) -----------------------------------------------------------------------------------
APP_BYTES_MAX = 255
"""Longest name of an app."""
TXN_BYTES_MAX = 64
"""Longest name of a transaction."""
STAGED_AGE_MAX = 3600 * SECOND
"""Staged rows that nobody has committed by then are gone."""
STAGED_BYTES_MAX = 8 * GiB
"""Rows staged in one group; they lie on the disk."""
STAGED_PARTS_MAX = 16_384
"""Parts staged in one group; what is known of each is in memory."""
COMMITS_WAITING_MAX = 64
"""Requests that wait for the commits of one channel, or for a channel to be there; more are told to come again."""
COMMIT_BYTES_IN_FLIGHT = 4 * MiB
"""Rows of one commit that are proposed and not yet applied above which it reads no more of them."""
COMMIT_RETRY = 1 * SECOND
"""A commit whose rows could not be read or written goes on after this long ..."""
COMMIT_READS_MAX = 30
"""... and is given up by a broker alone, which nobody can help out, after this many attempts to read the same rows."""
APPS_MAX = 4096
"""Apps and channels of which one group knows the last committed version, and apps of which it knows the last finished one."""
APP_MEMORY = 30 * 24 * 3600 * SECOND
"""The last version of an app is known at least this long after it was committed."""

# --- what operators ask -----------------------------------------------------------------------------------------
REPORT_PATIENCE = 1 * SECOND
"""How long an answer about channels waits for news of the metadata, before it tells what is known."""
REPORT_ITEMS_MAX = 1000
"""Channels, positions or clients in one answer."""
REPORT_STEPS = 3000
"""Names looked at in one turn for all such answers together; an item that is shown counts as REPORT_ITEM_STEPS of them."""
REPORT_ITEM_STEPS = 12
"""See REPORT_STEPS."""
REPORTS_MAX = 256
"""Answers being made at once; whoever asks for more is told to come again."""
REPORT_RUNS_MAX = 10_000
"""Runs of pending messages told of one position."""

NODE_ANSWERS_MAX = 256
"""Who asks a node how it is and waits for the answer; more are told to come again."""
DISK_PATIENCE = 250 * MILLISECOND
"""How long such an answer waits for the disk to tell its space."""
EVENTS_PER_SECOND_MAX = 200
"""Events that one node tells; what is more is counted only."""

# --- clients in a cluster --------------------------------------------------------------------------------------
HEARD_ENOUGH = 1500 * MILLISECOND
"""A node that has heard clients for less than this leaves it to others to lead: publishes of before it would miss."""
HEARD_AGE_MAX = 30 * SECOND
"""What was read from NATS is kept this long, for the case that this node becomes a leader: as long as clients wait for acks."""
HEARD_REQUEST_AGE_MAX = 3 * SECOND
"""Requests are not handled by a new leader if they are older: clients wait 2 s for an answer."""
HEARD_BYTES_MAX = 64 * MiB
"""The same in bytes."""
HEARING_AGE_MAX = 30 * SECOND
"""It is known this long in which order connections and subscriptions were asked for: longer than any of them waits ..."""
HEARING_MAX = 65_536
"""... and of this many."""
MARK_PATIENCE = 1 * SECOND
"""How much later than the last leader a new one may hear a publish that is in the log already."""
MARK_MEMORY = 60 * SECOND
"""How much later it is still known for one that is in the log: a network may hold it back."""
CATCHUP_PATIENCE = 5 * SECOND
"""How long what a connection has sent waits for the metadata to tell of that connection."""
CLOSE_PATIENCE = 1 * SECOND
"""How long a leader waits for what a client had sent before it closed its connection."""
UNDECIDED_REQUESTS_MAX = 1024
"""Requests kept by a leader that does not know whether it still is one; it knows within RAFT_LEADER_PATIENCE."""
FORWARD_INTERVAL = SECOND // 4
"""A change that the leader of the metadata was asked for is asked for again this often ..."""
FORWARD_PATIENCE = 10 * SECOND
"""... and for this long, where a client waits for it."""
PROGRESS_INTERVAL = 100 * MILLISECOND
"""Sent and acked positions of a replicated group are told this often ..."""
PROGRESS_MESSAGES_MAX = 1000
"""... or once this many messages were delivered."""

MEMBER_TICK_INTERVAL = 250 * MILLISECOND
"""A node looks this often at who is there and who had better lead what."""
TRANSFER_HINT_INTERVAL = 1 * SECOND
"""A member that lags behind the leader's log is told this often to get what it lacks."""
TRANSFER_REPEAT = 1 * SECOND
"""What is not answered is asked for again after this silence ..."""
TRANSFER_PATIENCE = 10 * SECOND
"""... and given up after this one."""
VOTERS_TOLD = 150 * MILLISECOND
"""How long a leader goes on after a change of the voters, so that all hear of it."""
VOTERS_SUCCESSION = 300 * MILLISECOND
"""... and how long each of the others has to take over then: one that came lately may refuse."""
COPY_PATIENCE = 5 * SECOND
"""How long a copy of a group is of no use before it is put aside."""
JOIN_PATIENCE = 15 * SECOND
"""How long a node that joins waits for a cluster to say what it is."""
DRAIN_PATIENCE = 5 * SECOND
"""How long a node that stops waits for others to take its leaderships over."""
FULL_DISK_RETRY = 1 * SECOND
"""After it a leader whose disk is full, and that nobody can take over from, tries again."""

# --- subscriptions ---------------------------------------------------------------------------------------------
REDELIVERY_SLACK = 15 * MILLISECOND
"""A deadline this close counts as reached, so that one timer serves many messages (STAN-SPEC 6.6)."""
READ_AHEAD_MESSAGES = 64
"""A cursor with a small window is given this many messages by one read, so that not every ack costs a read."""
HOLDING_CURSORS_MAX = 64
"""Cursors that keep what they read (READ_BYTES_MAX each) while their window is full; others read again."""
PROGRESS_RUNS_MAX = 1000
"""Sent and acked runs in one progress entry."""
STEERING_RUNS_MAX = 1000
"""Runs of skipped messages, and of those sent before, that are kept of a cursor which an operator has moved."""
MOVE_MEMORY = 60 * SECOND
"""A new leader takes no ack for a cursor that was moved so short before which it may have heard before the move."""

# --- clients ---------------------------------------------------------------------------------------------------
DUPLICATE_CHECK_TIMEOUT = 500 * MILLISECOND
"""How long a registered client has to show that it is alive when its id is asked for again (STAN-SPEC 3.2)."""
STANDALONE_PROBE_TIMEOUT = 250 * MILLISECOND
"""How long start-up listens for another server with the same cluster id (STAN-SPEC 12.6)."""

RATED_CLIENTS_MAX = 65_536
"""Clients whose requests of late are counted, where there is a limit; who has asked least lately is forgotten first."""
REQUEST_BYTES_MAX = 64 * KiB
"""Longest request to connect or to subscribe: what it names is kept, and far longer names are nobody's."""

# --- state -----------------------------------------------------------------------------------------------------
STATE_FLUSH_INTERVAL = 250 * MILLISECOND
"""Changed rows go to SQLite about this often."""
STATE_HASH_ENTRIES = 1024
"""Nodes hash a group's state at each entry whose number this divides, so that theirs can be compared while it changes."""
STATE_HASHES_KEPT = 16
"""Such hashes a node remembers of each group."""
RETENTION_INTERVAL = 1 * SECOND
"""Age limits are looked at this often."""

# --- embedded nats-server --------------------------------------------------------------------------------------
NATS_READY_TIMEOUT = 10 * SECOND
"""How long nats-server has until it accepts connections (STAN-SPEC 12.4)."""
NATS_POLL_INTERVAL = 3 * MILLISECOND
"""Pause between two looks at whether nats-server accepts connections."""
NATS_PORT_PATIENCE = 1 * SECOND
"""How long a start waits for its port: the server that is being replaced may still be on the way out."""
NATS_STOP_TIMEOUT = 2 * SECOND
"""How long nats-server has to end after a SIGTERM before it is killed."""
NATS_RESTART_MIN = 50 * MILLISECOND
"""Pause before nats-server is started again; doubles up to NATS_RESTART_MAX while it keeps ending."""
NATS_RESTART_MAX = 2 * SECOND
NATS_LINES_KEPT = 5
"""Last log lines of nats-server that an error text shows."""

# --- settings --------------------------------------------------------------------------------------------------
CHANNEL_LIMITS_CACHED_MAX = 10_000
"""Channels whose inherited limits are kept; asking again costs a walk over the configured patterns only."""

# --- cluster settings ------------------------------------------------------------------------------------------
CLUSTER_PEERS_MAX = 64
"""Other voters that a node may be told of; every node hears every other."""
RAFT_GROUPS_MAX = 1024
"""Groups of channels; each has files, timers and a leader of its own."""

# --- who is there (ROSTER, BALANCE) ----------------------------------------------------------------------------
HELLO_INTERVAL = 1 * SECOND
"""A node tells about itself this often, and at once if something about it changed."""
HELLO_ANSWER_MAX = 100 * MILLISECOND
"""A process not heard before is answered within a random time up to this."""
HELLO_LISTEN = 500 * MILLISECOND
"""Who was not heard after this much listening is taken for absent by a node that starts a cluster or doubts its settings."""
NODE_TIMEOUT = 3 * SECOND + 500 * MILLISECOND
"""A node that was not heard for this long is away: three hellos were lost."""
NODE_FORGET = 60 * SECOND
"""A node without a vote that was not heard for this long is no longer listed."""
NODES_MAX = 256
"""Nodes listed; hellos of more are not listened to."""
STEP_DOWN_REST = 60 * SECOND
"""A group that an operator had handed over is left where it is for this long, unless its leader drains."""
BALANCE_SETTLE = 3 * SECOND
"""A leadership is handed over for the balance's sake after it lasted this long, and to a node that was there this long."""
BALANCE_PAUSE = 1 * SECOND
"""Between two rounds of handing over for the balance's sake."""
BALANCE_MOVES_MAX = 2
"""Leaderships handed over in one round by one node."""
BALANCE_LAG_MAX = 64
"""Entries that a node which takes over may lack; the group refuses proposals until it has them."""
BALANCE_RETRY_MIN = 2 * SECOND
"""Until a handover that did not happen is asked for again; doubles up to BALANCE_RETRY_MAX."""
BALANCE_RETRY_MAX = 64 * SECOND

# --- transfer of a group to a member that lacks it ---------------------------------------------------------------
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

# --- monitoring --------------------------------------------------------------------------------------------------
PAGE_ITEMS = 1024
"""Clients or channels of one page, where nobody asks for another number (STAN-SPEC 13.4)."""
PAGE_SLICE = 1 * MILLISECOND
"""Work on a page is interrupted after this, so that the broker has its turn."""
PAGES_TIMEOUT = 30 * SECOND
"""A page of nats-server's is given up after this."""
METRICS_CHANNELS_MAX = 1000
"""With more channels than this, /metrics has series of single channels only where they are asked for."""
METRICS_CURSORS_MAX = 1000
"""The same for durables and queue groups."""

# --- migration ---------------------------------------------------------------------------------------------------
MIGRATION_WATCH = 1 * SECOND
"""What is moved is looked at for this long at least, whether somebody still writes to it."""

# --- dashboard ---------------------------------------------------------------------------------------------------
DASHBOARD_STREAMS_MAX = 16
"""Browsers that are told of news by a stream; more ask by themselves."""
DASHBOARD_TICK = 2 * SECOND
"""Between two looks at the cluster while somebody watches, and between two news of a stream."""
DASHBOARD_IDLE_TICK = 10 * SECOND
"""Between two looks at the nodes while nobody watches, so that it is known since when something is wrong."""
DASHBOARD_LINGER = 60 * SECOND
"""Somebody watches for so long after the last request."""
DASHBOARD_COST_RATIO = 100
"""What was so much work for who asks is not asked again within that many times as long: 1 % of the time at most."""
DASHBOARD_WAIT = 300 * MILLISECOND
"""Somebody who looks waits so long for a new answer where there is an older one."""
DASHBOARD_PATIENCE = 2 * SECOND
"""How long what the pages ask is repeated; what was answered until then is shown."""
DASHBOARD_AGE_MAX = 60 * SECOND
"""However much it took, it is asked again by then if somebody looks."""
DASHBOARD_WHOLE_WAIT = 600 * MILLISECOND
"""The overview waits so long for what it shows; what is not there by then comes with the next look."""
DASHBOARD_ROWS_MAX = 500
"""Rows of a table in one answer."""
DASHBOARD_LISTED_MAX = 200_000
"""Channels, subscriptions or clients that are looked at; what is beyond is not shown, and the pages say so."""
DASHBOARD_MESSAGES_MAX = 200
"""Messages in one answer."""
DASHBOARD_PREVIEW_BYTES = 8 * KiB
"""Bytes of a message that are shown before somebody asks for all of it."""
DASHBOARD_FETCHES_MAX = 16
"""Requests for messages made to answer one of the pages."""
DASHBOARD_SAMPLES_MAX = 150
"""Points of a chart."""
DASHBOARD_TRENDS_MAX = 4000
"""Durables and queue groups whose lag is remembered for charts."""
DASHBOARD_PACES_MAX = 64
"""Channels whose rate is remembered for charts."""
DASHBOARD_EVENTS_MAX = 200
"""Newest events kept."""
DASHBOARD_ACTION_BYTES_MAX = 1 * MiB
"""Largest request to change something."""
DASHBOARD_NODES_WAIT = 2 * SECOND
"""How long the answers of nodes are waited for that may be gone."""
DASHBOARD_FAILURES = 3
"""Who failed to answer the pages so often in a row is told of as missing."""
DASHBOARD_GRACE = 8 * SECOND
"""What is so much older than it should be is not told any more as how things are."""

invariant(NATS_RESTART_MIN <= NATS_RESTART_MAX, "a pause may only grow")
invariant(ENTRY_BYTES_MAX > NATS_PAYLOAD_BYTES_MAX, "the largest message must fit into one entry")
invariant(1 * GiB > ENTRY_BYTES_MAX, "an entry's length is kept in 32 bits, with room to spare")
invariant(PUBLISHERS_PER_BATCH_MAX < 1 << 16, "a publisher's index has 16 bits")
invariant(READ_BYTES_MAX <= TAIL_CACHE_BYTES_MAX, "one read must fit into the tail cache")
invariant(RAFT_ELECTION_TIMEOUT_MIN > 3 * RAFT_HEARTBEAT_INTERVAL, "two lost heartbeats are no reason for an election")
invariant(RAFT_SPARE_PATIENCE > HEARD_ENOUGH, "who is needed for a majority may lead")
invariant(RAFT_ELECTION_TIMEOUT_MAX > RAFT_ELECTION_TIMEOUT_MIN, "elections need chance")
invariant(
    RAFT_CLOCK_MARGIN < RAFT_ELECTION_TIMEOUT_MIN - 2 * RAFT_HEARTBEAT_INTERVAL, "a lease outlasts two heartbeats"
)
invariant(RAFT_TAIL_BYTES_MAX >= RAFT_WINDOW_BYTES_MAX, "what is resent after a reset is still at hand")
invariant(RAFT_APPEND_BYTES_MAX + KiB * RAFT_APPEND_ENTRIES_MAX // 16 < RAFT_MESSAGE_BYTES_MAX, "headers have room")
invariant(HELLO_ANSWER_MAX < HELLO_LISTEN, "answers are heard in time")
invariant(NODE_TIMEOUT > 3 * HELLO_INTERVAL, "two lost hellos make no node absent")
invariant(BALANCE_RETRY_MIN > RAFT_TRANSFER_TIMEOUT, "a handover has ended before it is asked for again")
invariant(MOVE_MEMORY > HEARD_AGE_MAX, "an ack of before a move is known by then, with room for clocks that differ")
