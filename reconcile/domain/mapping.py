"""Expressions over a record's value: SQL in which `$.a.b` stands for what lies at that path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

HOW_TO_WRITE = "write $.name, $.a.b or $['odd-name']"

_SEGMENT = r"(?:\.\w+|\['[^'\[\]?\\\x00-\x1f]+'\])"
_PATH = re.compile(rf"\${_SEGMENT}+")
_STEP = re.compile(r"\.(\w+)|\['([^']+)'\]")
# Spark's lexical grammar, as far as a `$` could hide in it.
_SKIPPED = re.compile(
    r"""
    (?<!\w)[rR]'[^']*' | (?<!\w)[rR]"[^"]*"
    | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`
    | --[^\n]* | /\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENERS = {"'": "string", '"': "string", "`": "quoted name", "/*": "comment"}
_NEXT = re.compile(r"""['"`$]|--|/\*|(?<!\w)[rR]['"]""")


def paths(expression: str) -> tuple[str, ...]:
    """Parse the paths in an expression, in order and once each; raise ValueError where one is malformed."""
    return tuple(dict.fromkeys(match.group() for match in _found(expression)))


def with_names(expression: str, names: Mapping[str, str]) -> str:
    """Build the expression with a name in place of each path."""
    parts, position = [], 0
    for match in _found(expression):
        parts += [expression[position : match.start()], names[match.group()]]
        position = match.end()
    return "".join([*parts, expression[position:]])


def steps(path: str) -> tuple[str, ...]:
    """Parse the names that a path goes through: a and b for $.a.b."""
    return tuple(plain or odd for plain, odd in _STEP.findall(path))


def is_path(text: str) -> bool:
    """Whether a text is one path and nothing else."""
    return _PATH.fullmatch(text) is not None


def _found(expression: str) -> Iterator[re.Match[str]]:
    position = 0
    while match := _NEXT.search(expression, position):
        start = match.start()
        if match.group() != "$":
            skipped = _SKIPPED.match(expression, start)
            if skipped is None:
                raise ValueError(f"a {_OPENERS.get(match.group(), 'string')} is not closed")
            position = skipped.end()
            continue
        path = _PATH.match(expression, start)
        if path is None or not _stands_alone(expression, start, path.end()):
            raise ValueError(f'"{_word(expression, start)}" is not a path: {HOW_TO_WRITE}')
        yield path
        position = path.end()


def _stands_alone(expression: str, start: int, end: int) -> bool:
    before = expression[start - 1 : start]
    return not re.match(r"[\w$]", before) and expression[end : end + 1] not in (".", "[", "$", "'", '"', "`")


def _word(expression: str, start: int) -> str:
    before = re.search(r"[\w$]{0,20}$", expression[max(start - 20, 0) : start])
    after = re.match(r"[^\s,;()|+*/=<>]{1,40}", expression[start : start + 40])
    return (before.group() if before else "") + (after.group() if after else "$")
