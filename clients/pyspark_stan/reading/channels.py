"""The driver's requests to the broker about the channels of a read."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Final, TypeVar

from stan_client.errors import ServerError, StanClientError
from stan_protocol.scalars import MILLISECOND

from pyspark_stan.errors import OptionsError
from pyspark_stan.options import ReadBound, SourceOptions
from pyspark_stan.reading.offsets import Offset, Resolver
from pyspark_stan.reading.parts import Infos, Parts
from pyspark_stan.transport import PASSING, with_retries

if TYPE_CHECKING:
    from stan_client.blocking import BlockingClient
    from stan_protocol.admin_types import PartedStatus

    from pyspark_stan.reading.cold import Cold

log: Final = logging.getLogger("pyspark_stan")

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
                infos = self._requested()
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


def _cold(options: SourceOptions) -> "Cold | None":
    """Return the lake of a read, if it has one. Raises OptionsError."""
    if not options.cold:
        return None
    from pyspark_stan.reading.cold import Cold  # noqa: PLC0415 - only with the option `cold`

    return Cold(options.cold)
