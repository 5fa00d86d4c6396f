"""What can go wrong with the control store, one class per thing that the caller can do about it."""

from __future__ import annotations

import re

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.settings import urls

_TRY_LATER = ("starting up", "shutting down", "too many", "remaining connection slots", "recovery mode", "locked")


class ControlUnreachableError(UnreachableError):
    """Raised when the control store does not answer: see that it is up and that its url is right; try again."""


class ControlRefusedError(RefusedError):
    """Raised when the control store refuses the account or a statement: correct its url, or grant the right."""


class NewerSchemaError(RefusedError):
    """Raised when the control store was migrated by a newer program than this one: install that one here too."""


class OlderSchemaError(RefusedError):
    """Raised when the control store is to be read, and was not migrated yet: let a command that writes do that."""


class RunNotBegunError(RefusedError):
    """Raised for a run that the control store does not have: begin it first."""


class RunConflictError(RefusedError):
    """Raised when a run of this id is one of another contract: start a new run."""


class LeaseHeldError(RefusedError):
    """Raised when another holder has the lease: wait until it is released or expires."""


class LeaseLostError(RefusedError):
    """Raised when a lease has expired or is another's now: stop writing; whoever goes on acquires it anew."""


class CorrectionStateError(RefusedError):
    """Raised when a correction cannot come to a state from the one that it is in: read what is pending again."""


class UnknownRequestError(RefusedError):
    """Raised for a request that the control store does not have: queue it first."""


class RequestConflictError(RefusedError):
    """Raised when a request of this id asks for something else: give the new one an id of its own."""


class TooManyRequestsError(RefusedError):
    """Raised when too many requests of a contract, or of one requester for it, are not done: ask again later."""


def control_error(place: str, error: SQLAlchemyError) -> ReconcileError:
    """Choose the error that says what went wrong, without the statement and its values."""
    if isinstance(error, PoolTimeoutError):
        return ControlUnreachableError(f"the control store {place} has no free connection for us; try again")
    if not isinstance(error, DBAPIError) or error.orig is None:
        raise error
    message, code = _message(error.orig), getattr(error.orig, "pgcode", None)
    if code is None and hasattr(error.orig, "pgcode") and (what_to_do := urls.to_correct(message)) is not None:
        return ControlRefusedError(f"the control store {place} refuses us: {message}. {what_to_do}")
    if _is_lost(error, code, message):
        return ControlUnreachableError(
            f"the control store {place} cannot be reached: {message}. See that it is up and that control_store.url is"
            " right, and try again"
        )
    if code in ("40001", "40P01", "55P03", "57014"):
        return ControlUnreachableError(f"the control store {place} is too busy: {message}; try again")
    return ControlRefusedError(
        f"the control store {place} refuses us: {message}. Check control_store.url, and that its account owns the"
        " tables"
    )


def _is_lost(error: DBAPIError, code: str | None, message: str) -> bool:
    if error.connection_invalidated or any(reason in message for reason in _TRY_LATER):
        return True
    if code is not None:
        return code[:2] == "08" or code in ("57P01", "57P02", "57P03", "25P03", "25P04")
    # libpq says FATAL where a server answered and would not have us.
    return hasattr(error.orig, "pgcode") and "FATAL" not in message


def _message(error: BaseException) -> str:
    diagnosis = getattr(error, "diag", None)
    primary = diagnosis.message_primary if diagnosis is not None else None
    return re.sub(r"\s+", " ", primary or str(error)).strip().rstrip(".") or type(error).__name__
