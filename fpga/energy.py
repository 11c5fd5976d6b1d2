"""Estimates the energy of a step from measurements that others have published of a device.

It is a model of four terms: what a device draws at rest, what a running clock adds, what each logic cell adds
to that, and the multiplications that are counted exactly. Nothing of it was measured on a core of rtlstm, and
reads of memories are left out, of which nothing is published: it ranks builds on one device, and says
little of others. ``docs/explore.md`` names the source and the limits.
"""

from rtlstm.fpga.estimate import Estimate
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.device import Chosen, PowerFigures
from rtlstm.spec.inventory import MultiplierSpec, lane_kinds, multipliers
from rtlstm.spec.manifest import Manifest

__all__ = ["cycle_charge", "step_energy_nj"]


def step_energy_nj(manifest: Manifest, found: Estimate, chosen: Chosen, clock_mhz: float) -> float | None:
    """Estimate the energy of a step, one after another without a pause; None without published figures.

    Parameters
    ----------
    found
        The estimate of the core on the device.
    clock_mhz
        The clock that it runs at.
    """
    figures = chosen.device.power
    if figures is None:
        return None
    cycles = manifest.cycles.step_interval_cycles
    blocks, bit_products = _multiplications(manifest)
    charge = cycles * (figures.static_ua / clock_mhz + cycle_charge(figures, found.cells))
    charge += cycle_charge(figures, 0, blocks, bit_products) - cycle_charge(figures, 0)
    # Charges are in pC, since uA / MHz is pC.
    return float(f"{charge * figures.volts / 1000:.4g}")


def cycle_charge(figures: PowerFigures, cells: int, blocks: float = 0.0, bit_products: float = 0.0) -> float:
    """Return the charge in pC that a cycle takes, beside what a device draws at rest.

    Parameters
    ----------
    cells
        Logic cells of the design.
    blocks
        Multiplier blocks that work in the cycle.
    bit_products
        Bits times bits of the multiplications made of LUTs in the cycle.
    """
    return (
        figures.clock_ua_mhz
        + figures.cell_ua_mhz * cells
        + figures.block_ua_mhz * blocks
        + figures.bit_product_ua_mhz * bit_products
    )


def _multiplications(manifest: Manifest) -> tuple[float, float]:
    """Return how often a step has a multiplier block work, and its bit products in LUTs.

    The lanes' multipliers work once for each word of weights, those of the gate units once for each result.
    """
    parameters = manifest.parameters
    family = fpga_family(parameters.family).need_estimates()
    lanes = {spec.name for kind in lane_kinds(manifest) for spec in (kind.hard, kind.soft)}
    results = sum(shape.outputs for shape in manifest.layers) / parameters.gate_units

    def times(spec: MultiplierSpec) -> float:
        return manifest.program.weight_rows if spec.name in lanes else results

    blocks = bit_products = 0.0
    for spec in multipliers(manifest).values():
        if family.is_hard(spec, multipliers=True):
            blocks += times(spec) * family.hard_blocks(spec.a_bits, spec.b_bits, spec.count)
        else:
            bit_products += times(spec) * spec.count * spec.a_bits * spec.b_bits
    return blocks, bit_products
