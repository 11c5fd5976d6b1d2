"""The example with PyTorch's two-layer LSTM holds on the golden model and on RTL."""

from contextlib import nullcontext

import pytest
from support.example_file import load_example
from support.no_logic import no_logic
from support.quick import quick

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("backend", quick(("golden", "verilator"), "golden"))
def test_streaming_and_whole_sequence(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    with no_logic() if backend == "golden" else nullcontext():
        figures = load_example("vollo_lstm").compare(backend)
    with capsys.disabled():
        print("", *(f"{name}: {figure:g}" for name, figure in figures.items()), sep="\n  ")
    assert figures["largest difference from PyTorch"] < 1e-2
