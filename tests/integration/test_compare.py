"""Comparing DataFrames: what differs and how, and the same as another program finds."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.audit import compare
from reconcile.domain.canonical import Kind
from reconcile.domain.case import FieldRule
from reconcile.spark import local_frames
from tests.integration.runs import jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# datacompy's own warnings, and the sockets that PySpark leaves to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore")

NAME, BALANCE = FieldRule("name"), FieldRule("balance", Kind.NUMERIC, tolerance=Decimal("0.01"))
RATIO = FieldRule("ratio", Kind.FLOAT)
RULES = (NAME, BALANCE, RATIO)


def side(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """Give rows in canonical form: an id, and the three fields."""
    columns = "reconcile_id string, reconcile_version string, field_0 string, field_1 string, field_2 string"
    return spark.createDataFrame([(row[0], None, *row[1:]) for row in rows], columns)


def found(source: DataFrame, copy: DataFrame) -> dict[str | None, tuple[int, int, list[bool] | None]]:
    """Compare; give how often each id stands on either side, and which fields differ."""
    rows = compare.differences(source, copy, RULES).collect()
    return {row["id"]: (row["source_count"], row["copy_count"], row["fields_differ"]) for row in rows}


def test_what_differs_is_told_field_by_field(spark: SparkSession) -> None:
    """One sided ids, changed fields, NULL that is not the empty text; and nothing of those that agree."""
    source = side(
        spark, ("same", "a", "1", "0.5"), ("name", "a", "1", None), ("gone", "a", "1", None), ("null", None, "1", "1")
    )
    copy = side(
        spark, ("same", "a", "1", "0.5"), ("name", "b", "1", None), ("new", "a", "1", None), ("null", "", "1", "1")
    )
    assert {
        "name": (1, 1, [True, False, False]),
        "gone": (1, 0, None),
        "new": (0, 1, None),
        "null": (1, 1, [True, False, False]),
    } == found(source, copy)


def test_numbers_are_compared_as_numbers(spark: SparkSession) -> None:
    """Within a tolerance; floats however they are written, NaN like itself."""
    source = side(spark, ("near", "a", "1.00", "1e3"), ("far", "a", "1.00", "1"), ("nan", "a", None, "NaN"))
    copy = side(spark, ("near", "a", "1.01", "1000.0"), ("far", "a", "1.02", "1"), ("nan", "a", None, "NaN"))
    assert {"far": (1, 1, [False, True, False])} == found(source, copy)


def test_ids_that_stand_twice_and_rows_without_one(spark: SparkSession) -> None:
    """Each is one suspect, however many rows there are, also where all of them agree."""
    source = side(spark, ("once", "a", "1", "1"), (None, "a", "1", "1"))
    copy = side(spark, ("once", "a", "1", "1"), ("once", "a", "1", "1"), (None, "a", "1", "1"), (None, "b", "1", "1"))
    assert {"once": (1, 2, [False] * 3), None: (1, 2, None)} == found(source, copy)


def test_empty_sides(spark: SparkSession) -> None:
    """Nothing differs from nothing, and everything from it."""
    rows, nothing = side(spark, ("a", "a", "1", "1")), side(spark)
    assert {} == found(nothing, nothing)
    assert {"a": (1, 0, None)} == found(rows, nothing)
    assert {"a": (0, 1, None)} == found(nothing, rows)


def test_suspects_of_few_rows_are_those_that_spark_selects(spark: SparkSession) -> None:
    """One-sided, changed, agreeing and unknown ids: the same lines, and the same figures, without a job."""
    dice = random.Random(11)  # noqa: S311
    values = (None, "", "a", "b")
    ids = [f"id-{number}" for number in range(60)]
    both = [
        side(spark, *((i, *(dice.choice(values) for _ in range(3))) for i in ids if dice.random() < 0.8)) for _ in "ab"
    ]
    candidates = spark.createDataFrame([(each,) for each in (*ids[::3], "nowhere")], "id string")
    rules = [FieldRule("one"), FieldRule("two"), FieldRule("three", Kind.NUMERIC)]
    source, copy, wanted = (local_frames.localized(each, 100) for each in (*both, candidates))
    assert source is not None
    assert copy is not None
    before = jobs(spark)
    here = compare.suspects(source, copy, rules, wanted)
    lines, figures = here.collect(), compare.count_suspects(here).collect()
    assert before == jobs(spark)
    by_spark = compare.suspects_by_spark(both[0], both[1], rules, candidates)
    assert sorted(by_spark.collect(), key=str) == sorted(lines, key=str)
    assert compare.count_suspects(by_spark).collect() == figures
    assert by_spark.dtypes == here.dtypes


def test_rows_that_are_the_same_on_both_sides_need_not_be_compared(spark: SparkSession) -> None:
    """Without them the suspects are those of all rows: also with doubled ids, rows without one, and candidates."""
    dice = random.Random(5)  # noqa: S311
    ids = [*(f"id-{number}" for number in range(80)), *("id-1", "id-2", "id-2"), None, None]

    def rows() -> list[tuple[Any, ...]]:
        chosen = (each for each in ids if dice.random() < 0.9)
        return [(each, *(dice.choice(("1", "1", "1", "1.0", None)) for _ in range(3))) for each in chosen]

    frames = side(spark, *rows()), side(spark, *rows())
    wanted = [*ids[:80:7], "nowhere"]
    candidates = spark.createDataFrame([(each,) for each in wanted], "id string")
    left = compare.unlike(frames[0].toArrow(), frames[1].toArrow(), [each for each in wanted if each is not None])
    assert left[0].num_rows < frames[0].count()
    few = [spark.createDataFrame(each, frames[0].schema) for each in left]
    of_all = compare.suspects_by_spark(frames[0], frames[1], RULES, candidates)
    of_few = compare.suspects_by_spark(few[0], few[1], RULES, candidates)
    assert sorted(of_all.collect(), key=str) == sorted(of_few.collect(), key=str)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([("a", "x", "1", "1.0")], [("a", "x", "1", "1")]),
        ([("a", "x", "1.00", "1")], [("a", "x", "1.01", "1")]),
        ([("a", "x", "1", "1"), ("a", "y", "1", "1")], [("a", "x", "1", "1")]),
        ([(None, "x", "1", "1")], []),
    ],
)
def test_what_more_than_texts_decides_is_for_spark(spark: SparkSession, ours: list[Any], theirs: list[Any]) -> None:
    """Floats, tolerances, ids that stand twice, rows without one: the lines are the same all the same."""
    frames = side(spark, *ours), side(spark, *theirs)
    source, copy = (local_frames.localized(each, 10) for each in frames)
    assert source is not None
    assert copy is not None
    found = compare.suspects(source, copy, RULES)
    assert compare.suspects_by_spark(*frames, RULES).collect() == found.collect()


def test_the_same_ids_differ_for_datacompy(spark: SparkSession) -> None:
    """Random damage, found by a program that shares no code with ours."""
    from datacompy.spark import SparkSQLCompare

    dice = random.Random(7)  # noqa: S311
    ours = [(f"id {number}", f"name {number % 50}", str(number), "1") for number in range(2000)]
    theirs = [
        (key, dice.choice([name, "other", None]) if dice.random() < 0.05 else name, amount, ratio)
        for key, name, amount, ratio in ours
        if dice.random() > 0.01
    ] + [(f"new {number}", "a", "1", "1") for number in range(20)]
    source, copy = side(spark, *ours), side(spark, *theirs)
    judge = SparkSQLCompare(
        spark, source.drop("reconcile_version"), copy.drop("reconcile_version"), join_columns="reconcile_id"
    )
    changed = {row["reconcile_id"] for row in judge.all_mismatch().collect()}
    one_sided = {row["reconcile_id"] for rows in (judge.df1_unq_rows, judge.df2_unq_rows) for row in rows.collect()}
    assert changed | one_sided == found(source, copy).keys()
