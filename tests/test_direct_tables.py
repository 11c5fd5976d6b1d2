"""Direct tables on two ports of a memory: golden and second model and RTL agree."""

from pathlib import Path

import pytest
from support.cell_networks import CELL_NETWORKS
from support.device_pair import pair
from support.quick import quick
from support.random_builds import Case, make_case
from support.second_model import SecondModel, State
from support.small_builds import network
from support.step_checks import check_device

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.inventory import memories
from rtlstm.spec.network import Network
from rtlstm.spec.packing import pack
from rtlstm.spec.parameters import Parameters

SETTINGS = QuantizationSettings(weight_bits=6, data_bits=8, gate_bits=10, cell_bits=12, tables="direct")
LSTM, GRU = network(), CELL_NETWORKS["two_reset_before"]


def make(source: Network, family: str, steps: int = 6) -> Case:
    """A build with two gate units."""
    parameters = Parameters.for_family(
        family, lanes=8, macs=2, streams=2, gate_units=2, beat_out=2, tables="direct"
    )
    return make_case(1, quantise(source, SETTINGS), parameters, steps=steps)


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


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize(("source", "family"), [(LSTM, "ecp5"), (GRU, "ecp5")], ids=["lstm-ecp5", "gru-ecp5"])
def test_icarus_equals_golden(source: Network, family: str, tmp_path: Path) -> None:
    case = make(source, family)
    assert any(memory.pairs for memory in memories(case.manifest).values())
    check_device(case, tmp_path, "icarus")


@pytest.mark.rtl
@pytest.mark.parametrize("name", quick(["lstm", "gru"], "lstm"))
def test_tables_stored_after_steps(name: str, tmp_path: Path) -> None:
    """The last steps' pre-activations do not disturb the address at which a pair of tables is written."""
    case = make(LSTM if name == "lstm" else GRU, "ecp5", steps=20)
    case.write(tmp_path)
    image = pack(case.network, case.manifest)
    with pair(tmp_path, "verilator") as both:
        for _ in range(2):
            both.write_states(case)
            both.exchange(case.streams, case.x)
            for accelerator in both.both:
                accelerator.device.load(image, verify=True)
