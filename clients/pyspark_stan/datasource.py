"""The format `stan`: makes the readers and writers. Each of them is loaded only in the process that needs it."""
# ruff: noqa: PLC0415

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from pyspark_stan.reading.source import StanStreamReader


class StanDataSource(DataSource):
    """The data source behind `format("stan")` of spark.read, spark.readStream, df.write and df.writeStream."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "stan"

    def schema(self) -> "StructType | str":
        """Return all columns of a read, `headers`, `key` and `partition` only on request; with the schema `auto` those of the
        registered versions, requested from the broker. Raises OptionsError, and UnreachableError."""
        from pyspark_stan.options import source_options
        from pyspark_stan.schema import full_schema

        checked = source_options(self.options)
        if checked.typed:
            from pyspark_stan.reading.registry import typed_schema

            return typed_schema(checked)
        return full_schema(headers=checked.headers, key=checked.key, partition=checked.partition)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Return the reader of `spark.read`. Raises OptionsError."""
        from pyspark_stan.reading.pushdown import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "StanStreamReader":  # noqa: N802 - Spark's name
        """Return the reader of `spark.readStream`. Raises OptionsError."""
        from pyspark_stan.reading.source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":  # noqa: FBT001 - Spark's
        """Return the writer of `df.write`. Raises OptionsError."""
        from pyspark_stan.writing.sink import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> "DataSourceStreamArrowWriter":
        """Return the writer of `df.writeStream`. Raises OptionsError."""
        from pyspark_stan.writing.sink import stream_writer

        return stream_writer(dict(self.options), schema, overwrite)


DefaultSource = StanDataSource
"""The name by which Spark looks a data source up in its package."""
