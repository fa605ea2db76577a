"""Bounds of the pages, metrics and dashboard, and of migration."""

from stan.types import MILLISECOND, SECOND, KiB, MiB

# --- monitoring ----------------------------------------------------------------------------------------------------
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

# --- migration -----------------------------------------------------------------------------------------------------
MIGRATION_WATCH = 1 * SECOND
"""What is moved is looked at for this long at least, whether somebody still writes to it."""

# --- dashboard -----------------------------------------------------------------------------------------------------
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
DASHBOARD_LAG_TRENDS_MAX = 4000
"""Durables and queue groups whose lag is remembered for charts."""
DASHBOARD_RATED_CHANNELS_MAX = 64
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
