"""Scripts for a reader: commands to the broker's core, and below `----` what came of them, word for word.

A script is a text: `#` begins a comment, a block is one command per line, `----`, what is expected, and an empty line. Time
passes only when a script says so. `STAN_REWRITE=1 pytest tests/scripts` writes what comes now as what is expected; then read the
difference. Modelled on the data-driven tests of etcd's raft.

Commands (settings are words like `window=2`; client `me` is connected at the beginning):
    limits [msgs=N] [bytes=N] [age=S] [subscriptions=N] [inactivity=S] [channels=N]   (a new broker)
    connect ID [silent] · close ID · heard ID (makes a silent client answer) · ping ID
    publish CHANNEL WORD... [client=ID]
    subscribe NAME CHANNEL [client=ID] [queue=Q] [durable=D] [window=N] [wait=S] [start=new|last|time|seq|first] [seq=N]
    ack NAME SEQUENCE... · leave NAME · unsubscribe NAME
    wait SECONDS · restart · nats lost · nats back · disk full · disk free
"""

import os
from pathlib import Path

import pytest
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan.config import ChannelLimits, Config, StoreLimits
from tests.kit.core_harness import CoreHarness

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
STARTS = {"new": 0, "last": 1, "time": 2, "seq": 3, "first": 4}


class Stage:
    """One broker and the names that a script gives to its subscriptions."""

    def __init__(self):
        self.subs = {}  # name -> (channel, client id, ack inbox)
        self.inboxes = {}  # of heartbeats, by client
        self.lost_at = 0
        self.begin(Config())

    def begin(self, config):
        self.harness = CoreHarness(config)
        self.do_connect("me")
        self.harness.hear()
        self.harness.notes.clear()

    def run(self, line):
        """Carry out one command; returns lines that tell what came of it."""
        word, *args = line.split()
        plain = [arg for arg in args if "=" not in arg]
        settings = dict(arg.split("=", 1) for arg in args if "=" in arg)
        told = getattr(self, f"do_{word}")(*plain, **settings) or []
        return told + self.heard()

    def heard(self):
        """Messages that came for subscriptions, and what was logged."""
        lines = []
        for said in self.harness.hear():
            if said.subject in self.subs:
                m = said.message
                again = f" (again, {m.redelivery_count})" if m.redelivered else ""
                lines.append(f"{said.subject} < {m.subject.decode()} {m.sequence} {m.data.decode()}{again}")
            elif said.subject.startswith("later."):
                error = wire.ConnectResponse.FromString(said.payload).error.decode()
                lines.append(f"{said.subject.split('.')[1]}: {error or 'connected'}")
        lines += [f"log: {text}" for level, text in self.harness.notes if level in ("WRN", "ERR") or "deleted" in text]
        self.harness.notes.clear()
        return lines

    def do_limits(self, channels="100", **values):
        times = {f"{key}_ns": round(float(values.pop(key)) * SECOND) for key in ("age", "inactivity") if key in values}
        default = ChannelLimits(**times, **{key: int(value) for key, value in values.items()})
        self.begin(Config(limits=StoreLimits(channels=int(channels), default=default)))

    def do_connect(self, client_id, silent=""):
        inbox = f"hb.{client_id}.{self.harness.inboxes}"
        self.harness.inboxes += 1
        if not silent:
            self.harness.alive.add(inbox)
        self.inboxes[client_id] = inbox
        request = wire.ConnectRequest(
            client_id=client_id.encode(), heartbeat_inbox=inbox.encode(), conn_id=inbox.encode(), protocol=1
        )
        frame = Frame(
            10, b"_STAN.discover.test-cluster", f"later.{client_id}".encode(), b"", request.SerializeToString()
        )
        self.harness.broker.frames.step_frame(frame)
        self.harness.turn()

    def do_close(self, client_id):
        return _error(self.harness.close(client_id))

    def do_heard(self, client_id):
        self.harness.alive.add(self.inboxes[client_id])

    def do_ping(self, client_id):
        ping = wire.Ping(conn_id=self.inboxes[client_id].encode())
        return _error(self.harness.ask("_STAN.discover.test-cluster.pings", ping, wire.PingResponse))

    def do_publish(self, channel, *words, client="me"):
        errors = self.harness.publish(channel, *(word.encode() for word in words), client_id=client)
        return [f"refused: {error}" for error in dict.fromkeys(errors) if error]

    def do_subscribe(self, name, channel, client="me", window="10", start="first", seq="0", **settings):
        if "wait" in settings:
            settings["wait"] = int(settings["wait"])
        old = self.subs.get(name)
        self.subs[name] = (channel, client, b"")
        response = self.harness.subscribe(
            channel, name, client_id=client, in_flight=int(window), start=STARTS[start], seq=int(seq), **settings
        )
        if response.error and old:
            self.subs[name] = old
        elif not response.error:
            self.subs[name] = (channel, client, response.ack_inbox)
        return _error(response)

    def do_ack(self, name, *sequences):
        self.harness.ack(self.subs[name][2], *map(int, sequences))

    def do_leave(self, name, *, unsubscribe=False):
        channel, client, inbox = self.subs[name]
        return _error(self.harness.leave(channel, inbox, client_id=client, unsubscribe=unsubscribe))

    def do_unsubscribe(self, name):
        return self.do_leave(name, unsubscribe=True)

    def do_wait(self, seconds):
        self.harness.pass_time(float(seconds))

    def do_restart(self):
        self.harness.restart()

    def do_nats(self, what):
        if what == "lost":
            self.lost_at = self.harness.now
            self.harness.broker.step_disconnected()
        else:
            self.harness.broker.step_reconnected(self.harness.now - self.lost_at)
        self.harness.turn()

    def do_disk(self, what):
        self.harness.full = what == "full"


def _error(response):
    return [f"refused: {response.error.decode()}"] if response.error else []


def played(script):
    """The script with what comes of it now."""
    stage, out, block, expected = Stage(), [], [], False
    for line in [*script.splitlines(), ""]:
        if line == "----":
            expected = True
            out += [*block, "----", *(told for command in block for told in stage.run(command.partition("#")[0]))]
            block = []
        elif not line:
            assert not block, f"no ---- below {block}"
            expected = False
            out.append("")
        elif line.startswith("#"):
            out.append(line)
        elif not expected:
            block.append(line)
    return "\n".join(out).rstrip() + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_tells_what_happens(path):
    script = path.read_text()
    now = played(script)
    if os.environ.get("STAN_REWRITE") == "1":
        path.write_text(now)
    else:
        assert now == script


def test_script_with_another_outcome_is_found():
    assert SCRIPTS
    good = "publish foo a\nsubscribe s foo\n----\ns < foo 1 a\n"
    assert played(good) == good
    assert played(good.replace("foo 1 a", "foo 2 a")) == good
