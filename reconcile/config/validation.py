"""What a model finds wrong in a file, as problems: where each is, what was found, what is valid."""

from __future__ import annotations

import copy
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Tag, ValidationError, ValidationInfo, model_validator
from pydantic_core import ErrorDetails

from reconcile.config.yamlfile import MOST_PROBLEMS, Document, KeyPath, misread, path_text, quoted
from reconcile.errors import InvalidFileError, Problem

AnyModel = TypeVar("AnyModel", bound="Model")
Contradiction = tuple[KeyPath, str]
"""What does not fit: where, seen from the model that says so, and why."""

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

_EXAMINING = "_examining"
_ATTEMPTS = 40
# What some part of a file may hold; a part that is mended tries one after the other.
_STAND_INS: tuple[Any, ...] = ("x", "$.x", "60s", "tombstone", "main", "skipped", 1, False, {}, [], ["x"], [{}], 0.5)


class Model(BaseModel):
    """A part of a file: frozen, with no unknown keys, and no value taken for another type's."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    def contradictions(self) -> Iterable[Contradiction]:
        """List what is right part by part but does not fit together."""
        return ()

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Self:
        if not (info.context or {}).get(_EXAMINING) and (found := tuple(self.contradictions())):
            raise ContradictionError(found)
        return self


class ContradictionError(ValueError):
    """Raised by a model whose parts are right one by one but not together; the paths are relative to the model."""

    def __init__(self, found: Iterable[Contradiction]) -> None:
        self.found = tuple(found)
        super().__init__("; ".join(f"{path_text(path)}: {message}" for path, message in self.found))


@dataclass(frozen=True)
class Examined(Generic[AnyModel]):
    """What a document says, also where something in it is wrong."""

    model: AnyModel | None
    """The model, with a stand-in for each value that is wrong; None where no stand-in would do."""
    problems: tuple[Problem, ...]
    """All that is wrong, by lines."""
    draft: _Draft

    def with_contradictions(self, found: Iterable[Contradiction]) -> tuple[Problem, ...]:
        """Add what others find in the model, unless it is about a stand-in; by lines."""
        more = (_problem(self.draft.document, *each) for each in found if not self.draft.is_stand_in(each[0]))
        return tuple(sorted((*self.problems, *more), key=lambda problem: problem.line or 0))


def validated(
    model: type[AnyModel],
    document: Document,
    file: Path,
    *,
    context: Mapping[str, Any] | None = None,
    secretive: bool = False,
) -> AnyModel:
    """Make a model of a document; raise InvalidFileError with every problem, `secretive` ones without values."""
    found = examined(model, document, context=context, secretive=secretive)
    if found.problems or found.model is None:
        raise InvalidFileError(file, found.problems)
    return found.model


def examined(
    model: type[AnyModel], document: Document, *, context: Mapping[str, Any] | None = None, secretive: bool = False
) -> Examined[AnyModel]:
    """Look for every problem of a document, also for what contradicts itself beside a value that is wrong.

    What is wrong gets a stand-in, until the rest can be looked at.
    """
    draft, problems = _Draft(document), [problem for _, problem in document.problems]
    made: AnyModel | None = None
    for _ in range(_ATTEMPTS):
        try:
            made = model.model_validate(draft.value, context={**(context or {}), _EXAMINING: True})
            break
        except ValidationError as error:
            details = [each for each in error.errors(include_url=False) if not draft.is_stand_in(_path_of(each))]
            problems += [each for one in details for each in _problems(one, model, draft.document, secretive=secretive)]
            draft.mend(error.errors(include_url=False), model)
    if made is not None:
        listed = (each for each in _contradictions(made, ()) if not draft.is_stand_in(each[0]))
        problems += [_problem(draft.document, *each) for each in listed]
    problems.sort(key=lambda problem: problem.line or 0)
    if len(problems) > MOST_PROBLEMS:
        problems[MOST_PROBLEMS:] = [Problem("", f"and {len(problems) - MOST_PROBLEMS} more problems")]
    return Examined(made, tuple(problems), draft)


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Build `; did you mean "email"?` for a name that is almost right, else nothing."""
    found = nearest(name, valid)
    return f"; did you mean {quoted(found)}?" if found else ""


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Choose the valid name that an almost right one may have meant."""
    lower = {each.lower(): each for each in valid}
    found = difflib.get_close_matches(name.lower()[:100], lower, n=1, cutoff=0.6)
    return lower[found[0]] if found else None


def not_among(value: object, valid: Sequence[str], *, secretive: bool = False) -> str:
    """Say that a value is none of those that are valid, and which it may have meant."""
    found = "this" if secretive else _found(value, str(value))
    listed = ", ".join(valid[:-1]) + f" or {valid[-1]}" if len(valid) > 1 else valid[0]
    return f"{found} is not valid: write {listed}" + (suggestion(value, valid) if isinstance(value, str) else "")


@dataclass
class _Draft:
    """A document in which stand-ins replace what is wrong, so that the rest can be looked at."""

    document: Document
    """With the lines also of keys that were renamed to what they seem to mean."""
    value: Any = None
    stand_ins: set[KeyPath] = field(default_factory=set)
    _tried: Counter[KeyPath] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.value = copy.deepcopy(self.document.value)

    def is_stand_in(self, path: KeyPath) -> bool:
        """Whether a place holds, or is part of, what means nothing."""
        unread = any(path == place for place, _ in self.document.problems)
        return unread or any(path[:length] in self.stand_ins for length in range(1, len(path) + 1))

    def mend(self, details: Sequence[ErrorDetails], model: type[BaseModel]) -> None:
        """Rename or remove unknown keys, and put a stand-in, each time another one, for what is wrong or missing."""
        for detail in (each for each in details if _is_unknown_key(each)):
            self._rename(_path_of(detail), detail, model)
        for detail in (each for each in details if not _is_unknown_key(each)):
            *above, last = self._reached(_path_of(detail), missing=detail["type"] == "missing")
            owner = self._at(above)
            if detail["type"] == "missing" and last in owner:
                continue  # a key was renamed to it
            path = (*above, last)
            valid = re.findall(r"'([^']*)'", detail.get("ctx", {}).get("expected", "")) if not self._tried[path] else []
            owner[last] = copy.deepcopy(valid[0] if valid else _STAND_INS[self._tried[path] % len(_STAND_INS)])
            self._tried[path] += 1
            self.stand_ins.add(path)

    def _rename(self, path: KeyPath, detail: ErrorDetails, model: type[BaseModel]) -> None:
        *above, key = path
        owner = self._at(above)
        meant = None if detail["type"] != "extra_forbidden" else nearest(str(key), _keys(model, detail["loc"]))
        value = owner.pop(key, None)
        if meant is not None and meant not in owner:
            owner[meant] = value
            lines, written = (
                _moved(each, path, (*above, meant)) for each in (self.document.lines, self.document.written)
            )
            self.document = replace(self.document, lines=lines, written=written)

    def _reached(self, path: KeyPath, *, missing: bool) -> KeyPath:
        """Compute how far a path leads: what is written in another form has its parts not in the document."""
        at: Any = self.value
        for number, part in enumerate(path):
            is_there = part in at if isinstance(at, dict) else isinstance(at, list) and part in range(len(at))
            if not is_there:
                can_be = missing and number == len(path) - 1 and isinstance(at, dict)
                return path if can_be else path[: max(number, 1)]
            at = at[part]
        return path

    def _at(self, path: Iterable[str | int]) -> Any:
        at = self.value
        for part in path:
            at = at[part]
        return at


def _moved(texts: Mapping[KeyPath, Any], path: KeyPath, to: KeyPath) -> dict[KeyPath, Any]:
    moved = {(*to, *place[len(path) :]): text for place, text in texts.items() if place[: len(path)] == path}
    return {**texts, **moved}


def _contradictions(model: Any, path: KeyPath) -> Iterator[Contradiction]:
    """List the contradictions of a model and of all its parts."""
    parts: Iterable[tuple[str | int, Any]] = ()
    if isinstance(model, Model):
        yield from (((*path, *relative), message) for relative, message in model.contradictions())
        parts = ((each.alias or name, getattr(model, name)) for name, each in type(model).model_fields.items())
    elif isinstance(model, tuple):
        parts = enumerate(model)
    elif isinstance(model, Mapping):
        parts = model.items()
    for key, part in parts:
        yield from _contradictions(part, (*path, key))


def _path_of(detail: ErrorDetails) -> KeyPath:
    *above, last = _place(detail)
    is_key = _is_unknown_key(detail)  # which may look like a kind
    return (*(part for part in above if not _is_tag(part)), *([last] if is_key or not _is_tag(last) else []))


def _place(detail: ErrorDetails) -> KeyPath:
    """Choose where a problem is, with the kinds of what is above it."""
    place = detail["loc"]
    return place[:-1] if place[-1:] == ("[key]",) and detail["type"] != "extra_forbidden" else place


def _is_unknown_key(detail: ErrorDetails) -> bool:
    return detail["type"] == "extra_forbidden" or detail["loc"][-1:] == ("[key]",)


def _problem(document: Document, path: KeyPath, message: str) -> Problem:
    at = document.nearest(path)
    return Problem(path_text(at), message, document.line(at))


def _problems(
    detail: ErrorDetails, model: type[BaseModel], document: Document, *, secretive: bool
) -> Iterable[Problem]:
    path = _path_of(detail)
    error = detail.get("ctx", {}).get("error")
    at = path if detail["type"] == "missing" else document.nearest(path)
    message = str(error) if error is not None else _message(detail, model, document, secretive=secretive)
    yield Problem(path_text(at), message, document.line(at))


def _message(detail: ErrorDetails, model: type[BaseModel], document: Document, *, secretive: bool) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    place, path = _place(detail), _path_of(detail)
    if kind == "missing":
        about = _description(model, place)
        return "is missing" + (f": {about}" if about else "")
    if kind == "extra_forbidden":
        name, valid = str(place[-1]), _keys(model, place)
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


def _keys(model: type[BaseModel], place: KeyPath) -> list[str]:
    """List the keys that are valid beside an unknown one."""
    owner = _at(model, place[:-1])
    return [each.alias or name for name, each in getattr(owner, "model_fields", {}).items()]


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
    for name, each in getattr(owner, "model_fields", {}).items():
        if place[-1] in (name, each.alias):
            about = (each.description or "").split("\n")[0].rstrip(".")
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
        for name, each in annotation.model_fields.items():
            if part in (name, each.alias):
                return each.annotation
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
