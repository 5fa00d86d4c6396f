"""The command line's frame."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from reconcile import cli


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


def test_a_fence_loads_nothing_heavy() -> None:
    """It is to answer at once: no Spark, no tables, not the models of all outputs."""
    code = (
        "import sys, reconcile.cli.fence, reconcile.gather.fence.opening;"
        "print({'pyspark', 'pyarrow', 'pandas', 'sqlalchemy', 'reconcile.cli.outputs'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "set()\n" == done.stdout


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
