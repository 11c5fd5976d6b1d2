"""Five usages of torch.nn.LSTM run as PyTorch does, the sixth is refused by name."""

import pytest
from support.example_file import load_example
from support.no_logic import logic_for
from support.quick import quick

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("backend", quick(("golden", "verilator"), "golden"))
def test_six_usages(backend: str) -> None:
    with logic_for(backend):
        outcomes = dict(load_example("torch_usages").run_usages(backend))
    refused = outcomes.pop("PackedConsumed")
    assert refused.startswith("refused: PackedConsumed: max 'max_1' reads the PackedSequence of LSTM 'lstm'")
    assert "pad it first" in refused
    assert len(outcomes) == 5
    assert all(text.startswith("largest difference from PyTorch") for text in outcomes.values())
