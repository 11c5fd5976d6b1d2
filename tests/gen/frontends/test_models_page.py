"""docs/models.md lists every ONNX operator, and every attribute, input and output of the recurrent ones."""

import re

import onnx.defs
import pytest
from support.paths import DOCS

from rtlstm.gen.frontends.onnx.translate import supported

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
