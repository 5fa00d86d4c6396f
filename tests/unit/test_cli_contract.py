"""`reconcile contract` and how commands print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from reconcile.cli.contract import EXAMPLES, contract
from reconcile.cli.output import print_json
from reconcile.cli.outputs import FindingsOutput
from reconcile.errors import InvalidFileError
from reconcile.files import committed
from tests.schemas import valid_output

VALID = """
version: 1
aggregate: user
source: {store: a, table: t, id: id}
topic: {cluster: main, name: user}
consumers:
  - {name: login, group: g, store: b, table: u, id: id, fields: [{name: email, source: email, consumer: mail}]}
  - {name: billing, group: h, store: b, table: u, id: id, fields: [{name: email, source: email, consumer: mail}]}
"""


def check(folder: Path, text: str, *options: str) -> Result:
    file = folder / "c.yaml"
    file.write_text(text)
    return CliRunner().invoke(contract, ["check", str(file), *options])


def test_a_valid_contract_is_summed_up(tmp_path: Path) -> None:
    """One line says what is linked, and the exit code is 0."""
    result = check(tmp_path, VALID)
    expected = f"{tmp_path}/c.yaml: ok: user through topic user to login, billing\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, expected, "")


@pytest.mark.parametrize(
    ("failure", "place", "said"),
    [
        ("{policy: retry-topics, retry: [r]}", "policy", "retry topics lose the order of an aggregate's events"),
        ("{policy: block, dialect: share-group}", "dialect", "a share group has no order"),
    ],
)
def test_b5_a_copy_of_state_that_loses_its_order_is_warned_of(
    tmp_path: Path, failure: str, place: str, said: str
) -> None:
    """B5: the contract says how the world is, so it stays valid; one line on stderr says what harm that does."""
    text = VALID.replace("group: h,", f"group: h, failure: {failure},")
    result = check(tmp_path, text)
    assert (0, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert result.stderr.startswith(f"{tmp_path}/c.yaml: warning: consumers[1].failure.{place}: {said}")
    (warning,) = valid_output("contract check", check(tmp_path, text, "--json").stdout)["warnings"]
    assert f"consumers[1].failure.{place}" == warning["path"]
    records = check(tmp_path, text.replace("group: h,", "group: h, semantics: records,"))
    assert "" == records.stderr


def test_problems_go_to_stderr_one_per_line(tmp_path: Path) -> None:
    """Each line has file, path, message and line; the exit code is 2."""
    result = check(tmp_path, VALID.replace("version: 1", "version: 2").replace("cluster", "clustr"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"{tmp_path}/c.yaml: version: this program reads version 1: write `version: 1` (line 2)",
        f"{tmp_path}/c.yaml: topic.cluster: is missing: the name of the connection to the Kafka cluster (line 5)",
        f'{tmp_path}/c.yaml: topic.clustr: unknown key "clustr"; did you mean "cluster"? (line 5)',
    ]


def test_json_tells_of_a_valid_contract(tmp_path: Path) -> None:
    """--json prints one object."""
    result = check(tmp_path, VALID, "--json")
    expected = {"schema_version": 1, "file": f"{tmp_path}/c.yaml", "valid": True, "problems": [], "warnings": []}
    assert (result.exit_code, valid_output("contract check", result.stdout)) == (0, expected)


def test_json_tells_of_problems(tmp_path: Path) -> None:
    """--json prints problems as data, and nothing else."""
    result = check(tmp_path, VALID.replace("aggregate: user", "aggregate: 5"), "--json")
    message = 'expected text, found 5; put quotes round it: "5"'
    assert valid_output("contract check", result.stdout)["problems"] == [
        {"path": "aggregate", "line": 3, "message": message}
    ]
    assert (result.exit_code, result.stderr) == (2, "")


def test_connections_are_checked_with_the_settings(tmp_path: Path) -> None:
    """By their names alone; each that is missing is told with its place."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("connections: {a: {url: 'postgresql://u@h:1/d'}, main: {bootstrap: 'h:1'}}")
    result = check(tmp_path, VALID, "--config", str(settings), "--workspace", "runs")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f'{tmp_path}/c.yaml: consumers[{number}].store: no connection "b"; there are a, main (line {number + 7})'
        for number in range(2)
    ]
    assert check(tmp_path, VALID.replace("store: b", "store: a"), "--config", str(settings)).exit_code == 0


PLANTED = """\
version: 1
agregate: user
source:
  store: files
  table: t
  id: [id, id]
  deleted: reflect(id)
topic:
  cluster: main
  name: user
  format: avro
  key: {type: !int string}
  delete: $.gone == treu(1)
consumers:
  - name: login
    group: g
    store: nowhere
    table: u
    query: select 1
    id: id
    guard: older
    feilds:
      - {name: email, source: email, consumer: mail, event: uper(trm($.email))}
      - {name: email, source: email, consumer: mail, event: email, tolerance: -1}
      - {name: sum, source: a, consumer: b, apply: add}
    failure: {policy: stash, retry: [user], dead_letter: user}
  - {name: login, group: h, store: files, table: u, id: [a, b], fields: [{name: e, source: e, consumer: m}],
     settle: {timeout: 5}, repair: {causes: [skiped]}}
"""
"""Of each kind of problem some: of YAML, keys, values, SQL, parts that contradict, and the settings."""


def test_all_that_is_wrong_is_told_in_one_pass(tmp_path: Path) -> None:
    """What contradicts itself is told also beside a value that is wrong, each with its path and its line."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("connections: {files: {path: /data}, main: {bootstrap: 'h:1'}}")
    lines = check(tmp_path, PLANTED, "--config", str(settings)).stderr.splitlines()
    said = [line.removeprefix(f"{tmp_path}/c.yaml: ") for line in lines]
    expected = [
        ("aggregate: is missing", 1),
        ('agregate: unknown key "agregate"; did you mean "aggregate"?', 2),
        ("source.id: names a column twice", 6),
        ("source.deleted: the function reflect may not be called", 7),
        ("topic.format: avro values need", 11),
        ("topic.key.type: a tag (!...)", 12),
        ('topic.delete: the function treu may not be called in SQL for Spark; did you mean "trunc"?', 13),
        ("consumers[0]: needs either `table` or `query`; both are there", 15),
        ("consumers[0].fields: is missing", 15),
        ('consumers[0].store: no connection "nowhere"', 17),
        ("consumers[0].id: has 1 columns", 20),
        ('consumers[0].guard: "older" is not valid: write none, newer or newer-or-equal', 21),
        ('consumers[0].feilds: unknown key "feilds"; did you mean "fields"?', 22),
        ("consumers[0].fields[0].event: the functions uper, trm may not be called in SQL for Spark; did you mean", 23),
        ('consumers[0].fields[1].event: "email" has no path', 24),
        ("consumers[0].fields[1].tolerance: must be 0 or more", 24),
        ('consumers[0].fields[1].name: the field "email" is already there', 24),
        ("consumers[0].fields[2].apply: `apply: add` needs `event`", 25),
        ("consumers[0].failure.policy: the policy stash needs `stash`", 26),
        ("consumers[0].failure.dead_letter: the topic user is already named", 26),
        ("consumers[0].failure.retry[0]: is the main topic", 26),
        ("consumers[0].failure.dead_letter: is the main topic", 26),
        ("consumers[1].name: there is already a consumer login", 27),
        ("consumers[1].settle.timeout: ", 28),
        ('consumers[1].repair.causes[0]: "skiped" is not valid', 28),
    ]
    assert [] == [each for each in expected if not any(_says(line, *each) for line in said)]
    assert [] == [line for line in said if not any(_says(line, *each) for each in expected)]


def _says(line: str, text: str, number: int) -> bool:
    return line.startswith(text) and line.endswith(f"(line {number})")


def test_settings_that_are_wrong_are_no_fault_of_the_contract(tmp_path: Path) -> None:
    """The error names their own file."""
    (tmp_path / "settings.yaml").write_text("conections: {}")
    found = check(tmp_path, VALID, "--config", str(tmp_path / "settings.yaml")).exception
    assert isinstance(found, InvalidFileError)
    assert "settings.yaml: conections" in str(found)


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    """A wrong name is told like any other problem."""
    result = CliRunner().invoke(contract, ["check", str(tmp_path / "none.yaml")])
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path}/none.yaml: there is no such file\n")


def test_the_schema_is_printed() -> None:
    """`schema` prints a JSON Schema on stdout."""
    result = CliRunner().invoke(contract, ["schema"])
    assert json.loads(result.stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_checking_needs_no_heavy_library(tmp_path: Path) -> None:
    """Neither Spark nor a driver is loaded to check a contract."""
    file = tmp_path / "c.yaml"
    file.write_text(VALID)
    program = (
        "import sys; from reconcile.cli.contract import contract\n"
        f"contract(['check', {str(file)!r}], standalone_mode=False)\n"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'numpy', 'confluent_kafka', 'psycopg2', 'sqlalchemy', 'airflow'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_right(name: str, tmp_path: Path) -> None:
    """What `example` prints passes `check`."""
    file = tmp_path / f"{name}.yaml"
    file.write_text(CliRunner().invoke(contract, ["example", name]).stdout, "utf-8")
    assert 0 == CliRunner().invoke(contract, ["check", str(file)]).exit_code


def test_every_contract_of_the_lab_is_an_example() -> None:
    """None is kept back."""
    assert sorted(EXAMPLES) == sorted(file.stem for file in committed("contracts").glob("*.yaml"))


@pytest.mark.parametrize("text", ["ü", "\ud800", "\U0001f600", "\\ud800"])
def test_any_text_is_printed_as_valid_json(text: str) -> None:
    """Text comes out as UTF-8; what UTF-8 cannot say is escaped."""

    @click.command()
    def command() -> None:
        print_json(FindingsOutput(run_id="r1", findings=[{"text": text}]))

    result = CliRunner().invoke(command)
    assert json.loads(result.stdout_bytes)["findings"] == [{"text": text}]


@pytest.mark.parametrize(
    ("connection", "text", "place"),
    [
        (
            "{path: /data}",
            VALID.replace("source: email", "source: 'reflect(email)'", 1),
            "consumers[0].fields[0].source",
        ),
        ("{path: /data}", VALID.replace("table: t", "query: 'select f(1)'"), "source.query"),
        (
            "{warehouse: /data, format: delta}",
            VALID.replace("id: id}", "id: id, deleted: 'f(x)'}", 1),
            "source.deleted",
        ),
        ("{url: 'jdbc:h2:mem:x'}", VALID.replace("source: email", "source: file_read(email)", 1), "fields[0].source"),
        ("{url: 'jdbc:h2:mem:x'}", VALID.replace("table: t", "query: 'call f()'"), "source.query"),
    ],
)
def test_sql_that_a_store_is_not_asked_is_refused(tmp_path: Path, connection: str, text: str, place: str) -> None:
    """Where the settings say that Spark or a driver reads it; nothing is connected to, and no Spark starts."""
    settings = tmp_path / "settings.yaml"
    others = "b: {url: env:NOT_SET_HERE}, main: {bootstrap: 'k:9092'}"
    settings.write_text(f"connections: {{a: {connection}, {others}}}")
    result = check(tmp_path, text, "--config", str(settings))
    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert f"{place}: " in result.stderr
    settings.write_text(f"connections: {{a: {{url: 'postgresql://h/d'}}, {others}}}")
    assert 0 == check(tmp_path, text, "--config", str(settings)).exit_code


@pytest.mark.parametrize(
    ("security", "why"),
    [
        ("{security.protocol: SASL_SSL, sasl.mechanism: GSSAPI}", "GSSAPI is Kerberos"),
        ("{security.protocol: SASL_SSL, sasl.mechanism: OAUTHBEARER}", "OAUTHBEARER needs keys"),
        ("{security.protocol: SASL_SSL, sasl.username: me}", "needs sasl.mechanism"),
    ],
)
def test_a_log_in_that_cannot_work_is_refused(tmp_path: Path, security: str, why: str) -> None:
    """Before anything is connected, with what works instead."""
    file, settings = tmp_path / "c.yaml", tmp_path / "reconcile.yaml"
    file.write_text(VALID)
    settings.write_text(f"connections: {{main: {{bootstrap: 'kafka:9092', security: {security}}}}}")
    done = CliRunner().invoke(contract, ["check", str(file), "--config", str(settings)])
    assert isinstance(done.exception, InvalidFileError)
    assert why in str(done.exception)
    assert "SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN" in str(done.exception)
