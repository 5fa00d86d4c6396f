"""`reconcile web`: runs, findings and stories in a browser; it reads only."""

from __future__ import annotations

import secrets
import socket
from ipaddress import ip_address
from pathlib import Path

import click

from reconcile.cli import options
from reconcile.cli.output import say
from reconcile.errors import RefusedError
from reconcile.pipeline.job import workspace_of
from reconcile.settings.references import FORMS, reference

_LOOPBACK = "127.0.0.1"


@click.command()
@click.option("--host", default=_LOOPBACK, show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8420, show_default=True)
@click.option("--token", help=f"Where the visitors' token is kept: {FORMS}. Left out, one is made.")
@options.settings
def web(host: str, port: int, token: str | None, read_settings: options.ReadSettings) -> None:
    """Show runs, findings, stories, history and plans in a browser, until interrupted."""
    settings = read_settings()
    given = _token(token)
    secret = given or secrets.token_urlsafe(32)
    # Who started it gets in by an address that opens once, and so no other user of this machine.
    ticket = None if given else secrets.token_urlsafe(32)
    import uvicorn

    from reconcile.web.app import web_app

    with workspace_of(settings) as place:
        app = web_app(
            place, settings, token=secret, ticket=ticket, hosts=("localhost", host) if is_loopback(host) else ()
        )
        # By a header that names an address, whoever guesses at the token would be another one each time.
        serving = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, proxy_headers=False)
        with _listening(host, port) as listening:
            say(f"http://{f'[{host}]' if ':' in host else host}:{port}/{f'?token={ticket}' if ticket else ''}")
            if not given and not is_loopback(host):
                say(f"the token of other visitors, until this ends: {secret}")
            uvicorn.Server(serving).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise RefusedError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port or --host"
        ) from None


def _token(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        found = reference(text, "password", Path())
    except ValueError as error:
        raise RefusedError(f"--token {error}") from None
    if found is None:
        raise RefusedError(f"--token takes no token itself, but where it is kept: {FORMS}")
    return found.resolve().get_secret_value()
