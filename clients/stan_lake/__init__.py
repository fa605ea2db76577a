"""A lake beside the broker: old messages of channels, as Parquet files that any program reads (see docs/lake.md)."""

from stan_lake.errors import LakeError, TakenOverError
from stan_lake.manifest import DataFile, TableManifest
from stan_lake.store import Store, open_store
from stan_lake.table import LakeTable, channels, incarnations

__all__ = [
    "DataFile",
    "LakeError",
    "LakeTable",
    "Store",
    "TableManifest",
    "TakenOverError",
    "channels",
    "incarnations",
    "open_store",
]
