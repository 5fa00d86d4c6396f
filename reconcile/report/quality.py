"""Great Expectations, as `reconcile` uses it: nothing is kept on disk and nothing is sent anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from great_expectations.data_context import EphemeralDataContext


def quality_context() -> EphemeralDataContext:
    """Give a data context that lives in memory and reports to nobody."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(enable=False)
    context.variables.progress_bars = {"globally": False}
    return context
