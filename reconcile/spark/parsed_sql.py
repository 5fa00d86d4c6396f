"""A contract's SQL as Spark's own parser reads it, before Spark runs it: what it calls, and what it asks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reconcile.domain import sql_calls
from reconcile.domain.sql_calls import SPARK
from reconcile.errors import RefusedError
from reconcile.spark import internals

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_PLANS = "org.apache.spark.sql.catalyst.plans.logical."
_SCHEME = re.compile("^file:(//)?(?=/)")
_CALLS = ("UnresolvedFunction", "UnresolvedTableValuedFunction", "UnresolvedGenerator")


def expression(spark: SparkSession, text: str) -> Column:
    """Build the column that an expression of a contract gives; raise RefusedError where it calls what it may not."""
    from pyspark.sql import functions as f

    require_calls(spark, text)
    return f.expr(f"(\n{text}\n)")


def require_calls(spark: SparkSession, text: str, *, folder: str | None = None) -> None:
    """Raise RefusedError for SQL that calls what a contract may not, both as we and as Spark reads it.

    An expression asks no table, and a query over a `folder` no file elsewhere; what Spark cannot read is raised as
    Spark does.
    """
    query = folder is not None
    try:
        sql_calls.require_calls(text, SPARK, tables=query)
        for node in _nodes(json.loads(internals.parsed(spark, text, query=query))):
            _require_harmless(node, query)
            if folder is not None and str(node["class"]).endswith(".UnresolvedRelation"):
                _require_within(str(node["multipartIdentifier"]), folder)
    except ValueError as error:
        raise RefusedError(f"{error}, in the contract's SQL: {text}") from None


def _require_harmless(node: dict[str, Any], query: bool) -> None:
    kind = str(node["class"])
    if kind.endswith("ScriptTransformation"):
        raise ValueError("a script would be run")
    if kind.startswith(_PLANS) and not query:
        raise ValueError("a table would be asked: an expression is about one row")
    if kind.endswith(_CALLS):
        name = str(node.get("nameParts") or node.get("name")).strip("[]")
        if re.search(r"\w", name):  # the others are operators
            sql_calls.require_functions([name], SPARK)


def _require_within(identifier: str, folder: str) -> None:
    """Look at what a query asks for: a name that it makes itself, or `[format, path]`."""
    path = identifier[1:-1].partition(", ")[2]
    above, place = (_SCHEME.sub("", each).rstrip("/") for each in (folder, path))
    # A backslash takes the meaning from a letter, and leaves two dots what they are.
    if path and (".." in path or "\\" in path or not f"{place}/".startswith(f"{above}/")):
        raise ValueError(f"{path} is not in the folder {folder}, and a query asks for nothing else")


def _nodes(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, dict):
        if "class" in found:
            yield found
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from _nodes(each)
