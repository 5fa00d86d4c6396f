"""What Spark says of a job that failed, without the values of rows that its messages quote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from reconcile.spark.java_causes import root_cause

_FRAME = re.compile(r'^\s*File ".*", line \d+, in .*$', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)


class SparkJobError(RuntimeError):
    """Raised when a job of Spark's fails in a way that nobody has foreseen: what it was is told, and no value."""


@contextmanager
def without_values() -> Iterator[None]:
    """Raise SparkJobError for what Spark raises of a job that ran; what it says of a plan has no values of rows."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException, PythonException

    try:
        yield
    except AnalysisException:
        raise
    except PythonException as error:
        said = f"a Python worker of Spark failed:\n{_python(str(error))}"
        raise SparkJobError(said).with_traceback(error.__traceback__) from None
    except (PySparkException, Py4JJavaError) as error:
        raise SparkJobError(f"a job of Spark failed: {_java(error)}").with_traceback(error.__traceback__) from None


def _python(said: str) -> str:
    """Choose of a worker's traceback where it was, and the class of what was raised."""
    frames = [each.strip() for each in _FRAME.findall(said)]
    raised = _RAISED.findall(said[said.rfind(frames[-1]) + len(frames[-1]) :]) if frames else []
    return "\n".join([*frames, *raised[:1]])


def _java(error: Exception) -> str:
    thrown = root_cause(error)
    condition = getattr(error, "getCondition", lambda: None)()
    return condition or (type(error).__name__ if thrown is None else str(thrown.getClass().getName()))
