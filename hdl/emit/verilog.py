"""Conversion of components to one Verilog file, with the primitives of the chosen family.

Verilog that was written before comes from the cache, where it is kept under all that decides it.
"""

import gzip
import json
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from amaranth._toolchain.yosys import YosysError
from amaranth.back.rtlil import convert as convert_to_rtlil
from amaranth.hdl import Elaboratable, Module, Signal, Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib.wiring import In, Out

from rtlstm.hdl.buses.wrappers import Pins, wrapper, wrapper_name
from rtlstm.hdl.component import Component, Domain, SharedModule, flat_ports, lead_out
from rtlstm.hdl.core.core import part_modules
from rtlstm.hdl.emit.header import PORT_TEXTS, PortLine, verilog_header
from rtlstm.hdl.emit.tidy import drop_head, tidy_netlist, tidy_verilog
from rtlstm.hdl.emit.yosys import find_writer, run_yosys
from rtlstm.hdl.link.serial_link import LinkedCore
from rtlstm.hdl.link.uart import check_divisor
from rtlstm.hdl.sequences.part_steps import make_core
from rtlstm.hdl.spatial.layers import KEPT_SUM
from rtlstm.spec.activations.functions import ACTIVATIONS
from rtlstm.spec.buses import BUSES
from rtlstm.spec.family import FAMILIES, GENERIC
from rtlstm.spec.inventory import ActivationSpec, constant_tables, link_limits
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import ceil_log2
from rtlstm.tools import no_collection
from rtlstm.tools.cache import CacheError, cached, digest, load_cached

# Processes are converted to assignments and flip-flops, because Icarus leaves some combinational always
# blocks at X. In between, the netlist is changed for linters.
READ = """
{modules}
proc
opt_clean -purge
memory_collect
opt_clean -purge
write_rtlil
"""
WRITE = """
read_rtlil <<rtlil
{netlist}
rtlil
write_verilog {options}
"""


DesignPorts = Sequence[Value] | Mapping[str, tuple[Value, PortDirection]]
"""Ports of a design that is converted: wires with their names, or names with wires."""

_PREFIX = "rtlstm_"
"""Prefix of the primitives' modules in their files and in components' instances."""


def primitives(family: str, owner: str = "") -> str:
    """Return the Verilog of a family's memories and multipliers.

    With an ``owner`` their names begin with it, as in ``OWNER_memory``, so that a design can contain those of
    two families.
    """
    common = files("rtlstm.hdl").joinpath("primitives")
    portable = (common.joinpath("memory.v"), common.joinpath("portable.v"))
    paths = FAMILIES.named(family).primitives or portable
    text = "".join(path.read_text() for path in paths)
    return text.replace(_PREFIX, f"{owner}_") if owner else text


def _outputs(verilog: str) -> dict[str, frozenset[str]]:
    """Return the names of each module's outputs."""
    modules = re.findall(r"^module (\w+)(.*?)^endmodule", verilog, re.MULTILINE | re.DOTALL)
    port = re.compile(r"^ *output +(?:reg +|wire +)?(?:signed +)?(?:\[.*?\] *)?(\w+)", re.MULTILINE)
    return {name: frozenset(port.findall(body)) for name, body in modules}


def to_verilog(components: Mapping[str, Component], family: str = GENERIC, tables: str = "") -> str:
    """Convert components to modules of these names; the same components give the same text.

    The names of all other modules, also of primitives, begin with the first one's. ``tables`` is the Verilog
    of constant tables that they instantiate. Raises ToolError if Yosys is missing or refuses the design.
    """
    designs: dict[str, tuple[Elaboratable, DesignPorts]] = {}
    for name, component in components.items():
        if isinstance(component, SharedModule):
            designs[name] = component, _directed(component)
        else:
            designs[name] = _clocked(component)
    owner = next(iter(components))
    cells = tables.replace(_PREFIX, f"{owner}_") + primitives(family, owner)
    return convert(designs, owner, cells) + cells


@no_collection()
def convert(
    designs: Mapping[str, tuple[Elaboratable, DesignPorts]],
    owner: str,
    cells: str = "",
    *,
    attributes: bool = False,
) -> str:
    """Convert designs with these ports to modules of these names; the same designs give the same text.

    ``owner`` is the prefix of the :func:`primitives` that they instantiate. ``cells`` is the Verilog of other
    modules that they instantiate, whose port directions are needed. ``attributes`` keeps attributes of cells,
    which some hard blocks need. Raises ToolError if Yosys is missing or refuses the design.
    """
    modules = []
    for name, (design, ports) in designs.items():
        text = convert_to_rtlil(design, name=name, ports=ports, emit_src=False)
        modules.append(f"read_rtlil <<rtlil\n{_owned(text, owner)}\nrtlil")
    netlist = run_yosys(READ.format(modules="\n".join(modules)))
    if cells:
        netlist = tidy_netlist(netlist, _outputs(cells))
    options = "" if attributes else "-noattr"
    verilog = drop_head(run_yosys(WRITE.format(netlist=netlist, options=options)))
    return tidy_verilog(verilog) if cells else verilog


def _owned(rtlil_text: str, owner: str) -> str:
    """Rename instances of primitives to those of an owner; no build's name has their prefix."""
    return re.sub(rf"^(\s*cell \\){_PREFIX}(?=\w+ )", rf"\g<1>{owner}_", rtlil_text, flags=re.MULTILINE)


def _directed(component: Component) -> DesignPorts:
    """Return a component's ports by name; without directions, an output that nothing drives were an input."""
    directions = {In: PortDirection.Input, Out: PortDirection.Output}
    return {port.name: (port.value, directions[port.flow]) for port in flat_ports(component)}


def _port_lines(component: Component) -> Iterator[PortLine]:
    """Yield the ports that :func:`_clocked` gives a component."""
    pins: Pins = getattr(component, "pins", Pins())
    texts = {**PORT_TEXTS, **getattr(component, "port_texts", {})}
    for name in (pins.clock, pins.reset):
        yield name, "in", 1, texts[name]
    for port in flat_ports(component):
        yield port.name, "in" if port.flow is In else "out", len(port.value), texts.get(port.name, "")


def _clocked(component: Component) -> tuple[Module, list[Value]]:
    """Put a component into a module; return that and its ports: clock, reset and the component's.

    Clock and reset are ``clk`` and ``rst``, or what its ``pins`` say. The reset has a register of its own.

    The register can be placed independently of the pin. The ready outputs stay low until the register is
    released from reset.
    """
    pins: Pins = getattr(component, "pins", Pins())
    clock, reset = Signal(name=pins.clock), Signal(name=pins.reset)
    inner, outer = Domain("sync"), Domain("pins", reset_less=True)
    inner.clk = outer.clk = clock
    top = Module()
    top.domains += [inner, outer]
    top.submodules.core = component
    top.d.pins += inner.rst.eq(~reset if pins.reset_low else reset)
    return top, [clock, reset, *lead_out(top, component)]


@no_collection()
def core_to_verilog(manifest: Manifest) -> str:
    """Generate the Verilog of a manifest's core, a module with the manifest's name, and of its wrapper."""

    def write() -> str:
        modules: dict[str, Component] = {manifest.name: make_core(manifest)}
        around = wrapper(manifest)
        if around is not None:
            modules[wrapper_name(manifest)] = around
        return _design(modules, manifest, "recurrent network core")

    return kept_verilog("core", manifest, write)


def linked_core_to_verilog(manifest: Manifest, divisor: int) -> str:
    """Generate the Verilog of a core with a serial port as its interface.

    The top module, a :class:`~rtlstm.hdl.link.serial_link.LinkedCore`, is named like the manifest with
    ``_link`` appended. Raises ConfigurationError if the link cannot have this divisor, or serve this build.
    """
    # Checked before any component is made: Amaranth warns about components that are not used.
    link_limits(manifest)
    check_divisor(divisor)

    def write() -> str:
        modules: dict[str, Component] = {f"{manifest.name}_link": LinkedCore(manifest, divisor)}
        return _design(modules, manifest, "recurrent network core with a serial link")

    return kept_verilog(f"link {divisor}", manifest, write)


def _design(modules: dict[str, Component], manifest: Manifest, what: str) -> str:
    ports = {name: list(_port_lines(module)) for name, module in modules.items()}
    # One module for all parts that are equal makes conversion fast and the file small.
    modules = modules | part_modules(manifest)
    text = to_verilog(modules, manifest.parameters.family, table_modules(manifest))
    for name, module in modules.items():
        text = _with_attributes(text, name, getattr(module, "port_attributes", {}))
    if manifest.spatial is not None:
        text = re.sub(
            rf"^( *)(wire \[\d+:0\] \w+{KEPT_SUM}\d+;)$", r"\1(* keep *) \2", text, flags=re.MULTILINE
        )
    return verilog_header(manifest, what, ports) + text


def _with_attributes(text: str, module: str, attributes: Mapping[str, Mapping[str, str]]) -> str:
    """Return Verilog in which a module's ports have attributes."""
    if not attributes:
        return text

    def declared(port: re.Match[str]) -> str:
        settings = attributes.get(port[3], {}).items()
        return "".join(f'{port[1]}(* {name} = "{value}" *)\n' for name, value in settings) + port[0]

    head, body = text.split(f"\nmodule {module}(", 1)
    body, tail = body.split("\nendmodule", 1)
    body = re.sub(r"^( *)(?:input|output) (\[\d+:\d+\] )?(\w+);$", declared, body, flags=re.MULTILINE)
    return f"{head}\nmodule {module}({body}\nendmodule{tail}"


_MODULE = """
// Constants of {memory}: {rows} words of {name}. A word comes {when} its row.
module {module} (
  input clk,
  input [{row}:0] row,
  output reg [{word}:0] word
);
  // The attributes are those of Vivado, of Quartus, and of Synplify. Yosys has its own, at the case.
  (* {styles} *)
  reg [{word}:0] found;
{read}
  always @(*)
`ifdef YOSYS
    (* rom_style = "{style}" *)
`endif
    case ({address})
{contents}
      default: found = 0;
    endcase
endmodule
"""
_STYLES = (
    'rom_style = "distributed", romstyle = "logic", syn_romstyle = "logic"',
    'rom_style = "block", syn_romstyle = "block_rom"',
)
_AT_ONCE = "  always @(*) word = found;"
_DIRECTLY = "  always @(posedge clk) word <= found;"
_BY_REGISTER = """\
  reg [{row}:0] address;
  always @(posedge clk) begin
    address <= row;
    word <= found;
  end"""


def table_modules(manifest: Manifest) -> str:
    """Return the modules of a build's constant tables, with names like primitives'."""
    return "".join(map(_module, constant_tables(manifest)))


def _module(activation: ActivationSpec) -> str:
    memory, registered = activation.memory, activation.memory.output_register
    block = memory.style == "block" and not registered
    row = ceil_log2(memory.depth) - 1
    read = _BY_REGISTER.format(row=row) if registered else _AT_ONCE if memory.asynchronous else _DIRECTLY
    return _MODULE.format(
        name=memory.name,
        module=f"rtlstm_{activation.module}",
        rows=memory.depth,
        memory="block RAM" if block else "LUTs",
        styles=_STYLES[block],
        style="block" if block else "logic",
        when="2 cycles after" if registered else "with" if memory.asynchronous else "a cycle after",
        row=row,
        word=memory.width - 1,
        address="address" if registered else "row",
        contents="\n".join(_cases(activation.table.words, row + 1, memory.width)),
        read=read,
    )


def _cases(words: Sequence[int], row_bits: int, width: int) -> Iterator[str]:
    """Yield a line for each row: no tool takes one constant as long as a table."""
    for row, word in enumerate(words):
        yield f"      {row_bits}'d{row}: found = {width}'h{word:x};"


_BEGIN = time.time()
_NAME = "verilog.gz"
_ELSEWHERE = {"files", "frames", "batch_first", "parts"}
"""Fields of the manifest that say what data mean and what else a build folder has."""


def kept_verilog(what: str, manifest: Manifest, write: Callable[[], str]) -> str:
    """Return the Verilog of a manifest: from the cache, or if it is not there, as ``write`` gives it.

    ``what`` tells different Verilog of the same manifest apart. Entries that are damaged are written again.
    """
    # The code of other packages and of the running program is not in the key.
    foreign = any(registry.is_extended for registry in (ACTIVATIONS, BUSES, FAMILIES))
    sources = None if foreign else _sources()
    if sources is None:
        return write()
    try:
        yosys = find_writer()
        tools = (
            f"{yosys.__name__} {yosys.version()}, Amaranth {version('amaranth')}, NumPy {version('numpy')}"
        )
    except YosysError:
        return write()  # Its error says what is missing.
    told = json.dumps(manifest.model_dump(mode="json", exclude=_ELSEWHERE), sort_keys=True)
    written: list[str] = []

    def build(folder: Path) -> None:
        written.append(write())
        (folder / _NAME).write_bytes(gzip.compress(written[0].encode(), 1))

    key = digest(what, told, tools, sources)
    try:
        return load_cached(lambda: cached("verilog", key, build) / _NAME, _read)
    except (CacheError, OSError):  # Without a cache, it is written each time.
        return written[0] if written else write()


def _read(path: Path) -> str:
    try:
        return gzip.decompress(path.read_bytes()).decode()
    except (EOFError, zlib.error) as error:
        raise OSError("damaged") from error


@cache
def _sources() -> str | None:
    """Return a digest of code that decides Verilog, of fpga its families alone; None if it changed since."""
    rooms = [Path(str(files(f"rtlstm.{name}"))) for name in ("spec", "fpga.families", "hdl")]
    paths = [path for room in rooms for path in sorted(room.rglob("*")) if path.suffix in (".py", ".v")]
    if max(path.stat().st_mtime for path in paths) > _BEGIN:
        return None
    return digest(*(path.read_bytes() for path in paths))
