"""The files of a build folder for other flows: their paths and what is in them."""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from rtlstm.gen.ip.interfaces import ipxact_interfaces, qsys_interfaces
from rtlstm.gen.ip.paths import IpPaths
from rtlstm.gen.ip.ports import core_ports, read_ports
from rtlstm.gen.ip.registers import is_mapped, register_entries
from rtlstm.gen.ip.vectors import Vectors
from rtlstm.hdl.buses.request_port import NUMBER_BITS
from rtlstm.hdl.emit.header import SPDX
from rtlstm.sim.simulated_ports import PortSpec
from rtlstm.spec.family import FAMILIES
from rtlstm.spec.manifest import C_HEADER, Manifest
from rtlstm.spec.registers import IDENTITY, Register

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["DEFAULT_MHZ", "driver_files", "ip_files"]

DEFAULT_MHZ: Final = 100.0
"""Clock of the constraints if no device was named."""
_TEST_STEPS: Final = 4
"""Steps of each sequence of the cocotb test."""
_TOLD: Final = ("shape", "stopped")
"""Ports at which some cores tell of the network that is loaded."""


def ip_files(manifest: Manifest, verilog: str, vectors: Vectors, clock_mhz: float | None) -> dict[str, str]:
    """Return the texts of the files by path, without the bill of materials. Same input, same texts.

    Parameters
    ----------
    verilog
        The build's Verilog.
    vectors
        What the testbench sends and expects.
    clock_mhz
        Clock that the build was made for; :data:`DEFAULT_MHZ` if None.
    """
    paths, core, kind = IpPaths(manifest.name), core_ports(manifest, verilog), _kind(manifest)
    mhz = clock_mhz or DEFAULT_MHZ
    known = "as estimated for the device" if clock_mhz else "no device was named, so put yours"
    common = {
        "spdx": SPDX,
        "version": manifest.rtlstm_version,
        "plain_version": _plain(manifest.rtlstm_version),
        "name": manifest.name,
        "build": manifest.build_hash[:8],
        "description": f"{kind}: {manifest.program.inputs} inputs, {manifest.outputs} outputs a step",
        "paths": paths,
        "core": core,
        "period": 1000 / mhz,
        "clock_text": f"{mhz:g} MHz, {known}",
        "registers": register_entries(manifest) if is_mapped(manifest) else (),
    }
    render = _Renderer(common)
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
            synthesis=FAMILIES.named(manifest.parameters.family).open_synthesis,
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
    if is_mapped(manifest):
        texts[paths.rdl] = render("registers.rdl")
        texts |= driver_files(manifest)
    return texts


def driver_files(manifest: Manifest) -> dict[str, str]:
    """Return the texts of the C driver by path: the same for every build."""
    render = _Renderer({"spdx": SPDX})
    return {path: render(path.rpartition("/")[2]) for path in IpPaths(manifest.name).driver}


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
    return f"A {manifest.parameters.program_kind}{recurrent}network core"


def _plain(version: str) -> str:
    """The numbers at the beginning of a version: other tools take nothing else."""
    found = re.match(r"\d+(\.\d+)*", version)
    return found[0] if found else "0"


class _Renderer:
    """Fills in the templates beside this module."""

    def __init__(self, common: Mapping[str, Any]) -> None:
        self._common = common
        self._environments = {escape: self._environment(escape) for escape in (False, True)}

    @staticmethod
    def _environment(escape: bool) -> "Environment":
        # Imported here: it takes a while, and only writing a build needs it.
        from jinja2 import Environment, StrictUndefined

        return Environment(
            autoescape=escape,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )

    def __call__(self, template: str, escape: bool = False, **values: Any) -> str:
        text = (files("rtlstm.gen.ip") / "templates" / template).read_text(encoding="utf-8")
        return self._environments[escape].from_string(text).render({**self._common, **values})
