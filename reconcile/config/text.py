"""Plain texts, as people write them in files: names of things that are ours to look up, never empty."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from reconcile.config.yamlfile import quoted

CONTROL = re.compile("[\x00-\x1f\x7f]")


def text_type(
    check: Callable[[str], str], schema: dict[str, Any] | None = None
) -> tuple[AfterValidator, WithJsonSchema]:
    """Build the annotations of a text that `check` accepts or refuses with ValueError."""
    return AfterValidator(check), WithJsonSchema({"type": "string", "minLength": 1, **(schema or {})})


def _plain(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    if text != text.strip() or CONTROL.search(text):
        raise ValueError(f"{quoted(text)} holds spaces at its ends, or control characters")
    return text


Text = Annotated[str, *text_type(_plain)]
