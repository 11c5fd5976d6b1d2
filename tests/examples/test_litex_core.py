"""The LiteX module in a SoC that LiteX makes: the driver takes steps over the SoC's bus, in Icarus."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.bus_builds import SETTINGS, SIZES, quantised_network, small_network
from support.loadable_builds import Build, build_for, make_device, stacked
from support.quick import quick

from rtlstm import Accelerator, Manifest, Parameters
from rtlstm.gen.builds.generate import generate_build
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host.mmio import MmioTransport
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.simulated_board import SimulatedRegisters
from rtlstm.spec.registers import Interrupt, Register

pytestmark = pytest.mark.rtl

HERE = Path(__file__).parent
BASE = 0x9000_0000 // 4
"""The core's address on the bus, as docs/integrate.md has it, in words."""


@dataclass
class Soc:
    """A simulated SoC."""

    registers: SimulatedRegisters
    build: Path
    csr: dict[str, int]
    """Word address of each of LiteX's own registers."""

    def interrupted(self) -> bool:
        return self.registers.ask("i 0") == 1


def write_build(folder: Path, bus: str) -> Path:
    """The build that docs/integrate.md names."""
    build, parameters = folder / "build" / "vad", Parameters(bus=bus, **SIZES)
    generate_build(small_network(), build, name="vad", settings=SETTINGS, parameters=parameters)
    return build


def write_pair(folder: Path) -> tuple[list[Build], list[Path]]:
    """A device of two networks in its place, an encoder, and a decoder for it."""
    parameters = Parameters(lanes=8, macs=4, streams=2, bus="wishbone")
    encoder = make_device(stacked(3, 6), parameters, name="vad", networks=2, operations=40)
    decoder = build_for(stacked(4, 6, dense=((9, "identity"),), seed=2), encoder)
    places = folder / "build" / "vad", folder / "build" / "decoder"
    verilog = core_to_verilog(encoder.manifest)
    builds = [encoder, decoder]
    return builds, [each.save(place, verilog) for each, place in zip(builds, places, strict=True)]


@pytest.fixture(
    params=quick([(("none", "axilite"),), (("picorv32", "wishbone"),)], (("none", "axilite"),)), ids="-".join
)
def soc(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Soc]:
    """Without a CPU and with one; the SoC's bus is Wishbone, to which LiteX adapts AXI4-Lite."""
    cpu, bus = request.param
    with simulated(tmp_path, write_build(tmp_path, bus), cpu) as made:
        yield made


@contextmanager
def simulated(folder: Path, build: Path, cpu: str) -> Iterator[Soc]:
    """A SoC with this build: LiteX knows its sizes, and Icarus runs it."""
    done = subprocess.run(
        [sys.executable, HERE / "litex_soc.py", cpu, "soc.v"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told, manifest = json.loads(done.stdout), Manifest.load(build)
    assert told["memories"]["vad"] == {"base": 4 * BASE, "size": 128, "type": "io"}
    constants = {name: value for name, value in told["constants"].items() if name.startswith("vad_")}
    assert constants.pop("vad_interrupt", None) == (None if cpu == "none" else 3)
    assert constants == {
        "vad_build_number": manifest.build_number,
        "vad_inputs": manifest.program.inputs,
        "vad_outputs": manifest.program.outputs,
        "vad_streams": manifest.parameters.streams,
        "vad_networks": manifest.parameters.networks,
    }
    csr = {name: each["addr"] // 4 for name, each in told["csr_registers"].items()}
    sources = [HERE / "litex_soc.v", folder / "soc.v", build / "rtl" / "vad.v"]
    if cpu != "none":
        import pythondata_cpu_picorv32

        sources.append(Path(pythondata_cpu_picorv32.data_file("picorv32.v")))
    registers = SimulatedRegisters(folder / f"{cpu}.vvp", "litex_soc", sources, BASE)
    yield Soc(registers, build, csr)
    registers.process.kill()
    registers.close()


def test_steps_over_the_bus_are_golden(soc: Soc) -> None:
    manifest = Manifest.load(soc.build)
    numerics = manifest.numerics.input
    x = np.random.default_rng(1).integers(numerics.lowest, numerics.maximum, (5, manifest.program.inputs))
    found = []
    for transport in (MmioTransport(soc.registers, manifest), GoldenDevice(soc.build, manifest)):
        accelerator = Accelerator(transport, manifest)
        accelerator.load_weights(soc.build / "weights.bin")
        found.append(accelerator.run(x))
        if isinstance(transport, MmioTransport):
            check_interrupt(soc, accelerator, x[0])
    (y, state), (wanted, wanted_state) = found
    np.testing.assert_array_equal(y, wanted)
    for one, other in zip((*state[0], *state[1]), (*wanted_state[0], *wanted_state[1]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_networks_in_a_soc(tmp_path: Path) -> None:
    """Steps of both over the SoC's bus, and an encoder's stream that the decoder goes on with: all golden."""
    builds, folders = write_pair(tmp_path)
    (x, z), found = [build.inputs(4)[:, 0] for build in builds], []
    manifest = builds[0].manifest
    with simulated(tmp_path, folders[0], "none") as soc:
        for transport in (MmioTransport(soc.registers, manifest), GoldenDevice(folders[0], manifest)):
            accelerator = Accelerator(transport, manifest)
            accelerator.load(folders[0], verify=False).load(folders[1], verify=False, network=1)
            first, second = accelerator.stream(), accelerator.stream(network=1)
            said = [each for step in range(4) for each in (first.step(x[step]), second.step(z[step]))]
            second.close()
            with accelerator.stream(network=1, after=first) as after:
                found.append([*said, *after.steps(z)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def check_interrupt(soc: Soc, accelerator: Accelerator, x: np.ndarray) -> None:
    """A step that is done raises the interrupt, through LiteX's event manager, until it is cleared."""
    registers = soc.registers
    registers.write(Register.IRQ_PENDING, Interrupt.DONE | Interrupt.LINK_ERROR)
    registers.write(Register.IRQ_ENABLE, Interrupt.DONE)
    registers.ask(f"w {soc.csr['vad_ev_enable']:x} 1")
    assert not soc.interrupted()
    with accelerator.stream() as stream:
        stream.step(x)
    assert soc.interrupted()
    assert registers.ask(f"r {soc.csr['vad_ev_pending']:x}") == 1
    registers.write(Register.IRQ_PENDING, Interrupt.DONE)
    assert not soc.interrupted()


def test_other_buses_are_refused(tmp_path: Path) -> None:
    manifest = Manifest.of("vad", quantised_network(), Parameters(bus="axi", **SIZES))
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    program = f"from rtlstm.litex import RtlstmCore; RtlstmCore(None, {str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "needs a build with `bus='wishbone'` or `bus='axilite'`, but the bus of vad is axi" in done.stderr
