"""Bounds of the pages, metrics and dashboard, and of migration."""

from stan_protocol.scalars import MILLISECOND, SECOND, KiB, MiB

# --- monitoring ----------------------------------------------------------------------------------------------------
PAGE_ITEMS = 1024
"""Clients or channels of one page, unless the request gives another number (STAN-SPEC 13.4)."""
PAGE_SLICE = 1 * MILLISECOND
"""Work on a page is interrupted after this, so that the broker has its turn."""
PAGES_TIMEOUT = 30 * SECOND
"""A page of nats-server's is given up after this."""
HTTP_CONNECTIONS_MAX = 256
"""Connections to the pages, besides the streams of the dashboard; fewer where the system gives few descriptors."""
HTTP_HEAD_TIMEOUT = 10 * SECOND
"""A connection has this long for its TLS handshake, for the head of a request, for its body, and to be idle between two."""
HTTP_READER_PATIENCE = 30 * SECOND
"""A connection that accepts none of the bytes sent to it is closed after this."""
HTTP_ACCEPT_RETRY = 100 * MILLISECOND
"""Pause after a connection could not be accepted."""
HTTP_NATS_PAGES_MAX = 16
"""Connections to nats-server for its pages."""
METRICS_CHANNELS_MAX = 1000
"""With more channels than this, /metrics has series of single channels only on request."""
METRICS_CURSORS_MAX = 1000
"""The same for durables and queue groups."""

# --- tracing -------------------------------------------------------------------------------------------------------
TRACE_SHARE_MIN = 1e-9
"""Smallest share of the messages that can be traced."""
TRACE_SPANS_QUEUED_MAX = 4096
"""Spans that wait to be sent; further ones are dropped."""
TRACE_SPANS_SENT_MAX = 512
"""Spans in one request to the receiver."""
TRACE_EXPORT_INTERVAL = 1 * SECOND
"""How often waiting spans are sent."""
TRACE_EXPORT_TIMEOUT = 5 * SECOND
"""How long the receiver has to take a request; then its spans are dropped."""
TRACE_CLOSE_PATIENCE = 2 * SECOND
"""A server that stops waits this long for its last spans to be sent."""
TRACED_MESSAGES_MAX = 4096
"""Traced messages that a node keeps in mind; of older ones deliveries may begin a trace of their own, or none."""

# --- migration -----------------------------------------------------------------------------------------------------
MIGRATION_WATCH = 1 * SECOND
"""A store that is migrated is watched for this long at least, in case a process still writes to it."""

# --- logins --------------------------------------------------------------------------------------------------------
LOGIN_USERS_MAX = 1000
"""Users in the block `dashboard`."""
LOGIN_NAME_CHARS_MAX = 256
"""Of a user's name, also as a proxy sends it."""
LOGIN_SECRET_CHARS_MAX = 1024
"""Of a password or token that somebody sends."""
LOGIN_TOKEN_CHARS_MIN = 16
"""A token is the whole login, so it must not be guessed."""
LOGIN_BYTES_MAX = 8 * KiB
"""Of a request to log in."""
LOGIN_CHECKS_MAX = 4
"""Passwords that NATS checks at once."""
LOGIN_WINDOW = 60 * SECOND
"""Failed logins are counted for this long."""
LOGIN_FAILURES_MAX = 10
"""Failed logins from one address within LOGIN_WINDOW; further ones are refused unread."""
LOGIN_FAILURES_ALL_MAX = 200
"""Failed logins from all addresses together within LOGIN_WINDOW; further logins by password are refused unread."""
SESSIONS_MAX = 512
"""Sessions of browsers; a further one ends the oldest."""
SESSIONS_OF_USER_MAX = 16
"""Sessions of one user; a further one ends the oldest of that user."""
SESSION_IDLE = 3600 * SECOND
"""A session that nobody used for this long has ended."""

# --- dashboard -----------------------------------------------------------------------------------------------------
DASHBOARD_STREAMS_MAX = 16
"""Browsers that get news by a stream; further ones poll."""
DASHBOARD_TICK = 2 * SECOND
"""Interval between two polls of the cluster while a browser watches, and between two news of a stream."""
DASHBOARD_IDLE_TICK = 10 * SECOND
"""Interval between two polls of the nodes while no browser watches, so that the start of a problem is known."""
DASHBOARD_LINGER = 60 * SECOND
"""After its last request a browser counts as watching for this long."""
DASHBOARD_COST_RATIO = 100
"""An answer is cached for this many times the CPU time that it cost the asking node: polling takes 1 % of the time at most."""
DASHBOARD_WAIT = 300 * MILLISECOND
"""A page waits this long for a new answer if there is an older one."""
DASHBOARD_PATIENCE = 2 * SECOND
"""Requests of the pages are repeated for this long; the answers that came by then are shown."""
DASHBOARD_AGE_MAX = 60 * SECOND
"""An answer is cached no longer than this, whatever its cost."""
DASHBOARD_WHOLE_WAIT = 600 * MILLISECOND
"""The overview waits this long for its parts; parts that are not there by then come with the next poll."""
DASHBOARD_ROWS_MAX = 500
"""Rows of a table in one answer."""
DASHBOARD_LISTED_MAX = 200_000
"""Channels, subscriptions or clients that are listed; further ones are not shown, and the pages say so."""
DASHBOARD_MESSAGES_MAX = 200
"""Messages in one answer."""
DASHBOARD_PREVIEW_BYTES = 8 * KiB
"""Bytes of a message that are shown until a browser requests all of it."""
DASHBOARD_HEADERS_MAX = 20
"""Of a message shown in the list of messages; the number of further ones is shown."""
DASHBOARD_TEXT_CHARS = 256
"""Of a key or a header shown in the list of messages, in characters."""
DASHBOARD_FETCHES_MAX = 16
"""Requests for messages made to answer one of the pages."""
DASHBOARD_SAMPLES_MAX = 150
"""Points of a chart."""
DASHBOARD_LAG_TRENDS_MAX = 4000
"""Durables and queue groups whose lag is remembered for charts."""
DASHBOARD_RATED_CHANNELS_MAX = 64
"""Channels whose rate is remembered for charts."""
DASHBOARD_DECODED_BYTES_MAX = 64 * KiB
"""Data of a message that is decoded by its schema; larger data is shown as it is."""
DASHBOARD_DECODED_CHARS_MAX = 16 * KiB
"""Characters of decoded data that are shown."""
DASHBOARD_SCHEMAS_AGE = 10 * SECOND
"""The schema of a channel is requested again after this."""
DASHBOARD_SCHEMA_ANSWERS_MAX = 64
"""Answers that the registered schemas may need."""
DASHBOARD_SEARCHES_MAX = 4
"""Searches that run at once on a node."""
DASHBOARD_SEARCH_CHARS_MAX = 1024
"""Of each text that is searched for."""
DASHBOARD_SEARCH_MESSAGES_MAX = 500_000
"""Messages that a search looks at."""
DASHBOARD_SEARCH_BYTES_MAX = 512 * MiB
"""Bytes of data that a search looks at."""
DASHBOARD_SEARCH_TIME = 30 * SECOND
"""A search ends after this."""
DASHBOARD_SEARCH_FETCH_BYTES = 512 * KiB
"""Bytes that a search requests at once: it tells its progress after each answer."""
DASHBOARD_LAG_IDLE_TICK = 300 * SECOND
"""Interval between two polls of the subscriptions while no browser watches, for the history of their lag."""
DASHBOARD_CHART_POINTS_MAX = 360
"""Points of a chart of the history."""
DASHBOARD_OVERVIEW_SPAN = 600 * SECOND
"""The charts of the overview show this long."""
HISTORY_SAVE_INTERVAL = 60 * SECOND
"""The history of the dashboard is written at this interval; a crash costs as much of it."""
DASHBOARD_NODE_NEWS_MAX = 50
"""Of nodes that stop to answer, and answer again, that are remembered."""
DASHBOARD_RED_AFTER = 5 * SECOND
"""A problem that is younger is shown as a warning, whatever it is: much of it passes by itself."""
LAGS_SAVE_INTERVAL = 300 * SECOND
"""The same for the lag of single durables and queue groups."""
DASHBOARD_VIEWERS_MAX = 64
"""Viewers whose part of the tables is remembered."""
DASHBOARD_EVENTS_MAX = 200
"""Newest events that are remembered."""
DASHBOARD_ACTION_BYTES_MAX = 1 * MiB
"""Largest request to change something."""
DASHBOARD_NODES_WAIT = 2 * SECOND
"""Wait for the answers of nodes that may be gone."""
DASHBOARD_FAILURES = 3
"""A node or leader that failed to answer this often in a row is reported as missing."""
DASHBOARD_GRACE = 8 * SECOND
"""An answer that is overdue by more than this is no longer shown as the present state."""
