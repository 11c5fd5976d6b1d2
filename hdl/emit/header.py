"""What a generated Verilog file says of itself: licence, version, the options that make it, and its ports."""

from collections.abc import Iterator, Mapping, Sequence

from rtlstm.spec.capacity import Capacity
from rtlstm.spec.fixed import Format
from rtlstm.spec.manifest import Manifest

__all__ = ["LICENCE", "SPDX", "PortLine", "build_options", "verilog_header"]

SPDX = "SPDX-License-Identifier: 0BSD"
"""Of every generated text; see ``LICENSE-OUTPUT.txt``."""
LICENCE = "Use, change and pass it on as you like, without conditions: see LICENSE-OUTPUT.txt of rtlstm."

PortLine = tuple[str, str, int]
"""A port's name, direction (in or out) and width."""

_CORE = {
    "clk": "clock",
    "rst": "reset, synchronous, active high",
    "x_data": "next words of a step's input, the first in the low bits",
    "x_stream": "the step's stream",
    "x_quiet": "the step's output is not wanted",
    "x_last": "the sequence's last step",
    "x_valid": "x is offered",
    "x_ready": "x is taken",
    "y_data": "next words of a step's output, the first in the low bits",
    "y_stream": "the step's stream",
    "y_last": "the step's last transfer",
    "y_valid": "y is offered",
    "y_ready": "y is taken",
    "bus_address": "register number",
    "bus_write": "1 to write, 0 to read",
    "bus_data": "word to write",
    "bus_valid": "a request is offered",
    "bus_ready": "a request is taken",
    "bus_read_data": "word read",
    "bus_read_valid": "1 for one cycle per read request",
    "shape": "inputs and outputs of the network that is loaded",
    "stopped": "there is no whole program, and no input is taken",
}
_AXI = {
    "aclk": "clock",
    "aresetn": "reset, synchronous, active low",
    "s_axis_x_tdata": "next values of a step's input, each in whole bytes, the first in the low bits",
    "s_axis_x_tid": "the step's stream",
    "s_axis_x_tuser": "the step's output is not wanted",
    "s_axis_x_tlast": "the step's last transfer",
    "s_axis_x_tvalid": "offered",
    "s_axis_x_tready": "taken",
    "m_axis_y_tdata": "next values of a step's output, sign-extended to whole bytes",
    "m_axis_y_tid": "the step's stream",
    "m_axis_y_tuser": "the step's input was malformed",
    "m_axis_y_tlast": "the step's last transfer",
    "m_axis_y_tvalid": "offered",
    "m_axis_y_tready": "taken",
    "s_axi_awaddr": "register to write, in bytes",
    "s_axi_awvalid": "offered",
    "s_axi_awready": "taken",
    "s_axi_wdata": "word to write",
    "s_axi_wstrb": "all bits 1: words are whole",
    "s_axi_wvalid": "offered",
    "s_axi_wready": "taken",
    "s_axi_bresp": "0: done; 2: refused",
    "s_axi_bvalid": "offered",
    "s_axi_bready": "taken",
    "s_axi_araddr": "register to read, in bytes",
    "s_axi_arvalid": "offered",
    "s_axi_arready": "taken",
    "s_axi_rdata": "word read",
    "s_axi_rresp": "0: done; 2: refused",
    "s_axi_rvalid": "offered",
    "s_axi_rready": "taken",
    "irq": "an interrupt is enabled and pending",
}
_WISHBONE = {
    "wb_cyc": "bus cycle",
    "wb_stb": "request",
    "wb_we": "1 to write, 0 to read",
    "wb_adr": "register number",
    "wb_dat_w": "word to write",
    "wb_sel": "all bits 1: words are whole",
    "wb_dat_r": "word read",
    "wb_ack": "done",
    "wb_err": "refused",
    "wb_stall": "0 in the cycle that answers",
}
_LINK = {
    "rx": "line from the host, asynchronous, 1 when idle",
    "tx": "line to the host, 1 when idle",
    "errors": "frames dropped since reset",
    "active": "a host has opened a session since reset",
}
_MEANINGS = _CORE | _AXI | _WISHBONE | _LINK


def _range(of: Format) -> str:
    return f"{2.0 ** (of.bits - 1 - of.fraction):g}"


def build_options(manifest: Manifest) -> list[str]:
    """Return the options of ``rtlstm generate`` that give a build's sizes and formats, beside the model's.

    Those that are made from calibration data are not among them.
    """
    parameters, numerics = manifest.parameters, manifest.numerics
    weights, dense = numerics.own_weight_bits or (numerics.weight_bits, None)
    options: dict[str, object] = {
        "name": manifest.name,
        "family": parameters.family,
        "lanes": parameters.lanes,
        "macs": parameters.macs,
        "gate-units": parameters.gate_units,
        "multipliers": "lut" if parameters.lut_macs == parameters.macs else parameters.lut_macs or "dsp",
        "weight-memory": parameters.weight_memory,
        "tables": parameters.tables,
        "beat-in": parameters.beat_in,
        "beat-out": parameters.beat_out,
        "streams": parameters.streams,
        "max-steps": parameters.max_steps,
        "bus": parameters.bus,
        "weight-bits": weights,
        "dense-weight-bits": dense,
        "data-bits": numerics.data_bits,
        "output-bits": numerics.own_output_bits,
        "gate-bits": numerics.gate.bits,
        "cell-bits": numerics.cell.bits,
        "input-range": _range(numerics.input),
        "cell-range": _range(numerics.cell),
    }
    words = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return words + list(_capacities(parameters.capacity))


def _capacities(capacity: Capacity | None) -> Iterator[str]:
    if capacity is None:
        return
    yield "--loadable"
    for name, value in capacity.model_dump().items():
        yield f"--capacity {name.replace('_', '-')}={value}"


def verilog_header(manifest: Manifest, what: str, modules: Mapping[str, Sequence[PortLine]]) -> str:
    """Return the comment that a generated file begins with: the same build, the same text.

    Parameters
    ----------
    what
        The file's content, in words.
    modules
        What a system may instantiate: ports by the module's name.
    """
    parameters = manifest.parameters
    lines = [
        SPDX,
        "",
        f"{next(iter(modules))}: {what}, {parameters.lanes} lanes x {parameters.macs} multipliers.",
        f"Generated by rtlstm {manifest.rtlstm_version}, build {manifest.device_hash[:8]}. Do not edit.",
        LICENCE,
        "",
        "Sizes and formats, as options of rtlstm generate:",
        *_wrapped(build_options(manifest)),
    ]
    if parameters.slope_multipliers == "lut":
        lines.append("  and, as --fit chooses, multipliers of sigmoid's and tanh's slopes of look-up tables")
    for name, ports in modules.items():
        page = "ports.md" if {"bus_data", "rx"} & {port for port, _, _ in ports} else "buses.md"
        lines += ["", f"Ports of {name}, see docs/{page} of rtlstm:"]
        lines += [f"  {port:16} {way:3} {width:4}  {_MEANINGS[port]}" for port, way, width in ports]
    return "".join(f"// {line}".rstrip() + "\n" for line in lines) + "\n"


def _wrapped(words: Sequence[str], width: int = 100) -> Iterator[str]:
    line = ""
    for word in words:
        if len(line) + len(word) >= width:
            yield line
            line = ""
        line += f"  {word}" if not line else f" {word}"
    yield line
