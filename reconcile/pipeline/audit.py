"""The stage `audit`: what was gathered becomes findings, each confirmed by a second reading."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from reconcile.audit import compare, event_tests, latent_candidates, redacted_rows
from reconcile.audit.cases import SCHEMA, Attributing, Readings, case_rows, kept, newest
from reconcile.audit.columns import ID
from reconcile.audit.event_tests import EventTest
from reconcile.audit.events import event_values
from reconcile.audit.home_partition import Router
from reconcile.audit.link_facts import KnownLog, Reach, field_rules, ledger_by_position, ledger_reach, link_facts
from reconcile.audit.partitioner_inference import infer_from_log
from reconcile.audit.topology.rule import listed
from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.contract.model import Consumer
from reconcile.domain.case import FieldRule, Link
from reconcile.domain.key import rebuilds
from reconcile.domain.plan_rules import PlanTerms
from reconcile.domain.redaction import Redactor
from reconcile.errors import RefusedError, UnreachableError
from reconcile.gather.fence.fence import UnreadableLink
from reconcile.gather.fence.opening import OpenFence, open_fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.history import History
from reconcile.gather.log.history_columns import KEY
from reconcile.gather.log.records import is_origin
from reconcile.gather.log.state import KeptState, Known, LogState
from reconcile.gather.log.undecided import UndecidedRecords
from reconcile.gather.stores import row_columns
from reconcile.gather.topology_facts import readers
from reconcile.pipeline import gather as gathering
from reconcile.pipeline import tables
from reconcile.pipeline.changes import with_scope
from reconcile.pipeline.handoffs import (
    FINDINGS,
    DoubtedEvent,
    Fence,
    Gathered,
    GatheredLink,
    Summary,
    cases,
    copy_rows,
    examined,
    ledger,
    parked_records,
    source_rows,
    suspected,
)
from reconcile.pipeline.job import Job
from reconcile.pipeline.log_view import cluster_client
from reconcile.pipeline.logs import about, timed
from reconcile.pipeline.redaction import gathered_redactor
from reconcile.pipeline.summary import Counted, summary
from reconcile.spark import local_frames
from reconcile.spark.persisted import persisted
from reconcile.workspace.manifest import ChangedInputsError, Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)


_COMPARED, _COMPARED_BYTES = 300_000, 64 * 1024 * 1024
"""So many rows of each side are compared in this process."""
_UNLIKE = 20_000
"""So many rows of each side may not agree where Spark is not asked."""
_EVENTS = 50_000
"""So many of few suspects are kept in this process."""
_ATTRIBUTED = 5000
"""So many cases are attributed in this process: of more, all cores take a share."""
_CASES = 5000
"""At most about so many are attributed in one task."""
_FIRST = 100
"""So many rows of a side are looked for in the log before all are."""
_KEYS = 100
"""So many keys show how they are written."""


def audit(
    job: Job,
    terms: Mapping[str, PlanTerms],
    corrections: Collection[tuple[str | None, int, int]] = (),
    *,
    require_known: bool = False,
) -> None:
    """Compare, confirm and attribute what was gathered into the run; do nothing if that was done.

    `terms` say for each consumer what would be repaired; `corrections` are the places in the topic, with the ids, where
    those of earlier runs stand. With `require_known` ids that nobody has are refused.
    """
    inputs = job.inputs([Gathered.ARTIFACT])
    if job.run.done(Summary.ARTIFACT, inputs):
        _LOG.info("audited already")
        return
    if job.run.manifest(Gathered.ARTIFACT).inputs.contract != job.contract.digest:
        # What was gathered names fields by their places in the contract.
        raise ChangedInputsError(
            f"the contract was changed since {job.run.id} was gathered: start a new run, or go back to what it was"
        )
    job.run.discard("audit")
    gathered = _gathered(job, inputs)
    _look_for_ids(job, gathered, require_known=require_known)
    tests = {name: _event_tests(job, gathered, job.contract.consumer(name)) for name in gathered.links}
    gathered, compared = _grounded(job, gathered, _compare(job, gathered, tests), tests)
    confirmed = _confirm(job, gathered, compared, corrections)
    doubted = [each for tested in tests.values() for each in tested if each.failed]
    _publish(job, gathered, compared, confirmed, _attribute(job, gathered, confirmed.links, terms), doubted)


@dataclass(frozen=True)
class _Gathered:
    """What the first reading has published, and the log up to its fence."""

    inputs: Inputs
    """What the audit's artifacts are made of."""
    fence: Fence
    links: Mapping[str, GatheredLink]
    """By consumer."""
    unread: Mapping[str, UnreadableLink]
    """By link."""
    history: History
    log: DataFrame
    """The records of the ids of this run."""
    redactors: Mapping[str, Redactor]
    """What redacts the values of each consumer."""
    state: LogState
    router: Router


@dataclass(frozen=True)
class _Suspects:
    """The ids of one link that are to be looked at."""

    consumer: Consumer
    rules: tuple[FieldRule, ...]
    rows: DataFrame
    """As `compare.suspects` selects them."""
    counted: Counted
    reach: Reach | None
    """From where on the ledger knows; None where only the second reading finds that out."""


@dataclass(frozen=True)
class _Compared:
    suspects: tuple[_Suspects, ...]
    dense_versions: bool
    version_gaps: int
    """Of how many ids versions are missing that no copy of whole states needs."""


@dataclass(frozen=True)
class _Confirmed:
    """What the second reading has found, beside the cases that it published."""

    links: Mapping[str, Link]
    """What the cases of a consumer share."""
    unread: Mapping[str, UnreadableLink]
    """By link, of both readings."""


def _gathered(job: Job, inputs: Inputs) -> _Gathered:
    gathered, fence = job.run.read(Gathered), job.run.read(Fence)
    read = {each.consumer for each in gathered.links}
    redactors = {each.name: gathered_redactor(job, each) for each in job.consumers if each.name in read}
    history = gathering.log_history(job, fence)
    state, growth = KeptState(job.spark, history), history.index.partitions
    router = Router.of(infer_from_log(state, growth, job.contract.topic.partitioner), growth)
    ids = job.scope.ids if job.scope.ids is not None else job.scope.frame(job.spark, ID)
    return _Gathered(
        inputs,
        fence,
        {each.consumer: each for each in gathered.links},
        {each.link: each for each in gathered.unread},
        history,
        history.records(job.spark, ids),
        redactors,
        state,
        router,
    )


def _look_for_ids(job: Job, gathered: _Gathered, *, require_known: bool) -> None:
    """Say which of the ids that were asked for no side has; raise RefusedError if that are all, and they have to be."""
    if not job.scope.ids or gathered.unread:
        return
    missing = set(job.scope.ids)
    for name in (table for each in gathered.links for table in (source_rows(each), copy_rows(each))):
        rows = local_frames.rows(job.run.parquet(name, job.spark).select(row_columns.ID))
        if rows is None:
            return  # so many were asked for
        missing -= {id_text for (id_text,) in rows}
    if missing:
        named = listed([quoted(each) for each in sorted(missing)])
        if require_known and len(missing) == len(set(job.scope.ids)) and gathered.log.isEmpty():
            raise RefusedError(
                f"neither side has {named}, and no record is of it: see how the contract's ids are written"
            )
        _LOG.warning(f"neither side has {named}")


def _event_tests(job: Job, gathered: _Gathered, consumer: Consumer) -> tuple[EventTest, ...]:
    """Test what the contract says of events on a sample of the rows that agree."""
    names, link, run = (source_rows(consumer.name), copy_rows(consumer.name)), gathered.links[consumer.name], job.run
    of = run.manifest(names[0]).rows
    if not of or not run.manifest(names[1]).rows:
        return ()
    here = [run.table(each, _COMPARED, _COMPARED_BYTES) for each in names]
    ours, theirs = (
        event_tests.sample_by_spark(run.parquet(name, job.spark), of)
        if table is None
        else event_tests.sample(table, of)
        for name, table in zip(names, here, strict=True)
    )
    agreed = event_tests.agreeing(ours, theirs, field_rules(consumer, link.form))
    redactor = gathered.redactors[consumer.name]
    tests = event_tests.evaluate(job.spark, gathered.history, job.contract, consumer, link.form, agreed, redactor)
    for each in tests:
        if each.failed:
            _LOG.warning(f"{each.link}: {each.found}; it takes no part in causes")
    return tests


def _compare(job: Job, gathered: _Gathered, tests: Mapping[str, Sequence[EventTest]]) -> _Compared:
    """Compare what was gathered, and add what agrees and may break."""
    ignored = job.contract.topic.ignore_types
    gaps, strays = gathered.state.read(
        latent_candidates.version_gaps(ignored), latent_candidates.strays(ignored, gathered.router)
    )
    declared = job.contract.source.dense_versions
    dense = latent_candidates.are_dense(gaps) if declared is None else declared
    links = [each for each in job.consumers if each.name in gathered.links]
    found = []
    for number, each in enumerate(links, 1):
        link = job.contract.link(each)
        with about(link=link, part=f"{number} of {len(links)}"), timed(_LOG, f"{link}: compared"):
            # Where an event carries the whole state, no version before it matters.
            of_log = [strays, gaps] if dense and _folds(job, each) else [strays]
            believed = event_tests.believed(each, tests[each.name])
            found.append(_suspects(job, gathered, believed, [one.rows for one in of_log if one.count]))
    harmless = dense and not all(_folds(job, each) for each in links)
    return _Compared(tuple(found), dense, _among(job, gaps) if harmless else 0)


def _grounded(
    job: Job, gathered: _Gathered, compared: _Compared, tests: Mapping[str, Sequence[EventTest]]
) -> tuple[_Gathered, _Compared]:
    """Leave out the links that differ and whose log or group says nothing at all: their differences have one reason."""
    lost = {}
    for each in compared.suspects:
        known = any(one.tested for one in tests[each.consumer.name])
        if each.counted.differing and (why := _groundless(job, gathered, each, known=known)):
            link = job.contract.link(each.consumer)
            _LOG.warning(f"{link}: {why}")
            lost[link] = UnreadableLink.because(link, each.consumer.name, RefusedError(why))
    kept = tuple(each for each in compared.suspects if job.contract.link(each.consumer) not in lost)
    return replace(gathered, unread={**gathered.unread, **lost}), replace(compared, suspects=kept)


def _groundless(job: Job, gathered: _Gathered, suspects: _Suspects, *, known: bool) -> str | None:
    """Say why nothing can be told of any difference of a link; None where something can.

    `known` says that records with ids of rows were seen.
    """
    topic, group, fence = job.contract.topic.name, suspects.consumer.group, gathered.fence
    differ = f"{suspects.counted.differing:,} ids differ, and nothing tells why"
    if not any(each.log_end for each in fence.topic.partitions):
        return f"the topic {topic} never held a record: {differ}; see topic.name"
    places = fence.consumer(suspects.consumer.name).places
    if all(each.committed_before is None and each.committed_after is None for each in places):
        others: list[str] = []
        with suppress(UnreachableError, RefusedError), cluster_client(job) as cluster:
            others = sorted(each.group for each in readers(cluster, topic)[0] if each.committed)
        hint = suggestion(group, others) or (f"; groups that have: {', '.join(others)}" if others else "")
        return f"the group {group} never committed an offset of {topic}{hint}: {differ}"
    if job.scope.whole and not known and not _knows_an_id(job, gathered, suspects.consumer):
        return f"no record of {topic} has the id of a row: {differ}; see topic.name, topic.key and the columns of `id`"
    return None


def _knows_an_id(job: Job, gathered: _Gathered, consumer: Consumer) -> bool:
    """Whether a record has the id of a row, of the first rows or of any; or whether there are too few to tell."""
    history, of_rows = gathered.history, [source_rows(consumer.name), copy_rows(consumer.name)]
    ids = _union(job.run.parquet(each, job.spark).select(row_columns.ID) for each in of_rows)
    rows = ids.toDF(ID).where(f"{ID} is not null")
    if not history.records(job.spark, [each for (each,) in rows.limit(_FIRST).collect()]).isEmpty():
        return True
    log = history.records(job.spark).select(ID).where(f"{ID} is not null")
    few = history.index.expired and log.distinct().limit(event_tests.ENOUGH).count() < event_tests.ENOUGH
    return bool(few) or not log.join(rows, ID, "left_semi").isEmpty()


def _among(job: Job, known: Known) -> int:
    """Count the ids of this run of which the log's state has something to say."""
    return job.scope.within(known.rows).count() if known.count else 0


def _folds(job: Job, consumer: Consumer) -> bool:
    """Whether a consumer's rows are made of several events."""
    return job.contract.topic.state == "patch" or any(field.apply == "add" for field in consumer.fields)


def _suspects(job: Job, gathered: _Gathered, consumer: Consumer, of_all_links: Sequence[DataFrame]) -> _Suspects:
    name, link = consumer.name, gathered.links[consumer.name]
    _LOG.info(f"{link.link}: comparing")
    rules = field_rules(consumer, link.form)
    reach = None
    with ExitStack() as kept:
        closely = job.scope.closely(job.spark, ID)
        if closely is not None and not job.scope.sifted:
            candidates = closely
        else:
            ledger, begins = _ledger(job, consumer), job.scope.begins
            if begins is None:
                reach = ledger_reach(ledger, ledger, gathered.log)
            parked = job.run.parquet(parked_records(name), job.spark)
            found = [*of_all_links, latent_candidates.unresolved(parked)]
            if ledger is not None:
                known = ledger.where("unapplied is null or unapplied <> 'ignored'")
                found += _not_in_ledger(job, gathered, consumer, known, reach or Reach(dict(begins or {}), None), kept)
            if closely is not None:
                found.append(closely)
            candidates = job.scope.within(_union(found).distinct())
        if (here := local_frames.table(candidates)) is not None:
            candidates = local_frames.of_table(job.spark, here, candidates.schema)
        candidates = kept.enter_context(persisted(candidates))
        there = None if candidates.isEmpty() else candidates
        source, copy = _sides(job, name, there)
        rows = _publish_rows(job, gathered.inputs, suspected(name), compare.suspects(source, copy, rules, there))
    number = compare.count_suspects(rows).collect()[0]
    compared = link.source_rows - number["source_rows"] + number["differing"]
    _LOG.debug(f"{link.link}: {compared:,} ids compared, {number['suspects']:,} suspects")
    return _Suspects(consumer, rules, rows, Counted(compared, number["suspects"], number["differing"]), reach)


def _sides(job: Job, name: str, candidates: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Read the rows of source and copy: of some that this process can hold, only those that may not agree."""
    names, run = (source_rows(name), copy_rows(name)), job.run
    ours, theirs = (run.table(each, _COMPARED, _COMPARED_BYTES) for each in names)
    wanted = [] if candidates is None else local_frames.rows(candidates)
    if ours is not None and theirs is not None and wanted is not None:
        found = compare.unlike(ours, theirs, [id_text for (id_text,) in wanted])
        if max(each.num_rows for each in found) <= _UNLIKE:
            schema = row_columns.schema(ours.num_columns - 2)
            return local_frames.of_table(job.spark, found[0], schema), local_frames.of_table(
                job.spark, found[1], schema
            )
    return run.parquet(names[0], job.spark), run.parquet(names[1], job.spark)


def _not_in_ledger(
    job: Job, gathered: _Gathered, consumer: Consumer, ledger: DataFrame, reach: Reach, kept: ExitStack
) -> list[DataFrame]:
    """Look for events that the group has passed and the ledger does not know; their ids, in one frame or none."""
    topic, places = job.contract.topic, gathered.fence.consumer(consumer.name).places
    records = latent_candidates.of_aggregates(gathered.log, topic.ignore_types)
    if ledger_by_position(job.contract, consumer):
        records = records.where(~is_origin(topic.name))
    committed = {place.partition: place.committed_before for place in places}
    events = latent_candidates.passed(records, committed, reach.begins)
    if reach.begins:
        # By places nearly all are known, and cheaply: names are long, and may be spelled in several ways.
        events = kept.enter_context(persisted(latent_candidates.without_place(events, ledger)))
        if events.isEmpty():
            return []
    return [latent_candidates.without_name(events, ledger)]


def _confirm(
    job: Job, gathered: _Gathered, compared: _Compared, corrections: Collection[tuple[str | None, int, int]]
) -> _Confirmed:
    """Read the suspects again from both stores, after the time that what is in flight may take."""
    suspects = [each for each in compared.suspects if each.counted.suspects]
    links: dict[str, Link] = {}
    if not suspects:
        return _Confirmed(links, gathered.unread)
    _wait(gathered.fence.closed_at + max(each.consumer.settle.confirm_after for each in suspects))
    _LOG.info(f"reading {sum(each.counted.suspects for each in suspects):,} suspects again")
    names = [each.consumer.name for each in suspects]
    with open_fence(job.contract, job.file, job.settings, names, timeout=timedelta(0)) as opened:
        unread = {**gathered.unread, **{each.link: each for each in opened.fence.unread}}
        history = gathering.log_history(job, opened.fence)
        undecided = gathering.undecided(job, opened.fence)
        log = KnownLog(history.index, compared.dense_versions, corrections, undecided.unread)
        for each in suspects:
            consumer = each.consumer
            if consumer.name not in opened.consumers:
                continue
            try:
                reach = _publish_cases(job, gathered, each, opened, history, undecided)
                opened.require_alive(consumer.name)
                links[consumer.name] = link_facts(
                    job.contract, consumer, each.rules, log, reach, gathered.fence, opened.fence
                )
            except (UnreachableError, RefusedError) as error:
                opened.require_source_alive()
                link = job.contract.link(consumer)
                unread[link] = UnreadableLink.because(link, consumer.name, error)
            finally:
                opened.release(consumer.name)
        opened.require_source_alive()
    return _Confirmed(links, unread)


def _publish_cases(
    job: Job,
    gathered: _Gathered,
    suspects: _Suspects,
    opened: OpenFence,
    history: History,
    undecided: UndecidedRecords,
) -> Reach:
    """Publish all that is read of a link's suspects now; return from where on its ledger knows."""
    consumer, topic = suspects.consumer, job.contract.topic
    reader = LinkReader(job.spark, job.contract, consumer, job.settings, opened)
    ids = suspects.rows.withColumnRenamed(ID, row_columns.ID)
    with reader.reading():
        source, copy = reader.rows
        wanted = suspects.rows.where(f"{ID} is not null").select(ID)
        few = local_frames.rows(wanted)
        records = history.records(job.spark, wanted if few is None else [each for (each,) in few])
        found = newest(event_values(job.spark, records, topic, consumer, copy.form.fields))
        here = None if few is None else local_frames.localized(found, _EVENTS)
        redactor = gathered.redactors[consumer.name]
        with persisted(redacted_rows.events(found if here is None else here, redactor)) as events:
            parked = job.run.parquet(parked_records(consumer.name), job.spark)
            parked = parked.join(wanted, ID, "left_semi")
            readings = Readings(
                suspects=suspects.rows,
                source=redacted_rows.rows(source.among(ids), redactor),
                copy=redacted_rows.rows(copy.among(ids), redactor),
                events=events,
                parked=gathering.resolved_since(job, consumer, parked),
                ledger=reader.ledger_of(events),
                outbox=reader.outbox(),
                undecided=undecided.frame(job.spark),
            )
            _publish_rows(job, gathered.inputs, examined(consumer.name), case_rows(readings))
            return suspects.reach or ledger_reach(reader.ledger_bounds(), readings.ledger, events)


def _attribute(job: Job, gathered: _Gathered, links: Mapping[str, Link], terms: Mapping[str, PlanTerms]) -> DataFrame:
    """Compute the findings of all cases."""
    key_type = _key_type(job, gathered.log) if links else None
    found = [local_frames.of_rows(job.spark, [], SCHEMA)]
    for consumer in (each for each in job.consumers if each.name in links):
        name, link = examined(consumer.name), links[consumer.name]
        of_link = (link, gathered.router, key_type, terms[consumer.name], gathered.redactors[consumer.name])
        attributing = Attributing.of(job.contract, consumer, *of_link)
        rows = job.run.parquet(name, job.spark)
        if job.run.manifest(name).rows <= _ATTRIBUTED and local_frames.is_local(rows):
            batch = attributing.findings_of(tables.rows(job.run, name), job.run.id)
            found.append(local_frames.of_table(job.spark, pa.Table.from_batches([batch]), found[0].schema))
            continue
        # Few bytes and much to think about: the cores are to share them by number, not by size.
        shares = max(job.spark.sparkContext.defaultParallelism, job.run.manifest(name).rows // _CASES)
        found.append(attributing.findings(rows.repartition(shares, ID), job.run.id))
    return _union(found)


def _key_type(job: Job, log: DataFrame) -> str | None:
    """Query how ids become keys; None where the log's records show that an id does not say its key."""
    declared = job.contract.topic.key.type
    if declared == "schema":
        return None
    if declared != "json":
        return declared
    keys = log.select(KEY).where(f"{KEY} is not null").limit(_KEYS).collect()
    return declared if all(rebuilds(row[KEY], declared) for row in keys) else None


def _publish(
    job: Job,
    gathered: _Gathered,
    compared: _Compared,
    confirmed: _Confirmed,
    findings: DataFrame,
    doubted: Sequence[EventTest],
) -> None:
    run, inputs, unread = job.run, gathered.inputs, confirmed.unread
    complete, notes = not unread, [f"{link}: {each.message}" for link, each in sorted(unread.items())]
    with persisted(findings) as found:  # to put them in order Spark looks at them twice
        ordered = _ordered(found)
        run.publish_parquet(FINDINGS, ordered, inputs, stage="audit", complete=complete, notes=notes)
    counted = {job.contract.link(each.consumer): each.counted for each in compared.suspects}
    published = run.parquet(FINDINGS, job.spark)
    for each in (each.consumer for each in compared.suspects if each.consumer.name in confirmed.links):
        _keep_cases(job, gathered, each, published)
    figures = summary(job.contract, gathered.fence, counted, published, unread, job.scope.aggregates)
    events = tuple(
        DoubtedEvent(link=each.link, field=each.field, path=each.path, tested=each.tested, matching=each.matching)
        for each in doubted
    )
    figures = figures.model_copy(update={"version_gaps": compared.version_gaps, "doubted_events": events})
    run.publish(with_scope(job, figures, published), inputs, complete=complete, notes=notes)
    for consumer in job.consumers:
        run.remove(examined(consumer.name))


def _keep_cases(job: Job, gathered: _Gathered, consumer: Consumer, findings: DataFrame) -> None:
    """Publish of what was examined what explains the findings of a consumer."""
    ids = findings.where(findings["link"] == job.contract.link(consumer)).selectExpr(f"aggregate_id as {ID}")
    rows = kept(job.run.parquet(examined(consumer.name), job.spark), ids, gathered.redactors[consumer.name])
    job.run.publish_parquet(cases(consumer.name), rows, gathered.inputs, stage="audit")


def _ordered(findings: DataFrame) -> DataFrame:
    if (here := local_frames.plain_rows(findings)) is None:
        return findings.orderBy("link", "aggregate_id")
    here.sort(key=lambda each: (each["link"], each["aggregate_id"] is not None, each["aggregate_id"]))
    rows = [tuple(each.values()) for each in here]
    return local_frames.of_rows(findings.sparkSession, rows, findings.schema)


def _publish_rows(job: Job, inputs: Inputs, name: str, frame: DataFrame) -> DataFrame:
    """Publish what was read, as the stores move on, and read it from there."""
    job.run.publish_parquet(name, frame, inputs, stage="audit")
    return job.run.parquet(name, job.spark)


def _wait(until: datetime) -> None:
    """Wait for what is in flight, as long as the contract grants it."""
    seconds = (until - datetime.now(UTC)).total_seconds()
    if seconds > 0:
        _LOG.info(f"waiting {seconds:.0f} s for what is in flight")
        time.sleep(seconds)


def _ledger(job: Job, consumer: Consumer) -> DataFrame | None:
    name = ledger(consumer.name)
    return job.run.parquet(name, job.spark) if job.run.find(name) else None


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)
