"""The command line: data on stdout, words on stderr, and exit codes that scripts can rely on."""

from __future__ import annotations

import sys
import traceback

import click

from reconcile.cli.airflow import airflow
from reconcile.cli.contract import contract
from reconcile.cli.demo import demo
from reconcile.cli.doctor import doctor
from reconcile.cli.explain import explain
from reconcile.cli.fence import fence
from reconcile.cli.findings import findings, runs
from reconcile.cli.history import history
from reconcile.cli.lab import lab
from reconcile.cli.output import visible
from reconcile.cli.quality import quality
from reconcile.cli.repair import apply, plan, verify
from reconcile.cli.report import report
from reconcile.cli.request import request
from reconcile.cli.run import audit, gather, run
from reconcile.cli.trace import trace
from reconcile.cli.web import web
from reconcile.errors import ReconcileError
from reconcile.pipeline.logs import log_to_stderr

COULD_NOT_TELL = 2
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="reconcile")
def cli() -> None:
    """Find where services that copy each other's state through Kafka disagree, say why, and repair it."""


cli.add_command(contract)
for command in (run, gather, audit, quality, plan, apply, verify, findings, explain, trace, runs, report, history, web):
    cli.add_command(command)
cli.add_command(fence)
cli.add_command(doctor)
cli.add_command(lab)
cli.add_command(demo)
cli.add_command(request)
cli.add_command(airflow)


def main() -> None:
    """Run the command line and exit with its code."""
    log_to_stderr()
    try:
        code = cli.main(standalone_mode=False)
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
        click.echo("reconcile: this is a defect of the program; what is above tells its developers where", err=True)
        code = COULD_NOT_TELL
    sys.exit(code)
