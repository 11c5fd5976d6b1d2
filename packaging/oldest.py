"""Prints what ``make test-oldest`` installs: each direct dependency at its bound in ``pyproject.toml``.

The extras ``fpga`` (large, and not run by those tests) and ``torch`` are left out. Tools that only tests need
come in their newest release, and so does what the dependencies need themselves.
"""

import re
import tomllib
from pathlib import Path

EXTRAS = ("sim", "link", "onnx", "keras", "pictures", "demo")
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "apytypes", "setuptools")


def requirements(text: str) -> list[str]:
    """Return the lines of a requirements file for this ``pyproject.toml``."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    direct = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    pins = {}
    for line in direct:
        if line.startswith("rtlstm["):
            continue
        found = re.fullmatch(r"([\w-]+)>=([\w.]+)(,<[\w.]+)?", line)
        if found is None:
            raise SystemExit(f"a dependency needs a lower bound, as in name>=1.0, not {line!r}")
        pins[found[1]] = found[2]
    tools = [line for line in extras["dev"] if re.match(r"[\w-]+", line)[0] in TOOLS]
    return [f"{name}=={bound}" for name, bound in pins.items()] + tools


if __name__ == "__main__":
    print(*requirements((Path(__file__).parents[1] / "pyproject.toml").read_text()), sep="\n")
