"""Intel: synthesis only, because there is no open place and route."""

from rtlstm.fpga.families.base import Cells, FpgaFamily, Yosys, largest_blocks
from rtlstm.fpga.families.device import FpgaDevice
from rtlstm.spec.family import Pipeline


def _device(name: str, modules: int, ffs: int, multipliers: int, block_rams: int) -> FpgaDevice:
    return FpgaDevice(
        name=name,
        family="intel",
        architecture="intel",
        luts=modules,
        ffs=ffs,
        multipliers=multipliers,
        block_rams=block_rams,
        block_ram_kibit=10,
    )


class Intel(FpgaFamily):
    """Cyclone V devices."""

    name = "intel"
    pipeline = Pipeline(
        operand=3, multiplier=2, tree_levels=1, collect=2, narrow=3, table=2, window=2, result=1
    )
    devices = (_device("5cseba6", 41910, 166036, 112, 553), _device("5csema5", 32070, 128300, 87, 397))
    cells = Cells(
        # Each is half of an adaptive logic module.
        luts={"MISTRAL_ALUT6": 1}
        | dict.fromkeys(("MISTRAL_ALUT5", "MISTRAL_ALUT4", "MISTRAL_ALUT3", "MISTRAL_ALUT2"), 0.5)
        | dict.fromkeys(("MISTRAL_NOT", "MISTRAL_ALUT_ARITH", "MISTRAL_MLAB"), 0.5),
        flip_flops=("MISTRAL_FF",),
        multipliers={"MISTRAL_MUL9X9": 1 / 3, "MISTRAL_MUL18X18": 0.5, "MISTRAL_MUL27X27": 1},
        block_rams={"MISTRAL_M10K": 1},
        logic="logic modules",
    )

    def least_multiplier(self, a_bits: int, b_bits: int, device: FpgaDevice) -> float:
        """Return the blocks that Yosys 0.70 takes at least for a product of portable Verilog."""
        return largest_blocks(a_bits, b_bits, ((9, 9, 0.33), (18, 18, 0.5), (27, 27, 1)))

    def yosys(self, device: FpgaDevice) -> Yosys:
        """Return how Yosys synthesises for a device."""
        return Yosys(
            command="synth_intel_alm -family cyclonev", no_pads="-noiopad -noclkbuf", no_multipliers="-nodsp"
        )


INTEL = Intel()
