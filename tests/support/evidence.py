"""Which tests prove the tables of the pages on models: ``PYTHONPATH=tests python -m support.evidence``.

``evidence.toml`` has the tests of each row; ``tests/gen/frontends/test_evidence.py`` compares it with the
pages.
"""

import sys
import tomllib

from support.paths import DOCS, TESTS

Tables = dict[str, dict[str, list[str]]]
EVIDENCE: dict[str, Tables] = tomllib.loads((TESTS / "gen" / "frontends" / "evidence.toml").read_text())
"""Tests by page, by the head of a table's first column, and by the first cell of a row."""
PAGES = tuple(EVIDENCE)


def tables(page: str) -> dict[str, list[str]]:
    """First cells of each table of a page, by the head of its first column."""
    found: dict[str, list[str]] = {}
    inside = ""
    for line in (DOCS / f"{page}.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and not inside:
            inside = cells[0]
            assert inside not in found, f"two tables with the head {inside!r}"
            found[inside] = []
        elif not cells:
            inside = ""
        elif not cells[0].startswith("---"):
            found[inside].append(cells[0])
    return found


def page() -> str:
    """Return all of it as Markdown."""
    lines = ["# Tests behind the pages on models"]
    for name, found in EVIDENCE.items():
        lines += ["", f"## {name.capitalize()}"]
        for head, rows in found.items():
            lines += ["", f"| {head} | tests |", "|---|---|"]
            lines += [
                f"| {what} | {', '.join(f'`{test}`' for test in tests)} |" for what, tests in rows.items()
            ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
