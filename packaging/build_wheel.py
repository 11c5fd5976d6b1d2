"""Builds ``rtlstm``: ``python packaging/build_wheel.py DIR`` writes the wheel to ``DIR``.

From a copy: in the tree, ``build/`` has the links of the editable install, and files deleted since. The copy
has no benchmarks, which are work on rtlstm itself.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = "bench"
"""The folder that is a package of the clone alone."""


def build_wheel(folder: Path) -> Path:
    """Build the wheel into ``folder`` and return its path."""
    project = (ROOT / "pyproject.toml").read_text()
    mapped = tomllib.loads(project)["tool"]["setuptools"]["package-dir"]
    with tempfile.TemporaryDirectory() as text:
        source = Path(text)
        for name in sorted(set(mapped.values()) - {LEFT_OUT}):
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("README.md", "LICENSE", "LICENSE-OUTPUT.txt"):
            shutil.copy(ROOT / name, source)
        kept = (line for line in project.splitlines() if not line.startswith(f'"rtlstm.{LEFT_OUT}"'))
        (source / "pyproject.toml").write_text("\n".join(kept) + "\n")
        return make_wheel(source, folder, "rtlstm")


def make_wheel(source: Path, folder: Path, name: str) -> Path:
    """Make a wheel of the tree ``source``, with the tools of this environment alone; return its path."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    options = ["--no-index", "--no-build-isolation", "--wheel-dir", str(folder.absolute()), "."]
    subprocess.run([*pip, *options], cwd=source, check=True)
    return next(folder.glob(f"{name}-*.whl"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} DIR")
    print(build_wheel(Path(sys.argv[1])))
