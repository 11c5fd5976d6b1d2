"""Builds whose direct tables of sigmoid have one half: golden model, second model and RTL agree on every bit."""

from pathlib import Path

import pytest
from support.cell_networks import CELL_NETWORKS
from support.random_builds import Case, make_case
from support.second_model import SecondModel, State
from support.small_builds import network
from support.step_checks import check_device

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.network import Network
from rtlstm.spec.parameters import Parameters

SETTINGS = QuantizationSettings(weight_bits=6, data_bits=8, gate_bits=10, cell_bits=12, tables="direct")
LSTM, GRU = network(), CELL_NETWORKS["two_reset_before"]


def make(source: Network, family: str, steps: int = 6) -> Case:
    """A build with two gate units; each of its sigmoid tables has one half."""
    quantised = quantise(source, SETTINGS)
    halved = [table.complemented for table in quantised.numerics.tables if str(table.function) == "sigmoid"]
    assert halved and all(halved)
    parameters = Parameters.for_family(
        family, lanes=8, macs=2, streams=2, gate_units=2, beat_out=2, tables="direct"
    )
    return make_case(1, quantised, parameters, steps=steps)


@pytest.mark.parametrize("source", [LSTM, GRU], ids=["lstm", "gru"])
def test_golden_equals_the_second_model(source: Network) -> None:
    case = make(source, "generic", steps=100)
    y, results = case.golden()
    second = SecondModel(case.network)
    for stream, result in enumerate(results):
        state = State.of(*([part[stream] for part in parts] for parts in case.state))
        mine = case.streams == stream
        assert second.sequence(case.x[mine].tolist(), state) == y[mine].tolist()
        assert state.c == [part[0].tolist() for part in result.c]


@pytest.mark.rtl
@pytest.mark.parametrize(("source", "family"), [(LSTM, "ecp5"), (LSTM, "generic"), (GRU, "ecp5")])
def test_icarus_equals_golden(source: Network, family: str, tmp_path: Path) -> None:
    check_device(make(source, family), tmp_path, "icarus")
