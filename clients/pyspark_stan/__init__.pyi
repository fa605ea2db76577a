from pyspark.sql import SparkSession
from stan_client.errors import DataLossError as DataLossError

from pyspark_stan.datasource import DefaultSource as DefaultSource
from pyspark_stan.datasource import StanDataSource as StanDataSource
from pyspark_stan.errors import IdentityError as IdentityError
from pyspark_stan.errors import MalformedError as MalformedError
from pyspark_stan.errors import NoJavaError as NoJavaError
from pyspark_stan.errors import OptionsError as OptionsError
from pyspark_stan.errors import RowError as RowError
from pyspark_stan.errors import TableError as TableError
from pyspark_stan.errors import UnreachableError as UnreachableError
from pyspark_stan.java import ensure_java as ensure_java
from pyspark_stan.payloads.column import from_avro as from_avro
from pyspark_stan.payloads.column import from_protobuf as from_protobuf
from pyspark_stan.payloads.column import to_avro as to_avro
from pyspark_stan.pipeline.table import read_table as read_table
from pyspark_stan.reading.metrics import StanQueryListener as StanQueryListener
from pyspark_stan.reading.metrics import lag as lag
from pyspark_stan.reading.metrics import lag_bytes as lag_bytes
from pyspark_stan.reading.metrics import lag_seconds as lag_seconds
from pyspark_stan.tables.delta import to_delta as to_delta
from pyspark_stan.tables.iceberg import to_iceberg as to_iceberg
from pyspark_stan.writing.each_batch import foreach_batch as foreach_batch

def register(spark: SparkSession) -> None: ...
