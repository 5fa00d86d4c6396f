"""What ends a consumer, or a command on its tables, one class per thing that a person can do about it."""

from __future__ import annotations

from reconcile.errors import RefusedError, UnreachableError


class PolicyRefusedError(RefusedError):
    """Raised for a policy that would corrupt such a copy: choose another policy, or say what the copy really is."""


class AnotherPolicyError(RefusedError):
    """Raised when the group consumes with another policy here already: stop that consumer, then register anew."""


class AnotherTopicError(RefusedError):
    """Raised when the ledger has other messages than the topic: it was created anew, so delete its rows there."""


class TablesMissingError(RefusedError):
    """Raised when a store lacks the library's tables, or has those of another release: create or migrate them."""


class StashFullError(RefusedError):
    """Raised when the stash has reached its bound: repair what is stashed, drain it, and start again."""


class LossLimitError(RefusedError):
    """Raised when more messages fail than `ignore` may lose: find out why they fail, and start again."""


class NamelessMessageError(RefusedError):
    """Raised for a message whose key is null or cannot be read, so that nobody knows whose it is."""


class RecordsDeletedError(RefusedError):
    """Raised when the topic no longer has what the group has yet to read: decide where it goes on, and reconcile."""


class EndedTransactionError(RefusedError):
    """Raised when a handler committed or rolled back by itself: let the library end the transaction."""


class SwallowedError(RefusedError):
    """Raised when a handler went on after the database had refused a statement: let the error out of the handler."""


class DependencyPendingError(UnreachableError):
    """Raised when a group that this one builds on has not processed a message yet: it may, a moment later."""


class DrainHeldError(RefusedError):
    """Raised when another drain of the stash is under way: wait until it has ended."""


class ReplayWindowError(RefusedError):
    """Raised when a ledger would forget what may be read again: keep more of it, or let the topic forget first."""


class UnresolvedLettersError(RefusedError):
    """Raised when dead letters are to be cleaned up of which something is left to do: replay them, or give them up."""
