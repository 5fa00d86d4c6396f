"""Runs for tests of reports: the artifacts that the audit leaves, written without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from reconcile.contract.model import Contract, load_contract
from reconcile.domain.cause import Cause
from reconcile.domain.distribution import Distribution, Side
from reconcile.domain.finding import (
    Confidence,
    Difference,
    Evidence,
    FieldDifference,
    Finding,
    Hop,
    Status,
    to_data,
)
from reconcile.gather.log.index import Index, Lost, Segment
from reconcile.gather.log.store import HistoryStore
from reconcile.pipeline.handoffs import Quality, Request, RunScope, Summary
from reconcile.pipeline.scope import Ids
from reconcile.quality.suites import Checked
from reconcile.workspace.artifact import Artifact, ArtifactContent
from reconcile.workspace.filesystem import LocalFileSystem
from reconcile.workspace.manifest import Inputs, Stage
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace
from tests.unit.handoffs import fence, gathered, gathered_link, link_summary, summary

LINK = "user-account/login"
TOPIC = "user-account"
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIELDS = ("display_name", "email", "phone")

CONTRACT = """
version: 1
aggregate: user-account
source: {store: user-db, table: user_account, id: id, version: version}
topic:
  cluster: main
  name: user-account
  format: json
  key: {type: string}
  state: full
  version: $.version
  delete: tombstone
  value: {id: id, version: version, display_name: display_name, email: email, phone: phone}
consumers:
  - name: login
    group: login-service
    store: login-db
    table: login_profile
    id: user_id
    version: version
    semantics: state
    isolation: read_committed
    fields:
      - {name: display_name, source: display_name, consumer: display_name, event: $.display_name}
      - {name: email, source: email, consumer: mail, event: $.email, sensitive: true}
      - {name: phone, source: phone, consumer: phone, event: $.phone}
    failure: {policy: ignore}
"""

_TEXT, _LONG, _INT, _TEXTS = pa.string(), pa.int64(), pa.int32(), pa.list_(pa.string())


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


_NAMES = ("link", "aggregate_id", "difference", "status", "cause", "confidence", "hop")
_FINDINGS = pa.schema(
    {**dict.fromkeys(_NAMES, _TEXT), "fields": _TEXTS, "since": pa.timestamp("us", tz="UTC"), "finding": _TEXT}
)
_ROW = _struct(version=_TEXT, fields=_TEXTS, count=_INT)
_EVENT = _struct(
    key=pa.binary(), partition=_INT, offset=_LONG, timestamp=_LONG, version=_TEXT, event_id=_TEXT, type=_TEXT,
    readable=pa.bool_(), deletes=pa.bool_(), tells=pa.list_(pa.bool_()), values=_TEXTS, bad=pa.list_(pa.bool_()),
)  # fmt: skip
_PARKED = _struct(
    kind=_TEXT, topic=_TEXT, partition=_INT, offset=_LONG, at=_LONG, origin_partition=_INT, origin_offset=_LONG,
    event_id=_TEXT, version=_TEXT, resolved=_TEXT, error=_TEXT,
)  # fmt: skip
_TIME = pa.timestamp("us", tz="UTC")
_ASIDE = pa.schema(
    {
        "kind": _TEXT, "topic": _TEXT, "partition": _INT, "offset": _LONG, "at": _TIME, "id": _TEXT,
        "origin_partition": _INT, "origin_offset": _LONG, "event_id": _TEXT, "version": _TEXT,
        "correlation_id": _TEXT, "resolved": _TEXT, "error": _TEXT,
    }
)  # fmt: skip
_HISTORY = pa.schema(
    {
        "id": _TEXT, "key": pa.binary(), "partition": _INT, "offset": _LONG, "timestamp": _TIME, "version": _TEXT,
        "event_id": _TEXT, "type": _TEXT, "correlation_id": _TEXT, "tombstone": pa.bool_(), "deletes": pa.bool_(),
        "raw": pa.binary(),
    }
)  # fmt: skip
_LEDGER = _struct(event_id=_TEXT, partition=_INT, offset=_LONG, at=_LONG)
_CASES = pa.schema(
    {
        "id": _TEXT,
        "source": _ROW,
        "copy": _ROW,
        "events": pa.list_(_EVENT),
        "events_total": _LONG,
        "parked": pa.list_(_PARKED),
        "ledger": pa.list_(_LEDGER),
    }
)


def contract_file(folder: Path, text: str = CONTRACT) -> Path:
    """Write the contract of these runs."""
    file = folder / "user-account.yaml"
    file.write_text(text, "utf-8")
    return file


def finding(aggregate_id: str | None = "u1", **changes: Any) -> Finding:
    """Give a finding: an event that was skipped, unless it is changed."""
    told: dict[str, Any] = {
        "link": LINK,
        "difference": Difference.CHANGED,
        "cause": Cause.SKIPPED,
        "confidence": Confidence.CERTAIN,
        "hop": Hop.LOG_TO_CONSUMER,
        "fields": (FieldDifference("display_name", "Zoiee", "Zoë"),),
        "source_version": 3,
        "consumer_version": 2,
        "since": AT - timedelta(days=2),
        "evidence": (Evidence("event", "committed past it", TOPIC, 1, 17, 3, AT - timedelta(days=2)),),
    }
    return Finding(aggregate_id=aggregate_id, **{**told, **changes})


def case(aggregate_id: str, email: str = "zoe@example.org") -> dict[str, Any]:
    """Give what the audit kept of an aggregate: three events, of which the copy took two, and one lies in retry."""
    names, at = ("Zoey", "Zoë", "Zoiee"), int((AT - timedelta(days=2)).timestamp() * 1e6)
    events = [
        {
            "key": aggregate_id.encode(), "partition": 1, "offset": 15 + number, "timestamp": at + number * 1_000_000,
            "version": str(number + 1), "event_id": f"e{number}", "type": "UserRenamed", "readable": True,
            "deletes": False, "tells": [True] * 3, "values": [name, email, None], "bad": [False] * 3,
        }
        for number, name in enumerate(names)
    ]  # fmt: skip
    ledger = [
        {"event_id": f"e{number}", "partition": 1, "offset": 15 + number, "at": at + number * 1_000_000 + 50}
        for number in range(2)
    ]
    parked = {
        "kind": "retry", "topic": "user-account.login.retry-1", "partition": 0, "offset": 4, "at": at + 2_500_000,
        "origin_partition": 1, "origin_offset": 17, "event_id": "e2", "version": "3", "resolved": None,
        "error": "Timeout",
    }  # fmt: skip
    return {
        "id": aggregate_id,
        "source": {"version": "3", "fields": ["Zoiee", email, None], "count": 1},
        "copy": {"version": "2", "fields": ["Zoë", email, None], "count": 1},
        "events": events,
        "events_total": 3,
        "parked": [parked],
        "ledger": ledger,
    }


def made_run(
    root: Path,
    findings: Iterable[Finding] = (),
    cases: Iterable[dict[str, Any]] = (),
    *,
    run_id: str = "r1",
    at: datetime = AT,
    compared: int = 1000,
    exit_code: int | None = None,
    unread: dict[str, str] | None = None,
    contract: Path | None = None,
    named: bool = True,
    ids: Sequence[str] | None = None,
    consumers: Sequence[str] = (),
    scope: RunScope | None = None,
    escaped: int | None = None,
    history: str = "",
    parked: Iterable[dict[str, Any]] = (),
    distributions: dict[Side, Distribution] | None = None,
) -> tuple[Workspace, Run]:
    """Publish a run that was audited.

    `contract` is the file that it names, `named` whether it keeps the names of its fields; `ids` and `consumers` are
    what it was asked for, `scope` what it looked at, `history` and `parked` what it read of topics.
    """
    place = Workspace(root)
    run = place.run(run_id)
    digest = load_contract(contract).digest if contract is not None else "0" * 64
    inputs = Inputs(contract=digest)
    told = _parquet(run, "findings", _FINDINGS, (_row(each, run_id) for each in findings), inputs)
    _parquet(run, "cases.login", _CASES, cases, inputs)
    _parquet(run, "parked.login", _ASIDE, parked, inputs)
    names: tuple[tuple[str, bool], ...] | None = None
    if named:
        fields = load_contract(contract).consumers[0].fields if contract is not None else ()
        ours = tuple((each.name, each.sensitive) for each in fields)
        names = ours or tuple((each, each == "email") for each in FIELDS)
    request = Request(
        contract=str(contract or root / "gone.yaml"),
        aggregate="user-account",
        consumers=tuple(consumers),
        ids=None if ids is None else Ids.of(ids).ids,
        since=None if scope is None else scope.since,
    )
    run.publish(request, inputs)
    run.publish(fence(contract=digest, at=at), inputs)
    read = gathered_link(names, len(FIELDS)).model_copy(update={"distributions": distributions})
    run.publish(gathered(read, scope=scope, history=history), inputs)
    figures = _summary(told, at, compared, exit_code, unread or {})
    links = tuple(each.model_copy(update={"escaped": escaped}) for each in figures.links)
    run.publish(figures.model_copy(update={"scope": scope, "links": links}), inputs, complete=not unread)
    return place, run


def kept_history(root: Path, records: Iterable[dict[str, Any]]) -> str:
    """Write records into the history of the topic; give its folder."""
    home, listed = HistoryStore.of(Workspace(root)).home("main", TOPIC, "t", "0" * 64), list(records)
    segment = Path(home.path("00000001-0123456789ab"))
    segment.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(listed, _HISTORY), segment / "part-0.parquet")
    of_all = Segment(
        name=segment.name, partitions={}, latest=None, null_keys=0, unreadable_keys=0, unreadable_values=0, digest="",
        files={"part-0.parquet": 1},
    )  # fmt: skip
    lost = Lost(partition=0, start=0, end=3, noticed_at=AT)
    home.publish(
        Index(
            generation=1, cluster="main", topic=TOPIC, topic_id="t", derivation="0" * 64, segments=(of_all,),
            expired=(lost,),
        )
    )  # fmt: skip
    return home.folder


def logged(aggregate_id: str, offset: int, **changes: Any) -> dict[str, Any]:
    """Give a record of a history, in partition 1."""
    told = {
        "id": aggregate_id, "key": None, "partition": 1, "offset": offset, "timestamp": AT, "version": str(offset - 14),
        "event_id": f"e{offset}", "type": "UserRenamed", "correlation_id": f"c-{aggregate_id}", "tombstone": False,
        "deletes": False, "raw": None,
    }  # fmt: skip
    return {**told, **changes}


def put_aside(aggregate_id: str, **changes: Any) -> dict[str, Any]:
    """Give what a gathered run has of a record in a retry topic."""
    told = {
        "kind": "retry", "topic": "user-account.login.retry-1", "partition": 0, "offset": 4, "at": AT,
        "id": aggregate_id, "origin_partition": 1, "origin_offset": 17, "event_id": "e17", "version": "3",
        "correlation_id": None, "resolved": None, "error": "Timeout",
    }  # fmt: skip
    return {**told, **changes}


def contract_of(file: Path) -> Contract:
    """Read the contract."""
    return load_contract(file)


def _row(each: Finding, run_id: str) -> dict[str, Any]:
    data = to_data(each, run_id)
    names = [field.name for field in each.fields]
    plain = {name: data[name] for name in _FINDINGS.names if name not in ("finding", "since", "fields")}
    return {**plain, "fields": names, "since": each.since, "finding": json.dumps(data)}


def _summary(
    findings: list[dict[str, Any]], at: datetime, compared: int, code: int | None, unread: dict[str, str]
) -> Summary:
    def number(**wanted: str) -> int:
        return sum(all(each[name] == value for name, value in wanted.items()) for each in findings)

    latent = number(status=Status.CONFIRMED, difference=Difference.LATENT)
    drifted = number(status=Status.CONFIRMED) - latent
    told = [each for each in findings if each["status"] != Status.IN_FLIGHT]
    link = link_summary(
        compared=compared,
        agreeing=compared - drifted,
        findings=len(told),
        drifted=drifted,
        latent=latent,
        tolerated=number(status=Status.TOLERATED),
        in_flight=number(status=Status.IN_FLIGHT),
        by_cause={each: number(cause=each) for each in dict.fromkeys(row["cause"] for row in told)},
        by_difference={each: number(difference=each) for each in dict.fromkeys(row["difference"] for row in told)},
        beyond_tolerance=bool(drifted) and code != 0,
    )
    code = code if code is not None else 2 if unread else int(bool(drifted))
    return summary(*(() if unread else (link,)), unread=unread, exit_code=code, at=at)


def _parquet(
    run: Run, name: str, schema: pa.Schema, rows: Iterable[dict[str, Any]], inputs: Inputs
) -> list[dict[str, Any]]:
    listed = list(rows)

    def write(place: str) -> ArtifactContent:
        folder = Path(place) / "data"
        folder.mkdir()
        pq.write_table(pa.Table.from_pylist(listed, schema), folder / "part-0.parquet")
        return ArtifactContent("parquet", len(listed), "0" * 64)

    stage: Stage = "audit"
    Artifact(LocalFileSystem(), run.folder, run.id, name).publish(write, inputs, stage, complete=True, notes=())
    return [{key: row[key] for key in row if key != "finding"} for row in listed]


def checked(run: Run, *results: Checked) -> Quality:
    """Publish what came of a run's expectations."""
    found = Quality(success=not any(each.stops for each in results), results=results)
    run.publish(found, run.inputs("0" * 64, made_of=[Summary.ARTIFACT]))
    return found
