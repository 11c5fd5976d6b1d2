"""Lower bounds of the hard blocks of a core on a device of a family without estimates, before synthesis.

Yosys uses DSP blocks for all multipliers of portable Verilog, also for those that ask for LUTs, and for more
than the device has. It uses block RAM for every memory that would fill one. For families with estimates,
:mod:`rtlstm.fpga.estimate` has exact counts.
"""

from math import ceil

from rtlstm.fpga.estimate import Blocks
from rtlstm.fpga.families.base import FpgaFamily, fpga_family
from rtlstm.fpga.families.device import FpgaDevice
from rtlstm.fpga.resources import BLOCK_RAMS, design_name, fit_advice, large_name, without_blocks
from rtlstm.spec import inventory
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FAMILIES
from rtlstm.spec.manifest import Manifest

__all__ = ["check_inventory", "least_blocks", "unpacked_registers"]


def least_blocks(manifest: Manifest, device: FpgaDevice, multipliers: bool = True) -> Blocks:
    """Return a lower bound of the hard blocks of a core.

    Its DSP blocks are exact if they are instances, and each product fits into one. ``multipliers`` says
    whether it uses any.
    """
    products = (
        _least_multipliers(some, manifest, device)
        for some in inventory.multipliers(manifest).values()
        if multipliers and device.multipliers
    )
    block = 1024 * device.block_ram_kibit
    rams = large_rams = 0
    owner = FAMILIES.named(manifest.parameters.family)
    for memory in inventory.memories(manifest).values():
        bits = memory.width * memory.depth
        huge = memory.style == "huge"
        instances = owner.large_instances(memory.width, memory.depth) if isinstance(owner, FpgaFamily) else 0
        large_rams += memory.count * instances * huge
        # Weights that ask for a larger memory get it if it is an instance, or if the device has one.
        large = huge and (instances > 0 or device.large_ram is not None)
        if bits >= block and not memory.asynchronous and not large:
            rams += (memory.count - memory.pairs) * ceil(bits / block)
    return Blocks(multipliers=ceil(sum(products)), block_rams=rams, large_rams=large_rams)


def _least_multipliers(some: inventory.MultiplierSpec, manifest: Manifest, device: FpgaDevice) -> float:
    least = fpga_family(device.family).least_multiplier(some.a_bits, some.b_bits, device)
    if not _has_instances(manifest):
        return some.count * least
    if some.kind == "lut":
        return 0
    blocks = some.count // 2 if some.shared else some.count
    return blocks * max(1, least)


def _has_instances(manifest: Manifest) -> bool:
    """Whether a core's DSP blocks are instances: its family has primitives."""
    return bool(FAMILIES.named(manifest.parameters.family).primitives)


def unpacked_registers(manifest: Manifest, device: FpgaDevice, multipliers: bool = True) -> int:
    """Count the flip-flops that Yosys leaves outside DSP blocks, although the blocks could hold them.

    Each stage of a multiplier is a register of as many bits as its operands have together: of the operands
    themselves, of the product before it leaves the block, of the product. Registers before the operands
    could be packed, too, but are not counted. Instances of DSP blocks have their registers.
    """
    if _has_instances(manifest):
        return 0
    family = fpga_family(device.family)
    return sum(
        some.count * some.stages * family.unpacked_bits(some.a_bits, some.b_bits, device)
        for some in inventory.multipliers(manifest).values()
        if multipliers
    )


def check_inventory(
    manifest: Manifest, device: FpgaDevice, multipliers: bool = True, board: str = "", cores: int = 1
) -> None:
    """Refuse a build, for a family without estimates, that needs more hard blocks than a device has.

    ``board`` is the name of the build's board, or empty. ``cores`` is the number of its cores side by side.

    Raises
    ------
    ConfigurationError
        If it does not fit; the message names the resources and a remedy.
    """
    found = least_blocks(manifest, device, multipliers)
    uses = (
        ("multipliers", cores * found.multipliers, device.multipliers),
        (BLOCK_RAMS, cores * found.block_rams, device.block_rams),
        (large_name(device), cores * found.large_rams, device.large_ram.count if device.large_ram else 0),
    )
    lacking = [f"{used:,} {what} (it has {there:,})" for what, used, there in uses if used > there]
    if lacking:
        other = without_blocks(board) if cores * found.multipliers > device.multipliers else ""
        raise ConfigurationError(
            f"{design_name(manifest.name, cores)} does not fit {device.name}: it takes at least "
            f"{', '.join(lacking)}; {fit_advice(device, board, other, cores)}"
        )
