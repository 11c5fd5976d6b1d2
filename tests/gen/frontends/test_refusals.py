"""What the pages' tables say is refused has its case in the test that they name."""

import ast
import re
from functools import cache

import pytest
from support.paths import ROOT

PAGES = ("cells", "keras", "models", "onnx", "pytorch")
QUOTED = re.compile(r"`([^`]+)`")


def refusals(page: str) -> list[tuple[str, list[str]]]:
    """What is refused, and the tests that say so, of each row of a page's tables of refusals."""
    found, inside = [], False
    for line in (ROOT / "docs" / f"{page}.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[:1] == ["refused"]:
            inside = True
        elif not cells:
            inside = False
        elif inside and not cells[0].startswith("---"):
            found.append((cells[0], re.findall(r"`(test_\w+)`", cells[-1])))
    return found


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
def test_every_refusal_has_its_case(page: str) -> None:
    rows = refusals(page)
    assert rows
    for what, names in rows:
        assert names, f"{page}.md must name a test for: {what}"
        unknown = [name for name in names if name not in sources()]
        assert unknown == [], f"{page}.md: {what}"
        source = "\n".join(sources()[name] for name in names).lower()
        missing = [word for word in QUOTED.findall(what) if word.lower() not in source]
        assert missing == [], f"{', '.join(names)} must have cases for what {page}.md lists: {what}"
        assert "raises(" in source, f"{', '.join(names)} must see an error: {what}"


def test_pages_without_such_tables_are_few() -> None:
    """A page that begins to list refusals is read, too."""
    pages = {path.stem for path in (ROOT / "docs").glob("*.md") if "| refused |" in path.read_text()}
    assert pages == set(PAGES)
