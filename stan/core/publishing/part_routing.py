"""Publishes to a channel that has parts become publishes to its parts, in every node and before anything else is done with them.

    orders: 7 messages ─► by key (else by what JSON data says, else by client id) ─► orders.~0: 4, orders.~3: 3

Where a message belongs is decided by the registry alone, so all nodes decide alike, whoever leads and whenever they replay; from
here on a part is a channel like others. What is published to a part itself has to belong there.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from stan_protocol.channels import part_name
from stan_protocol.frames import Publishes
from stan_protocol.parted import key_in, part_of
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import PARTS_DOUBLING, WRONG_PART, go_quote, not_permitted

from stan.core.base.batch_split import owner_of, split
from stan.core.base.names import text
from stan.core.metadata.meta import MetaMachine
from stan.core.metadata.parted import Parted
from stan.core.publishing.live_channel import LiveChannel
from stan.core.services.services import Services
from stan.permissions import Right
from stan.protocol.kernel import server as kernel
from stan.remembered import Remembered

LENGTH_BYTES = 4
"""Before each body of `Publishes.bodies`."""
NO_KEY = -1
"""In place of a part."""


def rows_refusal(meta: MetaMachine, channel: LiveChannel, rows: bytes) -> str:
    """Why rows cannot be stored in a channel: it is a part to which the key of one does not belong, or is being doubled; "" if
    they can. Rows without a key are wherever who sends them wants."""
    found = meta.channels.parted.by_part.get(channel.info.name)
    if found is None:
        return ""
    whole, number = found
    if channel.unsealed.halted:
        return PARTS_DOUBLING
    if all(part in (NO_KEY, number) for part in _by_keys(whole, rows, *kernel.slots(rows))):
        return ""
    return WRONG_PART.format(go_quote(text(channel.info.name)), go_quote(text(whole.name)))


def _by_keys(whole: Parted, bodies: bytes, slots: bytes, ends: bytes) -> Iterator[int]:
    """The part of each of *bodies* by its key, or by what its JSON data says; NO_KEY if it has neither. *slots*, *ends*: as
    `kernel.slots` tells."""
    start = LENGTH_BYTES
    for slot, end in zip(array("H", slots), array("I", ends), strict=True):
        if slot != kernel.NO_SLOT:
            yield slot % whole.parts
        else:
            key = key_in(wire.MsgProto.FromString(bodies[start:end]).data, whole.path) if whole.path else b""
            yield part_of(key, whole.parts) if key else NO_KEY
        start = end + LENGTH_BYTES


class PartRouting:
    """Divides publishes among the parts of channels."""

    def __init__(self, services: Services) -> None:
        self.faults, self.node, self.outgoing = services.faults, services.node, services.outgoing
        self.placement, self.senders = services.placement, services.senders
        self._slots: Remembered[bytes, int] = Remembered()  # of client ids

    def routed(self, batches: Iterable[Publishes]) -> list[Publishes]:
        """What of *batches* is to be taken, by part. Called only where a channel has parts."""
        found: list[Publishes] = []
        for batch in batches:
            part = self.node.meta.channels.parted.by_part.get(batch.channel)
            try:
                found += self._divided(batch) if part is None else self._fitting(batch, *part)
            except Exception as error:  # noqa: BLE001 - the border of the groups that the parts are in
                self._fail(batch.channel, error)
        return found

    def divided(self, batch: Publishes) -> list[Publishes]:
        """One batch by part, whatever was said of its messages before. What was published to a part itself may not belong there
        any more."""
        try:
            return self._divided(batch)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(batch.channel, error)
            return []

    def _fail(self, channel: bytes, error: Exception) -> None:
        """A batch could not be divided, maybe because of what is in it, which all nodes hear: the groups that would store it are
        frozen, and neither the metadata nor other groups."""
        whole = self.node.meta.channels.parted.by_name.get(channel)
        names = (channel,) if whole is None else whole.names()
        for number in sorted({self.placement.group_number(name) for name in names}):
            self.faults.fail(number, error)

    def _divided(self, batch: Publishes) -> list[Publishes]:
        whole = self.node.meta.channels.parted.by_name.get(batch.channel)
        if whole is None:
            return [batch]
        numbers = self.parts_of(whole, batch)
        first = numbers[0]
        if numbers.count(first) == batch.count:
            return [replace(batch, channel=part_name(whole.name, first))]
        divided = kernel.divide(batch, numbers)
        return [replace(divided[number], channel=part_name(whole.name, number)) for number in sorted(divided)]

    def _fitting(self, batch: Publishes, whole: Parted, number: int) -> list[Publishes]:
        """What of a batch for a part belongs there; the rest is refused."""
        numbers = self.parts_of(whole, batch)
        fitting, acks = split(batch, [one == number for one in numbers])
        if acks and self.node.leads(self.placement.group_number(batch.channel)):
            other, _ = split(batch, [one != number for one in numbers])
            if other is not None:
                self._refuse(other, whole)
        return [] if fitting is None else [fitting]

    def _refuse(self, batch: Publishes, whole: Parted) -> None:
        """Refuse what belongs to other parts; who may not publish there is told just that, and nothing of parts."""
        group, authorizer = self.placement.group_number(batch.channel), self.senders.authorizer
        permitted: Publishes | None = batch
        if authorizer is not None:
            permitted, acks = kernel.select(batch, authorizer.may_publish(batch))
            error = not_permitted(Right.PUBLISH.value, text(whole.name))
            self.outgoing.answer_as_leader(group, kernel.refuse(acks, error.encode()))
        if permitted is not None:
            error = WRONG_PART.format(go_quote(text(batch.channel)), go_quote(text(whole.name)))
            self.outgoing.answer_as_leader(group, kernel.refuse(permitted.acks, error.encode()))

    def parts_of(self, whole: Parted, batch: Publishes) -> Sequence[int]:
        """The part of each message."""
        slots, ends = kernel.slots(batch.bodies)
        found = array("H", slots)
        if kernel.NO_SLOT not in found:
            return [slot % whole.parts for slot in found]
        by_publisher = [self._slot_of(client_id) % whole.parts for client_id, _ in batch.publishers]
        if not whole.path and len(by_publisher) == 1 and found.count(kernel.NO_SLOT) == batch.count:
            return by_publisher * batch.count
        return [
            by_publisher[owner_of(batch, at)] if part == NO_KEY else part
            for at, part in enumerate(_by_keys(whole, batch.bodies, slots, ends))
        ]

    def _slot_of(self, client_id: bytes) -> int:
        found = self._slots.get(client_id)
        return (
            self._slots.remember(client_id, part_of(client_id, kernel.SLOTS), len(client_id))
            if found is None
            else found
        )
