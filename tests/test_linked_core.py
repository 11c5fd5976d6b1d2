"""A core behind its serial port, as the driver meets it: every step once, with faults and without."""

import numpy as np
import pytest
from support.linked_core import LinkedPort, compile_linked
from support.quick import quick
from support.random_builds import Case, make_case

from rtlstm import ConfigurationError, Lstm, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.emit.verilog import linked_core_to_verilog
from rtlstm.host.device import Device
from rtlstm.host.link.byte_ports import BytePort
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.faults import FaultyPort
from rtlstm.sim.golden import Golden
from rtlstm.spec.packing import pack
from rtlstm.spec.registers import Register

pytestmark = pytest.mark.rtl

DIVISOR = 4
CLOCK_HZ = 12e6
"""With the divisor, 3 Mbaud."""
TIMEOUTS = LinkTimeouts(retry=0.005, least_retry=0.002, most_retry=0.1)


def build() -> Case:
    rng = np.random.default_rng(0)
    shapes = {"w_ih": (80, 6), "w_hh": (80, 20), "bias": (80,)}
    layer = Lstm(name="lstm", **{name: rng.normal(size=shape) for name, shape in shapes.items()})
    network = quantise(Network(layers=(layer,)), QuantizationSettings(data_bits=8))
    return make_case(1, network, Parameters(lanes=4, macs=4), 4)


@pytest.fixture(scope="module")
def case() -> Case:
    return build()


def linked(case: Case, seed: int = 1, mismatch: float = 0.0) -> LinkedPort:
    library = compile_linked(linked_core_to_verilog(case.manifest, DIVISOR), f"{case.manifest.name}_link")
    return LinkedPort(library, DIVISOR, seed, mismatch, CLOCK_HZ)


def opened(line: BytePort, case: Case) -> LinkTransport:
    """Open a link and load the weights through it."""
    transport = LinkTransport(line, case.manifest, TIMEOUTS, seed=1)
    device = Device(transport, case.manifest)
    device.identify()
    device.load(pack(case.network, case.manifest), verify=False)
    device.reset([0])
    return transport


def run(transport: LinkTransport, case: Case, count: int, longest: int) -> None:
    """Run steps, some with suppressed output, in random exchanges; compare every word and the count."""
    rng = np.random.default_rng(count)
    bounds = case.network.numerics.input
    x = rng.integers(bounds.lowest, bounds.maximum, size=(count, case.network.inputs), endpoint=True)
    suppress = rng.random(count) < 0.3
    parts, begin = [], 0
    while begin < count:
        part = slice(begin, begin + int(rng.integers(1, longest)))
        parts.append(transport.exchange(np.zeros(len(x[part]), dtype=np.int64), x[part], suppress[part]))
        begin = part.stop
    wanted = Golden(case.network).run(x[:, None]).y[:, 0].copy()
    wanted[suppress] = 0
    np.testing.assert_array_equal(np.concatenate(parts), wanted)
    assert transport.read(Register.STEPS)[0] == (~suppress).sum()


@pytest.mark.slow
def test_line_is_full(case: Case) -> None:
    """At 3 Mbaud the outputs' bytes alone take more than nine tenths of the line."""
    line = linked(case)
    with opened(line, case) as transport:
        transport.flush()
        count, begin = 1000, line.cycle
        transport.exchange(
            np.zeros(count, dtype=np.int64), np.zeros((count, case.network.inputs), dtype=np.int64)
        )
        assert count * case.network.outputs * 10 * DIVISOR / (line.cycle - begin) > 0.9
        assert transport.statistics.repeated == 0
        assert line.errors == line.bad_stops == 0


@pytest.mark.parametrize(("seed", "mismatch"), quick([(1, 0.0), (2, 0.02), (3, -0.02)], (2, 0.02)))
def test_every_step_once_on_a_bad_line(case: Case, seed: int, mismatch: float) -> None:
    line = linked(case, seed, mismatch)
    bad = FaultyPort(line, rate=0.1, seed=seed, longest=0.005)
    transport = opened(bad, case)
    run(transport, case, 300, longest=40)
    assert len(bad.counts) > 5
    assert transport.statistics.repeated > 0
    assert line.errors > 0


@pytest.mark.slow
def test_ten_thousand_steps_at_one_fault_in_a_hundred_frames(case: Case) -> None:
    bad = FaultyPort(linked(case), rate=0.01, seed=4, longest=0.005)
    transport = opened(bad, case)
    run(transport, case, 10_000, longest=60)
    assert len(bad.counts) > 5 and transport.statistics.repeated > 0


def test_what_the_link_cannot_serve(case: Case) -> None:
    layer = Lstm(name="wide", w_ih=np.ones((4, 20_000)), w_hh=np.ones((4, 1)), bias=np.ones(4))
    wide = quantise(Network(layers=(layer,)), QuantizationSettings(data_bits=8))
    with pytest.raises(ConfigurationError, match="too little for 20000 inputs and 1 outputs"):
        linked_core_to_verilog(make_case(1, wide, Parameters(), 1).manifest, DIVISOR)
    with pytest.raises(ConfigurationError, match="must be at least 4, not 2"):
        linked_core_to_verilog(case.manifest, 2)
