"""Sizes of multipliers made of LUTs: ``hdl/primitives/rows.v`` builds them from rows and trees of adders.

The functions follow the modules there, ``x`` the wider factor and ``y`` the narrower one.
"""

from rtlstm.fpga.families.estimates import Estimates
from rtlstm.fpga.netlist.chains import chain_tiles

__all__ = ["multiplier_luts", "multiplier_registers", "multiplier_tiles"]


def _levels(y: int, part: int) -> int:
    """Return how many levels of adders, up to 2, an ``rtlstm_tree`` of parts of ``part`` bits has."""
    return 2 if y > 2 * part else 1 if y > part else 0


def _part(y: int, stages: int) -> int:
    """Return the most bits of ``y`` in a part of a tree."""
    return 3 if stages - 1 > _levels(y, 3) else 2


def _split(y: int, part: int) -> tuple[int, int]:
    """Return the bits of ``y`` in the two halves of an ``rtlstm_tree``, the lower first."""
    low = part * (4 if y > 4 * part else 2 if y > 2 * part else 1)
    return low, y - low


def _sum_luts(bits: int, family: Estimates) -> int:
    """Return the LUTs of one ``rtlstm_sum``."""
    return 2 * (bits // 2 + 1) if family.pair_adders else bits


def _row_luts(x: int, y: int, family: Estimates) -> int:
    """Return the LUTs of ``rtlstm_rows``. A partial product may take a LUT in addition to the adder's."""
    products = 1 if family.adders_multiply else x * y
    return (y - 1) * _sum_luts(x + 1, family) + products


def _tree_luts(x: int, y: int, part: int, top: bool, family: Estimates) -> int:
    """Return the LUTs of ``rtlstm_tree``."""
    if y == 1:
        return x
    if y <= part:
        return _row_luts(x, y, family)
    low, high = _split(y, part)
    bits = x + high
    luts = _tree_luts(x, low, part, False, family)
    if high == 1 and top:
        return luts + _sum_luts(bits, family) + (0 if family.adders_multiply else x)
    luts += _tree_luts(x, high, part, top, family)
    return luts + (_sum_luts(bits, family) if bits % 2 else _sum_luts(bits - 1, family) + 1)


def multiplier_luts(a: int, b: int, stages: int, family: Estimates) -> int:
    """Return the LUTs of one multiplier of factors of these bits."""
    x, y = max(a, b), min(a, b)
    if stages == 1 and not family.fast_multipliers:
        return _row_luts(x, y, family)
    return _tree_luts(x, y, _part(y, stages), True, family)


def _tree_registers(x: int, y: int, part: int, registers: int, top: bool = True) -> tuple[int, int]:
    """Return the bits in the registers of ``rtlstm_tree``: its own, and those that only delay ``x``."""
    if y <= part:
        return registers * (x + y), 0
    low, high = _split(y, part)
    inner = 1 if registers == 2 and y <= 2 * part else registers
    exclusive, delayed = _tree_registers(x, low, part, inner, False)
    if high == 1 and top:
        exclusive, delayed = exclusive + inner, delayed + inner * x
    else:
        upper, more = _tree_registers(x, high, part, inner, top)
        exclusive, delayed = exclusive + upper, delayed + more
    return exclusive + (registers - inner) * (x + y), delayed


def multiplier_registers(a: int, b: int, stages: int) -> tuple[int, int]:
    """Return the bits in the registers of one multiplier: its own, and those that only delay ``b``."""
    x, y = max(a, b), min(a, b)
    part = _part(y, stages)
    inside = min(stages - 1, _levels(y, part))
    exclusive, delayed = _tree_registers(x, y, part, inside)
    waits = stages - 1 - inside
    if b < a:
        # The delayed factor is a.
        exclusive, delayed = exclusive + delayed, 0
    return exclusive + waits * a + a + b, delayed + waits * b


def _sum_tiles(bits: int) -> int:
    """Return the tiles of the carry chain of one ``rtlstm_sum`` on ECP5."""
    return chain_tiles(bits // 2 + 1)


def _row_tiles(x: int, y: int) -> int:
    """Return the tiles of the chains of ``rtlstm_rows``."""
    return (y - 1) * _sum_tiles(x + 1)


def _tree_tiles(x: int, y: int, part: int, top: bool = True) -> int:
    """Return the tiles of the chains of ``rtlstm_tree``."""
    if y <= part:
        return _row_tiles(x, y)
    low, high = _split(y, part)
    bits = x + high
    tiles = _tree_tiles(x, low, part, False)
    if high == 1 and top:
        return tiles + _sum_tiles(bits)
    return tiles + _tree_tiles(x, high, part, top) + _sum_tiles(bits if bits % 2 else bits - 1)


def multiplier_tiles(a: int, b: int, stages: int) -> int:
    """Return the tiles of the chains of one multiplier on ECP5."""
    x, y = max(a, b), min(a, b)
    return _tree_tiles(x, y, _part(y, stages))
