"""Build folders: whole or not at all, and the same bytes every time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.paths import TESTS
from support.small_builds import NARROW, TINY, network, snapshot

import rtlstm.gen.builds.generate
from rtlstm import Accelerator, Build, Manifest, QuantizationSettings, compile
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.fit import FitRequest
from rtlstm.gen.builds.compare import compare
from rtlstm.gen.builds.generate import (
    KEYWORDS,
    check_build_name,
    derive_build_name,
    explain_build_name,
    generate_build,
)
from rtlstm.gen.builds.hardware import ArrayRequest
from rtlstm.spec.errors import BuildError, ConfigurationError, InputError
from rtlstm.tools.cache import CACHE_VARIABLE

FILES = {"manifest.json", "report.html", "report.json", "rtl/tiny.v", "rtlstm_registers.h", "weights.bin"}
FILES |= {"component.xml", "tiny.core", "tiny_hw.tcl", "ip/tiny.cdx.json", "ip/tiny.sdc", "ip/tiny.veo"}
FILES |= {"ip/tiny.xdc", "ip/tiny_tb.hex", "ip/tiny_tb.sv", "ip/test_tiny.py"}


def test_a_build_holds_what_the_design_says(pristine):
    assert set(snapshot(pristine)) == FILES
    manifest = Manifest.load(pristine)
    assert manifest.name == "tiny"
    assert f"module {manifest.name}(" in (pristine / "rtl" / "tiny.v").read_text()
    with Accelerator.open(pristine, "golden") as accelerator:
        y, _ = accelerator.run(np.zeros((2, 3)))
    assert y.shape == (2, 2)


def test_same_input_same_bytes(pristine, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))  # The Verilog is written again.
    generate_build(network(), tmp_path / "elsewhere" / "again", parameters=TINY, settings=NARROW)
    assert snapshot(tmp_path / "elsewhere" / "again") == snapshot(pristine)


@pytest.mark.slow
def test_same_bytes_whatever_the_hash_seed(pristine, tmp_path):
    code = (
        "import sys; from pathlib import Path; from support.small_builds import NARROW, TINY, network;"
        "from rtlstm.gen.builds.generate import generate_build;"
        "generate_build(network(), Path(sys.argv[1]), parameters=TINY, settings=NARROW)"
    )
    paths = [str(TESTS), *(path for path in sys.path if path)]
    found = []
    for seed in ("1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(paths)}
        environment[CACHE_VARIABLE] = str(tmp_path / f"cache {seed}")
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True)
        found.append(snapshot(tmp_path / seed))
    assert found[0] == found[1]
    # Pictures are empty in this process.
    (page,) = (name for name in found[0] if str(name).endswith("report.html"))
    assert found[0] | {page: b""} == snapshot(pristine) | {page: b""}


def test_no_file_names_its_folder(pristine):
    for name, content in snapshot(pristine).items():
        assert str(pristine).encode() not in content, name


@pytest.mark.usefixtures("without_verilog")
def test_a_build_is_replaced(pristine, tmp_path):
    folder = tmp_path / "b"
    shutil.copytree(pristine, folder)
    (folder / "sim").mkdir()
    generate_build(
        network(), folder, name="other", parameters=TINY, settings=QuantizationSettings(weight_bits=8)
    )
    assert set(snapshot(folder)) == {name.replace("tiny", "other") for name in FILES}
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.slow
def test_an_empty_folder_and_a_link_to_one_are_taken(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    generate_build(network(), tmp_path / "link", parameters=TINY)
    assert set(snapshot(tmp_path / "real")) == FILES and (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("content", ["notes.txt", "manifest.json", "build and notes"])
def test_other_folders_are_refused(pristine, tmp_path, content):
    folder = tmp_path / "b"
    if content == "build and notes":
        shutil.copytree(pristine, folder)
        (folder / "notes.txt").write_text("mine")
    else:
        folder.mkdir()
        (folder / content).write_text('{"name": "a web page"}')
    before = snapshot(tmp_path)
    with pytest.raises(BuildError, match="choose another folder"):
        generate_build(network(), folder, parameters=TINY)
    assert snapshot(tmp_path) == before


def test_a_file_and_the_current_folder_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BuildError, match="is a file"):
        generate_build(network(), tmp_path / "file")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BuildError, match="current folder"):
        generate_build(network(), Path("."))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
@pytest.mark.parametrize("stage", ["core_to_verilog", "render_report", "write_files"])
def test_nothing_half_written(pristine, tmp_path, monkeypatch, error, stage):
    shutil.copytree(pristine, tmp_path / "old")
    before = snapshot(tmp_path)

    def fail(*arguments):
        if stage == "write_files":
            (arguments[0] / "manifest.json").write_text("half")
        raise error

    # The same Verilog as the old build's, which need not be made again.
    verilog = (pristine / "rtl" / "tiny.v").read_text()
    monkeypatch.setattr(rtlstm.gen.builds.generate, "core_to_verilog", lambda *arguments: verilog)
    monkeypatch.setattr(rtlstm.gen.builds.generate, stage, fail)
    for target in (tmp_path / "old", tmp_path / "made" / "new"):
        with pytest.raises(BuildError if error is OSError else error):
            generate_build(network(), target, parameters=TINY, settings=NARROW)
        assert snapshot(tmp_path) == before
        assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.usefixtures("without_verilog")
def test_a_failed_swap_brings_the_old_build_back(pristine, tmp_path, monkeypatch):
    shutil.copytree(pristine, tmp_path / "b")
    before = snapshot(tmp_path)
    rename = Path.rename

    def fail(self, target):
        if self.name.endswith(".new"):
            raise OSError("disk")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(BuildError, match="cannot be written to .*b: disk; name another folder"):
        generate_build(network(), tmp_path / "b", name="other", parameters=TINY)
    assert snapshot(tmp_path) == before


def test_calibration_data_are_checked_before_anything_is_made(tmp_path):
    with pytest.raises(InputError, match="calibration"):
        generate_build(network(), tmp_path / "b", calibration=np.zeros((4, 7)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("silero_vad", "silero_vad"),
        ("my model-2", "my_model_2"),
        ("2fast", "lstm_2fast"),
        ("module", "module_core"),
        ("Logic", "Logic_core"),
        ("rtlstm_harness", "lstm_rtlstm_harness"),
        ("2" * 300, "lstm_" + "2" * 59),
        ("\u00e9t\u00e9", "t"),
        ("___", "lstm"),
        ("", "lstm"),
        ("x" * 300, "x" * 64),
    ],
)
def test_names_are_made_fit(text, name):
    assert derive_build_name(text) == name
    assert check_build_name(name) == name
    why = explain_build_name(text)
    assert why == (
        f"the build is named {name}, because '{text}' is a word that Verilog tools reserve"
        if name.endswith("_core")
        else None
    )


@pytest.mark.slow
def test_an_addition_to_a_name_is_told(tmp_path, pristine):
    renamed = compile(network().replace(name="small"), folder=tmp_path / "b", lanes=4, macs=1)
    text = "the build is named small_core, because 'small' is a word that Verilog tools reserve"
    assert (renamed.name, renamed.report().notes) == ("small_core", (text,))
    assert Build(pristine).report().notes == ()


@pytest.mark.parametrize(
    "name", ["", "2x", "a-b", "a b", "wire", "Module", "_x", "x" * 65, "x\n", "Rtlstm_x"]
)
def test_unfit_names_are_refused(name):
    with pytest.raises(ConfigurationError, match="name must"):
        check_build_name(name)


def test_keywords_hold_those_of_both_languages():
    assert {"module", "reg", "logic", "always_ff", "uwire"} <= KEYWORDS


def test_sizes_are_chosen_in_one_way(tmp_path):
    for other in ({"array": ArrayRequest(lanes=4)}, {"fit": FitRequest(chosen=find_device("up5k"))}):
        with pytest.raises(ConfigurationError, match="all choose the hardware's sizes; give one of them"):
            generate_build(network(), tmp_path / "build", parameters=TINY, **other)
    assert not (tmp_path / "build").exists()


def test_comparing_nothing_is_refused(pristine):
    with pytest.raises(InputError, match=r"at least one step of one sequence .* \(4, 0, 3\)"):
        compare(pristine, np.zeros((4, 0, 3)), simulator="icarus")


@pytest.mark.slow
def test_build_of_another_name_is_replaced(pristine, tmp_path):
    """Files that are called after the former build are its own, and go with it; others' are not."""
    folder = shutil.copytree(pristine, tmp_path / "b")
    generate_build(network(), folder, name="other", parameters=TINY, settings=NARROW)
    assert set(snapshot(folder)) == {name.replace("tiny", "other") for name in FILES}
    (folder / "tiny.core").write_text("mine")
    with pytest.raises(BuildError, match=r"also holds 'tiny\.core'"):
        generate_build(network(), folder, parameters=TINY, settings=NARROW)


def test_looking_at_a_folder_loads_no_generator() -> None:
    code = "import sys, rtlstm.gen.builds.folder; print({'amaranth', 'rtlstm.sim.golden'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
