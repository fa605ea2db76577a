"""Two pipelines that work as they are: a TOML file each, and what makes up the data that they read.

`stan pipeline examples` writes the files out, `stan pipeline feed` publishes the data.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Final


@dataclass(frozen=True, slots=True)
class Example:
    """One pipeline: `<name>.toml`, and a module of the same name with `CHANNEL` and `messages(seed)`."""

    name: str
    title: str

    @property
    def toml(self) -> str:
        """The pipeline's file."""
        return (files(__name__) / f"{self.name}.toml").read_text(encoding="utf-8")

    @property
    def channel(self) -> str:
        """Where its data goes."""
        return str(importlib.import_module(f"{__name__}.{self.name}").CHANNEL)

    def messages(self, seed: int) -> Iterator[bytes]:
        """Its data, without an end; the same for the same seed."""
        found: Iterator[bytes] = importlib.import_module(f"{__name__}.{self.name}").messages(seed)
        return found


EXAMPLES: Final = {
    example.name: example
    for example in (
        Example("clicks", "clicks per page in windows of ten seconds, events that come late included"),
        Example("orders", "a table of orders, kept up to date from events and published as a changelog"),
    )
}
