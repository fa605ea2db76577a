"""The driver's requests to the broker about the channels of a read, and a stream's looks at them."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Final, TypeVar

from stan_client.errors import ServerError, StanClientError
from stan_client.reading.channels import ChannelInfo
from stan_protocol.scalars import MILLISECOND

from pyspark_stan.errors import OptionsError
from pyspark_stan.options import ReadBound, SourceOptions
from pyspark_stan.reading.offsets import Offset, Resolver, behind
from pyspark_stan.reading.parts import Infos, Parts
from pyspark_stan.transport import PASSING, with_retries

if TYPE_CHECKING:
    from stan_client.blocking import BlockingClient
    from stan_protocol.admin_types import PartedStatus

    from pyspark_stan.reading.cold import Cold

log: Final = logging.getLogger("pyspark_stan")

IDLE_WAIT_S: Final = 0.05
"""How long the broker may delay its answer until there are new messages, if there were none at the last request."""

T = TypeVar("T")


class ReadChannels:
    """The driver's requests to the broker about the channels of a read; failures are retried as the options say."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._nameless: set[str] = set()  # channels with a name that is not UTF-8, of which the log has a line
        self.parts = Parts(options.channels)
        self.cold = _cold(options)

    def infos(self, newer_than: Mapping[str, int] | None = None, wait_s: float = 0) -> Infos:
        """Return the state of each channel of the read that exists. The broker answers after *wait_s*, or as soon as a channel
        has a message newer than *newer_than* says."""
        infos = self._requested(newer_than, wait_s)
        while unknown := self.parts.unknown(infos):
            before = self.parts.requested()
            for name in unknown:
                self.parts.learn(name, infos, self._parts_of(name))
            if self.parts.requested() != before:
                infos = self._requested(newer_than)
        if not self._options.pattern:
            infos = {name: info for name, info in infos.items() if self.parts.reads(name)}
        return infos if self.cold is None else self.cold.extended(infos)

    def _requested(self, newer_than: Mapping[str, int] | None = None, wait_s: float = 0) -> Infos:
        names, asked, pattern = self.parts.requested(), self._options.asked, self._options.pattern
        infos = self._ask(lambda client: client.info(names, pattern=asked, newer_than=newer_than, wait_s=wait_s))
        if not pattern:
            return infos
        matches = re.compile(pattern).fullmatch
        return {name: info for name, info in infos.items() if matches(name) and self._has_text(name)}

    def _parts_of(self, channel: str) -> "list[PartedStatus]":
        try:
            return self._ask(methodcaller("parts", channel))
        except ServerError as error:  # who may read parts need not have a right to the whole
            log.info("the parts of %s are not known: %s", channel, error)
            return []

    def resolved(
        self, infos: Infos, place: ReadBound, option: str, missing: Sequence[str] = ()
    ) -> tuple[dict[str, int], list[str]]:
        """Return the sequence of a start or an end for each channel, and complaints that failOnDataLoss=false makes bearable.

        Args:
            infos: the channels.
            place: as the user has given it.
            option: its name in complaints.
            missing: further channels, which do not exist.

        Raises:
            OptionsError: *place* has a sequence for all parts of a channel.
        """
        of_parts, complaints = self.parts.bound(place, infos, option)
        if complaints:
            raise OptionsError(complaints)
        return self.resolver(infos).resolve({*infos, *missing}, of_parts, option)

    def _has_text(self, name: str) -> bool:
        """Return True if the channel's name is UTF-8, as Spark needs it; NATS accepts any bytes."""
        try:
            name.encode()
        except UnicodeEncodeError:
            if name not in self._nameless:
                log.warning("channel %r is not read: its name is not UTF-8", name)
            self._nameless.add(name)
            return False
        return True

    def resolver(self, infos: Infos) -> Resolver:
        """Return a resolver of the user's start and end in these channels."""

        def at(channel: str, time_ns: int) -> int:
            return self._ask(lambda client: client.sequence_at(channel, time_ns))

        return Resolver(infos, at) if self.cold is None else self.cold.resolver(infos, at)

    def report(self, end: Offset) -> None:
        """Report the position of the query to the broker, for monitoring only: a failure is written to the log."""
        uids = end.incarnations
        positions = {name: position for name, position in end.positions.items() if name in uids}
        read_ns = {name: (read_ms + 1) * MILLISECOND - 1 for name, read_ms in end.read_ms.items()}
        try:
            self._ask(
                lambda client: client.set_bookmark(
                    self._options.consumer, positions, uids=uids, cluster=end.cluster, read_ns=read_ns
                )
            )
        except (StanClientError, *PASSING) as error:
            log.warning("the position of %s is not told: %s", self._options.consumer, error)

    def _ask(self, call: "Callable[[BlockingClient], T]") -> T:
        return with_retries(self._options.connection, self._options.retries, self._options.retry_pause_s, call)


class Looks:
    """A stream's looks at its channels. One request says which there are and where they end, and about each position how new the
    message before it is (`position_time_ns`, of which a lost end is known) and which one is next (`next`, behind a hole)."""

    def __init__(self, channels: ReadChannels) -> None:
        self._channels = channels
        self._frozen: Infos | None = None
        self._resting: tuple[Mapping[str, int], Mapping[str, int]] = {}, {}  # as of `rest`

    @property
    def are_frozen(self) -> bool:
        """True if ends and what else the channels had are those of an earlier time."""
        return self._frozen is not None

    def freeze(self) -> None:
        """Look at the channels, for all later looks."""
        self._frozen = self._channels.infos()

    def first(self) -> Infos:
        """Return the channels, without positions in them."""
        return self._channels.infos() if self._frozen is None else self._frozen

    def rest(self, begin: Offset, read_on: Mapping[str, int]) -> None:
        """Note that there was nothing to read from *begin* on but holes up to *read_on*: the next look at *begin* lets the broker
        wait for messages there."""
        if self._frozen is None:
            self._resting = begin.positions, read_on

    def at(self, begin: Offset) -> Infos:
        """Return the channels, with the time and the next message of each position of *begin*; 0 where that is not known."""
        rests = begin.positions == self._resting[0]
        asked = self._resting[1] if rests else begin.positions
        infos = self._channels.infos(_before(asked), IDLE_WAIT_S if rests else 0)
        if any(behind(info) < asked.get(name, 0) for name, info in infos.items()):
            asked = begin.positions  # an answer that was under way may be older than the position
            infos = self._channels.infos(_before(asked))
        if self._frozen is None:
            others = {name for name, at in asked.items() if begin.positions.get(name) != at}
            return {n: info._replace(position_time_ns=0) if n in others else info for n, info in infos.items()}
        return {name: _around(info, infos.get(name)) for name, info in self._frozen.items()}


def _before(positions: Mapping[str, int]) -> dict[str, int]:
    return {name: position - 1 for name, position in positions.items()}


def _around(frozen: ChannelInfo, now: ChannelInfo | None) -> ChannelInfo:
    """Return a channel of earlier with the messages around the position as they are now, and the losses since."""
    if now is None or (now.uid, now.cluster) != (frozen.uid, frozen.cluster):
        return frozen
    following = min(now.next, behind(frozen))
    return frozen._replace(position_time_ns=now.position_time_ns, next=following, lost_until=now.lost_until)


def _cold(options: SourceOptions) -> "Cold | None":
    """Return the lake of a read, if it has one. Raises OptionsError."""
    if not options.cold:
        return None
    from pyspark_stan.reading.cold import Cold  # noqa: PLC0415 - only with the option `cold`

    return Cold(options.cold)
