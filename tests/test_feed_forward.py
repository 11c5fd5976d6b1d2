"""Networks without a recurrent layer: every bit is golden's, every cycle is predicted."""

from pathlib import Path

import numpy as np
import pytest
from support.loadable_builds import build_for, make_device, stacked
from support.random_builds import make_case
from support.small_builds import NARROW
from support.step_checks import check_device
from test_loadable import SMALL, switch

from rtlstm.gen.builds.compiled import compile
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import InputError
from rtlstm.spec.family import Pipeline
from rtlstm.spec.network import Dense, Network
from rtlstm.spec.parameters import Parameters

pytestmark = pytest.mark.rtl


def with_residual(width: int = 5) -> Network:
    """A dense layer, and one that adds the input to what it makes of its results."""
    rng = np.random.default_rng(3)
    first = Dense(weight=rng.normal(size=(7, width)), bias=rng.normal(size=7), activation="relu")
    second = Dense(
        weight=rng.normal(size=(width, 7)), bias=rng.normal(size=width), skip=np.eye(width), skips=2
    )
    copy = Dense(weight=np.eye(width), bias=np.zeros(width))
    return Network(layers=(copy, first, second))


NETWORKS = {
    "one layer": (stacked(5, dense=((3, "identity"),)), Parameters(lanes=4, macs=2, streams=2)),
    "three layers": (
        stacked(6, dense=((11, "relu"), (9, "tanh"), (3, "sigmoid"))),
        Parameters(lanes=8, macs=4, gate_units=2, beat_in=2, beat_out=2),
    ),
    "registered": (
        stacked(3, dense=((9, "leaky_relu"), (4, "tanh"))),
        Parameters(lanes=4, macs=3, streams=3, beat_in=3, pipeline=Pipeline(accept=1, operand=4)),
    ),
    "a word in a beat": (stacked(2, dense=((3, "relu"),)), Parameters(lanes=4, macs=1)),
    "a vector in a beat": (stacked(4, dense=((3, "tanh"),)), Parameters(lanes=4, macs=4, beat_in=4)),
    "the drain is the limit": (
        stacked(8, dense=((48, "identity"),)),
        Parameters(lanes=16, macs=8, beat_in=8),
    ),
    "a residual": (with_residual(), Parameters(lanes=8, macs=2, streams=2)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, tmp_path: Path) -> None:
    """With stalls, streams in any order and outputs that are not wanted."""
    network, parameters = NETWORKS[name]
    case = make_case(1, quantise(network, NARROW), parameters, 8)
    assert case.manifest.program.body == 0 and case.manifest.cycles.recurrent_cycles == 0
    check_device(case, tmp_path, "icarus")


def test_a_loadable_core_takes_both_kinds(tmp_path: Path) -> None:
    """From a network with states to one without, and back."""
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), SMALL)
    switch(device, [build_for(stacked(6, dense=((9, "relu"), (4, "tanh"))), device)], "icarus", tmp_path)


def test_a_loadable_core_takes_one_layer(tmp_path: Path) -> None:
    """Its step is shorter than its outputs take to leave: the program has many idle cycles."""
    device = make_device(stacked(3, 5, dense=((2, "sigmoid"),)), SMALL)
    wide = build_for(stacked(6, dense=((8, "identity"),)), device)
    assert wide.manifest.program.ops[0].idle_cycles > device.manifest.parameters.partial_to_add
    switch(device, [wide], "icarus", tmp_path)


def test_a_loadable_core_made_from_one(tmp_path: Path) -> None:
    device = make_device(stacked(6, dense=((9, "relu"), (4, "tanh"))), SMALL)
    switch(device, [build_for(stacked(3, 5, dense=((2, "sigmoid"),)), device)], "icarus", tmp_path)


def test_driver(tmp_path: Path) -> None:
    """Batches and streams as ever; the state is empty, and another one is refused."""
    network = stacked(6, dense=((9, "relu"), (3, "tanh")))
    x = np.random.default_rng(0).uniform(-1, 1, (7, 3, 6))
    build = compile(network, folder=tmp_path / "build", calibration=x)
    with build.open("golden") as accelerator:
        y, (h, c) = accelerator.run(x)
        assert (h, c) == ((), ())
        np.testing.assert_allclose(y, run_float(network, x).y, atol=1e-3)
        np.testing.assert_array_equal(accelerator.run(x, state=(h, c))[0], y)
        with accelerator.stream() as stream:
            np.testing.assert_array_equal(stream.step(x[0, 0]), y[0, 0])
            assert stream.state == ((), ())
        with pytest.raises(InputError, match="h_0 must be an empty tuple"):
            accelerator.run(x, state=(np.zeros((1, 3, 4)), ()))
