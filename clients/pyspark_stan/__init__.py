"""The data source `stan` for Spark: channels as a batch and streaming source, and as a sink.

spark.readStream.format("stan").option("servers", "nats://127.0.0.1:4222").load("orders")

Spark finds this package by its name and looks up `DefaultSource` in it; where Spark does not find it (files shipped by
--py-files), call `register`. Spark imports every `pyspark_*` package, and one that raises would break all data sources: so
importing this package loads nothing and never fails. Its attributes are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from stan_client.errors import DataLossError

    from pyspark_stan.datasource import StanDataSource
    from pyspark_stan.datasource import StanDataSource as DefaultSource
    from pyspark_stan.errors import (
        IdentityError,
        MalformedError,
        NoJavaError,
        OptionsError,
        RowError,
        TableError,
        UnreachableError,
    )
    from pyspark_stan.java import ensure_java
    from pyspark_stan.payloads.column import from_avro, from_protobuf, to_avro
    from pyspark_stan.pipeline.table import read_table
    from pyspark_stan.reading.metrics import StanQueryListener, lag
    from pyspark_stan.tables.delta import to_delta
    from pyspark_stan.tables.iceberg import to_iceberg
    from pyspark_stan.writing.each_batch import foreach_batch

__all__ = [
    "DataLossError",
    "DefaultSource",
    "IdentityError",
    "MalformedError",
    "NoJavaError",
    "OptionsError",
    "RowError",
    "StanDataSource",
    "StanQueryListener",
    "TableError",
    "UnreachableError",
    "ensure_java",
    "foreach_batch",
    "from_avro",
    "from_protobuf",
    "lag",
    "read_table",
    "register",
    "to_avro",
    "to_delta",
    "to_iceberg",
]

_WHERE = {
    "DataLossError": ("stan_client.errors", "DataLossError"),
    "IdentityError": ("pyspark_stan.errors", "IdentityError"),
    "MalformedError": ("pyspark_stan.errors", "MalformedError"),
    "NoJavaError": ("pyspark_stan.errors", "NoJavaError"),
    "OptionsError": ("pyspark_stan.errors", "OptionsError"),
    "RowError": ("pyspark_stan.errors", "RowError"),
    "TableError": ("pyspark_stan.errors", "TableError"),
    "UnreachableError": ("pyspark_stan.errors", "UnreachableError"),
    "DefaultSource": ("pyspark_stan.datasource", "StanDataSource"),
    "StanDataSource": ("pyspark_stan.datasource", "StanDataSource"),
    "StanQueryListener": ("pyspark_stan.reading.metrics", "StanQueryListener"),
    "ensure_java": ("pyspark_stan.java", "ensure_java"),
    "foreach_batch": ("pyspark_stan.writing.each_batch", "foreach_batch"),
    "from_avro": ("pyspark_stan.payloads.column", "from_avro"),
    "from_protobuf": ("pyspark_stan.payloads.column", "from_protobuf"),
    "read_table": ("pyspark_stan.pipeline.table", "read_table"),
    "to_avro": ("pyspark_stan.payloads.column", "to_avro"),
    "lag": ("pyspark_stan.reading.metrics", "lag"),
    "to_delta": ("pyspark_stan.tables.delta", "to_delta"),
    "to_iceberg": ("pyspark_stan.tables.iceberg", "to_iceberg"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    try:
        return getattr(import_module(module), attribute)
    except (
        ImportError
    ) as error:  # pyspark, pyarrow or the client is missing: Spark looks for the attribute with hasattr
        raise AttributeError(f"pyspark_stan.{name} cannot be used: {error}") from error


def register(spark: "SparkSession") -> None:
    """Register the format `stan` in a session that has not found it by itself."""
    spark.dataSource.register(import_module("pyspark_stan.datasource").StanDataSource)
