"""The format `stan`: who reads and who writes. Each part is loaded by the process that needs it."""
# ruff: noqa: PLC0415

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from pyspark_stan.source import StanStreamReader


class StanDataSource(DataSource):
    """`spark.read.format("stan")` and its three relatives."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "stan"

    def schema(self) -> "StructType":
        """All columns there are; `headers` if it is asked for. Refuses options that no read can have."""
        from pyspark_stan.options import source_options
        from pyspark_stan.schema import full_schema

        return full_schema(headers=source_options(self.options).headers)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """For `spark.read`."""
        from pyspark_stan.pushdown import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "StanStreamReader":  # noqa: N802 - Spark's name
        """For `spark.readStream`."""
        from pyspark_stan.source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":  # noqa: FBT001 - Spark's
        """For `df.write`."""
        from pyspark_stan.sink import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> "DataSourceStreamArrowWriter":
        """For `df.writeStream`."""
        from pyspark_stan.sink import stream_writer

        return stream_writer(dict(self.options), schema, overwrite)
