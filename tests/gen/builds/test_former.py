"""``generate`` over a build says which results go with it, and how to make them again."""

import shlex
import shutil
import warnings
from pathlib import Path

import pytest
from support.implementations import implementation
from support.small_builds import NARROW, TINY, network

from rtlstm.boards.bitstream import BITSTREAM_RECORD
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.families.device import device_label
from rtlstm.gen.builds.folder import ReplacedWarning, former_results
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.builds.report_html import update_report
from rtlstm.spec.errors import BuildError
from rtlstm.spec.manifest import Manifest


@pytest.fixture
def used(pristine: Path, tmp_path: Path) -> Path:
    """A build that was implemented on two devices, one without a record, put on two boards and simulated."""
    folder = shutil.copytree(pristine, tmp_path / "my build")
    report = BuildReport.load(folder).with_implementation(implementation(folder, 90, 100, asked=80))
    report = report.with_implementation(implementation(folder, 70, 75, 80, cores=3, insist=True))
    (folder / "report.json").write_text(report.to_json())
    for path in (
        "impl/lfe5u-25f-6",
        "impl/lfe5u-25f-6-3-cores",
        "impl/up5k",
        "boards/ulx3s-85f",
        "boards/pynq-z2",
        "boards/icebreaker",
        "sim",
    ):
        (folder / path).mkdir(parents=True)
    (folder / "boards" / "ulx3s-85f" / BITSTREAM_RECORD).touch()
    (folder / "boards" / "pynq-z2" / "vivado.json").touch()
    (folder / "boards" / "icebreaker" / "top.v").touch()
    return folder


def wanted(folder: Path) -> dict[str, str]:
    name = shlex.quote(str(folder))
    return {
        "impl/lfe5u-25f-6": f"rtlstm implement {name} --device lfe5u-25f --package CABGA381 --speed-grade 6 "
        "--clock 80 --seeds 2",
        "impl/lfe5u-25f-6-3-cores": f"rtlstm implement {name} --device lfe5u-25f --package CABGA381 "
        "--speed-grade 6 --cores 3 --try",
        "impl/up5k": f"rtlstm implement {name} --device DEVICE",
        "boards/pynq-z2": f"rtlstm bitstream {name} --board pynq-z2",
        "boards/ulx3s-85f": f"rtlstm bitstream {name} --board ulx3s-85f",
    }


def test_command_says_what_is_removed(cli, used: Path, model: Path) -> None:
    expected = wanted(used)
    done = cli("generate", model, "-o", used, "--lanes", "4", "--macs", "2", "--json").good()
    assert {each["path"]: each["command"] for each in done.json["removed"]} == expected
    for path, command in expected.items():
        text = f"{path} belonged to the former build and is removed; make it again with '{command}'"
        assert f"note: {text}\n" in done.err and text in done.json["notes"]
    assert not (used / "impl").exists() and not (used / "boards").exists()
    again = cli("generate", model, "-o", used, "--lanes", "4", "--macs", "2", "--json")
    assert again.json["removed"] == [] and "removed" not in again.err


def test_refused_command_removes_nothing_and_says_nothing(cli, used: Path, model: Path) -> None:
    done = cli("generate", model, "-o", used, "--lanes", "5", "--json")
    assert done.code == 2 and "removed" not in done.out + done.err
    assert len(former_results(used)) == 5


def test_results_are_added_to_what_the_report_is_by_then(used: Path) -> None:
    """Two commands run at once; and one while the build is generated again."""
    manifest, before = Manifest.load(used), BuildReport.load(used)
    for cores in (2, 4):
        found = implementation(used, 90, 100, cores=cores)
        update_report(used, manifest, before, lambda now, found=found: now.with_implementation(found))
    after = BuildReport.load(used)
    assert [each.cores for each in after.implementations] == [1, 3, 2, 4]
    assert "4 cores" in (used / "report.html").read_text()
    other = after.replace(memory_bits=after.memory_bits + 1)
    (used / "report.json").write_text(other.to_json())
    with pytest.raises(BuildError, match=r"generated again since; run the command again$"):
        update_report(used, manifest, before, lambda now: now)
    assert BuildReport.load(used) == other


def test_python_is_warned(used: Path) -> None:
    with pytest.warns(ReplacedWarning, match="belonged to the former build") as found:
        generate_build(network(), used, parameters=TINY, settings=NARROW)
    assert len(found) == 5 and {warning.filename for warning in found} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate_build(network(), used, parameters=TINY, settings=NARROW)


def test_commands_name_devices_that_there_are() -> None:
    for device in devices().values():
        chosen = find_device(device.name)
        assert chosen == find_device(device.name, chosen.package, chosen.grade or None)
        assert chosen.label == device_label(device.name, chosen.grade)


def test_other_folders_have_no_results(tmp_path: Path) -> None:
    assert former_results(tmp_path / "none") == () and former_results(tmp_path) == ()
