"""A contract's SQL, put into our own statements so that it can neither end them nor reach out of its place."""

from __future__ import annotations

import re

from psycopg2 import sql

from reconcile.domain.sql_calls import JDBC, require_calls
from reconcile.errors import RefusedError


def require_whole(text: str) -> sql.SQL:
    """Build a contract's SQL in parentheses that it can neither close nor comment out; raise RefusedError otherwise."""
    awaited: list[str] = []
    position = 0
    while match := _TOKEN.search(text, position):
        found, position = match.group(), match.end()
        if found == "/*":
            position = _comment_end(text, position)
        elif problem := _problem(match):
            raise RefusedError(f"{problem}, in the contract's SQL: {text}")
        elif found in _CLOSES:
            awaited.append(_CLOSES[found])
        elif match["bracket"] and (not awaited or awaited.pop() != found):
            raise RefusedError(f"a `{found}` closes nothing, in the contract's SQL: {text}")
    if awaited:
        raise RefusedError(f"a `{awaited[-1]}` is missing, in the contract's SQL: {text}")
    return sql.SQL(f"(\n{text}\n)")


def require_for_jdbc(text: str) -> None:
    """Raise RefusedError for SQL that some database could read otherwise than as a part of one statement that reads."""
    try:
        require_calls(text, JDBC, tables=True)
    except ValueError as error:
        raise RefusedError(f"{error}, in the contract's SQL: {text}") from None


def for_jdbc(text: str) -> str:
    """Build SQL as Postgres' JDBC driver takes it: for a question mark that is not quoted it wants a parameter."""
    pieces, position = [], 0
    while match := _TOKEN.search(text, position):
        end = _comment_end(text, match.end()) if match.group() == "/*" else match.end()
        pieces += [text[position : match.start()].replace("?", "??"), text[match.start() : end]]
        position = end
    return "".join([*pieces, text[position:].replace("?", "??")])


def _comment_end(text: str, position: int) -> int:
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(text, position):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    raise RefusedError(f"a /* is not closed, in the contract's SQL: {text}")


def _problem(match: re.Match[str]) -> str | None:
    if match.group() == ";":
        return "a `;` would end the statement"
    if match["continued"]:
        return "a text with escapes goes on in another: write it as one"
    if match["joined"]:
        return f"a number and a `{match['joined']}` stand too close: put a space between them"
    return f"a {match['unclosed']} is not closed" if match["unclosed"] else None


_CLOSES = {"(": ")", "[": "]"}
# Postgres' lexical grammar, as far as a parenthesis or a semicolon could hide in it. To it every byte above 0x7f
# is a letter. What its versions read differently is refused: a quotation right behind a number.
_LETTER = r"A-Za-z_\x80-\U0010ffff"
_TOKEN = re.compile(
    rf"""
    [eE]'(?:[^'\\]|\\.|'')*'(?P<continued>(?:\s|--[^\n\r]*[\n\r])*')?
    | '(?:[^']|'')*' | "(?:[^"]|"")*"
    | \$(?P<tag>(?:[{_LETTER}][{_LETTER}0-9]*)?)\$.*?\$(?P=tag)\$
    | (?P<unclosed>[eE]'|['"]|\$(?![0-9])(?:[{_LETTER}][{_LETTER}0-9]*\$|\$)?)
    | [{_LETTER}][{_LETTER}0-9$]*
    | \$?[0-9][{_LETTER}0-9.]*(?P<joined>['"$])?
    | --[^\n\r]* | /\*
    | (?P<bracket>[()\[\]]) | ;
    """,
    re.VERBOSE | re.DOTALL,
)
