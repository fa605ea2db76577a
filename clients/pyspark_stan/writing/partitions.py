"""Sends each row to the part of its channel that its column `partition` names. Loaded only with the option `includePartition`.

Rows without a number go where their keys belong, as all rows do without the option.
"""

from operator import methodcaller

import pyarrow as pa
from stan_protocol.channels import part_name, whole_and_part
from stan_protocol.parted import can_have_parts

from pyspark_stan import transport
from pyspark_stan.options import ConnectionOptions


class Partitions:
    """The parts of the channels to which a task writes, requested once for each channel."""

    def __init__(self, connection: ConnectionOptions) -> None:
        self._connection = connection
        self._parts: dict[bytes, int] = {}  # of each channel; 0: it has none

    def channels(self, channels: list[bytes | None], partitions: list[int | None]) -> tuple[pa.Array, pa.Array]:
        """Return the names of parts, or of channels where there is no number, and a mask of the rows whose channel has no such
        part. A channel without parts is 0, as the source has it, and the name of a part may come with its number."""
        names, wrong = list(channels), [False] * len(channels)
        for row, (channel, number) in enumerate(zip(channels, partitions, strict=True)):
            if channel is None or number is None:
                continue
            part = whole_and_part(channel)
            parts = 0 if part else self._parts_of(channel)
            if 0 <= number < parts:
                names[row] = part_name(channel, number)
            else:
                wrong[row] = parts > 0 or number != (part[1] if part else 0)
        return pa.array(names, pa.binary()), pa.array(wrong, pa.bool_())

    def _parts_of(self, channel: bytes) -> int:
        if channel not in self._parts:
            ask = methodcaller("parts", channel.decode())
            parted = transport.with_reconnect(self._connection, ask) if can_have_parts(channel) else []
            self._parts[channel] = parted[0].parts if parted else 0
        return self._parts[channel]
