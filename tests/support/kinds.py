"""What a test starts decides its marker: ``tools`` for FPGA tools, ``rtl`` for simulators, else ``unit``.

The markers select: ``pytest -m unit`` needs neither a simulator nor a compiler nor an FPGA tool. Nobody gives
``unit``: each test has it that has none of the others. A test that starts more than its markers say fails, so
that the selections stay what they are called. Only the test itself is looked at: what a fixture of a whole
module starts belongs to whichever test comes first.
"""

import ctypes
import os
import re
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from rtlstm.tools.cache import cache_folder

KINDS = {
    "tools": re.compile(r"\b(yosys|yowasp[-_]|nextpnr-|ecppack|icepack|gowin_pack|prjoxide|sby)"),
    "rtl": re.compile(r"\b(iverilog|vvp|verilator|g\+\+|c\+\+|make)\b"),
}
"""What the command that a test starts, or the library that it loads, has in its name, by marker."""

_started: set[str] = set()


# An audit hook would see this, too, but be called for each id(): torch and copies make a million of them.
_execute, _load = subprocess.Popen._execute_child, ctypes.CDLL.__init__


def _start(process: Any, words: Any, program: Any, *more: Any, **named: Any) -> Any:
    """Note what kind of program starts."""
    few = [words] if isinstance(words, str | bytes | os.PathLike) else [*words][:3]
    names = " ".join(str(word) for word in (program, *few))
    _started.update(kind for kind, pattern in KINDS.items() if pattern.search(names))
    return _execute(process, words, program, *more, **named)


def _open(library: Any, name: Any, *more: Any, **named: Any) -> None:
    """Note that a compiled simulator is loaded."""
    if str(name).startswith(str(cache_folder())):
        _started.add("rtl")
    _load(library, name, *more, **named)


subprocess.Popen._execute_child, ctypes.CDLL.__init__ = _start, _open


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test as ``unit`` that bears no other kind."""
    for item in items:
        if not any(item.get_closest_marker(kind) for kind in KINDS):
            item.add_marker(pytest.mark.unit)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that starts what its markers do not say."""
    _started.clear()
    result = yield
    missing = _started - {marker.name for marker in pyfuncitem.iter_markers()}
    if missing:
        names = " and ".join(f"pytest.mark.{kind}" for kind in sorted(missing))
        pytest.fail(f"mark this test with {names}: it starts such programs", pytrace=False)
    return result
