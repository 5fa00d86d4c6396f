"""What Spark is started with where a run reads a lake, and where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconcile.settings.connections import Lake, LakePlace
from reconcile.settings.settings import Settings
from reconcile.spark.session import DELTA, configuration

LAKES = {
    "ice": {"warehouse": "/lake", "format": "iceberg"},
    "events": {"warehouse": "/events", "format": "delta"},
    "files": {"path": "/files"},
}
EXTENSIONS = "spark.sql.extensions"


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a jar of each kind."""
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path))
    for each in ("spark", "iceberg", "delta"):
        (tmp_path / each).mkdir()
        (tmp_path / each / f"{each}.jar").touch()
    return tmp_path


def started(*stores: str, conf: dict[str, str] | None = None) -> tuple[list[str], str | None]:
    """Give the jars and the extensions for a contract with these stores."""
    settings = Settings.model_validate({"connections": LAKES, "spark": {"conf": conf or {}}}).reading(stores)
    found = configuration(settings, "a run")
    return [Path(each).name for each in found["spark.jars"].split(",")], found.get(EXTENSIONS)


@pytest.mark.usefixtures("jars")
def test_only_what_reads_a_lake_has_its_jars() -> None:
    """A folder of files needs none."""
    assert (["spark.jar"], None) == started("files")
    assert (["spark.jar", "iceberg.jar"], None) == started("ice")
    assert (["spark.jar", "delta.jar"], DELTA[EXTENSIONS]) == started("events")


@pytest.mark.usefixtures("jars")
def test_extensions_of_the_settings_stay() -> None:
    """Delta's is added once."""
    assert f"a.B,{DELTA[EXTENSIONS]}" == started("events", conf={EXTENSIONS: f"{DELTA[EXTENSIONS]}, a.B"})[1]


def test_without_its_jars_spark_starts_all_the_same(jars: Path) -> None:
    """Not every stage reads the lake; the one that does says what to do."""
    (jars / "delta" / "delta.jar").unlink()
    assert (["spark.jar"], None) == started("events")


def test_a_place_has_its_secrets_and_hides_them() -> None:
    """A path is seen from the working folder; what a catalog calls its warehouse stays."""
    catalog = {"type": "rest", "token": "env:TOKEN"}
    named = Lake.model_validate({"warehouse": "prod", "format": "iceberg", "catalog": catalog, "name": "main"})
    place = named.resolve({"TOKEN": "a word that nobody may see"})
    assert LakePlace("iceberg", "prod", {"type": "rest", "token": "a word that nobody may see"}, "main") == place
    assert "nobody may see" not in f"{place!r} {named!r}"
    plain = Lake.model_validate({"warehouse": "data/lake", "format": "delta"})
    assert str(Path("data/lake").absolute()) == plain.resolve({}).warehouse
    away = Lake.model_validate({"warehouse": "s3a://bucket/lake", "format": "delta"})
    assert "s3a://bucket/lake" == away.resolve({}).warehouse
