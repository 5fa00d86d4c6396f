"""Great Expectations as the gate: suites run on Spark, nothing is kept on disk and nothing is sent anywhere."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import computed_field

from reconcile.errors import InvalidFileError, Problem
from reconcile.quality.wording import said
from reconcile.workspace.handoff import Part

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite
    from great_expectations.data_context import EphemeralDataContext
    from pyspark.sql import DataFrame

CRITICAL = "critical"


class Checked(Part):
    """One expectation, and how it went. It holds figures; values of rows only where `said` names a few of a set."""

    suite: str
    link: str | None
    expectation: str
    columns: tuple[str, ...]
    severity: str
    success: bool
    why: str | None
    rows: int | None
    """How many rows were looked at; None for an expectation of another kind."""
    unexpected: int | None
    exception: str | None
    """What was raised in place of an answer: that is a failure, and never a pass."""
    said: str | None = None
    """What it found, in the words of the data; None in runs of versions that did not say."""

    @property
    def words(self) -> str:
        """What it found, in one line."""
        if self.said is not None and self.exception is None:
            return self.said
        what = f"{', '.join(self.columns) or 'the table'}: {self.expectation.replace('_', ' ')}"
        return what if self.exception is None else f"{what}: could not be evaluated: {self.exception}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def stops(self) -> bool:
        """Whether the gate stays closed for it."""
        return not self.success and (self.severity == CRITICAL or self.exception is not None)


@contextmanager
def quality_context() -> Iterator[EphemeralDataContext]:
    """Open a data context that is in memory only and reports to nobody."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, when it is imported and when it is used
        import great_expectations as gx

        context = gx.get_context(mode="ephemeral")
        context.enable_analytics(enable=False)
        context.variables.progress_bars = {"globally": False}
        yield context


def load_suite(file: Path) -> tuple[ExpectationSuite, str]:
    """Read a suite, and the frame that it is about; raise InvalidFileError for what is none."""
    import great_expectations as gx
    from great_expectations.exceptions import GreatExpectationsError

    try:
        parsed = json.loads(file.read_text("utf-8"))
        suite = gx.ExpectationSuite(
            name=parsed["name"], expectations=parsed["expectations"], meta=parsed.get("meta") or {}
        )
        return suite, str((parsed.get("meta") or {}).get("frame", "copy"))
    except OSError as error:
        raise InvalidFileError(file, [Problem("", f"cannot be read: {error.strerror}")]) from None
    except (ValueError, KeyError, TypeError, GreatExpectationsError) as error:
        raise InvalidFileError(file, [Problem("", f"is no expectation suite: {error}")]) from None


def check(
    context: EphemeralDataContext,
    suite: ExpectationSuite,
    frame: DataFrame,
    parameters: Mapping[str, Any],
    link: str | None,
    shown: Collection[str] = (),
) -> list[Checked]:
    """Run a suite on a frame; of the columns in `shown` values may be told that a suite does not allow."""
    name = f"{suite.name} of {link}"
    source = context.data_sources.add_or_update_spark(name)
    batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)
    found = batch.get_batch({"dataframe": frame}).validate(
        suite, result_format="BASIC", expectation_parameters=dict(parameters)
    )
    return [_checked(suite.name, link, each, shown) for each in found.results]


def _checked(suite: str, link: str | None, result: Any, shown: Collection[str]) -> Checked:
    config, figures = result.expectation_config, result.result or {}
    kwargs = config.kwargs
    columns = [kwargs[name] for name in ("column", "column_A", "column_B") if name in kwargs]
    columns += kwargs.get("column_list", [])
    exception, meta = _exception(result.exception_info), config.meta or {}
    success = bool(result.success) and exception is None
    own = meta.get("met" if success else "unmet")
    return Checked(
        suite=suite,
        link=link,
        expectation=config.type,
        columns=(named := tuple(map(str, columns))),
        severity=str(getattr(config.severity, "value", config.severity) or CRITICAL),
        success=success,
        why=meta.get("why"),
        rows=figures.get("element_count"),
        unexpected=figures.get("unexpected_count"),
        exception=exception,
        said=str(own) if own else said(config.type, named, kwargs, figures, success=success, shown=shown),
    )


def _exception(info: Any) -> str | None:
    """Choose the exception that was raised out of what Great Expectations tells of each metric; None if none was."""
    if not info:
        return None
    if "raised_exception" not in info:
        return next((found for each in info.values() if (found := _exception(each))), None)
    if not info["raised_exception"]:
        return None
    return _named(info.get("exception_traceback") or "", info.get("exception_message") or "")


def _named(traceback: str, message: str) -> str:
    """Parse the class of an exception and Spark's error condition, as its message may quote values of rows.

    Great Expectations 1.24 keeps the text of the traceback and of the message, and not the exception itself.
    """
    # The first line that is not indented and names a class is before any message.
    raised = re.search(r"^(?:\w+\.)*([A-Z]\w*)(?::|$)", traceback, re.MULTILINE)
    condition = re.match(r"\[[A-Z][A-Z0-9_.]*\]", message)
    return " ".join([raised[1] if raised else "an exception", *([condition[0]] if condition else [])])
