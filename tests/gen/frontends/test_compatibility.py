"""docs/compatibility.md names a test for each row of the pages on models, and a case of what they refuse."""

import ast
import re
from functools import cache

import pytest
from support.paths import DOCS, ROOT

PAGES = ("onnx", "keras", "tflite", "pytorch", "models", "cells")
QUOTED = re.compile(r"`([^`]+)`")
REFUSED = "not supported"

Tables = dict[str, list[list[str]]]


def tables(text: str) -> Tables:
    """Cells of each table's rows, by the head of its first column."""
    found: Tables = {}
    inside = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and not inside:
            inside = cells[0]
            assert inside not in found, f"two tables with the head {inside!r}"
            found[inside] = []
        elif not cells:
            inside = ""
        elif not cells[0].startswith("---"):
            found[inside].append(cells)
    return found


@cache
def evidence() -> dict[str, Tables]:
    """Tables of docs/compatibility.md by the page that they are about."""
    sections = re.split(r"^## ", (DOCS / "compatibility.md").read_text(), flags=re.MULTILINE)[1:]
    return {section.partition("\n")[0].lower(): tables(section) for section in sections}


def names_in(cell: str) -> list[str]:
    return re.findall(r"`(test_\w+)`", cell)


@cache
def sources() -> dict[str, str]:
    """Each test's source, with what its module defines and it mentions; those of one name together."""
    found: dict[str, str] = {}
    for path in ROOT.glob("tests/**/test_*.py"):
        text = path.read_text()
        parts: dict[str, str] = {}
        for node in ast.parse(text).body:
            names = [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
            names += [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            begin = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
            source = "\n".join(text.splitlines()[begin - 1 : node.end_lineno])
            parts |= dict.fromkeys(names, source)
        for name, source in parts.items():
            if name.startswith("test_"):
                used = sorted(other for other in parts if re.search(rf"\b{other}\b", source))
                found[name] = found.get(name, "") + "\n".join(parts[other] for other in used)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_row_has_its_tests(page: str) -> None:
    rows = tables((DOCS / f"{page}.md").read_text())
    assert REFUSED in rows
    assert sorted({*evidence()[page]} - {"statement"}) == sorted(rows)
    for head, named in evidence()[page].items():
        if head != "statement":
            assert [what for what, _ in named] == [row[0] for row in rows[head]], head
        unknown = [name for _, names in named for name in names_in(names) if name not in sources()]
        assert unknown == [], f"{page}, {head}"
        assert all(names_in(names) for _, names in named), f"{page}, {head}"


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_supported_has_its_case(page: str) -> None:
    for what, cell in evidence()[page][REFUSED]:
        names = names_in(cell)
        source = "\n".join(sources()[name] for name in names).lower()
        missing = [word for word in QUOTED.findall(what) if word.lower() not in source]
        assert missing == [], f"{', '.join(names)} must have cases for what {page}.md lists: {what}"
        assert "raises(" in source, f"{', '.join(names)} must see an error: {what}"


def test_all_pages_with_such_tables_are_compared() -> None:
    """A page that begins to list what is not supported is read, too."""
    pages = {path.stem for path in DOCS.glob("*.md") if f"| {REFUSED} |" in path.read_text()}
    assert pages == {*PAGES, "compatibility"}
    assert set(evidence()) == set(PAGES)
