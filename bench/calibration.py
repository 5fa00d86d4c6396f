"""How often causes are right, by confidence and by what evidence there is: against simulated histories with faults.

python -m bench.calibration --histories 100000
python -m bench.calibration --table            the table of docs/causes.md
python -m bench.calibration --wrong 10         what was wrong, by ground
python -m bench.calibration --history 767      one of them
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pool
from typing import NamedTuple

from bench.simulation import Draw, History
from reconcile.domain.attribution import attribute, decide
from reconcile.domain.finding import Confidence, Difference
from reconcile.domain.inquiry import Inquiry

SEED = 20260101
_CHUNK = 500


class Group(NamedTuple):
    """The findings that one line of the table counts."""

    topic: str
    evidence: str
    confidence: str


@dataclass(frozen=True)
class Judged:
    """One finding, or that there is none, against the truth."""

    number: int
    group: Group
    latent: bool
    right: bool
    among: bool
    ground: str
    cause: str
    truth: str

    @property
    def kind(self) -> str:
        """By which word it is listed among what was wrong."""
        return "latent" if self.latent else self.group.confidence


@dataclass
class Calibration:
    """How often findings were right."""

    told: Counter[Group] = field(default_factory=Counter)
    right: Counter[Group] = field(default_factory=Counter)
    among: Counter[Group] = field(default_factory=Counter)
    latent_told: int = 0
    latent_right: int = 0
    grounds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each ground was decided on, by its confidence."""
    missed: int = 0
    invented: int = 0

    def share(self, counted: Counter[Group], confidence: Confidence) -> float:
        """Compute the share of the findings of a confidence that a counter counts."""
        told = sum(number for group, number in self.told.items() if group.confidence == confidence)
        return sum(number for group, number in counted.items() if group.confidence == confidence) / max(told, 1)


def judge(seed: int, number: int) -> Judged | None:
    """Attribute one history and compare with its truth; None if there is neither a difference nor a finding."""
    history = Draw(seed, number).history()
    finding = attribute(history.case)
    differs = history.outcome.difference is not None
    if finding is None and not differs:
        return None
    topic = "changes" if history.world.changes else "full"
    evidence = history.world.evidence
    if finding is None:
        return Judged(number, Group(topic, evidence, "missed"), False, False, False, "none", "none", _truth(history))
    latent = finding.difference is Difference.LATENT
    causes = history.causes
    if latent:
        causes = frozenset(cause for fault in history.faults for cause in history.named(fault))
    decided = decide(Inquiry(history.case))
    confidence = str(finding.confidence) if latent is not differs else "invented"
    return Judged(
        number,
        Group(topic, evidence, confidence),
        latent,
        finding.cause in causes,
        bool({finding.cause, *finding.alternatives} & causes),
        decided.ground.name if decided is not None else "none",
        finding.cause,
        _truth(history),
    )


def _truth(history: History) -> str:
    return ", ".join(sorted(fault.kind for fault in history.culprits)) or "-"


def measure(histories: int, seed: int = SEED, workers: int = 1) -> tuple[Calibration, list[Judged]]:
    """Judge so many histories: the figures, and what was wrong."""
    result, wrong = Calibration(), []
    for each in _judged(histories, seed, workers):
        result.grounds[each.kind, each.ground] += 1
        if each.group.confidence in ("missed", "invented"):
            result.missed += each.group.confidence == "missed"
            result.invented += each.group.confidence == "invented"
        elif each.latent:
            result.latent_told += 1
            result.latent_right += each.right
        else:
            result.told[each.group] += 1
            result.right[each.group] += each.right
            result.among[each.group] += each.among
        if not each.right:
            wrong.append(each)
    return result, wrong


def _judged(histories: int, seed: int, workers: int) -> Iterator[Judged]:
    one = partial(judge, seed)
    if workers == 1:
        yield from (each for number in range(histories) if (each := one(number)) is not None)
        return
    with Pool(workers) as pool:
        yield from (each for each in pool.imap(one, range(histories), _CHUNK) if each is not None)


def table(result: Calibration) -> str:
    """Render the table of docs/causes.md."""
    lines = [
        "| topic | evidence beside the log | confidence | findings | share | right | right or an alternative |",
        "|---|---|---|---|---|---|---|",
    ]
    order = {name: place for place, name in enumerate(("ledger + versions", "ledger", "versions", "none"))}
    ranks = {str(name): place for place, name in enumerate(Confidence)}
    for group in sorted(result.told, key=lambda g: (g.topic != "full", order[g.evidence], ranks[g.confidence])):
        told = result.told[group]
        of = sum(number for other, number in result.told.items() if other[:2] == group[:2])
        right, among = result.right[group] / told, result.among[group] / told
        lines.append(_line(*group, f"{told:,}", *map(_percent, (told / of, right, among))))
    for confidence in Confidence:
        told = sum(number for group, number in result.told.items() if group.confidence == confidence)
        shares = (
            told / max(result.told.total(), 1),
            *(result.share(c, confidence) for c in (result.right, result.among)),
        )
        lines.append(_line("all", "", str(confidence), f"{told:,}", *map(_percent, shares)))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    text = f"{100 * share:.2f}"
    return f"{99.99 if share < 1 and text == '100.00' else text} %"


def _show(result: Calibration, wrong: Sequence[Judged], most: int) -> None:
    """Print what was wrong, the grounds that were wrong most often first."""
    grounds = Counter((each.kind, each.ground) for each in wrong)
    for (confidence, ground), number in sorted(grounds.items(), key=lambda item: (item[0][0], -item[1])):
        mine = [each for each in wrong if each.ground == ground and each.kind == confidence]
        truths = Counter(each.truth for each in mine).most_common(6)
        of, outside = result.grounds[confidence, ground], sum(not each.among for each in mine)
        print(f"{confidence} {ground}: {number} of {of} wrong, {outside} outside the alternatives")
        print("   truth:", "; ".join(f"{truth} {count}" for truth, count in truths))
        for each in mine[:most]:
            print(f"   {each.number}: {each.group.topic}, {each.group.evidence}: {each.cause}, but {each.truth}")


def _tell(history: History) -> None:
    """Print one history, what is seen of it, and what is said of it."""
    case = history.case
    print(history.world)
    for number, change in enumerate(history.changes):
        print("change", number, change.fields)
    for fault in history.faults:
        mark = "culprit" if fault in history.culprits else "fault"
        print(mark, fault.kind, "at", fault.at, "by", fault.by, fault.fields or "", "traced" if fault.traced else "")
    for event in case.events:
        print("event", event.place, event.version, event.problem or ("deletes" if event.deletes else event.fields))
    print("ledger", [entry.place for entry in case.ledger], case.link.ledger_begins)
    print("parked", [(each.kind, each.origin, each.resolved) for each in case.parked])
    print("places", *case.link.places.items())
    print("source", case.source, "" if case.settled_source == case.source else f"before {case.settled_source}")
    print("copy", case.copy)
    decided = decide(Inquiry(case))
    print("right", *history.causes)
    if decided is not None:
        print("said", decided.ground.name, *decided.notes, sep="\n  ")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print nothing but the table")
    parser.add_argument("--wrong", type=int, default=None, help="print so many of each kind that was wrong")
    parser.add_argument("--history", type=int, default=None, help="print this one alone")
    options = parser.parse_args()
    if options.history is not None:
        _tell(Draw(options.seed, options.history).history())
        return
    result, wrong = measure(options.histories, options.seed, options.workers)
    print(table(result))
    if not options.table:
        print(f"missed {result.missed}, invented {result.invented}")
        print(f"latent: {result.latent_right} of {result.latent_told} right")
    if options.wrong is not None:
        _show(result, wrong, options.wrong)


if __name__ == "__main__":
    main()
