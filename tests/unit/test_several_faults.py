"""What is said of an aggregate with several faults, of which one hides another; simulated, as the calibration does."""

from __future__ import annotations

from collections.abc import Mapping

from bench.simulation import Change, Fault, FaultKind, History, Values, World, applied
from reconcile.domain.attribution import attribute
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence, Finding

STATES = World(ledger="each", copy_versions=False)
PATCHES = World(changes=True, patch=True, ledger="each", copy_versions=False)
ZOE = {"name": "Zoey", "email": "zoe@x", "phone": "1"}
ACCOUNT = {**ZOE, "tariff": "gold", "balance": "100"}


def people(*names: str) -> list[Values | None]:
    """Give whole states that differ by name."""
    return [{**ZOE, "name": name} for name in names]


def lived(world: World, changes: list[Values | None], *faults: Fault) -> History:
    """Give the history of an aggregate to which this happened; None deletes it."""
    row: Values | None = None
    found = []
    for fields in changes:
        row = None if fields is None else applied(row, fields, world.fields)
        found.append(Change(fields, row))
    return History(world, found, faults)


def fault(
    kind: FaultKind, at: int, by: int = 0, fields: Mapping[str, str | None] | None = None, traced: bool = False
) -> Fault:
    """Give a fault."""
    return Fault(kind, at, by, fields, traced)


def said(history: History) -> Finding:
    """Give the finding, whose cause or one of whose alternatives has to be right."""
    finding = attribute(history.case)
    assert finding is not None
    assert {finding.cause, *finding.alternatives} & history.causes
    return finding


def test_an_event_that_came_twice_in_a_row_hides_no_loss() -> None:
    """The second time changed nothing, and then a newer event was lost."""
    finding = said(lived(STATES, people("a", "b", "c"), fault("twice", 1), fault("skip", 2)))
    assert (Cause.SKIPPED, Confidence.CERTAIN) == (finding.cause, finding.confidence)


def test_a_repeat_that_changes_nothing_is_no_cause() -> None:
    """The source has just moved on, and an event with no amount stands twice."""
    changes: list[Values | None] = [{"phone": "1"}, {"email": "new@x", "tariff": "plus"}]
    finding = said(lived(World(changes=True, patch=True), changes, fault("moved", 1), fault("twice", 0)))
    assert Cause.IN_FLIGHT is finding.cause


def test_what_came_twice_before_a_deletion_is_no_cause() -> None:
    """The deletion took both away; an amount from before it came after it, and the sum has that."""
    world = World(changes=True, ledger="each", copy_versions=False)
    life: list[Values | None] = [ACCOUNT, {**ACCOUNT, "balance": "7"}, None, {**ACCOUNT, "balance": "30"}, ACCOUNT]
    finding = said(lived(world, life, fault("double", 0), fault("late", 1, 2)))
    assert (Cause.OUT_OF_ORDER, Confidence.CERTAIN) == (finding.cause, finding.confidence)


def test_an_amount_that_is_pending_hides_none_that_waits_elsewhere() -> None:
    """Both are as large; the copy shows that one of them is not there, and the stash has the one that was due."""
    changes: list[Values | None] = [ACCOUNT, {"balance": "50"}, {"name": "b"}, {"balance": "50"}]
    world = World(changes=True, patch=True, copy_versions=False)
    finding = said(lived(world, changes, fault("behind", 2, 2), fault("stash", 1)))
    assert (Cause.IN_FLIGHT, Confidence.PROBABLE, (Cause.STASHED,)) == (
        finding.cause, finding.confidence, finding.alternatives,
    )  # fmt: skip


def test_what_is_pending_does_not_put_a_log_in_order() -> None:
    """The pending event tells nothing of the name, which the log has in the wrong order."""
    changes: list[Values | None] = [ACCOUNT, {"name": "b"}, {"tariff": "gold"}]
    finding = said(lived(PATCHES, changes, fault("behind", 2), fault("swap", 0)))
    assert Confidence.CERTAIN is not finding.confidence


def test_a_dead_letter_from_before_the_log_may_hold_the_amount() -> None:
    """The log has an event of the same amount, but that one was not lost."""
    world = World(changes=True, log_from=1, copy_versions=False)
    changes: list[Values | None] = [{**ACCOUNT, "name": name} for name in "abc"]
    finding = said(lived(world, changes, fault("dead_letter", 0)))
    assert Confidence.CERTAIN is not finding.confidence


def test_a_stray_record_that_does_no_harm() -> None:
    """The newer event stands where it belongs, and was lost."""
    world = World(copy_versions=False)
    finding = said(lived(world, people("a", "b"), fault("misroute", 0), fault("skip", 1)))
    assert Confidence.CERTAIN is not finding.confidence


def test_a_late_event_is_not_the_last_of_its_partition() -> None:
    """One behind it in its own partition lost to it too, so that the stray record is not to blame."""
    world = World(changes=True, patch=True)
    changes: list[Values | None] = [ACCOUNT, {"tariff": "plus", "email": "b@x"}, {"tariff": "plus"}]
    finding = said(lived(world, changes, fault("late", 0, 2), fault("misroute", 2)))
    assert Cause.MISROUTED is not finding.cause


def test_a_consumer_that_compares_versions_ignores_what_comes_back() -> None:
    """The older event came by the retry topic and did no harm; the newer one was lost."""
    world = World(copy_versions=False, guard="newer")
    finding = said(lived(world, people("a", "b"), fault("late", 0, 1, traced=True), fault("skip", 1)))
    assert Cause.SKIPPED is finding.cause


def test_a_column_default_is_no_trace_of_an_event() -> None:
    """The lost event made the row; the copy has its tariff all the same, by default, and no address."""
    changes: list[Values | None] = [{"email": "zoe@x", "tariff": "basic"}, {"name": "Zoey"}]
    finding = said(lived(World(changes=True, patch=True), changes, fault("skip", 0)))
    assert (Cause.FOREIGN_WRITE, Confidence.PROBABLE) == (finding.cause, finding.confidence)


def test_what_several_faults_can_leave_is_not_certainly_edited() -> None:
    """A late event and a lost one leave values that events did say."""
    changes: list[Values | None] = [
        ACCOUNT,
        {"name": "b", "phone": "2"},
        {"name": "c", "email": "c@x"},
        {"name": "d", "email": "d@x", "phone": None},
        {"name": "b", "tariff": "plus", "balance": "-5"},
    ]
    finding = said(lived(World(changes=True, patch=True), changes, fault("late", 2, 2), fault("skip", 3)))
    assert Confidence.CERTAIN is not finding.confidence


def test_a_gap_before_the_event_that_told_last_left_no_trace() -> None:
    """Version 2 is missing; version 3 tells of the tariff anew, and wrongly."""
    changes: list[Values | None] = [ACCOUNT, {"tariff": "plus"}, {"tariff": "gold"}, {"name": "b"}]
    finding = said(lived(PATCHES, changes, fault("lost", 1), fault("diverge", 2, fields={"tariff": "wrong"})))
    assert Cause.PAYLOAD_DIVERGENCE is finding.cause


def test_a_version_more_is_missing_than_cannot_be_read() -> None:
    """The first change was never published; the record of the second cannot be read."""
    changes: list[Values | None] = [ACCOUNT, {"name": "b"}, {"name": "c", "phone": None}]
    finding = said(lived(PATCHES, changes, fault("lost", 0), fault("unreadable", 1)))
    assert (Confidence.PROBABLE, (Cause.NEVER_PUBLISHED,)) == (finding.confidence, finding.alternatives)


def test_a_sum_may_lack_what_was_before_the_first_version() -> None:
    """The log begins with version 2, whose amount applied twice would give the copy as well."""
    changes: list[Values | None] = [{**ACCOUNT, "balance": amount} for amount in ("-50", "50", "100")]
    world = World(changes=True, copy_versions=False)
    finding = said(lived(world, changes, fault("lost", 0), fault("moved", 2)))
    assert Confidence.CERTAIN is not finding.confidence


def test_what_came_after_the_turn_of_a_dead_letter_would_have_overwritten_it() -> None:
    """The ledger shows the older event applied after the newer one was put aside."""
    finding = said(lived(STATES, people("a", "b"), fault("late", 0, 1), fault("dead_letter", 1)))
    assert (Confidence.PROBABLE, (Cause.OUT_OF_ORDER,)) == (finding.confidence, finding.alternatives)


def test_what_stands_behind_a_lost_event_would_have_overwritten_it() -> None:
    """The older event stands behind it in the log, and was applied."""
    finding = said(lived(STATES, people("a", "b"), fault("swap", 0), fault("skip", 1)))
    assert (Confidence.PROBABLE, (Cause.OUT_OF_ORDER,)) == (finding.confidence, finding.alternatives)


def test_a_retried_event_that_had_come_before_is_no_rival() -> None:
    """It came back by the retry topic long before the newer one was lost."""
    history = lived(STATES, people("a", "b", "c", "d"), fault("late", 0, 1, traced=True), fault("skip", 3))
    finding = said(history)
    assert (Cause.SKIPPED, Confidence.CERTAIN) == (finding.cause, finding.confidence)


def test_of_two_parked_events_the_one_that_is_still_seen_is_the_cause() -> None:
    """What the dead letter sets was set anew; the stashed amount is still missing."""
    changes: list[Values | None] = [ACCOUNT, {"name": "b", "balance": "5"}, {"phone": "2"}, {"name": "c", "phone": "3"}]
    world = World(changes=True, patch=True, copy_versions=False)
    finding = said(lived(world, changes, fault("early", 3), fault("stash", 1), fault("dead_letter", 2)))
    assert Cause.STASHED is finding.cause


def test_a_row_that_was_made_anew_hides_what_was_lost_before() -> None:
    """It lacks also the name that the ledger shows applied: somebody deleted it, with all that was in it."""
    changes: list[Values | None] = [ACCOUNT, {"tariff": "plus"}, {"name": "b"}, {"email": "c@x"}]
    finding = said(lived(PATCHES, changes, fault("stash", 0), fault("edit", 2)))
    assert Cause.FOREIGN_WRITE in finding.alternatives


def test_the_newest_change_may_be_on_its_way_where_one_before_it_was_not_published() -> None:
    """It carries the whole state, and would bring what the log lacks."""
    finding = said(lived(STATES, people("a", "b", "c"), fault("lost", 1), fault("moved", 2)))
    assert (Cause.NEVER_PUBLISHED, Confidence.PROBABLE) == (finding.cause, finding.confidence)
    assert Cause.IN_FLIGHT in finding.alternatives


def test_the_loss_of_the_first_event_is_a_rival_of_an_amount_added_twice() -> None:
    """It took away as much as another one brought, and what else it told is NULL or was told anew."""
    whole: Values = {**ACCOUNT, "phone": None, "tariff": "plus", "balance": "-500"}
    changes: list[Values | None] = [
        whole,
        {"name": "Zoey", "email": "b@x", "tariff": "plus", "balance": "500"},
        {"email": "c@x"},
        {"phone": "5"},
    ]
    world = World(changes=True, patch=True, copy_versions=False)
    finding = said(lived(world, changes, fault("skip", 0), fault("moved", 3)))
    assert Cause.SKIPPED in {finding.cause, *finding.alternatives}


def test_a_guard_may_have_refused_what_is_parked() -> None:
    """Newer events of another partition may have come before it."""
    world = World(changes=True, patch=True, copy_versions=False, guard="newer", ledger="each")
    changes: list[Values | None] = [ACCOUNT, {"name": "b", "balance": "5"}, {"name": "c", "balance": "7"}]
    finding = said(lived(world, changes, fault("dead_letter", 1), fault("misroute", 2, -1)))
    assert (Confidence.PROBABLE, (Cause.MISROUTED,)) == (finding.confidence, finding.alternatives)


def test_a_field_of_which_no_event_tells_may_have_been_told_by_one_that_was_not_published() -> None:
    """The log begins behind the first event; version 2 is missing, and it told of the address."""
    changes: list[Values | None] = [ACCOUNT, {"email": "b@x"}, {"name": "b"}]
    world = World(changes=True, patch=True, copy_versions=False, versions=False, log_from=2)
    finding = said(lived(world, changes, fault("lost", 1)))
    assert (Cause.FOREIGN_WRITE, Confidence.POSSIBLE) == (finding.cause, finding.confidence)


def test_a_sum_to_which_one_event_added_is_edited() -> None:
    """No other amount can have been lost or added twice."""
    finding = said(lived(World(changes=True, patch=True), [ACCOUNT], fault("edit", 0, fields={"balance": "137"})))
    assert (Cause.FOREIGN_WRITE, Confidence.CERTAIN) == (finding.cause, finding.confidence)
