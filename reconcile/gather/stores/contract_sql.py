"""A contract's SQL, put into our own statements so that it can neither end them nor reach out of its place."""

from __future__ import annotations

import re

from psycopg2 import sql

from reconcile.errors import RefusedError


def require_whole(text: str) -> sql.SQL:
    """Build a contract's SQL in parentheses that it can neither close nor comment out; raise RefusedError otherwise."""
    awaited: list[str] = []
    position = 0
    while match := _TOKEN.search(text, position):
        found, position = match.group(), match.end()
        if found == "/*":
            position = _comment_end(text, position)
        elif match["unclosed"] or match["unclosed_escapes"] or found == ";":
            problem = "a `;` would end the statement" if found == ";" else f"a {found} is not closed"
            raise RefusedError(f"{problem}, in the contract's SQL: {text}")
        elif found in _CLOSES:
            awaited.append(_CLOSES[found])
        elif match["bracket"] and (not awaited or awaited.pop() != found):
            raise RefusedError(f"a `{found}` closes nothing, in the contract's SQL: {text}")
    if awaited:
        raise RefusedError(f"a `{awaited[-1]}` is missing, in the contract's SQL: {text}")
    return sql.SQL(f"(\n{text}\n)")


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


_CLOSES = {"(": ")", "[": "]"}
# Postgres' lexical grammar, as far as a parenthesis or a semicolon could hide in it.
_TOKEN = re.compile(
    r"""
    (?<![\w$])[eE]'(?:[^'\\]|\\.|\'\')*' | (?P<unclosed_escapes>(?<![\w$])[eE]')
    | '(?:[^']|\'\')*' | "(?:[^"]|"")*"
    | (?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
    | --[^\n\r]* | /\*
    | (?P<bracket>[()\[\]]) | ;
    | (?P<unclosed>['"]|(?<![\w$])\$(?:[^\W\d]\w*)?\$)
    """,
    re.VERBOSE | re.DOTALL,
)
