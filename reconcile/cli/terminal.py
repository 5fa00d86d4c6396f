"""What a terminal shows: nothing that drives it, and nothing cut."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from reconcile.cli.output import visible

_ANY = 100_000
_READABLE = 24
"""A column that may break its lines is at least so wide, if it has so much to say."""


class VisibleConsole(Console):
    """A console that takes text as it is, each line and each cell, and shows what would drive a terminal."""

    def __init__(self, width: int | None) -> None:
        super().__init__(width=width, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        """Give a line or a cell as it may be shown."""
        return super().render_str(visible(text, lines=False), **how)


class WholeTable(Table):
    """A table that shortens nothing: where its columns do not fit side by side, it lists them row by row."""

    def __init__(self) -> None:
        super().__init__(box=SIMPLE_HEAD, pad_edge=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give it as it fits."""
        for column in self.columns:
            widest = max(cell_len(visible(str(cell), lines=False)) for cell in (column.header, *column.cells))
            column.min_width = widest if column.no_wrap else min(widest, _READABLE)
        fits = Measurement.get(console, options.update_width(_ANY), self).minimum <= options.max_width
        yield from super().__rich_console__(console, options) if fits else [self._listed()]

    def _listed(self) -> Table:
        listed = Table.grid(padding=(0, 2, 0, 0))
        listed.add_column(no_wrap=True)
        listed.add_column(overflow="fold")
        for row in zip(*(column.cells for column in self.columns), strict=True):
            for column, cell in zip(self.columns, row, strict=True):
                if cell != "":
                    listed.add_row(column.header, cell)
            listed.add_row("", "")
        return listed
