"""``make test-oldest`` installs the lower bounds of ``pyproject.toml``, and runs tests that exist."""

import re
import subprocess
import sys
import tomllib

from support.paths import ROOT


def test_bounds_are_those_of_the_project() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "packaging" / "oldest.py"], capture_output=True, text=True, check=True
    )
    pins = dict(line.split("==") for line in done.stdout.split() if "==" in line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [
        *project["dependencies"],
        *(line for name in ("sim", "link", "onnx", "keras", "pictures") for line in extras[name]),
    ]
    bounds = dict(re.match(r"([\w-]+)>=([\w.]+)", line).groups() for line in lines)
    assert bounds.items() <= pins.items()
    assert pins.keys() - bounds.keys() == {"onnxruntime", "matplotlib"}
    assert "pytest>=9.0" in done.stdout.split()


def test_the_target_uses_them() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\ntest-oldest:")[2].partition("\n\n")[0]
    assert "packaging/oldest.py" in recipe and "pip install" in recipe
    tests = re.search(r"^OLDEST_TESTS := (.*?[^\\])$", makefile, re.M | re.S)[1].replace("\\\n", " ").split()
    assert len(tests) > 8
    assert all((ROOT / path).exists() for path in tests)
