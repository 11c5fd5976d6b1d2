"""What is done with a build folder that was changed after it was generated: named, and not used."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.small_builds import INPUTS, NARROW, TINY, network, own_verilog, snapshot

from rtlstm import Accelerator, Bidirectional, BuildError, Manifest, Network
from rtlstm.gen.builds.generate import generate_build

Place = tuple[str | int, ...]

X = np.random.default_rng(0).uniform(-3, 3, (6, INPUTS))


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Where each leaf of a JSON value stands, and each list and object that holds some."""
    yield place
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*place, key))


def changes(value: Any) -> list[Any]:
    """Other values for a place: near ones, since those are the likely ones to pass."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1]
        case float():
            return [value * 1.5 + 1]
        case str():
            return [value[:-1] + ("0" if value.endswith("1") else "1")]
        case None:
            return [1]
        case list():
            return [value[:-1]] if value else [[1]]
        case _:
            return [{}] if value else []


def edits(fields: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Each single change of a manifest: a value that is another one, or left out."""
    for place in places(fields):
        if not place:
            continue
        changed = copy.deepcopy(fields)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        here = inner[place[-1]]
        for other in changes(here):
            inner[place[-1]] = other
            yield place, changed
        del inner[place[-1]]
        yield place, changed


def both_ways() -> Network:
    lstm = network().layers[0]
    return Network(layers=(Bidirectional(forward=lstm, backward=lstm.replace(reverse=True)),))


def load(folder: Path) -> tuple[Manifest | None, str]:
    """Return the manifest, or why it is refused."""
    try:
        return Manifest.load(folder), ""
    except BuildError as error:
        return None, str(error)


SMALL = NARROW.replace(data_bits=4, gate_bits=6, cell_bits=8)
BUILDS = {
    "plain": (network(), {}),
    "loadable": (network(), {"capacities": {}}),
    "both ways": (both_ways(), {}),
    "gru": (CELL_NETWORKS["gru"], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_every_value_of_a_manifest(name, tmp_path):
    """One change opens only if nothing follows from it, and nothing that follows has changed."""
    net, options = BUILDS[name]
    parameters = TINY.replace(max_steps=8)
    generate_build(net, tmp_path / "a", name="tiny", parameters=parameters, settings=SMALL, **options)
    made, path = Manifest.load(tmp_path / "a"), tmp_path / "b" / "manifest.json"
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    opened = set()
    for place, changed in edits(json.loads(path.read_text())):
        path.write_text(json.dumps(changed))
        found, refused = load(path.parent)
        assert "\n" not in refused and (found or str(path.parent) in refused), place
        if found is None or found == made:
            # Equal: a default was left out, say.
            continue
        opened.add(".".join(str(key) for key in place))
        free = {name: getattr(made, name) for name in ("rtlstm_version", "files", "batch_first")}
        assert found.replace(**free) == made, place
    # With other files it is opened, but not compiled: see below. The order of axes says what data mean.
    assert opened == {"rtlstm_version", "files", "files.0.sha256", "files.1", "files.1.sha256", "batch_first"}


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("program", "ops", 0, "columns"), 9, "program.ops.0.columns must be 2, not 9"),
        (("program", "weight_rows"), 99, "program.weight_rows must be"),
        (("cycles", "step_latency_cycles"), 1, "cycles.step_latency_cycles must be"),
        (("cycles", "layers", 0, "name"), "x", 'cycles.layers.0.name must be "lstm", not "x"'),
        (("build_hash",), "0" * 64, "its build_hash is not that of"),
        (("parameters", "streams"), 3, "its build_hash is not that of"),
        (("parameters", "lanes"), 1024, "generate the build again"),
        (("numerics", "tables", 1, "base", 3), 5, "generate the build again"),
        (("files",), [], "its files do not list rtl/tiny.v"),
        (("files", 0, "path"), "../../x.v", 'and rtlstm_registers.h, or state.npz, too, not ["../'),
    ],
)
def test_what_was_changed_is_named(cli, build, place, value, words):
    fields = json.loads((build / "manifest.json").read_text())
    inner = fields
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (build / "manifest.json").write_text(json.dumps(fields))
    cli("inspect", build).refused(words, "generate the build again")


def test_changed_verilog_is_never_compiled(cli, build, model, tmp_path):
    """It would run a command, given the chance: Verilator compiles what stands in $c as C++."""
    sign, x = tmp_path / "it_ran", tmp_path / "x.npy"
    np.save(x, X)
    rtl = build / "rtl" / "tiny.v"
    command = f'initial $c("system(\\"touch {sign}\\");");'
    rtl.write_text(rtl.read_text().replace("endmodule", f"  {command}\nendmodule", 1))
    before = snapshot(build)
    for arguments in (
        ("simulate", build, "--simulator", "icarus"),
        ("simulate", build, "--simulator", "verilator"),
        ("run", build, "--backend", "icarus", "--input", x),
        ("run", build, "--backend", "verilator", "--input", x),
        ("implement", build, "--device", "lfe5u-25f"),
        ("bitstream", build, "--board", "ulx3s-85f"),
        ("board", build, "--board", "ulx3s-85f"),
        ("inspect", build),
        ("generate", model, "-o", tmp_path / "other", "--for", build),
    ):
        cli(*arguments).refused("rtl/tiny.v was changed after it was generated", "generate the build again")
    assert snapshot(build) == before and not sign.exists() and not (tmp_path / "other").exists()
    # What compiles nothing still serves.
    assert cli("run", build, "--backend", "golden", "--input", x).code == 0


def test_a_changed_header_is_named(cli, build):
    header = build / "rtlstm_registers.h"
    header.write_text(header.read_text() + "int more;\n")
    cli("inspect", build).refused("rtlstm_registers.h was changed after it was generated")


@pytest.mark.rtl
def test_verilog_that_was_changed_on_purpose(cli, build):
    """The refusal says what to write where; with it, the file is used."""
    rtl, path = build / "rtl" / "tiny.v", build / "manifest.json"
    rtl.write_text(rtl.read_text() + "// mine\n")
    refused = cli("simulate", build, "--simulator", "icarus")
    refused.refused("if the change is yours, write its SHA-256 into 'files' of manifest.json: ")
    own = refused.err.strip().rpartition(" ")[2]
    old = Manifest.load(build).files[0].sha256
    path.write_text(path.read_text().replace(old, own))
    assert cli("simulate", build, "--simulator", "icarus", "--steps", "2").code == 0


@pytest.mark.rtl
def test_own_verilog_of_another_kind_is_found_out(build):
    """Verilog that is taken over still has to be this core's."""
    own_verilog(build, (build / "rtl" / "tiny.v").read_text().replace("module tiny(", "module other("))
    with pytest.raises(Exception, match="tiny"):
        Accelerator.open(build, "icarus")


def test_inspect_says_what_is_as_it_was_generated(cli, pristine):
    said = cli("inspect", pristine).good()
    for file in Manifest.load(pristine).files:
        assert f"{file.path}: as it was generated, SHA-256 {file.sha256[:16]}" in said.out
    assert set(cli("inspect", pristine, "--json").json["files"]) == {"rtl/tiny.v", "rtlstm_registers.h"}
