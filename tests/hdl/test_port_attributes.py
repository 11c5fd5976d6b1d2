"""Attributes of a wrapper's ports, by which a vendor's tool connects whole interfaces."""

import re
from pathlib import Path

import pytest
from support.bus_builds import write_build

from rtlstm.spec.buses import BusName

PORT = r'((?:^ *\(\* \w+ = "[^"]*" \*\)\n)*)^ *(?:input|output) (?:\[\d+:\d+\] )?(\w+);$'


def attributes(folder: Path, bus: BusName) -> dict[str, dict[str, str]]:
    """Return the attributes of each of the wrapper's ports; no other module has any."""
    write_build(folder, bus)
    text = (folder / "rtl" / "dut.v").read_text()
    module = re.search(rf"^module dut_{bus}\(.*?^endmodule", text, re.MULTILINE | re.DOTALL)
    assert module is not None
    found = {
        match[2]: dict(re.findall(r'(\w+) = "([^"]*)"', match[1]))
        for match in re.finditer(PORT, module[0], re.MULTILINE)
    }
    assert text.count("X_INTERFACE") == sum(len(each) for each in found.values())
    return found


@pytest.mark.parametrize(
    ("bus", "interfaces"),
    [("axilite", {"s_axi": "aximm"}), ("axi", {"s_axi": "aximm", "s_axis_x": "axis", "m_axis_y": "axis"})],
)
def test_all_axi_ports_tell_their_interface(bus: BusName, interfaces: dict[str, str], tmp_path: Path) -> None:
    found = attributes(tmp_path, bus)
    lone = {
        "aclk": ("clock:1.0 aclk CLK", f"ASSOCIATED_BUSIF {':'.join(interfaces)}, ASSOCIATED_RESET aresetn"),
        "aresetn": ("reset:1.0 aresetn RST", "POLARITY ACTIVE_LOW"),
        "irq": ("interrupt:1.0 irq INTERRUPT", "SENSITIVITY LEVEL_HIGH"),
    }
    for port, (info, settings) in lone.items():
        assert found.pop(port) == {
            "X_INTERFACE_INFO": f"xilinx.com:signal:{info}",
            "X_INTERFACE_PARAMETER": settings,
        }
    assert len(found) == 17 + 6 * (len(interfaces) - 1)
    for port, each in found.items():
        interface, _, signal = port.rpartition("_")
        kind = interfaces[interface]
        assert each == {"X_INTERFACE_INFO": f"xilinx.com:interface:{kind}:1.0 {interface} {signal.upper()}"}


def test_wishbone_has_none(tmp_path: Path) -> None:
    assert not any(attributes(tmp_path, "wishbone").values())
