"""The ids of runs: names of folders, which sort by time within an aggregate."""

from __future__ import annotations

import re
import string
from datetime import UTC, datetime
from random import Random

from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError

LONGEST = 128

_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST - 1}}}")
_TAIL = "-20261118T143005Z-k3f9"
_LETTERS = string.ascii_lowercase + string.digits


class InvalidRunIdError(RefusedError):
    """Raised for a run id that is no name of a folder: correct it; `reconcile runs` lists those that there are."""


def new_run_id(aggregate: str, now: datetime, random: Random) -> str:
    """Build an id such as user-account-20261118T143005Z-k3f9. `random` keeps runs of one second apart."""
    instant = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    mark = "".join(random.choices(_LETTERS, k=4))
    return valid_run_id(f"{aggregate[: LONGEST - len(_TAIL)]}-{instant}-{mark}")


def valid_run_id(text: str) -> str:
    """Return the id, if it is one; raise InvalidRunIdError if it could name anything but a folder of its own."""
    if _ID.fullmatch(text) is None:
        raise InvalidRunIdError(
            f"{quoted(text)} is not a run id: use A-Z, a-z, 0-9, '.', '_' and '-', a letter or digit first, "
            f"at most {LONGEST} of them"
        )
    return text
