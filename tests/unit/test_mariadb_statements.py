"""A contract's SQL in a MariaDB's statements: it can neither end them nor reach out of its place."""

from __future__ import annotations

import pytest

from reconcile.errors import RefusedError
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.mariadb import statements


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "concat(first_name, ' ', last_name)",
        "if(a = ')', 1, 2)",
        "if(a = '\\'', ')', \"(\")",
        "'it''s'",
        "`(` + 1",
        "a -- )",
        "a # )\n + 1",
        "a /* ) */ + 1",
        "a--(1)",
    ],
)
def test_whole_sql_is_put_in_parentheses(text: str) -> None:
    """With a line break before the end, for a comment may be the last of it."""
    assert f"(\n{text}\n)" == statements.require_whole(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a) from x where (1 = 1", "closes nothing"),
        ("(a", "missing"),
        ("a; drop table x", "would end the statement"),
        ("'a", "a ' is not closed"),
        ("'a\\'", "a ' is not closed"),
        ("`a", "a ` is not closed"),
        ("a /* b", "is not closed"),
        ("a /*! ) */", "would be executed"),
        ("a /*M!100100 ) */", "would be executed"),
        ("a --)", "closes nothing"),
        ("a --\u00a0) from x", "closes nothing"),
        ("a --\x7f'\n) from x -- '", "closes nothing"),
    ],
)
def test_sql_that_breaks_out_is_refused(text: str, said: str) -> None:
    """Also by what is a comment in one database and none in another."""
    with pytest.raises(RefusedError, match=said):
        statements.require_whole(text)


def test_names_are_quoted() -> None:
    """Whatever they hold."""
    assert "`a`.`b``c`" == statements.relation(Side(("id",), (), table="a.b`c"))
