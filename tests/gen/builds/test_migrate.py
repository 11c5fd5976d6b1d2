"""Builds of older versions: rewritten with the same bits, or refused by name with the command that rebuilds.

``old_builds`` has a build that the last rtlstm of schema version 5 wrote, and what it gave for some inputs.
"""

import hashlib
import json
import shlex
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.paths import ROOT
from support.small_builds import tensors

from rtlstm.cli.commands import find_command
from rtlstm.gen.builds.compiled import Build
from rtlstm.gen.builds.migrate import migrate_build
from rtlstm.spec.errors import BuildError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.manifest_versions import MANIFEST_SCHEMA

OLD = ROOT / "tests" / "support" / "old_builds"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(OLD / "gru_v5.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "gru"


def change(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    fields = json.loads(path.read_text())
    for name, value in changes.items():
        holder = fields
        *way, last = name.split("__")
        for part in way:
            holder = holder[part]
        holder[last] = value
    path.write_text(json.dumps(fields))


def hashes(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.rtl
def test_an_old_build_gives_the_bits_that_it_gave(old: Path, cli) -> None:
    with pytest.raises(BuildError, match=f"version 5, .* rewrite it with 'rtlstm migrate {old}'"):
        Manifest.load(old)
    before, recorded = hashes(old), np.load(OLD / "gru_v5_outputs.npz")
    done = cli("migrate", old)
    assert done.code == 0 and f"5, now {MANIFEST_SCHEMA}" in done.out
    after = hashes(old)
    assert {name for name in before if before[name] != after[name]} == {"manifest.json", "ip/gru.cdx.json"}
    build = Build(old)
    np.testing.assert_array_equal(build.run(recorded["x"])[0], recorded["y"])
    # The Verilog of then, against the golden model and the cycles of now.
    found = build.simulate(recorded["x"][:6, 0], simulator="icarus", verify=False)
    assert found.passed and found.output_words == 6 * 4
    bill = json.loads((old / "ip" / "gru.cdx.json").read_text())
    listed = {each["name"]: each["hashes"][0]["content"] for each in bill["components"]}
    assert listed["manifest.json"] == after["manifest.json"]
    assert listed == {name: after[name] for name in listed}
    again = migrate_build(old)
    assert again.found == again.now and hashes(old) == after


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"schema_version": 4}, "since version 5 what sigmoid and tanh read is rounded down"),
        ({"schema_version": 1}, "since version 5 what sigmoid and tanh read"),
        ({"schema_version": MANIFEST_SCHEMA + 1}, "it was written by a later rtlstm"),
        ({"schema_version": "5"}, "it is no manifest of rtlstm"),
        ({"cycles__step_latency_cycles": 9}, "by its shapes, formats and options cycles.step_latency_cycles"),
        ({"build_hash": "0" * 64}, "its build_hash is not that of its shapes"),
        ({"numerics__input": 3}, "does not validate: numerics: input: must be"),
        ({"parameters__capacity": {}}, "since version 6 loadable programs have more room"),
    ],
)
def test_what_cannot_stay_is_refused_and_left_alone(old: Path, cli, changes: Any, message: str) -> None:
    change(old, **changes)
    before = hashes(old)
    done = cli("migrate", old)
    assert done.code == 2 and message in done.err and hashes(old) == before, done.err
    # The command can be typed, and has the sizes and bits of the build.
    command = done.err.strip().partition("calibrated with: ")[2]
    words = shlex.split(command)
    assert words[:5] == ["rtlstm", "generate", "MODEL", "-o", str(old)]
    given = find_command("generate").make_context("generate", words[2:]).params
    assert (given["lanes"], given["macs"], given["weight_bits"]) == (4, 1, 6) and given["name"] == "gru"
    assert given["capacities"] == ("parameters__capacity" in changes)


SMALL = (
    "--weight-bits",
    6,
    "--data-bits",
    8,
    "--gate-bits",
    10,
    "--cell-bits",
    12,
    "--lanes",
    8,
    "--macs",
    4,
)


@pytest.mark.parametrize(
    "given",
    [
        (
            *("--bus", "axilite", "--beat-in", 2, "--max-steps", 30, "--streams", 3),
            *("--family", "ecp5", "--gate-units", 2, "--beat-out", 4, "--multipliers", 1, "--lut-lanes", 2),
        ),
        ("--skip-zeros", "--tables", "direct", "--hidden-rounding", "odd", "--dense-weight-bits", 5),
        ("--loadable", "--multipliers", "lut", "--output-bits", 10, "--table-memory", "rom"),
    ],
    ids=lambda given: given[0],
)
def test_the_command_makes_the_same_build(
    given: tuple[Any, ...], cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the options that select layers of the model, and data, which a manifest does not tell."""
    weights = tensors()
    # Words that are zero in all rows of the first group.
    weights["lstm.weight_ih_l0"][:8] = 0.0
    save_file(weights, tmp_path / "model.safetensors")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3)))
    model = ("--dense", "fc", "--calibrate", str(tmp_path / "x.npy"))
    # A report has the name of the model's file.
    monkeypatch.chdir(tmp_path)
    done = cli("generate", "model.safetensors", "-o", tmp_path / "one", *model, *SMALL, *given)
    assert done.code == 0, done.err
    before = Manifest.load(tmp_path / "one")
    change(tmp_path / "one", schema_version=4)
    words = shlex.split(cli("migrate", tmp_path / "one").err.strip().partition("calibrated with: ")[2])
    assert words[:3] == ["rtlstm", "generate", "model.safetensors"]
    done = cli(*words[1:], *model)
    assert done.code == 0, done.err
    assert Manifest.load(tmp_path / "one") == before


def test_damage_is_not_migrated(old: Path, cli) -> None:
    verilog = old / "rtl" / "gru.v"
    verilog.write_text(verilog.read_text() + "\n")
    cli("migrate", old).refused("gru.v was changed after it was generated", "schema version 5")
    cli("migrate", old.parent).refused("is not a build folder")


def test_every_version_is_migrated_or_refused_by_name(old: Path) -> None:
    for version in range(1, MANIFEST_SCHEMA):
        change(old, schema_version=version)
        with pytest.raises(BuildError, match=f"version {version}, .*(migrate|since version)"):
            Manifest.load(old)
