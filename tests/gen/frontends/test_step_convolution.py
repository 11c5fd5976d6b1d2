"""Convolutions over the frames inside one step."""

import numpy as np
import pytest
from support.lazy import F, torch

from rtlstm.gen.frontends.layers import convolve_step
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network


@pytest.mark.parametrize(
    ("frames", "stride", "padding", "zero_shares"),
    [(4, 1, 1, 6 / 16), (4, 2, 1, 3 / 8), (2, 2, 1, 0), (1, 1, 1, 0), (5, 2, 0, 4 / 10)],
)
def test_equals_pytorch(frames: int, stride: int, padding: int, zero_shares: float) -> None:
    """Also how much of the weights is zero: that is what can be skipped."""
    rng = np.random.default_rng(frames)
    weight, bias, x = rng.normal(size=(3, 2, 3)), rng.normal(size=3), rng.normal(size=(7, 1, frames, 2))
    layer = convolve_step("conv", weight, bias, frames, stride=stride, padding=padding)
    wanted = F.conv1d(
        torch.from_numpy(x[:, 0].swapaxes(1, 2)),
        torch.from_numpy(weight),
        torch.from_numpy(bias),
        stride=stride,
        padding=padding,
    )
    found = run_float(Network(layers=(layer,), frames=frames), x.reshape(7, 1, -1)).y
    np.testing.assert_allclose(found[:, 0], wanted.numpy().swapaxes(1, 2).reshape(7, -1), atol=1e-12)
    assert np.mean(layer.weight == 0) == pytest.approx(zero_shares)


@pytest.mark.parametrize(
    ("shape", "frames", "words"),
    [((3, 2), 4, r"must be \(outputs, inputs, taps\) and"), ((3, 2, 5), 2, "conv must give a frame, but 2")],
)
def test_bad_input(shape: tuple[int, ...], frames: int, words: str) -> None:
    """One sentence."""
    with pytest.raises(ModelError, match=words):
        convolve_step("conv", np.ones(shape), np.ones(3), frames)
