"""The data source `stan` for Spark: channels as a batch and streaming source, and as a sink.

spark.readStream.format("stan").option("servers", "nats://127.0.0.1:4222").load("orders")

Spark finds this package by its name and looks up `DefaultSource` in it; where Spark does not find it (files shipped by
--py-files), call `register`. Spark imports every `pyspark_*` package, and one that raises would break all data sources: so
importing this package loads nothing and never fails. Its attributes are loaded when they are first used; the stub
`__init__.pyi` says in which module each of them is, for this file and for type checkers.
"""

import re
from importlib import import_module
from pkgutil import get_data
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        stub = (get_data(__name__, "__init__.pyi") or b"").decode()
        where = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)}
        if name == "__all__":
            return sorted([*where, "register"])
        if name in where:
            return getattr(import_module(where[name]), name)
    # pyspark, pyarrow or the client is missing, or the stub: Spark looks for the attribute with hasattr
    except (ImportError, OSError) as error:
        raise AttributeError(f"pyspark_stan.{name} cannot be used: {error}") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: "SparkSession") -> None:
    """Register the format `stan` in a session that has not found it by itself."""
    spark.dataSource.register(import_module("pyspark_stan.datasource").StanDataSource)
