"""Which of the derivations gives a copy's values: by the share of the sampled ids for which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from reconcile.domain.canonical import Kind
from reconcile.draft import derivations
from reconcile.draft.derivations import COMPARED, NUMBERS, UNFIT, Derivation, comparable
from reconcile.draft.samples import Row, is_alike

ABSENT = object()
"""In place of a value that no sampled record tells: it is not compared."""

_ENOUGH, _ENOUGH_IF_ALIKE = 0.8, 0.5
_ENOUGH_OF_TIMES = 0.98
"""Times of two services are often nearly the same event's, and never meant to agree."""
_FEWEST_VALUES = 3
"""So many values have to agree where the names do not: two columns of yes and no agree by chance."""
_NEARLY = 0.02
"""What simpler derivations may lack: drift, and not another derivation."""
_PROBES, _FEWEST_OF_PROBES = 24, 3
_LOOKED_INTO = 8
"""So many rows are looked into for texts that are made of several."""


@dataclass(frozen=True)
class Match:
    """A derivation, and for how many of the sampled ids it gives the value."""

    derivation: Derivation
    agreeing: int
    compared: int
    values: int
    """How many different values agree; NULL does not count."""
    alike: bool
    """Whether the names say the same."""
    enough: float = _ENOUGH
    """The share from which on it convinces where they do not."""

    @property
    def share(self) -> float:
        """The part of the sampled ids for which it gives the value."""
        return self.agreeing / self.compared if self.compared else 0.0

    @property
    def convinces(self) -> bool:
        """Whether it is worth to be proposed."""
        if self.alike:
            return self.share >= _ENOUGH_IF_ALIKE
        return self.share >= self.enough and self.values >= _FEWEST_VALUES

    @property
    def evidence(self) -> str:
        """Say how many ids speak for it; no value of the data is shown."""
        return f"agrees for {self.agreeing} of {self.compared} sampled ids"


@dataclass
class Inputs:
    """What values may be derived from: rows of columns or of paths, one for each id, each with the kind of its values.

    Texts have to be read by each kind that they are compared as; each is read once.
    """

    kinds: Mapping[str, Kind | None]
    """The kind of each column; None for what is only text, as the paths of events are."""
    rows: Sequence[Row]
    connectors: bool = False
    """Whether values may be written as connectors do."""
    _read: dict[tuple[Derivation, Kind], list[object]] = field(default_factory=dict)

    def values(self, derivation: Derivation, kind: Kind) -> list[object]:
        """Compute the values of a derivation, as they are compared under a kind."""
        found = self._read.get((derivation, kind))
        if found is None:
            found = self._read[derivation, kind] = [self._value(derivation, row, kind) for row in self.rows]
        return found

    def _value(self, derivation: Derivation, row: Row, kind: Kind) -> object:
        if any(each not in row for each in derivation.inputs):
            return ABSENT
        try:
            text = derivation.text(row)
        except (ValueError, ArithmeticError):
            return UNFIT
        own = self.kinds[derivation.inputs[0]]
        if own is Kind.BOOLEAN and kind in NUMBERS and derivation.form == "same":
            text = {"true": "1", "false": "0"}.get(text or "", text)
        return comparable(text, kind)


def best_match(
    wanted: Sequence[str | None],
    kind: Kind,
    inputs: Inputs,
    names: Iterable[str],
    like: Derivation | None = None,
    scale: int = 0,
) -> Match | None:
    """Choose the derivation that gives these values, one for each row; None where none gives any of them.

    Of derivations that give nearly the same number, it is the one whose names are alike, then the one of the form of
    `like`, then the simplest.
    """
    known = tuple(names)
    values = [comparable(each, kind) for each in wanted]
    found = [
        match
        for name in inputs.kinds
        for derivation in _possible(name, kind, inputs, scale)
        if (match := _match(derivation, values, kind, inputs, known)) is not None
    ]
    best = max((each.share for each in found if each.convinces), default=0.0)
    if kind is Kind.TEXT and best < 1 - _NEARLY:
        found += filter(None, (_match(each, values, kind, inputs, known) for each in _joined(wanted, inputs)))
    return _choose(found, like)


def _choose(found: Sequence[Match], like: Derivation | None) -> Match | None:
    convincing = [each for each in found if each.convinces] or found
    if not convincing:
        return None
    best = max(each.share for each in convincing)
    near = [each for each in convincing if each.share >= best - _NEARLY]
    form = None if like is None else like.form

    def rank(match: Match) -> tuple[bool, ...]:
        return not match.alike, match.derivation.form != form, match.derivation.form != "same"

    return min(near, key=rank)


def _match(
    derivation: Derivation, wanted: Sequence[object], kind: Kind, inputs: Inputs, names: Sequence[str]
) -> Match | None:
    derived = inputs.values(derivation, kind)
    if _is_hopeless(wanted, derived):
        return None
    pairs = [
        (one, other) for one, other in zip(wanted, derived, strict=True) if other is not ABSENT and one is not ABSENT
    ]
    agreeing = [one for one, other in pairs if one == other and one is not UNFIT]
    if not agreeing:
        return None
    values = len({each for each in agreeing if each is not None})
    alike = any(is_alike(_plain(each), name) for each in derivation.inputs for name in names)
    enough = _ENOUGH_OF_TIMES if kind in (Kind.TIMESTAMP, Kind.DATE) else _ENOUGH
    return Match(derivation, len(agreeing), len(pairs), values, alike, enough)


def _is_hopeless(wanted: Sequence[object], derived: Sequence[object]) -> bool:
    """Decide by a few rows spread over all whether half of all rows cannot agree, but by a chance of 1 to 50,000."""
    step = len(wanted) // _PROBES
    if not step:
        return False
    probes = [
        (one, other)
        for one, other in zip(wanted[::step], derived[::step], strict=True)
        if other is not ABSENT and one is not ABSENT
    ]
    return len(probes) >= _PROBES and sum(one == other for one, other in probes) < _FEWEST_OF_PROBES


def _plain(name: str) -> str:
    """Choose what a path is called: its last step."""
    return name.removeprefix("header:").removeprefix("$").rstrip("']").replace("['", ".").rpartition(".")[2]


def _possible(name: str, kind: Kind, inputs: Inputs, scale: int) -> Iterable[Derivation]:
    own = inputs.kinds[name]
    if kind not in COMPARED:
        return [Derivation("same", (name,))] if own is kind else []
    if own is not None and own not in COMPARED:
        return []
    found = list(derivations.simple(name, kind))
    if own is not None and own not in NUMBERS:
        found = [each for each in found if each.form not in ("times", "over")]
    if inputs.connectors:
        found += derivations.encoded(name, kind, scale)
    return found


def _joined(wanted: Sequence[str | None], inputs: Inputs) -> list[Derivation]:
    texts = [name for name, kind in inputs.kinds.items() if kind in (None, Kind.TEXT, Kind.INTEGER)]
    different: Callable[[tuple[str | None, Row]], bool] = lambda each: bool(each[0])  # noqa: E731
    pairs = filter(different, zip(wanted, inputs.rows, strict=True))
    found = (each for value, row in islice(pairs, _LOOKED_INTO) for each in derivations.joined(value, row, texts))
    return list(dict.fromkeys(islice(found, 200)))
