"""docs/onnx.md lists every attribute, input and output of recurrent operators."""

import re

import onnx.defs
import pytest
from support.paths import DOCS

from rtlstm.gen.frontends.onnx.ops import supported

TEXT = (DOCS / "onnx.md").read_text()
ROWS = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| ")]


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
