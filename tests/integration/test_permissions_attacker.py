"""An attacker who says anything at all: whatever he sends, what belongs to others is as it was, and they are served.

He has users of his own: one who may publish and read a little, one who may only look at everything, one who may nothing, and
all fit a rule for everybody. He knows every id, inbox and name of his victim. Generated over the whole table of requests, their
fields and reply subjects (tests.kit.attacks); STAN_ATTACKS=1000 in the environment goes on for longer.
"""

import asyncio
import contextlib
import itertools
import os

import nats.errors
import pytest
import stan_client
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from stan_protocol.commits import commit_request
from stan_protocol.proto import extension_pb2 as ext

from tests.kit.attacks import sayings
from tests.kit.batches import rows_of
from tests.kit.rogue import CLUSTER, Rogue, url
from tests.kit.running import settled
from tests.kit.server import StanServer

ATTACKS = int(os.environ.get("STAN_ATTACKS", "150"))
SERVED_SECONDS_MAX = 30  # a busy machine; on an idle one some milliseconds
CONF = """
streaming {
  permissions {
    users: [
      { user: alice, password: pa, clients: "alice-*" }
      { user: mallory, password: pm, clients: ["mallory-*", "m*"] }
      { user: viewer, password: pv }
      { user: nobody, password: pn }
      { user: ops, password: po }
    ]
    allow: [
      { user: alice, publish: ["a.>", "shared.>"], subscribe: ["a.>", "shared.>"], durable: "a.>" }
      { user: mallory, publish: ["m.>", "shared.>"], subscribe: ["m.>", "shared.>"], durable: "m.>" }
      { user: viewer, admin_read: ">" }
      { user: ops, subscribe: ">", admin_read: ">", admin_write: ">" }
      { subscribe: "public.>" }
    ]
  }
}
"""
APP, TXN, PRODUCER, KEPT, SHARED = b"alice-etl", b"alice-txn", b"alice-producer", "a.kept", "shared.tx"
NAMES = (
    *(
        "alice-1",
        "alice-2",
        "mallory-1",
        "m",
        KEPT,
        SHARED,
        "a.>",
        "a.*",
        ">",
        "m.x",
        "public.x",
        "d",
        "dq",
        "q",
        "dq:q",
    ),
    *("offline", "alice-cursor", "_INBOX.x", f"_STAN.close.{CLUSTER}", "_STAN.to.alice._INBOX.x", ""),
)
ATTACKERS = ("mallory", "viewer", "nobody")


class Household:
    """Alice with everything that she may have, the attackers, and an operator who looks whether it is still there."""

    def __init__(self, server, runner):
        self.server, self.runner = server, runner
        self.rogues = {}
        self.channels = itertools.count()

    def run(self, work, seconds=SERVED_SECONDS_MAX):
        return self.runner.run(asyncio.wait_for(work, seconds))

    async def begin(self):
        self.alice = await stan_client.connect(url(self.server, "alice"), client_id="alice-1", cluster_id=CLUSTER)
        self.bare = await Rogue.of(self.server, "alice")
        self.operator = await stan_client.Direct(url(self.server, "ops"), cluster_id=CLUSTER).__aenter__()
        for number in range(3):
            await self.alice.publish(KEPT, b"kept %d" % number)
        everything = stan_client.everything()
        self.durable = await self.alice.subscribe(KEPT, durable="d", start=everything, manual_acks=True)
        messages = aiter(self.durable)
        (await anext(messages)).ack()
        await anext(messages)  # two are not acked
        self.queue = await self.alice.subscribe(KEPT, queue="q", durable="dq", start=everything, manual_acks=True)
        await anext(aiter(self.queue))
        offline = await self.alice.subscribe(KEPT, durable="offline", start=everything, manual_acks=True)
        await anext(aiter(offline))
        await offline.close()
        self.health = await self.alice.subscribe("a.health")
        self.healthy = aiter(self.health)
        rows = rows_of([b"row"])
        stage = ext.StageRequest(channel=SHARED.encode(), app=APP, txn=TXN, version=4, count=1, rows=rows)
        batch = ext.BatchRequest(channel=SHARED.encode(), producer=PRODUCER, count=1, ids=b"i" * 16, rows=rows)
        for kind, request in (
            ("commit", ext.CommitRequest(channel=SHARED.encode(), app=APP, version=3)),
            ("stage", stage),
            ("batch", batch),
            ("finish", ext.FinishRequest(app=APP, version=3)),
            ("cursor_set", ext.CursorSetRequest(channel=KEPT.encode(), name=b"alice-cursor", sequence=2)),
        ):
            assert (await self.bare.asks(kind, request, ext.BatchResponse)).error == b"", kind
        self.before = await self.look()
        self.secrets = [
            self.durable._delivery.path.ack_inbox,
            self.queue._delivery.path.ack_inbox,
            self.alice._publisher._path.ack_inbox,
        ]
        channels, conn_id = [KEPT.encode(), SHARED.encode()], self.alice._sessions.current.conn_id
        self.fields = {
            "client_id": [b"alice-1", b"alice-2", b"mallory-1"],
            "conn_id": [conn_id],
            "guid": [b"alice-1"],
            "channel": channels,
            "subject": channels,
            "channels": channels,
            "pattern": [b">", b"a.>", b"m.>"],
            "app": [APP],
            "txn": [TXN],
            "txns": [TXN],
            "producer": [PRODUCER],
            "ids": [b"i" * 16, b"j" * 16],
            "rows": [rows_of([b"row"])],
            "durable_name": [b"d", b"offline", b"q"],
            "queue_group": [b"", b"dq", b"q"],
            "inbox": [*self.secrets, b"_INBOX.mallory.m"],
            "heartbeat_inbox": [b"_INBOX.mallory.hb"],
            "name": [b"alice-cursor"],
            "other": [name.encode() for name in NAMES],
        }

    async def look(self):
        """What Alice has."""
        direct = self.operator
        cursors = [
            (
                one.channel,
                one.kind,
                one.durable_name,
                one.acked_up_to,
                one.pending,
                tuple(m.client_id for m in one.members),
            )
            for one in await direct.admin.subscriptions("a.>")
            if one.channel != "a.health"
        ]
        app = await self.bare.asks("last_committed", ext.LastCommittedRequest(app=APP), ext.LastCommittedResponse)
        named = (await direct.bookmarks.all("alice-cursor")).get("alice-cursor", {})
        return {
            "channels": sorted(one.name for one in await direct.admin.channels("a.>")),
            "messages": [message.data for message in await direct.fetch(KEPT)],
            "cursors": sorted(cursors),
            "clients": sorted(
                (one.client_id, one.heartbeat_inbox)
                for one in await direct.admin.clients()
                if one.heartbeat_inbox.startswith("_STAN.to.alice.")
            ),
            "app": (app.error, app.version),
            "named": sorted((channel, one.sequence) for channel, one in named.items()),
        }

    async def attack(self, user, said):
        """Say all of it as one of the attackers."""
        rogue = self.rogues.get(user)
        if rogue is None or rogue.link.is_closed:
            rogue = self.rogues[user] = await Rogue.of(self.server, user)
        for subject, payload, reply in said:
            with contextlib.suppress(nats.errors.Error):  # NATS itself does not take it
                await rogue.say(subject, payload, reply)
        with contextlib.suppress(nats.errors.Error):
            await settled(rogue.link)

    async def check(self):
        """Alice is served, and has what she had."""
        data = b"%d" % next(self.channels)
        await self.alice.publish("a.health", data)
        assert (await anext(self.healthy)).data == data
        assert await self.look() == self.before

    async def end(self):
        """What cannot be looked at without a change: what is staged, and which ids are known."""
        rows = rows_of([b"row"])
        commit = commit_request(APP, 4, {SHARED.encode(): [(TXN, 1)]})
        done = await self.bare.asks("commit", commit, ext.CommitResponse)
        assert (done.error, done.already) == (b"", False)
        for ids, repeats in ((b"i", 1), (b"j", 0), (b"k", 0)):
            batch = ext.BatchRequest(channel=SHARED.encode(), producer=PRODUCER, count=1, ids=ids * 16, rows=rows)
            done = await self.bare.asks("batch", batch, ext.BatchResponse)
            assert (done.error, done.duplicates) == (b"", repeats)
        await self.operator.__aexit__(None, None, None)
        for rogue in (self.bare, *self.rogues.values()):
            await rogue.link.close()
        await self.alice.close()


@pytest.fixture(scope="module")
def household(tmp_path_factory):
    directory = tmp_path_factory.mktemp("attacked")
    (directory / "stan.conf").write_text(CONF)
    with StanServer(directory, "-c", str(directory / "stan.conf")) as server, asyncio.Runner() as runner:
        yield Household(server, runner)
        assert server.running


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")  # a failure is told before its long example
def test_whatever_is_said_others_have_what_they_had_and_are_served(household):
    household.run(household.begin())
    anything = sayings(household.fields, household.secrets)

    @settings(
        max_examples=ATTACKS, phases=[Phase.generate]
    )  # what was done to Alice cannot be undone for a smaller example
    @given(st.lists(anything, min_size=1, max_size=6), st.sampled_from(ATTACKERS))
    def attacked(said, user):
        household.run(household.attack(user, said))
        household.run(household.check())

    attacked()
    household.run(household.end())
