"""What Spark keeps in memory is released with the block that needed it."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from reconcile.spark.persisted import persisted


def test_a_frame_is_released_when_its_block_ends() -> None:
    """And not before."""
    frame = Mock()
    with persisted(frame) as kept:
        assert kept is frame.persist.return_value
        frame.unpersist.assert_not_called()
    frame.unpersist.assert_called_once_with()


@pytest.mark.parametrize(("error", "released"), [(ValueError, True), (KeyboardInterrupt, False)])
def test_an_error_releases_it_and_an_interrupt_does_not(error: type[BaseException], released: bool) -> None:
    """After an interrupt Java ends with us, and may not answer."""
    frame = Mock()
    with pytest.raises(error), persisted(frame):
        raise error
    assert released is frame.unpersist.called
