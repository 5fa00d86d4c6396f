"""Redis as a store, as far as it can be seen without a server."""

from __future__ import annotations

import pytest

from reconcile.gather.stores import redis_store
from reconcile.gather.stores.errors import StoreRefusedError


@pytest.mark.parametrize("url", ["redis://user:s3cr/et@host:6379/0", "redis://:s3cr#et@host", "redis://:s3cr?et@host"])
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    """A password that is not written as a URL wants it is taken for a port, which the parser repeats."""
    with pytest.raises(StoreRefusedError, match="%2F") as refused:
        redis_store.open_redis(url)
    assert "s3cr" not in f"{refused.value}"


def test_half_a_character_is_a_text_like_any_other() -> None:
    """JSON may escape one; Arrow, and so the whole audit, would refuse it."""
    (text,) = redis_store._columns(b'{"name": "Zo\\ud83d"}').values()
    assert "Zo\\ud83d" == text
