"""Loop nodes over the steps: those of scripted PyTorch."""

from pathlib import Path

import numpy as np
import pytest
from support.lazy import Lazy, torch
from support.random_builds import make_case
from support.refusals import refused
from support.step_checks import check_device

from rtlstm.gen.frontends import read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.parameters import Parameters

loops = Lazy("support.scripted_loops")
KINDS = {
    "BatchFirst": ["custom", "dense"],
    "FromBehind": ["custom", "dense"],
    "TwoTensors": ["dense", "custom", "dense"],
    "LastStep": ["custom", "dense"],
    "LastOfList": ["custom", "dense"],
    "Numbered": ["custom", "custom", "dense"],
    "TwoLoops": ["lstm", "custom", "dense"],
    "Swapped": ["custom", "dense"],
    "Three": ["custom", "dense"],
}
X = np.random.default_rng(1).uniform(-2, 2, (7, 2, 3)).astype(np.float32)
"""Steps, sequences, features."""


@pytest.mark.parametrize("name", KINDS)
def test_a_scripted_loop_equals_pytorch(name: str, tmp_path: Path) -> None:
    path, module, axis = loops.export(name, tmp_path)
    wanted = module(torch.as_tensor(X.swapaxes(0, axis).copy())).detach().numpy()
    result = read_model(path)
    assert [layer.kind for layer in result.network.layers] == KINDS[name]
    assert "Loop" in {node.kind for node in result.report.nodes} and "Scan" not in str(result.report)
    found = run_float(result.network, X, result.calibration_state(X, batch_first=False)).y
    np.testing.assert_allclose(
        found[-1] if name.startswith("Last") else found,
        wanted.swapaxes(0, axis) if wanted.ndim > 2 else wanted,
        atol=2e-6,
    )


@pytest.mark.rtl
@pytest.mark.parametrize("name", ["BatchFirst", "Numbered"])
def test_a_scripted_loop_on_hardware(name: str, tmp_path: Path) -> None:
    path, _, _ = loops.export(name, tmp_path)
    settings = QuantizationSettings(weight_bits=8, data_bits=8, gate_bits=8, cell_bits=12)
    network = quantise(read_model(path).network, settings, X)
    check_device(make_case(0, network, Parameters(lanes=4, macs=2), steps=5), tmp_path, "icarus")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Stopped", "its condition must be true in every step, as of a loop that nothing ends"),
        ("Shorter", r"it must go over all steps of a sequence, as `for t in range\(x.size\(0\)\)`"),
        (
            "Joined",
            "must stack all tensors of the list along axis 0 or 1, as torch.stack does, or take the last",
        ),
        ("Ahead", "of the graph around it, which must be constant, or a step of what it goes over"),
        ("Table", "it goes through the constant 'rows', .* give what differs as a feature of x"),
        ("Features", r"take x\[t\] or x\[:, t\], not steps of axis 2"),
    ],
)
def test_other_loops_are_refused_by_name(name: str, words: str, tmp_path: Path) -> None:
    """The loops above are the ways out."""
    refused(loops.export(name, tmp_path)[0], f"node '/Loop' is not read: .*{words}")
