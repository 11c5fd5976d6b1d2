"""What the golden model gives: of real values, beside the float model, and beside the second model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.golden import Golden, GoldenResult
from rtlstm.sim.reference import run_float
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from support.lazy import torch
from support.second_model import SecondModel, State

Floats = NDArray[np.float64]


def random_codes(network: QuantizedNetwork, *shape: int, seed: int = 0) -> IntArray:
    """Return inputs from the lowest to the highest code, ``(*shape, inputs)``."""
    form, rng = network.numerics.input, np.random.default_rng(seed)
    return rng.integers(form.lowest, form.maximum, (*shape, network.inputs), endpoint=True)


def golden_outputs(network: QuantizedNetwork, x: Floats, state: Any = None) -> Floats:
    """Return the real values that the golden model gives of real inputs, ``(T, N, outputs)``."""
    y = Golden(network).run(network.numerics.quantise_input(x), state).y
    return network.shapes[-1].output.to_floats(y)


def rms_error(source: Network, network: QuantizedNetwork, x: Floats) -> float:
    """Return by how much the outputs differ from those of the float model, root mean square."""
    return float(np.sqrt(np.mean((golden_outputs(network, x) - run_float(source, x).y) ** 2)))


def check_trained(module: Any, x: Floats, state: Any = None, integers: Any = None) -> QuantizedNetwork:
    """Check that a prepared module's outputs are those of its integers; return these.

    ``state`` is what the module is given behind ``x``, ``integers`` the same state for the golden model.
    """

    network = module.quantised()
    y, _ = module(torch.from_numpy(x)) if state is None else module(torch.from_numpy(x), state)
    np.testing.assert_array_equal(y.detach().double().numpy(), golden_outputs(network, x, integers))
    return network


def equals_second(
    network: QuantizedNetwork,
    x: IntArray,
    state: tuple[Sequence[IntArray], Sequence[IntArray]] | None = None,
    lengths: IntArray | None = None,
) -> GoldenResult:
    """Run ``(T, N, inputs)`` in both models: outputs, states and the counted saturations are equal."""
    result, second = Golden(network).run(x, state, lengths), SecondModel(network)
    for number in range(x.shape[1]):
        steps = len(x) if lengths is None else int(lengths[number])
        mine = second.zeros()
        if state is not None:
            mine = State.of(*([part[number] for part in parts] for parts in state))
        assert second.sequence(x[:steps, number].tolist(), mine) == result.y[:steps, number].tolist()
        assert mine.h == [part[number].tolist() for part in result.h]
        assert mine.c == [part[number].tolist() for part in result.c]
    assert second.saturations == result.cell_saturations
    return result
