"""Reads a YAML file that nobody vouches for: plain values with the line of each, or every reason why not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from reconcile.config.yamltree import Node, UnfitTreeError, compose
from reconcile.errors import InvalidFileError, Problem

LARGEST_FILE = 1024 * 1024
MOST_DIGITS = 19
MOST_PROBLEMS = 100

KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
_FALSE = frozenset({"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Messages must not repeat a password, wherever a slip of the pen has put it; tags and aliases are not repeated at all.
_CREDENTIALS = re.compile(r"(://)\S*(@)|((?:password|passwd|pwd|secret|token|pem)\w*\s*[:=]\s*)\S.*", re.IGNORECASE)
UNKNOWN_TAG = "a tag (!...) that is not known here; leave it out, and put quotes round text that begins with !"
_PLAIN_KEY = re.compile(r"[\w-]{1,60}")
_TYPES: Mapping[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}


@dataclass(frozen=True)
class Document:
    """What a file says: its values, and where each of them stands."""

    value: dict[str, Any]
    lines: Mapping[KeyPath, int]
    written: Mapping[KeyPath, str]
    """How the file writes each value that is not text: `no` where `value` holds False."""
    problems: tuple[tuple[KeyPath, Problem], ...] = ()
    """What is wrong with how it is written, each with its place; the values of these places mean nothing."""

    def line(self, path: KeyPath) -> int | None:
        """Look up the line of a path, or of what is nearest above it."""
        return self.lines.get(self.nearest(path))

    def nearest(self, path: KeyPath) -> KeyPath:
        """Compute the longest beginning of a path that stands in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return path


def load(file: Path) -> Document:
    """Read a file whose top is a mapping; raise InvalidFileError with every problem."""
    document = read(file)
    if document.problems:
        problems = [problem for _, problem in document.problems]
        raise InvalidFileError(file, sorted(problems, key=lambda problem: problem.line or 0))
    return document


def read(file: Path) -> Document:
    """Read a file as far as it can be read; raise InvalidFileError where it has no keys and values at all."""
    root, reader = _root(file), _Reader()
    value = reader.value(root, ())
    if not isinstance(value, dict):
        found = "a list" if isinstance(value, list) else "a single value"
        problems = [problem for _, problem in reader.problems]
        problems.append(Problem("", f"must hold keys and values (`key: value`), found {found}", root.line))
        raise InvalidFileError(file, sorted(problems, key=lambda problem: problem.line or 0))
    return Document(value, reader.lines, reader.written, tuple(reader.problems))


def path_text(path: KeyPath) -> str:
    """Write a path as people read it: `consumers[0].fields[2].consumer`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{quoted(part)}]"
    return text


def quoted(text: str, longest: int = 60) -> str:
    """Put text in double quotes, shortened, on one line, fit for a terminal, without passwords."""
    text = _CREDENTIALS.sub(r"\1\3***\2", text)
    shown = text if len(text) <= longest else text[: longest - 3] + "..."
    return json.dumps(shown, ensure_ascii=not shown.isprintable())


def _root(file: Path) -> Node:
    try:
        root = compose(_text(file))
    except UnfitTreeError as error:
        raise _unfit(file, str(error), error.line) from None
    except yaml.MarkedYAMLError as error:
        raise InvalidFileError(file, [_syntax_problem(error)]) from None
    except (yaml.YAMLError, ValueError):
        raise _unfit(file, "is not valid YAML") from None
    if root is None:
        raise _unfit(file, "is empty")
    return root


def _text(file: Path) -> str:
    try:
        if not file.is_file():
            raise _unfit(file, "is not a file" if file.exists() else "there is no such file")
        with file.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise _unfit(file, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST_FILE:
        raise _unfit(file, f"is larger than {LARGEST_FILE // 1024} KiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unfit(file, f"is not UTF-8: byte 0x{data[error.start]:02x}", line) from None
    problems = [
        Problem("", f"{_control(match)} may not stand in the file", text.count("\n", 0, match.start()) + 1)
        for match in islice(_UNPRINTABLE.finditer(text), MOST_PROBLEMS)
    ]
    if problems:
        raise InvalidFileError(file, problems)
    return text


def _unfit(file: Path, message: str, line: int | None = None) -> InvalidFileError:
    """Build the error for a file of which nothing can be read."""
    return InvalidFileError(file, [Problem("", message, line)])


def _control(match: re.Match[str]) -> str:
    return f"the character U+{ord(match.group()):04X}"


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    # str(error) would quote the file, and with it perhaps a password.
    mark = error.problem_mark or error.context_mark
    message = f"is not valid YAML: {error.problem or error.context}"
    if error.problem and error.context:
        begins = f" that begins in line {error.context_mark.line + 1}" if error.context_mark else ""
        message += f" ({error.context}{begins})"
    return Problem("", message, mark.line + 1 if mark else None)


class _Reader:
    """Turns a tree into plain values, and collects what is wrong on the way."""

    def __init__(self) -> None:
        self.problems: list[tuple[KeyPath, Problem]] = []
        self.lines: dict[KeyPath, int] = {}
        self.written: dict[KeyPath, str] = {}

    def value(self, node: Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.line)
        if node.text is not None:
            value = self._scalar(node, path)
            if not isinstance(value, str):
                self.written[path] = node.text
            return value
        if node.tag not in (None, "!", _TAG + ("map" if node.mapping else "seq")):
            self._problem(path, UNKNOWN_TAG, node.line)
        if node.mapping:
            return self._mapping(node, path)
        return [self.value(child, (*path, index)) for index, child in enumerate(node.children)]

    def _mapping(self, node: Node, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in zip(node.children[::2], node.children[1::2], strict=True):
            key = self._key(key_node, path)
            if key is None:
                continue
            child = (*path, key)
            if key in values:
                self._problem(child, f"stands here again, first in line {self.lines[child]}", key_node.line)
                continue
            self.lines[child] = key_node.line
            values[key] = self.value(value_node, child)
        return values

    def _key(self, node: Node, path: KeyPath) -> str | None:
        if node.text is None:
            found = "a mapping" if node.mapping else "a list"
            self._problem(path, f"a key must be text, found {found}", node.line)
            return None
        if node.plain and node.text == "<<":
            self._problem(path, "merging with `<<` is not supported; write the keys out", node.line)
            return None
        before = len(self.problems)
        key = self._scalar(node, path)
        if len(self.problems) > before:
            return None
        if not isinstance(key, str):
            self._problem(path, f"a key must be text, found {misread(key, node.text)}", node.line)
            return None
        return key

    def _scalar(self, node: Node, path: KeyPath) -> Any:
        assert node.text is not None
        kind = (node.tag or "").removeprefix(_TAG)
        if not node.plain and kind in ("", "!", "str"):
            return self._printable(node.text, node, path)
        if kind not in ("", "null", *_TYPES):
            self._problem(path, UNKNOWN_TAG, node.line)
            return ""
        value = self._resolved(node, path)
        if kind in _TYPES and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool")):
            self._problem(path, f"is not what its tag !!{kind} says", node.line)
        return value

    def _resolved(self, node: Node, path: KeyPath) -> Any:
        text = node.text or ""
        if text in _NULLS:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INTEGER.fullmatch(text):
            if len(text.lstrip("+-")) > MOST_DIGITS:
                self._problem(path, f"is a whole number of more than {MOST_DIGITS} digits", node.line)
                return 0
            return int(text)
        if _NOT_FINITE.fullmatch(text):
            self._problem(path, f"{text} is not a number that can be used", node.line)
            return 0.0
        if _FLOAT.fullmatch(text):
            number = float(text)
            if math.isfinite(number):
                return number
            self._problem(path, "is a number that is too large", node.line)
            return 0.0
        return self._printable(text, node, path)

    def _printable(self, text: str, node: Node, path: KeyPath) -> str:
        if match := _UNPRINTABLE.search(text):
            self._problem(path, f"{_control(match)} may not stand in a text", node.line)
        return text

    def _problem(self, path: KeyPath, message: str, line: int) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append((path, Problem(path_text(path), message, line)))


def misread(value: object, written: str) -> str:
    """Say how YAML took something that was meant as text, and how to write it instead."""
    if value is None:
        return "nothing"
    if isinstance(value, bool) and written.lower() != str(value).lower():
        return f"{written}, which YAML reads as {str(value).lower()}; put quotes round it: {quoted(written)}"
    return f"{written[:60]}; put quotes round it: {quoted(written)}"
