"""Bounds of the requests of clients and operators, and of the broker's memory of them."""

from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND, GiB, KiB, MiB

from stan.limits.nats import OUTBOUND_BYTES_HIGH

# --- publish -------------------------------------------------------------------------------------------------------
UNCOMMITTED_BYTES_MAX = 64 * MiB
"""Published bytes waiting for their commit above which reading from NATS pauses."""
WAITING_ANSWERS_BYTES_MAX = 2 * UNCOMMITTED_BYTES_MAX
"""Answers that wait for a leader's lease. They count as published bytes that wait, so from the half on nothing is published that
would bring another ack; above that are refusals, which are dropped."""
EPHEMERAL_BYTES_MAX = 256 * MiB
"""Bytes of the messages of all ephemeral channels that a node leads, above which the oldest ones of the largest channel go."""
EPHEMERAL_REFUSED_AGE_MAX = 10 * SECOND
"""Publishes to an ephemeral channel that came this long before its group had a new leader are refused by it: they may be
unanswered, as an election may take 8 s on a busy machine. Answered ones are refused, too, but their publishers do not get that
refusal any more."""
NAME_BYTES_MAX = 1 * KiB
"""Longest client id, connection id, name of a durable or of a queue group."""
REQUEST_PARTS_MAX = 20_000
"""Fields of one request, those of messages in it counted: names of channels, positions, transactions. Each costs some 20 us."""
RESTORE_PARTS_MAX = 131_072
"""The same of an operator's request with rows of a backup, which are described one by one."""
REPLY_PREFIX_CHARS_MAX = 128
REPLY_PREFIXES_MAX = 8
"""Beginnings of reply subjects of publishes that a configuration adds to the usual ones."""
PUBLISHERS_PER_BATCH_MAX = 64 * KiB - 1
"""Different publishers of one channel in one batch of the kernel; an index of one has 16 bits, and one more is needed."""
ROWS_BYTES_MAX = 32 * MiB
"""Bytes as messages of the rows in one request: they are stored in one entry."""
BATCH_BYTES_WAITING_MAX = 16 * MiB
"""Rows of one group that wait for their channel or for earlier rows of their producer; further ones are answered "retry"."""
PRODUCER_BYTES_MAX = 255
"""Longest name of a producer."""
PRODUCER_AGE_MAX = 24 * 3600 * SECOND
"""The ids of a producer that sends nothing for this long are forgotten."""
WINDOWS_MAX = 16_384
"""Producers and channels of which one group remembers ids."""
WINDOW_IDS_MAX = 2 * 1024 * 1024
"""Ids that are remembered of one version of a producer's work in one channel."""
GROUP_IDS_MAX = 4 * WINDOW_IDS_MAX
"""Ids that one group remembers; they take some 50 bytes of memory each."""

# --- policies of delivery --------------------------------------------------------------------------------------------
PARTS_MAX = 256
"""Parts of one channel."""
PARTED_MAX = 256
"""Channels that have parts."""
PART_FINGERPRINTS_BYTES_MAX = 768 * KiB
"""Fingerprints of a part's newest messages when the parts are doubled, so that new parts do not accept them again."""
PINS_MAX = 1_000
"""Channels that are pinned to a group; the metadata keeps them all in one row."""
DROPPED_RUNS = 64
"""A group keeps the uids of dropped channels as no more runs than these, and two for each channel that exists."""
MOVES_MAX = 16
"""Moves of channels between groups that are under way at once."""
MOVE_ANSWER_BYTES_MAX = 512 * KiB
"""Data of moving channels in one answer."""
MOVE_BYTES_PER_SECOND = 32 * MiB
"""At which channels are copied while they are in use."""
MOVED_STATE_BYTES_MAX = 4 * MiB
"""Data of the channels of one move besides their messages: they come in one entry."""
MOVE_HOLD_MAX = 3 * SECOND // 2
"""How long channels are held for a move, also through changes of their leader; then it is cancelled."""
MOVE_KNOWN_MIN = 8 * SECOND
"""For as long the leader of a group must have known the stored publishes before channels are moved from it; when parts are
doubled, each has fingerprints of as many seconds before it was closed."""
MOVE_KNOWN_MARGIN = 4 * SECOND
"""By which nodes may receive publishes, or changes of the metadata, later than the leader that has stored them."""
MOVE_LOOK = SECOND // 20
"""Between two looks of a leader at the moves of its group."""
MOVE_PATIENCE = 10 * SECOND
"""How long a move waits for half-done work in its channels when their messages are copied; then it is cancelled."""
MOVE_STALLED_MAX = 60 * SECOND
"""How long a move goes on without progress in copying; then it is cancelled, too, and others have their turn."""
MOVE_STAGING_MAX = 3 * SECOND
"""How long no transaction begins in channels whose move waits for the end of open transactions."""
MOVE_RETRY = 10 * SECOND
"""Pause before the leader of the metadata begins a cancelled move again; twice as long each time ..."""
MOVE_RETRY_MAX = 60 * SECOND
"""... and no longer than this."""
MOVE_LOOKED_AT = 1_000
"""Channels of which the leader of the metadata looks at once whether they are in the group where they belong."""
MOVE_CHANNELS_MAX = 256
"""Channels that are moved together, as they belong to each other."""
POLICIES_MAX = 1_000
"""Policies in a configuration, and as many in the metadata."""
POLICY_COMPLAINTS_MAX = 5
"""Mistakes in one answer about a policy."""
SCHEMA_VERSIONS_MAX = 32
"""Versions of the schema of one pattern of channels: a new one is compared with all of them."""
SCHEMA_PATTERNS_MAX = 256
SCHEMAS_BYTES_MAX = 4 * MiB
"""All versions of all schemas; each node has them in memory, and snapshots of the metadata have them."""
SCHEMA_REQUESTS_WAITING_MAX = 64
"""Requests to look at a schema that wait for their turn, each as large as a schema; further ones have to be repeated."""
SCHEMA_REFUSAL_BYTES_MAX = 400
"""The report of one message that does not fit its schema, in which the publisher made up the names of fields."""
MAX_DELIVER_MAX = 1_000_000
"""Largest number of deliveries of a message that a policy can name."""
BACKOFF_PAUSES_MAX = 32
"""Pauses in one policy."""
BACKOFF_PAUSE_MAX = 7 * 24 * 3600 * SECOND
"""Longest of them."""
MAX_HOLD_MAX = 365 * 24 * 3600 * SECOND
"""Longest time for which a policy lets an ack wait be put off."""
DEAD_LETTER_RATE_MAX = 1_000_000
"""Largest number of dead letters a minute that a policy can name."""
FAILURE_REASONS_MAX = 1000
"""Clients' reasons for failures and rejections, per position; the oldest ones are forgotten."""
DEAD_LETTER_RETRY = 1 * SECOND
"""A move of messages into a dead letter channel that has failed is tried again after this."""
DEAD_LETTER_CHANNEL_RETRY = 10 * SECOND
"""A dead letter channel that cannot be had is looked for again after this."""
REDRIVES_MAX = 3
"""A dead letter is put back into its channel so often, so that poison does not go round for ever."""
REDRIVE_MESSAGES_MAX = 1000
"""Messages in one request to put dead letters back."""
DELAY_LOOK = 1 * SECOND
"""The leader looks this often, or sooner for shorter delays, which delayed messages are due: so it heeds a wall clock that was
set."""
DELAY_RETRY = 1 * SECOND
"""Delayed messages that cannot be moved now are tried again after this."""
DELAY_MESSAGES_MAX = 4_096
"""Delayed messages that one entry moves, so that many due ones do not hold up current publishes."""
DELAYED_PAGE_MAX = 1_000
"""Delayed messages in one answer, and as many that one request cancels."""
DELAYED_IDS_MAX = 100_000
"""Of delayed messages that are due in a moment, in the answer for a backup."""
DEFERRED_MAX = 1_000_000
"""Messages of one group that wait for a time set by their publishers; the times are in memory."""
COMPACTION_INTERVAL = 15 * SECOND
"""Interval at which the leader decides how far channels may be compacted by key."""
COMPACTED_CHANNELS_MAX = 1_000
"""Channels that one entry compacts."""
TIER_STRETCH_MAX = 1_000_000
"""A channel may hold this many times its limits for its tier."""
TTL_UNITS = 3_600
"""The expiry of a message is rounded up to such a part of its time to live, at least to a second: so messages that expire by
a policy are listed in not many more runs."""
EXPIRING_RUNS_MAX = 20_000
"""Runs of messages of one channel that expire at one time each, and of messages removed one by one; they are in memory, and
the list of removed ones is rewritten when some are added."""
EXPIRED_CHANNELS_MAX = 256
"""Channels in one entry that removes expired messages."""
EXPIRED_MARKED_MAX = 1000
"""Messages in one entry that removes expired messages of a stream whose subjects leave delete markers."""

# --- permissions and complaints ------------------------------------------------------------------------------------
PERMISSION_RULES_MAX = 10_000
"""Rules of permissions in a configuration."""
REMEMBERED_MAX = 65_536
"""Answers about names that clients made up which are remembered in one place: verdicts of permissions, whose a channel is, ..."""
REMEMBERED_BYTES_MAX = 16 * MiB
"""And bytes of those names."""
COMPLAINTS_MAX = 100
"""Lines of the log a minute about clients' frames."""
COMPLAINT_CHARS_MAX = 1000
"""Longest of them."""

# --- fetch (FETCH) -------------------------------------------------------------------------------------------------
FETCHES_UNDER_WAY_MAX = 32
"""Fetch requests that wait for the disk or for news of the metadata; further ones are answered "retry"."""
FETCH_BYTES_UNDER_WAY_MAX = 32 * MiB
"""Records that are being read from the disk for fetch requests; further ones are answered "retry"."""
FETCH_ANSWER_BYTES = 2 * MiB
"""Default size of an answer whose size the request leaves to the broker. Larger answers did not measurably help."""
FETCH_UNSENT_BYTES_MAX = OUTBOUND_BYTES_HIGH // 2
"""Unsent bytes towards NATS above which a fetch is answered "retry": the rest is for deliveries."""
FIND_BYTES_MAX = 8 * MiB
"""Records read for one request for the newest message of a key; the client goes on from its end."""
FETCH_CLEAR_BYTES_MAX = 8 * MiB
"""Messages, decompressed, of the batches in one answer: the memory that a client for compressed ones needs."""
FETCH_BATCHES_MAX = 1024
"""Record batches in one answer; looking them up takes the event loop's time."""

# --- questions about channels (ASK) --------------------------------------------------------------------------------
QUESTIONS_WAITING_MAX = 1024
"""Requests that wait for news of the metadata; further ones are answered "retry"."""
INFO_CHANNELS_MAX = 2000
"""Channels in one answer; putting them together takes the event loop's time."""
INFO_WAIT_MAX = 30 * SECOND
"""An answer that waits for newer messages waits no longer."""
INFO_WAIT_TICK = 50 * MILLISECOND
"""By so much later an answer may leave that has waited in vain."""
WATCHED_MAX = 65_536
"""Channels that are watched for newer messages, counted once per request; further requests are answered "retry"."""
BOOKMARK_NAME_BYTES_MAX = 255
"""Longest name of a bookmark."""
BOOKMARKS_MAX = 16_384
"""Bookmarks in the channels of one group; all of them are in memory."""
CONSUMER_GROUPS_MAX = 256
"""Consumer groups that have members."""
CONSUMERS_MAX = 256
"""Members of one consumer group."""
CONSUMER_PATTERNS_MAX = 8
"""Different patterns of the members of one consumer group: dividing takes as many times as long."""
CONSUMER_CHANNELS_MAX = 2_000
"""Channels of one consumer group: the oldest ones; one member may own all of them, listed in one answer."""
CONSUMER_CHANNEL_BYTES_MAX = 255
"""Longest name of a channel in a consumer group."""
CONSUMER_NAME_BYTES_MAX = 255
"""Longest name of a consumer group, pattern of a member, and name of a member."""
CONSUMER_ID_BYTES_MIN = 8
CONSUMER_ID_BYTES_MAX = 64
"""The id of a member, which others cannot guess."""
CONSUMER_LEASE_MIN = 500 * MILLISECOND
CONSUMER_LEASE_MAX = 300 * SECOND
"""Silence, chosen by the member, after which it counts as gone."""
CONSUMER_PATROL = 100 * MILLISECOND
"""Leases and waiting requests of members are looked at this often."""
CONSUMER_PATIENCE = 5 * SECOND
"""A change of a consumer group without news for as long is made again."""
CONSUMER_RETRY = 1 * SECOND
"""A change of a consumer group that could not be written is tried again after this."""
RESTORED_GAP_MAX = (1 << 32) - 1
"""Sequences in a row that a restore leaves unused: as many as the header of a record batch can count."""
DELETED_RUNS_MAX = 10_000
"""Runs of messages of one channel that were deleted one by one; they are in memory, and are written whole when one is added."""
RESTORE_NAME_BYTES_MAX = 64
"""Name of a restore."""
CHANNEL_CHANGES_WAITING_MAX = 1_000
"""Requests of operators that wait until a channel is made, or is out of the registry."""

# --- transactions (TRANSACT) ---------------------------------------------------------------------------------------
APP_BYTES_MAX = 255
"""Longest name of an app."""
TXN_BYTES_MAX = 64
"""Longest name of a transaction."""
STAGED_AGE_MAX = 3600 * SECOND
"""Staged rows that are not committed after this long are removed."""
STAGED_BYTES_MAX = 8 * GiB
"""Rows staged in one group; they lie on the disk."""
STAGED_PARTS_MAX = 524_288
"""Parts staged in one group: what one request has for one channel, each with 400 bytes of memory. 200 tasks, as of Spark's
shuffles, may write 2,600 channels."""
STAGES_WAITING_MAX = 64
"""Requests to stage that wait for their channels to exist; further ones are answered "retry"."""
COMMIT_RETRY = 1 * SECOND
"""A commit whose rows could not be written, or one of whose channels is not known, goes on after this long."""
APPS_MAX = 4096
"""Apps and channels of which one group knows the last committed version, and apps of which it knows the last finished one."""
APP_MEMORY = 30 * 24 * 3600 * SECOND
"""The last version of an app is known at least this long after it was committed."""

# --- requests of operators -----------------------------------------------------------------------------------------
REPORT_PATIENCE = 1 * SECOND
"""An answer about channels waits this long for news of the metadata, then reports the known state."""
REPORT_ITEMS_MAX = 1000
"""Channels, positions or clients in one answer."""
REPORT_STEPS = 3000
"""Names looked at in one turn for all such answers together; an item that is shown counts as REPORT_ITEM_STEPS of them."""
REPORT_ITEM_STEPS = 12
"""See REPORT_STEPS."""
REPORTS_MAX = 256
"""Answers being made at once; further requests are answered "retry"."""
REPORT_RUNS_MAX = 10_000
"""Runs of pending messages reported for one cursor."""

NODE_ANSWERS_MAX = 256
"""Requests for a node's status that wait for the answer; further ones are answered "retry"."""
DISK_PATIENCE = 250 * MILLISECOND
"""Such an answer waits this long for the disk to report its space."""
EVENTS_PER_SECOND_MAX = 200
"""Events that one node publishes per second; further ones are only counted."""

# --- clients in a cluster ------------------------------------------------------------------------------------------
LISTEN_BEFORE_LEADING = 1500 * MILLISECOND
"""A node that has listened to clients for less than this leaves leadership to others: it would miss earlier publishes."""
REPLAY_AGE_MAX = 30 * SECOND
"""Frames read from NATS are buffered this long in case this node becomes a leader: as long as clients wait for acks."""
REPLAY_REQUEST_AGE_MAX = 3 * SECOND
"""Requests are not handled by a new leader if they are older: clients wait 2 s for an answer."""
CONNECTS_PASSED_ON_MAX = 1000
"""Connect requests that a node passes on to the leader when its nats-server has reached the leader's; the others are lost."""
REPLAY_BYTES_MAX = 64 * MiB
"""The same in bytes."""
ARRIVAL_ORDER_AGE_MAX = 30 * SECOND
"""The order of requests for connections and subscriptions is remembered this long: longer than any of them waits ..."""
ARRIVAL_ORDER_MAX = 65_536
"""... and of this many."""
FINGERPRINT_PATIENCE = 1 * SECOND
"""How much later than the last leader a new one may receive a publish that is in the log already."""
FINGERPRINT_AGE_MIN = 10 * SECOND
"""They stay for as long, also while many publishes shorten the replay buffer: moves and doublings need them."""
FINGERPRINT_MEMORY = 60 * SECOND
"""How much later a publish is still known to be in the log: a network may delay it."""
CATCHUP_PATIENCE = 5 * SECOND
"""Frames of a connection wait this long until the metadata contains that connection."""
CLOSE_PATIENCE = 1 * SECOND
"""A leader waits this long for frames that a client had sent before it closed its connection."""
PENDING_REQUESTS_MAX = 1024
"""Requests that wait at a leader that may have been replaced; it knows within RAFT_LEADER_PATIENCE."""
FORWARD_INTERVAL = SECOND // 4
"""A change that the leader of the metadata was asked for is asked for again this often ..."""
FORWARD_PATIENCE = 10 * SECOND
"""... and for this long, where a client waits for it."""
PROGRESS_INTERVAL = 100 * MILLISECOND
"""Sent and acked positions of a replicated group are written to its log this often ..."""
PROGRESS_MESSAGES_MAX = 1000
"""... or once this many messages were delivered."""

MEMBER_TICK_INTERVAL = 250 * MILLISECOND
"""A node checks this often which nodes are there and which node should lead which group."""
TRANSFER_HINT_INTERVAL = 1 * SECOND
"""A member that lags behind the leader's log is reminded this often to fetch the missing part."""
TRANSFER_REPEAT = 1 * SECOND
"""A request without an answer is repeated after this silence ..."""
TRANSFER_PATIENCE = 10 * SECOND
"""... and given up after this one."""
VOTERS_TOLD = 150 * MILLISECOND
"""A leader goes on this long after a change of the voters, so that all of them learn of it."""
VOTERS_SUCCESSION = 300 * MILLISECOND
"""... and how long each of the others has to take over then: one that came lately may refuse."""
COPY_PATIENCE = 5 * SECOND
"""How long a copy of a group is of no use before it is put aside."""
JOIN_PATIENCE = 15 * SECOND
"""A joining node waits this long for the cluster's answer."""
DRAIN_PATIENCE = 5 * SECOND
"""A stopping node waits this long until others have taken over its leaderships."""
REFUSAL_REMEMBERED = 5 * SECOND
"""A group that has refused proposals is in trouble for this long, unless it writes one; on a full disk until there is room."""
FULL_DISK_RETRY = 1 * SECOND
"""A leader whose disk is full and that has no reachable successor tries again after this; so does a sync without a descriptor."""

# --- subscriptions -------------------------------------------------------------------------------------------------
REDELIVERY_SLACK = 15 * MILLISECOND
"""A deadline this close counts as reached, so that one timer serves many messages (STAN-SPEC 6.6)."""
NAK_PACE = 100 * MILLISECOND
"""A message that a client has failed with is sent again no sooner than this after it was sent."""
NAK_DELAY_MAX = 7 * 24 * 3600 * SECOND
"""Longest pause that a client may ask for before a message is sent again."""
READ_AHEAD_MESSAGES = 64
"""A cursor with a small window is given this many messages by one read, so that not every ack costs a read."""
READ_AHEAD_WINDOWS = 4
"""A cursor gets as many messages by one read as fill its window this often, while few enough cursors hold read messages."""
KEEP_BATCHES_CURSORS_MAX = 64
"""Cursors that hold read messages (READ_BYTES_MAX each) while their window is full; others read again."""
PROGRESS_RUNS_MAX = 1000
"""Sent and acked runs in one progress entry."""
PROGRESS_MARKS_STEP = 64 * 1024
"""Each time that so many more changes of holders of a cursor's messages wait for a progress entry, they are joined."""
HELD_BACK_FEW = 256
"""Messages of a key-ordered queue group that wait behind others of their slots while later ones are looked at. Beyond that ..."""
SLOTS_IN_USE_MAX = 896
"""... only while no more than this many slots are in use, so that members may be idle ..."""
HELD_BACK_MAX = 16 * 1024
"""... and up to this many: the position waits then ..."""
HELD_BACK_BYTES_MAX = 16 * MiB
"""... and the bytes of those in memory; the others are read again."""
OVERRIDE_RUNS_MAX = 1000
"""Runs of skipped and of earlier sent messages, remembered of a cursor that an operator has moved."""
MOVE_MEMORY = 60 * SECOND
"""For a cursor that was moved less than this ago, a new leader ignores acks that may date from before the move."""

# --- clients -------------------------------------------------------------------------------------------------------
DUPLICATE_CHECK_TIMEOUT = 500 * MILLISECOND
"""How long a registered client has to show that it is alive when its id is asked for again (STAN-SPEC 3.2)."""
STANDALONE_PROBE_TIMEOUT = 250 * MILLISECOND
"""How long start-up listens for another server with the same cluster id (STAN-SPEC 12.6)."""

RATED_CLIENTS_MAX = 65_536
"""Clients whose recent requests are counted, if there is a rate limit; the least recently active one is forgotten first."""
REQUEST_BYTES_MAX = 64 * KiB
"""Longest request to connect or to subscribe: the broker keeps the names in it, and no real name is that long."""

# --- JetStream -----------------------------------------------------------------------------------------------------
API_REQUEST_BYTES_MAX = 64 * KiB
"""Longest request of JetStream's API; it is looked at before it is parsed."""
API_NESTED_MAX = 512
"""Objects and lists in one of them."""
API_SHOWN_CHARS = 100
"""Of a name that a client has made up, in a refusal."""
API_WAITING_MAX = 256
"""Requests of JetStream's API that wait for the metadata or for messages from the disk."""
API_OUTLASTS = 3 * SECOND
"""For how long who begins to lead a group answers what was handed on to its leader before."""
PULL_OUTLASTS = 250 * MILLISECOND
"""The same for requests for messages: the time between two leaders when one hands over to the other. Those that are older have
got something from the one before, or are told that it leads no more."""
STREAMS_MAX = 1_000
STREAM_PATTERNS_MAX = 100
"""Patterns of channels and subjects that streams may have."""
STREAM_NAME_BYTES_MAX = 255
STREAM_SUBJECTS_MAX = 100
"""Subjects of one stream; each is a subscription of every node ..."""
STREAMS_SUBJECTS_MAX = 2_000
"""... and of all together: a new stream's subjects are compared with each of them."""
STREAM_DESCRIPTION_BYTES_MAX = 4 * KiB
STREAM_METADATA_BYTES_MAX = 16 * KiB
STREAM_INDEXED_MAX = 1_000_000
"""Subjects of one stream of which the newest message is known; of one with more, no message is given by its subject."""
STREAM_EARLIER_MAX = 8_000_000
"""Messages of one stream's subjects that are known besides the newest one of each, where several stay: 8 to 16 bytes each."""
STREAM_HISTORY_MAX = 10_000
"""Messages of each subject that a stream with several subjects may keep."""
STREAM_IDS_MAX = 1_000_000
"""Ids of one stream's messages that are known; while there are more, messages with ids are refused."""
STREAM_PENDING_COUNTED_MAX = 50_000
"""Messages behind a consumer with filters that are read to count those which it will get."""
DIRECT_BATCH_MAX = 10_000
"""Messages for one direct request; a client that wants more asks again ..."""
DIRECT_BATCH_BYTES_MAX = 4 * MiB
"""... and their bytes, but for the last one."""
DIRECT_SUBJECTS_MAX = 1_024
"""Subjects of which one direct request gets the newest message."""
STREAM_SLICE = 5_000
"""Subjects of a stream that are looked at in one turn for a request with wildcards."""
STREAM_COMPARED_MAX = 100_000
"""Subjects that the expectations with wildcards of messages which come together are compared with."""
STREAM_TRIED_MAX = 1_000
"""Messages that are read until one of them is there, for a request that names them by a pattern."""
STREAM_DETAILS_MAX = 100_000
"""Subjects, or deleted messages, in one answer about a stream."""
STREAM_REPLACED_MAX = 1_000
"""Messages of one subject whose place another one takes."""
STREAM_AHEAD_MAX = 100_000
"""Messages of a stream that are committed while its index is caught up, and not read for it again."""
STREAM_WAITING_BYTES_MAX = 8 * MiB
"""Messages that wait until the ids or subjects of their stream are known, of all users together; further ones are refused."""
API_SCANS_MAX = 16
"""Reads of many messages of a group for requests of JetStream's API at a time, of all users; further requests are refused."""
API_READS_MAX = 256
"""Reads of a group for requests of JetStream's API at a time, those of single messages included, of all users."""
STREAM_WINDOW_MAX = 3_600 * SECOND
"""Longest time for which ids of a stream's messages are known: a new leader reads the messages of that time."""
STREAMS_PAGE = 256
"""Streams in one answer with descriptions ..."""
STREAM_NAMES_PAGE = 1024
"""... and with names alone."""

# --- consumers of JetStream ----------------------------------------------------------------------------------------
STREAM_CONSUMERS_MAX = 10_000
"""Of one stream."""
STREAM_CONSUMER_NAME_BYTES_MAX = 255
STREAM_CONSUMER_METADATA_BYTES_MAX = 16 * KiB
STREAM_CONSUMER_FILTERS_MAX = 32
STREAM_CONSUMER_BACKOFF_MAX = 64
STREAM_CONSUMER_ACK_PENDING_MAX = 100_000
"""Largest window; a consumer that wants none has this one."""
STREAM_CONSUMER_WAITING_MAX = 4_096
"""Requests of pullers that wait for messages, of one consumer."""
STREAM_CONSUMER_BATCH_MAX = 1_000_000
"""Messages that one of them may ask for."""
STREAM_CONSUMERS_PAGE = 256
"""Consumers in one answer with descriptions ..."""
STREAM_CONSUMER_NAMES_PAGE = 1024
"""... and with names alone."""
FLOW_BYTES_MAX = 4 * MiB
"""Bytes on the way to a client with flow control; above half of it the client is asked what has arrived."""
INTEREST_INTERVAL = 250 * MILLISECOND
"""Interval at which messages that all consumers of a stream have passed are removed, where interest keeps them."""
CONSUMER_INDEX_RETRY = SECOND
"""A consumer of a stream whose index cannot be read waits so long before it asks again."""
STREAM_CONSUMER_SYNCED_MAX = 65_536
"""Acks whose senders wait until they are stored, of one group."""
ADVISORIES_WAITING_MAX = 10_000
"""Advisories about messages of the consumers of one group that wait for an entry."""
STREAM_CONSUMER_LASTING_MIN = 3_600 * SECOND
"""A consumer that is there for longer while nobody asks for it counts as a durable, for the rights of users."""
CONSUMER_GATHER_WINDOW = 256
"""Messages that a consumer has in flight at most, from which on acks may wait for more of them ..."""
CONSUMER_GATHER_MAX = 2 * MILLISECOND
"""... for so long, while its client has more than half of them to work on."""
PULL_UNHEARD_MAX = 2 * SECOND
"""For how long a request of a puller counts although NATS has told of no interest in its inbox."""
PULLS_MAX = 65_536
"""Requests of pullers that wait for messages, of all consumers of a group; a user has at most half of what the others leave."""
PULL_BEAT_MIN = 10 * MILLISECOND
"""Shortest interval of heartbeats that a puller may ask for."""
PULL_BEAT_PAUSE = 50 * MICROSECOND
"""Shortest interval of a puller's heartbeats for each request that waits in its group: there are at most 20,000 of them in a
second."""
PUSH_BEAT_PAUSE = 50 * MICROSECOND
"""The same for consumers that push: for each consumer of the group."""
PULL_DEAF_PAUSE = 20 * MICROSECOND
"""Requests of clients that do not listen any more are looked for again after so long for each request that waits in the group."""
CONSUMER_LOOK_MAX = 60 * SECOND
"""A consumer is looked at this often at least while something is to be done about it later: a timer is there for no longer."""

# --- settings ------------------------------------------------------------------------------------------------------
CHANNEL_LIMITS_CACHED_MAX = 10_000
"""Channels whose inherited limits are cached; a miss costs a walk over the configured patterns only."""
