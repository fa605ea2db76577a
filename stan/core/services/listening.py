"""Subjects of another protocol than STAN's on which this node listens, and the takers of their frames."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from stan_protocol.frames import Frame

Taker = Callable[[Frame], None]


@dataclass(slots=True)
class ListenedSubjects:
    """The subjects, which come and go while the node runs."""

    takers: dict[str, Taker] = field(default_factory=dict)
    followers: list[Callable[[], None]] = field(default_factory=list)  # called when subjects have changed

    @property
    def subjects(self) -> Mapping[str, Taker]:
        """The subjects as they are now, each with the taker of its frames."""
        return MappingProxyType(self.takers)

    def change(self, takers: Mapping[str, Taker]) -> None:
        """Listen on the subjects of *takers*, and on no others."""
        if takers.keys() != self.takers.keys():
            self.takers = dict(takers)
            for follow in self.followers:
                follow()
