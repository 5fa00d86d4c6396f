"""The command line: data on stdout, words on stderr, and exit codes that scripts can rely on."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from typing import Any

import click

from reconcile import __version__
from reconcile.cli.live import live_line
from reconcile.cli.output import visible
from reconcile.config.extras import MissingExtraError, extras_named
from reconcile.errors import ReconcileError
from reconcile.pipeline.logs import Form, StderrLog, logged_to_stderr

COULD_NOT_TELL = 2
INTERRUPTED = 130


_MODULES = {
    "contract": "contract", "run": "run", "gather": "run", "audit": "run", "quality": "quality", "plan": "repair",
    "apply": "repair", "verify": "repair", "findings": "findings", "explain": "explain", "trace": "trace",
    "runs": "findings", "report": "report", "history": "history", "web": "web", "fence": "fence", "doctor": "doctor",
    "consumer": "consumer", "stash": "stash", "dead-letters": "dead_letters", "damaged": "damaged",
    "prune": "retention", "forget": "retention",
    "lab": "lab", "setup": "setup", "demo": "demo", "request": "request", "airflow": "airflow",
}  # fmt: skip
"""The commands, in the order of help, and the module that each is in."""


class _Commands(click.Group):
    """Loads the module of the command that is called, and no other: what is light stays light."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Name all commands."""
        return list(_MODULES)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Load a command; None if there is none of this name."""
        if name not in _MODULES:
            return None
        command = getattr(import_module(f"reconcile.cli.{_MODULES[name]}"), name.replace("-", "_"))
        assert isinstance(command, click.Command)
        _add_log_options(command)
        return command


def _add_log_options(command: click.Command) -> None:
    """Let the options of the log stand after the command too, where many people type them."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _add_log_options(each)
    elif "verbose" not in {each.name for each in command.params}:
        kept: dict[str, Any] = {"expose_value": False, "hidden": True, "callback": _configure_log}
        forms = click.Choice(["text", "json"])
        command.params += [
            click.Option(["-v", "--verbose"], count=True, **kept),
            click.Option(["--log-format"], type=forms, **kept),
        ]


def _configure_log(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    log = context.find_root().obj
    if value and isinstance(log, StderrLog):
        verbosity, form = (value, log.form) if parameter.name == "verbose" else (log.verbosity, value)
        log.configure(verbosity, form)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option("-v", "--verbose", count=True, help="Also log figures and durations; -vv: also what libraries log.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="How stderr shows the log.")
@click.pass_context
def cli(context: click.Context, verbose: int, log_format: Form) -> None:
    """Find where copies of a service's state differ from their source, say why, and repair them."""
    live = context.with_resource(live_line())
    context.obj = context.with_resource(logged_to_stderr(verbose, log_format, live=live))


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        with extras_named(" ".join(["reconcile", *sys.argv[1:2]])):
            code = cli.main(standalone_mode=False)
    except MissingExtraError as error:
        click.echo(str(error), err=True)
        code = COULD_NOT_TELL
    except ReconcileError as error:
        click.echo(f"reconcile: {visible(str(error))}", err=True)
        code = COULD_NOT_TELL
    except click.ClickException as error:
        error.show()
        code = COULD_NOT_TELL
    except (click.Abort, KeyboardInterrupt):
        click.echo("reconcile: interrupted", err=True)
        code = INTERRUPTED
    except Exception:  # noqa: BLE001 - whatever it is, it must not look like the exit code of drift
        traceback.print_exc()
        click.echo("reconcile: internal error: please report this traceback", err=True)
        code = COULD_NOT_TELL
    sys.exit(code)
