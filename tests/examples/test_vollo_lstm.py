"""The example with PyTorch's two-layer LSTM holds on the golden model and on RTL."""

import pytest
from support.example_file import load_example
from support.no_logic import logic_for
from support.quick import quick

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("backend", quick(("golden", "verilator"), "golden"))
def test_streaming_and_whole_sequence(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    with logic_for(backend):
        figures = load_example("vollo_lstm").compare(backend)
    with capsys.disabled():
        print("", *(f"{name}: {figure:g}" for name, figure in figures.items()), sep="\n  ")
    assert figures["largest difference from PyTorch"] < 1e-2
