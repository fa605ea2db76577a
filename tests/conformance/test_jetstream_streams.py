"""Streams of JetStream compared with NATS's own server: the same questions, the same answers but for times, names and sizes.

What this broker does not do, or does in another way, is not asked here: see docs/jetstream.md and the tests of the core.
"""

import asyncio
import json
import time
from base64 import b64decode
from collections.abc import Awaitable, Iterator

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, DeliverPolicy, RetentionPolicy
from nats.js.client import JetStreamContext
from nats.js.kv import KeyValue
from stan_protocol.scalars import SECOND
from stan_protocol.units import parse_rfc3339, rfc3339

from tests.conformance.clients import jetstream, story_of
from tests.conformance.wire import unique
from tests.kit.server import NatsServer, StanServer

OF_ITS_OWN = {
    "created",
    "ts",
    "time",
    "first_ts",
    "last_ts",
    "bytes",
    "cluster",
    "stan",
    "api",
    "metadata",
    "num_subjects",
}
"""Fields that tell of this run, this store or this server. Numbers of subjects are told by an index that is made when it is
needed."""
ANSWERS_S = 10
IN_AN_HOUR = rfc3339(time.time_ns() + 3600 * SECOND)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("jetstream")
    with NatsServer(directory, "-js", "-sd", str(directory / "js")) as server:
        yield server.url


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with StanServer(tmp_path_factory.mktemp("stan"), "--jetstream_api", "-mm", "0", "-mb", "0") as server:
        yield server.url


class ApiClient:
    """A client that asks one of the two servers."""

    def __init__(self) -> None:
        self.client = Client()

    async def api(self, request: str, document: object = None) -> object:
        payload = (
            document if isinstance(document, bytes) else b"" if document is None else json.dumps(document).encode()
        )
        answer = await self.client.request(f"$JS.API.{request}", payload, timeout=ANSWERS_S)
        return self.shown(answer)

    async def publish(self, subject: str, data: bytes = b"", **fields: str) -> object:
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        return self.shown(await self.client.request(subject, data, timeout=ANSWERS_S, headers=named or None))

    async def batched(self, subject: str) -> object:
        """The answer to a publish that begins a fast batch."""
        inbox = self.client.new_inbox()
        answers = await self.client.subscribe(f"{inbox}.>")
        await self.client.publish(subject, b"x", reply=f"{inbox}.id.10.ok.1.0.$FI")
        answer = await answers.next_msg(timeout=ANSWERS_S)
        await answers.unsubscribe()
        return self.shown(answer)

    async def many(self, stream: str, document: object) -> list[object]:
        """The answers to a request for many messages, up to the one with a status."""
        inbox = self.client.new_inbox()
        answers = await self.client.subscribe(inbox)
        await self.client.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(document).encode(), reply=inbox)
        found, ended = list[object](), False
        while not ended:
            answer = await answers.next_msg(timeout=ANSWERS_S)
            ended = "Status" in (answer.headers or {})
            found.append(self.shown(answer))
        await answers.unsubscribe()
        return found

    @staticmethod
    def shown(answer: object) -> object:
        """What is compared of an answer."""
        data, found = answer.data, dict(answer.headers or {})
        found.pop("Nats-Time-Stamp", None)
        return (str(sorted(found.items())), plain(json.loads(data)) if data[:1] == b"{" else data)


def plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if key not in OF_ITS_OWN}
    return [plain(one) for one in value] if isinstance(value, list) else value


async def of_streams(ask: ApiClient, name: str) -> list[object]:
    """Streams are made, changed, listed, deleted."""
    whole = {"name": name, "subjects": [f"{name}.a"]}
    several = {"name": f"{name}2", "subjects": [f"{name}.b.>", f"{name}.c"]}
    return [
        await ask.api(f"STREAM.CREATE.{name}", whole),
        await ask.api(f"STREAM.CREATE.{name}", whole),
        await ask.api(f"STREAM.CREATE.{name}", whole | {"max_age": 10**9}),
        await ask.api(f"STREAM.CREATE.{name}", whole | {"subjects": [f"{name}.x"]}),
        await ask.api(f"STREAM.CREATE.{name}", b""),
        await ask.api(f"STREAM.CREATE.{name}2", whole),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"subjects": [f"{name}.*"]}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"num_replicas": 3}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"num_replicas": 7}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"subjects": [">"]}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"subjects": ["x..y"]}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"subjects": ["x.y", "x.*"]}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"max_age": 5}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"max_age": -1}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"duplicate_window": -1}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"max_age": 10**9, "duplicate_window": 2 * 10**9}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"sealed": True}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"description": "d" * 5000}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"allow_rollup_hdrs": True, "deny_purge": True}),
        await ask.api(f"STREAM.CREATE.{name}2", several | {"max_msg_size": 9, "max_age": 10**10, "description": "d"}),
        await ask.api("STREAM.NAMES", {"subject": f"{name}.b.x"}),
        await ask.api("STREAM.NAMES", {"subject": f"{name}.>"}),
        await ask.api("STREAM.LIST", {"subject": f"{name}.>"}),
        await ask.api("STREAM.NAMES", {"subject": f"{name}.>", "offset": 1}),
        await ask.api(f"STREAM.UPDATE.{name}2", several | {"allow_direct": True, "max_msgs": 7}),
        await ask.api(f"STREAM.UPDATE.{name}3", several | {"name": f"{name}3", "subjects": ["n"]}),
        await ask.api(f"STREAM.INFO.{name}2"),
        await ask.api(f"STREAM.INFO.{name}3"),
        await ask.api(f"STREAM.LEADER.STEPDOWN.{name}"),
        await ask.api(f"STREAM.DELETE.{name}"),
        await ask.api(f"STREAM.DELETE.{name}"),
        await ask.api(f"STREAM.CREATE.{name}", {"name": name}),
    ]


async def of_publishes(ask: ApiClient, name: str) -> list[object]:
    """Messages are published, with what their headers expect."""
    await ask.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "max_msg_size": 500})
    one, two = f"{name}.one", f"{name}.two"
    return [
        await ask.publish(one, b"1", Nats_Msg_Id="first"),
        await ask.publish(two, b"2"),
        await ask.publish(one, b"3", Nats_Expected_Stream="other"),
        await ask.publish(one, b"3", Nats_Expected_Stream=name),
        await ask.publish(one, b"4", Nats_Expected_Last_Sequence="2"),
        await ask.publish(one, b"4", Nats_Expected_Last_Sequence="3"),
        await ask.publish(one, b"5", Nats_Expected_Last_Msg_Id="no"),
        await ask.publish(one, b"5", Nats_Msg_Id="second"),
        await ask.publish(one, b"6", Nats_Expected_Last_Msg_Id="second"),
        await ask.publish(one, b"7", Nats_Expected_Last_Subject_Sequence="2"),
        await ask.publish(one, b"7", Nats_Expected_Last_Subject_Sequence="6"),
        await ask.publish(one, b"8", Nats_Expected_Last_Subject_Sequence="2", **OTHER_SUBJECT(two)),
        await ask.publish(f"{name}.new", b"9", Nats_Expected_Last_Subject_Sequence="0"),
        await ask.publish(f"{name}.new", b"9", Nats_Expected_Last_Subject_Sequence="0"),
        await ask.publish(one, b"x", Nats_Rollup="sub"),
        await ask.publish(one, b"x", Nats_TTL="1s"),
        await ask.publish(one, b"x" * 501),
        await ask.publish(one, b"x", Nats_Batch_Id="b"),
        await ask.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": one}),
        await ask.api(f"STREAM.INFO.{name}"),
    ]


def OTHER_SUBJECT(subject: str) -> dict[str, str]:  # noqa: N802 - a header's name
    return {"Nats_Expected_Last_Subject_Sequence_Subject": subject}


async def of_messages(ask: ApiClient, name: str) -> list[object]:
    """Messages are got, deleted, purged."""
    await ask.api(
        f"STREAM.CREATE.{name}",
        {"name": name, "subjects": [f"{name}.*"], "allow_direct": True, "allow_rollup_hdrs": True},
    )
    for number in range(1, 9):
        await ask.publish(f"{name}.{number % 3}", b"%d" % number, **({"a": "b"} if number == 4 else {}))
    got = [
        await ask.api(f"STREAM.MSG.GET.{name}", asked)
        for asked in (
            {"seq": 4},
            {"seq": 99},
            {},
            {"last_by_subj": f"{name}.1"},
            {"last_by_subj": f"{name}.>"},
            {"last_by_subj": f"{name}.9"},
            {"last_by_subj": f"{name}."},
            {"last_by_subj": f"{name}.a b"},
            {"seq": 3, "next_by_subj": f"{name}.2"},
            {"seq": 3, "next_by_subj": f"{name}.*"},
            {"next_by_subj": f"{name}.0"},
            {"seq": 9, "next_by_subj": f"{name}.*"},
        )
    ]
    got += [
        await ask.api(f"DIRECT.GET.{name}", asked)
        for asked in ({"seq": 4}, {"seq": 99}, {}, {"last_by_subj": f"{name}.1"}, {"last_by_subj": f"{name}.9"}, None)
    ]
    got.append(await ask.api(f"DIRECT.GET.{name}.{name}.2"))
    got.append(await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": f"{name}.1"}))
    for request, asked in (
        ("MSG.DELETE", {"seq": 5}),
        ("MSG.DELETE", {"seq": 5}),
        ("MSG.DELETE", {}),
        ("MSG.GET", {"seq": 5}),
        ("MSG.GET", {"last_by_subj": f"{name}.2"}),
        ("PURGE", {"filter": f"{name}.1", "keep": 1}),
        ("PURGE", {"seq": 3}),
        ("PURGE", {"filter": f"{name}.0", "seq": 6}),
        ("PURGE", {"keep": 2}),
        ("PURGE", {"keep": 2, "seq": 2}),
    ):
        got += [
            await ask.api(f"STREAM.{request}.{name}", asked),
            await ask.api(f"STREAM.INFO.{name}", {"deleted_details": True}),
        ]
    for number in range(6):
        await ask.publish(f"{name}.{number % 2}", b"%d" % number)
    got += [
        await ask.publish(f"{name}.1", b"rolled up", Nats_Rollup="sub"),
        await ask.api(f"STREAM.MSG.GET.{name}", {"next_by_subj": f"{name}.1"}),
        await ask.api(f"STREAM.PURGE.{name}", {"filter": f"{name}.0", "keep": 1}),
        await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"}),
    ]
    await ask.publish(f"{name}.1", b"all", Nats_Rollup="all")
    got += [
        await ask.api(f"STREAM.INFO.{name}"),
        await ask.api(f"STREAM.PURGE.{name}"),
        await ask.api(f"STREAM.INFO.{name}"),
    ]
    return got


async def of_batches(ask: ApiClient, name: str) -> list[object]:
    """Many messages are got by one request."""
    await ask.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], "allow_direct": True})
    for number in range(12):
        await ask.publish(f"{name}.{number % 3}", b"%d" % number, a=str(number))
    await ask.api(f"STREAM.MSG.DELETE.{name}", {"seq": 7})
    return [
        *[
            await ask.many(name, asked)
            for asked in (
                {"seq": 1, "batch": 5},
                {"seq": 7, "batch": 2},
                {"seq": 9, "batch": 50},
                {"seq": 13, "batch": 5},
                {"batch": 2, "next_by_subj": f"{name}.1"},
                {"seq": 6, "batch": 9, "next_by_subj": f"{name}.0"},
                {"batch": 9, "next_by_subj": f"{name}.*"},
                {"batch": 9, "next_by_subj": f"{name}.9"},
                {"seq": 1, "batch": 9, "max_bytes": 1},
                {"batch": 2},
                {"batch": 2, "last_by_subj": f"{name}.1"},
                {"seq": 1, "start_time": "2020-01-01T00:00:00Z"},
                {"start_time": "2020-01-01T00:00:00Z", "batch": 2},
                {"start_time": "2120-01-01T00:00:00Z", "batch": 2},
                {"multi_last": [f"{name}.1"]},
                {"multi_last": [f"{name}.>"]},
                {"multi_last": [f"{name}.0", f"{name}.2", f"{name}.9"]},
                {"multi_last": [f"{name}.>"], "batch": 2},
                {"multi_last": [f"{name}.>"], "max_bytes": 1},
                {"multi_last": [f"{name}.>"], "seq": 11},
                {"multi_last": [f"{name}.>"], "up_to_seq": 7},
                {"multi_last": [f"{name}.9"]},
                {"multi_last": [f"{name}.>"], "up_to_time": "2020-01-01T00:00:00Z"},
                {"multi_last": [f"{name}.>"], "up_to_time": "2120-01-01T00:00:00Z"},
                {"multi_last": [f"{name}.1"], "next_by_subj": f"{name}.1"},
            )
        ],
        await ask.api(f"DIRECT.GET.{name}", {"start_time": "2020-01-01T00:00:00Z"}),
        await ask.api(f"STREAM.MSG.GET.{name}", {"seq": 0}),
    ]


async def of_other_subjects(ask: ApiClient, name: str) -> list[object]:
    """A stream gets other subjects, one to begin with, and one in the end."""
    whole = {"name": name, "subjects": [f"{name}.a"], "allow_direct": True}
    got = [await ask.api(f"STREAM.CREATE.{name}", whole), await ask.publish(f"{name}.a", b"1")]
    for subjects in ([f"{name}.a", f"{name}.b"], [f"{name}.c.*"], [f"{name}.a"]):
        got += [
            await ask.api(f"STREAM.UPDATE.{name}", whole | {"subjects": subjects}),
            await ask.publish(subjects[-1].replace("*", "x"), b"more"),
            await ask.api(f"STREAM.CREATE.{name}", whole | {"subjects": subjects}),
            *[await ask.api(f"DIRECT.GET.{name}.{name}.{last}") for last in ("a", "b", "c.x")],
            *[await ask.api(f"STREAM.MSG.GET.{name}", {"seq": number}) for number in range(1, 5)],
        ]
    return [*got, await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})]


async def of_promises(ask: ApiClient, name: str) -> list[object]:
    """Pedantic clients are refused what would be changed, and updates what a stream has promised; consumers are reset."""
    whole = {"name": name, "subjects": [f"{name}.*"]}
    kept = whole | {"deny_delete": True, "deny_purge": True, "allow_msg_ttl": True, "storage": "memory"}
    got = [
        await ask.api(f"STREAM.CREATE.{name}", whole | {"pedantic": True, "max_msgs": -2}),
        await ask.api(f"STREAM.CREATE.{name}", whole | {"pedantic": True, "max_age": 10**9}),
        await ask.api(f"STREAM.CREATE.{name}", kept),
        *[
            await ask.api(f"STREAM.UPDATE.{name}", kept | {option: value})
            for option, value in (
                ("deny_delete", False),
                ("deny_purge", False),
                ("allow_msg_ttl", False),
                ("storage", "file"),
                ("retention", "workqueue"),
            )
        ],
        await ask.api(f"STREAM.UPDATE.{name}", kept | {"consumer_limits": {"max_ack_pending": 10}}),
    ]
    for number in range(5):
        await ask.publish(f"{name}.a", b"%d" % number)
    got.append(await ask.batched(f"{name}.a"))
    for policy in ("all", "last", "by_start_sequence"):
        start = {"opt_start_seq": 3} if policy == "by_start_sequence" else {}
        config = {"name": policy, "deliver_policy": policy, "ack_policy": "explicit", "max_ack_pending": 5} | start
        asked = {"stream_name": name, "config": config}
        got += [
            await ask.api(f"CONSUMER.CREATE.{name}.{policy}", asked | {"config": config | {"max_ack_pending": 11}}),
            await ask.api(
                f"CONSUMER.CREATE.{name}.{policy}",
                asked | {"pedantic": True, "config": config | {"max_ack_pending": 0}},
            ),
            await ask.api(f"CONSUMER.CREATE.{name}.{policy}", asked | {"pedantic": True}),
            *[await ask.api(f"CONSUMER.RESET.{name}.{policy}", {"seq": number}) for number in (2, 4, 0)],
        ]
    return got


async def of_a_bucket(ask: ApiClient, name: str) -> list[object]:
    """A bucket as clients make it, with one revision of each key."""
    bucket = {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "max_msgs_per_subject": 1,
        "max_bytes": -1,
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "duplicate_window": 120 * 10**9,
    }
    key = f"$KV.{name}.key"
    return [
        await ask.api(f"STREAM.CREATE.KV_{name}", bucket),
        await ask.publish(key, b"1", Nats_Expected_Last_Subject_Sequence="0"),
        await ask.publish(key, b"1", Nats_Expected_Last_Subject_Sequence="0"),
        await ask.publish(key, b"2", Nats_Expected_Last_Subject_Sequence="1"),
        await ask.publish(f"$KV.{name}.other", b"3"),
        await ask.api(f"DIRECT.GET.KV_{name}.{key}"),
        await ask.api(f"STREAM.MSG.GET.KV_{name}", {"seq": 1}),
        await ask.api(f"STREAM.INFO.KV_{name}"),
        await ask.publish(key, b"", KV_Operation="DEL"),
        await ask.api(f"DIRECT.GET.KV_{name}.{key}"),
        await ask.publish(key, b"", KV_Operation="PURGE", Nats_Rollup="sub"),
        await ask.api(f"STREAM.MSG.GET.KV_{name}", {"last_by_subj": key}),
        await ask.api(f"STREAM.MSG.DELETE.KV_{name}", {"seq": 3}),
        await ask.api(f"STREAM.INFO.KV_{name}", {"subjects_filter": ">"}),
        await ask.api(f"STREAM.PURGE.KV_{name}", {"filter": key, "keep": 0}),
        await ask.api(f"STREAM.INFO.KV_{name}"),
    ]


async def of_a_history(ask: ApiClient, name: str) -> list[object]:
    """A bucket with three revisions of each key."""
    bucket = {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "max_msgs_per_subject": 3,
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }
    keys = [f"$KV.{name}.{number}" for number in range(3)]
    all_of_it = {"subjects_filter": ">"}
    told = [await ask.api(f"STREAM.CREATE.KV_{name}", bucket)]
    told += [await ask.publish(keys[number % 3 and number % 2], b"%d" % number) for number in range(1, 14)]
    told += [await ask.api(f"STREAM.MSG.GET.KV_{name}", {"seq": number}) for number in range(1, 14)]
    told += [
        await ask.api(f"STREAM.INFO.KV_{name}", all_of_it),
        await ask.api(f"STREAM.MSG.GET.KV_{name}", {"next_by_subj": keys[0]}),
        await ask.api(f"STREAM.MSG.GET.KV_{name}", {"seq": 5, "next_by_subj": ">"}),
        await ask.publish(keys[0], b"x", Nats_Expected_Last_Subject_Sequence="9"),
        await ask.publish(keys[0], b"x", Nats_Expected_Last_Subject_Sequence="12"),
        await ask.publish(keys[0], b"", KV_Operation="DEL"),
        await ask.api(f"STREAM.INFO.KV_{name}", all_of_it),
        await ask.publish(keys[1], b"", KV_Operation="PURGE", Nats_Rollup="sub"),
        await ask.publish(keys[1], b"y", Nats_Expected_Last_Subject_Sequence="16"),
        await ask.api(f"STREAM.INFO.KV_{name}", all_of_it),
        await ask.api(f"DIRECT.GET.KV_{name}.{keys[1]}"),
        await ask.api(f"STREAM.PURGE.KV_{name}", {"filter": keys[0], "keep": 1}),
        await ask.api(f"STREAM.INFO.KV_{name}", all_of_it),
        await ask.api(f"STREAM.UPDATE.KV_{name}", bucket | {"max_msgs_per_subject": 1}),
        await ask.api(f"STREAM.INFO.KV_{name}", all_of_it),
        await ask.api(f"STREAM.PURGE.KV_{name}"),
        await ask.api(f"STREAM.INFO.KV_{name}"),
        await ask.publish(keys[1], b"z"),
        await ask.api(f"STREAM.INFO.KV_{name}", all_of_it),
    ]
    return told


async def of_markers(ask: ApiClient, name: str) -> list[object]:
    """Buckets in which the end of a key can be seen."""
    config = {
        "name": name,
        "subjects": [f"{name}.*"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_direct": True,
    }
    marked = config | {"subject_delete_marker_ttl": 60 * 10**9, "max_age": 3_600 * 10**9}
    other = {"name": f"{name}2", "subjects": [f"{name}2.*"], "subject_delete_marker_ttl": 20 * 10**9}
    told = [
        await ask.api(f"STREAM.CREATE.{name}", config | {"subject_delete_marker_ttl": 10**8}),
        await ask.api(f"STREAM.CREATE.{name}", config | {"subject_delete_marker_ttl": -1}),
        await ask.api(f"STREAM.CREATE.{name}", marked),
        await ask.api(f"STREAM.CREATE.{name}2", other | {"deny_purge": True}),
        await ask.publish(f"{name}2.a", b"long", Nats_TTL="5s"),
        await ask.api(f"STREAM.MSG.GET.{name}2", {"seq": 1}),
        await ask.publish(f"{name}.stays", b"1"),
        await ask.publish(f"{name}.ends", b"2", Nats_TTL="1s"),
        await ask.publish(f"{name}.purged", b"", Nats_TTL="1s", KV_Operation="PURGE", Nats_Rollup="sub"),
    ]
    for key in ("ends", "purged"):
        while b"Nats-Marker-Reason" not in await headers_of(ask, name, key):
            if key == "purged" and not await headers_of(ask, name, key):
                break
            await asyncio.sleep(0.1)
    told += [
        await ask.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": f"{name}.ends"}),
        await ask.api(f"DIRECT.GET.{name}.{name}.ends"),
        await ask.api(f"STREAM.INFO.{name}"),
        await ask.publish(f"{name}.ends", b"again", Nats_Expected_Last_Subject_Sequence="4"),
        await ask.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": f"{name}.ends"}),
    ]
    return told


async def headers_of(ask: ApiClient, name: str, key: str) -> bytes:
    """The headers of a key's newest message; b"": there is none."""
    answer = await ask.client.request(
        f"$JS.API.STREAM.MSG.GET.{name}", json.dumps({"last_by_subj": f"{name}.{key}"}).encode(), timeout=ANSWERS_S
    )
    return b64decode(json.loads(answer.data).get("message", {}).get("hdrs", ""))


async def of_a_seal(ask: ApiClient, name: str) -> list[object]:
    """A stream that is sealed, and promises that an update cannot take back."""
    config = {"name": name, "subjects": [f"{name}.*"], "max_age": 3_600 * 10**9, "allow_rollup_hdrs": True}
    subject, promised = f"{name}.one", {"deny_delete": True, "allow_msg_ttl": True}
    return [
        await ask.api(f"STREAM.CREATE.{name}", config),
        await ask.publish(subject, b"1"),
        await ask.api(f"STREAM.UPDATE.{name}", config | promised),
        await ask.api(f"STREAM.UPDATE.{name}", config | promised | {"deny_delete": False}),
        await ask.api(f"STREAM.UPDATE.{name}", config | promised | {"allow_msg_ttl": False}),
        await ask.api(f"STREAM.UPDATE.{name}", config | promised | {"sealed": True}),
        await ask.publish(subject, b"2"),
        await ask.publish(subject, b"2", Nats_Expected_Stream="other"),
        await ask.api(f"STREAM.MSG.DELETE.{name}", {"seq": 1}),
        await ask.api(f"STREAM.PURGE.{name}"),
        await ask.api(f"STREAM.UPDATE.{name}", config | promised),
        await ask.api(f"STREAM.INFO.{name}"),
        await ask.api(f"STREAM.MSG.GET.{name}", {"seq": 1}),
        await ask.api(f"STREAM.DELETE.{name}"),
    ]


async def of_full_subjects(ask: ApiClient, name: str) -> list[object]:
    """A stream whose subjects take no more messages than two."""
    config = {"name": name, "subjects": [f"{name}.*"], "allow_rollup_hdrs": True, "discard_new_per_subject": True}
    full = config | {"discard": "new", "max_msgs_per_subject": 2}
    one, two = f"{name}.one", f"{name}.two"
    return [
        await ask.api(f"STREAM.CREATE.{name}", config),
        await ask.api(f"STREAM.CREATE.{name}", config | {"discard": "new"}),
        await ask.api(f"STREAM.CREATE.{name}", config | {"max_msgs_per_subject": 2}),
        await ask.api(f"STREAM.CREATE.{name}", full),
        *[await ask.publish(one, b"x") for _ in range(3)],
        await ask.publish(two, b"x", Nats_Msg_Id="id"),
        await ask.publish(two, b"x"),
        await ask.publish(two, b"x", Nats_Msg_Id="id"),
        await ask.publish(two, b"x", Nats_Msg_Id="other"),
        await ask.publish(one, b"x", Nats_Expected_Last_Subject_Sequence="9"),
        await ask.api(f"STREAM.MSG.DELETE.{name}", {"seq": 2}),
        await ask.publish(one, b"x"),
        await ask.publish(one, b"x"),
        await ask.publish(one, b"x", Nats_Rollup="sub"),
        await ask.publish(one, b"x"),
        await ask.publish(one, b"x"),
        await ask.api(f"STREAM.PURGE.{name}", {"filter": two}),
        await ask.publish(two, b"x"),
        await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"}),
        await ask.api(f"STREAM.UPDATE.{name}", full | {"max_msgs_per_subject": 3}),
        *[await ask.publish(one, b"x") for _ in range(2)],
        await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"}),
    ]


async def of_few_messages(ask: ApiClient, name: str) -> list[object]:
    """A stream of one subject, of which the newest two messages stay."""
    config = {"name": name, "subjects": [f"{name}.a"], "max_msgs_per_subject": 2}
    full = {"name": f"{name}2", "subjects": [f"{name}.b"], "max_msgs_per_subject": 2, "discard": "new"}
    return [
        await ask.api(f"STREAM.CREATE.{name}", config),
        *[await ask.publish(f"{name}.a", b"%d" % number) for number in range(5)],
        *[await ask.api(f"STREAM.MSG.GET.{name}", {"seq": number}) for number in range(1, 6)],
        await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"}),
        await ask.api(f"STREAM.CREATE.{name}2", full | {"discard_new_per_subject": True}),
        *[await ask.publish(f"{name}.b", b"%d" % number) for number in range(3)],
        await ask.api(f"STREAM.INFO.{name}2"),
    ]


async def of_schedules(ask: ApiClient, name: str) -> list[object]:
    """Messages that are to be published to another subject: refused ones, replaced ones, removed ones, and what comes of them."""
    config = {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True, "allow_msg_ttl": True}
    plain_config = {"name": f"{name}2", "subjects": [f"{name}2.>"]}
    told = [
        await ask.api(f"STREAM.CREATE.{name}", config | {"discard": "new"}),
        await ask.api(f"STREAM.CREATE.{name}", config | {"pedantic": True}),
        await ask.api(f"STREAM.CREATE.{name}", config | {"deny_purge": True}),
        await ask.api(f"STREAM.UPDATE.{name}", config | {"allow_msg_schedules": False, "allow_rollup_hdrs": True}),
        await ask.api(f"STREAM.CREATE.{name}2", plain_config),
    ]

    async def schedule(subject: str, target: str, pattern: str, data: bytes = b"x", **fields: str) -> None:
        headers = {"Nats_Schedule": pattern, "Nats_Schedule_Target": target} | fields
        told.append(await ask.publish(subject, data, **headers))

    ago, far = "@at 2024-01-01T00:00:00Z", f"@at {IN_AN_HOUR}"
    later, now = f"{name}.later", f"{name}.now"
    await schedule(f"{name}2.later", f"{name}2.now", far)
    for pattern in ("@at", "@at soon", "@at 2024-01-01", "@every", "@every x", "@often", "* *", "at 5"):
        await schedule(later, now, pattern)
    for target in ("", "elsewhere", later, f"{name}.*", f"{name}..x", name):
        await schedule(later, target, far)
    await schedule(later, now, far, Nats_Schedule_TTL="1ms")
    await schedule(later, now, far, Nats_Schedule_TTL="x")
    await schedule(later, now, far, Nats_Schedule_Rollup="all")
    await schedule(later, now, far, Nats_Rollup="all")
    await schedule(later, now, far, Nats_Schedule_Time_Zone="Europe/Paris")
    await schedule(later, now, far, Nats_Schedule_Source=later)
    await schedule(later, now, far, Nats_Schedule_Source="elsewhere")
    told += [
        await ask.publish(now, b"x", Nats_Scheduler=later),
        await ask.publish(now, b"x", Nats_Scheduler=later, Nats_Schedule_Next="now"),
        await ask.publish(now, b"x", Nats_Schedule_Next="purge"),
    ]
    await schedule(f"{name}.replaced", now, far, b"1")
    await schedule(f"{name}.replaced", now, far, b"2")
    await schedule(f"{name}.purged", now, far, Nats_Msg_Id="id")
    await schedule(f"{name}.purged", now, far, Nats_Msg_Id="id")
    told += [
        await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"}),
        await ask.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": f"{name}.replaced"}),
        await ask.api(f"STREAM.PURGE.{name}", {"filter": f"{name}.purged"}),
        await ask.publish(f"{name}.plain", b"y"),
    ]
    await schedule(f"{name}.1", now, ago, b"first", a="b", Nats_Msg_Id="other", Nats_Expected_Stream=name)
    await published(ask, name, now, 1)
    await schedule(f"{name}.2", now, ago, b"second", Nats_Schedule_TTL="1h", Nats_TTL="2h")
    await published(ask, name, now, 2)
    told += [await ask.api(f"STREAM.MSG.GET.{name}", {"seq": number}) for number in range(1, 9)]
    told.append(await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True}))
    return told


async def of_ended_schedules(ask: ApiClient, name: str) -> list[object]:
    """Schedules that end before their time, and one behind them that does not."""
    now = f"{name}.now"
    await ask.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True})
    due = time.time_ns() + SECOND
    for number in range(1, 6):
        pattern = f"@at {rfc3339(due + number)}"
        fields = {"Nats_Schedule": pattern, "Nats_Schedule_Target": now}
        await ask.publish(f"{name}.{number}", b"%d" % number, **fields)
    await ask.publish(f"{name}.1", b"plain")
    await ask.api(f"STREAM.PURGE.{name}", {"filter": f"{name}.2"})
    await ask.api(f"STREAM.MSG.DELETE.{name}", {"seq": 3})
    await ask.publish(f"{name}.4", b"rolled up", Nats_Rollup="sub")
    await published(ask, name, now, 1)
    return [await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"}), await last_of(ask, name, now)]


PATTERNS = (
    *("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "@Daily", "@often"),
    *("0 30 9-17 * * mon-fri", "0 0 0 29 2 ?", "0 0 0 30 2 *", "0 0 0 1,15 JAN,jul SUN", "0 5/20 0 1 1 *"),
    *("* * * * *", "60 * * * * *", "0 0 24 * * *", "0 0 0 0 * *", "0 0 0 * 13 *", "0 0 0 * * 7", "0 5-1 * * * *"),
    *("0 1-2-3 * * * *", "0 1/2/3 * * * *", "0 */0 * * * *", "-1 * * * * *", "x * * * * *", ", * * * * *"),
)


async def of_patterns(ask: ApiClient, name: str) -> list[object]:
    """Schedules with cron patterns, which are taken or refused; and one that is due each second."""
    now, every = f"{name}.now", f"{name}.every"
    await ask.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True})
    told = [await ask.publish(every, b"x", Nats_Schedule=pattern, Nats_Schedule_Target=now) for pattern in PATTERNS]
    told.append(await ask.publish(every, b"x", Nats_Schedule="* * * * * *", Nats_Schedule_Target=now))
    await published(ask, name, now, 2)
    answer = await ask.api(f"STREAM.MSG.GET.{name}", {"next_by_subj": now})
    lines = b64decode(answer[1]["message"].pop("hdrs")).decode().splitlines()
    told += [answer, lines[:2], [line for line in lines if line.startswith("Nats-Schedule-Next") and "." in line]]
    await ask.publish(every, b"x", Nats_Rollup="sub")
    return told


async def of_repeating_schedules(ask: ApiClient, name: str) -> list[object]:
    """A schedule that repeats, until it is removed."""
    now, every = f"{name}.now", f"{name}.every"
    await ask.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True})
    fields = {"Nats_Schedule": "@every 1s", "Nats_Schedule_Target": now, "a": "b"}
    told = [
        await ask.publish(every, b"x", **fields | {"Nats_Schedule": "@every 500ms"}),
        await ask.publish(every, b"x", **fields | {"Nats_Schedule": "@every -1s"}),
        await ask.publish(every, b"x", **fields),
    ]
    times = []
    for count in (1, 2):
        await published(ask, name, now, count)
        _, found = await ask.api(f"STREAM.MSG.GET.{name}", {"seq": 1 + count})
        lines = b64decode(found["message"].pop("hdrs")).decode().splitlines()
        told += [found, [line.partition(":")[0] for line in lines]]
        times += [line.partition(": ")[2] for line in lines if line.startswith("Nats-Schedule-Next")]
    first, second = map(parse_rfc3339, times)
    told += [second - first, first % SECOND, await last_of(ask, name, every)]
    told.append(await ask.api(f"STREAM.PURGE.{name}", {"filter": every}))
    return told


async def last_of(ask: ApiClient, name: str, subject: str) -> object:
    return await ask.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": subject})


async def published(ask: ApiClient, name: str, subject: str, count: int) -> None:
    """Return once a stream has so many messages of a subject, or more."""
    async with asyncio.timeout(ANSWERS_S):
        while True:
            _, found = await ask.api(f"STREAM.INFO.{name}", {"subjects_filter": subject})
            if found["state"].get("subjects", {}).get(subject, 0) >= count:
                return


@pytest.mark.parametrize(
    "story",
    [
        of_streams,
        of_publishes,
        of_messages,
        of_batches,
        of_other_subjects,
        of_promises,
        of_a_bucket,
        of_a_history,
        of_full_subjects,
        of_a_seal,
        of_markers,
        of_few_messages,
        of_schedules,
        of_ended_schedules,
        of_repeating_schedules,
        of_patterns,
    ],
)
async def test_both_servers_answer_the_same(story, original, ours):
    name = unique("js").replace(".", "_").replace("-", "_") + "_"  # some stories add a digit to it
    told = []
    for url in (original, ours):
        ask = ApiClient()
        await ask.client.connect(url)
        try:
            told.append(await asyncio.wait_for(story(ask, name), 60))
        finally:
            await ask.client.close()
    for number, (theirs, own) in enumerate(zip(*told, strict=True)):
        assert own == theirs, f"answer {number}"


async def of_revisions(url: str, name: str) -> list[object]:
    """A bucket of nats-py with a history: what is put, and what readers and watchers are told."""
    client = await nats.connect(url)
    try:
        bucket = await client.jetstream().create_key_value(bucket=name, history=5)
        for number in range(8):
            await bucket.put("a", b"%d" % number)
            await bucket.put("b.c", b"%d" % number)
        told: list[object] = [
            await refused(bucket.update("a", b"late", last=3)),
            await bucket.update("a", b"x", last=15),
        ]
        told.append(await refused(bucket.create("b.c", b"late")))
        await bucket.delete("b.c")
        told += [await revisions(bucket.history(key)) for key in ("a", "b.c")]
        told += [
            await watched(bucket, ">", include_history=True),
            await watched(bucket, "a"),
            await watched(bucket, "b.*"),
        ]
        await bucket.purge("a")
        told += [await watched(bucket, ">", include_history=True), sorted(await revisions_of_keys(bucket))]
        told += [await bucket.create("a", b"again"), await revisions(bucket.history("a"))]
        status = await bucket.status()
        return [*told, status.values, status.history, (await bucket.get("a")).revision]
    finally:
        await client.close()


async def refused(call: Awaitable[object]) -> str:
    with pytest.raises(Exception, match="wrong last sequence") as error:  # nats-py's modules may be there twice
        await call
    return str(error.value)


async def revisions(history: Awaitable[list[KeyValue.Entry]]) -> list[object]:
    return [(one.key, one.revision, one.value, one.operation, one.delta) for one in await history]


async def revisions_of_keys(bucket: KeyValue) -> list[str]:
    return [entry[0] for entry in await watched(bucket, ">", ignore_deletes=True)]


async def watched(bucket: KeyValue, keys: str, **options: bool) -> list[object]:
    """What a watcher is told until it is up to date."""
    watcher = await bucket.watch(keys, **options)
    told = []
    while (entry := await watcher.updates(timeout=ANSWERS_S)) is not None:
        told.append((entry.key, entry.revision, entry.value, entry.operation))
    await watcher.stop()
    return told


async def test_buckets_of_nats_py_have_the_same_revisions_on_both_servers(original, ours):
    name = unique("kv").replace(".", "_")
    theirs, own = [await asyncio.wait_for(of_revisions(url, name), 60) for url in (original, ours)]
    for number, (expected, told) in enumerate(zip(theirs, own, strict=True)):
        assert told == expected, f"answer {number}"


async def of_a_work_queue(url: str, name: str) -> list[object]:
    """A work queue of nats-py: which consumers it has, and what is left of it."""
    client = await nats.connect(url)
    jetstream, told = client.jetstream(), []
    try:
        await jetstream.add_stream(name=name, subjects=[f"{name}.*"], retention=RetentionPolicy.WORK_QUEUE)
        acks = [await jetstream.publish(f"{name}.{number % 2}", b"%d" % number) for number in range(8)]
        told.append([ack.seq for ack in acks])
        for config in CONSUMERS_OF_A_QUEUE:
            wanted = {
                key: [f"{name}.{one}" for one in value] if key == "filter_subjects" else value
                for key, value in config.items()
            }
            told.append(await outcome(jetstream.add_consumer(name, **{"ack_policy": AckPolicy.EXPLICIT} | wanted)))
        even = await jetstream.pull_subscribe_bind("even", name)
        one, two, three, four = await even.fetch(4, timeout=ANSWERS_S)
        told.append([message.metadata.sequence.stream for message in (one, two, three, four)])
        await three.ack_sync()
        await one.ack_sync()
        told.append(await held(jetstream, name, 6))
        await two.term()
        await four.nak()
        told.append(await held(jetstream, name, 5))
        (again,) = await even.fetch(1, timeout=ANSWERS_S)
        told.append((again.metadata.sequence.stream, again.metadata.num_delivered))
        await jetstream.delete_consumer(name, "even")
        await jetstream.delete_consumer(name, "odd")
        every = await puller(jetstream, name, "every")
        rest = await every.fetch(5, timeout=ANSWERS_S)
        told.append([message.metadata.sequence.stream for message in rest])
        for message in rest:
            await message.ack_sync()
        told.append(await held(jetstream, name, 0))
        return told
    finally:
        await client.close()


async def of_interest(url: str, name: str) -> list[object]:
    """A stream of nats-py that keeps messages by interest: what is left of it while consumers come, ack and go."""
    client = await nats.connect(url)
    jetstream, told = client.jetstream(), []

    async def publish() -> int:
        return (await jetstream.publish(f"{name}.x", b"")).seq

    try:
        await jetstream.add_stream(name=name, subjects=[f"{name}.*"], retention=RetentionPolicy.INTEREST)
        told += [await publish(), await publish(), await held(jetstream, name, 0)]
        one, two = await puller(jetstream, name, "one"), await puller(jetstream, name, "two")
        told += [await publish(), await publish(), await held(jetstream, name, 2)]
        for message in await one.fetch(2, timeout=ANSWERS_S):
            told.append(message.metadata.sequence.stream)
            await message.ack_sync()
        told.append(await held(jetstream, name, 2))
        first, second = await two.fetch(2, timeout=ANSWERS_S)
        await first.ack_sync()
        told.append(await held(jetstream, name, 1))
        await second.ack_sync()
        told += [await held(jetstream, name, 0), await publish(), await held(jetstream, name, 1)]
        await jetstream.delete_consumer(name, "one")
        (third,) = await two.fetch(1, timeout=ANSWERS_S)
        await third.ack_sync()
        told += [await held(jetstream, name, 0), await publish(), await held(jetstream, name, 1)]
        await jetstream.delete_consumer(name, "two")
        told.append(await held(jetstream, name, 0))
        return told
    finally:
        await client.close()


CONSUMERS_OF_A_QUEUE = (
    {"durable_name": "none", "ack_policy": AckPolicy.NONE},
    {"durable_name": "all", "ack_policy": AckPolicy.ALL},
    {"durable_name": "new", "deliver_policy": DeliverPolicy.NEW},
    {"durable_name": "even", "filter_subjects": ["0", "2"]},
    {"durable_name": "other", "filter_subjects": ["2", "4"]},
    {"durable_name": "wide", "filter_subjects": ["*"]},
    {"durable_name": "every"},
    {"durable_name": "odd", "filter_subjects": ["1"]},
)


async def outcome(call: Awaitable[object]) -> object:
    found = (await asyncio.gather(call, return_exceptions=True))[0]  # nats-py's modules may be there twice
    return (found.err_code, found.description) if isinstance(found, Exception) else found is not None


async def puller(jetstream: JetStreamContext, name: str, durable: str) -> JetStreamContext.PullSubscription:
    """A consumer of all messages that is made and pulled from."""
    await jetstream.add_consumer(name, durable_name=durable, ack_policy=AckPolicy.EXPLICIT)
    return await jetstream.pull_subscribe_bind(durable, name)


async def held(jetstream: JetStreamContext, name: str, count: int) -> tuple[int, int]:
    """The messages that a stream has, and the last sequence, once there are so many."""
    async with asyncio.timeout(ANSWERS_S):
        while True:
            state = (await jetstream.stream_info(name)).state
            if state.messages == count:
                return state.messages, state.last_seq
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("story", [of_a_work_queue, of_interest])
async def test_messages_go_with_their_acks_on_both_servers(story, original, ours):
    name = unique("kept").replace(".", "_")
    theirs, own = [await asyncio.wait_for(story(url, name), 60) for url in (original, ours)]
    for number, (expected, told) in enumerate(zip(theirs, own, strict=True)):
        assert told == expected, f"answer {number}"


def test_clients_in_javascript_get_the_same_of_both_servers(original, ours):
    program = jetstream("streams")
    theirs, own = (story_of(program, url) for url in (original, ours))
    assert len(own) == len(theirs) > 40
    for expected, told in zip(theirs, own, strict=True):
        assert told == expected
