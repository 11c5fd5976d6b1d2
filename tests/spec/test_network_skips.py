"""Dense layers with a skip: what is refused, and what their layers are in the array."""

from collections.abc import Callable

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.small_builds import normal_lstm

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.golden import Golden
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network
from rtlstm.spec.numerics import continues_sums

UNITS = 3


def lstm(**options: object) -> Lstm:
    return normal_lstm(np.random.default_rng(1), UNITS, UNITS, **options).replace(bias=np.zeros(4 * UNITS))


def dense(width: int = UNITS, **options: object) -> Dense:
    return Dense(weight=np.eye(UNITS), bias=np.zeros(UNITS), skip=np.ones((UNITS, width)), **options)


PLAIN = {"weight": np.eye(UNITS), "bias": np.zeros(UNITS)}
BOTH = Bidirectional(forward=lstm(), backward=lstm(reverse=True), merge="sum")
REFUSED = {
    "leads too far": (
        lambda: Network(layers=(lstm(), dense(skips=3))),
        "reads what stands 3 layers back, more than come before",
    ),
    "another width": (lambda: Network(layers=(lstm(), dense(2))), "reads 2 values, but the input gives 3"),
    "beside a reverse direction": (lambda: Network(layers=(BOTH, lstm(), dense())), "join on the host"),
    "a place without weights": (lambda: Dense(**PLAIN, skips=3), "give its weights, too"),
    "a ReLU without weights": (lambda: Dense(**PLAIN, skip_relu=True), "give its weights, too"),
    "other rows": (lambda: Dense(**PLAIN, skip=np.ones((2, UNITS))), r"must be \(3, values\), not \(2, 3\)"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_skips_that_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_layers_of_the_array() -> None:
    found = quantise(Network(layers=(lstm(), dense())))
    assert [shape.kind for shape in found.shapes] == ["dense", "lstm", "skip", "sum"]
    assert [shape.before for shape in found.shapes] == [1, 1, 2, 2]
    found = quantise(Network(layers=(lstm(), lstm(), dense())))
    assert [(shape.kind, shape.before) for shape in found.shapes[2:]] == [("skip", 2), ("sum", 2)]


def test_layers_of_the_array_of_several_results() -> None:
    """A product for each result, the earliest first; biases are where the first product is."""
    found = quantise(CELL_NETWORKS["grus_of_several"])
    candidate = ["unit_skip", "gru_reset", "gru_candidate"]
    kinds = ["dense", "gru", *candidate, "unit_skip", "unit_skip", "gru"]
    assert [shape.kind for shape in found.shapes] == kinds
    assert [shape.before for shape in found.shapes] == [1, 1, 2, 2, 1, 5, 5, 3]
    assert [continues_sums(found.shapes, index) for index in range(8)] == [
        *(False, False, True, False, True, True, True, False)
    ]
    found = quantise(CELL_NETWORKS["product_of_two"])
    assert [shape.kind for shape in found.shapes] == ["dense", "gru", "unit_skip", "unit", "dense"]
    assert [continues_sums(found.shapes, index) for index in range(5)] == [*(False,) * 3, True, False]
    assert [shape.feedforward for shape in found.shapes] == [False, True, False, True, False]


def test_products_of_a_layer_have_its_formats() -> None:
    """Ranges of c are asked for layer by layer, and no product has one, nor a cell in the hardware."""
    network = CELL_NETWORKS["lstm_of_two"]
    found = quantise(network, QuantizationSettings(cell_range=(2.0, 8.0)))
    kept = [shape.state for shape in found.shapes if shape.state is not None]
    assert [form.bits - 1 - form.fraction for form in kept] == [1, 3]
    assert {shape.cell for shape in found.shapes if shape.kind == "unit_skip"} <= {
        shape.cell for shape in found.shapes if shape.kind == "lstm"
    }
    with pytest.raises(ConfigurationError, match="one for each LSTM"):
        quantise(network, QuantizationSettings(cell_range=(2.0, 8.0, 2.0)))


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
