"""Has the server say that a text is one statement, by the extended protocol, which takes no more than one.

psycopg2 sends all it runs by the simple protocol, where a `;` begins another statement, also behind `prepare`,
`declare` and `copy (`. So its own libpq has the server parse each text first: what that takes for one, it runs as one.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from typing import Any

import psycopg2
from psycopg2 import _psycopg
from psycopg2.extensions import cursor

from reconcile.errors import RefusedError

_TAKEN = 1  # PGRES_COMMAND_OK
_SQLSTATE, _RAISED_BY = ord("C"), ord("R")
_SEVERAL = (b"42601", b"exec_parse_message")


def require_one(cursor: cursor, text: bytes) -> None:
    """Raise RefusedError for a text of several statements, of which none was run. Any other fault is the runner's."""
    cursor.execute("savepoint reconcile_parsed")
    library, address = _libpq(), cursor.connection.pgconn_ptr
    result = library.PQprepare(address, b"", text, 0, None)
    taken = library.PQresultStatus(result) == _TAKEN
    raised = tuple(library.PQresultErrorField(result, each) for each in (_SQLSTATE, _RAISED_BY))
    library.PQclear(result)
    # Where the connection is lost, running the statement says so.
    with suppress(psycopg2.Error):
        cursor.execute(f"{'release' if taken else 'rollback to'} savepoint reconcile_parsed")
    if raised == _SEVERAL:
        raise RefusedError("the contract's SQL makes several statements of ours: each of its texts has to be one whole")


@cache
def _libpq() -> Any:
    # The very one that the driver uses, which its module was linked with.
    library = ctypes.CDLL(_psycopg.__file__)
    library.PQprepare.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    library.PQprepare.restype = ctypes.c_void_p
    library.PQresultErrorField.restype = ctypes.c_char_p
    library.PQresultErrorField.argtypes = [ctypes.c_void_p, ctypes.c_int]
    for name in ("PQresultStatus", "PQclear"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    return library
