"""A run as Prometheus text, for a node exporter's textfile folder or a push gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reconcile.report.model import Level, LinkResult, Report, Selection

_Sample = tuple[dict[str, str], float]


@dataclass(frozen=True)
class Gauge:
    """One figure of a run, of each link or cause or whatever its labels are."""

    name: str
    about: str
    samples: tuple[tuple[dict[str, str], float], ...]


def prometheus(report: Report) -> str:
    """Render the figures of a run as gauges."""
    lines: list[str] = []
    for each in gauges(report):
        lines += [f"# HELP {each.name} {each.about}", f"# TYPE {each.name} gauge"]
        lines += [_line(each.name, labels, value) for labels, value in each.samples]
    return "\n".join(lines) + "\n"


def gauges(report: Report) -> tuple[Gauge, ...]:
    """Choose the figures of a run that are followed over time; those without a sample are left out."""
    read = [each for each in report.links if each.level != Level.UNKNOWN]
    found: list[Gauge] = []

    def gauge(name: str, about: str, samples: Sequence[_Sample]) -> None:
        if samples:
            found.append(Gauge(f"reconcile_{name}", about, tuple(samples)))

    # Series of their own: what was compared in part is nothing that the figures of whole runs go on with.
    part = _part(report.selection)
    contract = {"contract": report.aggregate, **part}

    def of(link: LinkResult) -> dict[str, str]:
        return {"link": link.link, **(part if part.get("part") in ("ids", "changed") else {})}

    gauge("run_exit_code", _EXIT_CODE, [(contract, report.exit_code)])
    gauge("run_complete", "Whether all that had to be read was read.", [(contract, int(report.complete))])
    gauge("run_timestamp_seconds", "When the copies were compared.", [(contract, report.closed_at.timestamp())])
    for name, about in _FIGURES.items():
        gauge(name, about, [(of(each), getattr(each, name)) for each in read])
    escaped = [(of(each), each.escaped) for each in read if each.escaped is not None]
    gauge("escaped", "Aggregates that differ and that no changed-only run since the last full one could see.", escaped)
    gauge("settled", "Whether the group had caught up.", [(of(each), int(each.settled)) for each in read])
    gauge("readable", "Whether the link could be read.", [(of(each), int(each in read)) for each in report.links])
    causes = [({**of(link), "cause": each.name}, each.number) for link in read for each in link.by_cause]
    gauge("findings", "Findings by cause.", causes)
    hops: Counter[str] = Counter()
    for flow in report.flows:
        hops[flow.hop or "unknown"] += flow.number
    broken = [({**contract, "hop": hop}, number) for hop, number in hops.items()]
    gauge("hop_findings", "Findings of all links by the hop at which they broke.", broken)
    oldest = [(of(each), each.oldest.timestamp()) for each in read if each.oldest is not None]
    gauge("oldest_drift_timestamp_seconds", "Since when the oldest drift stands.", oldest)
    states = {each.link: each.states for each in (report.repair.links if report.repair is not None else ())}
    ended = [({**of(link), "outcome": each.name}, each.number) for link in read for each in states.get(link.link, ())]
    gauge("corrections", "Corrections by what became of them.", ended)
    differing = [(of(each), each.still_different) for each in read if each.still_different is not None]
    gauge("left", "Aggregates that had drifted and still differ after the repair.", differing)
    moved = Counter(each.link for each in report.distributions if each.drifted)
    told = dict.fromkeys(each.link for each in report.distributions)
    kept = [(of(each), moved[each.link]) for each in read if each.link in told]
    gauge("distributions_moved", "Measures of distributions that moved from what is usual.", kept)
    if (quality := report.quality) is not None:
        gauge("expectations", "Expectations that were checked.", [(contract, quality.total)])
        gauge("expectations_failed", "Those that were not met.", [(contract, len(quality.failed))])
        gauge("expectations_stopping", "Those that stop a repair.", [(contract, len(quality.stopping))])
    return tuple(found)


_EXIT_CODE = "0 agrees, 1 drift beyond tolerance or expectations that stop a repair, 2 could not tell."
_FIGURES = {
    "compared": "Aggregates that were compared.",
    "agreeing": "Aggregates that agree.",
    "drifted": "Aggregates that differ.",
    "latent": "Aggregates that agree and will differ.",
    "tolerated": "Aggregates whose differences are tolerated.",
    "in_flight": "Aggregates whose events were on their way.",
}


def _part(selection: Selection | None) -> dict[str, str]:
    if selection is None:
        return {}
    if selection.ids is None:
        return {"part": "consumers"}
    return {"part": "ids" if selection.since is None else "changed"}


def _line(name: str, labels: dict[str, str], value: float) -> str:
    text = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{text}}} {value}" if isinstance(value, int) else f"{name}{{{text}}} {value:.3f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
