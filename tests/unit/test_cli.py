"""The command line's frame."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from reconcile import cli
from reconcile.lab.airflow.standalone import Standalone


def test_a_defect_does_not_look_like_drift(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An exception that nobody expected exits 2 and is told as a defect: 1 would mean that copies differ."""

    def broken(**_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(cli.cli, "main", broken)
    with pytest.raises(SystemExit) as exited:
        cli.main()
    assert 2 == exited.value.code
    assert "internal error: please report this traceback" in capsys.readouterr().err


def test_commands_on_contracts_and_runs_take_the_same_settings() -> None:
    """One wrapper fits them all."""
    about = {"contract", "file", "files", "run_id"}
    taken = {
        " ".join(path): {option for each in command.params for option in each.opts}
        for path, command in commands(cli.cli, ())
        if any(each.name in about for each in command.params)
    }
    assert {"fence", "contract check", "run", "report"} <= taken.keys()
    assert [] == [name for name, options in taken.items() if not {"--config", "--workspace"} <= options]


def test_what_is_asked_of_the_wrong_place_is_told(tmp_path: Path) -> None:
    """A trace takes a contract and no run; a world that is not there is not said to be down."""
    traced = CliRunner().invoke(cli.cli, ["trace", "n1", "x"])
    assert "trace takes a contract, and `explain` a run" in str(traced.exception)
    nowhere = CliRunner().invoke(cli.cli, ["lab", "down", "--dir", str(tmp_path / "none")])
    assert (0, True) == (nowhere.exit_code, f"there is no world in {tmp_path}/none" in nowhere.stderr)


def test_a_fence_loads_nothing_heavy() -> None:
    """It is to answer at once: no Spark, no tables, not the models of all outputs."""
    code = (
        "import sys, reconcile.cli.fence, reconcile.gather.fence.opening;"
        "print({'pyspark', 'pyarrow', 'pandas', 'sqlalchemy', 'reconcile.cli.outputs'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "set()\n" == done.stdout


def test_a_shell_completes_commands_options_and_values() -> None:
    """By click's own means."""

    def completed(*words: str) -> set[str]:
        shell = BashComplete(cli.cli, {}, "reconcile", "_RECONCILE_COMPLETE")
        return {each.value for each in shell.get_completions(list(words[:-1]), words[-1])}

    assert {"findings"} == completed("fi")
    assert {"out_of_order"} == completed("findings", "r1", "--cause", "out")


def test_airflow_up_takes_the_port_that_its_refusal_advises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `lab up` does: another port is chosen where one is taken."""
    advised = {"--postgres-port", "--kafka-port", "--controller-port", "--port"}
    up = next(command for path, command in commands(cli.cli, ()) if path == ("airflow", "up"))
    options = {form for each in up.params for form in each.opts}
    assert advised <= options
    monkeypatch.setattr("reconcile.cli.airflow._standalone", Standalone)  # Airflow itself loads slowly
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        place = ["--home", str(tmp_path / "airflow"), "--dir", str(tmp_path / "lab")]
        monkeypatch.setattr(sys, "argv", ["reconcile", "airflow", "up", *place, "--kafka-port", port])
        with pytest.raises(SystemExit) as exited:
            cli.main()
    assert 2 == exited.value.code
    said = capsys.readouterr().err
    assert f"port {port}, which Kafka is to have, is in use" in said
    assert "choose another with --kafka-port" in said


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Give all commands with the words that call them."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from commands(below, (*path, name))


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C has an exit code of its own."""

    def interrupted(**_: object) -> None:
        raise click.Abort

    monkeypatch.setattr(cli.cli, "main", interrupted)
    with pytest.raises(SystemExit) as exited:
        cli.main()
    assert 130 == exited.value.code
