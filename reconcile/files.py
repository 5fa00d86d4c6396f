"""Where the committed files and the resolved jars stand, in a clone and in an installed package."""

from __future__ import annotations

import os
from pathlib import Path

from reconcile.errors import RefusedError

_PACKAGE = Path(__file__).resolve().parent


def committed(*parts: str) -> Path:
    """Give the path of a committed file such as `committed("sql", "lab", "user.sql")`."""
    packaged = _PACKAGE / "_files"
    return (packaged if packaged.is_dir() else _PACKAGE.parent).joinpath(*parts)


def jars(configuration: str) -> list[Path]:
    """Give the jars of one configuration of ivy.xml: `spark` or `broker`."""
    folder = _jars() / configuration
    found = sorted(folder.glob("*.jar"))
    if not found:
        raise RefusedError(
            f"no jars in {folder}: run `make setup`, or point RECONCILE_JARS at the folder that holds them"
        )
    return found


def class_archive() -> Path:
    """Give the path of Spark's class archive, which need not be there."""
    return _jars() / "spark.jsa"


def _jars() -> Path:
    return Path(os.environ.get("RECONCILE_JARS") or _PACKAGE.parent / "jars")
