"""The metrics of prometheus-nats-exporter for NATS Streaming (`-channelz`, `-serverz`), for dashboards and alerts with its names.

Made from the same two pages that the exporter asked for. In a cluster each node reports the channels whose groups it holds.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from stan_protocol.scalars import WallNanos

from stan import limits
from stan.monitor.pages import Pages

SERVER: Final = ("server",)
CHANNEL: Final = (*SERVER, "channel")
SUBSCRIPTION: Final = (*CHANNEL, "client_id", "inbox", "queue_name", "is_durable", "is_offline")
INFO: Final = ("cluster_id", "server_id", "version", "go_version", "state", "role", "start_time")
"""Labels of the information about a server, beside the server."""


async def legacy_metrics(pages: Pages, where: str, now: WallNanos) -> list[Metric]:
    """Return the families. *where*: the address of the pages, the label `server`."""
    server = json.loads(await pages.serverz({}, now))
    listed = json.loads(await pages.channelsz({"subs": "1", "limit": str(limits.METRICS_CHANNELS_MAX)}, now))
    return [*_server(server, where), *_channels(listed.get("channels") or [], where)]


def _server(page: dict[str, Any], where: str) -> Iterable[Metric]:
    size = CounterMetricFamily("nss_server_bytes", "Total of bytes", labels=SERVER)
    size.add_metric((where,), page["total_bytes"])
    messages = CounterMetricFamily("nss_server_msgs", "Total of messages", labels=SERVER)
    messages.add_metric((where,), page["total_msgs"])
    yield from (size, messages)
    for name in ("channels", "subscriptions", "clients"):
        gauge = GaugeMetricFamily(f"nss_server_{name}", f"Number of {name}", labels=SERVER)
        gauge.add_metric((where,), page[name])
        yield gauge
    info = GaugeMetricFamily("nss_server_info", "About the server", labels=(*SERVER, *INFO))
    about = {**page, "go_version": page["go"]}
    info.add_metric((where, *(str(about.get(name, "")) for name in INFO)), 1)
    yield info


def _channels(channels: list[dict[str, Any]], where: str) -> Iterable[Metric]:
    size = CounterMetricFamily("nss_chan_bytes", "Total of bytes", labels=CHANNEL)
    messages = CounterMetricFamily("nss_chan_msgs", "Total of messages", labels=CHANNEL)
    last = GaugeMetricFamily("nss_chan_last_seq", "Last sequence", labels=CHANNEL)
    of_subscriptions = {
        "last_sent": GaugeMetricFamily("nss_chan_subs_last_sent", "Last message sent", labels=SUBSCRIPTION),
        "pending_count": GaugeMetricFamily("nss_chan_subs_pending_count", "Pending messages", labels=SUBSCRIPTION),
        "max_inflight": GaugeMetricFamily("nss_chan_subs_max_inflight", "Most messages in flight", labels=SUBSCRIPTION),
    }
    for channel in channels:
        labels = (where, channel["name"])
        size.add_metric(labels, channel["bytes"])
        messages.add_metric(labels, channel["msgs"])
        last.add_metric(labels, channel["last_seq"])
        for one in channel.get("subscriptions", ()):
            flags = (str(one["is_durable"]).lower(), str(one["is_offline"]).lower())
            mine = (*labels, one["client_id"], one["inbox"], one.get("queue_name", ""), *flags)
            for name, family in of_subscriptions.items():
                family.add_metric(mine, one[name])
    return (size, messages, last, *of_subscriptions.values())
