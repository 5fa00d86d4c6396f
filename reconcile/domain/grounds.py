"""On what a cause is decided: every ground that there is, how strongly it speaks, and what was decided on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from reconcile.domain.case import Event, LedgerEntry, ParkedIn, Unapplied
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence, Evidence, Hop

_CERTAIN, _PROBABLE, _POSSIBLE = Confidence
_TO_LOG, _TO_CONSUMER, _IN_CONSUMER = Hop


class Ground(Enum):
    """What was shown: the cause that it names, its confidence, its hop, what else it could be, and the condition."""

    # fmt: off
    PENDING = (
        Cause.IN_FLIGHT, _CERTAIN, _TO_CONSUMER, (),
        "the copy is at an earlier event, and every later one is at or past the committed offset",
    )
    PENDING_ALL = (
        Cause.IN_FLIGHT, _PROBABLE, _TO_CONSUMER, (),
        "no event of it that is left in the log was due yet; where the copy was before cannot be seen any more",
    )
    AHEAD = (
        Cause.IN_FLIGHT, _CERTAIN, _TO_CONSUMER, (),
        "the copy is at an event that came after the source was read",
    )
    ON_ITS_WAY = (
        Cause.IN_FLIGHT, _PROBABLE, _TO_CONSUMER, (),
        "the log has what the source said a while ago, the copy is where the log is, and the source has moved on since",
    )
    UNDECIDED = (
        Cause.IN_FLIGHT, _CERTAIN, _TO_CONSUMER, (),
        "a record of it is behind an open transaction: nobody knows yet whether it counts",
    )
    PERHAPS_UNDECIDED = (
        Cause.IN_FLIGHT, _PROBABLE, _TO_CONSUMER, (Cause.NEVER_PUBLISHED, Cause.EXPIRED),
        "the log does not bring what the source says, and too many records are behind an open transaction to look at",
    )
    UNREADABLE = (
        Cause.SCHEMA_VIOLATION, _CERTAIN, _TO_LOG, (),
        "the newest record cannot be read, and no readable one brings the source's state",
    )
    PERHAPS_UNREADABLE = (
        Cause.SCHEMA_VIOLATION, _PROBABLE, _TO_LOG, (Cause.EXPIRED, Cause.SKIPPED, Cause.FOREIGN_WRITE),
        "a record cannot be read that may carry what differs; what came before the log begins could tell",
    )
    UNREADABLE_FIELD = (
        Cause.SCHEMA_VIOLATION, _CERTAIN, _TO_LOG, (),
        "a field that differs cannot be read in the record that should carry it",
    )
    OUTBOX_PENDING = (
        Cause.NEVER_PUBLISHED, _CERTAIN, _TO_LOG, (),
        "the log does not have what the source says, and a row of its outbox was not published",
    )
    VERSION_ABSENT = (
        Cause.NEVER_PUBLISHED, _CERTAIN, _TO_LOG, (),
        "the source's version is newer than any in the log, or a correction alone has it",
    )
    VERSION_GAP = (
        Cause.NEVER_PUBLISHED, _CERTAIN, _TO_LOG, (),
        "versions grow by one, and one between those in the log is not there",
    )
    PERHAPS_GAP = (
        Cause.NEVER_PUBLISHED, _POSSIBLE, _TO_LOG, (Cause.SKIPPED, Cause.DUPLICATE_APPLIED, Cause.FOREIGN_WRITE),
        "the same, and it may have told of what differs: nothing that is left in the log could show that",
    )
    NO_EVENT = (
        Cause.NEVER_PUBLISHED, _CERTAIN, _TO_LOG, (),
        "the source has it, and the log has no event of it from its very beginning",
    )
    NO_EVENT_IN_PART = (
        Cause.NEVER_PUBLISHED, _PROBABLE, _TO_LOG, (Cause.EXPIRED,),
        "the same, and the copy has no row; most of the partitions reach back, and nothing tells which one is its own",
    )
    STATE_ABSENT = (
        Cause.NEVER_PUBLISHED, _POSSIBLE, _TO_LOG,
        (Cause.PAYLOAD_DIVERGENCE, Cause.SOURCE_REGRESSED, Cause.OUT_OF_ORDER),
        "without versions: no event gives the source's state",
    )
    DELETION_ABSENT = (
        Cause.NEVER_PUBLISHED, _POSSIBLE, _TO_LOG, (Cause.SOURCE_REGRESSED, Cause.OUT_OF_ORDER),
        "the source no longer has it, and the newest event does not delete it",
    )
    RETURN_ABSENT = (
        Cause.NEVER_PUBLISHED, _POSSIBLE, _TO_LOG, (Cause.SOURCE_REGRESSED, Cause.OUT_OF_ORDER),
        "the source has it again, and the newest event deletes it",
    )
    LOG_NEWER = (
        Cause.SOURCE_REGRESSED, _CERTAIN, _TO_LOG, (),
        "the log held a newer version before the source was read",
    )
    DELETED_IN_LOG = (
        Cause.SOURCE_REGRESSED, _PROBABLE, _TO_LOG, (Cause.OUT_OF_ORDER, Cause.NEVER_PUBLISHED),
        "the source has it at a version, and as, it was before the log deleted it",
    )
    EARLIER_STATE = (
        Cause.SOURCE_REGRESSED, _POSSIBLE, _TO_LOG,
        (Cause.NEVER_PUBLISHED, Cause.OUT_OF_ORDER, Cause.PAYLOAD_DIVERGENCE),
        "without versions: the source is as it was at an earlier event",
    )
    SAME_VERSION = (
        Cause.PAYLOAD_DIVERGENCE, _CERTAIN, _TO_LOG, (),
        "the event of the source's version says something else in a field that differs",
    )
    PLACEHOLDER = (
        Cause.PAYLOAD_DIVERGENCE, _CERTAIN, _TO_LOG, (),
        "the event has a placeholder in place of a field's value, and the copy took that for the value",
    )
    SAME_VERSION_FOLD = (
        Cause.PAYLOAD_DIVERGENCE, _PROBABLE, _TO_LOG, (Cause.NEVER_PUBLISHED,),
        "all changes up to the source's version together do not give the source's state",
    )
    ALL_GONE = (
        Cause.EXPIRED, _CERTAIN, None, (),
        "the source has it, and the log has no event of it and does not reach back",
    )
    NEWEST_GONE = (
        Cause.EXPIRED, _CERTAIN, None, (),
        "the log is older than the source, and has lost what stood behind its newest event of it",
    )
    PERHAPS_EXPIRED = (
        Cause.EXPIRED, _POSSIBLE, None, (Cause.PHANTOM,),
        "the copy alone has it, and the log has no event of it and does not reach back",
    )
    FORMER_STATE_GONE = (
        Cause.EXPIRED, _POSSIBLE, None, (Cause.SKIPPED, Cause.FOREIGN_WRITE, Cause.NEVER_PUBLISHED),
        "the copy is as none of the events left would make it, and the log does not reach back",
    )
    NEVER_KNOWN = (
        Cause.PHANTOM, _CERTAIN, _IN_CONSUMER, (),
        "the copy alone has it, and the log has no event of it from its very beginning",
    )
    PERHAPS_NEVER_KNOWN = (
        Cause.PHANTOM, _PROBABLE, _IN_CONSUMER, (Cause.EXPIRED,),
        "the same, where not all partitions reach back, or compaction may have taken a deletion away",
    )
    COPY_WITHOUT_ID = (
        Cause.PHANTOM, _PROBABLE, _IN_CONSUMER, (),
        "the copy has rows without an id, which no event can carry",
    )
    NO_STATE = (
        Cause.FOREIGN_WRITE, _CERTAIN, _IN_CONSUMER, (),
        "the log reaches back, and no prefix, omission, doubling or delay of its events gives the copy",
    )
    NO_SUM = (
        Cause.FOREIGN_WRITE, _POSSIBLE, _IN_CONSUMER, (Cause.SKIPPED, Cause.DUPLICATE_APPLIED, Cause.OUT_OF_ORDER),
        "the same, where sums differ, or what an event said once: several faults together could give that",
    )
    NO_KNOWN_STATE = (
        Cause.FOREIGN_WRITE, _PROBABLE, _IN_CONSUMER, (Cause.EXPIRED, Cause.SKIPPED),
        "the same as far as the log reaches back; several events that were due would each have brought another state",
    )
    OTHER_THAN_VERSION = (
        Cause.FOREIGN_WRITE, _CERTAIN, _IN_CONSUMER, (),
        "the copy has the version of an event and does not say what that event says",
    )
    OTHER_THAN_LEDGER = (
        Cause.FOREIGN_WRITE, _CERTAIN, _IN_CONSUMER, (),
        "the copy is not what the events that the ledger shows applied would make it",
    )
    OTHER_SUM_THAN_LEDGER = (
        Cause.FOREIGN_WRITE, _PROBABLE, _IN_CONSUMER, (Cause.DUPLICATE_APPLIED, Cause.SKIPPED),
        "the same, where sums alone differ, and up to three of the events' amounts make the difference",
    )
    ROW_GONE = (
        Cause.FOREIGN_WRITE, _PROBABLE, _IN_CONSUMER, (Cause.SKIPPED,),
        "the copy has no row, although several events that were due would each have brought it",
    )
    MADE_OTHERWISE = (
        Cause.FOREIGN_WRITE, _POSSIBLE, _IN_CONSUMER, (Cause.SKIPPED, Cause.OUT_OF_ORDER),
        "only the creating event carries the differing fields, so the row without that event is not known",
    )
    NOT_CARRIED = (
        Cause.FOREIGN_WRITE, _POSSIBLE, _IN_CONSUMER, (Cause.SKIPPED, Cause.NEVER_PUBLISHED),
        "only fields differ of which no event tells",
    )
    RETRYING = (
        Cause.RETRYING, _CERTAIN, _TO_CONSUMER, (),
        "the event that the copy lacks waits in a retry topic; latent: an overtaken one does",
    )
    RETRYING_AMONG = (
        Cause.RETRYING, _POSSIBLE, _TO_CONSUMER, (Cause.SKIPPED, Cause.OUT_OF_ORDER, Cause.FOREIGN_WRITE),
        "an event that the copy lacks waits in a retry topic, and a newer one is lost",
    )
    STASHED = (
        Cause.STASHED, _CERTAIN, _TO_CONSUMER, (),
        "the event that the copy lacks lies in the stash; latent: an overtaken one does",
    )
    STASHED_AMONG = (
        Cause.STASHED, _POSSIBLE, _TO_CONSUMER, (Cause.SKIPPED, Cause.OUT_OF_ORDER, Cause.FOREIGN_WRITE),
        "an event that the copy lacks lies in the stash, and a newer one is lost",
    )
    DEAD_LETTERED = (
        Cause.DEAD_LETTERED, _CERTAIN, _TO_CONSUMER, (),
        "the event that the copy lacks lies among the dead letters; latent: an overtaken one does",
    )
    DEAD_LETTERED_AMONG = (
        Cause.DEAD_LETTERED, _POSSIBLE, _TO_CONSUMER, (Cause.SKIPPED, Cause.OUT_OF_ORDER, Cause.FOREIGN_WRITE),
        "an event that the copy lacks lies among the dead letters, and a newer one is lost",
    )
    LEDGER_ORDER = (
        Cause.OUT_OF_ORDER, _CERTAIN, _TO_CONSUMER, (),
        "the ledger shows the event that the copy is at applied after a newer one",
    )
    RETRIED_LATE = (
        Cause.OUT_OF_ORDER, _CERTAIN, _TO_CONSUMER, (),
        "the event that the copy is at came by a retry topic or the stash, after a newer one",
    )
    APPLIED_LATE = (
        Cause.OUT_OF_ORDER, _CERTAIN, _TO_CONSUMER, (),
        "folding the events with one of them later gives the copy, and the ledger shows both applied",
    )
    PERHAPS_LATE = (
        Cause.OUT_OF_ORDER, _POSSIBLE, _TO_CONSUMER, (Cause.SKIPPED, Cause.FOREIGN_WRITE),
        "without a ledger: one event that was late gives the copy, or the loss of several",
    )
    DELETED_LATE = (
        Cause.OUT_OF_ORDER, _PROBABLE, _TO_CONSUMER, (Cause.SKIPPED, Cause.FOREIGN_WRITE),
        "the copy has no row, as after an earlier deletion behind which several events were due",
    )
    LOG_INVERTED = (
        Cause.OUT_OF_ORDER, _CERTAIN, _TO_LOG, (),
        "the log holds a newer version before an older one, and the copy follows the log",
    )
    LEDGER_TWICE = (
        Cause.DUPLICATE_APPLIED, _CERTAIN, _TO_CONSUMER, (),
        "the ledger shows an event twice",
    )
    LOG_TWICE = (
        Cause.DUPLICATE_APPLIED, _CERTAIN, _TO_CONSUMER, (),
        "one event stands twice in the log",
    )
    FOLDED_TWICE = (
        Cause.DUPLICATE_APPLIED, _CERTAIN, _TO_CONSUMER, (),
        "folding an event twice gives the copy, and losing none does",
    )
    FOLDED_TWICE_OR_GAP = (
        Cause.DUPLICATE_APPLIED, _PROBABLE, _TO_CONSUMER, (Cause.NEVER_PUBLISHED,),
        "the same, and a version is missing that may have told of as much",
    )
    NOTED_ONCE = (
        Cause.DUPLICATE_APPLIED, _PROBABLE, _TO_CONSUMER, (Cause.FOREIGN_WRITE,),
        "the ledger shows all applied, each once, and one or a few of them twice give the copy",
    )
    PERHAPS_TWICE = (
        Cause.DUPLICATE_APPLIED, _POSSIBLE, _TO_CONSUMER, (Cause.SKIPPED, Cause.OUT_OF_ORDER),
        "folding several events twice gives the copy, or losing one gives it as well",
    )
    ROW_TWICE = (
        Cause.DUPLICATE_APPLIED, _PROBABLE, _TO_CONSUMER, (Cause.FOREIGN_WRITE,),
        "the copy holds the id more than once, its event stands once in log and ledger",
    )
    LOSING_PARTITION = (
        Cause.MISROUTED, _CERTAIN, _TO_LOG, (),
        "its events stand in several partitions, which is explained, and the copy is at the last of a losing one",
    )
    PERHAPS_LOSING_PARTITION = (
        Cause.MISROUTED, _PROBABLE, _TO_LOG, (Cause.SKIPPED, Cause.OUT_OF_ORDER),
        "the same, where no partitioner explains the topic, or no ledger shows applied a newer event that is at home",
    )
    NEWEST_IN_WRONG = (
        Cause.MISROUTED, _CERTAIN, _TO_LOG, (),
        "latent: the newest record stands in a partition where its key does not belong",
    )
    NOT_IN_LEDGER = (
        Cause.SKIPPED, _CERTAIN, _TO_CONSUMER, (),
        "committed past the event, in no failure topic, not in the ledger or noted there as not applied;"
        " latent: an overtaken one",
    )
    GUARDED = (
        Cause.SKIPPED, _CERTAIN, _TO_CONSUMER, (),
        "the copy is at an older event, committed past the newer ones, and the consumer ignores what is older",
    )
    FOLDED_WITHOUT = (
        Cause.SKIPPED, _CERTAIN, _TO_CONSUMER, (),
        "folding all events but this one gives the copy, and nothing else does",
    )
    FOLDED_WITHOUT_OR_GAP = (
        Cause.SKIPPED, _PROBABLE, _TO_CONSUMER, (Cause.NEVER_PUBLISHED,),
        "the same, and a version is missing that may have told of as much",
    )
    LOST_OR_EDITED = (
        Cause.SKIPPED, _PROBABLE, _TO_CONSUMER, (Cause.FOREIGN_WRITE,),
        "the same, of one field or of a row's first event: an edit, or a deletion, by hand leaves the same copy",
    )
    PERHAPS_LOST = (
        Cause.SKIPPED, _POSSIBLE, _TO_CONSUMER, (Cause.OUT_OF_ORDER, Cause.FOREIGN_WRITE),
        "without a ledger: the copy is at the event before, or what came before was applied again",
    )
    SEVERAL_LOST = (
        Cause.SKIPPED, _PROBABLE, _TO_CONSUMER, (Cause.FOREIGN_WRITE,),
        "without several events the fold gives the copy, or what it gives is known in part",
    )
    SEVERAL_LOST_OR_LATE = (
        Cause.SKIPPED, _POSSIBLE, _TO_CONSUMER, (Cause.OUT_OF_ORDER, Cause.FOREIGN_WRITE),
        "the same, where what they set could have been set again by several older ones behind them",
    )
    NO_ROW = (
        Cause.SKIPPED, _PROBABLE, _TO_CONSUMER, (Cause.FOREIGN_WRITE,),
        "the copy has no row, the one event that brings it was due, and no ledger tells",
    )
    RETURN_LOST = (
        Cause.SKIPPED, _PROBABLE, _TO_CONSUMER, (Cause.OUT_OF_ORDER, Cause.FOREIGN_WRITE),
        "the copy has no row, as after an earlier deletion behind which one event was due",
    )
    WITHOUT_ID = (
        Cause.UNDETERMINED, _POSSIBLE, None, (),
        "rows without an id cannot be followed",
    )
    SOURCE_TWICE = (
        Cause.UNDETERMINED, _POSSIBLE, None, (),
        "the source holds the id more than once",
    )
    NOTHING_SHOWN = (
        Cause.UNDETERMINED, _POSSIBLE, None, (),
        "none of the others",
    )
    # fmt: on

    def __init__(
        self, cause: Cause, confidence: Confidence, hop: Hop | None, alternatives: tuple[Cause, ...], when: str
    ) -> None:
        self.cause = cause
        self.confidence = confidence
        self.hop = hop
        self.alternatives = alternatives
        self.when = when


PARKED: Mapping[ParkedIn, tuple[Ground, Ground]] = {
    "retry": (Ground.RETRYING, Ground.RETRYING_AMONG),
    "stash": (Ground.STASHED, Ground.STASHED_AMONG),
    "dead_letter": (Ground.DEAD_LETTERED, Ground.DEAD_LETTERED_AMONG),
}
"""The grounds on which an event in a failure topic names the cause: alone, and among others that are lost."""


def ground_of_loss(noted: LedgerEntry | None) -> Ground:
    """Choose the ground on which an event counts as not applied, by how the ledger notes it, if it does."""
    return Ground.NOT_IN_LEDGER if noted is None else _NOTED.get(noted.unapplied, Ground.NOT_IN_LEDGER)


_NOTED: Mapping[Unapplied | None, Ground] = {"dead_lettered": Ground.DEAD_LETTERED, "sent_on": Ground.RETRYING}


@dataclass(frozen=True)
class Attribution:
    """What was decided, on what ground, and what shows it."""

    ground: Ground
    since: datetime | None = None
    """The time of the first event that did not take."""
    notes: tuple[Evidence, ...] = ()
    exact: bool = False
    """Whether it gives the copy as it is: nothing else need have gone wrong behind the log."""
    about: tuple[Event, ...] = ()
    """The events that it says something went wrong with."""
    beside: tuple[Cause, ...] = ()
    """The causes of other faults that the evidence shows, of which each may make the difference as well."""

    @property
    def confidence(self) -> Confidence:
        """How strongly the evidence speaks for the cause: a step less than the ground, if it shows other faults."""
        if not self.beside or self.ground.confidence is _POSSIBLE:
            return self.ground.confidence
        return _PROBABLE if self.ground.confidence is _CERTAIN else _POSSIBLE

    @property
    def alternatives(self) -> tuple[Cause, ...]:
        """What else it could be."""
        others = dict.fromkeys((*self.ground.alternatives, *self.beside))
        return tuple(cause for cause in others if cause is not self.ground.cause)
