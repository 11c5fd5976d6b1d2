"""AMD Xilinx: synthesis only, because there is no open place and route, and clocks that the user assumes.

There are two families: 7 series, and UltraScale+. Their primitives differ in the DSP block.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from rtlstm.fpga.families.base import (
    INFERRED_MEMORY,
    LOGIC_MULTIPLIERS,
    Cells,
    FpgaFamily,
    Yosys,
    largest_blocks,
)
from rtlstm.fpga.families.device import FpgaDevice, Memory
from rtlstm.fpga.families.estimates import Estimates, Mapped, RamKind, cheapest_memory
from rtlstm.spec.family import NetlistScript, OpenSynthesis, Pipeline
from rtlstm.spec.inventory import MemorySpec

_HERE = Path(__file__).absolute()


def _primitives(*names: str) -> tuple[Path, ...]:
    return (*(_HERE.with_name(name) for name in names), LOGIC_MULTIPLIERS, INFERRED_MEMORY)


def _netlist(series: str) -> NetlistScript:
    return NetlistScript(
        # There are no models of block RAM, and no primitive is an instance of it. With -nobram alone Yosys
        # still makes it of memories that ask for it.
        synthesis="hierarchy -top {top}\nproc\n"
        "setattr -unset ram_style -unset syn_ramstyle -unset ramstyle */m:*\n"
        f"synth_xilinx -family {series} -flatten -noiopad -noclkbuf -nobram -top {{top}}",
        cells="read_verilog +/xilinx/cells_sim.v\nread_verilog -lib +/xilinx/cells_xtra.v\nblackbox DSP48E1",
    )


def _device(family: str, name: str, sizes: tuple[int, int, int, int], large_rams: int = 0) -> FpgaDevice:
    luts, ffs, multipliers, block_rams = sizes
    return FpgaDevice(
        name=name,
        family=family,
        architecture=family,
        luts=luts,
        ffs=ffs,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=36,
        large_ram=Memory(name="UltraRAM", count=large_rams, kibit=288) if large_rams else None,
        note="no tool here knows the delays of AMD's devices: a clock is what the user assumes",
    )


# Half a block, and a whole one.
_BLOCKS = (
    RamKind(14, (1, 2, 4, 9, 18, 36), 9, 129, block=True, size=0.5),
    RamKind(15, (1, 2, 4, 9, 18, 36, 72), 9, 257, block=True),
)
_URAM_WORDS, _URAM_BITS = 4096, 72


def _parts_beyond(bits: int, most: int) -> int:
    return -(-max(0, bits - most) // 17)


class _Estimates(Estimates):
    """What 7 series devices take; factors are fitted to the builds of ``bench/estimates.py``."""

    luts: ClassVar[Mapping[str, float]] = {
        "LUTRAM": 1,
        "registers": 0.7,
        "banks": 0.522,
        "tables": 1.14,
        "read back": 1.69,
        "collect": 0.61,
        "shift": 0.48,
        "round": 1.58,
        "gates": 1.63,
        "other gates": 1.25,
        "slopes": 0.747,
        "vector": 5.59,
        "window": 2.56,
        "rows": 8.56,
        "core": 162,
    }
    ffs: ClassVar[Mapping[str, float]] = {
        "sums": 1.53,
        "products": 0.95,
        "banks": 1.17,
        "passed": 0.762,
        "copies": 1,
        "vector": 0.806,
        "read back": 1.19,
        "collected": 1.03,
        "memories": 0.431,
        "pre-activations": 1.98,
        "gates": 1.61,
        "other gates": 0.375,
        "window": 2.41,
        "items": 0.373,
        "core": 467,
    }
    factor_bits = 25
    lutram: ClassVar[tuple[RamKind, ...]] = (RamKind(6, (3, 6), 0, 8, block=False, scaled=7),)
    lutram_luts = 4
    # A carry chain's other input takes the partial products of the first row from LUTs.
    adders_multiply = True
    row_luts = 1
    # Cells SRL16E.
    delay_stages = 3
    # The pre-adder corrects a shared product.
    shared_luts = 0
    # No design was routed: assumptions.
    assumed_fill = 0.7
    assumed_blocks = 0.8

    def map_memory(self, memory: MemorySpec) -> Mapped:
        """Return the cells of one of these memories, by Yosys's rules for ``memory.v``.

        Without UltraRAM, Yosys refuses a memory of style "huge"; Vivado makes block RAM of it.
        """
        return cheapest_memory(memory, (*self.lutram, *_BLOCKS))

    def adds_products(self, a_bits: int, b_bits: int, shared: bool) -> bool:
        """Return whether a chain of two blocks holds the sum, of two lanes if they are shared."""
        if shared:
            return 2 * a_bits + b_bits + 2 <= self.factor_bits and b_bits <= 18
        return a_bits <= self.factor_bits and b_bits <= 18

    def hard_blocks(self, a_bits: int, b_bits: int, count: int = 1) -> int:
        """Return what Yosys 0.70 takes: wider operands are divided into parts of 17 bits and a full one."""
        narrow, wide = sorted((a_bits, b_bits))
        return count * (1 + _parts_beyond(wide, self.factor_bits)) * (1 + _parts_beyond(narrow, 18))

    def hard_luts(self, a_bits: int, b_bits: int) -> int:
        """Return the LUTs that add what several blocks multiply."""
        return 30 * (self.hard_blocks(a_bits, b_bits) - 1)


class _UltraScaleEstimates(_Estimates):
    """What UltraScale+ devices take."""

    luts: ClassVar[Mapping[str, float]] = {
        "LUTRAM": 1,
        "registers": 0.7,
        "banks": 0.65,
        "tables": 1.19,
        "read back": 1.89,
        "collect": 0.605,
        "shift": 0.563,
        "round": 1.79,
        "gates": 1.81,
        "other gates": 1.38,
        "slopes": 0.827,
        "vector": 6.86,
        "window": 2.65,
        "rows": 6.71,
        "core": 152,
    }
    ffs: ClassVar[Mapping[str, float]] = {
        "sums": 1.64,
        "products": 0.925,
        "banks": 0.579,
        "passed": 1.1,
        "copies": 1,
        "vector": 0.999,
        "read back": 1.28,
        "collected": 1.15,
        "memories": 0.506,
        "pre-activations": 1.01,
        "gates": 1.28,
        "other gates": 0.294,
        "window": 2.74,
        "items": 0.51,
        "core": 507,
    }
    factor_bits = 27
    lutram = (RamKind(6, (7, 14), 0, 16, block=False, scaled=16),)
    lutram_luts = 8

    def map_memory(self, memory: MemorySpec) -> Mapped:
        """Return the cells of one of these memories, by the rules of ``ultraram.v`` and Yosys's."""
        if memory.style == "huge":
            banks = -(-memory.depth // _URAM_WORDS)
            return Mapped(large_rams=banks * -(-memory.width // _URAM_BITS), banks=banks)
        return super().map_memory(memory)


class Xilinx(FpgaFamily):
    """7 series devices."""

    name = "xilinx"
    open_synthesis: OpenSynthesis | None = OpenSynthesis(
        "generic", {"tool": "yosys", "arch": "xilinx", "output_format": "json"}
    )
    pipeline = Pipeline(
        operand=3, multiplier=3, tree_levels=1, collect=2, narrow=3, table=2, window=2, result=1
    )
    # Vivado makes block RAM of it where there is no UltraRAM.
    large_memory = True
    product_sums = True
    primitives = _primitives("dsp48e1.v", "xilinx.v")
    cell_models = (_HERE.with_name("xilinx_cells.v"),)
    netlist = _netlist("xc7")
    devices: tuple[FpgaDevice, ...] = (
        _device("xilinx", "xc7s50", (32600, 65200, 120, 75)),
        _device("xilinx", "xc7a35t", (20800, 41600, 90, 50)),
        _device("xilinx", "xc7a100t", (63400, 126800, 240, 135)),
        _device("xilinx", "xc7a200t", (134600, 269200, 740, 365)),
        _device("xilinx", "xc7z010", (17600, 35200, 80, 60)),
        _device("xilinx", "xc7z020", (53200, 106400, 220, 140)),
        _device("xilinx", "xc7z045", (218600, 437200, 900, 545)),
        _device("xilinx", "xc7k325t", (203800, 407600, 840, 445)),
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
        large_rams={"URAM288": 1, "URAM288_BASE": 1},
    )

    estimates: _Estimates = _Estimates()

    series = "xc7"
    """Yosys' name of the architecture."""

    @property
    def factor_bits(self) -> int:
        """Bits of a DSP block's wider factor; the other one has 18."""
        return self.estimates.factor_bits

    def shares_multipliers(self, weight_bits: int, data_bits: int) -> bool:
        """Whether the pre-adder holds two weights far enough apart."""
        return 2 * weight_bits + data_bits < self.factor_bits

    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        """Return the blocks that Yosys 0.70 takes at least for a product of portable Verilog."""
        # It may use none for a product of less than 12 bits.
        return largest_blocks(a_bits, b_bits, ((self.factor_bits, 18, 1),)) if a_bits + b_bits >= 12 else 0

    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device."""
        return Yosys(
            command=f"synth_xilinx -family {self.series} -flatten",
            no_pads="-noiopad -noclkbuf",
            no_multipliers="-nodsp",
        )


class UltraScale(Xilinx):
    """UltraScale+ devices."""

    name = "ultrascale"
    open_synthesis = None
    # For 400 MHz: notes/primitives.md has the reasons.
    pipeline = Pipeline(
        operand=4,
        multiplier=3,
        tree_levels=1,
        collect=2,
        narrow=3,
        table=2,
        slope=2,
        product=2,
        cell=4,
        window=2,
        accept=1,
        result=2,
    )
    # Vivado replaces a DSP48E1 by a DSP48E2.
    also_builds_of = ("xilinx",)
    primitives = _primitives("dsp48e2.v", "xilinx.v", "ultraram.v")
    netlist = _netlist("xcup")
    series = "xcup"
    estimates = _UltraScaleEstimates()
    refused: Mapping[str, str] = {
        r"(xc)?v[cehmp]\d{4}": "Yosys has no cells of a Versal (DSP58, RAMB36E5, URAM288E5), so nothing can "
        "be synthesised or counted for it here; take an UltraScale+ device, such as xcku5p or xcvu9p"
    }
    devices = (
        _device("ultrascale", "xczu3eg", (70560, 141120, 360, 216)),
        # Of the Kria K26, the module of the KV260.
        _device("ultrascale", "xck26", (117120, 234240, 1248, 144), 64),
        _device("ultrascale", "xczu7ev", (230400, 460800, 1728, 312), 96),
        _device("ultrascale", "xczu9eg", (274080, 548160, 2520, 912)),
        _device("ultrascale", "xcku3p", (162720, 325440, 1368, 360), 48),
        _device("ultrascale", "xcku5p", (216960, 433920, 1824, 480), 64),
        _device("ultrascale", "xcvu9p", (1182240, 2364480, 6840, 2160), 960),
    )

    def large_instances(self, width: int, depth: int) -> int:
        """Return the blocks of a memory of style "huge", of 4,096 words of 72 bits each."""
        return -(-width // _URAM_BITS) * -(-depth // _URAM_WORDS)

    def unpacked_bits(self, a_bits: int, b_bits: int, device: FpgaDevice) -> int:
        """Return the bits of a product's register: Yosys packs none into a DSP48E2 that it infers."""
        held = max(a_bits, b_bits) <= self.factor_bits and min(a_bits, b_bits) <= 18
        return a_bits + b_bits if held and self.least_multiplier(a_bits, b_bits, device) else 0


XILINX = Xilinx()
ULTRASCALE = UltraScale()
