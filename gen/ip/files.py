"""Files of a build folder for other flows: testbench, constraints, packages, C header, bill of materials."""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.reading import InitialState
from rtlstm.gen.ip import IpPaths
from rtlstm.gen.ip.ports import core_ports, ipxact_interfaces, qsys_interfaces, read_ports
from rtlstm.hdl.buses.request_port import NUMBER_BITS
from rtlstm.hdl.emit.header import SPDX
from rtlstm.host.state import StateLayout
from rtlstm.sim.golden import Golden
from rtlstm.sim.simulated_ports import PortSpec, pack_beats, port_range
from rtlstm.spec.buses import BUSES, registers_of
from rtlstm.spec.family import FAMILIES
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.layout import part_slices
from rtlstm.spec.manifest import C_HEADER, Manifest
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.registers import (
    IDENTITY,
    MAP_VERSION,
    REGISTERS,
    Command,
    Description,
    Field,
    Interrupt,
    Region,
    Register,
)

if TYPE_CHECKING:
    from jinja2 import Template

DEFAULT_MHZ: Final = 100.0
"""Clock of the constraints if no device was named."""
_TEST_STEPS: Final = 4
"""Steps of each sequence of the cocotb test."""
_TOLD: Final = ("shape", "stopped")
"""Ports at which some cores tell of the network that is loaded."""


_READ_ACTS: Final = {Register.DATA, Register.Y_DATA}
"""A read takes a word, so that the next read gives another one."""
_WRITE_ACTS: Final = {Register.COMMAND, Register.DATA, Register.CONTROL, Register.X_DATA}
"""A write does something, and no read gives back what was written."""
_CLEARED: Final = {Register.IRQ_PENDING}
"""Writing a 1 clears a bit."""
_MOVES: Final = {Register.ROW} | _CLEARED
"""Readable and writable, and the hardware changes it, too."""
_ZERO: Final = {
    Register.STEPS,
    Register.LATENCY,
    Register.CELL_SATURATIONS,
    Register.LINK_ERRORS,
    Register.Y_STEPS,
}
"""Only the hardware writes it, and a reset makes it 0."""


@dataclass(frozen=True)
class FieldEntry:
    """Some bits of a register."""

    name: str
    text: str
    high: int
    low: int
    reset: int | None
    """Value after a reset; None if it is not known, or never read."""

    @property
    def width(self) -> int:
        """Number of bits."""
        return self.high - self.low + 1


@dataclass(frozen=True)
class RegisterEntry:
    """A register of a build."""

    name: str
    text: str
    offset: int
    """Bytes from the first register."""
    access: str
    """``r``, ``w`` or ``rw``."""
    hardware: Literal["na", "r", "w", "rw"]
    """What the hardware does with it, in SystemRDL's words: ``na`` for a constant."""
    on_read: bool
    """Whether a read acts."""
    on_write: Literal["", "oneToClear", "modify"]
    """How a write acts, if it does not simply set the value."""
    fields: tuple[FieldEntry, ...]

    @property
    def acts(self) -> bool:
        """Whether an access does more than to read or to set the value."""
        return self.on_read or self.on_write == "modify"

    @property
    def volatile(self) -> bool:
        """Whether a read may give something else than what was written last."""
        return "w" in self.hardware


def is_mapped(manifest: Manifest) -> bool:
    """Whether the build has a bus on which its registers are mapped memory."""
    return "bus" in BUSES[manifest.parameters.bus].owners


def register_entries(manifest: Manifest) -> tuple[RegisterEntry, ...]:
    """Return the registers that a build answers, in the order of their addresses."""
    return tuple(
        _entry(register, REGISTERS[register], manifest.constants)
        for register in registers_of(manifest.parameters.bus)
    )


def _entry(register: Register, description: Description, constants: Mapping[Register, int]) -> RegisterEntry:
    access = description.access
    hardware: Literal["na", "r", "w", "rw"]
    if register in constants:
        hardware = "na"
    elif register in _MOVES or register == Register.DATA:
        hardware = "rw"
    else:
        hardware = "r" if "w" in access else "w"
    # Registers that only software writes begin at 0.
    known = (access == "rw" and register != Register.DATA) or register in _ZERO
    value = constants.get(register, 0 if known else None)
    fields = description.fields or (Field("VALUE", 31, 0, description.text),)
    return RegisterEntry(
        name=register.name,
        text=description.text,
        offset=4 * register,
        access=access,
        hardware=hardware,
        on_read=register in _READ_ACTS,
        on_write="oneToClear" if register in _CLEARED else "modify" if register in _WRITE_ACTS else "",
        fields=tuple(
            FieldEntry(each.name, each.text, each.high, each.low, None if value is None else each.of(value))
            for each in sorted(fields, key=lambda each: each.low)
        ),
    )


OUTPUT_LICENCE: Final = SPDX.removeprefix("SPDX-License-Identifier: ")
_GENERATOR_LICENCE: Final = "Apache-2.0"
_OWNED: Final = "The model's numbers: their rights are their owner's."


def bill_of_materials(manifest: Manifest, files: Mapping[str, bytes], owned: Collection[str]) -> str:
    """Return the text of the bill, in JSON. It has no date and no number of its own: same files, same text.

    ``files`` has the contents of the files that are listed, by path. No later command may change them.
    ``owned`` has the paths of those that are under no licence of rtlstm's: the model's numbers.
    """
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [
                    {
                        "type": "application",
                        "name": "rtlstm",
                        "version": manifest.rtlstm_version,
                        "licenses": _licences(_GENERATOR_LICENCE),
                    }
                ]
            },
            "component": {
                "type": "firmware",
                "bom-ref": manifest.name,
                "name": manifest.name,
                "version": manifest.build_hash,
            },
        },
        "components": [_file(path, files[path], path in owned) for path in sorted(files)],
    }
    return json.dumps(bill, indent=1) + "\n"


def _file(path: str, content: bytes, owned: bool) -> dict[str, Any]:
    terms = {"description": _OWNED} if owned else {"licenses": _licences(OUTPUT_LICENCE)}
    hashed = {"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}
    return {"type": "file", "bom-ref": path, "name": path, "hashes": [hashed], **terms}


def _licences(identifier: str) -> list[dict[str, dict[str, str]]]:
    return [{"license": {"id": identifier}}]


_STEPS = 4
_STREAMS = 2


@dataclass(frozen=True)
class Vectors:
    """Steps in the order in which they are sent, back to back after a reset; ``K`` in all."""

    streams: IntArray
    """Stream of each step, ``(K,)``."""
    ends: NDArray[np.bool_]
    """Which steps are the last of a sequence, ``(K,)``; for builds of whole sequences, else none."""
    x: IntArray
    """Codes, ``(K, inputs)``."""
    y: IntArray
    """What the golden model computes, ``(K, outputs)``, with zeros where the core gives zeros."""
    offered: tuple[int, ...]
    """Cycles from the first input beat to the last output beat of each step, by the schedule."""

    @classmethod
    def create(cls, network: QuantizedNetwork, manifest: Manifest) -> Self:
        """Draw inputs over the whole range, the same for the same build, and compute the rest.

        Four steps on each of two streams in turn, or on one if there is no second; of a build for whole
        sequences one sequence of each, shorter if the build takes no such length.
        """
        count = min(_STREAMS, manifest.parameters.streams)
        whole = manifest.sequence is not None
        steps = min(_STEPS, manifest.parameters.max_steps or _STEPS) if whole else _STEPS
        shape = (steps, count, manifest.input_port.values)
        x = np.random.default_rng(0).integers(*port_range(manifest), shape, endpoint=True)
        y = manifest.emitted(Golden(network).run(network.looked_up(x)).y)
        streams = np.tile(np.arange(count), (steps, 1))
        ends = np.zeros((steps, count), dtype=bool)
        if whole:
            # The steps of a sequence follow each other.
            x, y, streams, ends = x.swapaxes(0, 1), y.swapaxes(0, 1), streams.T, ends.T
            ends[:, -1] = True
        flat, marks = streams.reshape(-1), ends.reshape(-1)
        offered = tuple(manifest.schedule.offered(flat, marks))
        total = len(flat)
        return cls(flat, marks, x.reshape(total, -1), y.reshape(total, -1), offered)

    def to_hex(self, ports: PortSpec) -> str:
        """Return the text of a file for ``$readmemh``, a line per word.

        Of each step: stream, 1 at a sequence's end, cycle of the last output beat, beats of x, beats of y.
        """
        x = _beats(self.x, ports.beats_in, ports.beat_in, ports.data_bits)
        y = _beats(self.y, ports.beats_out, ports.beat_out, ports.y_bits)
        lines = []
        for step, cycle in enumerate(self.offered):
            lines += [
                f"// step {step}: stream, end of a sequence, cycle of its last output beat",
                f"{self.streams[step]:x} {int(self.ends[step]):x} {cycle:x}",
                "// x",
                *x[step],
                "// y",
                *y[step],
            ]
        return "\n".join([*lines, ""])


def _beats(words: IntArray, beats: int, beat: int, bits: int) -> list[list[str]]:
    """Each step's words as hexadecimal beats; what is missing in the last beat is 0."""
    padded = np.zeros((len(words), beats * beat), dtype=np.int64)
    padded[:, : words.shape[1]] = words & ((1 << bits) - 1)
    flat = pack_beats(padded.reshape(-1, beat), bits)
    return [flat[first : first + beats] for first in range(0, len(flat), beats)]


def ip_files(
    manifest: Manifest, verilog: str, vectors: Vectors, clock_mhz: float | None, assumed: bool = False
) -> dict[str, str]:
    """Return the texts of the files by path, without the bill of materials. Same input, same texts.

    ``vectors`` is what the testbench sends and expects. ``clock_mhz`` is the clock that the build was made
    for; :data:`DEFAULT_MHZ` if None. ``assumed`` says whether that clock is what the user assumes, and no
    estimate.
    """
    family = FAMILIES.named(manifest.parameters.family)
    paths, core, kind = IpPaths(manifest.name), core_ports(manifest, verilog), _kind(manifest)
    mhz = clock_mhz or DEFAULT_MHZ
    known = "as estimated for the device" if clock_mhz else "no device was named, so put yours"
    known = "as assumed for the device" if assumed else known
    common = {
        "spdx": SPDX,
        "version": manifest.rtlstm_version,
        "plain_version": _plain(manifest.rtlstm_version),
        "name": manifest.name,
        "build": manifest.build_hash[:8],
        "description": f"{kind}: {manifest.input_port.values} inputs, {manifest.outputs} outputs a step",
        "paths": paths,
        "core": core,
        "period": 1000 / mhz,
        "clock_text": f"{mhz:g} MHz, {known}",
        "registers": register_entries(manifest) if is_mapped(manifest) else (),
        "has_models": bool(family.cell_models),
    }
    render = partial(_render, common)
    texts = {
        paths.testbench: render(
            "testbench.sv",
            device=manifest.device_hash[:8],
            steps=len(vectors.offered),
            ports=PortSpec.from_manifest(manifest),
            told=[port.name for port in read_ports(verilog, manifest.name) if port.name in _TOLD],
            registers={register.name: int(register) for register in Register},
            identity=IDENTITY,
        ),
        paths.vectors: f"// {SPDX}\n{vectors.to_hex(PortSpec.from_manifest(manifest))}",
        paths.cocotb_test: render(
            "cocotb_test.jinja", test_steps=min(_TEST_STEPS, manifest.parameters.max_steps or _TEST_STEPS)
        ),
        paths.instance: render("instance.veo"),
        paths.sdc: render("constraints.sdc"),
        paths.xdc: render("constraints.sdc"),
        paths.core: render(
            "fusesoc.core",
            vlnv=f"rtlstm::{manifest.name}:{_plain(manifest.rtlstm_version)}",
            testbench=f"{manifest.name}_tb",
            synthesis=family.open_synthesis,
        ),
        paths.component: render(
            "component.xml",
            escape=True,
            interfaces=ipxact_interfaces(core),
            map_bytes=4 << NUMBER_BITS,
            file_sets=_file_sets(paths, is_mapped(manifest)),
        ),
        paths.qsys: render(
            "hw.tcl",
            buses=qsys_interfaces(core),
            addressable=next((each.name for each in core.interfaces if each.kind == "aximm"), ""),
        ),
    }
    if family.cell_models:
        models = "\n".join(path.read_text(encoding="utf-8") for path in family.cell_models)
        texts[paths.models] = f"// {SPDX}\n{models}"
    if is_mapped(manifest):
        texts[paths.rdl] = render("registers.rdl")
        texts |= driver_files(manifest)
    return texts


def driver_files(manifest: Manifest) -> dict[str, str]:
    """Return the texts of the C driver by path: the same for every build."""
    return {path: _render({"spdx": SPDX}, path.rpartition("/")[2]) for path in IpPaths(manifest.name).driver}


def _file_sets(paths: IpPaths, mapped: bool) -> dict[str, dict[str, str]]:
    """IP-XACT's file sets: types by path."""
    driver = paths.driver if mapped else ()
    return {
        "rtl": {paths.rtl: "verilogSource"},
        "testbench": {
            paths.testbench: "systemVerilogSource",
            paths.vectors: "user",
            paths.cocotb_test: "user",
            "weights.bin": "user",
        },
        "constraints": {paths.sdc: "SDC"},
        "software": dict.fromkeys((C_HEADER, *driver), "cSource"),
    }


def _kind(manifest: Manifest) -> str:
    """What the core is, in a few words."""
    recurrent = "recurrent " if any(layer.recurrent for layer in manifest.layers) else ""
    loadable = "" if manifest.parameters.capacity is None else "loadable "
    return f"A {loadable}{recurrent}network core"


def _plain(version: str) -> str:
    """The numbers at the beginning of a version: other tools take nothing else."""
    found = re.match(r"\d+(\.\d+)*", version)
    return found[0] if found else "0"


def _render(common: Mapping[str, Any], template: str, escape: bool = False, **values: Any) -> str:
    """Fill in a template beside this module."""
    return _template(template, escape).render({**common, **values})


@cache  # Else most of a small build's time would go into the same templates again.
def _template(name: str, escape: bool) -> "Template":
    # Imported here: it takes a while, and only writing a build needs it.
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string((files("rtlstm.gen.ip") / "templates" / name).read_text(encoding="utf-8"))


def c_header(manifest: Manifest, initial_state: InitialState | None = None) -> str:
    """Return the header, in C99: byte offsets of the registers that the build answers, masks and shifts of
    their fields, and the build's constants, with the state in which its model begins, if that is not zeros.
    Same manifest and state, same text."""
    program, numerics, layout = manifest.program, manifest.numerics, StateLayout(manifest)
    initial: list[tuple[str, list[int]]] = []
    if initial_state is not None:
        # Values beyond their format saturate, as in the driver.
        h, c, _ = layout.parse(initial_state, None)
        initial = [
            (name, [int(value) for each in layers for value in each.ravel()])
            for name, layers in (("H", h), ("C", c))
        ]
    states = (
        ("H", program.hidden, layout.sizes, layout.hidden_formats, numerics.data_bits),
        ("C", program.cells, layout.cell_sizes, layout.cell_formats, numerics.cell.bits),
    )
    return _render(
        {"spdx": SPDX, "manifest": manifest, "program": program, "numerics": numerics},
        "registers.h",
        identity=IDENTITY,
        tokens=manifest.parameters.token_rows,
        map_version=MAP_VERSION,
        parts=list(_parts(manifest)),
        registers=[(each, REGISTERS[each]) for each in registers_of(manifest.parameters.bus)],
        constants=(
            ("Values of COMMAND.", "COMMAND", Command),
            ("Bits of IRQ_ENABLE and IRQ_PENDING.", "IRQ", Interrupt),
            ("Memories behind the window.", "REGION", Region),
        ),
        state=[
            (name, [(row, units, bits, form.fraction) for (row, _), units, form in zip(*each, strict=True)])
            for name, *each, bits in states
        ],
        initial=initial,
    )


def _parts(manifest: Manifest) -> Iterator[tuple[str, str, int, int]]:
    """Yield each of several outputs: its names in C and in a comment, its first value and their count."""
    names: set[str] = set()
    for part, where in part_slices(manifest.parts).items():
        name = re.sub(r"\W+", "_", part, flags=re.ASCII).upper()
        while name in names:
            name += "_"
        names.add(name)
        text = re.sub(r"[^ -~]|\*/|/\*", "?", part)
        yield name, text, where.start, where.stop - where.start
