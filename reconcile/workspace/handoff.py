"""What one stage leaves for another, and what `--json` prints: frozen, versioned models with one name each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, PlainSerializer, TypeAdapter, ValidationError

IsoTime = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]
"""An instant that JSON shows with its offset, as Python writes it."""


class Handoff(Protocol):
    """A model that a run keeps as an artifact: a pydantic model, or a dataclass that pydantic can read."""

    ARTIFACT: ClassVar[str]
    """The name of its artifact."""
    STAGE: ClassVar[Any]
    """The stage that publishes it: a `Stage`."""


AnyHandoff = TypeVar("AnyHandoff", bound=Handoff)
Parsed = TypeVar("Parsed")


class Part(BaseModel):
    """A part of a hand-off. A later version of the same format may add keys: those are passed over."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", populate_by_name=True, use_attribute_docstrings=True
    )


class Versioned(Part):
    """A whole hand-off."""

    schema_version: Literal[1] = 1


def to_data(value: Any) -> Any:
    """Build the JSON value of a hand-off, or of a part of one."""
    return _adapter(type(value)).dump_python(value, mode="json", by_alias=True)


def parse(model: type[Parsed], text: str) -> Parsed:
    """Read a hand-off, or another model, from JSON text; raise ValueError that names what does not fit and where."""
    try:
        read: Parsed = _adapter(model).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None
    return read


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
