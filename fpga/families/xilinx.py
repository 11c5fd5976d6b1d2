"""AMD Xilinx: synthesis only, because there is no open place and route."""

from rtlstm.fpga.families.base import Cells, FpgaFamily, Yosys, largest_blocks
from rtlstm.fpga.families.device import FpgaDevice, Memory
from rtlstm.spec.family import Pipeline

__all__ = ["XILINX", "Xilinx"]

_ULTRASCALE = "xcup"
_SERIES = {"xilinx": "xc7", "xilinx-ultrascale-plus": _ULTRASCALE}
"""Yosys's names of the architectures."""


def _device(
    name: str, architecture: str, sizes: tuple[int, int, int, int], large_rams: int = 0
) -> FpgaDevice:
    luts, ffs, multipliers, block_rams = sizes
    return FpgaDevice(
        name=name,
        family="xilinx",
        architecture=architecture,
        luts=luts,
        ffs=ffs,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=36,
        large_ram=Memory(name="UltraRAM", count=large_rams, kibit=288) if large_rams else None,
    )


class Xilinx(FpgaFamily):
    """Series 7 and UltraScale+ devices."""

    name = "xilinx"
    pipeline = Pipeline(
        operand=3, multiplier=3, tree_levels=1, collect=2, narrow=4, table=2, window=2, result=1
    )
    large_memory = True
    devices = (
        _device("xc7a35t", "xilinx", (20800, 41600, 90, 50)),
        _device("xc7a100t", "xilinx", (63400, 126800, 240, 135)),
        _device("xc7a200t", "xilinx", (134600, 269200, 740, 365)),
        _device("xc7z020", "xilinx", (53200, 106400, 220, 140)),
        _device("xc7k325t", "xilinx", (203800, 407600, 840, 445)),
        _device("xczu3eg", "xilinx-ultrascale-plus", (70560, 141120, 360, 216)),
        _device("xczu7ev", "xilinx-ultrascale-plus", (230400, 460800, 1728, 312), 96),
        _device("xcku5p", "xilinx-ultrascale-plus", (216960, 433920, 1824, 480), 64),
        _device("xcvu9p", "xilinx-ultrascale-plus", (1182240, 2364480, 6840, 2160), 960),
    )
    cells = Cells(
        luts=dict.fromkeys(("LUT1", "LUT2", "LUT3", "LUT4", "LUT5", "LUT6", "INV", "SRL16E", "SRLC32E"), 1)
        | {
            "RAM32X1D": 2,
            "RAM64X1D": 2,
            "RAM128X1D": 4,
            "RAM32M": 4,
            "RAM64M": 4,
            "RAM32M16": 8,
            "RAM64M8": 8,
        },
        flip_flops=("FD", "LD"),
        multipliers={"DSP48E1": 1, "DSP48E2": 1},
        block_rams={"RAMB18E1": 0.5, "RAMB18E2": 0.5, "RAMB36E1": 1, "RAMB36E2": 1},
        large_rams={"URAM288": 1},
    )

    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        """Return the blocks that Yosys 0.70 takes at least for a product of portable Verilog."""
        # It may use none for a product of less than 12 bits.
        return largest_blocks(a_bits, b_bits, (self._block(device),)) if a_bits + b_bits >= 12 else 0

    def unpacked_bits(self, a_bits: int, b_bits: int, device: FpgaDevice) -> int:
        """Return the bits of a product's register: Yosys packs none into a DSP48E2."""
        x, y, _ = self._block(device)
        held = max(a_bits, b_bits) <= x and min(a_bits, b_bits) <= y
        packs = _SERIES[device.architecture] != _ULTRASCALE
        return a_bits + b_bits if held and not packs and self.least_multiplier(a_bits, b_bits, device) else 0

    def _block(self, device: FpgaDevice) -> tuple[int, int, float]:
        return (27 if _SERIES[device.architecture] == _ULTRASCALE else 25, 18, 1)

    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device."""
        return Yosys(
            command=f"synth_xilinx -family {_SERIES[device.architecture]} -flatten",
            no_pads="-noiopad -noclkbuf",
            no_multipliers="-nodsp",
        )


XILINX = Xilinx()
