"""Subjects of another protocol than STAN's on which this node listens, and the takers of their frames."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from stan_protocol.frames import Frame, StreamAcks, StreamMessages, StreamSubject

Taker = Callable[[Frame], None]


@dataclass(slots=True)
class ListenedSubjects:
    """The subjects, which come and go while the node runs."""

    takers: dict[str, Taker] = field(default_factory=dict)
    streams: dict[str, StreamSubject] = field(
        default_factory=dict
    )  # subjects whose frames come as batches, if they can
    acks: str = ""  # the subject of acks to consumers, which come as batches, if they can; "": none
    followers: list[Callable[[], None]] = field(default_factory=list)  # called when subjects have changed
    take_messages: Callable[[StreamMessages], None] = lambda _messages: None
    take_acks: Callable[[StreamAcks], None] = lambda _acks: None

    @property
    def subjects(self) -> Mapping[str, Taker]:
        """The subjects as they are now, each with the taker of its frames."""
        return MappingProxyType(self.takers)

    def change(self, takers: Mapping[str, Taker], streams: Mapping[str, StreamSubject]) -> None:
        """Listen on the subjects of *takers*, and on no others. *streams*: those of them whose frames may come as batches."""
        if takers.keys() != self.takers.keys() or streams != self.streams:
            self.takers, self.streams = dict(takers), dict(streams)
            for follow in self.followers:
                follow()
