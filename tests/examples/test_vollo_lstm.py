"""The example with PyTorch's two-layer LSTM holds on the golden model and on RTL."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "vollo_lstm.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vollo_lstm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("backend", ["golden", "verilator"])
def test_streaming_and_whole_sequence(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    figures = load().compare(backend)
    with capsys.disabled():
        print("", *(f"{name}: {figure:g}" for name, figure in figures.items()), sep="\n  ")
    assert figures["largest difference from PyTorch"] < 1e-2
