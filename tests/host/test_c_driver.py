"""The C driver for memory-mapped registers: on the RTL of wrapped builds, and a code for each failure."""

import re
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.bus_builds import SIZES, quantised_network, write_build, write_loadable
from support.c_driver import STRICT, CDriver, write_sources
from support.loadable_builds import make_device, stacked
from support.paths import ROOT, TESTS
from support.quick import quick

from rtlstm import Accelerator, Manifest, Parameters
from rtlstm.boards.zynq import ZYNQ_BOARDS
from rtlstm.gen.builds.on_board import OnZynq
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host.state import StateLayout
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.simulated_board import SimulatedRegisters
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.packing import pack
from rtlstm.spec.registers import IDENTITY, Register

pytestmark = pytest.mark.rtl

NO_VALUE = "a value needs more bits than its format has, or is no token"


@contextmanager
def simulated(folder: Path) -> Iterator[SimulatedRegisters]:
    """A Wishbone build, or the top of a Zynq board with an AXI4-Lite build."""
    if Manifest.load(folder).parameters.bus == "axilite":
        registers = OnZynq.create(folder, ZYNQ_BOARDS["zybo-z7-20"]).simulate()
    else:
        sources = [TESTS / "support" / "wishbone_port.v", folder / "rtl" / "dut.v"]
        registers = SimulatedRegisters(folder / "port.vvp", "wishbone_port", sources)
    yield registers
    registers.process.kill()
    registers.close()


def inputs(manifest: Manifest, *shape: int) -> IntArray:
    form, tokens = manifest.numerics.input, manifest.parameters.token_rows
    lowest, most = (0, tokens - 1) if tokens else (form.lowest, form.maximum)
    shape = (*shape, manifest.input_port.values)
    return np.random.default_rng(3).integers(lowest, most, shape, endpoint=True)


def values(y: NDArray[Any]) -> NDArray[Any]:
    """Outputs as C programs get them: numbers of the largest ones, then their scores."""
    return y if y.dtype.names is None else np.concatenate([y[name] for name in y.dtype.names], axis=-1)


def read_state(driver: CDriver, stream: int) -> IntArray:
    """h and cells of all layers, one after the other."""
    layout = StateLayout(driver.manifest)
    h, c = (np.full(sum(sizes), -1, dtype=np.int32) for sizes in (layout.sizes, layout.cell_sizes))
    assert driver.read_state(stream, h, c) == 0
    return np.concatenate((h, c))


@contextmanager
def golden_device(folder: Path) -> Iterator[Accelerator]:
    manifest = Manifest.load(folder)
    with Accelerator(GoldenDevice(folder, manifest), manifest) as accelerator:
        accelerator.load_weights(folder / "weights.bin")
        yield accelerator


@pytest.mark.parametrize(
    ("bus", "options"),
    quick(
        [
            ("wishbone", {}),
            ("axilite", {}),
            ("wishbone", {"decide": "top1"}),
            ("axilite", {"decide": "softmax"}),
            ("wishbone", {"token_rows": 9}),
            ("axilite", {"token_rows": 300, "decide": "argmax"}),
        ],
        ("wishbone", {}),
        ("wishbone", {"decide": "top1"}),
    ),
)
def test_steps_and_states_are_golden(bus: str, options: dict[str, Any], tmp_path: Path) -> None:
    manifest = write_build(tmp_path / "build", bus, **options)
    x = inputs(manifest, 3, 7)
    with simulated(tmp_path / "build") as registers, golden_device(tmp_path / "build") as golden:
        driver = CDriver(tmp_path / "c", manifest, registers)
        assert driver.open() == 0
        assert driver.load((tmp_path / "build" / "weights.bin").read_bytes()) == 0
        assert not read_state(driver, 1).any()
        y = driver.run(1, x[0])
        saved = read_state(driver, 1)
        with golden.stream() as stream:
            np.testing.assert_array_equal(y, values(stream.steps(x[0])))
            h, c = stream.state_integers
            np.testing.assert_array_equal(saved, np.concatenate((*h, *c)))
            after = values(stream.step(x[1, 0]))
        # Two streams in turn: outputs come in order, with their streams.
        with golden.stream() as stream:
            other = values(stream.step(x[2, 0]))
        assert driver.send(2, x[2, 0]) == driver.send(1, x[1, 0]) == 0
        for number, wanted in ((2, other), (1, after)):
            found, y = driver.receive()
            assert found == number
            np.testing.assert_array_equal(y, wanted)
        # A state goes on in another stream, and a reset forgets it.
        sizes = StateLayout(manifest).sizes
        assert driver.write_state(0, saved[: sum(sizes)], saved[sum(sizes) :]) == 0
        np.testing.assert_array_equal(read_state(driver, 0), saved)
        np.testing.assert_array_equal(driver.step(0, x[1, 0]), after)
        assert driver.reset(0) == 0
        np.testing.assert_array_equal(driver.step(0, x[2, 0]), other)
        # It opens again, as the next program does, and finds the weights.
        assert driver.open() == 0
        np.testing.assert_array_equal(driver.step(0, x[2, 0]), other)


@pytest.mark.slow
def test_loadable_core_takes_other_networks(tmp_path: Path) -> None:
    write_loadable(tmp_path / "build", "axilite")
    builds = [tmp_path / "build", *sorted((tmp_path / "build").glob("others/*"))]
    with simulated(tmp_path / "build") as registers:
        for number, build in enumerate(builds):
            manifest = Manifest.load(build)
            driver = CDriver(tmp_path / f"c{number}", manifest, registers)
            assert driver.open() == 0
            x = inputs(manifest, 5)
            assert driver.message(driver.step(0, x[0])).startswith("the core has no whole network")
            assert driver.message(driver.load((builds[number - 1] / "weights.bin").read_bytes())) == (
                "the weight image is of another build than the header"
            )
            assert driver.load((build / "weights.bin").read_bytes()) == 0
            with golden_device(build) as golden, golden.stream() as stream:
                np.testing.assert_array_equal(driver.run(2, x), stream.steps(x))
                h, c = stream.state_integers
                np.testing.assert_array_equal(read_state(driver, 2), np.concatenate((*h, *c)))


@pytest.mark.slow
def test_first_network_of_several(tmp_path: Path) -> None:
    """It opens a core of two networks, and loads and runs one as network 0."""
    parameters = Parameters(bus="wishbone", **SIZES)
    device = make_device(stacked(3, 5), parameters, name="dut", networks=2, operations=40)
    build = device.save(tmp_path / "build", core_to_verilog(device.manifest))
    x = inputs(device.manifest, 5)
    with simulated(build) as registers, golden_device(build) as golden, golden.stream() as stream:
        driver = CDriver(tmp_path / "c", device.manifest, registers)
        assert driver.open() == 0
        assert driver.message(driver.step(0, x[0])).startswith("the core has no whole network")
        assert driver.load((build / "weights.bin").read_bytes()) == 0
        np.testing.assert_array_equal(driver.run(2, x), stream.steps(x))


def described(bus: str) -> Manifest:
    """A build without its Verilog."""
    return Manifest.of("dut", quantised_network(), Parameters(bus=bus, **SIZES))


class FalseRegisters:
    """Registers that say what a test puts into them."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.words = {**dict.fromkeys(Register, 0), **manifest.constants, Register.X_ROOM: 4}
        self.resets = self.writes = 0

    def read(self, register: Register) -> int:
        return self.words[register]

    def write(self, register: Register, word: int) -> None:
        self.resets += register == Register.CONTROL
        self.writes += register in (Register.DATA, Register.X_DATA)


@pytest.fixture(scope="module")
def false(tmp_path_factory: pytest.TempPathFactory) -> tuple[CDriver, FalseRegisters]:
    folder, manifest = tmp_path_factory.mktemp("false"), described("wishbone")
    registers = FalseRegisters(manifest)
    driver = CDriver(folder / "c", manifest, registers)
    driver.image = pack(quantised_network(), manifest).to_bytes()
    return driver, registers


@pytest.fixture
def opened(false: tuple[CDriver, FalseRegisters]) -> tuple[CDriver, FalseRegisters]:
    driver, registers = false
    registers.__init__(driver.manifest)
    assert driver.open() == 0
    registers.resets = 0
    return driver, registers


@pytest.mark.parametrize(
    "register, word, message",
    [
        (
            Register.ID,
            IDENTITY ^ 1,
            "no rtlstm core answers at this address; check address, clock and bitstream",
        ),
        (Register.VERSION, 2 << 16, "the core has another register map; generate it again"),
        (Register.BUILD, 1, "the core is of another build than the header"),
        (Register.CAPACITY, 1, "the core is of another build than the header"),
    ],
)
def test_other_devices_are_refused(
    opened: tuple[CDriver, FalseRegisters], register: Register, word: int, message: str
) -> None:
    driver, registers = opened
    registers.words[register] = word
    assert driver.message(driver.open()) == message
    assert registers.resets == 0


@pytest.mark.parametrize(
    "words, message",
    [
        ({Register.X_ROOM: 0}, "the core made no progress, and was reset"),
        ({Register.Y_STEPS: 0}, "the core made no progress, and was reset"),
        ({Register.Y_STEPS: 1, Register.Y_STREAM: 2}, "the core gave another stream's output, and was reset"),
        ({Register.Y_STEPS: 1, Register.LINK_ERRORS: 1}, "the core refused an access, and was reset"),
    ],
)
def test_failed_steps_reset_the_core(
    opened: tuple[CDriver, FalseRegisters], words: dict[Register, int], message: str
) -> None:
    driver, registers = opened
    registers.words |= words
    driver.set_polls(20)
    assert driver.message(driver.run(0, inputs(driver.manifest, 1))) == message
    assert registers.resets == 1


def test_busy_core_is_not_waited_for_on_the_bus(opened: tuple[CDriver, FalseRegisters]) -> None:
    driver, registers = opened
    registers.words[Register.STATUS] = 1
    driver.set_polls(20)
    for code in (driver.reset(0), driver.load(driver.image)):
        assert driver.message(code) == "the core made no progress, and was reset"
    assert (registers.resets, registers.writes) == (2, 0)


def test_wrong_arguments_send_nothing(opened: tuple[CDriver, FalseRegisters]) -> None:
    driver, registers = opened
    numerics, x = driver.manifest.numerics, inputs(driver.manifest, 1)
    layout = StateLayout(driver.manifest)
    h, c = (np.zeros(sum(sizes), dtype=np.int32) for sizes in (layout.sizes, layout.cell_sizes))
    no_stream = "the core has no such stream"
    assert driver.message(driver.step(3, x[0])) == driver.message(driver.reset(3)) == no_stream
    assert (
        driver.message(driver.read_state(3, h, c)) == driver.message(driver.write_state(3, h, c)) == no_stream
    )
    for value in (1 << (numerics.data_bits - 1), -(1 << (numerics.data_bits - 1)) - 1, 2**31 - 1, -(2**31)):
        x[0, -1] = value
        assert driver.message(driver.step(0, x[0])) == NO_VALUE
    c[-1] = 1 << (numerics.cell.bits - 1)
    assert driver.message(driver.write_state(0, h, c)) == NO_VALUE
    damaged = bytearray(driver.image)
    damaged[70] ^= 1
    # A segment that has more words than the file, and the right sum.
    longer = bytearray(driver.image[:-4])
    longer[64] += 1
    longer += zlib.crc32(longer).to_bytes(4, "little")
    for image in (b"", driver.image[:-4], driver.image + b"\0" * 4, damaged, longer):
        assert driver.message(driver.load(bytes(image))) == "the weight image is damaged, or none"
    registers.words[Register.SHAPE] = 0
    assert driver.message(driver.step(0, inputs(driver.manifest, 1)[0])).startswith(
        "the core has no whole network"
    )
    assert (registers.resets, registers.writes) == (0, 0)


def test_no_token_is_sent_that_the_table_has_not(tmp_path: Path) -> None:
    parameters = Parameters(bus="wishbone", token_rows=9, **SIZES)
    registers = FalseRegisters(Manifest.of("dut", quantised_network(), parameters))
    driver = CDriver(tmp_path / "c", registers.manifest, registers)
    assert driver.open() == 0
    driver.set_polls(20)
    for token in (9, 15, 16, -1, -(2**31)):
        assert driver.message(driver.step(0, np.array([token]))) == NO_VALUE
    assert registers.writes == 0
    assert driver.message(driver.step(0, np.array([8]))) == "the core made no progress, and was reset"
    assert registers.writes == 1


def test_refused_image_leaves_no_network(opened: tuple[CDriver, FalseRegisters]) -> None:
    driver, registers = opened
    registers.words[Register.LINK_ERRORS] = 5
    assert driver.message(driver.load(driver.image)) == "the core refused an access, and was reset"
    assert driver.message(driver.step(0, inputs(driver.manifest, 1)[0])).startswith(
        "the core has no whole network"
    )


def test_driver_needs_no_library(tmp_path: Path) -> None:
    """Not even the compiler's, as its object shows. A build with streams has no functions for steps."""
    for bus in ("wishbone", "axi"):
        source, _ = write_sources(tmp_path / bus, described(bus))
        target = source.with_suffix(".o")
        command = ["gcc", *STRICT, "-O2", "-ffreestanding", "-I", source.parent, "-c", "-o", target, source]
        subprocess.run(command, check=True)
        found = subprocess.run(["nm", target], check=True, capture_output=True, text=True).stdout
        kinds = {line.split()[-1]: line.split()[-2] for line in found.splitlines()}
        # Nothing from elsewhere, and no memory.
        assert set(kinds.values()) <= {"T", "t", "R", "r"}, found
        assert ("rtlstm_mmio_step" in kinds) == (bus == "wishbone") and kinds["rtlstm_mmio_load"] == "T"


def test_programs_of_the_page_compile(tmp_path: Path) -> None:
    write_sources(tmp_path, described("wishbone"))
    programs = re.findall(r"^```c\n(.*?)^```", (ROOT / "docs" / "integrate.md").read_text(), re.M | re.S)
    assert programs
    for program in programs:
        (tmp_path / "main.c").write_text(program)
        command = ["gcc", *STRICT, "-I", tmp_path, "-c", "-o", tmp_path / "main.o", tmp_path / "main.c"]
        subprocess.run(command, check=True)
