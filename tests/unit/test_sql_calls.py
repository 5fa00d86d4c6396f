"""What SQL of a contract may call where Spark runs it, or a driver hands it on."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconcile.contract.model import load_contract
from reconcile.domain.sql_calls import JDBC, SPARK, Calls, require_calls
from reconcile.errors import InvalidFileError
from reconcile.files import committed


@pytest.mark.parametrize(
    "text",
    [
        "java_method('java.lang.Runtime', 'getRuntime')",
        "upper(reflect('java.lang.System', 'getenv', 'PATH'))",
        "TRY_REFLECT ('java.lang.System', 'exit')",
        "`reflect`('a', 'b')",
        '"reflect"("a")',
        "reflect/**/('a', 'b')",
        "reflect -- x\n('a', 'b')",
        "-- \\\n ' \n reflect('a') -- '",
        "-- x\r reflect('a', 'b')",
        "/* /* */ ' */ reflect('a') -- '",
        "system.builtin.reflect('a', 'b')",
        "identifier('reflect')('a', 'b')",
        "1.or reflect('a', 'b')",
        "case when reflect ('a', 'b') then 1 end",
        "r'\\' || reflect('a', 'b') || '",
        "'\\\\' || reflect('a', 'b')",
        "raise_error($.email)",
        "input_file_name()",
        "from_protobuf(a, 'M', '/etc/passwd')",
        "(select max(value) from text.`/etc/passwd`)",
        "exists (from text.`/etc/passwd` |> limit 1)",
        "(table secret)",
        "(map a using 'sh -c true')",
        "a; drop table t",
        "a) from t where (b",
        "(a",
        "'a",
        "a \u20ac b",
    ],
)
def test_what_spark_must_not_run_is_refused(text: str) -> None:
    """Nothing of Java, of files, of another table or of a program; nor what hides that."""
    with pytest.raises(ValueError):  # noqa: PT011 - the reasons differ
        require_calls(text, SPARK)


@pytest.mark.parametrize(
    "text",
    [
        "$.first_name || ' ' || $.last_name",
        "cast($.price as decimal(12, 2))",
        "$['odd-name'] in ('a', 'b') and not (a or b)",
        "coalesce(try_cast($.a.b as bigint), 0) + 1.5e3",
        "transform(split($.tags, ','), each -> upper(trim(each)))",
        "case when ($.kind = 'x') then date_trunc('second', $.at) else null end",
        "$.update is distinct from $.call",
        "substring($.a from 2 for 3)",
        "regexp_replace($.a, '\\\\(x\\\\)', '') -- what stands in parentheses",
        "sum(a) over (partition by b order by c)",
        "$.größe /* in cm */ * 10L",
    ],
)
def test_what_contracts_say_is_taken(text: str) -> None:
    """Functions that compute, and nothing else."""
    require_calls(text, SPARK)


@pytest.mark.parametrize(
    "text",
    [
        "load_file('/etc/passwd')",
        "1) from t; drop table t; select (1",
        "xp_cmdshell('x')",
        "utl_http.request('http://x')",
        "csvwrite('/tmp/x', 'select 1')",
        "'it\\'s ' || load_file('/etc/passwd') || ' '",
        "'\\' || load_file('/etc/passwd') || '\\'",
        "q'[ ' ]' || load_file('/etc/passwd') || ' '",
        "[it's] || load_file('/etc/passwd') || ' '",
        "a # ' \n || load_file('x') -- '",
        "$$ ' $$ || load_file('x') || ' '",
        "` ' ` || load_file('x') || ' '",
        "/*! load_file('x') */ 1",
        "a --' \n || load_file('x') -- '",
        "a --\u00a0 + load_file('x')",
        "{fn load_file('x')}",
        "(select 1 into outfile '/tmp/x')",
        "nextval('numbers')",
        "next value for numbers",
        "numbers.nextval",
        "(select x from t for update)",
    ],
)
def test_what_a_driver_must_not_hand_on_is_refused(text: str) -> None:
    """Engines differ in quotes and comments: what one of them could read otherwise is refused."""
    with pytest.raises(ValueError):  # noqa: PT011 - the reasons differ
        require_calls(text, JDBC, tables=True)


@pytest.mark.parametrize(
    "text",
    [
        "upper(\"First Name\") || ' it''s'",
        "select id, max(at) as at from changes where kind in ('a', 'b') group by id",
        "select * from (select id, row_number() over (partition by id) n from t) x where n = 1",
        "cast(price as decimal(12,2)) -- as shown",
        "case when (DONE = 1) then 1 else 0 end",
        "timestamp('2026-01-02 03:04:05')",
        '`a b` + [a b] + "a"',
        "exists (select 1 from t where t.id = x.id)",
        """('{"?": 1}'::jsonb ? '?' and '["a"]' ?| array['a'] /* ? */)""",
        "date'2026-01-01' < now()",
    ],
)
def test_what_databases_are_asked_is_taken(text: str) -> None:
    """A query asks tables, and calls what most databases have."""
    require_calls(text, JDBC, tables=True)


@pytest.mark.parametrize(("calls", "name"), [(SPARK, "upper"), (JDBC, "nvl2")])
def test_a_function_that_is_missing_is_named(calls: Calls, name: str) -> None:
    """With where to read more."""
    require_calls(f"{name}(a)", calls)
    with pytest.raises(ValueError, match=f"the function x{name} may not be called"):
        require_calls(f"x{name}(a)", calls)


@pytest.mark.parametrize("field", ["reflect('a', $.email)", "upper(java_method('a', 'b', $.email))"])
def test_a_contract_that_calls_java_is_refused_before_anything_starts(tmp_path: Path, field: str) -> None:
    """As `contract check` does, with the place."""
    text = committed("contracts", "user-account.yaml").read_text("utf-8")
    file = tmp_path / "contract.yaml"
    file.write_text(text.replace("event: $.email", f'event: "{field}"'), "utf-8")
    assert text != file.read_text("utf-8")
    with pytest.raises(InvalidFileError) as refused:
        load_contract(file)
    assert "may not be called" in str(refused.value)
    assert "event" in refused.value.problems[0].path
