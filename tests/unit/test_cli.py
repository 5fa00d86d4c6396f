"""The command line's frame."""

from __future__ import annotations

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
    assert "this is a defect of the program" in capsys.readouterr().err


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C has an exit code of its own."""

    def interrupted(**_: object) -> None:
        raise click.Abort

    monkeypatch.setattr(cli.cli, "main", interrupted)
    with pytest.raises(SystemExit) as exited:
        cli.main()
    assert 130 == exited.value.code
