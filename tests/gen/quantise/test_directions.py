"""Directions become passes, and what merges them goes into weights."""

import numpy as np
import pytest
from numpy.random import Generator

from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, InputError
from rtlstm.spec.network import Bidirectional, Dense, Lstm, Network


def lstm(rng: Generator, inputs: int, units: int, reverse: bool = False, relu: bool = False) -> Lstm:
    return Lstm(
        w_ih=rng.normal(size=(4 * units, inputs)) / np.sqrt(inputs),
        w_hh=rng.normal(size=(4 * units, units)) / np.sqrt(units),
        bias=rng.normal(size=4 * units) / 3,
        reverse=reverse,
        input_relu=relu,
    )


def both(rng: Generator, inputs: int, units: int, merge: str = "concat") -> Bidirectional:
    forward, backward = lstm(rng, inputs, units), lstm(rng, inputs, units, reverse=True)
    return Bidirectional(forward=forward, backward=backward, merge=merge)


def dense(rng: Generator, inputs: int, outputs: int, relu: bool = False) -> Dense:
    weight = rng.normal(size=(outputs, inputs)) / np.sqrt(inputs)
    return Dense(weight=weight, bias=rng.normal(size=outputs), activation="tanh", input_relu=relu)


def passes(network: Network) -> list[list[tuple[int, bool]]]:
    return [[(part.layers, part.reverse) for part in parts] for parts in unfold(network).passes]


def test_forward_networks_have_no_passes() -> None:
    rng = np.random.default_rng(1)
    network = Network(layers=(lstm(rng, 3, 4), dense(rng, 4, 2)))
    assert unfold(network).passes == () and unfold(network).layers == network.layers


def test_layers_of_one_direction_are_one_part() -> None:
    rng = np.random.default_rng(2)
    layers = (
        lstm(rng, 3, 4),
        dense(rng, 4, 4),
        both(rng, 4, 5),
        dense(rng, 10, 6),
        lstm(rng, 6, 3, reverse=True),
        lstm(rng, 3, 2, reverse=True),
        dense(rng, 2, 2),
        lstm(rng, 2, 2),
    )
    # A recurrent layer would be overtaken by a dense one at the head of its part.
    expected = [[(2, False)], [(1, False), (1, True)], [(1, False)], [(3, True)], [(1, False)]]
    assert passes(Network(layers=layers)) == expected


def test_what_reads_reversed_outputs_is_a_pass_of_its_own() -> None:
    rng = np.random.default_rng(2)
    reversed_output = lstm(rng, 3, 4, reverse=True).replace(reversed_output=True)
    layers = (reversed_output, dense(rng, 4, 5), lstm(rng, 5, 3, reverse=True), lstm(rng, 3, 2))
    found = unfold(Network(layers=layers)).passes
    assert [[(part.layers, part.reverse, part.reversed_output) for part in parts] for parts in found] == [
        [(2, True, True)],
        [(1, True, False)],
        [(1, False, False)],
    ]


def test_products_are_layers_of_their_own() -> None:
    rng = np.random.default_rng(2)
    network = Network(layers=(both(rng, 3, 4, "product"), dense(rng, 4, 5, relu=True), lstm(rng, 5, 3)))
    assert passes(network) == [[(1, False), (1, True)], [(2, False)], [(1, False)]]
    assert [layer.kind for layer in unfold(network).layers] == ["lstm", "lstm", "product", "dense", "lstm"]


def test_only_a_reverse_layer_has_reversed_outputs() -> None:
    with pytest.raises(ConfigurationError, match="only a layer in reverse"):
        lstm(np.random.default_rng(2), 3, 4).replace(reversed_output=True)


@pytest.mark.parametrize("share", [("sum", 1.0), ("average", 0.5)])
def test_merging_folds_into_the_next_layer(share: tuple[str, float]) -> None:
    rng = np.random.default_rng(3)
    merge, factor = share
    head = dense(rng, 5, 2)
    unfolded = unfold(Network(layers=(both(rng, 3, 5, merge), head)))
    assert len(unfolded.layers) == 3
    assert np.array_equal(unfolded.layers[2].weight, np.hstack([head.weight, head.weight]) * factor)


@pytest.mark.parametrize("head", [True, False])
def test_merging_needs_a_layer_before_relu_and_at_the_end(head: bool) -> None:
    rng = np.random.default_rng(4)
    after = (dense(rng, 5, 2, relu=True),) if head else ()
    unfolded = unfold(Network(layers=(both(rng, 3, 5, "sum"), *after)))
    assert np.array_equal(unfolded.layers[2].weight, np.hstack([np.eye(5), np.eye(5)]))


@pytest.mark.parametrize("merge", ["concat", "sum", "average", "product"])
@pytest.mark.parametrize("calibrated", [True, False])
def test_golden_is_close_to_float_with_lengths(merge: str, calibrated: bool) -> None:
    rng = np.random.default_rng(5)
    width = 10 if merge == "concat" else 5
    layers = (
        lstm(rng, 4, 6),
        both(rng, 6, 5, merge),
        dense(rng, width, 7),
        lstm(rng, 7, 3, reverse=True),
        lstm(rng, 3, 3),
        both(rng, 3, 5, merge),
    )
    network = Network(layers=layers)
    x, lengths = rng.uniform(-1, 1, (9, 4, 4)), np.array([9, 3, 1, 5])
    settings = QuantizationSettings(weight_bits=18, data_bits=18, cell_bits=24)
    quantised = quantise(network, settings, calibration=x if calibrated else None)
    h = [rng.uniform(-0.9, 0.9, (4, layer.units)) for layer in network.pseudo_layers]
    c = [rng.uniform(-0.9, 0.9, (4, layer.units)) for layer in network.pseudo_layers]
    numerics, integers = quantised.numerics, quantised.numerics.quantise_input(x)
    state = [numerics.hidden.to_integers(one) for one in h], [numerics.cell.to_integers(one) for one in c]
    found = Golden(quantised).run(integers, state, lengths)
    expected = run_float(network, x, (h, c), lengths)
    y = quantised.shapes[-1].output.to_floats(found.y)
    np.testing.assert_allclose(y, expected.y, atol=2e-3)
    assert not y[np.arange(9)[:, None] >= lengths].any()
    for ours, theirs in zip(found.h, expected.h, strict=True):
        np.testing.assert_allclose(numerics.hidden.to_floats(ours), theirs, atol=2e-3)
    for ours, theirs in zip(found.c, expected.c, strict=True):
        np.testing.assert_allclose(numerics.cell.to_floats(ours), theirs, atol=4e-3)


def test_golden_refuses_single_steps() -> None:
    golden = Golden(quantise(Network(layers=(both(np.random.default_rng(6), 3, 2),))))
    with pytest.raises(InputError, match="whole sequences"):
        golden.stream()
