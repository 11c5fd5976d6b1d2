"""docs/onnx.md lists every attribute, input and output of recurrent operators, and tests that exist."""

import re
from pathlib import Path

import onnx.defs
import pytest
from support.paths import DOCS

from rtlstm.gen.frontends.onnx.ops import supported

HERE = Path(__file__).parent
TEXT = (DOCS / "onnx.md").read_text()
ROWS = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]


def test_tests_in_the_tables_exist() -> None:
    sources = "".join(path.read_text() for path in HERE.glob("test_onnx*.py"))
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 25
    assert {name for name in named if f"def {name}(" not in sources} == set()
    assert all("`test_" in row[-1] for row in ROWS if not row[-1].startswith("test "))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_every_attribute_is_in_the_table(kind: str) -> None:
    listed = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}
    for version in (7, 14, 22):
        schema = onnx.defs.get_schema(kind, version, "")
        names = {*schema.attributes, *(i.name for i in schema.inputs), *(o.name for o in schema.outputs)}
        assert names - listed == set()


def test_every_operator_is_in_the_table() -> None:
    words = {word for row in ROWS for word in re.findall(r"[A-Z]\w+", row[0].removeprefix("| "))}
    assert set(supported()) - words == set()
