"""Values that are JSON objects in text: which of them can be read, and what lies at a path of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import uuid4

from pyspark.sql import Column, DataFrame  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253
from pyspark.sql.types import ArrayType, StringType, StructField, StructType  # noqa: TID253

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


def with_paths(df: DataFrame, text: str, paths: Iterable[str], readable: str) -> tuple[DataFrame, dict[str, Column]]:
    """Add `readable`, whether the text is a JSON object and nothing else; build the columns for what lies at each path.

    What lies there is given as text, an object as JSON, and JSON's null as NULL. It is NULL where the text cannot be
    read, even if the part up to the path could.
    """
    names = {path: name for path in dict.fromkeys(paths) if (name := _top_level(path)) is not None}
    end = uuid4().hex
    fields = [StructField(name, StringType()) for name in (*dict.fromkeys(names.values()), end)]
    # Spark stops reading where the first value ends. Only if the text is one object and nothing else, an object that
    # we write behind it, with a name that no text can foresee, is the second and last one of an array.
    array = f.concat(f.lit("["), f.col(text), f.lit(f',{{"{end}":""}}]'))
    parsed = f.from_json(array, ArrayType(StructType(fields)), _STRICT)
    with_parsed = df.withColumn(_PARSED, parsed)
    first, second = (f.get(f.col(_PARSED), f.lit(place)) for place in (0, 1))
    fine = f.coalesce(first.isNotNull() & second.getField(end).isNotNull(), f.lit(False))

    def column(path: str) -> Column:
        if path in names:
            return f.when(fine, first.getField(names[path]))
        return f.when(fine, f.get_json_object(f.col(text), path))

    return with_parsed.withColumn(readable, fine), {path: column(path) for path in paths}


def _top_level(path: str) -> str | None:
    match = _TOP.fullmatch(path)
    return match and (match.group(1) or match.group(2))
