"""The wheel: it has all but the benchmarks, and its driver needs numpy and pydantic alone."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.paths import FOLDERS, ROOT

# Imports of other packages fail. The environment's own rtlstm is further down the path.
DRIVER = """
import sys
allowed = {"rtlstm", "numpy", "pydantic", "pydantic_core", "annotated_types", "typing_extensions",
           "typing_inspection"} | sys.stdlib_module_names
class Alone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"{name} must not be imported", name=name)
sys.meta_path.insert(0, Alone())
sys.path.insert(0, sys.argv[1])
import rtlstm.host
from rtlstm.spec.family import FAMILIES
assert {"ecp5", "generic", "ice40"} <= {family.name for family in FAMILIES.values()}
if len(sys.argv) > 2:
    try:
        import rtlstm.host.link.link_transport
    except rtlstm.spec.errors.ToolError as error:
        print(error)
    allowed |= set(sys.argv[2:])
    sys.modules.pop("rtlstm.host.link.framing", None)
    import rtlstm.host.link.link_transport
print(rtlstm.host.__file__)
"""


def run(*command: object, folder: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return Path(run(sys.executable, ROOT / "packaging" / "build_wheel.py", folder, folder=folder).split()[-1])


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    folder = wheel.parent / "installed"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", "--target", folder, wheel, folder=wheel.parent)
    return folder


def test_wheel_has_every_file(wheel: Path):
    files = (
        path for name in FOLDERS if name != "bench" for path in (ROOT / name).rglob("*") if path.is_file()
    )
    # The folder rtlstm/ is the package itself; the others are packages in it.
    names = (path.relative_to(ROOT).as_posix() for path in files if path.suffix != ".pyc")
    expected = {f"rtlstm/{name.removeprefix('rtlstm/')}" for name in names}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected


@pytest.mark.slow
def test_benchmarks_need_a_clone_and_say_so(installed: Path):
    program = "import sys; sys.path.insert(0, sys.argv[1]); import rtlstm.cli.main as m; m.main(['bench'])"
    command = [sys.executable, "-I", "-c", program, str(installed)]
    done = subprocess.run(command, cwd=installed, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'rtlstm bench' needs a clone of rtlstm's repository" in done.stderr


def test_driver_needs_numpy_and_pydantic_alone(installed: Path):
    file = run(sys.executable, "-I", "-c", DRIVER, installed, folder=installed)
    assert Path(file.strip()).is_relative_to(installed)


def test_link_needs_two_packages_more_and_says_so(installed: Path):
    said = run(sys.executable, "-I", "-c", DRIVER, installed, "cobs", "fastcrc", folder=installed)
    error, file = said.splitlines()
    assert "needs the packages cobs and fastcrc" in error and "pip install 'rtlstm[link]'" in error
    assert Path(file).is_relative_to(installed)


def test_every_backend_and_family_loads_without_metadata(installed: Path):
    """As in a frozen program, or a checkout on PYTHONPATH; the entry points load, too."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import importlib.metadata as metadata\n"
        "found = next(d for d in metadata.distributions(path=[sys.argv[1]]) if d.name == 'rtlstm')\n"
        "print(*(point.name for point in found.entry_points if point.group[:4] != 'pynq' and point.load()))\n"
        "metadata.entry_points = lambda **_: ()\n"
        "for name in [name for name in sys.modules if name.startswith('rtlstm')]: del sys.modules[name]\n"
        "from rtlstm.host.transport import BACKENDS\n"
        "from rtlstm.spec.family import FAMILIES\n"
        "for each in (BACKENDS, FAMILIES): print(*(name for name in each if each.named(name)))\n"
    )
    points, backends, families = run(
        sys.executable, "-I", "-c", program, installed, folder=installed
    ).splitlines()
    assert points.split() == ["rtlstm", "rtlstm.pytest_plugin"]
    links = ["serial", "tcp", "udp", "spi", "mmio", "pynq"]
    assert backends.split() == ["golden", "verilator", "icarus", "amaranth", *links]
    assert families.split() == ["ecp5", "generic", "gowin", "ice40", "intel", "nexus", "ultrascale", "xilinx"]
