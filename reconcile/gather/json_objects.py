"""Values that are JSON objects in text: which of them can be read, and what lies at a path of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TOP = re.compile(r"\$(?:\.(\w+)|\['([^']+)'\])")
# As strict as the standard: Spark would also take what no consumer's parser takes.
_STRICT = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "allowUnquotedFieldNames": "false",
    "allowComments": "false",
}
_PARSED = "_parsed"
_PROBE = "_"


def with_paths(df: DataFrame, text: str, paths: Iterable[str], readable: str) -> tuple[DataFrame, dict[str, Column]]:
    """Add `readable`, whether the text is a JSON object and nothing else; give the columns for what lies at each path.

    What lies there is given as text, an object as JSON, and JSON's null as NULL. It is NULL where the text cannot be
    read, even if the part up to the path could.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    names = {path: name for path in dict.fromkeys(paths) if (name := _top_level(path)) is not None}
    fields = [StructField(name, StringType()) for name in dict.fromkeys(names.values())]
    schema = ArrayType(StructType(fields or [StructField(_PROBE, StringType())]))
    # Spark stops reading at the end of the first object. In an array it must go on, and sees what does not belong.
    parsed = f.from_json(f.concat(f.lit("["), f.col(text), f.lit("]")), schema, _STRICT)
    # Trimmed only where that can matter: it costs as much as the parsing of a short value.
    closed = f.endswith(f.col(text), f.lit("}")) | f.endswith(
        f.expr(rf"trim(trailing ' \t\r\n' from {text})"), f.lit("}")
    )
    with_parsed = df.withColumn(_PARSED, f.when(closed, parsed))
    first = f.get(f.col(_PARSED), f.lit(0))
    fine = f.coalesce((f.size(f.col(_PARSED)) == 1) & first.isNotNull(), f.lit(False))

    def column(path: str) -> Column:
        if path in names:
            return f.when(fine, first.getField(names[path]))
        return f.when(fine, f.get_json_object(f.col(text), path))

    return with_parsed.withColumn(readable, fine), {path: column(path) for path in paths}


def _top_level(path: str) -> str | None:
    match = _TOP.fullmatch(path)
    return match and (match.group(1) or match.group(2))
