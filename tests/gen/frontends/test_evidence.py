"""Each row of the pages on models has its tests in ``evidence.toml``, and what they refuse has a case.

docs/models.md lists every ONNX operator, and every attribute, input and output of the recurrent ones.
"""

import ast
import re
from functools import cache

import onnx.defs
import pytest
from support.evidence import EVIDENCE, PAGES, page, tables
from support.paths import DOCS, TESTS

from rtlstm.gen.frontends.onnx.translate import supported

QUOTED = re.compile(r"`([^`]+)`")
REFUSED = "not supported"


@cache
def sources() -> dict[str, str]:
    """Each test's source, with what its module defines and it mentions; those of one name together."""
    found: dict[str, str] = {}
    for path in TESTS.rglob("test_*.py"):
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


@pytest.mark.parametrize("name", PAGES)
def test_every_row_has_its_tests(name: str) -> None:
    rows = tables(name)
    assert REFUSED in rows
    assert sorted(EVIDENCE[name]) == sorted(rows)
    for head, named in EVIDENCE[name].items():
        assert list(named) == rows[head], head
        assert all(named.values()), head
        unknown = [test for tests in named.values() for test in tests if test not in sources()]
        assert unknown == [], head


@pytest.mark.parametrize("name", PAGES)
def test_what_is_not_supported_has_its_case(name: str) -> None:
    for what, tests in EVIDENCE[name][REFUSED].items():
        source = "\n".join(sources()[test] for test in tests).lower()
        missing = [word for word in QUOTED.findall(what) if word.lower() not in source]
        assert missing == [], f"{', '.join(tests)} must have cases for what {name}.md lists: {what}"
        assert re.search(r"\b(raises|refused)\(", source), f"{', '.join(tests)} must see an error: {what}"


def test_all_pages_with_such_tables_are_compared() -> None:
    """A page that begins to list what is not supported is read, too."""
    found = {path.stem for path in DOCS.glob("*.md") if f"| {REFUSED} |" in path.read_text()}
    assert found == set(PAGES)


def test_it_is_a_page() -> None:
    text = page()
    assert "\n## Models\n" in text and "\n| plain RNN | `test_golden_is_near_the_float_model`, `" in text


COLUMN = "ONNX"
SECTION = (DOCS / "models.md").read_text().partition("\n## Operators\n")[2].partition("\n## ")[0]
TABLE = [
    [cell.strip() for cell in line.split("|")[1:-1]] for line in SECTION.splitlines() if line.startswith("|")
]
CELLS = " ".join(row[TABLE[0].index(COLUMN)] for row in TABLE[2:])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_every_attribute_is_in_the_table(kind: str) -> None:
    listed = set(re.findall(r"`(\w+)`", CELLS))
    for version in (7, 14, 22):
        schema = onnx.defs.get_schema(kind, version, "")
        names = {*schema.attributes, *(i.name for i in schema.inputs), *(o.name for o in schema.outputs)}
        assert names - listed == set()


def test_every_operator_is_in_the_table() -> None:
    assert set(supported()) - set(re.findall(r"[A-Z]\w+", CELLS)) == set()
