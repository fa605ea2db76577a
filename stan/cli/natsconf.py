"""Looks into a configuration file of NATS for settings of the streaming server; pure.

Promises: finds top-level keys of STAN-SPEC 12.3 whatever the file's comments, strings and blocks look like, so that no
such setting is silently ignored. Knows only as much of the language as that needs: it checks nothing and reads no
value. Keys that NATS has as well (`tls`, `cluster`) are NATS's.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<comment>(?:\#|//)[^\n]*)
      | (?P<block>\(\s*\n.*?\n\s*\))
      | (?P<string>"(?:\\.|[^"\\])*"|'[^']*')
      | (?P<open>[{\[])
      | (?P<close>[}\]])
      | (?P<end>[\n;,])
      | (?P<assign>[:=])
      | (?P<word>(?:(?!//)[^\s{}\[\]#;,:="'])(?:(?!//)[^\s{}\[\];,:=])*)
    """,
    re.VERBOSE | re.DOTALL,
)

_KEYS = """
streaming id cid cluster_id discover_prefix st store_type store storetype dir datastore stan_debug sv stan_trace
ns nats_server nats_server_url credentials secure limits store_limits storelimits file file_options sql sql_options
hbi hb_interval server_to_client_hb_interval hbt hb_timeout server_to_client_hb_timeout hbf hb_fail_count
server_to_client_hb_fail_count ft_group ft_group_name partitioning syslog_name encrypt encryption_cipher
encryption_key nkey_seed_file replace_durable replace_durables replace_duplicate_durable replace_duplicate_durables
"""
STREAMING_KEYS = frozenset(_KEYS.split())


def streaming_keys(text: str) -> list[str]:
    """Top-level keys of *text* that set something of the streaming server, in order, each once."""
    return list(dict.fromkeys(key for key in top_level_keys(text) if key.lower() in STREAMING_KEYS))


def top_level_keys(text: str) -> Iterator[str]:
    """Keys outside of every block: the first word or string of each top-level entry."""
    depth = 0
    at_start = True
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "open":
                depth += 1
                at_start = False
            case "close":
                depth = max(depth - 1, 0)
                at_start = depth == 0
            case "end":
                at_start = True
            case "word" | "string" | "block":
                if at_start and depth == 0:
                    yield token.group().strip("\"'")
                at_start = False
