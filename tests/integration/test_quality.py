"""Great Expectations as it is used here."""

from __future__ import annotations

import warnings


def test_nothing_is_kept_and_nothing_is_sent() -> None:
    """The data context lives in memory, and its analytics are off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, when it is imported
        from reconcile.report.quality import quality_context

        context = quality_context()
    assert "EphemeralDataContext" == type(context).__name__
    assert context.config.analytics_enabled is False
