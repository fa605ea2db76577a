"""What the log tells of one message of one cursor: its deliveries, why they were made, and what came of them.

    entries, in the order of the log ─► Account ─► steps

Pure and small: it keeps who holds the message and why it is owed, so that a delivery whose leader found the message owed gets the
cause that an earlier entry tells. Which entries there are, and where they are read, is nothing to it.
"""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Final, NamedTuple

from stan_protocol.proto import admin_pb2 as admin

from stan.core.base.causes import Cause
from stan.core.base.runs import pairs, removed_runs
from stan.core.boundary.group_view import CursorIdentity
from stan.core.state.cursors import CursorKind, kind_and_name
from stan.protocol.proto import entries_pb2 as pb

MICROSECOND: Final = 1000
SAME_DELIVERY: Final = 1_000_000
"""Two records by one leader of a delivery to one member with the same cause and count whose times differ by less, in ns, are of
one delivery: a leader that does not know whether an entry was written tells of it once more. Another leader has another clock,
and knows nothing of what the one before it has sent."""
WORDS: Final = {cause: cause.name.lower().replace("_", " ") for cause in Cause}
"""The causes in words, as answers tell them."""


class StagedMessage(NamedTuple):
    """Of a message that came by a commit which refers to it."""

    hidden: int  # the message of the group's hidden channel that holds it
    committed_at: int  # Unix ns


class Account:
    """Takes the changes of a group one by one, and collects the steps that concern one message of one cursor."""

    def __init__(
        self,
        cursor: CursorIdentity,
        sequence: int,
        place: admin.ExplainPlace | None = None,
        staged: StagedMessage | None = None,
    ) -> None:
        """*place*: where an account of the same message has ended that this one goes on with; *staged*: where the message was
        staged, if a commit refers to it there."""
        self.cursor = cursor
        self.staged = staged
        self.sequence = sequence
        self.place = admin.ExplainPlace() if place is None else place
        self.steps: list[admin.ExplainStep] = []
        self._leader = ("", 0)  # node and term of who has written the newest entry

    def take(self, index: int, term: int, change: pb.GroupChange) -> None:
        """The next committed change: the entry at *index* has it."""
        before = len(self.steps)
        self._leader = change.node.decode("utf-8", "replace"), term
        for progress, since in zip_longest(change.progress, change.served_since):
            if progress is not None and progress.cursor_id == self.cursor.cursor_id:
                taken = since is None or not self.place.known_server or since == self.place.served_since
                self._progress(progress, change.at, taken=taken)
        name = change.WhichOneof("change")
        if name is not None:
            handle = getattr(self, f"_{name}", None)
            if handle is not None:
                handle(getattr(change, name), index)
        for step in self.steps[before:]:
            (step.node, step.term), step.index = self._leader, index
            step.at = step.at or change.at

    def _note(self, what: str, **more: object) -> None:
        self.steps.append(admin.ExplainStep(what=what, **more))  # type: ignore[arg-type]

    def _has(self, runs: Iterable[int]) -> bool:
        return any(first <= self.sequence <= last for first, last in pairs(runs))

    def _owe(self, cause: Cause) -> None:
        self.place.holder, self.place.owed = 0, cause + 1

    def _told(self, cause: int) -> Cause:
        """The cause that a progress entry tells. A leader does not know that of what the leader before it owed: an earlier entry
        has told it."""
        known = Cause(cause) if cause in WORDS else Cause.OWED
        return Cause(self.place.owed - 1) if known is Cause.OWED and self.place.owed else known

    def _settle(self, what: str) -> None:
        self.place.unstored = False
        if not self.place.settled:
            self._note(what)
        self.place.holder, self.place.settled = 0, True  # why it was owed is kept: a replica may be sending it just now

    # --- progress -----------------------------------------------------------------------------------------------------

    def _progress(self, progress: pb.Progress, at: int, *, taken: bool) -> None:
        """*taken*: it is the leader's, or that of a node which serves the subscription still."""
        place = self.place
        if progress.last_sent >= self.sequence:
            place.unstored = False
        for sent in progress.sent:
            if self._has(sent.runs):
                self._sent(sent, at, taken=taken)
        if not taken or (place.known_epoch and progress.epoch != place.epoch):
            return  # who wrote it did not know yet that the subscription was taken back, or of the operator's change
        for held in progress.held:
            if not self._has(held.runs):
                continue
            place.settled = False
            if held.subscription_id:
                place.holder, place.owed = held.subscription_id, 0
                continue
            self._owe(self._told(held.cause))
            given_up = "rejected" if held.rejected else "exhausted"
            if held.exhausted and not self._was(given_up):
                self._note(given_up)
        if self._has(progress.acked):
            gone, rejected = self._has(progress.removed), self._has(progress.rejected)
            self._settle("removed" if gone else "rejected" if rejected else "acked")

    def _sent(self, sent: pb.Sent, at: int, *, taken: bool) -> None:
        place, cause = self.place, self._told(sent.cause)
        if cause is Cause.NEW and sent.count:  # a first delivery did not leave, and the next leader cannot know that
            cause = Cause.NOT_SENT
        step = admin.ExplainStep(
            what="delivered",
            at=at - sent.first_ago * MICROSECOND,
            until=at - sent.last_ago * MICROSECOND,
            cause=WORDS[cause],
            client_id=sent.client_id,
            subscription_id=sent.subscription_id,
            count=sent.count,
        )
        if not self._is_known(step):
            self.steps.append(step)
            if taken:
                place.holder, place.owed, place.settled = sent.subscription_id, 0, False

    def _is_known(self, step: admin.ExplainStep) -> bool:
        """True if an earlier entry has told of this delivery. Behind an operator's change a delivery is another one, however soon
        it comes, and so it is if it was sent after its member had left: a durable may be back within a millisecond."""
        for known in reversed(self.steps):
            if known.what in ("moved", "sent again") or (known.what == "left" and step.at > known.at):
                return False
            if known.index and (known.node, known.term) == self._leader and _is_same(step, known):
                return True
        return False

    def _was(self, what: str) -> bool:
        """True if that was the newest step."""
        return bool(self.steps) and self.steps[-1].what == what

    # --- transactions ---------------------------------------------------------------------------------------------------

    def _staged(self, change: pb.Staged, _index: int) -> None:
        if self.staged is not None and any(part.sequence == self.staged.hidden for part in change.parts):
            told = {"app": change.app, "app_version": change.version}
            self._note("staged", sequence=self.staged.hidden, at=change.at, **told)

    def _commit_done(self, change: pb.CommitDone, _index: int) -> None:
        rows = (one for one in change.rows if one.uid == self.cursor.uid)
        if self.staged is not None and any(one.first_sequence <= self.sequence <= one.last_sequence for one in rows):
            self._note("committed", at=self.staged.committed_at)

    # --- other changes --------------------------------------------------------------------------------------------------

    def _maybe_sent(self, change: pb.MaybeSent, _index: int) -> None:
        until = max((to for cursor_id, to in pairs(change.until) if cursor_id == self.cursor.cursor_id), default=0)
        if self.sequence <= until and not self.place.holder and not self.place.owed and not self.place.settled:
            self._note("maybe delivered")

    def _subscribe(self, change: pb.Subscribe, _index: int) -> None:
        cursor = self.cursor
        kind, name = kind_and_name(change.queue_group, change.durable_name)
        mine = kind is CursorKind.DURABLE and (kind, name, change.client_id) == cursor.key
        if mine and change.uid == cursor.uid and self.place.holder:
            self._owe(Cause.RESUMED)  # the new member takes the place of the one that held it

    def _leave(self, change: pb.Leave, _index: int) -> None:
        if change.subscription_id == self.place.holder:
            self._note("left", subscription_id=change.subscription_id)
            self._owe(Cause.MEMBER_GONE if self.cursor.kind.shared else Cause.RESUMED)

    def _serve(self, change: pb.Serve, index: int) -> None:
        if self.cursor.cursor_id in change.cursor_ids:
            self.place.served_since, self.place.known_server = index if change.node else 0, True

    def _move_cursor(self, change: pb.MoveCursor, index: int) -> None:
        if change.cursor_id != self.cursor.cursor_id:
            return
        place = self.place
        if change.sequence > self.sequence:
            place.unstored = False
        if not place.unstored:
            self._note("moved", sequence=change.sequence, at=change.at)
        place.holder = place.owed = 0
        place.settled = change.sequence > self.sequence
        place.epoch, place.known_epoch = index, True

    def _skip_sequences(self, change: pb.SkipSequences, index: int) -> None:
        if change.cursor_id != self.cursor.cursor_id:
            return
        if self._has(change.runs):
            self._settle("skipped")
        self.place.epoch, self.place.known_epoch = index, True

    def _send_again(self, change: pb.SendAgain, _index: int) -> None:
        held = not self.place.settled and (self.place.holder or self.place.owed)
        if change.cursor_id == self.cursor.cursor_id and held and (not change.runs or self._has(change.runs)):
            self._note("sent again")
            self._owe(Cause.MOVED)

    def _pause_cursor(self, change: pb.PauseCursor, _index: int) -> None:
        if change.cursor_id == self.cursor.cursor_id and not self.place.settled and not self.place.unstored:
            self._note("paused" if change.paused else "resumed", reason=change.reason)

    def _dead_letters(self, change: pb.DeadLetters, _index: int) -> None:
        if change.cursor_id == self.cursor.cursor_id and self._has(change.runs):
            self._settle("dead letter")

    def _removal(self, change: pb.Removal, _index: int) -> None:
        gone = change.uid == self.cursor.uid and any(
            first <= self.sequence <= last for first, last in removed_runs(change.first_sequence, change.deleted)
        )
        if gone:
            self._settle("removed")

    def _expiring(self, change: pb.Expiring, _index: int) -> None:
        if change.uid == self.cursor.uid:
            for (first, last), at in zip(pairs(change.runs), change.at, strict=True):
                if first <= self.sequence <= last:
                    self.place.expires, self.place.unstored = at, False

    def _expired(self, change: pb.Expired, _index: int) -> None:
        here = any(uid == self.cursor.uid and self.sequence <= upto for uid, upto in pairs(change.channels))
        if here and 0 < self.place.expires <= change.until:
            self._settle("expired")

    def _trim(self, change: pb.Trim, _index: int) -> None:
        if any(uid == self.cursor.uid and first > self.sequence for uid, first in pairs(change.first_sequences)):
            self._settle("removed")


def _is_same(step: admin.ExplainStep, known: admin.ExplainStep) -> bool:
    return (
        known.what == step.what
        and (known.subscription_id, known.count) == (step.subscription_id, step.count)
        and step.cause in (known.cause, WORDS[Cause.OWED])
        and known.at - SAME_DELIVERY < step.at < known.until + SAME_DELIVERY
    )
