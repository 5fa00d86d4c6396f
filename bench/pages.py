"""What is made of the committed results: a page of each, and the tables in README.md and docs/scale.md.

python -m bench.pages        writes all of it anew
"""

from __future__ import annotations

import re
from pathlib import Path

from bench import scale
from bench.nights import result as results
from reconcile.files import committed


def pages() -> dict[Path, str]:
    """Render the page of each result, and the pages that show the largest one."""
    committed_ones = results.committed_results()
    shown = {results.path_of(each, "md"): results.page(each) for each in committed_ones}
    for largest in committed_ones[-1:]:
        path = results.path_of(largest, "md").relative_to(committed("README.md").parent)
        link = f"All of it, with versions and goals: [{path}]({path})."
        readme = f"{results.told(largest)}\n\n{results.summary(largest)}\n\n{link}"
        for page, table in ((committed("README.md"), readme), (committed("docs", "scale.md"), scale.page(largest))):
            shown[page] = _with_table(page.read_text("utf-8"), table)
    return shown


def write_pages() -> None:
    """Write all of them."""
    for path, text in pages().items():
        path.write_text(text, "utf-8")


def _with_table(page: str, table: str) -> str:
    return re.sub(
        r"(<!-- bench -->\n).*?(<!-- /bench -->)", lambda found: f"{found[1]}{table}\n{found[2]}", page, flags=re.S
    )


if __name__ == "__main__":
    write_pages()
