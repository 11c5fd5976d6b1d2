"""What a test starts decides its marker: ``tools`` for FPGA tools, ``rtl`` for simulators, else ``unit``.

The markers select: ``pytest -m unit`` needs neither a simulator nor a compiler nor an FPGA tool. Nobody gives
``unit``: each test has it that has none of the others. A test that starts more than its markers say fails, so
that the selections stay what they are called. Only the test itself is looked at: what a fixture of a whole
module starts belongs to whichever test comes first.
"""

import re
import sys
from collections.abc import Generator
from typing import Any

import pytest

from rtlstm.tools.cache import cache_folder

__all__ = ["KINDS"]

KINDS = {
    "tools": re.compile(r"\b(yosys|yowasp[-_]|nextpnr-|ecppack|icepack|gowin_pack|prjoxide|sby)"),
    "rtl": re.compile(r"\b(iverilog|vvp|verilator|g\+\+|c\+\+|make)\b"),
}
"""What the command that a test starts, or the library that it loads, has in its name, by marker."""

_started: set[str] = set()


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what kind of program starts, or that a compiled simulator is loaded."""
    if event == "subprocess.Popen":
        executable, words = arguments[0], arguments[1]
        names = " ".join(str(word) for word in [executable, *words[:3]])
        _started.update(kind for kind, pattern in KINDS.items() if pattern.search(names))
    elif event == "ctypes.dlopen" and str(arguments[0]).startswith(str(cache_folder())):
        _started.add("rtl")


sys.addaudithook(_watch)


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
