"""Refusals: what servers answer to requests that they do not accept. Values, not exceptions.

The original's texts are exactly those of the original server (STAN-SPEC, Appendix B).
"""

SHORTAGE = "stan: the server is short of open files or memory"
DISK_FULL = "stan: no space left on the server's disk"
INVALID_CONNECT = "stan: invalid connection request"
INVALID_CLIENT_ID = "stan: invalid clientID: only alphanumeric and `-` or `_` characters allowed"
CLIENT_REGISTERED = "stan: clientID already registered"
INVALID_PUBLISH = "stan: invalid publish request"
INVALID_SUBSCRIBE = "stan: invalid subscription request"
MESSAGE_TOO_LARGE = "nats: maximum payload exceeded"
CLIENT_ID_MISSING = "stan: clientID missing"
INVALID_ACK_WAIT = "stan: invalid ack wait time, should be >= 1s"
INVALID_MAX_IN_FLIGHT = "stan: invalid MaxInflight, should be >= 1"
INVALID_START = "stan: invalid start position"
INVALID_SUBJECT = "stan: invalid subject"
UNKNOWN_CLIENT = "stan: unknown clientID"
DUPLICATE_DURABLE = "stan: duplicate durable registration"
DURABLE_NAME_COLON = "stan: durable name of a durable queue subscriber can't contain the character ':'"
INVALID_UNSUBSCRIBE = "stan: invalid unsubscribe request"
UNKNOWN_CHANNEL = "stan: unknown channel"
INVALID_SUBSCRIPTION = "stan: invalid subscription"
INVALID_FETCH = "stan: invalid fetch request"
INVALID_QUESTION = "stan: invalid request about channels"
INVALID_ADMIN = "stan: invalid admin request"
UNKNOWN_VERSION = "stan: the server does not know this version of the request"
ALONE = "stan: this node is alone"
INVALID_WHICH = "stan: name a durable or a queue group, or give the number of a position"
CURSOR_EXISTS = "stan: this durable exists already, move it"
INVALID_NEW_CURSOR = "stan: name a durable and its client id, or a durable and its queue group"
INVALID_MOVE = "stan: say where to: a sequence from 1 on, a time, new messages only, or all"
INVALID_RUNS = "stan: sequences are given as first, last, first, last, ..., from 1 on"
CURSOR_GONE = "stan: this position is gone"
TOO_MANY_SKIPPED = "stan: too many single messages are to be skipped"
INVALID_BOOKMARK = "stan: invalid name of a position"
TOO_MANY_BOOKMARKS = "stan: too many named positions"
OUTDATED_GENERATION = "stan: the channel has a newer owner in its consumer group"
INVALID_CONSUMER = "stan: invalid request of a member of a consumer group"
DURABLE_OF_ANOTHER = "stan: the durable or queue group belongs to another user"
FOREIGN_MEMBER = "stan: the member of the consumer group belongs to another user"
TOO_MANY_CONSUMER_GROUPS = "stan: too many consumer groups"
TOO_MANY_CONSUMERS = "stan: too many members of one consumer group"
TOO_MANY_CONSUMER_PATTERNS = "stan: too many different patterns in one consumer group"
NO_CONSUMER_GROUPS = "stan: no consumer groups where servers divide the channels among them"
PARTS_ELSEWHERE = "stan: the parts of channel {0} are none of this server's: {0}.* has to be among its channels, too"
UNKNOWN_CONSUMER_GROUP = "stan: no such consumer group, or it has no members"
CONSUMER_GROUP_CHANGED = "stan: the consumer group was changed meanwhile"
UNREADABLE = "stan: messages cannot be read"
BUSY = "stan: busy, try again"
INVALID_BATCH = "stan: invalid batch request"
ROW_TOO_LARGE = "stan: row {} is larger than a message may be"
TOO_MANY_ROWS = "stan: too many rows in one request"
TOO_MANY_IDS = "stan: more ids than can be remembered"
VERSION_PAST = "stan: the ids of this version are not remembered any more"
INVALID_TRANSACTION = "stan: invalid transaction request"
INVALID_FRAME = "stan: the compressed rows are no zstd frame that tells its size, or have more than {} bytes"
INVALID_ROWS = "stan: row {} is not well-formed"
KEY_NEEDS_LEVEL = "stan: row {} has a key: keys need level {} of the cluster, which is at level {}"
STAGED_OTHERWISE = "stan: this part is staged already, with other rows"
ANOTHER_WRITER = (
    "stan: version {} of application '{}' is older than, or the same as, what another writer has committed ({}): "
    "nothing is added; a writer needs an application name of its own (with Spark: txnAppId)"
)
APP_OF_ANOTHER = "stan: this application is another user's"
STAGED_GONE = "stan: staged rows are gone"
STAGED_UNNAMED = "stan: more is staged than the commit names"
TOO_MANY_COMMITTED = "stan: a commit names more than {} channels"
STAGED_TOO_MUCH = "stan: too much is staged"
TOO_MANY_APPS = "stan: too many apps have committed"
INVALID_CLOSE = "stan: invalid close request"
CHANNEL_RESTORING = "stan: channel is being restored"
CHANNEL_IN_USE = "stan: channel is in use: it has, or had, messages or subscriptions"
CHANNEL_MOVING = "stan: channel is being moved to another group"
LED_ELSEWHERE = "stan: another node leads the channel, and answers"
"""Why a request is left unanswered; no client gets this text."""
UNKNOWN_MOVE = "stan: no such move of the channel is under way"
MOVE_WAITS_STAGED = "stan: transactions of the channel are under way"
MOVE_WAITS_SERVED = "stan: other nodes than the leader serve subscriptions of the channel, or may"
MOVE_WAITS_DELAYED = "stan: delayed messages wait for the channel"
EPHEMERAL_EMPTIED = "stan: the ephemeral channel has another leader and is empty: publish again what it is to have"
EPHEMERAL_IS_NO = "stan: channel {} is ephemeral, its messages are in the memory of one node: {} cannot be had of it"
"""With the channel's name, quoted, and what was asked for."""
EPHEMERAL_USED_UP = (
    "stan: the ephemeral channel has no sequences left: delete it, and it is made anew by the next publish"
)
UNKNOWN_RESTORE = "stan: no restore of this name is under way in the channel"
INVALID_RESTORE = "stan: invalid restore request"
RESTORED_OUT_OF_ORDER = "stan: messages that are restored must come in order"
TOO_MANY_DELETED = "stan: too many messages of the channel were deleted one by one; purge it instead"
NO_DELAY_TARGET = "stan: channel {} has a delay, and no target to which its messages go"
DELAY_TARGET_DELAYED = "stan: channel {} has a delay, and so has its target {}"
DELAY_TARGET_ELSEWHERE = (
    "stan: channel {} has a delay, and is in another group than its target {}: "
    "delete it, and it is made where it belongs"
)
DELAY_NEEDS_LEVEL = "stan: delayed messages need level {} of the cluster, which is at level {}"
DELAYED_TOO_LONG = "stan: the message is delayed for too long"
TOO_MANY_DELAYED = "stan: too many messages wait for their time"
TTL_NEEDS_LEVEL = "stan: messages with a time to live need level {} of the cluster, which is at level {}"
INVALID_TTL = "stan: the time to live of the message is negative or too long"
TOO_MANY_EXPIRING = (
    "stan: too many messages of the channel that expire lie between others that do not, or expire otherwise"
)
UNKNOWN_MESSAGE = "stan: the channel has no message of this sequence"
CHANNEL_DELETING = "stan: channel is being deleted"
HAS_PARTS = "stan: a channel with parts is used by its parts, each with sequences of its own: {} to {}"
A_PART = "stan: channel {} is a part of channel {}, and comes and goes with it"
PART_NAME = "stan: only the parts of channel {} are called like this"
PARTS_DOUBLING = "stan: the parts of the channel are being doubled: publish again in a few seconds"
OTHER_PART = "stan: the key of the message belongs to another part than {}: publish to channel {}"
TOO_MANY_CLIENTS = "stan: maximum number of clients reached"
TOO_MANY_REQUESTS = "stan: too many requests, try again later"
TOO_MANY_CHANNELS = "too many channels"
TOO_MANY_SUBSCRIPTIONS = "too many subscriptions per channel"
CASE_CONFLICT = "rejecting channel "
CLIENT_REPLACED = "client has been replaced or is no longer registered"


NO_USER = "stan: no permission: NATS does not tell which user asks"


def not_permitted(what: str, channel: str) -> str:
    """Return the refusal for a client without a right; *what* is the right's own word."""
    return f"stan: no permission to {what} {go_quote(channel)}"


def no_client(client_id: str) -> str:
    """Text for a client that no rule is about."""
    return f"stan: no permission to connect as {go_quote(client_id)}"


def case_conflict(requested: str, existing: str) -> str:
    """Text for a channel whose name differs from an existing one by case only (STAN-SPEC 4.2, spelled as there)."""
    return (
        f"{CASE_CONFLICT}{go_quote(requested)} because channel {go_quote(existing)} "
        "alreay exists (different cases not allowed)"
    )


def unknown_position(channel: str, what: str) -> str:
    """Text for a durable or queue group that is not there; *what* names it."""
    return f"stan: there is no {what} in channel {go_quote(channel)}"


def ambiguous_position(channel: str, what: str, positions: list[str]) -> str:
    """Text for a name that several have."""
    return (
        f"stan: {what} in channel {go_quote(channel)} is one of several, give the number or the client: "
        + ", ".join(positions[:10])
    )


def unknown_subscription(subscription_id: int, channel: str) -> str:
    """Return the refusal for a subscription that does not exist (any longer)."""
    return f"stan: there is no subscription {subscription_id} in channel {go_quote(channel)}"


def beyond_end(channel: str, sequence: int, last: int) -> str:
    """Text for a sequence that is not there yet."""
    return f"stan: channel {go_quote(channel)} ends with sequence {last}, {sequence} is not there yet"


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
