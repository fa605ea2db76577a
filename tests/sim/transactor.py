"""Simulated apps that stage rows and commit them, and what must be true of it.

A version of an app is staged by several tasks in parts, some of them attempts that nobody names in the end; then it is committed
to each channel, or to all of them at once, or all of it is aborted. Every request is repeated until it is answered, also after
the app has died and come back. Rows count as published once their commit was asked for: whatever else is seen is a phantom.
"""

from collections import Counter

from stan_protocol.commits import commit_request
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.scalars import MILLISECOND

from stan.protocol.entries import STAGING_UID
from tests.kit.batches import rows_of
from tests.sim.clients import SimClient
from tests.sim.history import Publish
from tests.sim.scene import CHANNELS

JOINT = 0.6
"""Of the versions, which are committed to several channels by one request."""
SHARED = 0.7
"""Of the requests to stage, which take rows of other channels with them, if a txn of the same name has some left."""
AT_ONCE = 4
"""Requests of one app on their way."""
SUBJECT = "_STAN.x.test-cluster"
NAMED, ORPHAN, ABORTED = "named", "orphan", "aborted"


class Transactor(SimClient):
    """One app over its lives; what it has planned it remembers."""

    def __init__(self, world, app):
        super().__init__(world, app)
        self.version = -1
        self.idle = True
        self.staged = set()  # requests that were answered
        self.requests_left = []
        self.out = 0
        self.ending = False
        self.txns = {}  # channel -> [(txn, values by part, fate)]
        self.committed = set()  # channels
        self.attempts = Counter()  # by version and channel

    def _connect(self):
        """No registration. After a death it goes on with the version it was at."""
        self.out, self.ending = 0, False
        self.later(self.random.randint(50, 250) * MILLISECOND, self._look)
        if self.idle:
            self._plan()
        else:
            self._go_on()

    def ask(self, kind, request, answer, done):
        """Until there is an answer without retry; a disk that fails refuses what is asked for again later."""

        def again():
            self.ask(kind, request, answer, done)

        def answered(payload):
            response = answer.FromString(payload)
            if response.retry or (getattr(response, "error", b"") and self.world.disk_failed):
                self.later(self.random.choice((20, 100, 300)) * MILLISECOND, again)
            else:
                done(response)

        self.request(f"{SUBJECT}.{kind}", request, answered, again)

    # --- one version --------------------------------------------------------------------------------------------------

    def _plan(self):
        draw = self.random
        if self.world.quiet:
            return
        self.idle = False
        self.version += draw.choice((1, 1, 1, 3))
        self.given_up = draw.random() < 0.1
        self.joint = draw.random() < JOINT
        self.staged.clear()
        self.committed.clear()
        self.txns = {channel: [] for channel in draw.sample(CHANNELS, draw.choice((1, 2)))}
        self.requests_left = []
        for channel, txns in self.txns.items():
            for task in range(draw.choice((0, 1, 2, 3))):
                fates = [NAMED] if draw.random() < 0.7 else [draw.choice((ORPHAN, ABORTED)), NAMED]
                txns += [self._task(channel, task, fate) for fate in fates]
            draw.shuffle(txns)
        draw.shuffle(self.requests_left)
        self._go_on()

    def _task(self, channel, task, fate):
        draw = self.random
        self.attempts[self.version, channel] += 1
        txn = f"{self.client_id}.{self.version}.{self.attempts[self.version, channel]}"  # of other channels, too
        parts = []
        for part in range(draw.choice((1, 2, 3, 5))):
            name = f"{self.client_id}-v{self.version}-{channel}-{task}-{txn}-{part}"
            parts.append([f"{name}-{row}" for row in range(draw.choice((1, 2, 6)))])
            self.requests_left.append((channel, txn, part))
        return txn, parts, fate

    def _go_on(self):
        """Stage what is not staged yet; then the end."""
        while self.requests_left and self.out < AT_ONCE:
            self._stage(self.requests_left.pop())
        if self.out or self.requests_left or self.ending or self.idle:
            return
        missing = [key for key in self._keys() if key not in self.staged]  # asked for by a life that has ended
        if missing:
            self.requests_left = missing
            self._go_on()
            return
        self.ending = True
        self._end()

    def _keys(self):
        return [
            (channel, txn, part)
            for channel, txns in self.txns.items()
            for txn, parts, _ in txns
            for part in range(len(parts))
        ]

    def _stage(self, key):
        keys = [key]
        if self.random.random() < SHARED:
            for other in self.requests_left:
                if other[1] == key[1] and other[0] not in {channel for channel, *_ in keys}:
                    keys.append(other)
            self.requests_left = [one for one in self.requests_left if one not in keys]
        (channel, txn, part), rows = key, [self._rows(*one) for one in keys]
        request = ext.StageRequest(
            app=self.client_id.encode(),
            version=self.version,
            txn=txn.encode(),
            part=part,
            channel=channel.encode(),
            count=rows[0].count,
            rows=rows[0].rows,
            more=rows[1:],
        )

        def done(response):
            self.out -= 1
            if response.error:
                self.world.complain(f"{self.client_id}: stage refused: {response.error.decode()}")
            elsewhere = {one.channel.decode() for one in response.elsewhere}
            self.requests_left += [one for one in keys if one[0] in elsewhere]
            self.staged.update(one for one in keys if one[0] not in elsewhere)
            self.later(self.random.choice((0, 0, 5, 40)) * MILLISECOND, self._go_on)

        self.out += 1
        self.ask("stage", request, ext.StageResponse, done)
        if self.random.random() < 0.1:  # the answer seemed to be lost
            self.port.publish(f"{SUBJECT}.stage", request.SerializeToString(), "nowhere")

    def _rows(self, channel, txn, part):
        values = next(parts for name, parts, _ in self.txns[channel] if name == txn)[part]
        packed = rows_of(value.encode() for value in values)
        return ext.StagedRows(channel=channel.encode(), part=part, count=len(values), rows=packed)

    def _end(self):
        """Abort and commit, one channel after the other."""
        channel = next((name for name in self.txns if name not in self.committed), None)
        if channel is None:
            self._finish()
            return
        gone = [txn for txn, _, fate in self.txns[channel] if self.given_up or fate == ABORTED]
        request = ext.AbortRequest(channel=channel.encode(), txns=[txn.encode() for txn in gone])
        self.ask("abort", request, ext.AbortResponse, lambda _: self._commit(channel))

    def _commit(self, channel):
        if self.given_up:
            self.committed.add(channel)
            self._end()
            return
        more = [name for name in self.txns if self.joint and name != channel and name not in self.committed]
        values = {name: self._named(name)[1] for name in (channel, *more)}
        named = {name.encode(): self._named(name)[0] for name in (channel, *more)}
        request = commit_request(self.client_id.encode(), self.version, named)

        def told(response):
            self._told(request, channel, values[channel], response)
            for one in response.more:
                self._told(request, one.channel.decode(), values[one.channel.decode()], one)
            together = {channel, *(one.channel.decode() for one in response.more)}
            if more and together | {one.channel.decode() for one in response.elsewhere} != {channel, *more}:
                self.world.complain(f"{self.client_id}-{request.version}: {more} asked for, {response}".strip())
            if len(together) > 1 and not response.already:
                self.world.joint.add((self.client_id, request.version, tuple(sorted(together))))
            return together

        def done(response):
            self.committed |= told(response)
            if self.random.random() < 0.2:
                self.ask("commit", request, ext.CommitResponse, told)
            self._end()

        self.ask("commit", request, ext.CommitResponse, done)

    def _named(self, channel):
        """The txns of a channel that a commit names, and their values, which count as published from now on."""
        named = [(txn, parts) for txn, parts, fate in self.txns[channel] if fate == NAMED]
        values = [value for _, parts in named for part in parts for value in part]
        writer = f"{self.client_id}-{self.version}-{channel}"
        for number, value in enumerate(values):
            publish = Publish(writer, number, channel, value, self.loop.now)
            self.history.publishes.setdefault(value, publish)
        return [(txn.encode(), len(parts)) for txn, parts in named], values

    def _told(self, request, channel, values, response):
        if getattr(response, "error", b""):
            self.world.complain(f"{self.client_id}-{request.version}: {response}".strip())
            return
        key = self.client_id, request.version, channel
        known = self.world.commits.get(key)
        if response.already and not response.last_sequence and request.version < self.version:
            return  # a repeated request for what a later version has followed
        size = response.last_sequence - response.first_sequence + 1 if response.last_sequence else 0
        if size != len(values) or (known and known[0] != response.first_sequence):
            self.world.complain(f"{key}: {len(values)} rows, {known and known[:2]}, now {response}".strip())
            return
        self.world.commits[key] = response.first_sequence, response.last_sequence, values
        for value in values:
            publish = self.history.publishes[value]
            publish.ok_at = publish.ok_at or self.loop.now

    def _finish(self):
        finished = 0 if self.given_up else self.version
        request = ext.FinishRequest(app=self.client_id.encode(), version=finished)
        version = self.version

        def check(response):
            if not response.known or (not self.given_up and self.version == version and response.version < finished):
                self.world.complain(f"{self.client_id}: {finished} is finished, not {response}".strip())

        def done(_response):
            self.idle, self.ending = True, False
            question = ext.LastCommittedRequest(app=self.client_id.encode())
            self.ask("last_committed", question, ext.LastCommittedResponse, check)
            self.later(self.random.choice((0, 200, 900)) * MILLISECOND, self._plan)

        self.ask("finish", request, ext.FinishResponse, done)

    # --- a reader ----------------------------------------------------------------------------------------------------

    def _look(self):
        """Note how far a channel goes for those who pull, or how far all of them go at one moment."""
        self.later(self.random.randint(20, 250) * MILLISECOND, self._look)
        if self.random.random() < 0.5:
            request = ext.InfoRequest(channels=[name.encode() for name in CHANNELS])
            self.request(f"{SUBJECT}.info", request, self._compare, lambda: None)
            return
        channel = self.random.choice(CHANNELS)

        def answered(payload):
            response = ext.FetchResponse.FromString(payload)
            if not response.error:
                self.world.ends[channel].add(response.last_sequence)

        request = ext.FetchRequest(channel=channel.encode(), newest=3)
        self.request(f"{SUBJECT}.fetch", request, answered, lambda: None)

    def _compare(self, payload):
        response = ext.InfoResponse.FromString(payload)
        if not response.error:
            self.world.views.append({one.name.decode(): one.last_sequence for one in response.channels})


class Transacting:
    """What a world of transactions has besides another one's; put before it."""

    def __init__(self, seed):
        super().__init__(seed)
        self.commits = {}  # (app, version, channel) -> (first, last, values)
        self.joint = set()  # (app, version, channels that were committed together)
        self.views = []  # the ends of channels at one moment, as somebody saw them
        self.ends = {channel: set() for channel in CHANNELS}  # as somebody who pulls saw them

    def make_clients(self, **options):
        for at in range(self.random.choice((1, 2, 3))):
            self.add(Transactor(self, f"app{at}"))
        super().make_clients(**options)

    def run(self):
        return super().run() + list(check_transactions(self))

    def stored(self, node, batch):
        if batch.uid != STAGING_UID:
            super().stored(node, batch)

    def busy_apps(self):
        """Which apps have not ended their versions; "" if all have."""
        apps = [client for client in self.clients.values() if isinstance(client, Transactor) and not client.idle]
        return ", ".join(f"{app.client_id} is at {app.version}, {app.committed} is done" for app in apps)

    def _drained(self):
        return not self.busy_apps() and super()._drained()

    def _open_ends(self):
        return self.busy_apps() or super()._open_ends()

    def read_all(self):
        self.fail_if(self.busy_apps(), f"no progress: {self.busy_apps()}")
        super().read_all()


def check_transactions(world):
    """A commit's rows lie together, in order, in the order of versions; and nobody ever saw an end, or a beginning, inside."""
    history = world.history
    begins = {}  # plain subscription -> its first sequence
    for delivery in history.deliveries:
        if delivery.sub.kind == "plain" and not delivery.redelivered:
            begins.setdefault(delivery.sub, delivery.sequence)
    newest = {}
    for (app, version, channel), (first, last, values) in sorted(world.commits.items()):
        if not values:
            continue
        name = f"check_transactions: {app}-{version} {channel} [{first}, {last}]"
        content = dict(history.final[channel]) | history.stored[channel]
        for sequence, value in enumerate(values, first):
            if content.get(sequence, value) != value:
                yield f"{name}: {sequence} is {content[sequence]}, not {value}"
        if newest.get((app, channel), 0) >= first:
            yield f"{name}: an earlier version ends at {newest[app, channel]}"
        newest[app, channel] = last
        yield from (f"{name}: somebody saw {end} as the last" for end in world.ends[channel] if first <= end < last)
        if not history.limits.get(channel):
            for sub, begin in begins.items():
                if sub.channel == channel and first < begin <= last:
                    yield f"{name}: {sub} begins at {begin}"
    for app, version, channels in sorted(world.joint):
        known = {name: world.commits.get((app, version, name)) for name in channels}
        lasts = {name: told[1] for name, told in known.items() if told is not None and told[2]}
        for view in world.views:
            seen = {name: view[name] >= last for name, last in lasts.items() if name in view}
            if len(set(seen.values())) > 1:
                yield f"check_transactions: {app}-{version} is seen in a part of its channels: {seen}, {view}"
