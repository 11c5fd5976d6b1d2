"""The header of a generated Verilog file: licence, version, options and ports."""

from collections.abc import Iterator, Mapping, Sequence

from rtlstm.spec.fixed import Format
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import stated_cell_range, stated_hidden_range
from rtlstm.spec.parameters import CoreOptions, Parameters
from rtlstm.spec.record import declared_options

SPDX = "SPDX-License-Identifier: 0BSD"
"""Licence of every generated text; see ``LICENSE-OUTPUT.txt``."""
LICENCE = "Use, change and pass it on as you like, without conditions: see LICENSE-OUTPUT.txt of rtlstm."

PortLine = tuple[str, str, int, str]
"""A port's name, direction (in or out), width and description."""

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
    "irq": "an interrupt is enabled and pending",
}
_LINK = {
    "rx": "line from the host, asynchronous, 1 when idle",
    "tx": "line to the host, 1 when idle",
    "errors": "frames dropped since reset",
    "active": "a host has opened a session since reset",
}
PORT_TEXTS = _CORE | _LINK
"""Descriptions of the ports of the core and of its serial link; a bus' wrapper has those of its ports."""


def _range(of: Format) -> str:
    return f"{2.0 ** (of.bits - 1 - of.fraction):g}"


def _stated(found: float | str | None) -> str | None:
    return f"{found:g}" if isinstance(found, float) else found


def build_options(manifest: Manifest) -> list[str]:
    """Return the options of ``rtlstm generate`` for a build's sizes and formats, not those for the model.

    Formats that follow from calibration data are not included.
    """
    parameters, numerics = manifest.parameters, manifest.numerics
    weights, dense = numerics.own_weight_bits or (numerics.weight_bits, None)
    options: dict[str, object] = {
        "name": manifest.name,
        "family": parameters.family,
        **(
            _array_options(parameters)
            if manifest.spatial is None
            else {"array": "spatial", "loop-registers": manifest.spatial.loop_registers}
        ),
        **_core_options(parameters),
        "weight-bits": weights,
        "dense-weight-bits": dense,
        "data-bits": numerics.input.bits,
        "hidden-bits": numerics.own_hidden_bits,
        "output-bits": numerics.own_output_bits,
        "gate-bits": numerics.gate.bits,
        "cell-bits": numerics.cell.bits,
        "hidden-rounding": None if numerics.hidden_rounding == "half_up" else numerics.hidden_rounding,
        "input-range": _range(numerics.input),
        "cell-range": _stated(stated_cell_range(manifest.layers, numerics)),
        "hidden-range": _stated(stated_hidden_range(manifest.layers, numerics)),
    }
    words = [word for name, value in options.items() for word in _words(name, value)]
    return [*words, *parameters.capacity_options]


def _array_options(parameters: Parameters) -> dict[str, object]:
    return {
        "lanes": parameters.lanes,
        "macs": parameters.macs,
        "gate-units": parameters.gate_units,
        "multipliers": "lut" if parameters.lut_macs == parameters.macs else parameters.lut_macs or "dsp",
        "lut-lanes": parameters.lut_lanes or None,
        "weight-memory": parameters.weight_memory,
        "table-memory": None if parameters.table_memory == "ram" else parameters.table_memory,
        "token-table": "core" if parameters.token_rows else None,
    }


def _core_options(parameters: Parameters) -> dict[str, object]:
    """Return the options that only the user chooses: all that are declared."""
    options: dict[str, object] = {}
    for each in declared_options(CoreOptions):
        options[each.flag.removeprefix("--")] = getattr(parameters, each.name)
        if each.name == "beat_in":
            options["beat-out"] = parameters.beat_out
    return options


def _words(name: str, value: object) -> Iterator[str]:
    """An option with its value; of a switch, the name of its value."""
    if isinstance(value, bool):
        on, _, off = f"--{name}".partition("/")
        yield from filter(None, (on if value else off,))
    elif value is not None:
        yield f"--{name} {value}"


def verilog_header(manifest: Manifest, what: str, modules: Mapping[str, Sequence[PortLine]]) -> str:
    """Return the comment that a generated file begins with: the same build, the same text.

    ``what`` describes the file's content. ``modules`` are ports of the modules that a system may instantiate,
    by the module's name.
    """
    parameters, plan = manifest.parameters, manifest.spatial
    array = f"{parameters.lanes} lanes x {parameters.macs} multipliers"
    if plan is not None:
        array = f"in space, {plan.loop_registers} registers in the loop of h"
    lines = [
        SPDX,
        "",
        f"{next(iter(modules))}: {what}, {array}.",
        f"Generated by rtlstm {manifest.rtlstm_version}, build {manifest.device_hash[:8]}. Do not edit.",
        LICENCE,
        "",
        "Sizes and formats, as options of rtlstm generate:",
        *_wrapped(build_options(manifest)),
    ]
    if parameters.slope_multipliers == "lut":
        lines.append("  and, as --fit chooses, multipliers of sigmoid's and tanh's slopes of LUTs")
    for name, ports in modules.items():
        page = "ports.md" if {"bus_data", "rx"} & {port for port, *_ in ports} else "integrate.md"
        lines += ["", f"Ports of {name}, see docs/{page} of rtlstm:"]
        lines += [f"  {port:16} {direction:3} {width:4}  {text}" for port, direction, width, text in ports]
    return "".join(f"// {line}".rstrip() + "\n" for line in lines) + "\n"


def _wrapped(words: Sequence[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if len(line) + len(word) >= 100:
            yield line
            line = ""
        line += f"  {word}" if not line else f" {word}"
    yield line
