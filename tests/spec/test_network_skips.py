"""Dense layers with a skip: what is refused, and what their layers are in the array."""

import numpy as np
import pytest

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.golden import Golden
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network

UNITS = 3


def lstm(**options: object) -> Lstm:
    rng = np.random.default_rng(1)
    return Lstm(
        w_ih=rng.normal(size=(4 * UNITS, UNITS)),
        w_hh=rng.normal(size=(4 * UNITS, UNITS)),
        bias=np.zeros(4 * UNITS),
        **options,
    )


def dense(width: int = UNITS, **options: object) -> Dense:
    same = np.eye(UNITS)
    return Dense(weight=same, bias=np.zeros(UNITS), skip=np.ones((UNITS, width)), **options)


def test_a_skip_that_leads_too_far_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="reads what stands 3 layers back, more than come before"):
        Network(layers=(lstm(), dense(skips=3)))


def test_a_skip_of_another_width_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="reads 2 values, but the input gives 3"):
        Network(layers=(lstm(), dense(2)))


def test_a_skip_beside_a_reverse_direction_is_refused() -> None:
    both = Bidirectional(forward=lstm(), backward=lstm(reverse=True), merge="sum")
    with pytest.raises(ConfigurationError, match="join on the host"):
        Network(layers=(both, lstm(), dense()))


@pytest.mark.parametrize("options", [{"skips": 3}, {"skip_relu": True}])
def test_fields_of_a_skip_without_one_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="give its weights, too"):
        Dense(weight=np.eye(UNITS), bias=np.zeros(UNITS), **options)


def test_a_skip_with_other_rows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"skip must be \(3, values\), not \(2, 3\)"):
        Dense(weight=np.eye(UNITS), bias=np.zeros(UNITS), skip=np.ones((2, UNITS)))


def test_layers_of_the_array() -> None:
    found = quantise(Network(layers=(lstm(), dense())))
    assert [shape.kind for shape in found.shapes] == ["dense", "lstm", "skip", "sum"]
    assert [shape.before for shape in found.shapes] == [1, 1, 2, 2]
    found = quantise(Network(layers=(lstm(), lstm(), dense())))
    assert [(shape.kind, shape.before) for shape in found.shapes[2:]] == [("skip", 2), ("sum", 2)]


def test_a_plain_network_on_a_device_with_cells() -> None:
    """Cells compute it, since the device has no gate unit of an LSTM's own."""
    settings = QuantizationSettings(cell_range=8.0, input_range=4.0)
    device = quantise(
        Network(layers=(lstm(), lstm(), dense())), settings, hardware=TargetHardware(headroom=4)
    )
    network = Network(layers=(lstm(),))
    found = quantise(network, settings, hardware=TargetHardware(headroom=4, device=device.numerics))
    assert found.numerics.cells == device.numerics.cells and found.numerics.fused_lstm is None
    x = np.random.default_rng(2).integers(-100, 100, (5, 2, UNITS))
    mine, plain = Golden(found).run(x), Golden(quantise(network, settings)).run(x)
    assert np.abs(mine.y - plain.y).max() <= 2
