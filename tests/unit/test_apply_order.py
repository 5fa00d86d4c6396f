"""Links are repaired one after the other: one that builds on another waits until that has passed its corrections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from reconcile.contract.model import Contract
from reconcile.control.corrections import CorrectionRecord, CorrectionState
from reconcile.control.leases import HeldLease
from reconcile.control.store import ControlStore
from reconcile.domain.plan import LinkPlan, Plan
from reconcile.pipeline import apply as stage_apply
from reconcile.pipeline.apply import StaleGroupError
from reconcile.pipeline.job import Job
from tests.unit.test_plan import CONTENT, LOGIN
from tests.unit.test_plan_drafting import contract
from tests.unit.test_plan_guard import emitted

SEARCH = LOGIN.replaced(
    link="user-account/search", consumer="search", group="search-service", depends_on=("login-service",)
)


class Control:
    """A control store in which login's correction stands in partition 4."""

    def __init__(self) -> None:
        self.leases = self.corrections = self

    def hold(self, *_: Any, **__: Any) -> Any:
        return nullcontext()

    def of_run(self, link: str, _run: str) -> list[CorrectionRecord]:
        return [replace(emitted("c-1", CorrectionState.EMITTED, 7), partition=4)] if link == LOGIN.link else []


def order(monkeypatch: pytest.MonkeyPatch, *, passed: bool) -> list[str]:
    """Apply both links; give what was done, one after the other."""
    done: list[str] = []

    def awaited(_: Callable[[], Mapping[int, int | None]], places: Mapping[int, int], _timeout: timedelta) -> bool:
        done.append(f"waited for {dict(places)}")
        return passed

    class Applying(stage_apply._Applying):
        def _emit(self, link: LinkPlan, _held: HeldLease) -> Mapping[str, str]:
            done.append(f"emitted {link.consumer}")
            return {}

    cluster = type("Cluster", (), {"committed": dict})()
    monkeypatch.setattr(stage_apply, "awaited", awaited)
    monkeypatch.setattr(stage_apply, "cluster_client", lambda _: nullcontext(cluster))
    of: Contract = contract()
    login = of.consumers[0]
    of = of.model_copy(update={"consumers": (login.model_copy(update={"name": "search"}), login)})
    job = type("Job", (), {"contract": of, "say": lambda *_: None, "run": type("Run", (), {"id": "run-1"})})()
    plan = Plan.sealed(**{**CONTENT, "links": (LOGIN, SEARCH)})
    applying = Applying(cast("Job", job), plan, cast("ControlStore", Control()), cast("HeldLease", None))
    try:
        for link in plan.links:
            applying.link(link)
    except StaleGroupError:
        done.append("stale")
    return done


def test_a_link_waits_for_those_that_it_builds_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until their group has passed the last of their corrections."""
    assert ["emitted login", "waited for {4: 7}", "emitted search"] == order(monkeypatch, passed=True)


def test_a_link_whose_base_is_stale_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be built on what is wrong."""
    assert ["emitted login", "waited for {4: 7}", "stale"] == order(monkeypatch, passed=False)
