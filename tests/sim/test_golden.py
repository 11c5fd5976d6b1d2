"""The golden model against a second one in plain Python integers, and against float PyTorch."""

import numpy as np
import pytest
import torch
from random_builds import random_case

from rtlstm.gen.quantise import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.activation import ActivationTable
from rtlstm.spec.errors import InputError
from rtlstm.spec.network import Lstm, Network
from rtlstm.spec.numerics import GUARD_BITS, Numerics, QuantizedNetwork, QuantizedRecurrent

SIZES = (1, 2, 3, 5, 7, 13)


def limit(value: int, bits: int) -> int:
    most = (1 << (bits - 1)) - 1
    return max(-most, min(most, value))


def half_up(value: int, drop: int) -> int:
    return (2 * value + (1 << drop) >> drop + 1) if drop else value


def activate(table: ActivationTable, value: int) -> int:
    size = abs(value)
    index = size >> table.low_bits
    if value < 0 and table.halves == 2:
        index += 1 << table.segment_bits
    low = size - (size >> table.low_bits << table.low_bits)
    result = table.base[index] + table.slope[index] * low >> table.extra
    return -result if value < 0 and table.halves == 1 else result


class PlainModel:
    """The same arithmetic, one integer at a time, in Python's unbounded integers."""

    def __init__(self, network: QuantizedNetwork) -> None:
        self.network = network
        self.align = network.numerics.accumulator.align

    def part(self, weights: np.ndarray, shift: int, vector: list[int], relu: bool) -> int:
        total = sum(w * (max(v, 0) if relu else v) for w, v in zip(weights.tolist(), vector, strict=True))
        return (total << self.align) >> int(shift)

    def unit(self, pre: list[int], c: int, numerics: Numerics) -> tuple[int, int]:
        i, f, o = (activate(numerics.sigmoid, pre[gate]) for gate in (0, 1, 3))
        g = activate(numerics.tanh, pre[2])
        gate, cell = numerics.gate.fraction, numerics.cell.fraction
        fraction = gate + max(gate, cell)
        total = (f * c << fraction - gate - cell) + (i * g << fraction - 2 * gate)
        c = limit(half_up(total, fraction - cell), numerics.cell.bits)
        reads = numerics.cell_argument
        t = activate(numerics.cell_tanh, limit(half_up(total, fraction - reads.fraction), reads.bits))
        hidden = numerics.hidden
        return limit(half_up(o * t, 2 * gate - hidden.fraction), hidden.bits), c

    def step(self, x: list[int], h: list[list[int]], c: list[list[int]]) -> list[int]:
        numerics = self.network.numerics
        for index, (layer, shape) in enumerate(zip(self.network.layers, self.network.shapes, strict=True)):
            if isinstance(layer, QuantizedRecurrent):
                units = shape.outputs
                new_h, new_c = [], []
                for unit in range(units):
                    pre = []
                    for row in range(unit, 4 * units, units):
                        total = self.part(layer.w_ih[row], layer.shift_ih[row], x, shape.input_relu)
                        total += self.part(layer.w_hh[row], layer.shift_hh[row], h[index], False)
                        total += int(layer.bias[row])
                        pre.append(limit(total >> GUARD_BITS, numerics.preactivation.bits))
                    fresh_h, fresh_c = self.unit(pre, c[index][unit], numerics)
                    new_h.append(fresh_h)
                    new_c.append(fresh_c)
                h[index], c[index], x = new_h, new_c, new_h
                continue
            results = []
            for row in range(shape.outputs):
                total = self.part(layer.weight[row], layer.shift[row], x, shape.input_relu)
                results.append(self.dense(total + int(layer.bias[row]) >> GUARD_BITS, shape.activation))
            x = results
        return x

    def dense(self, value: int, activation: str) -> int:
        numerics = self.network.numerics
        if activation in ("identity", "relu"):
            value = limit(value, numerics.data_bits)
            return max(value, 0) if activation == "relu" else value
        table = numerics.sigmoid if activation == "sigmoid" else numerics.tanh
        value = activate(table, limit(value, numerics.preactivation.bits))
        return limit(half_up(value, numerics.gate.fraction - numerics.hidden.fraction), numerics.data_bits)


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_equals_plain_integers(seed: int) -> None:
    case = random_case(seed, sizes=SIZES, steps=12)
    y, results = case.golden()
    plain = PlainModel(case.network)
    states = [
        tuple([part[stream].tolist() for part in parts] for parts in case.state)
        for stream in range(case.manifest.parameters.streams)
    ]
    for step, stream in enumerate(case.streams.tolist()):
        assert plain.step(case.x[step].tolist(), *states[stream]) == y[step].tolist()
    for (h, c), result in zip(states, results, strict=True):
        for got, want in zip((*h, *c), (*result.h, *result.c), strict=True):
            assert got == want[0].tolist()


@pytest.mark.parametrize("seed", range(1040, 1060))
def test_stream_equals_run(seed: int) -> None:
    case = random_case(seed, sizes=SIZES)
    rng = np.random.default_rng(seed)
    form, batch = case.network.numerics.input, int(rng.integers(1, 4))
    x = rng.integers(form.lowest, form.maximum, (7, batch, case.network.inputs), endpoint=True)
    state = tuple([part[:1].repeat(batch, axis=0) for part in parts] for parts in case.state)
    model = Golden(case.network)
    whole, stream = model.run(x, state), model.stream(batch, state)
    np.testing.assert_array_equal(np.stack([stream.step(each) for each in x]), whole.y)
    for got, want in zip((*stream.h, *stream.c), (*whole.h, *whole.c), strict=True):
        np.testing.assert_array_equal(got, want)
    assert stream.cell_saturations == whole.cell_saturations


@pytest.mark.parametrize("data_bits", range(11, 17))
def test_sums_on_both_sides_of_single_precision(data_bits: int) -> None:
    """The widest sums cross 2**24, where a layer's numbers become double ones."""
    units, inputs = 3, 16
    rng = np.random.default_rng(data_bits)
    lstm = Lstm(
        w_ih=rng.choice([-0.999, 0.998], (4 * units, inputs)),
        w_hh=rng.choice([-0.997, 0.996], (4 * units, units)),
        bias=rng.normal(size=4 * units),
    )
    settings = QuantizationSettings(weight_bits=9, data_bits=data_bits, input_range=1.0)
    network = quantise(Network(layers=(lstm,)), settings)
    lowest, highest = network.numerics.input.lowest, network.numerics.input.maximum
    rows = network.layers[0].w_ih[rng.integers(0, 4 * units, 20)]
    x = np.where(rows < 0, lowest, highest)
    x[::2] = rng.integers(lowest, highest, x[::2].shape, endpoint=True)
    zeros = [np.zeros((1, units), dtype=np.int64)]
    plain, h, c = PlainModel(network), [[0] * units], [[0] * units]
    result = Golden(network).run(x[:, None], (zeros, zeros))
    for row, y in zip(x.tolist(), result.y[:, 0].tolist(), strict=True):
        assert plain.step(row, h, c) == y
    assert [h[0], c[0]] == [result.h[0][0].tolist(), result.c[0][0].tolist()]


def torch_network(inputs: int, units: int, layers: int) -> tuple[torch.nn.LSTM, Network]:
    torch.manual_seed(units)
    module = torch.nn.LSTM(inputs, units, num_layers=layers)
    parameters = {name: value.detach().double().numpy() for name, value in module.named_parameters()}
    network = Network(
        layers=tuple(
            Lstm(
                name=f"lstm{index}",
                w_ih=parameters[f"weight_ih_l{index}"],
                w_hh=parameters[f"weight_hh_l{index}"],
                bias=parameters[f"bias_ih_l{index}"] + parameters[f"bias_hh_l{index}"],
            )
            for index in range(layers)
        )
    )
    return module, network


@pytest.mark.parametrize(("inputs", "units", "layers"), [(1, 1, 1), (5, 7, 2), (16, 24, 3)])
def test_float_reference_equals_torch(inputs: int, units: int, layers: int) -> None:
    module, network = torch_network(inputs, units, layers)
    x = torch.randn(9, 4, inputs)
    with torch.no_grad():
        y, (h, c) = module(x)
    result = run_float(network, x.double().numpy())
    np.testing.assert_allclose(result.y, y.numpy(), atol=1e-6)
    np.testing.assert_allclose(np.stack(result.h), h.numpy(), atol=1e-6)
    np.testing.assert_allclose(np.stack(result.c), c.numpy(), atol=1e-6)


def test_quantised_stays_close_to_float() -> None:
    module, network = torch_network(16, 24, 2)
    x = torch.randn(50, 8, 16)
    with torch.no_grad():
        y = module(x)[0].numpy()
    quantised = quantise(network, QuantizationSettings(), x.numpy())
    result = Golden(quantised).run(quantised.numerics.input.to_integers(x.numpy()))
    error = np.abs(quantised.shapes[-1].output.to_floats(result.y) - y)
    assert error.max() < 1e-3


def test_lengths_freeze_state_and_zero_outputs() -> None:
    case = random_case(5, sizes=SIZES)
    model = Golden(case.network)
    rng = np.random.default_rng(0)
    maximum = case.network.numerics.input.maximum
    x = rng.integers(-maximum, maximum, size=(6, 3, case.network.inputs))
    lengths = np.array([2, 6, 4])
    padded = model.run(x, lengths=lengths)
    for element, length in enumerate(lengths.tolist()):
        alone = model.run(x[:length, element : element + 1])
        np.testing.assert_array_equal(padded.y[:length, element], alone.y[:, 0])
        assert not padded.y[length:, element].any()
        for got, want in zip((*padded.h, *padded.c), (*alone.h, *alone.c), strict=True):
            np.testing.assert_array_equal(got[element], want[0])


def test_wrong_width_is_refused() -> None:
    case = random_case(5, sizes=SIZES)
    with pytest.raises(InputError, match=r"x must be \(T, N, "):
        Golden(case.network).run(np.zeros((2, 3, case.network.inputs + 1), dtype=np.int64))


def test_values_beyond_the_input_format_are_refused() -> None:
    case = random_case(5, sizes=SIZES)
    x = np.zeros((2, 3, case.network.inputs), dtype=np.int64)
    x[1, 2, 0] = case.network.numerics.input.maximum + 1
    with pytest.raises(InputError, match="x must be within"):
        Golden(case.network).run(x)
