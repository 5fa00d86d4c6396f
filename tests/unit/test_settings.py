"""The settings file, its precedence, and its secrets."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from reconcile.config.yamlfile import UNKNOWN_TAG
from reconcile.errors import InvalidFileError, RefusedError, SecretError
from reconcile.settings.connections import (
    ClusterConnection,
    Folder,
    JdbcUrl,
    Lake,
    Pause,
    Registry,
    SqliteFile,
    Store,
    StoreLimits,
)
from reconcile.settings.settings import Settings, UnknownConnectionError, load_settings
from reconcile.settings.urls import PostgresUrl

SECRET = "hunter2"
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "settings.md"


def settings(folder: Path, text: str, **environ: str) -> Settings:
    file = folder / "reconcile.yaml"
    file.write_text(text)
    return load_settings(file, environ=environ)


def problems(folder: Path, text: str, **environ: str) -> list[str]:
    with pytest.raises(InvalidFileError) as caught:
        settings(folder, text, **environ)
    assert SECRET not in str(caught.value)
    return [str(problem) for problem in caught.value.problems]


def store(folder: Path, url: str, **environ: str) -> Store:
    connection = settings(folder, f"connections: {{db: {{url: '{url}'}}}}", **environ).connection("db")
    assert isinstance(connection, Store)
    return connection


def test_the_documented_example_is_valid(tmp_path: Path) -> None:
    """What the documentation shows can be used as it is."""
    example = re.search(r"```yaml\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert example is not None
    loaded = settings(tmp_path, example.group(1))
    kinds = {name: type(connection) for name, connection in loaded.connections.items()}
    expected = {
        "user-db": Store,
        "login-db": Store,
        "shop-db": Store,
        "crm": Store,
        "main": ClusterConnection,
        "files": Folder,
        "lake": Lake,
        "schemas": Registry,
    }
    assert kinds == expected


def test_without_a_file_there_are_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing set means a workspace named runs and Spark on this machine."""
    monkeypatch.chdir(tmp_path)
    loaded = load_settings(environ={})
    assert (loaded.workspace, loaded.connections, loaded.spark.master) == ("runs", {}, "local[*]")


def test_the_file_of_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """reconcile.yaml needs no option."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reconcile.yaml").write_text("workspace: here\n")
    assert load_settings(environ={}).workspace == "here"


def test_the_variable_wins_over_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RECONCILE_CONFIG names another file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reconcile.yaml").write_text("workspace: here\n")
    (tmp_path / "other.yaml").write_text("workspace: there\n")
    assert load_settings(environ={"RECONCILE_CONFIG": "other.yaml"}).workspace == "there"


def test_an_empty_variable_is_an_error() -> None:
    """RECONCILE_CONFIG that is empty is not taken for unset."""
    with pytest.raises(InvalidFileError, match="RECONCILE_CONFIG: is set but empty"):
        load_settings(environ={"RECONCILE_CONFIG": ""})


def test_the_option_wins_over_the_variable(tmp_path: Path) -> None:
    """--config wins over RECONCILE_CONFIG."""
    assert settings(tmp_path, "workspace: mine\n", RECONCILE_CONFIG="none.yaml").workspace == "mine"


def test_the_workspace_can_be_given(tmp_path: Path) -> None:
    """--workspace wins over the file."""
    file = tmp_path / "s.yaml"
    file.write_text("workspace: mine\n")
    assert load_settings(file, "given", environ={}).workspace == "given"


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    """A wrong --config is no reason to go on with defaults."""
    with pytest.raises(InvalidFileError, match="there is no such file"):
        load_settings(tmp_path / "none.yaml", environ={})


def test_a_store_gives_its_address(tmp_path: Path) -> None:
    """The URL is read when it is asked for."""
    address = store(tmp_path, "env:URL").resolve({"URL": "postgresql://u:p@h/d"})
    assert isinstance(address, PostgresUrl)
    assert address.host == "h"


def test_a_jdbc_url_is_passed_on(tmp_path: Path) -> None:
    """Other databases keep their driver's own form."""
    assert store(tmp_path, "jdbc:mysql://h/d").resolve() == JdbcUrl(SecretStr("jdbc:mysql://h/d"))


def test_a_url_behind_a_reference_is_checked_without_being_shown(tmp_path: Path) -> None:
    """The message names the reference."""
    with pytest.raises(SecretError) as caught:
        store(tmp_path, "env:URL").resolve({"URL": f"oracle://u:{SECRET}@h/d"})
    assert str(caught.value) == "env:URL: a URL begins with postgresql://"


def test_a_secret_file_is_seen_from_the_settings(tmp_path: Path) -> None:
    """file: is relative to the settings file's folder."""
    (tmp_path / "url").write_text("postgresql://h/d\n")
    assert store(tmp_path, "file:url").resolve().__class__.__name__ == "PostgresUrl"


def test_the_control_store_gives_its_address(tmp_path: Path) -> None:
    """The control store is a Postgres database, or for a trial a SQLite file."""
    control_store = settings(tmp_path, "control_store: {url: env:C}").control_store
    assert control_store is not None
    addresses = [control_store.resolve({"C": url}) for url in ("postgresql://h/runs", "sqlite:///a/control.db")]
    assert addresses == [PostgresUrl("h", "runs"), SqliteFile(Path("a/control.db"))]


def test_the_control_store_may_be_a_file_without_a_reference(tmp_path: Path) -> None:
    """A path is no secret; four slashes begin an absolute one."""
    control_store = settings(tmp_path, "control_store: {url: 'sqlite:////srv/control.db'}").control_store
    assert control_store is not None
    assert control_store.resolve() == SqliteFile(Path("/srv/control.db"))


def test_a_cluster_gives_what_librdkafka_wants(tmp_path: Path) -> None:
    """Bootstrap servers and security come under librdkafka's names, secrets resolved."""
    security = "{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.password: env:P}"
    text = f"connections: {{k: {{bootstrap: 'a:1', security: {security}}}}}"
    cluster = settings(tmp_path, text).connection("k")
    assert isinstance(cluster, ClusterConnection)
    expected = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    assert cluster.resolve({"P": "s3"}) == {**expected, "sasl.password": "s3"}


@pytest.mark.parametrize(
    ("entry", "variable"),
    [
        ("{url: 'postgresql://a/d'}", "postgresql://u:hunter2@h/d"),
        ("{bootstrap: 'a:1'}", "b:2"),
        ("{path: /a}", "/b"),
        ("{registry: 'http://a'}", "http://u:hunter2@b"),
    ],
)
def test_a_variable_overrides_a_connections_address(tmp_path: Path, entry: str, variable: str) -> None:
    """RECONCILE_CONN_<NAME> replaces the address, and may hold a password that is never shown."""
    connection = settings(tmp_path, f"connections: {{my-c.1: {entry}}}", RECONCILE_CONN_MY_C_1=variable).connection(
        "my-c.1"
    )
    assert getattr(connection, connection.address).resolve().get_secret_value() == variable
    assert SECRET not in repr(connection)


def test_an_override_may_be_a_reference(tmp_path: Path) -> None:
    """The variable can point on to where the secret is."""
    connection = store(tmp_path, "postgresql://a/d", RECONCILE_CONN_DB="env:OTHER")
    assert connection.url.resolve({"OTHER": "postgresql://b/d"}).get_secret_value() == "postgresql://b/d"


@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_override_is_an_error(tmp_path: Path, value: str) -> None:
    """An override that is set but empty is not taken for unset."""
    found = problems(tmp_path, "connections: {db: {url: 'postgresql://a/d'}}", RECONCILE_CONN_DB=value)
    assert found == ["is set but empty: give an address, or unset it"]


def test_a_malformed_override_names_the_variable(tmp_path: Path) -> None:
    """Who reads the message knows where the address was given."""
    connection = store(tmp_path, "postgresql://a/d", RECONCILE_CONN_DB=f"oracle://u:{SECRET}@h/d")
    with pytest.raises(SecretError, match="<given in RECONCILE_CONN_DB>: a URL begins with") as caught:
        connection.resolve()
    assert SECRET not in str(caught.value)


def test_an_unknown_connection_is_told_with_the_nearest(tmp_path: Path) -> None:
    """A misspelt name is corrected."""
    loaded = settings(tmp_path, "connections: {user-db: {url: 'postgresql://a/d'}}")
    with pytest.raises(UnknownConnectionError) as caught:
        loaded.connection("usr-db")
    assert str(caught.value) == 'no connection "usr-db"; did you mean "user-db"?'


def test_without_any_connection_the_way_to_settings_is_shown() -> None:
    """Who has no settings yet is told how to have some."""
    with pytest.raises(UnknownConnectionError, match=r"write reconcile\.yaml, or name a file with --config"):
        Settings().connection("user-db")


REFERENCES = "env:NAME, file:path or airflow:conn_id"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workspce: x", ['workspce: unknown key "workspce"; did you mean "workspace"?']),
        ("workspace: 5", ["workspace: expected the path of a folder, or a URI such as s3a://bucket/runs"]),
        ("spark: {master: 5}", ["spark.master: expected text, found a number; put quotes round it"]),
        (
            "spark: {conf: {spark.x: true}}",
            ['spark.conf["spark.x"]: expected text, found true or false; put quotes round it'],
        ),
        (
            f"control_store: {{url: 'postgresql://u:{SECRET}@h/d'}}",
            [f"control_store.url: holds a password, and must be a reference then: {REFERENCES}"],
        ),
        (
            "connections: {db: {ulr: x}}",
            ['connections.db: needs one of `url`, `bootstrap`, `path`, `warehouse` or `registry`; did you mean "url"?'],
        ),
        (
            "connections: {db: {url: 'postgresql://h/d', bootstrap: 'a:1'}}",
            [
                "connections.db: is of several kinds at once (url, bootstrap):"
                " give one of `url`, `bootstrap`, `path`, `warehouse` or `registry`"
            ],
        ),
        (
            f"connections: {{db: {SECRET}}}",
            [
                "connections.db: expected keys and values,"
                " one of the keys `url`, `bootstrap`, `path`, `warehouse` or `registry`"
            ],
        ),
        (
            f"connections: {{db: {{url: {SECRET}}}}}",
            [
                "connections.db.url: is none of postgresql://..., mariadb://..., mysql://..., jdbc:..., redis://...,"
                f" rediss://...; nor is it a reference: {REFERENCES}"
            ],
        ),
        (
            f"connections: {{db: {{url: 'jdbc:oracle:thin:me/{SECRET}@h'}}}}",
            [f"connections.db.url: holds a password, and must be a reference then: {REFERENCES}"],
        ),
        (
            f"connections: {{db: {{url: 'jdbc:sqlserver://h;password={SECRET}'}}}}",
            [f"connections.db.url: holds a password, and must be a reference then: {REFERENCES}"],
        ),
        (
            f"connections: {{db: {{registry: 'https://u:{SECRET}@h'}}}}",
            [f"connections.db.registry: holds a password, and must be a reference then: {REFERENCES}"],
        ),
        (
            "connections: {db: {url: 'env:'}}",
            [f"connections.db.url: is a reference that leads nowhere: write {REFERENCES}"],
        ),
        (
            f"connections: {{k: {{bootstrap: a, security: {{sasl.password: {SECRET}, security.protocol: ssl}}}}}}",
            [
                'connections.k.security["security.protocol"]: this is not valid: write PLAINTEXT, SSL, SASL_PLAINTEXT'
                ' or SASL_SSL; did you mean "SSL"?',
                f'connections.k.security["sasl.password"]: is a secret, and must be a reference: {REFERENCES}',
            ],
        ),
        (
            f"connections: {{k: {{bootstrap: a, security: {{sasl.pasword: {SECRET}}}}}}}",
            [
                'connections.k.security["sasl.pasword"]: unknown key "sasl.pasword"; did you mean "sasl.password"?',
                f'connections.k.security["sasl.password"]: is a secret, and must be a reference: {REFERENCES}',
            ],
        ),
        (
            f"connections: {{k: {{warehouse: w, format: iceberg, catalog: {{type: rest, token: {SECRET}}}}}}}",
            [f"connections.k.catalog.token: is a secret, and must be a reference: {REFERENCES}"],
        ),
        (
            "connections: {k: {warehouse: w, format: delta, catalog: {type: rest}}}",
            ["connections.k.catalog: is for Iceberg: Delta's tables are found in the folders of the warehouse"],
        ),
        (
            "connections: {a-b: {path: x}, a_b: {path: y}}",
            ['connections.a_b: shares the variable RECONCILE_CONN_A_B with "a-b": rename one'],
        ),
        (
            f"connections: {{'postgresql://u:{SECRET}@h/d': 5}}",
            [
                'connections["postgresql://***@h/d"]: expected keys and values,'
                " one of the keys `url`, `bootstrap`, `path`, `warehouse` or `registry`"
            ],
        ),
        (
            f"connections: {{k: {{bootstrap: a, security: {{sasl.password:{SECRET}}}}}}}",
            [
                'connections.k.security["sasl.password:***"]: unknown key "sasl.password:***";'
                ' did you mean "sasl.password"?'
            ],
        ),
        (
            f"connections: {{k: {{bootstrap: a, security: {{sasl.password: !{SECRET} }}}}}}",
            [f'connections.k.security["sasl.password"]: {UNKNOWN_TAG}'],
        ),
        (
            f"connections: {{k: {{bootstrap: a, security: {{sasl.password: *{SECRET}}}}}}}",
            ["an alias (*...) names no anchor above it; text that begins with * needs quotes"],
        ),
        (
            f"control_store: {{url: 'jdbc:x:{SECRET}'}}",
            [f"control_store.url: is neither postgresql://... nor sqlite:///...; nor is it a reference: {REFERENCES}"],
        ),
        (
            "control_store: {url: 'sqlite:///'}",
            ["control_store.url: the URL names no file: sqlite:///path"],
        ),
    ],
)
def test_a_mistake_is_told_without_secrets(tmp_path: Path, text: str, expected: list[str]) -> None:
    """Each message says where, what is valid, and nothing that may be a password."""
    assert problems(tmp_path, text) == expected


def test_an_oracle_url_without_credentials_is_no_secret(tmp_path: Path) -> None:
    """Not every @ has a password before it."""
    assert store(tmp_path, "jdbc:oracle:thin:@//h:1521/x").url.resolve().get_secret_value().startswith("jdbc:oracle")


def test_printing_settings_shows_no_secret(tmp_path: Path) -> None:
    """The whole model can be logged."""
    text = "connections: {k: {bootstrap: 'a:1', security: {sasl.username: joe, sasl.password: env:P}}}"
    assert "env:P" in repr(settings(tmp_path, text, P=SECRET))


entries = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["env:A", f"postgresql://u:{SECRET}@h/d", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["url", "bootstrap", "path", "registry", "security", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["workspace", "connections", "control_store", "spark", "x"]), entries))
def test_any_structure_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]) -> None:
    """Nothing but settings or a refusal without secrets comes of any structure."""
    message = ""
    try:
        settings(tmp_path_factory.getbasetemp(), yaml.safe_dump(content))
    except InvalidFileError as error:
        message = str(error)
    assert SECRET not in message


def test_what_is_taken_of_a_database_is_limited(tmp_path: Path) -> None:
    """Without settings there are limits, too."""
    text = "{url: 'postgresql://u@h/d', readers: 2, statement_timeout: 90s, pause: {replication_lag: 10s, running: 4}}"
    given = settings(tmp_path, f"connections: {{db: {text}}}").connection("db")
    assert isinstance(given, Store)
    pause = Pause(replication_lag=timedelta(seconds=10), running=4)
    assert StoreLimits(readers=2, statement_timeout=timedelta(seconds=90), pause=pause) == given.limits
    assert StoreLimits(readers=8, statement_timeout=timedelta(minutes=10)) == store(tmp_path, "postgresql://h/d").limits


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("readers: 0", "connections.k.readers: "),
        ("statement_timeout: 0s", "connections.k.statement_timeout: "),
        ("pause: {running: 0}", "connections.k.pause.running: "),
        ("pause: {runing: 5}", 'connections.k.pause.runing: unknown key "runing"; did you mean "running"?'),
    ],
)
def test_a_limit_that_lets_nothing_pass_is_refused(tmp_path: Path, limit: str, told: str) -> None:
    """A run that waits for ever would be no limit."""
    (problem,) = problems(tmp_path, f"connections: {{k: {{url: 'postgresql://h/d', {limit}}}}}")
    assert problem.startswith(told)


def test_a_limit_that_would_not_hold_is_refused(tmp_path: Path) -> None:
    """Spark reads such a database by itself."""
    given = settings(tmp_path, "connections: {k: {url: 'jdbc:h2:mem:x', readers: 2}}").connection("k")
    assert isinstance(given, Store)
    with pytest.raises(RefusedError, match="`readers` would not hold"):
        given.resolve()


def test_how_long_histories_are_kept(tmp_path: Path) -> None:
    """A duration, or nothing at all."""
    (tmp_path / "kept.yaml").write_text("history: {keep: 90d}\n")
    assert timedelta(days=90) == load_settings(tmp_path / "kept.yaml").history.keep
    assert load_settings(environ={}).history.keep is None
