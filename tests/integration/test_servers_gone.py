"""A server that goes away in the middle of a run: a named error, exit code 2, nothing half-published, and a way on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconcile import cli
from reconcile.files import committed
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log import history
from reconcile.lab import faults, world
from reconcile.lab.folder import Lab
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from reconcile.pipeline import audit as pipeline_audit
from reconcile.pipeline.runs import run_line
from reconcile.workspace.workspace import Workspace
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = "cut-off"


@pytest.fixture(scope="module")
def damaged() -> Iterator[Lab]:
    """A world with a fault."""
    with seeded_world(aggregates=60, ports=ports_of("servers gone")) as lab:
        faults.plant(lab, [each for each in faults.FAULTS if each.name == "hand-edit"], 1)
        yield lab


@pytest.fixture
def reconcile(
    spark: SparkSession,
    damaged: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:
    """Run a command as a shell does, in a workspace of the test's own; give its code, stdout and stderr."""
    assert not spark.catalog.listTables()  # the commands use the session that is there

    def ran(*words: str) -> tuple[int, str, str]:
        places = ["--config", str(world.settings_file(damaged)), "--workspace", str(tmp_path / "runs")]
        monkeypatch.setattr(sys, "argv", ["reconcile", *words, *places])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        said = capsys.readouterr()
        assert isinstance(exited.value.code, int)
        return exited.value.code, said.out, said.err

    return ran


def gone_at(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, server: PostgresServer | Kafka, left: list[bool]
) -> None:
    """Stop a server the first time that a function is called."""
    original = getattr(owner, name)

    def stopped(*given: Any, **named: Any) -> Any:
        if not left:
            left.append(True)
            server.down()
        return original(*given, **named)

    monkeypatch.setattr(owner, name, stopped)


@pytest.mark.parametrize(
    ("kind", "owner", "name", "told", "published"),
    [
        (Kafka, history, "write_segment", "main", False),
        (PostgresServer, LinkReader, "compared", "user-db", False),
        (PostgresServer, pipeline_audit, "_attribute", "control", True),  # all was read when the store went away
    ],
    ids=["broker, in mid gather", "Postgres, in mid snapshot", "control store, in mid audit"],
)
def test_a_server_that_goes_away_is_named_and_the_run_goes_on(
    damaged: Lab,
    reconcile: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[PostgresServer] | type[Kafka],
    owner: Any,
    name: str,
    told: str,
    published: bool,
) -> None:
    """No traceback, no finding of what was half read; when the server is back, the same run finds what there is."""
    contract, server = str(committed("contracts", "user-account.yaml")), kind(damaged)
    left: list[bool] = []
    gone_at(monkeypatch, owner, name, server, left)
    try:
        code, out, err = reconcile("run", contract, "--run-id", RUN, "--json")
    finally:
        server.up()
    assert (2, [True]) == (code, left), err
    assert "Traceback" not in err
    assert told in out + err
    assert published is (tmp_path / "runs" / RUN / "findings").exists()
    line = run_line(Workspace(tmp_path / "runs"), RUN)
    assert line.outcome in (("drift",) if published else ("unreachable", "unknown"))
    assert told in (line.reason or "")
    code, out, err = reconcile("run", contract, "--run-id", RUN, "--json")
    assert (1, True) == (code, json.loads(out)["complete"]), err
