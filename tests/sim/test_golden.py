"""The golden model against float PyTorch, and against itself; tests/test_second_model.py has its bits."""

import numpy as np
import pytest
from support.golden_runs import golden_outputs
from support.lazy import torch
from support.random_builds import random_case

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import InputError
from rtlstm.spec.network import Lstm, Network

SIZES = (1, 2, 3, 5, 7, 13)


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


def torch_network(inputs: int, units: int, layers: int) -> tuple["torch.nn.LSTM", Network]:
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
    y = module(x)[0].detach().numpy()
    quantised = quantise(network, QuantizationSettings(), x.numpy())
    assert np.abs(golden_outputs(quantised, x.numpy()) - y).max() < 1e-3


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


def test_float_reference_with_a_saturated_cell_state() -> None:
    """What is kept is limited, not what h reads; initial states count among the magnitudes met."""
    layer = Lstm(w_ih=np.zeros((4, 1)), w_hh=np.zeros((4, 1)), bias=np.array([0.0, 40.0, 40.0, 40.0]))
    network, x = Network(layers=(layer,)), np.zeros((3, 2, 1))
    free, held = run_float(network, x), run_float(network, x, cell_limit=0.75)
    np.testing.assert_allclose(free.c[0], 1.5)
    np.testing.assert_allclose(held.c[0], 0.75)
    np.testing.assert_allclose(held.y[:, 0, 0], np.tanh([0.5, 1.0, 1.25]))
    begin = [np.full((2, 1), 0.5)], [np.full((2, 1), 9.0)]
    found = run_float(network, x, begin, cell_limit=0.75)
    assert found.cell == 9.0
    np.testing.assert_allclose(found.y[:, 0, 0], np.tanh([1.25, 1.25, 1.25]))
