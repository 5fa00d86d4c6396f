"""What a model finds wrong in a file, as problems: where each is, what was found, what is valid."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Tag, ValidationError
from pydantic_core import ErrorDetails

from reconcile.config.yamlfile import MOST_PROBLEMS, Document, KeyPath, misread, path_text, quoted
from reconcile.errors import InvalidFileError, Problem

AnyModel = TypeVar("AnyModel", bound="Model")

_EXPECTED = {
    "string_type": "text",
    "path_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "model_attributes_type": "keys and values",
}


class Model(BaseModel):
    """A part of a file: frozen, with no unknown keys, and no value taken for another type's."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )


class ContradictionError(ValueError):
    """Raised by a model whose parts are right one by one but not together; the paths are relative to the model."""

    def __init__(self, found: Iterable[tuple[KeyPath, str]]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(f"{path_text(path)}: {message}" for path, message in self.found))


def require_consistent(found: Sequence[tuple[KeyPath, str]]) -> None:
    """Raise ContradictionError if anything was found."""
    if found:
        raise ContradictionError(found)


def validated(
    model: type[AnyModel],
    document: Document,
    file: Path,
    *,
    context: Mapping[str, Any] | None = None,
    secretive: bool = False,
) -> AnyModel:
    """Make a model of a document; raise InvalidFileError with every problem, `secretive` ones without values."""
    try:
        return model.model_validate(document.value, context=dict(context or {}))
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [
            problem
            for detail in details[:MOST_PROBLEMS]
            for problem in _problems(detail, model, document, secretive=secretive)
        ]
        problems.sort(key=lambda problem: problem.line or 0)
        if len(details) > MOST_PROBLEMS:
            problems.append(Problem("", f"and {len(details) - MOST_PROBLEMS} more problems"))
        raise InvalidFileError(file, problems) from None


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Build `; did you mean "email"?` for a name that is almost right, else nothing."""
    lower = {each.lower(): each for each in valid}
    nearest = difflib.get_close_matches(name.lower()[:100], lower, n=1, cutoff=0.6)
    return f"; did you mean {quoted(lower[nearest[0]])}?" if nearest else ""


def not_among(value: object, valid: Sequence[str], *, secretive: bool = False) -> str:
    """Say that a value is none of those that are valid, and which it may have meant."""
    found = "this" if secretive else _found(value, str(value))
    listed = ", ".join(valid[:-1]) + f" or {valid[-1]}" if len(valid) > 1 else valid[0]
    return f"{found} is not valid: write {listed}" + (suggestion(value, valid) if isinstance(value, str) else "")


def _problems(
    detail: ErrorDetails, model: type[BaseModel], document: Document, *, secretive: bool
) -> Iterable[Problem]:
    place = detail["loc"]
    if place[-1:] == ("[key]",) and detail["type"] != "extra_forbidden":
        place = place[:-1]
    path = tuple(part for part in place if not _is_tag(part))
    error = detail.get("ctx", {}).get("error")
    if isinstance(error, ContradictionError):
        for relative, message in error.found:
            at = document.nearest((*path, *relative))
            yield Problem(path_text(at), message, document.line(at))
        return
    at = path if detail["type"] == "missing" else document.nearest(path)
    message = str(error) if error is not None else _message(detail, model, place, document, secretive=secretive)
    yield Problem(path_text(at), message, document.line(at))


def _message(
    detail: ErrorDetails, model: type[BaseModel], place: KeyPath, document: Document, *, secretive: bool
) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    path = tuple(part for part in place if not _is_tag(part))
    if kind == "missing":
        about = _description(model, place)
        return "is missing" + (f": {about}" if about else "")
    if kind == "extra_forbidden":
        owner = _at(model, place[:-1])
        valid = [field.alias or name for name, field in getattr(owner, "model_fields", {}).items()]
        name = str(place[-1])
        return f"unknown key {quoted(name)}" + (suggestion(name, valid) or f"; valid keys are {', '.join(valid)}")
    if kind in ("literal_error", "enum"):
        return not_among(value, re.findall(r"'([^']*)'", context["expected"]), secretive=secretive)
    written = _kind(value) if secretive else document.written.get(document.nearest(path), str(value))
    if kind == "string_type" and value is not None and not isinstance(value, (Mapping, list)):
        return f"expected text, found {f'{written}; put quotes round it' if secretive else misread(value, written)}"
    found = _kind(value) if secretive else _found(value, written)
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {found}"
    if kind == "greater_than_equal":
        return f"must be {context['ge']} or more, found {found}"
    if kind == "less_than_equal":
        return f"must be {context['le']} or less, found {found}"
    if kind == "too_short":
        return "must not be empty"
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}"


def _found(value: object, written: str) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return "keys and values"
    if isinstance(value, (list, tuple)):
        return "a list"
    return written[:60]


def _kind(value: object) -> str:
    kinds = {
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        NoneType: "nothing",
        list: "a list",
    }
    return kinds.get(type(value), "keys and values")


def _is_tag(part: object) -> bool:
    return isinstance(part, str) and part.startswith("<kind:")


def _description(model: type[BaseModel], place: KeyPath) -> str:
    owner = _at(model, place[:-1])
    for name, field in getattr(owner, "model_fields", {}).items():
        if place[-1] in (name, field.alias):
            about = (field.description or "").split("\n")[0].rstrip(".")
            return about[:1].lower() + about[1:] if about[1:2].islower() or about[1:2] == " " else about
    return ""


def _at(annotation: Any, place: KeyPath) -> Any:
    """Look up the type that a model declares at a path."""
    for part in place:
        annotation = _below(_alternative(annotation, part), part)
    return _alternative(annotation, None)


def _below(annotation: Any, part: str | int) -> Any:
    if _is_tag(part):
        return annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    arguments = get_args(annotation)
    if get_origin(annotation) is tuple:
        return arguments[0]
    return arguments[1] if get_origin(annotation) is dict else None


def _alternative(annotation: Any, part: str | int | None) -> Any:
    """See through Annotated and Optional, and choose the branch of a union that the path names."""
    while True:
        arguments = get_args(annotation)
        if get_origin(annotation) is Annotated:
            annotation = arguments[0]
        elif get_origin(annotation) in (Union, UnionType):
            branches = [each for each in arguments if each is not NoneType]
            tagged = [each for each in branches if Tag(str(part)) in getattr(each, "__metadata__", ())]
            annotation = (tagged or branches)[0]
        else:
            return annotation
