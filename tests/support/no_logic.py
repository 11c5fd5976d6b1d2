"""Builds whose modules have ports and no logic, for tests that do not look at it.

It takes most of the time.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
from amaranth.hdl import Elaboratable

from rtlstm.hdl.component import Component
from rtlstm.hdl.emit import verilog


@contextmanager
def no_logic() -> Iterator[None]:
    """Leave logic out of the Verilog of builds that are made meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verilog, "to_verilog", _empty)
        # What is kept is for all, who need it whole.
        patch.setattr(verilog, "kept_verilog", lambda what, manifest, write: write())
        yield


def logic_for(backend: str) -> AbstractContextManager[None]:
    """Leave logic out of builds that only the golden model runs."""
    return no_logic() if backend == "golden" else nullcontext()


def _empty(components: Mapping[str, Component], *_: str) -> str:
    modules = []
    for name, component in components.items():
        ports = [(port, way, bits) for port, way, bits, _ in verilog._port_lines(component)]
        lines = [f"  {way}put {f'[{bits - 1}:0] ' if bits > 1 else ''}{port};\n" for port, way, bits in ports]
        names = ", ".join(port for port, *_ in ports)
        modules.append(f"\nmodule {name}({names});\n{''.join(lines)}endmodule\n")
        _use(component)
    return "".join(modules)


def _use(part: object) -> None:
    """Say that a component and its parts are used: Amaranth warns of those that nothing elaborates."""
    if isinstance(part, Elaboratable):
        part._MustUse__used = True  # type: ignore[attr-defined]
    for each in vars(part).values():
        if type(each).__module__.startswith("rtlstm.hdl."):
            _use(each)
