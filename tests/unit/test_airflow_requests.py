"""Requests: what is kept of the topic, what a run of the DAG claims, and how one is given back."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconcile.airflow import claims
from reconcile.airflow.installation import Installation
from reconcile.cli import cli
from reconcile.control.errors import ControlRefusedError
from reconcile.control.store import ControlStore, open_control
from reconcile.domain.approval import REQUEST_TOPIC, Actor
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.pipeline import requests as wakeup
from reconcile.pipeline.approval import os_user
from reconcile.pipeline.requests import RequestRecord, read
from reconcile.settings.settings import RunRequests, Settings
from reconcile.workspace.workspace import Workspace
from tests.unit.handoffs import summary

POISON = b'{"id": "a\\u0000", "contract": "user-account"}'


class Record:
    """A record of the request topic."""

    def __init__(self, value: bytes, offset: int) -> None:
        self._value, self._offset = value, offset

    def value(self) -> bytes:
        """Give its value."""
        return self._value

    def partition(self) -> int:
        """Give its place."""
        return 0

    def offset(self) -> int:
        """Give its place."""
        return self._offset


class Topic:
    """A topic of which a record counts as read once the next one is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *values: bytes) -> None:
        self.values, self.committed = values, 0
        monkeypatch.setattr(wakeup, "_received", self._received)
        monkeypatch.setattr(claims, "_cluster", dict)

    def _received(self, *_: object) -> Iterator[Record]:
        for offset, value in enumerate(self.values):
            yield Record(value, offset)
            self.committed = offset + 1


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlStore]:
    """The control store of an installation with one contract."""
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "user-account.yaml").touch()
    place = Installation(None, str(tmp_path), tmp_path / "contracts")
    monkeypatch.setattr(claims, "installation", lambda: place)
    with open_control(Settings(workspace=str(tmp_path))) as opened:
        yield opened


def value(id_: str) -> bytes:
    """Build the value of a request's record."""
    return RequestRecord(id_, "user-account", (id_,)).value()


def claimed(dag_run: str) -> list[str | None]:
    """Give the ids of the requests that a run of the DAG takes on."""
    return [each.request_id for each in claims.claim("on_request", dag_run)]


def test_a_run_is_asked_for_by_who_sent_its_request(monkeypatch: pytest.MonkeyPatch, control: ControlStore) -> None:
    """Where `reconcile request` has kept them; a record of the topic names nobody."""
    alice = Actor("alice", "cli")
    control.requests.queue("r-1", "user-account", ["r-1"], requester=alice)
    Topic(monkeypatch, value("r-1"), value("r-2"))
    assert [alice, REQUEST_TOPIC] == [each.requester for each in claims.claim("on_request", "run")]


@pytest.mark.parametrize(
    "bad",
    [
        b"[" * 100_000,
        POISON,
        b'{"id": "\\ud800", "contract": "a"}',
        b'{"id": "\xed\xa0\x80", "contract": "a"}',
        b'{"id": "1", "contract": "a", "ids": ["b", "c\\u0000"]}',
        b'{"id": "1", "contract": "a", "ids": ["\\udfff"]}',
        b'{"id": "1", "contract": "a", "\\ud800": 1}',
        b'{"id": "1", "contract": "a", "mode": []}',
    ],
)
def test_what_no_store_can_keep_is_refused(bad: bytes) -> None:
    """It is refused as it is read, and what is told of it can be printed."""
    with pytest.raises(RefusedError) as caught:
        read(bad)
    str(caught.value).encode()


def test_a_bad_record_stops_nobody(monkeypatch: pytest.MonkeyPatch, control: ControlStore) -> None:
    """The requests around it are kept, without any other way to the control store, and run."""
    topic = Topic(monkeypatch, value("r-1"), POISON, b"[" * 100_000, value("r-2"))
    assert (["r-1", "r-2"], 4) == (claimed("run"), topic.committed)


def test_an_id_that_comes_with_another_wish_is_passed_by(
    monkeypatch: pytest.MonkeyPatch, control: ControlStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told, and the others go on."""
    control.requests.queue("r-1", "user-account", ["other"])
    topic = Topic(monkeypatch, value("r-1"), value("r-2"))
    with caplog.at_level(logging.WARNING):
        assert ["r-1", "r-2"] == claimed("run")
    assert 2 == topic.committed
    assert 'the request "r-1" is there, with another ids' in caplog.text


@pytest.mark.parametrize("error", [ControlRefusedError("read only"), UnreachableError("it is down")])
def test_what_is_not_kept_does_not_count_as_read(
    monkeypatch: pytest.MonkeyPatch, control: ControlStore, error: ReconcileError
) -> None:
    """Where the control store refuses or does not answer, the record is there next time; what was kept is claimed."""
    control.requests.queue("before", "user-account")
    topic = Topic(monkeypatch, value("r-1"), value("r-2"))

    def keep(_: ControlStore, wanted: RequestRecord, _rules: object) -> None:
        if wanted.id == "r-2":
            raise error

    monkeypatch.setattr(wakeup, "keep", keep)
    assert (["before"], 1) == (claimed("run"), topic.committed)


def test_a_record_asks_for_no_corrections(
    monkeypatch: pytest.MonkeyPatch, control: ControlStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may write to the topic is nobody who is known; of a request that somebody made it is the wake-up."""
    control.requests.queue("r-1", "user-account", apply=True, requester=Actor("alice", "cli"))
    records = [RequestRecord(each, "user-account", apply=True).value() for each in ("r-1", "r-2")]
    Topic(monkeypatch, *records)
    with caplog.at_level(logging.WARNING):
        assert ["r-1"] == claimed("run")
    assert "a record may not ask for corrections of user-account" in caplog.text


def test_a_record_may_ask_for_corrections_of_some_contracts(
    monkeypatch: pytest.MonkeyPatch, control: ControlStore
) -> None:
    """Of those that the settings name."""
    rules = RunRequests(apply=("user-account",))
    monkeypatch.setattr(Installation, "settings", lambda self: Settings(workspace=self.workspace, requests=rules))
    Topic(monkeypatch, RequestRecord("r-1", "user-account", apply=True).value())
    assert ["r-1"] == claimed("run")


def test_a_flood_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch, control: ControlStore) -> None:
    """Half of what may wait for a contract is for requests of people."""
    rules = RunRequests()
    topic = Topic(monkeypatch, *(value(f"r-{number:03}") for number in range(1000)))
    assert (rules.waiting_of_one, 1000) == (len(claimed("run")), topic.committed)
    wakeup.keep(control, RequestRecord("mine", "user-account"), rules, Actor("alice", "cli"))
    assert ["mine"] == claimed("next")


@pytest.mark.parametrize("line", ["r-1\nINFO all is well", "r-1\x1b[2J", "r-1\u2028x"])
def test_what_a_record_says_makes_no_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, control: ControlStore, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    """Neither as an id nor as a key."""
    control.requests.queue(line, "gone")
    Topic(monkeypatch, value(line), json.dumps({line: 1}).encode(), json.dumps({"id": "a", "contract": line}).encode())
    with caplog.at_level(logging.WARNING):
        assert [] == claimed("run")
    assert 4 == len(caplog.messages)
    assert all(each.isprintable() for each in caplog.messages)


def test_a_cleared_run_claims_its_own_again(monkeypatch: pytest.MonkeyPatch, control: ControlStore) -> None:
    """Also where the first of its requests are done, and nothing else waits."""
    Topic(monkeypatch)
    for each in ("r-1", "r-2", "r-3"):
        control.requests.queue(each, "user-account", [each])
    assert ["r-1", "r-2", "r-3"] == claimed("run")
    control.requests.finish("r-1", "done")
    control.requests.finish("r-2", "done")
    assert ["r-3"] == claimed("run")
    assert [] == claimed("another")


def test_a_run_takes_on_so_many_at_most(monkeypatch: pytest.MonkeyPatch, control: ControlStore) -> None:
    """The next one takes on the rest, and each is run by one."""
    Topic(monkeypatch)
    for number in range(claims.MOST + 3):
        control.requests.queue(f"r-{number:02}", "user-account", [str(number)])
    assert (claims.MOST, 3) == (len(claimed("first")), len(claimed("second")))


def test_a_request_of_no_contract_is_done(monkeypatch: pytest.MonkeyPatch, control: ControlStore) -> None:
    """Nobody could ever run it; of the topic's none is kept."""
    control.requests.queue("r-1", "gone")
    Topic(monkeypatch, RequestRecord("r-3", "gone").value(), value("r-2"))
    assert ["r-2"] == claimed("run")
    assert ("done", None) == ((known := control.requests.find("r-1")).state, known.run_id)


@pytest.mark.parametrize(("complete", "state"), [(None, "running"), (False, "running"), (True, "done")])
def test_a_request_is_done_once_everything_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: ControlStore, complete: bool | None, state: str
) -> None:
    """Until then it stays with the run of the DAG that has it, and is tried again when that is cleared."""
    Topic(monkeypatch, value("r-1"))
    (scheduled_run,) = claims.claim("on_request", "run")
    run = Workspace(str(tmp_path)).run(scheduled_run.run_id)
    if complete is not None:
        run.publish(summary(), run.inputs("digest"), complete=complete)
    assert (state == "done") == claims.finish(scheduled_run)
    known = control.requests.find("r-1")
    assert (state, scheduled_run.run_id if complete else None) == (known.state, known.run_id)


def test_a_request_names_the_user_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: ControlStore
) -> None:
    """Its record does not: anybody could write another name into it."""
    sent: list[RequestRecord] = []
    monkeypatch.setattr(import_module("reconcile.cli.request"), "_sent", lambda *given: sent.append(given[-1]))
    assert (0, "r-1\n") == _invoked(tmp_path, "--request-id", "r-1")
    assert os_user() == control.requests.find("r-1").requester
    assert [RequestRecord("r-1", "user-account")] == sent


def test_a_request_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: ControlStore) -> None:
    """Whoever deleted the run of the DAG that had it asks for it again, and it goes on with the same run."""
    Topic(monkeypatch)
    sent: list[RequestRecord] = []
    monkeypatch.setattr(import_module("reconcile.cli.request"), "_sent", lambda *given: sent.append(given[-1]))
    control.requests.queue("r-1", "user-account", ["b", "a"], apply=True)
    first = claims.claim("on_request", "deleted")
    assert [] == claimed("next")
    assert (0, "r-1\n") == _invoked(tmp_path, "--request-id", "r-1", "--again")
    assert [RequestRecord("r-1", "user-account", ("b", "a"), apply=True)] == sent
    assert first == claims.claim("on_request", "next")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--again"], "--again takes --request-id alone"),
        (["--again", "--request-id", "r-1", "--id", "a"], "what was asked then"),
        (["--again", "--request-id", "r-1", "--mode", "full"], "what was asked then"),
        (["--again", "--request-id", "r-9"], 'knows no request "r-9"'),
        (["--again", "--request-id", "r-1"], '"r-1" is done, by the run x: ask anew'),
        (["--again", "--request-id", "r-2"], '"r-2" is of the contract user-balance'),
    ],
)
def test_what_cannot_be_given_back(tmp_path: Path, control: ControlStore, arguments: list[str], message: str) -> None:
    """It is refused with the reason."""
    control.requests.queue("r-1", "user-account")
    control.requests.finish("r-1", "x")
    control.requests.queue("r-2", "user-balance")
    code, said = _invoked(tmp_path, *arguments)
    assert code
    assert message in said


def _invoked(workspace: Path, *arguments: str) -> tuple[int, str]:
    from reconcile.files import committed

    contract = str(committed("contracts", "user-account.yaml"))
    done = CliRunner().invoke(cli, ["request", contract, "--workspace", str(workspace), *arguments])
    return done.exit_code, done.output + (str(done.exception) if done.exception else "")


def test_a_record_holds_what_was_asked() -> None:
    """It is plain JSON, which any program can write."""
    expected = {"id": "r-1", "contract": "user-account", "ids": ["r-1"], "mode": "auto", "apply": False}
    assert expected == json.loads(value("r-1"))
