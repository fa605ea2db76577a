"""Group sync: a member that lacks entries no longer in the leader's log receives the group's state and messages instead.

    leader ── hint: this group, from me ──► member ── requests ──► leader ── answers ──► member: finish, install, take part again

The format of the transfer is in stan.edge.storage.transfer, the files are the storage's. Promises: one group is received at a
time; requests whose answers are lost are repeated; a failed or unanswered transfer is given up, and the leader's next
hint begins another one; a group whose copy could not be replaced is not received again until a restart. Subjects:
`<node>.transfer` takes hints and requests, `<node>.received` answers.
"""

from collections.abc import Callable
from struct import Struct

from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.edge.cluster.host import Host
from stan.edge.storage.transfer import Receiver, Sender, TransferStep
from stan.errors import Damage, NotNow, fault
from stan.raft.group import RaftGroup
from stan.state.database import StoredState

_HINT = Struct("<BH")
_HINT_VERB = 0  # distinguishes hints from requests, which begin with the version of their format, 1 or more


class _Reading:
    """The reading of a group's state in a worker thread."""

    def __init__(self, read: Callable[[GroupId], StoredState], number: GroupId) -> None:
        self._read, self._number = read, number
        self.state: StoredState | Exception = NotNow("the state was not read")

    def run(self) -> None:
        """Read the state, or get the error."""
        try:
            self.state = self._read(self._number)
        except Exception as error:  # noqa: BLE001 - the border of the group: the answer has it
            self.state = error


class GroupSync:
    """Transfers of groups from and to one node."""

    def __init__(self, node: Host) -> None:
        self._node = node
        self._me = node.storage.node_id
        self._sender: Sender | None = None
        self._reading: set[bytes] = set()  # requests for which the state of a group is being read
        self._hinted: dict[tuple[GroupId, str], Nanos] = {}  # by group and peer: time of the last hint
        self._receiver: Receiver | None = None
        self._source = ""
        self._answered_at = Nanos(0)  # the newest answer
        self._asked_at = Nanos(0)  # the newest requests
        self._busy = False  # the received files are being verified or installed
        self._spoilt: set[GroupId] = set()  # groups whose copy could not be replaced
        subjects = node.broker.view.subjects
        self._prefix = subjects.node
        node.gateway.subscribe(f"{self._prefix}.{self._me}.transfer", self._requested)
        node.gateway.subscribe(f"{self._prefix}.{self._me}.received", self._answered)

    # --- sending ----------------------------------------------------------------------------------------------------------

    def needs_snapshot(self, group: RaftGroup, peer: str) -> None:
        """Hint to a peer that it lacks entries that this leader's log no longer has."""
        now = self._node.environment.runtime.now()
        key = group.group, peer
        if now - self._hinted.get(key, Nanos(0)) >= limits.TRANSFER_HINT_INTERVAL:
            self._hinted[key] = now
            hint = _HINT.pack(_HINT_VERB, group.group) + self._me.encode()
            self._send(f"{self._prefix}.{peer}.transfer", hint)

    def _requested(self, frame: Frame) -> None:
        if not frame.reply:
            self._on_hint(frame.payload)
            return
        runtime = self._node.environment.runtime
        sender = self._sender = self._sender or self._node.storage.sender(runtime.now)
        number = sender.opens(frame.payload)
        if number is None:
            self._answer(sender, frame)
        elif frame.payload not in self._reading and len(self._reading) < limits.TRANSFER_SESSIONS_MAX:
            self._reading.add(frame.payload)
            reading = _Reading(sender.read, number)
            runtime.work(reading.run, lambda _problem: self._read(sender, frame, number, reading.state))

    def _read(self, sender: Sender, frame: Frame, number: GroupId, state: StoredState | Exception) -> None:
        """Answer a member with the state of a group, which was read."""
        self._reading.discard(frame.payload)
        if isinstance(state, Damage):
            self._node.within(number, self._node.storage.write_again, self._node.broker, number, state)
        self._answer(sender, frame, state)

    def _answer(self, sender: Sender, frame: Frame, state: StoredState | Exception | None = None) -> None:
        answer = sender.handle(frame.payload, state)
        if answer:
            self._node.gateway.connection.write(publication(frame.reply, answer))

    # --- receiving --------------------------------------------------------------------------------------------------------

    def receives(self, number: GroupId) -> bool:
        """True while a group is being received."""
        return self._receiver is not None and self._receiver.group == number

    def _on_hint(self, payload: bytes) -> None:
        if len(payload) <= _HINT.size:
            return
        _, number = _HINT.unpack_from(payload)
        group = self._node.groups.get(GroupId(number))
        source = payload[_HINT.size :].decode(errors="replace")
        if group is not None and group.leader == source and not group.failed:
            if (
                self._receiver is not None
                and self._receiver.group == number
                and source != self._source
                and not self._busy
            ):
                self._give_up(f"{source} leads it now")
            self._receive(GroupId(number), source)

    def _receive(self, number: GroupId, source: str) -> None:
        if self._receiver is not None:
            return
        self._node.environment.note("INF", f"group {number}: gets state and messages from {source}")
        self._source = source
        self._receiver = self._node.storage.receiver(number)
        self._answered_at = self._node.environment.runtime.now()
        self._ask(self._receiver.begin(self._node.environment.random.getrandbits(64)))

    def _repair_incomplete_logs(self) -> None:
        """Receive a group again whose log here has lost entries, from its leader, which may not notice the loss."""
        node = self._node
        for number, member in node.storage.members.items():
            source = next(
                (name for name, known in node.membership.hellos.nodes.items() if number in known.hello.led), None
            )
            lacking = not member.intact and number in node.groups and number not in self._spoilt
            if lacking and source is not None and source != self._me:
                self._receive(number, source)
                return

    def _ask(self, requests: list[bytes]) -> None:
        self._asked_at = self._node.environment.runtime.now()
        reply = f"{self._prefix}.{self._me}.received"
        for request in requests:
            self._send(f"{self._prefix}.{self._source}.transfer", request, reply)

    def _send(self, subject: str, payload: bytes, reply: str = "") -> None:
        to = f"{subject} {reply}" if reply else subject
        self._node.gateway.connection.write(publication(to.encode(), payload))

    def _answered(self, frame: Frame) -> None:
        receiver = self._receiver
        if receiver is None or self._busy:
            return
        if frame.no_responders:
            self._give_up("it is not there")
            return
        try:
            step: TransferStep = receiver.accept(frame.payload)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self._give_up(fault(error))
            return
        self._answered_at = self._node.environment.runtime.now()
        if step.failed:
            self._give_up(step.failed)
            return
        if step.requests:
            self._ask(step.requests)
        if step.done:
            self._busy = True
            self._node.environment.runtime.work(receiver.finish, lambda problem: self._verified(receiver, problem))

    def _verified(self, receiver: Receiver, problem: Exception | None) -> None:
        self._busy = False
        if problem is not None:
            self._give_up(fault(problem))
            return
        self._busy = True
        self._node.copies.replace(receiver.group, self._replaced)

    def _replaced(self, problem: Exception | None) -> None:
        self._busy = False
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if isinstance(problem, NotNow):
            self._node.gateway.complain("WRN", f"group {receiver.group}: {problem}")
        elif problem is not None:
            self._spoilt.add(receiver.group)  # it is frozen, and the log says why
        else:
            self._node.environment.note("INF", f"group {receiver.group}: state and messages of {self._source} are here")

    def _give_up(self, why: str) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._node.gateway.complain("WRN", f"group {receiver.group}: not received from {self._source}: {why}")

    # --- time ---------------------------------------------------------------------------------------------------------------

    def _hint(self, group: RaftGroup) -> None:
        for peer in group.followers_needing_snapshot():
            self.needs_snapshot(group, peer)

    def tick(self, now: Nanos) -> None:
        """Repeat hints to members that lag, and requests that were not answered; give up a transfer without answers."""
        if self._sender is not None:
            self._sender.expire()
        for number, group in self._node.groups.items():  # one just elected may be unable to lead without that peer
            self._node.within(number, self._hint, group)
        receiver = self._receiver
        if receiver is None:
            self._repair_incomplete_logs()
            return
        if self._busy:
            return
        if now - self._answered_at > limits.TRANSFER_PATIENCE:
            self._give_up("no answer")
        elif now - max(self._asked_at, self._answered_at) > limits.TRANSFER_REPEAT:
            self._ask(receiver.repeat())
