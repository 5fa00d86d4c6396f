"""The report and the web app in a real browser: at all widths, by keyboard, and under axe."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from reconcile.contract.model import load_contract
from reconcile.control.store import open_control
from reconcile.domain.cause import Cause
from reconcile.domain.distribution import Distribution, FieldDistribution, Side
from reconcile.domain.finding import Difference, Hop
from reconcile.domain.plan import Item, LinkPlan, Plan
from reconcile.domain.plan_rules import Action
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Request, Stopped
from reconcile.settings.settings import Settings
from reconcile.web.app import web_app
from reconcile.workspace.workspace import Workspace
from tests.browsers import chromium
from tests.ports import ports_of
from tests.unit.handoffs import expected
from tests.unit.report_runs import (
    AT,
    LINK,
    case,
    checked,
    contract_file,
    finding,
    kept_history,
    logged,
    made_run,
    put_aside,
)

PORT = ports_of("web").kafka
SCRIPT = "<script>alert(1)</script>"
WIDTHS = (1280, 390)
ALL_WIDTHS = (390, 800, 1280, 1920)
PATHS = (
    "/",
    "/runs/now",
    "/runs/now/findings",
    "/runs/now/findings?cause=skipped&page=2",
    f"/runs/now/aggregate?id={quote(SCRIPT)}",
    "/runs/now/plan",
    "/runs/now/trace?id=u007",
    "/runs/now/trace?correlation=c-u007",
    "/history/user-account",
)
SCHEMES = ("light", "dark")
SERIOUS = ("serious", "critical")


@dataclass
class Watched:
    """A page, and what it did besides showing itself."""

    page: Page
    allowed: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def open(self, address: str) -> Page:
        """Open an address, watched."""
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.goto(address)
        return self.page

    def _asked(self, url: str) -> None:
        if not url.startswith((self.allowed, "data:")):
            self.strangers.append(url)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with some runs of one contract, the last one with every kind of finding."""
    folder = tmp_path_factory.mktemp("browser")
    file = contract_file(folder)
    for number in range(1, 6):
        at = AT - timedelta(days=number)
        made_run(folder / "runs", [finding(f"u{each}") for each in range(number)], run_id=f"r{number}", at=at)
    hops = (Hop.SOURCE_TO_LOG, Hop.LOG_TO_CONSUMER, Hop.CONSUMER, None)
    causes = [each for each in Cause if each != Cause.IN_FLIGHT]
    findings = [finding(f"{number}-{cause}", cause=cause, hop=hops[number % 4]) for number, cause in enumerate(causes)]
    findings += [finding(SCRIPT), finding(None), finding("latent", difference=Difference.LATENT)]
    findings += [finding(f"u{number:03d}") for number in range(60)]
    cases = [case(each.aggregate_id) for each in findings if each.aggregate_id is not None]
    fields = (
        FieldDistribution("phone", 0.1, tuple(map(float, range(49)))),
        FieldDistribution("email", 0.0, None, {"a": 0.7, "b": 0.3}),
    )
    sides: dict[Side, Distribution] = {"source": Distribution(1000, 1000, fields)}
    long = ("0193e6c4-58a1-7d3e-9f00-5a5a5a5a5a5a", "the-service-of-logins.UnreadableErrorOfAnEventThatIsTooLong")
    history = kept_history(folder / "runs", [logged("u007", offset, event_id=long[0]) for offset in range(15, 20)])
    parked = [put_aside("u007", topic="user-account.login-service.retry-after-a-minute", error=long[1])]
    named = partial(made_run, folder / "runs", findings, cases, run_id="now", contract=file)
    place, run = named(history=history, parked=parked, distributions=sides)
    reason = "its event was dead-lettered; redriven later, that overwrites this unless the consumer compares versions"
    items = tuple(
        Item(
            link=each.link, aggregate_id=each.aggregate_id, action=Action.RESTATE, cause=each.cause, reason=reason,
            topic="user-account.login-service.repair", partitions=(4, 7), basis_version=3, basis="x",
            correction_id=f"c{number}",
        )
        for number, each in enumerate(findings)
    )  # fmt: skip
    link = LinkPlan(
        link=LINK, consumer="login", group="login-service", topic="user-account", topic_id="t", partitions=12,
        partitioner=("crc32",), since={0: 1}, readers=(), approval=True, items=items,
    )  # fmt: skip
    plan = Plan.sealed(run_id="now", contract="user-account", contract_digest="0" * 64, made_of={}, links=(link,))
    run.publish(plan, run.manifest("summary").inputs)
    stopped = Stopped(stage="gather", how="unreachable", reason=f"no broker at {long[1] * 2}: see that it is up")
    other = place.run("stopped")
    other.publish(Request(contract=str(file), aggregate="user-account"), other.inputs("0" * 64))
    other.publish(stopped, other.inputs("0" * 64), complete=False)
    with open_control(Settings(workspace=place.root)) as control:
        for run_id in ("r2", "r1", run.id):
            control.runs.begin(run_id, "user-account", "d")
            control.distributions.record(run_id, LINK, sides)
    checked(run, expected(), expected(exception=SCRIPT, rows=None), expected("log", link=None, severity="warning"))
    pipeline.report(run, place, Settings(workspace=place.root), load_contract(file))
    return folder / "runs"


@pytest.fixture(scope="module")
def report(runs: Path) -> str:
    """The address of the one-file report."""
    return (runs / "now" / "report.html").as_uri()


@pytest.fixture(scope="module")
def web(runs: Path) -> Iterator[str]:
    """The address of the web app."""
    place = Workspace(runs)
    app = web_app(place, Settings(workspace=place.root), hosts=("127.0.0.1",))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=PORT, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        with socket.socket() as tried:
            tried.settimeout(0.2)
            tried.connect_ex(("127.0.0.1", PORT))
    yield f"http://127.0.0.1:{PORT}"
    server.should_exit = True
    thread.join(timeout=30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's chromium."""
    with chromium() as started:
        yield started


@pytest.fixture(
    params=[(width, scheme) for width in WIDTHS for scheme in SCHEMES], ids=lambda each: f"{each[0]}-{each[1]}"
)
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of one width and colour scheme."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield context.new_page()
    context.close()


@pytest.fixture
def wide(browser: Browser) -> Iterator[Page]:
    """A page of a desk."""
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": 900})
    yield context.new_page()
    context.close()


def faults(page: Page) -> list[tuple[str, str]]:
    """Give the serious faults that axe finds, with where it finds them."""
    found = Axe().run(page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in SERIOUS]


def fits(page: Page) -> bool:
    """Tell whether the page needs no scrolling to the side."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_the_report_is_clean(page: Page, report: str) -> None:
    """No error, no request but the file's own, no scrolling to the side, no serious fault."""
    watched = Watched(page, report)
    watched.open(report)
    assert ([], []) == (watched.errors, watched.strangers)
    assert fits(page)
    assert [] == faults(page)


def test_the_report_is_clean_with_everything_open(page: Page, report: str) -> None:
    """What is folded away counts too."""
    Watched(page, report).open(report)
    page.evaluate(
        "document.querySelectorAll('.finding, .numbers').forEach((each, n) => { if (n < 30) each.open = true })"
    )
    assert fits(page)
    assert [] == faults(page)


@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_no_page_is_cut_off_or_scrolls_sideways(browser: Browser, report: str, web: str, width: int) -> None:
    """From a telephone to a wide screen; only pictures of stories may be wider than their frames."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    for address in (report, *(web + each for each in PATHS)):
        page.goto(address)
        assert fits(page), address
        assert [] == page.evaluate(
            "[...document.querySelectorAll('main *')].filter(each => each.getBoundingClientRect().right >"
            " innerWidth + 1 && !each.closest('.newest, svg')).map(each => each.outerHTML.slice(0, 100))"
        ), address
    context.close()


@pytest.mark.parametrize("path", PATHS)
def test_pages_of_the_web_app_are_clean(page: Page, web: str, path: str) -> None:
    """The same of each page; its policy, which would show in the console, is kept."""
    watched = Watched(page, web)
    watched.open(web + path)
    assert ([], []) == (watched.errors, watched.strangers)
    assert fits(page)
    assert [] == faults(page)


def test_an_aggregate_is_found_and_opened_by_keyboard(wide: Page, report: str) -> None:
    """Filter by typing, step to what is left, open it."""
    Watched(wide, report).open(report)
    wide.get_by_label("Search").focus()
    wide.keyboard.type("U007")
    assert "1 of 78" == wide.locator("#matches").inner_text()
    for _ in range(3):
        wide.keyboard.press("Tab")
    wide.keyboard.press("Enter")
    opened = wide.locator("details.finding[open]")
    assert 1 == opened.count()
    assert "u007" in opened.locator("summary.row").inner_text()
    assert opened.locator("svg").first.is_visible()


def test_filters_leave_what_fits(wide: Page, report: str) -> None:
    """By cause and difference together."""
    Watched(wide, report).open(report)
    wide.locator("select[name=cause]").select_option("skipped")
    wide.locator("select[name=difference]").select_option("latent")
    assert 1 == wide.locator("details.finding:visible").count()


def test_the_report_needs_no_script(browser: Browser, report: str) -> None:
    """Findings are listed, and open, where scripts are off."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    page.locator("details.finding summary").first.press("Enter")
    assert page.locator("details.finding .sentence").first.is_visible()
    assert not page.locator("#filter").is_visible()
    context.close()


def test_the_first_stop_skips_to_the_content(wide: Page, report: str) -> None:
    """Who cannot see does not hear the navigation on each page."""
    Watched(wide, report).open(report)
    wide.keyboard.press("Tab")
    assert "Skip to the content" == wide.evaluate("document.activeElement.textContent")


def test_it_prints(wide: Page, report: str) -> None:
    """On white, without controls."""
    Watched(wide, report).open(report)
    wide.emulate_media(media="print", color_scheme="dark")
    assert "rgb(255, 255, 255)" == wide.evaluate("getComputedStyle(document.body).backgroundColor")
    assert not wide.locator("#filter").is_visible()
    assert wide.locator("rect.bar").first.is_visible()
    assert "rgb(47, 111, 196)" == wide.locator("rect.bar").first.evaluate("each => getComputedStyle(each).fill")
    assert wide.pdf()[:4] == b"%PDF"


def test_a_narrow_picture_begins_with_what_is_now(page: Page, report: str) -> None:
    """The newest of a story is what one looks for; older columns are a scroll away."""
    Watched(page, report).open(report)
    now = page.locator(".affected .newest text", has_text="now").first
    place, frame = now.bounding_box(), page.locator(".affected .newest").first.bounding_box()
    assert place is not None
    assert frame is not None
    assert frame["x"] <= place["x"]
    assert place["x"] + place["width"] <= frame["x"] + frame["width"]


def test_in_the_web_app_an_aggregate_is_found_by_keyboard(wide: Page, web: str) -> None:
    """Search, send, step to the first finding, follow it to its story."""
    Watched(wide, web).open(f"{web}/runs/now/findings")
    wide.get_by_label("Search ids").focus()
    wide.keyboard.type("u042")
    wide.keyboard.press("Enter")
    wide.wait_for_url("**/findings?q=u042**")
    row = wide.locator("a.row")
    assert 1 == row.count()
    row.focus()
    wide.keyboard.press("Enter")
    wide.wait_for_url("**/aggregate?**")
    assert "u042" == wide.locator("h1").inner_text()
    assert wide.locator("svg").first.is_visible()
