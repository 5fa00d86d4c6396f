"""What listens at an address, where a client hears nothing but that it was disconnected."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

_SECONDS = 2.0


def speaks_tls(bootstrap: str) -> bool | None:
    """Query whether the first of these brokers that takes a connection speaks TLS; None where none takes one."""
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition("://")[2].rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), _SECONDS) as opened:
            return _takes_tls(opened)
    return None


def _takes_tls(opened: socket.socket) -> bool:
    # Nothing is sent but a greeting, so that it does not matter who answers.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(opened):
            return True
    except ssl.SSLError as error:
        # One that wants our certificate, or another version, says so in TLS.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
