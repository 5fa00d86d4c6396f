"""The report as one HTML file that opens from disk and asks no network for anything; the web app uses its templates."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from reconcile.domain.cause import Cause
from reconcile.report import charts
from reconcile.report.lanes import lanes_picture
from reconcile.report.model import Report, Trend

STYLE, SCRIPT, ICON = "style.css", "script.js", "icon.svg"


@cache
def environment() -> Environment:
    """Load the templates; all values in them are escaped."""
    made = Environment(
        loader=PackageLoader("reconcile.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": "{:,}".format,
        "instant": _instant,
        "words": _words,
        "hop": charts.hop_name,
        "meaning": lambda cause: Cause(cause).meaning,
        "query": _query,
        "breakable": _breakable,
    }
    made.globals |= {"charts": charts, "lanes_picture": lanes_picture}
    return made


def asset(name: str) -> str:
    """Read the text of the style sheet, the script or the icon."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]


def report_html(report: Report, csv: str | None = None) -> Iterator[str]:
    """Render the report piece by piece; `csv` is the address of the file with all findings, seen from this one."""
    page = _one_file(f"{report.aggregate}: {report.verdict}")
    yield from environment().get_template("report.html").generate(page=page, report=report, csv=csv)


def history_html(aggregate: str, trends: Sequence[Trend], notes: Sequence[str] = ()) -> Iterator[str]:
    """Render drift over time as one file."""
    page = _one_file(f"{aggregate}: drift over time")
    template = environment().get_template("history.html")
    yield from template.generate(page=page, aggregate=aggregate, trends=trends, notes=notes)


def _one_file(title: str) -> Mapping[str, Any]:
    """Build the head of a page that is a file of its own: all it needs is in it, and nothing else may run or load."""
    style, script, icon = asset(STYLE), asset(SCRIPT), asset(ICON)
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; base-uri 'none'"
    return {
        "title": title,
        "web": False,
        "base": "",
        "policy": policy,
        "style": Markup(style),  # noqa: S704 - our own file
        "script": Markup(script),  # noqa: S704 - our own file
        "icon": "data:image/svg+xml;base64," + base64.b64encode(icon.encode()).decode(),
    }


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _instant(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _breakable(name: str) -> Markup:
    """Let a name break its line between its words."""
    return escape(name).replace("_", Markup("_<wbr>"))


def _query(values: Mapping[str, Any]) -> str:
    return urlencode({name: value for name, value in values.items() if value not in (None, "")})
