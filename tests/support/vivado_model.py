"""As much of Vivado as a block design's script needs: what it creates and connects is kept and checked.

A command or option that is not here, a cell, pin or property that does not exist, and a second driver are
errors, as they are in Vivado.
"""

import fnmatch
import re
import tkinter
from dataclasses import dataclass, field
from pathlib import Path

AXI_LITE = [
    *(f"{channel}{part}" for channel in ("AW", "AR") for part in ("ADDR", "PROT", "VALID", "READY")),
    *("WDATA", "WSTRB", "WVALID", "WREADY", "BRESP", "BVALID", "BREADY"),
    *("RDATA", "RRESP", "RVALID", "RREADY"),
]

# Of each core: its pins (< is an input, > an output; ? may stay open), its interfaces, and what else a script
# may set; an end that names a property is there only if that is 1.
CORES = {
    "xilinx.com:ip:processing_system7:5.5": (
        {
            ">FCLK_CLK0": "PCW_EN_CLK0_PORT",
            ">FCLK_RESET0_N": "PCW_EN_RST0_PORT",
            "<M_AXI_GP0_ACLK": "PCW_USE_M_AXI_GP0",
            "<IRQ_F2P": "PCW_IRQ_F2P_INTR",
        },
        {">M_AXI_GP0": "PCW_USE_M_AXI_GP0"},
        {"PCW_FPGA0_PERIPHERAL_FREQMHZ", "PCW_USE_FABRIC_INTERRUPT"},
    ),
    "xilinx.com:ip:zynq_ultra_ps_e": (
        {
            ">pl_clk0": "PSU__FPGA_PL0_ENABLE",
            ">pl_resetn0": "PSU__USE__FABRIC__RST",
            "<maxihpm0_fpd_aclk": "PSU__USE__M_AXI_GP0",
            "<maxihpm1_fpd_aclk": "PSU__USE__M_AXI_GP1",
            "<maxihpm0_lpd_aclk": "PSU__USE__M_AXI_GP2",
            "<pl_ps_irq0": "PSU__USE__IRQ0",
        },
        {
            ">M_AXI_HPM0_FPD": "PSU__USE__M_AXI_GP0",
            ">M_AXI_HPM1_FPD": "PSU__USE__M_AXI_GP1",
            ">M_AXI_HPM0_LPD": "PSU__USE__M_AXI_GP2",
        },
        {
            "PSU__CRL_APB__PL0_REF_CTRL__SRCSEL",
            "PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ",
            "PSU__MAXIGP0__DATA_WIDTH",
        },
    ),
    "xilinx.com:ip:proc_sys_reset:5.0": (
        dict.fromkeys(
            ("<slowest_sync_clk", "<ext_reset_in", ">peripheral_aresetn", ">interconnect_aresetn"), ""
        )
        | dict.fromkeys(("?aux_reset_in", "?dcm_locked", "?mb_debug_sys_rst"), ""),
        {},
        set(),
    ),
    "xilinx.com:ip:smartconnect:1.0": (
        {"<aclk": "", "<aresetn": ""},
        {"<S00_AXI": "NUM_SI", ">M00_AXI": "NUM_MI"},
        set(),
    ),
}

# Of each processor: its automation's rule, the property that enables its bus master, and its addresses.
PROCESSORS = {
    "ps7": ("processing_system7", "PCW_USE_M_AXI_GP0", range(0x4000_0000, 0x8000_0000)),
    "ps8": ("zynq_ultra_ps_e", "PSU__USE__M_AXI_GP0", range(0xA000_0000, 0xB000_0000)),
}
# What the processor has before a script sets anything, as its board's preset does.
PRESET = {"ps7": {}, "ps8": {"PSU__USE__M_AXI_GP0": "1", "PSU__USE__M_AXI_GP1": "1"}}


@dataclass
class Cell:
    """An instance in the block design."""

    pins: dict[str, str]
    interfaces: dict[str, str]
    settable: set[str]
    properties: dict[str, str] = field(default_factory=dict)

    def having(self, ends: dict[str, str]) -> dict[str, str]:
        """Its ends that are there, with their direction."""
        return {
            name[1:]: name[0]
            for name, needs in ends.items()
            if not needs or self.properties.get(needs) == "1"
        }


def module_ports(verilog: str, name: str) -> dict[str, str]:
    """The ports of a module, with < or >, and what its attributes say each is part of."""
    head = re.search(rf"^module {name} ?\((.*?)^\);", verilog, re.MULTILINE | re.DOTALL)
    assert head, name
    return {
        port: "<" if way == "input" else ">"
        for way, port in re.findall(r"\b(input|output) wire (?:\[.*?\] )?(\w+)", head[1])
    }


class Vivado:
    """A Tcl interpreter with the commands; ``exit`` is written down like any other."""

    def __init__(
        self,
        run: Path,
        boards: tuple[str, ...] = (),
        slack: str = "0.123",
        hold: str = "0.05",
        progress: str = "100%",
        generated: str = "gen",
    ) -> None:
        self.run_folder, self.boards = run, boards
        self.generated = generated
        """What the folder with a block design's products ends in; ``srcs`` before Vivado 2020.2."""
        self.run_properties = {
            "PROGRESS": progress,
            "STATUS": "route_design ERROR",
            "DIRECTORY": str(run),
            "STATS.WNS": slack,
            "STATS.WHS": hold,
        }
        self.cells: dict[str, Cell] = {}
        self.ports: list[str] = []
        self.driver: dict[str, str] = {}
        """Of each input pin, port and slave interface, what drives it."""
        self.addresses: dict[str, tuple[int, str]] = {}
        self.properties: dict[str, str] = {}
        self.sources: list[Path] = []
        self.done: list[str] = []
        """Commands in order, each with its arguments."""
        self.said: list[str] = []
        self.failure: BaseException | None = None
        self.tcl = tkinter.Tcl()
        self.tcl.createcommand("puts", self.said.append)
        for name in dir(self):
            if name.startswith("do_"):
                self._add(name.removeprefix("do_"), getattr(self, name))

    def _add(self, name, function) -> None:
        def call(*arguments):
            self.done.append(" ".join((name, *arguments)))
            try:
                return function(*arguments)
            except BaseException as error:
                # Tcl passes it on without its words.
                self.failure = error
                raise

        self.tcl.createcommand(name, call)

    def source(self, script: Path) -> None:
        """Run a script as ``vivado -mode batch -source`` does."""
        try:
            self.tcl.eval(f"source {{{script}}}")
        except tkinter.TclError as error:
            raise self.failure or error from None

    def list(self, text: str) -> tuple[str, ...]:
        """A Tcl list's items."""
        return self.tcl.splitlist(text)

    # The project.

    def do_create_project(self, force, name, folder, _part, part) -> None:
        assert (force, _part) == ("-force", "-part")
        self.part, self.project, self.project_name = part, Path(folder), name

    def do_get_board_parts(self, suppress, pattern) -> str:
        assert suppress == "-quiet"
        return " ".join(fnmatch.filter(self.boards, pattern))

    def do_current_project(self) -> str:
        return "project"

    def do_current_fileset(self) -> str:
        return "fileset"

    def do_add_files(self, *arguments) -> None:
        *options, files = arguments
        assert options in (["-norecurse"], ["-fileset", "constrs_1", "-norecurse"]), options
        for name in self.list(files):
            path = Path(name)
            assert path.is_file() or path.name == "system_wrapper.v", path
            self.sources.append(path)

    def do_update_compile_order(self, option, fileset) -> None:
        assert (option, fileset) == ("-fileset", "sources_1")

    def do_set_property(self, *arguments) -> None:
        if arguments[0] == "-dict":
            _, pairs, target = arguments
            items = self.list(pairs)
        else:
            *items, target = arguments
        for name, value in zip(items[::2], items[1::2], strict=True):
            if target not in self.cells:
                assert name in ("board_part", "top"), name
                self.properties[name] = value
                continue
            cell, key = self.cells[target], name.removeprefix("CONFIG.")
            known = cell.settable | {*cell.pins.values(), *cell.interfaces.values()}
            assert name.startswith("CONFIG.") and key in known, name
            cell.properties[key] = value

    # The block design.

    def do_create_bd_design(self, name) -> None:
        self.design = name

    def do_create_bd_cell(self, _type, kind, option, what, name) -> str:
        assert _type == "-type" and name not in self.cells
        if kind == "ip":
            assert option == "-vlnv"
            pins, interfaces, settable = CORES[what]
            self.cells[name] = Cell(pins, interfaces, settable, dict(PRESET.get(name, {})))
        else:
            assert (kind, option) == ("module", "-reference")
            self.cells[name] = self._module(what)
        return name

    def _module(self, name: str) -> Cell:
        """A module's ports, those of a bus as one interface, as its attributes say."""
        text = "\n".join(path.read_text() for path in self.sources if path.suffix == ".v")
        ports = module_ports(text, name)
        bus = dict(re.findall(r'interface:aximm:1\.0 s_axi (\w+)" \*\)\s+\w+ wire (?:\[.*?\] )?(\w+)', text))
        assert sorted(bus) == sorted(AXI_LITE)
        for signal, port in bus.items():
            outward = signal[-5:] == ("READY" if signal[:2] in ("AW", "AR") or signal[0] == "W" else "VALID")
            outward |= signal in ("BRESP", "RRESP", "RDATA")
            assert port == f"s_axi_{signal.lower()}" and ports.pop(port) == (">" if outward else "<"), port
        return Cell({way + port: "" for port, way in ports.items()}, {"<s_axi": ""}, set())

    def do_apply_bd_automation(self, _rule, rule, _config, config, cell) -> None:
        assert (_rule, _config, rule) == ("-rule", "-config", f"xilinx.com:bd_rule:{PROCESSORS[cell][0]}")
        items = self.list(config)
        self.automation = dict(zip(items[::2], items[1::2], strict=True))

    def do_get_bd_cells(self, name) -> str:
        assert name in self.cells, name
        return name

    def _end(self, kind: str, name: str) -> str:
        cell, _, end = name.partition("/")
        ends = self.cells[cell].having(getattr(self.cells[cell], kind))
        assert end in ends, f"there is no {name}; there are {', '.join(ends)}"
        return ends[end] + name

    def do_get_bd_pins(self, name) -> str:
        return self._end("pins", name)

    def do_get_bd_intf_pins(self, name) -> str:
        return self._end("interfaces", name)

    def do_create_bd_port(self, *arguments) -> None:
        assert arguments[:-1] == ("-dir", "O", "-from", "1", "-to", "0")
        self.ports.append(arguments[-1])

    def do_get_bd_ports(self, name) -> str:
        assert name in self.ports
        return "<" + name

    def do_connect_bd_net(self, one, other) -> None:
        (source,), (sink,) = (
            [end[1:] for end in (one, other) if (end[0] == ">") == out] for out in (True, False)
        )
        assert sink not in self.driver, f"{sink} has two drivers"
        self.driver[sink] = source

    do_connect_bd_intf_net = do_connect_bd_net

    def do_get_bd_addr_spaces(self, name) -> str:
        self.processor = name.removesuffix("/Data")
        assert self.cells[self.processor].properties[PROCESSORS[self.processor][1]] == "1"
        return name

    def do_get_bd_addr_segs(self, pattern) -> str:
        (found,) = fnmatch.filter(["core/s_axi/reg0"], pattern)
        return found

    def do_assign_bd_address(self, _offset, offset, _range, size, _space, space, segment) -> None:
        assert (_offset, _range, _space) == ("-offset", "-range", "-target_address_space")
        self.addresses[segment] = (int(offset, 16), size)

    def do_validate_bd_design(self) -> None:
        """Every input has a driver, every port too, and every address is one that its master can reach."""
        for name, cell in self.cells.items():
            for end, way in (cell.having(cell.pins) | cell.having(cell.interfaces)).items():
                assert way != "<" or f"{name}/{end}" in self.driver, f"{name}/{end} is not connected"
        assert set(self.ports) <= set(self.driver)
        for address, size in self.addresses.values():
            assert size == "4K" and address % 4096 == 0 and address in PROCESSORS[self.processor][2]

    def do_save_bd_design(self) -> None:
        pass

    def do_get_files(self, name) -> str:
        assert name == f"{self.design}.bd"
        return name

    def do_make_wrapper(self, _files, design, top) -> str:
        assert (_files, top) == ("-files", "-top")
        return design.replace(".bd", "_wrapper.v")

    # Its implementation.

    def do_launch_runs(self, run, _to, step, _jobs, jobs) -> None:
        assert (run, _to, step, _jobs) == ("impl_1", "-to_step", "write_bitstream", "-jobs") and int(jobs) > 0
        if self.run_properties["PROGRESS"] == "100%":
            (self.run_folder / f"{self.properties['top']}.bit").write_bytes(b"bits")
            sources = self.project / f"{self.project_name}.{self.generated}" / "sources_1"
            handoff = sources / "bd" / self.design / "hw_handoff"
            handoff.mkdir(parents=True, exist_ok=True)
            (handoff / f"{self.design}.hwh").write_text(f"cells: {', '.join(self.cells)}")

    def do_wait_on_run(self, run) -> None:
        assert run == "impl_1"

    do_open_run = do_wait_on_run

    def do_get_runs(self, run) -> str:
        return run

    def do_get_property(self, name, run) -> str:
        assert run == "impl_1"
        return self.run_properties[name]

    def do_write_cfgmem(self, *arguments) -> None:
        assert arguments[:6] == ("-force", "-format", "BIN", "-interface", "SMAPx32", "-disablebitswap")
        option, load, target = arguments[6:]
        up, start, bits = load.split(" ", 2)
        assert (option, up, int(start, 16)) == ("-loadbit", "up", 0)
        Path(target).write_bytes(Path(bits).read_bytes())

    def do_write_hw_platform(self, *arguments) -> None:
        assert arguments[:-1] == ("-fixed", "-force", "-include_bit", "-file")

    def do_report_timing_summary(self, _file, path) -> None:
        assert _file == "-file"

    do_report_utilization = do_report_timing_summary

    def do_exit(self, code) -> None:
        raise SystemExit(int(code))
