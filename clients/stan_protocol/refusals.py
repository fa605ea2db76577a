"""Refusals: answers of servers to requests that they do not accept. Values, not exceptions.

Each one is a text for people, with `{}` for variable parts; its code, for programs, is its name in lower case. The
original's texts are exactly those of the original server (STAN-SPEC, Appendix B).
"""

import re
from functools import cache
from typing import Any, Final

# --- clients ----------------------------------------------------------------------------------------------------------

INVALID_CONNECT = "stan: invalid connection request"
INVALID_CLIENT_ID = "stan: invalid clientID: only alphanumeric and `-` or `_` characters allowed"
CLIENT_REGISTERED = "stan: clientID already registered"
"""Another client with this id is connected, and alive."""
CLIENT_ID_MISSING = "stan: clientID missing"
UNKNOWN_CLIENT = "stan: unknown clientID"
"""The client is not registered (any more)."""
CLIENT_REPLACED = "client has been replaced or is no longer registered"
"""The answer to a ping of a client whose session is lost: its last publishes may be stored."""
TOO_MANY_CLIENTS = "stan: maximum number of clients reached"
INVALID_CLOSE = "stan: invalid close request"
CLIENT_NOT_PERMITTED = "stan: no permission for client id {}"
UNKNOWN_USER = "stan: no permission: NATS does not tell which user asks"
NOT_PERMITTED = "stan: no permission to {} {}"

# --- subscriptions ----------------------------------------------------------------------------------------------------

INVALID_SUBSCRIBE = "stan: invalid subscription request"
INVALID_SUBJECT = "stan: invalid subject"
INVALID_ACK_WAIT = "stan: invalid ack wait time, should be >= 1s"
INVALID_MAX_IN_FLIGHT = "stan: invalid MaxInflight, should be >= 1"
INVALID_START = "stan: invalid start position"
DUPLICATE_DURABLE = "stan: duplicate durable registration"
DURABLE_NAME_COLON = "stan: durable name of a durable queue subscriber can't contain the character ':'"
DURABLE_OF_ANOTHER = "stan: the durable or queue group belongs to another user"
TOO_MANY_SUBSCRIPTIONS = "too many subscriptions per channel"
INVALID_UNSUBSCRIBE = "stan: invalid unsubscribe request"
INVALID_SUBSCRIPTION = "stan: invalid subscription"
"""It is closed, or never was."""

# --- all requests -----------------------------------------------------------------------------------------------------

BUSY = "stan: busy, try again"
"""The leader has too much to do, or may have been replaced. It passes: ask again."""
TOO_MANY_REQUESTS = "stan: too many requests, try again later"
UNKNOWN_VERSION = "stan: the server does not know this version of the request"
NOT_A_CLUSTER = "stan: this node is alone"
"""The request is for nodes of a cluster."""
NOT_FOUNDED = "stan: the cluster has no identity yet"
"""It passes once the metadata has a leader."""
SHORTAGE = "stan: the server is short of open files or memory"
DISK_FULL = "stan: no space left on the server's disk"
CHANNEL_FROZEN = "stan: the channel takes nothing until the server is restarted"
"""A write or sync of its group has failed."""
NOT_NOW = "stan: not now: {}"
"""Nothing was stored; the same may be stored later."""
GROUP_FROZEN = "stan: group {} is frozen until a restart: {}"
NO_METADATA = "stan: the metadata of the cluster has no leader"
"""It passes once most nodes are there."""
TOO_MUCH_WAITING = "stan: too much waits for a majority of the nodes"
"""It passes once most nodes are there."""
UNKNOWN_CHANNEL = "stan: unknown channel"
CHANNEL_ELSEWHERE = "stan: the channel is none of this server's"
IN_ANOTHER_GROUP = "stan: the channel belongs to group {}, not to group {}"
TOO_MANY_CHANNELS = "too many channels"
CASE_CONFLICT = "rejecting channel {} because channel {} alreay exists (different cases not allowed)"
"""Spelled as in STAN-SPEC 4.2."""
CHANNEL_DELETING = "stan: channel is being deleted"
CHANNEL_RESTORING = "stan: channel is being restored"
CHANNEL_MOVING = "stan: channel is being moved to another group"
CHANNEL_IN_USE = "stan: channel is in use: it has, or had, messages or subscriptions"
NOT_OF_EPHEMERAL = "stan: channel {} is ephemeral, its messages are in the memory of one node: {} cannot be had of it"
"""With the channel's name, quoted, and the request."""
EPHEMERAL_EMPTIED = "stan: the ephemeral channel has another leader and is empty: publish again what it is to have"
EPHEMERAL_USED_UP = (
    "stan: the ephemeral channel has no sequences left: delete it, and it is made anew by the next publish"
)

# --- publishing -------------------------------------------------------------------------------------------------------

INVALID_PUBLISH = "stan: invalid publish request"
"""The channel's name is invalid, or the server does not know the client: it may have lost its memory."""
MESSAGE_TOO_LARGE = "nats: maximum payload exceeded"
INVALID_TTL = "stan: the time to live of the message is negative or too long"
TOO_MANY_EXPIRING = (
    "stan: too many messages of the channel that expire lie between others that do not, or expire otherwise"
)
DELAYED_TOO_LONG = "stan: the message is delayed for too long"
TOO_MANY_DELAYED = "stan: too many messages wait for their time"
STREAM_SEALED = "stan: the channel's stream is sealed"
STREAM_FULL = "stan: the channel's stream is full, and refuses new messages instead of removing old ones"
NO_DELAY_TARGET = "stan: channel {} has a delay, and no target to which its messages go"
DELAY_TARGET_DELAYED = "stan: channel {} has a delay, and so has its target {}"
DELAY_TARGET_ELSEWHERE = (
    "stan: channel {} has a delay, and is in another group than its target {}: "
    "delete it, and it is made where it belongs"
)
NO_SCHEMA = "stan: no schema is registered for channel {}"
NO_SCHEMA_VERSION = "stan: the message does not say by which version of the schema it is written (header stan-schema)"
WRONG_SCHEMA_VERSION = "stan: header stan-schema: {} is no version of the schema of {}"
SCHEMA_MISMATCH = "stan: the message does not fit version {} of the schema of {}: {}"
SCHEMA_UNCHECKED = "stan: this server cannot check messages by version {} of the schema of {}: {}"
ROW_REFUSED = "stan: row {} is refused: {}"
"""For its schema."""

# --- channels with parts ----------------------------------------------------------------------------------------------

HAS_PARTS = "stan: a channel with parts is used by its parts, each with sequences of its own: {} to {}"
"""With the first part and the last one: subscribe to the parts, or publish with a client that knows parts."""
CHANNEL_IS_PART = "stan: channel {} is a part of channel {}, and comes and goes with it"
NAME_OF_PART = "stan: only the parts of channel {} are called like this"
PARTS_DOUBLING = "stan: the parts of the channel are being doubled: publish again in a few seconds"
WRONG_PART = "stan: the key of the message belongs to another part than {}: publish to channel {}"
PARTS_ELSEWHERE = "stan: the parts of channel {0} are none of this server's: {0}.* has to be among its channels, too"
CHANNEL_EXISTS = "stan: channel {} is there already: a channel gets its parts when it is made"
HAS_NO_PARTS = "stan: channel {} has no parts"
HAS_OTHER_PARTS = "stan: channel {} has {} parts, and its key otherwise"
NOT_SO_MANY_PARTS = "stan: channel {} has {} parts now"
NO_PARTS_POSSIBLE = "stan: a channel of this name can have no parts"
INVALID_KEY_PATH = "stan: the key in JSON data is told as $.name or $.name.name"
DOUBLED_ALREADY = "stan: the parts of the channel are being doubled already"
PART_MOVING = "stan: a part of the channel is being moved to another group: ask again when that is over"
INVALID_PARTS = "stan: a channel has 2 to {} parts"
TOO_MANY_PARTED = "stan: {} channels have parts already"

# --- batches and transactions -----------------------------------------------------------------------------------------

INVALID_BATCH = "stan: invalid batch request"
INVALID_FRAME = "stan: the compressed rows are no zstd frame that tells its size, or have more than {} bytes"
INVALID_ROWS = "stan: row {} is not well-formed"
ROW_TOO_LARGE = "stan: row {} is larger than a message may be"
TOO_MANY_ROWS = "stan: too many rows in one request"
TOO_MANY_IDS = "stan: more ids than can be remembered"
IDS_FORGOTTEN = "stan: the ids of this version are not remembered any more"
"""Ids are remembered for the two newest versions of a producer's work."""
INVALID_TRANSACTION = "stan: invalid transaction request"
STAGED_OTHERWISE = "stan: this part is staged already, with other rows"
STAGED_GONE = "stan: staged rows are gone"
STAGED_UNNAMED = "stan: more is staged than the commit names"
STAGED_TOO_MUCH = (
    "stan: {} {} are staged in the channel's group and not committed, of {} that it takes: "
    "a batch of fewer tasks, channels or rows needs less (with Spark: coalesce, maxOffsetsPerTrigger)"
)
ANOTHER_WRITER = (
    "stan: version {} of application '{}' is older than, or the same as, what another writer has committed ({}): "
    "nothing is added; a writer needs an application name of its own (with Spark: txnAppId)"
)
APP_OF_ANOTHER = "stan: this application is another user's"
TOO_MANY_STAGED = "stan: a request stages rows of more than {} channels"
TOO_MANY_COMMITTED = "stan: a commit names more than {} channels"
TOO_MANY_APPS = "stan: too many apps have committed"

# --- reading ----------------------------------------------------------------------------------------------------------

INVALID_FETCH = "stan: invalid fetch request"
INVALID_QUERY = "stan: invalid request about channels"
UNREADABLE = "stan: messages cannot be read"
INVALID_BOOKMARK = "stan: invalid name of a position"
TOO_MANY_BOOKMARKS = "stan: too many named positions"

# --- consumer groups --------------------------------------------------------------------------------------------------

INVALID_CONSUMER = "stan: invalid request of a member of a consumer group"
OUTDATED_GENERATION = "stan: the channel has a newer owner in its consumer group"
"""The former owner's position is refused: the newer one reads on from the noted position."""
MEMBER_OF_ANOTHER = "stan: the member of the consumer group belongs to another user"
TOO_MANY_CONSUMER_GROUPS = "stan: too many consumer groups"
TOO_MANY_CONSUMERS = "stan: too many members of one consumer group"
TOO_MANY_CONSUMER_PATTERNS = "stan: too many different patterns in one consumer group"
NO_CONSUMER_GROUPS = "stan: no consumer groups where servers divide the channels among them"
UNKNOWN_CONSUMER_GROUP = "stan: no such consumer group, or it has no members"
CONSUMER_GROUP_CHANGED = "stan: the consumer group was changed meanwhile"

# --- positions --------------------------------------------------------------------------------------------------------

INVALID_ADMIN = "stan: invalid admin request"
"""A field is missing, or out of bounds."""
CURSOR_NOT_NAMED = "stan: name a durable or a queue group, or give the number of a position"
UNKNOWN_CURSOR = "stan: there is no {} in channel {}"
AMBIGUOUS_CURSOR = "stan: {} in channel {} is one of several, give the number or the client: {}"
UNKNOWN_SUBSCRIPTION = "stan: subscription {} is not there in channel {}"
CURSOR_EXISTS = "stan: this durable exists already, move it"
CURSOR_GONE = "stan: this position is gone"
INVALID_NEW_CURSOR = "stan: name a durable and its client id, or a durable and its queue group"
CURSOR_HAS_MEMBERS = "stan: the position has subscribers: end them first"
INVALID_MOVE = "stan: say where to: a sequence from 1 on, a time, new messages only, or all"
BEYOND_END = "stan: channel {} ends with sequence {}, {} is not there yet"
INVALID_RUNS = "stan: sequences are given as first, last, first, last, ..., from 1 on"
TOO_MANY_SKIPPED = "stan: too many single messages are to be skipped"

# --- messages that are deleted or restored ----------------------------------------------------------------------------

UNKNOWN_MESSAGE = "stan: the channel has no message of this sequence"
TOO_MANY_DELETED = "stan: too many messages of the channel were deleted one by one; purge it instead"
INVALID_RESTORE = "stan: invalid restore request"
UNKNOWN_RESTORE = "stan: no restore of this name is under way in the channel"
RESTORED_OUT_OF_ORDER = "stan: messages that are restored must come in order"

# --- streams of JetStream ---------------------------------------------------------------------------------------------

JETSTREAM_OFF = "stan: the servers do not answer clients of JetStream (jetstream_api)"
STREAM_REFUSED = "stan: the stream cannot be made: {}"
STREAM_EXISTS = "stan: stream {} is there, with another configuration"
NO_STREAM_OF_CHANNEL = "stan: the channel has no stream"
CONSUMER_REFUSED = "stan: the consumer cannot be made: {}"

# --- moves, pins and commit levels ------------------------------------------------------------------------------------

UNKNOWN_MOVE = "stan: no such move of the channel is under way"
MOVE_WAITS_STAGED = "stan: transactions of the channel are under way"
MOVE_WAITS_SERVED = "stan: other nodes than the leader serve subscriptions of the channel, or may"
MOVE_WAITS_DELAYED = "stan: delayed messages wait for the channel"
MOVE_UNDER_WAY = "stan: the channel is being moved to another group: ask again when that is over"
MOVED_BACK = "stan: the channel was in group {} before, and cannot come back to it"
CHANNELS_CHANGED = "stan: the channels have changed meanwhile: ask again"
TOO_MANY_MOVES = "stan: {} moves of channels are under way already"
TOO_MANY_MOVED = "stan: more than {} channels belong to this one: they cannot be moved"
UNKNOWN_GROUP = "stan: there is no group {}"
PINNED_TOO_LATE = "stan: the channel is in group {} already: it can be pinned there, or moved"
PLACED_WITH_ANOTHER = "stan: channel {} is kept where channel {} is: pin that one"
GROUP_OF_OTHER_COMMIT = (
    "stan: group {} is for channels with commit {}: the policy says it for new channels, and one that is empty is changed by "
    "stan channel commit"
)
TOO_MANY_PINS = "stan: {} channels are pinned already"
EPHEMERAL_FROM_START = (
    "stan: a channel is ephemeral, or is not, from the time on at which it is made: delete it, and it is made anew"
)
UNKNOWN_COMMIT = "stan: commit is one of {}"
COMMIT_REFUSED = "stan: commit: {}"
"""With the obstacle to another level of commit."""

# --- nodes and groups -------------------------------------------------------------------------------------------------

NODES_REFUSED = "stan: nodes: {}"
"""Why a node is not added or removed."""
LEVEL_REFUSED = "stan: level: {}"
"""Why the level of the cluster is not raised."""
GROWTH_REFUSED = "stan: pool: {}"
"""Why there are no more groups for now."""
TOO_MANY_GROUPS = "stan: there are at most {} groups"
POOL_ONLY_GROWS = "stan: there are {} groups already: a pool only grows"
POOL_GROWS = "stan: the pool grows already: its new groups have to have leaders first"
POOL_CHANGED = "stan: the pool or the nodes have changed meanwhile"
NOBODY_TO_LEAD = "stan: nobody else is there to lead"
NO_VOTE_IN_GROUP = "stan: node {} has no vote in group {}: {} have"
NOT_TAKEN_OVER = "stan: node {} did not take group {} over"

# --- policies and schemas ---------------------------------------------------------------------------------------------

POLICY_REFUSED = "stan: policy: {}"
"""With the values out of bounds, by the names of options."""
TOO_MANY_POLICIES = "stan: there are {} policies already"
SCHEMA_LIBRARY_MISSING = "stan: schema: {}"
"""Servers lack the library that checks messages."""
INVALID_SCHEMA = "stan: this is no schema of kind {}: {}"
UNKNOWN_SCHEMA_KIND = "stan: a schema is of kind json, avro or protobuf"
SCHEMA_INCOMPATIBLE = "stan: the schema is not {} compatible: it {}"
UNKNOWN_SCHEMA = "stan: no schema is registered for pattern {}"
UNKNOWN_SCHEMA_VERSION = "stan: the schema of pattern {} has no version {}"
SCHEMA_CHANGED = "stan: the schema was changed meanwhile"
SCHEMA_OF_ANOTHER_KIND = "stan: the schema of this pattern is of another kind"
SCHEMA_VERSION_EXISTS = "stan: version {} is there already"
SCHEMA_OVERLAPS = "stan: pattern {} covers some of the same channels: a channel has one schema"
TOO_MANY_SCHEMAS = "stan: {} patterns have a schema already"
TOO_MANY_SCHEMA_VERSIONS = "stan: the schema has {} versions already: remove one"
SCHEMAS_TOO_LARGE = "stan: all schemas together would have more than {} bytes"

# --- codes ------------------------------------------------------------------------------------------------------------

TEXTS: Final[dict[str, str]] = {
    name.lower(): value for name, value in dict(globals()).items() if name.isupper() and isinstance(value, str)
}
"""All refusals above, by their codes."""
_CODES: Final = {text: code for code, text in TEXTS.items()}
_VARYING: Final = re.compile(r"\{\d?\}")


@cache
def _any_refusal() -> re.Pattern[str]:
    """Return a pattern with a group for each refusal, called as its code; longer texts come first."""
    pieces = sorted(
        ((code, _VARYING.split(text)) for code, text in TEXTS.items()), key=lambda pair: -sum(map(len, pair[1]))
    )
    each = (f"(?P<{code}>{'.*'.join(map(re.escape, fixed))})" for code, fixed in pieces)
    return re.compile(f"(?:{'|'.join(each)})(?:: .*)?", re.DOTALL)


def code_of(text: str) -> str:
    """Return the code of a refusal, which a colon and more may follow; "" if it is none of those that this version knows."""
    code = _CODES.get(text)
    if code is None:
        match = _any_refusal().fullmatch(text)
        code = match and match.lastgroup
    return code or ""


def refused(answer: Any, error: str) -> Any:
    """Write a refusal into an *answer* of the extension protocol, its text and its code, and return the answer."""
    answer.error, answer.error_code = error.encode(), code_of(error)
    return answer


# --- texts with names in them -----------------------------------------------------------------------------------------


def not_permitted(what: str, channel: str) -> str:
    """Return the refusal for a client without a right; *what* is the right's own word."""
    return NOT_PERMITTED.format(what, go_quote(channel))


def client_not_permitted(client_id: str) -> str:
    """Text for a client that no rule is about."""
    return CLIENT_NOT_PERMITTED.format(go_quote(client_id))


def case_conflict(requested: str, existing: str) -> str:
    """Text for a channel whose name differs from an existing one by case only."""
    return CASE_CONFLICT.format(go_quote(requested), go_quote(existing))


def unknown_cursor(channel: str, what: str) -> str:
    """Text for a durable or queue group that is not there; *what* names it."""
    return UNKNOWN_CURSOR.format(what, go_quote(channel))


def ambiguous_cursor(channel: str, what: str, positions: list[str]) -> str:
    """Text for a name that several have."""
    return AMBIGUOUS_CURSOR.format(what, go_quote(channel), ", ".join(positions[:10]))


def unknown_subscription(subscription_id: int, channel: str) -> str:
    """Return the refusal for a subscription that does not exist (any longer)."""
    return UNKNOWN_SUBSCRIPTION.format(subscription_id, go_quote(channel))


def beyond_end(channel: str, sequence: int, last: int) -> str:
    """Text for a sequence that is not there yet."""
    return BEYOND_END.format(go_quote(channel), last, sequence)


def go_quote(text: str) -> str:
    """Quote as Go's %q does: double quotes, backslash escapes, hexadecimal for bytes that are not UTF-8."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    out = []
    for char in text:
        code = ord(char)
        if char in '"\\':
            out.append("\\" + char)
        elif char in "\a\b\f\n\r\t\v":
            out.append(
                {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}[char]
            )
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif char.isprintable():
            out.append(char)
        elif code < 0x80:
            out.append(f"\\x{code:02x}")
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(out) + '"'
