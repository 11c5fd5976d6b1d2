"""``rtlstm generate --bus``: the wrapper, the manifest's word for it, and the C header."""

import json
import re
import subprocess

import pytest

from rtlstm.gen.ip.files import c_header
from rtlstm.spec.buses import registers_of
from rtlstm.spec.manifest import C_HEADER, Manifest
from rtlstm.spec.registers import IDENTITY, Register
from rtlstm.tools.toolchain import compiler

PROGRAM = """
#include <stdio.h>
#include "rtlstm_registers.h"
#include "rtlstm_registers.h"
int main(void) {
    printf("%u %u %u %u %d %d %d\\n", RTLSTM_IDENTITY, RTLSTM_BUILD_NUMBER, RTLSTM_DATA,
           (unsigned)(RTLSTM_SELECT_REGION_MASK >> RTLSTM_SELECT_REGION_SHIFT), RTLSTM_INPUTS,
           RTLSTM_STREAMS, RTLSTM_DATA_BITS);
    return RTLSTM_COMMAND_RESET != 1;
}
"""


@pytest.mark.usefixtures("without_verilog")
def test_bus_is_generated(cli, model, tmp_path):
    folder = tmp_path / "build"
    options = ("--macs", "2", "--weight-bits", "8", "--data-bits", "8", "--gate-bits", "8")
    cli("generate", model, "-o", folder, "--name", "vad", "--bus", "axi", *options).good()
    assert json.loads((folder / "manifest.json").read_text())["parameters"]["bus"] == "axi"
    modules = re.findall(r"^module (\w+)", (folder / "rtl" / "vad.v").read_text(), re.MULTILINE)
    assert {"vad", "vad_axi"} <= set(modules)
    # A build with a bus can be replaced like any other, and runs without it.
    assert cli("generate", model, "-o", folder, "--name", "vad", *options).code == 0
    assert "vad_axi" not in (folder / "rtl" / "vad.v").read_text()


def test_unknown_bus_is_refused(cli, model, tmp_path):
    cli("generate", model, "-o", tmp_path / "b", "--bus", "apb").refused(
        "none, axi, axilite, wishbone", "apb"
    )


def test_header_compiles_and_says_what_the_map_says(pristine, tmp_path):
    manifest = Manifest.load(pristine)
    assert (pristine / C_HEADER).read_text() == c_header(manifest)
    (tmp_path / "main.c").write_text(PROGRAM)
    flags = ["-x", "c", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{pristine}"]
    program = tmp_path / "main"
    command = [compiler().path, *flags, tmp_path / "main.c", "-o", program]
    subprocess.run(list(map(str, command)), check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    wanted = [IDENTITY, manifest.build_number, 4 * Register.DATA, 15, 3, 2, 8]
    assert said == [str(int(number)) for number in wanted]


@pytest.mark.parametrize("bus", ["none", "axi", "axilite", "wishbone"])
def test_header_has_the_registers_that_the_build_has(bus, pristine):
    made = Manifest.load(pristine)
    parameters = made.parameters.replace(bus=bus)
    text = c_header(Manifest.create(made.name, made.layers, parameters, made.numerics))
    offsets = {int(offset, 16) for offset in re.findall(r"0x(\w\w)u /\* [rw]+: ", text)}
    assert offsets == {4 * register for register in registers_of(bus)}
