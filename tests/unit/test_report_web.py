"""The web app, asked without a browser."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx2 import ASGITransport, AsyncClient

from reconcile.domain.cause import Cause
from reconcile.domain.plan import Plan
from reconcile.settings.settings import Settings
from reconcile.web.app import web_app
from reconcile.web.pages import PER_PAGE
from reconcile.workspace.workspace import Workspace
from tests.unit.report_runs import LINK, case, contract_file, finding, made_run

SCRIPT = "<script>alert(1)</script>"


def client(folder: Path, **access: Any) -> TestClient:
    """Give the app on a workspace."""
    place = Workspace(folder)
    return TestClient(web_app(place, Settings(workspace=place.root), **access), follow_redirects=False)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A workspace with one run: many findings, one of a hostile name."""
    file = contract_file(tmp_path)
    findings = [finding(f"u{number:03d}") for number in range(120)]
    findings += [finding(SCRIPT, cause=Cause.PHANTOM), finding(None, cause=Cause.UNDETERMINED)]
    made_run(tmp_path / "runs", findings, [case("u000"), case("agrees")], contract=file)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/runs/r1",
        "/runs/r1/findings",
        "/runs/r1/aggregate?id=u000",
        "/runs/r1/aggregate?id=agrees",
        "/runs/r1/report.html",
        "/runs/r1/findings.csv",
        "/history/user-account",
        "/static/style.css",
        "/static/script.js",
        "/static/icon.svg",
    ],
)
def test_pages_are_there_under_a_strict_policy(runs: Path, path: str) -> None:
    """Nothing runs or loads but our own files."""
    answer = client(runs).get(path)
    assert 200 == answer.status_code
    assert answer.headers["content-security-policy"].startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs/r2", 404),
        ("/runs/..%2Fr1", 404),
        ("/runs/r1/plan", 404),
        ("/runs/r1/aggregate?id=nobody", 404),
        ("/runs/r1/aggregate", 400),
        ("/runs/r1/findings?page=0", 400),
        ("/runs/r1/findings?page=x", 400),
        ("/history/nothing", 404),
        ("/static/pages.py", 404),
        ("/docs", 404),
        ("/openapi.json", 404),
    ],
)
def test_what_is_not_there_is_told_on_a_page(runs: Path, path: str, status: int) -> None:
    """With its status, and nothing of the program's inside."""
    answer = client(runs).get(path)
    assert status == answer.status_code
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_reads_only(runs: Path, method: str) -> None:
    """No address takes anything."""
    assert 405 == client(runs).request(method, "/runs/r1").status_code


def test_an_aggregate_named_script_is_text(runs: Path) -> None:
    """In the list, on its page and in the title."""
    for path in ("/runs/r1", "/runs/r1/findings?cause=phantom", f"/runs/r1/aggregate?id={SCRIPT}"):
        text = client(runs).get(path).text
        assert SCRIPT not in text
        assert "&lt;script&gt;alert(1)" in text


def test_what_visitors_type_is_text(runs: Path) -> None:
    """Also where it is shown again."""
    assert SCRIPT not in client(runs).get("/runs/r1/findings", params={"q": f'"{SCRIPT}', "cause": SCRIPT}).text


def test_findings_come_in_pages(runs: Path) -> None:
    """The last one holds the rest."""
    pages = [client(runs).get(f"/runs/r1/findings?page={number}").text for number in (1, 2, 3, 4)]
    assert [PER_PAGE, PER_PAGE, 22, 0] == [text.count('class="row"') for text in pages]
    assert "Page 3 of 3" in pages[2]


def test_findings_are_filtered_and_searched(runs: Path) -> None:
    """On the server, among all of them."""
    app = client(runs)
    assert "1 finding<" in app.get("/runs/r1/findings?cause=phantom").text
    assert "10 findings<" in app.get("/runs/r1/findings?q=U01").text
    assert "0 findings<" in app.get(f"/runs/r1/findings?q=u01&cause=phantom&link={LINK}").text


def test_pages_keep_what_was_asked_for(runs: Path) -> None:
    """The next page is the next of the same."""
    text = client(runs).get("/runs/r1/findings?cause=skipped&q=u").text
    assert 'href="?q=u&amp;cause=skipped&amp;page=2"' in text


def test_sensitive_values_are_hidden(runs: Path) -> None:
    """On an aggregate's page, whose story holds them."""
    text = client(runs).get("/runs/r1/aggregate?id=u000").text
    assert "Zoiee" in text
    assert "example.org" not in text


def test_it_can_be_mounted_in_another_app(runs: Path) -> None:
    """Its links stay below its path."""
    outer = FastAPI()
    place = Workspace(runs)
    outer.mount("/reconcile", web_app(place, Settings(workspace=place.root)))
    text = TestClient(outer).get("/reconcile/runs/r1").text
    assert 'href="/reconcile/static/style.css"' in text
    assert 200 == TestClient(outer).get("/reconcile/runs/r1/findings").status_code
    assert 'href="/runs' not in text


def test_other_names_are_not_served(runs: Path) -> None:
    """A page elsewhere, whose name leads to this machine, gets nothing."""
    app = client(runs, hosts=("localhost", "127.0.0.1"))
    assert 421 == app.get("/", headers={"host": "evil.example"}).status_code
    assert 200 == app.get("/", headers={"host": "127.0.0.1:8420"}).status_code


def test_without_the_token_nothing_is_shown(runs: Path) -> None:
    """But the form that asks for it, and its style."""
    app = client(runs, token="s3cret")
    answer = app.get("/runs/r1")
    assert 401 == answer.status_code
    assert "u000" not in answer.text
    assert 200 == app.get("/static/style.css").status_code


@pytest.mark.parametrize("given", ["", "wrong", "s3cre", "s3cret ", "é"])
def test_a_wrong_token_is_refused(runs: Path, given: str) -> None:
    """In the form and in a header."""
    app = client(runs, token="s3cret")
    answer = app.post("/token", data={"token": given})
    assert (401, None) == (answer.status_code, answer.headers.get("set-cookie"))
    assert 401 == app.get("/", headers={b"authorization": f"Bearer x{given}".encode()}).status_code


def test_the_token_opens_by_a_cookie_that_is_not_the_token(runs: Path) -> None:
    """Scripts and other sites cannot read or send it."""
    app = client(runs, token="s3cret")
    answer = app.post("/token", data={"token": "s3cret"})
    assert (303, "/") == (answer.status_code, answer.headers["location"])
    cookie = answer.headers["set-cookie"]
    assert "s3cret" not in cookie
    assert {"httponly", "samesite=strict"} <= {each.strip().lower() for each in cookie.split(";")}
    assert 200 == app.get("/runs/r1").status_code


def test_the_cookie_ages(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a day later the token is asked for again, whatever the browser keeps."""
    app = client(runs, token="s3cret")
    cookie = app.post("/token", data={"token": "s3cret"}).headers["set-cookie"]
    assert "Max-Age=43200" in cookie
    name, value = cookie.split(";")[0].split("=")
    now = time.time()
    for later, status in ((43100, 200), (43300, 401)):
        monkeypatch.setattr("reconcile.web.gate.time.time", lambda later=later: now + later)
        app.cookies.set(name, value)
        assert status == app.get("/runs/r1").status_code


@pytest.mark.parametrize(("headers", "secure"), [({}, False), ({"x-forwarded-proto": "https"}, True)])
def test_the_cookie_is_secure_where_tls_is_in_front(runs: Path, headers: dict[str, str], secure: bool) -> None:
    """A browser then sends it by TLS alone."""
    answer = client(runs, token="s3cret").post("/token", data={"token": "s3cret"}, headers=headers)
    assert secure == ("secure" in answer.headers["set-cookie"].lower().split("; "))


def test_a_cookie_is_worth_nothing_to_another_process(runs: Path) -> None:
    """A browser sends it to every port of the machine."""
    cookie = client(runs, token="s3cret").post("/token", data={"token": "s3cret"}).headers["set-cookie"]
    name, value = cookie.split(";")[0].split("=")
    other = client(runs, token="s3cret")
    assert 401 == other.get("/", headers={"cookie": f"{name}={value}"}).status_code


def test_an_address_with_a_ticket_opens_once(runs: Path) -> None:
    """The browser gets a cookie, and an address without it; nobody else gets in by it."""
    app = client(runs, token="s3cret", ticket="once")
    answer = app.get("/?token=once")
    assert (303, "/") == (answer.status_code, answer.headers["location"])
    assert 200 == app.get("/runs/r1").status_code
    app.cookies.clear()
    assert 401 == app.get("/?token=once").status_code
    assert 401 == app.get("/?token=s3cret").status_code, "the token itself stands in no address"


def test_who_guesses_has_to_wait(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the form, a header or an address; also with the right token; who is in stays in."""
    app = client(runs, token="s3cret")
    app.post("/token", data={"token": "s3cret"})
    inside = dict(app.cookies)
    app.cookies.clear()
    for _ in range(4):
        assert 401 == app.post("/token", data={"token": "guess"}).status_code
        assert 401 == app.get("/", headers={"authorization": "Bearer guess"}).status_code
    for _ in range(2):
        assert 401 == app.get("/?token=guess").status_code
    answer = app.post("/token", data={"token": "s3cret"})
    assert (429, "60") == (answer.status_code, answer.headers["retry-after"])
    assert 429 == app.get("/", headers={"authorization": "Bearer s3cret"}).status_code
    app.cookies.update(inside)
    assert 200 == app.get("/").status_code
    app.cookies.clear()
    now = time.time()
    monkeypatch.setattr("reconcile.web.gate.time.time", lambda: now + 61)
    assert 303 == app.post("/token", data={"token": "s3cret"}).status_code


def test_who_guesses_has_to_wait_also_in_requests_that_go_on(runs: Path) -> None:
    """Many that begin at once are no way around it: each counts when its token is there."""

    async def answered() -> int:
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            begun.set()
            await goes_on.wait()
            yield b"token=s3cret"

        transport = ASGITransport(client(runs, token="s3cret").app)
        async with AsyncClient(transport=transport, base_url="http://testserver") as browser:
            late = asyncio.create_task(browser.post("/token", content=body()))
            await begun.wait()
            for _ in range(10):
                await browser.post("/token", data={"token": "guess"})
            goes_on.set()
            return (await late).status_code

    assert 429 == asyncio.run(answered())


def test_the_token_opens_by_a_header(runs: Path) -> None:
    """For programs."""
    assert 200 == client(runs, token="s3cret").get("/", headers={"authorization": "Bearer s3cret"}).status_code


def test_a_report_follows_what_is_added_to_the_run(runs: Path) -> None:
    """What is kept at hand is not shown once the run has changed."""
    app = client(runs)
    assert "No plan was made." in app.get("/runs/r1").text
    run = Workspace(runs).run("r1")
    refused = ("the run is incomplete",)
    plan = Plan.sealed(
        run_id="r1", contract="user-account", contract_digest="0" * 64, made_of={}, links=(), refused=refused
    )
    run.publish(plan, run.manifest("summary").inputs)
    assert "Refused: the run is incomplete" in app.get("/runs/r1").text
