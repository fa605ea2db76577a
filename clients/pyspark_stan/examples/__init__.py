"""Two example pipelines: for each a TOML file, and a module that generates the messages that it reads.

`stan pipeline examples` writes the files out, `stan pipeline feed` publishes the data.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Final


@dataclass(frozen=True, slots=True)
class Example:
    """An example pipeline: `<name>.toml`, and a module of the same name with `CHANNEL` and `messages(seed)`."""

    name: str
    title: str

    @property
    def toml(self) -> str:
        """The text of the pipeline's file."""
        return (files(__name__) / f"{self.name}.toml").read_text(encoding="utf-8")

    @property
    def channel(self) -> str:
        """The channel that the pipeline reads."""
        return str(importlib.import_module(f"{__name__}.{self.name}").CHANNEL)

    def messages(self, seed: int) -> Iterator[bytes]:
        """Generate messages for the channel without an end; the same ones for the same *seed*."""
        messages: Iterator[bytes] = importlib.import_module(f"{__name__}.{self.name}").messages(seed)
        return messages


EXAMPLES: Final = {
    example.name: example
    for example in (
        Example("clicks", "clicks per page in windows of ten seconds, events that come late included"),
        Example("orders", "a table of orders, kept up to date from events and published as a changelog"),
    )
}
