"""cuDNN's flat weights, in the layout of ``jax.experimental.rnn``: there and back, and what they compute."""

from typing import Any

import numpy as np
import pytest
from support.lazy import torch

from rtlstm.gen.frontends.cudnn import CudnnLstm
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ModelError

CASES = [(layers, both) for layers in (1, 2, 3) for both in (False, True)]


def offsets(lstm: CudnnLstm) -> dict[str, int]:
    """Where each array begins, added up by hand: all matrices, then all biases."""
    found, place = {}, 0
    directions = 2 if lstm.bidirectional else 1
    for layer in range(lstm.layers):
        width = lstm.inputs if layer == 0 else directions * lstm.hidden
        for direction in range(directions):
            found[f"w_ih{directions * layer + direction}"] = place
            place += 4 * lstm.hidden * width
            found[f"w_hh{directions * layer + direction}"] = place
            place += 4 * lstm.hidden * lstm.hidden
    for index in range(lstm.layers * directions):
        for name in ("b_ih", "b_hh"):
            found[f"{name}{index}"] = place
            place += 4 * lstm.hidden
    return found | {"end": place}


@pytest.mark.parametrize(("layers", "both"), CASES)
def test_there_and_back(layers: int, both: bool) -> None:
    lstm = CudnnLstm(inputs=3, hidden=5, layers=layers, bidirectional=both)
    places = offsets(lstm)
    assert lstm.parameter_count == places["end"] == sum(np.prod(shape) for shape in lstm.shapes)
    vector = np.arange(lstm.parameter_count, dtype=np.float64)
    parts = lstm.unpack(vector)
    assert len(parts) == lstm.pseudo_layers == layers * (1 + both)
    for index, part in enumerate(parts):
        for name in ("w_ih", "w_hh", "b_ih", "b_hh"):
            array = getattr(part, name)
            begin = places[f"{name}{index}"]
            np.testing.assert_array_equal(array.ravel(), vector[begin : begin + array.size])
    np.testing.assert_array_equal(lstm.pack(parts), vector)


def twin(lstm: CudnnLstm, vector: np.ndarray) -> Any:
    """PyTorch's module with the same weights."""
    both = lstm.bidirectional
    module = torch.nn.LSTM(lstm.inputs, lstm.hidden, lstm.layers, bidirectional=both, dtype=torch.float64)
    names = [f"l{layer}{suffix}" for layer in range(lstm.layers) for suffix in ("", "_reverse")[: 1 + both]]
    arrays = {
        f"{kind}_{name}": torch.tensor(getattr(part, f"{kind[0]}_{kind[-2:]}"))
        for name, part in zip(names, lstm.unpack(vector), strict=True)
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    module.load_state_dict(arrays)
    return lambda x: [part.detach().numpy() for part in _flat(module(torch.tensor(x)))]


def _flat(result: Any) -> list[Any]:
    y, (h, c) = result
    return [y, h, c]


@pytest.mark.parametrize(("layers", "both"), CASES)
def test_arrays_are_torchs(layers: int, both: bool) -> None:
    lstm = CudnnLstm(inputs=3, hidden=5, layers=layers, bidirectional=both)
    vector = lstm.initial(np.random.default_rng(layers))
    x = np.random.default_rng(7).normal(size=(6, 2, 3))
    found = run_float(lstm.network(vector), x)
    for ours, theirs in zip((found.y, found.h, found.c), twin(lstm, vector)(x), strict=True):
        np.testing.assert_allclose(np.stack(ours), theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("both", [False, True])
def test_lengths_as_in_jax(both: bool) -> None:
    """Outputs past a length are zero; states are those of the last valid step."""
    lstm = CudnnLstm(inputs=3, hidden=4, layers=2, bidirectional=both)
    vector = lstm.initial(np.random.default_rng(3))
    x, lengths = np.random.default_rng(7).normal(size=(6, 3, 3)), [6, 2, 4]
    found = run_float(lstm.network(vector), x, lengths=lengths)
    for place, length in enumerate(lengths):
        y, h, c = twin(lstm, vector)(x[:length, place])
        np.testing.assert_allclose(found.y[:length, place], y, rtol=0, atol=1e-12)
        assert not found.y[length:, place].any()
        for ours, theirs in ((found.h, h), (found.c, c)):
            np.testing.assert_allclose(np.stack(ours)[:, place], theirs, rtol=0, atol=1e-12)


def test_initial_is_within_its_bound_and_fills_it() -> None:
    lstm = CudnnLstm(inputs=16, hidden=16)
    vector = lstm.initial(np.random.default_rng(0))
    assert vector.shape == (lstm.parameter_count,)
    assert 0.99 * 0.25 < np.abs(vector).max() <= 0.25
    assert abs(vector.mean()) < 0.01


def test_refusals() -> None:
    lstm = CudnnLstm(inputs=2, hidden=3)
    vector = lstm.initial(np.random.default_rng(0))
    with pytest.raises(ModelError, match=r"shape \(84,\) for 1 layers of 3 units on 2 inputs, not \(83,\)"):
        lstm.unpack(vector[1:])
    with pytest.raises(ModelError, match=r"must be one of .*, not int64"):
        lstm.unpack(np.zeros(84, dtype=np.int64))
    vector[5] = np.nan
    with pytest.raises(ModelError, match="1 of 84 are NaN"):
        lstm.network(vector)
    with pytest.raises(ModelError, match="hidden of a cuDNN LSTM must be at least 1, not 0"):
        CudnnLstm(inputs=2, hidden=0)
    parts = CudnnLstm(inputs=2, hidden=4).unpack(np.zeros(128))
    with pytest.raises(ModelError, match=r"array 0 .* shape \(12, 2\) .* not \(16, 2\)"):
        lstm.pack(parts)
    with pytest.raises(ModelError, match="must be 1 pseudo-layers .* not 2"):
        lstm.pack(parts * 2)


@pytest.mark.parametrize("both", [False, True])
def test_the_way_back_gives_the_same_network(both):
    lstm = CudnnLstm(inputs=3, hidden=5, layers=2, bidirectional=both, dropout=0.5)
    network = lstm.network(lstm.initial(np.random.default_rng(4)))
    vector = lstm.vector(network)
    assert vector.shape == (lstm.parameter_count,)
    # Dropout has no weights and no effect.
    for again in (lstm.network(vector), CudnnLstm(3, 5, 2, both).network(vector)):
        assert again.model_dump_json() == network.model_dump_json()
    # The biases of the vector are the sum and zeros; a vector of such a kind comes back as it was.
    assert np.array_equal(lstm.vector(again), vector)


def test_a_network_without_place_in_the_vector_is_refused():
    lstm = CudnnLstm(inputs=3, hidden=5)
    network = lstm.network(lstm.initial(np.random.default_rng(0)))
    (layer,) = network.layers
    with pytest.raises(ModelError, match="layer 'lstm0' must be an LSTM with cuDNN's equations and no"):
        lstm.vector(network.replace(layers=(layer.replace(clip=2.0),)))
    with pytest.raises(ModelError, match="there must be 1 pseudo-layers"):
        lstm.vector(CudnnLstm(3, 5, 2).network(np.zeros(CudnnLstm(3, 5, 2).parameter_count)))
    with pytest.raises(ModelError, match="must have shape"):
        CudnnLstm(inputs=4, hidden=5).vector(network)
    with pytest.raises(ModelError, match="dropout of a cuDNN LSTM must be a share from 0 to 1, not 2"):
        CudnnLstm(inputs=3, hidden=5, dropout=2)
