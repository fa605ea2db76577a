"""The metrics of prometheus-nats-exporter for NATS Streaming (`-channelz`, `-serverz`), for dashboards and alerts with its names.

Made from the same two pages that the exporter asked for, with its names, labels and values. In a cluster each node reports the
channels whose groups it holds. Its counters without `_total` are gauges here: the library writes no others.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from stan_protocol.scalars import WallNanos

from stan import limits
from stan.monitor.pages import Pages

SERVER: Final = ("server_id",)
CHANNEL: Final = (*SERVER, "server_role", "channel")
SUBSCRIPTION: Final = (*CHANNEL, "client_id", "inbox", "queue_name", "is_durable", "is_offline", "durable_name")
INFO: Final = ("cluster_id", "version", "go_version", "state", "role", "start_time")
"""Labels of the information about a server, beside the server."""
_OF_SERVER: Final = {
    "bytes_in": ("in_bytes", "Incoming bytes"),
    "bytes_out": ("out_bytes", "Outgoing bytes"),
    "msgs_in": ("in_msgs", "Incoming messages"),
    "msgs_out": ("out_msgs", "Outgoing messages"),
    "channels": ("channels", "Number of channels"),
    "subscriptions": ("subscriptions", "Number of subscriptions"),
    "clients": ("clients", "Number of clients"),
}
_OF_CHANNELS: Final = {
    "bytes_total": ("bytes", "Bytes of the messages"),
    "msgs_total": ("msgs", "Messages"),
    "last_seq": ("last_seq", "Last sequence"),
}
_OF_SUBSCRIPTIONS: Final = {
    "subs_last_sent": ("last_sent", "Last message sent"),
    "subs_pending_count": ("pending_count", "Pending messages"),
    "subs_max_inflight": ("max_inflight", "Most messages in flight"),
}
"""Endings of names, each with the field of the page and the help."""


async def legacy_metrics(pages: Pages, where: str, now: WallNanos) -> list[Metric]:
    """Return the families. *where*: the address of the pages, the label `server_id`."""
    server = json.loads(await pages.serverz({}, now))
    listed = json.loads(await pages.channelsz({"subs": "1", "limit": str(limits.METRICS_CHANNELS_MAX)}, now))
    return [*_server(server, where), *_channels(listed.get("channels") or [], where, server.get("role", ""))]


def _server(page: dict[str, Any], where: str) -> Iterable[Metric]:
    for name, field in (("bytes", "total_bytes"), ("msgs", "total_msgs")):
        total = CounterMetricFamily(f"nss_server_{name}", f"Total of {name}", labels=SERVER)
        total.add_metric((where,), page[field])
        yield total
    values = {name: (page[field], text) for name, (field, text) in _OF_SERVER.items()}
    values["active"] = (page["state"] == "FT_ACTIVE", "Active server of a fault tolerance group")
    for name, (value, text) in values.items():
        gauge = GaugeMetricFamily(f"nss_server_{name}", text, labels=SERVER)
        gauge.add_metric((where,), value)
        yield gauge
    info = GaugeMetricFamily("nss_server_info", "About the server", labels=(*SERVER, *INFO))
    about = {**page, "go_version": page["go"]}
    info.add_metric((where, *(str(about.get(name, "")) for name in INFO)), 1)
    yield info


def _channels(channels: list[dict[str, Any]], where: str, role: str) -> Iterable[Metric]:
    for name, (field, text) in _OF_CHANNELS.items():
        family = GaugeMetricFamily(f"nss_chan_{name}", text, labels=CHANNEL)
        for channel in channels:
            family.add_metric((where, role, channel["name"]), channel[field])
        yield family
    for name, (field, text) in _OF_SUBSCRIPTIONS.items():
        family = GaugeMetricFamily(f"nss_chan_{name}", text, labels=SUBSCRIPTION)
        for channel in channels:
            for one in channel.get("subscriptions", ()):
                family.add_metric((where, role, channel["name"], *_of_subscription(one)), one[field])
        yield family


def _of_subscription(page: dict[str, Any]) -> tuple[str, ...]:
    """Its labels behind those of the channel; the page joins the durable name and the queue of a durable queue group."""
    durable, queue = page.get("durable_name", ""), page.get("queue_name", "")
    if page["is_durable"] and queue:
        durable, _, queue = queue.partition(":")
    flags = (str(page["is_durable"]).lower(), str(page["is_offline"]).lower())
    return (page["client_id"], page["inbox"], queue, *flags, durable)
