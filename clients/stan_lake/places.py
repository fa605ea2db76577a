"""The names of the objects that a table has for readers of Iceberg. Pure."""

import re
from typing import Final

METADATA: Final = "metadata"
"""The directory of all but the manifests of chunks."""
ENTRANCE: Final = re.compile(r"v(\d+)\.metadata\.json")
"""Where readers begin, in that directory."""


def objects_of(version: int) -> list[str]:
    """Return the paths of the objects of a version; readers begin with the last one, and take no other of a crash for it."""
    names = "deletes.parquet", "deletes.avro", "files.avro", "list.avro"
    return [*(f"{METADATA}/{version}-{name}" for name in names), f"{METADATA}/v{version}.metadata.json"]


def chunk_manifest(name: str) -> str:
    """Return the name of Iceberg's manifest of a chunk."""
    return f"{name.removesuffix('.json')}.avro"
