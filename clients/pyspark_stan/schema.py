"""The columns of a read: all of them, or those of a schema that the user gives."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_stan.errors import OptionsError

HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: Final[dict[str, DataType]] = {
    "channel": StringType(),
    "sequence": LongType(),
    "timestamp": TimestampType(),
    "value": BinaryType(),
    "reply": StringType(),  # null: none
    "headers": ArrayType(HEADER),  # empty: none
    "key": BinaryType(),  # null: none
    "partition": IntegerType(),  # of a channel with parts the part's number; of others 0
}
NULLABLE: Final = ("reply", "key")


def full_schema(*, headers: bool = False, key: bool = False, partition: bool = False) -> StructType:
    """Return the columns of a read for which the user gives no schema; arguments: these columns, too."""
    optional = {"headers": headers, "key": key, "partition": partition}
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items() if optional.get(name, True)])


def check_schema(schema: StructType) -> None:
    """Refuse columns that a read cannot have.

    Raises:
        OptionsError: has all mistakes in *schema*.
    """
    complaints = []
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            complaints.append(f"schema: no column {field.name}; there are {', '.join(COLUMNS)}")
        elif field.dataType != kind:
            complaints.append(f"schema: {field.name} is {kind.simpleString()}, not {field.dataType.simpleString()}")
        elif field.name in NULLABLE and not field.nullable:
            complaints.append(f"schema: {field.name} is null where there is none")
    if len(set(schema.names)) < len(schema.names):
        complaints.append("schema: a column comes twice")
    if complaints:
        raise OptionsError(complaints)
