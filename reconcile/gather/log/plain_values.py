"""Decoded values in the form of JSON.

What JSON has no number or type for becomes text: decimals with all their digits, instants in ISO form, bytes in base64.
"""

from __future__ import annotations

import base64
import datetime
import math
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Build what JSON can write of a value."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
