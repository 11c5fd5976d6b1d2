"""Other widths: a network quantised anew over the ranges that it had."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from support.cell_networks import CELL_NETWORKS
from support.drawn_networks import DrawnBuild, drawn_builds

from rtlstm.gen.accuracy.widths import build_settings, same_integers
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise, requantise
from rtlstm.spec.errors import ConfigurationError

common = settings(
    max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@common
@given(drawn_builds(whole=False))
def test_the_same_widths_give_the_same_integers(drawn: DrawnBuild) -> None:
    check(drawn)


@common
@given(drawn_builds(whole=True))
def test_the_same_widths_of_whole_sequences(drawn: DrawnBuild) -> None:
    check(drawn)


def check(drawn: DrawnBuild) -> None:
    x = np.random.default_rng(drawn.seed).normal(size=(8, 2, drawn.network.inputs))
    try:
        network = quantise(drawn.network, drawn.settings, x if drawn.calibrated else None)
    except ConfigurationError:
        reject()
    widths = build_settings(network, drawn.settings.tables)
    again = requantise(drawn.network, widths, network)
    assert again.numerics == network.numerics
    assert again.shapes == network.shapes
    assert same_integers(again, network)
    finer = requantise(drawn.network, widths.replace(cell_bits=widths.cell_bits + 1), network)
    assert finer.numerics.cell.limit == pytest.approx(network.numerics.cell.limit, rel=0.01)


def test_input_shifts_are_kept() -> None:
    network = CELL_NETWORKS["gru"]
    x = np.random.default_rng(0).normal(size=(40, 2, network.inputs)) * [1.0, 1e-3, 0.1]
    found = quantise(network, QuantizationSettings(weight_bits=12, data_bits=8), x)
    assert any(found.numerics.input_shifts)
    wider = requantise(network, QuantizationSettings(weight_bits=12, data_bits=9), found)
    assert wider.numerics.input_shifts == found.numerics.input_shifts
    assert wider.numerics.input.fraction == found.numerics.input.fraction + 1
