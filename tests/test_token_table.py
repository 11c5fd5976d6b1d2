"""Cores that look up tokens: one number at the port for each step, and the table's row in its stead."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.linked_core import LinkedPort, compile_linked
from support.netlist import netlist_build
from support.no_logic import no_logic
from support.quick import quick
from support.small_builds import normal_lstm

import rtlstm
from rtlstm import Accelerator, ConfigurationError, InputError, Manifest, QuantizationSettings, WeightImage
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.hardware import ArrayRequest
from rtlstm.gen.frontends import read_if_needed
from rtlstm.hdl.emit.verilog import linked_core_to_verilog
from rtlstm.host.device import Device
from rtlstm.host.embeddings import Embedding
from rtlstm.host.link.engine import LinkTimeouts
from rtlstm.host.link.framing import Deframer, Frame
from rtlstm.host.link.link_transport import LinkTransport
from rtlstm.sim.faults import FaultyPort
from rtlstm.sim.golden import Golden
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.link_device import DeviceEngine
from rtlstm.sim.link_port import SimulatedPort
from rtlstm.sim.port_server import PortServer
from rtlstm.sim.scoreboard import Scoreboard
from rtlstm.spec.inventory import memories
from rtlstm.spec.link import LINK_VERSION, ErrorCode, FrameType
from rtlstm.spec.network import Bidirectional, Dense, Network
from rtlstm.spec.packing import unpack
from rtlstm.spec.registers import Region

ROWS, WIDTH, UNITS = 9, 5, 6
SETTINGS = QuantizationSettings(weight_bits=8, data_bits=10)
ARRAY: dict[str, Any] = {"lanes": 4, "macs": 2, "streams": 2}


def network(*layers: Any, rows: int = ROWS) -> Network:
    rng = np.random.default_rng(3)
    head = Dense(name="fc", weight=rng.normal(size=(rows, UNITS)) * 2, bias=rng.normal(size=rows) * 0.1)
    return Network(name="words", layers=layers or (normal_lstm(rng, WIDTH, UNITS), head))


def table(rows: int = ROWS, width: int = WIDTH) -> Embedding:
    return Embedding(name="words", table=np.random.default_rng(4).normal(size=(rows, width)) * 2)


def make(folder: Path, token_table: str = "core", **options: Any) -> rtlstm.Build:
    read = read_if_needed(options.pop("network", None) or network())
    read = read.replace(embeddings=options.pop("embeddings", (table(),)))
    capacities = options.pop("capacities", None)
    array = ArrayRequest(token_table=token_table, **ARRAY | options)
    generate_build(read, folder, array=array, settings=SETTINGS, capacities=capacities)
    return rtlstm.Build(folder)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[rtlstm.Build, rtlstm.Build]:
    """The build that looks up itself, and the same network with the table on the host."""
    folder = tmp_path_factory.mktemp("tokens")
    with no_logic():
        return make(folder / "core"), make(folder / "host", "host")


TOKENS = np.random.default_rng(1).integers(0, ROWS, (7, 3))


def test_the_core_computes_what_it_does_of_rows(builds: tuple[rtlstm.Build, rtlstm.Build]) -> None:
    core, host = builds
    assert (core.inputs, host.inputs) == (1, WIDTH)
    y, (h, c) = core.run(TOKENS, batch_first=False)
    wanted, (wanted_h, wanted_c) = host.run(TOKENS, batch_first=False)
    assert y.dtype == wanted.dtype
    assert np.array_equal(y, wanted)
    assert np.array_equal(h, wanted_h) and np.array_equal(c, wanted_c)
    assert np.array_equal(core.run(TOKENS.T, batch_first=True)[0], wanted.swapaxes(0, 1))
    assert np.array_equal(core.run(TOKENS[:, 0])[0], wanted[:, 0])
    padded = np.where(np.arange(7)[:, None] < [7, 4, 2], TOKENS, -1)
    lengths = np.array([7, 4, 2])
    assert np.array_equal(
        core.run(padded, lengths, batch_first=False)[0], host.run(padded, lengths, batch_first=False)[0]
    )


def test_streams_and_decoding(builds: tuple[rtlstm.Build, rtlstm.Build]) -> None:
    core, host = builds
    wanted = host.run(TOKENS, batch_first=False)[0]
    with core.open() as accelerator, host.open() as other:
        with accelerator.stream() as one, accelerator.stream() as two:
            assert np.array_equal(one.step(int(TOKENS[0, 0])), wanted[0, 0])
            assert np.array_equal(one.steps(TOKENS[1:3, 0]), wanted[1:3, 0])
            both = accelerator.step_many([one, two], [TOKENS[3, 0], TOKENS[0, 1]])
            assert np.array_equal(both, [wanted[3, 0], wanted[0, 1]])
        found, _ = accelerator.decode([0, 3, 8], steps=6)
        assert np.array_equal(found, other.decode([0, 3, 8], steps=6)[0])


def test_the_lookup_costs_what_the_schedule_says(builds: tuple[rtlstm.Build, rtlstm.Build]) -> None:
    core, host = builds
    # A beat has one of five values; the first comes after three cycles.
    assert core.manifest.parameters.look_up_cycles(WIDTH) == 3 + WIDTH - 1
    for name in ("step_latency_cycles", "first_step_latency_cycles"):
        assert getattr(core.manifest.cycles, name) == getattr(host.manifest.cycles, name) + 3 + WIDTH - 1
    assert core.manifest.cycles.step_interval_cycles == host.manifest.cycles.step_interval_cycles


def test_the_table_is_a_memory_with_the_weights(builds: tuple[rtlstm.Build, rtlstm.Build]) -> None:
    core, host = builds
    memory = memories(core.manifest)["token table"]
    assert (memory.width, memory.depth) == (10, ROWS * 8)
    assert core.manifest.regions[Region.TOKENS].image_rows == ROWS * 8
    header = (core.folder / "rtlstm_registers.h").read_text()
    assert "#define RTLSTM_INPUTS 1\n" in header and "#define RTLSTM_DATA_BITS 5\n" in header
    assert "token_rows" not in host.manifest.to_json() and Region.TOKENS not in host.manifest.regions
    assert "--token-table core" in core.verilog.read_text()
    assert Manifest.load(core.folder) == core.manifest


CASES: dict[str, dict[str, Any]] = {
    "a value in a beat": {},
    "two values in a beat": {"beat_in": 2},
    "all values in a beat": {"macs": 8, "beat_in": 8, "streams": 1},
    "with registers": {"family": "ecp5", "decide": "argmax"},
    "a wave-front": {"streams": 1, "wave_front": True, "network": network()},
}


@pytest.mark.rtl
@pytest.mark.parametrize("simulator", [pytest.param("verilator", marks=pytest.mark.slow), "icarus"])
@pytest.mark.parametrize("case", quick(CASES, "two values in a beat"))
def test_the_hardware_gives_the_same(case: str, simulator: Any, tmp_path: Path) -> None:
    build = make(tmp_path / "build", **CASES[case])
    found, _ = compare(build.folder, TOKENS, simulator=simulator, batch_first=False)
    assert found.passed, found
    with build.open() as golden, Accelerator.open(build.folder, simulator) as accelerator:
        measured = []
        for each in (golden, accelerator):
            with each.stream() as stream:
                for token in (3, 0):
                    stream.step(token)
                    measured.append(each.measured_latency_cycles)
        cycles = build.manifest.cycles
        assert measured == [cycles.first_step_latency_cycles, cycles.step_latency_cycles] * 2


def test_without_data_the_range_is_that_of_the_table(
    builds: tuple[rtlstm.Build, rtlstm.Build], tmp_path: Path
) -> None:
    largest = float(np.abs(table().table).max())
    with no_logic():
        half = make(tmp_path / "b", embeddings=(Embedding(name="words", table=table().table / largest),))
    for each, most in ((builds[0], largest), (builds[1], largest), (half, 1.0)):
        form = each.manifest.numerics.input
        assert most - form.step <= form.limit < 2 * most
        assert "input range" not in " ".join(each.report().assumptions)


def test_one_number_crosses_the_link(builds: tuple[rtlstm.Build, rtlstm.Build]) -> None:
    core, host = builds
    sizes = []
    for build in (core, host):
        engine = DeviceEngine(GoldenDevice(build.folder, build.manifest), build.manifest)
        sizes.append(engine._x_bytes)
        with (
            PortServer(SimulatedPort(engine), tcp=0) as server,
            Accelerator.open(build.folder, f"tcp:127.0.0.1:{server.port}") as accelerator,
        ):
            y, _ = accelerator.run(TOKENS, batch_first=False)
            assert np.array_equal(y, host.run(TOKENS, batch_first=False)[0])
    assert sizes == [1, 2 * WIDTH]


def test_a_board_server_answers_a_token_beyond_the_table(builds: tuple[rtlstm.Build, rtlstm.Build]) -> None:
    """As it answers what else its device cannot do; what comes then is right."""
    core, host = builds
    with core.open() as accelerator:
        engine = DeviceEngine(accelerator.device.transport, core.manifest)

        def ask(kind: FrameType, seq: int, *payload: int) -> Frame:
            engine.receive(Frame(kind, 7, seq, seq, bytes(payload)).to_wire())
            while engine.work():
                pass
            (answer,) = Deframer(engine.limits.body).feed(engine.transmit())
            return answer

        assert ask(FrameType.HELLO, 0, LINK_VERSION, 0, 0).type == FrameType.REPORT
        for seq, token in enumerate((ROWS, 15, 16, 31)):
            answer = ask(FrameType.STEPS, seq, 0, 0, token)
            assert (answer.type, *answer.payload) == (FrameType.ERROR, ErrorCode.DEVICE)
        answer = ask(FrameType.STEPS, 4, 0, 0, ROWS - 1)
        assert answer.type == FrameType.DONE
        y = np.frombuffer(answer.payload, dtype="<i2")
        wanted = host.run(np.array([ROWS - 1]))[0][0]
        assert np.array_equal(core.manifest.output.to_floats(y), wanted)
    for beat, token in ((ROWS, ROWS), (31, -1)):  # A beat is an unsigned number of 5 bits.
        with pytest.raises(AssertionError, match=f"x_data must be a token of 0 to {ROWS - 1}, not {token}"):
            Scoreboard(core.manifest).input_beat(beat, 0, False, False, 0)


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("bus", ["axi", "axilite"])
def test_tokens_behind_a_bus(bus: str, tmp_path: Path) -> None:
    build = make(tmp_path / "build", bus=bus)
    found, _ = compare(build.folder, TOKENS, simulator="verilator", batch_first=False, verify=False)
    assert found.passed, found.first_difference


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.tools
def test_the_netlist_looks_up(tmp_path: Path) -> None:
    build = make(tmp_path / "build", family="ecp5", decide="argmax")
    netlist = netlist_build(build.folder, build.manifest, tmp_path / "netlist")
    found, _ = compare(netlist, TOKENS, simulator="verilator", batch_first=False, verify=False)
    assert found.passed, found.first_difference


@pytest.mark.slow
@pytest.mark.rtl
def test_the_link_in_hardware_takes_tokens(tmp_path: Path) -> None:
    """Rows of two bytes' numbers, on a line with faults."""
    with no_logic():
        build = make(tmp_path / "build", embeddings=(table(300),))
    manifest = build.manifest
    library = compile_linked(linked_core_to_verilog(manifest, 4), f"{manifest.name}_link")
    transport = LinkTransport(
        FaultyPort(LinkedPort(library, 4, 1, 0.0, 12e6), rate=0.05, seed=1, longest=0.005),
        manifest,
        LinkTimeouts(retry=0.005, least_retry=0.002, most_retry=0.1),
        seed=1,
    )
    device = Device(transport, manifest)
    device.identify()
    image = WeightImage.load(build.folder / "weights.bin", manifest)
    device.load(image, verify=True)
    device.reset([0, 1])
    tokens = np.random.default_rng(5).integers(0, 300, (60, 1))
    network = unpack(image, manifest)
    wanted = Golden(network).run(network.looked_up(tokens[:, None])).y[:, 0]
    nothing = np.zeros(60, dtype=np.int64)
    np.testing.assert_array_equal(transport.exchange(nothing, tokens, nothing > 0), wanted)


def test_what_is_no_token_is_refused(builds: tuple[rtlstm.Build, rtlstm.Build]) -> None:
    core, host = builds
    rows = table()(TOKENS)
    for x in (rows, rows[..., :1], TOKENS[None, None]):
        with pytest.raises(InputError, match="tokens"):
            core.run(x, batch_first=False)
    with pytest.raises(InputError, match=f"tokens from 0 to {ROWS - 1}"):
        core.run(TOKENS + 1, batch_first=False)
    # What the messages name works.
    assert host.run(rows, batch_first=False)[0].shape == (7, 3, ROWS)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"capacities": {}}, "a loadable core takes others"),
        ({"embeddings": ()}, "this one has none"),
        ({"embeddings": (table(width=3),)}, "nothing beside it"),
        ({"embeddings": (table(rows=40000),)}, "2 to 32768 rows"),
        (
            {
                "network": network(
                    Bidirectional(
                        forward=normal_lstm(np.random.default_rng(1), WIDTH, UNITS),
                        backward=normal_lstm(np.random.default_rng(2), WIDTH, UNITS, reverse=True),
                    )
                ),
                "max_steps": 4,
            },
            "of whole sequences",
        ),
    ],
    ids=["loadable", "no table", "features beside", "too many rows", "whole sequences"],
)
def test_what_is_not_there_is_refused(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with no_logic():
        with pytest.raises(ConfigurationError, match=reason) as refused:
            make(tmp_path / "build", **options)
        assert "leave" in str(refused.value)
        if options.get("embeddings") != ():
            make(tmp_path / "build", "host", **options)
