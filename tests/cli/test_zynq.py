"""``rtlstm bitstream`` for Zynq boards: the folder for Vivado, whose script runs on a model of Vivado."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from support.no_logic import no_logic
from support.small_builds import network
from support.vivado_model import Vivado

from rtlstm import ConfigurationError, Manifest, Parameters, QuantizationSettings
from rtlstm.boards.catalogue import find_board
from rtlstm.boards.zynq import ZYNQ_7000, ZYNQ_BOARDS, ZYNQ_ULTRASCALE, find_fabric_clock
from rtlstm.fpga.devices import find_device
from rtlstm.gen.builds.generate import generate_build
from rtlstm.tools.toolchain import icarus, verilator, verilator_environment

SMALL = QuantizationSettings(weight_bits=4, data_bits=4, gate_bits=6, cell_bits=8)


def zynq_build(folder: Path, **parameters: str) -> Path:
    sizes = {"lanes": 4, "macs": 1, "bus": "axilite", "family": "xilinx"} | parameters
    generate_build(network(), folder, parameters=Parameters(**sizes), settings=SMALL, name="model")
    return folder


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with no_logic():
        return zynq_build(tmp_path_factory.mktemp("zynq") / "a small build")


def place_on(folder: Path, board: str, clock: float | None = None) -> Path:
    """The folder for Vivado."""
    from rtlstm.gen.builds.on_board import OnZynq

    found = OnZynq.create(folder, ZYNQ_BOARDS[board], clock)
    found.write()
    return found.output_folder


@pytest.fixture(scope="module")
def place(build: Path) -> Path:
    """The folder for Vivado of the Zybo, at 60 MHz."""
    return place_on(build, "zybo-z7-20", 60)


@pytest.fixture(scope="module")
def kria(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for Vivado of the KV260."""
    with no_logic():
        build = zynq_build(tmp_path_factory.mktemp("kria") / "small", family="ultrascale")
    return place_on(build, "kv260")


def test_command(cli, build: Path) -> None:
    done = cli("bitstream", build, "--board", "PYNQ-Z2", "--clock", "60").good()
    assert "TUL PYNQ-Z2 (xc7z020clg400-1): 58.8235 MHz from the processor, the nearest below 60" in done.out
    folder = build / "boards" / "pynq-z2"
    assert f"vivado -mode batch -source '{folder / 'build.tcl'}'" in done.out
    assert f"rtlstm run '{build}' --backend mmio:/dev/uio0" in done.out
    assert f"rtlstm implement '{build}' --device xc7z020 (synthesis only)" in done.err
    assert "no bitstream yet" in done.err
    done = cli("bitstream", build, "--board", "pynq-z2", "--json")
    found = done.json["vivado"]
    assert found == json.loads((folder / "vivado.json").read_text())
    assert (found["clock_mhz"], found["base_address"]) == (50, 0x43C0_0000)
    assert found["build_hash"] == Manifest.load(build).build_hash
    assert all((folder / name).is_file() for name in found["files"])
    assert shlex.split(done.json["make"])[-1] == str(folder / found["files"][0])
    assert (folder / "model.v").read_text() == (build / "rtl" / "model.v").read_text()


@pytest.mark.parametrize(
    "boards", [(), ("digilentinc.com:zybo-z7-20:part0:1.0", "digilentinc.com:zybo-z7-20:part0:1.2")]
)
def test_script_builds_the_system(place: Path, tmp_path: Path, boards: tuple[str, ...]) -> None:
    """Everything is connected; part, clock and address are those of the description."""
    vivado = Vivado(tmp_path, boards=boards)
    vivado.source(place / "build.tcl")
    assert vivado.part == "xc7z020clg400-1" and vivado.project == place / "vivado"
    assert vivado.properties.get("board_part") == (boards[-1] if boards else None)
    assert vivado.automation["apply_board_preset"] == str(int(bool(boards)))
    assert ("WARNING" in vivado.said[0]) == (not boards)
    assert {path.name for path in vivado.sources} == {"model.v", "top.v", "top.xdc", "system_wrapper.v"}
    assert float(vivado.cells["ps7"].properties["PCW_FPGA0_PERIPHERAL_FREQMHZ"]) == pytest.approx(1000 / 17)
    assert vivado.addresses == {"core/s_axi/reg0": (0x43C0_0000, "4K")}
    wanted = {
        "core/s_axi": "bus/M00_AXI",
        "bus/S00_AXI": "ps7/M_AXI_GP0",
        "core/aclk": "ps7/FCLK_CLK0",
        "core/aresetn": "reset/peripheral_aresetn",
        "ps7/IRQ_F2P": "core/irq",
        "led": "core/led",
    }
    assert wanted.items() <= vivado.driver.items()
    assert vivado.done.index("validate_bd_design") < vivado.done.index("save_bd_design")
    assert "meets 58.823529 MHz with 0.123 ns" in vivado.said[-1]
    assert (place / "model.bit").read_bytes() == (place / "model.bin").read_bytes() == b"bits"
    # A folder of their own, without the .xsa, which PYNQ would read in the place of the .hwh.
    names = {"manifest.json", "weights.bin", "model.bit", "model.hwh"}
    assert {path.name for path in (place / "overlay").iterdir()} == names
    assert (place / "overlay" / "model.bit").read_bytes() == b"bits"
    assert (place / "overlay" / "model.hwh").read_text() == "cells: ps7, reset, bus, core"


@pytest.mark.slow
def test_script_finds_the_handoff_of_older_releases(kria: Path, tmp_path: Path) -> None:
    Vivado(tmp_path, generated="srcs").source(kria / "build.tcl")
    assert (kria / "overlay" / "model.hwh").read_text() == "cells: ps8, reset, bus, core"


def test_script_builds_the_ultrascale_system(kria: Path, tmp_path: Path) -> None:
    vivado = Vivado(tmp_path, boards=("xilinx.com:kv260_som:part0:1.4",))
    vivado.source(kria / "build.tcl")
    assert vivado.part == "xck26-sfvc784-2LV-c"
    assert vivado.properties["board_part"] == "xilinx.com:kv260_som:part0:1.4"
    assert vivado.automation == {"apply_board_preset": "1"}
    # 90 / 2 times 33.333 MHz, divided by 15.
    assert vivado.cells["ps8"].properties["PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ"] == "99.999"
    assert vivado.addresses == {"core/s_axi/reg0": (0xA000_0000, "4K")}
    wanted = {
        "core/s_axi": "bus/M00_AXI",
        "bus/S00_AXI": "ps8/M_AXI_HPM0_FPD",
        "ps8/maxihpm0_fpd_aclk": "ps8/pl_clk0",
        "core/aclk": "ps8/pl_clk0",
        "reset/ext_reset_in": "ps8/pl_resetn0",
        "core/aresetn": "reset/peripheral_aresetn",
        "ps8/pl_ps_irq0": "core/irq",
        "led": "core/led",
    }
    assert wanted.items() <= vivado.driver.items()
    assert "meets 99.999 MHz" in vivado.said[-1]
    assert (kria / "model.bit").read_bytes() == (kria / "model.bin").read_bytes() == b"bits"


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ({"slack": "-0.5"}, "misses 58.823529 MHz (slack: setup -0.5 ns, hold 0.05 ns)"),
        ({"hold": "-0.1"}, "hold -0.1 ns"),
        ({"progress": "60%"}, "model: route_design ERROR"),
    ],
)
def test_script_fails_where_vivado_does(
    place: Path, tmp_path: Path, outcome: dict[str, str], message: str
) -> None:
    vivado = Vivado(tmp_path, **outcome)
    overlay = {path: path.stat().st_mtime_ns for path in (place / "overlay").iterdir()}
    with pytest.raises(SystemExit, match="1"):
        vivado.source(place / "build.tcl")
    assert message in vivado.said[-1]
    assert overlay == {path: path.stat().st_mtime_ns for path in (place / "overlay").iterdir()}


_SHARED_LINES = (
    "connect_bd_intf_net [get_bd_intf_pins bus/M00_AXI] [get_bd_intf_pins core/s_axi]",
    "connect_bd_net [get_bd_pins core/irq] [get_bd_pins $interrupts]",
    "set_property -dict [list CONFIG.NUM_SI 1 CONFIG.NUM_MI 1] [get_bd_cells bus]",
)


@pytest.mark.parametrize(
    ("board", "lines"),
    [
        ("place", ("    CONFIG.PCW_USE_M_AXI_GP0 1 \\\n",)),
        ("kria", ("    CONFIG.PSU__FPGA_PL0_ENABLE 1 \\\n", "    CONFIG.PSU__USE__M_AXI_GP1 0 \\\n")),
    ],
)
def test_model_hears_mistakes(
    board: str, lines: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Without any one of these lines the script is refused."""
    folder = request.getfixturevalue(board)
    text = (folder / "build.tcl").read_text()
    for line in (*_SHARED_LINES, *lines):
        assert text.count(line) == 1
        for name in ("model.v", "top.v", "top.xdc"):
            (tmp_path / name).write_text((folder / name).read_text())
        (tmp_path / "build.tcl").write_text(text.replace(line, ""))
        with pytest.raises(AssertionError, match=r"is not connected|there is no"):
            Vivado(tmp_path).source(tmp_path / "build.tcl")


def test_constraints_and_device_tree(place: Path) -> None:
    """Pins for all ports that leave the chip; the node that the driver opens has the script's numbers."""
    pins = re.findall(
        r"PACKAGE_PIN (\w+) IOSTANDARD LVCMOS33\} \[get_ports \{led\[(\d)\]", (place / "top.xdc").read_text()
    )
    assert {index: pin for pin, index in pins} == {"0": "M14", "1": "M15"}
    tree = (place / "uio.dtsi").read_text()
    assert "rtlstm@43c00000 {" in tree and "reg = <0x43C00000 0x1000>" in tree
    # IRQ_F2P[0] is interrupt 61 of the controller, whose shared ones begin with 32.
    assert f"interrupts = <0 {61 - 32} 4>" in tree
    # Linux rounds down: 1,000 MHz / 17 is not above this.
    assert "assigned-clock-rates = <58823530>" in tree and tree.count("{") == tree.count("}")


def test_ultrascale_constraints_and_device_tree(kria: Path) -> None:
    pins = dict(re.findall(r"PACKAGE_PIN (\w+) .*?(led\[\d\])", (kria / "top.xdc").read_text()))
    assert pins == {"H12": "led[0]", "E10": "led[1]"}
    tree = (kria / "uio.dtsi").read_text()
    assert "rtlstm@a0000000 {" in tree and "reg = <0x0 0xA0000000 0x0 0x1000>" in tree
    # pl_ps_irq0[0] is interrupt 121 of the controller, whose shared ones begin with 32.
    assert f"interrupts = <0 {121 - 32} 4>" in tree and "assigned-clock-rates = <99999000>" in tree
    assert 'firmware-name = "model.bit.bin"' in tree and "dtc -@ -I dts" in tree
    assert tree.count("{") == tree.count("}")
    # The width of the bus master is the same in the design and in the overlay: 0 is 32 bits.
    assert "CONFIG.PSU__MAXIGP0__DATA_WIDTH 32" in (kria / "build.tcl").read_text()
    assert "config-afi = <14 0x0>" in tree


@pytest.mark.rtl
def test_top_is_sound(tmp_path: Path) -> None:
    """Verilator's lint and Icarus take the top with a build of portable primitives."""
    from rtlstm.gen.builds.on_board import OnZynq

    found = OnZynq.create(zynq_build(tmp_path / "b", family="generic"), ZYNQ_BOARDS["pynq-z2"])
    found.write()
    files = [str(found.output_folder / name) for name in ("model.v", "top.v")]
    options = ("--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module", "rtlstm_zynq")
    subprocess.run([str(verilator().binary), *options, *files], env=verilator_environment(), check=True)
    command = [
        str(icarus().iverilog),
        "-g2005",
        "-Wall",
        "-s",
        "rtlstm_zynq",
        "-o",
        str(tmp_path / "top.vvp"),
        *files,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "top.v" not in done.stderr, done.stderr


def test_fabric_clock() -> None:
    """The nearest clock that is not above, of two divisors up to 63."""
    possible = {first * second for first in range(1, 64) for second in range(1, 64)}
    for processor, pll, most in ((ZYNQ_7000, 1000, 250), (ZYNQ_ULTRASCALE, 1499.985, 300)):
        for mhz in (0.4, 1.0, 7.7, 33.333334, 50, 99.9, 100, 142.9, 249.99, 250, most):
            clock = find_fabric_clock(mhz, processor)
            assert clock.divisors[0] * clock.divisors[1] == min(
                number for number in possible if pll / number <= mhz
            )
            assert all(1 <= divisor <= 63 for divisor in clock.divisors) and clock.mhz <= mhz
    for processor, message in (
        (ZYNQ_7000, r"a Zynq-7000's logic must be from 0\.251953 to 250 MHz"),
        (ZYNQ_ULTRASCALE, r"a Zynq UltraScale\+'s logic must be from 0\.377925 to 300 MHz"),
    ):
        for mhz in (0.25, processor.most_mhz + 0.1, 1000):
            with pytest.raises(ConfigurationError, match=message):
                find_fabric_clock(mhz, processor)


@pytest.mark.parametrize("board", ZYNQ_BOARDS.values(), ids=lambda board: board.name)
def test_boards_name_known_parts(board) -> None:
    assert board.part.startswith(find_device(board.device).device.name)
    find_fabric_clock(board.usual_mhz, board.processor)


def test_refusals(cli, build: Path, tmp_path: Path) -> None:
    made = Manifest.load(build)
    for changed, words in (
        ({"bus": "none"}, ("bus of model is none", "--bus axilite --family xilinx")),
        ({"bus": "axi"}, ("bus of model is axi", "--bus axilite --family xilinx")),
        ({"family": "ecp5"}, ("was generated for ecp5", "generate it with --family xilinx")),
        ({}, ("must not be called system", "--name")),
    ):
        name, parameters = made.name if changed else "system", made.parameters.replace(**changed)
        other = Manifest.create(name, made.layers, parameters, made.numerics)
        (tmp_path / "manifest.json").write_text(other.to_json())
        refused = cli("bitstream", tmp_path, "--board", "zybo-z7-20")
        refused.refused(*words)
        assert "--fit" not in refused.err
    cli("bitstream", build, "--board", "zybo-z7-20", "--clock", "251").refused("to 250 MHz, not 251")
    cli("bitstream", build, "--board", "zybo-z7-20", "--baud", "9600").refused(
        "leave out --baud, --spi, --raw, --ip, --mac, --peer, --seed, --seeds and"
    )
    cli("bitstream", build, "--board", "zybo-z7").refused("there is no board 'zybo-z7'; near names: zybo-z7-")
    cli("bitstream", build, "--board", "kv260").refused("kv260 has the device xck26", "--family ultrascale")
    cli("board", build, "--board", "zybo-z7-20").refused("its own processor drives it")
    cli("program", build, "--board", "zybo-z7-20").refused(
        "Vivado's to make and to load: run boards/zybo-z7-20/b"
    )
    with pytest.raises(ConfigurationError, match="no serial port"):
        find_board("pynq-z2")
