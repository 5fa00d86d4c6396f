"""Where the committed files and the resolved jars stand, in a clone and in an installed package."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from reconcile.errors import RefusedError

_PACKAGE = Path(__file__).resolve().parent
_PACKAGED = _PACKAGE / "_files"


def committed(*parts: str) -> Path:
    """Give the path of a committed file such as `committed("sql", "lab", "user.sql")`."""
    return (_PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent).joinpath(*parts)


def jars(configuration: str) -> list[Path]:
    """Give the jars of one configuration of ivy.xml: `spark`, `broker`, `iceberg` or `delta`."""
    folder = jars_folder() / configuration
    found = sorted(folder.glob("*.jar"))
    if not found:
        command = (
            "reconcile setup" if configuration in ("spark", "broker") else f"reconcile setup --with {configuration}"
        )
        raise RefusedError(
            f"no jars in {folder}: run `{command}`, or point RECONCILE_JARS at the folder that holds them"
        )
    return found


def has_jars(configuration: str) -> bool:
    """Tell whether the jars of one configuration were fetched."""
    return any((jars_folder() / configuration).glob("*.jar"))


def class_archive() -> Path:
    """Give the path of Spark's class archive, which need not be there."""
    return jars_folder() / "spark.jsa"


def jars_folder() -> Path:
    """Give the folder of the jars: RECONCILE_JARS, else `jars` in a clone, else one of the cache for such jars."""
    if given := os.environ.get("RECONCILE_JARS"):
        return Path(given).absolute()
    return cache() / "jars" / jars_version() if _PACKAGED.is_dir() else _PACKAGE.parent / "jars"


def jars_version() -> str:
    """Name the jars that ivy.xml and PySpark ask for: other jars have another name."""
    import pyspark

    digest = hashlib.sha256(committed("ivy.xml").read_bytes()).hexdigest()
    return f"pyspark-{pyspark.__version__}-{digest[:12]}"


def cache() -> Path:
    """Give the folder of what was fetched and can be fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "reconcile"
