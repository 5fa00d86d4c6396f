"""The pipeline's jars: fetched once, by the Ivy that ships inside PySpark."""

from __future__ import annotations

import hashlib
from pathlib import Path

from reconcile.files import jars_folder
from reconcile.settings.settings import load_settings
from reconcile.spark import setup

_IVY = Path(__file__).parent / "ivy.xml"
_CONFIGURATIONS = ("connect", "source", "sink")


def fetched() -> Path:
    """Fetch what is not there yet; give the folder with the folders `connect`, `source` and `sink`."""
    version = hashlib.sha256(_IVY.read_bytes()).hexdigest()[:12]
    folder = jars_folder() / f"debezium-{version}"
    if not all(any((folder / each).glob("*.jar")) for each in _CONFIGURATIONS):
        folder.mkdir(parents=True, exist_ok=True)
        setup.fetch(_IVY, _CONFIGURATIONS, folder, load_settings(None).setup.mirror)
    return folder
