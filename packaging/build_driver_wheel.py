"""Builds ``rtlstm-driver``: the driver alone, for a small board that has NumPy and pydantic.

    python packaging/build_driver_wheel.py DIR

writes the wheel to ``DIR``. Version, bounds of dependencies and extras come from the project's own
``pyproject.toml``. Both distributions have the package ``rtlstm``: install one of them.
"""

import json
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

from build_wheel import ROOT, make_wheel

PARTS = (
    "rtlstm",
    "spec",
    "tools",
    "host",
    # A manifest names its device family, which says what the build is made of; families look for their
    # primitives beside hdl.
    "fpga/__init__.py",
    "fpga/py.typed",
    "fpga/families",
    "fpga/tools.py",
    "hdl/__init__.py",
)
"""Files and folders of the package."""

NEEDED = ("numpy", "pydantic")
"""Dependencies of the project that the driver needs."""

README = """# rtlstm-driver

The driver of rtlstm's accelerators alone: `rtlstm.Accelerator`, its streams, and the backends `mmio`,
`serial`, `tcp`, `udp` and `spi` (`pip install 'rtlstm-driver[link]'`). It needs NumPy and pydantic.
Simulators, models and the command line are in `rtlstm`, which is installed in the place of this package, not
beside it.
"""


def project() -> dict[str, object]:
    """Return the driver's ``pyproject.toml``."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    about, setuptools = whole["project"], whole["tool"]["setuptools"]
    folders = {part.partition("/")[0] for part in PARTS}
    kept = (
        "name",
        "version",
        "requires-python",
        "license",
        "license-files",
        "authors",
        "classifiers",
        "keywords",
        "entry-points",
    )
    return {
        "build-system": whole["build-system"],
        "project": {key: about[key] for key in kept if key in about}
        | {
            "name": "rtlstm-driver",
            "description": "Drives rtlstm's accelerators on FPGA boards; needs NumPy and pydantic alone.",
            "readme": "README.md",
            "dependencies": [line for line in about["dependencies"] if line.startswith(NEEDED)],
            "optional-dependencies": {"link": about["optional-dependencies"]["link"]},
        },
        "tool": {
            "setuptools": {
                "include-package-data": False,
                "package-dir": {
                    name: folder for name, folder in setuptools["package-dir"].items() if folder in folders
                },
                "package-data": setuptools["package-data"],
            }
        },
    }


def toml(table: dict[str, object], name: str = "") -> str:
    """Write a table of texts, flags, lists of texts and tables as TOML."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"[{name}]"] if name and plain else []
    # JSON's texts, flags and lists are TOML's, too.
    lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            lines.append(toml(value, f"{name}.{json.dumps(key)}" if name else json.dumps(key)))
    return "\n".join(lines) + "\n"


def build_wheel(folder: Path) -> Path:
    """Build the wheel into ``folder`` and return its path."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place)
        for part in PARTS:
            target = source / part
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / part, target)
        shutil.copy(ROOT / "LICENSE", source)
        shutil.copy(ROOT / "LICENSE-OUTPUT.txt", source)
        (source / "README.md").write_text(README)
        (source / "pyproject.toml").write_text(toml(project()))
        return make_wheel(source, folder, "rtlstm_driver")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} DIR")
    print(build_wheel(Path(sys.argv[1])))
