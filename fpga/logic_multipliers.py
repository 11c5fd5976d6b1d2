"""Sizes of multipliers made of LUTs: ``hdl/primitives/rows.v`` builds them from rows and trees of adders.

The functions follow the modules there, ``x`` the wider factor and ``y`` the narrower one.
"""

from rtlstm.fpga.families.estimates import Estimates
from rtlstm.fpga.netlist.chains import chain_tiles

__all__ = ["multiplier_luts", "multiplier_registers", "multiplier_tiles", "sum_tiles"]


def _split(y: int) -> tuple[int, int]:
    """Return the bits of ``y`` in the two halves of an ``rtlstm_tree``, the lower first."""
    low = 12 if y > 12 else 6 if y > 6 else 3
    return low, y - low


def _sum_luts(bits: int, family: Estimates) -> int:
    """Return the LUTs of one ``rtlstm_sum``."""
    return 2 * (bits // 2 + 1) if family.pair_adders else bits


def _row_luts(x: int, y: int, family: Estimates) -> int:
    """Return the LUTs of ``rtlstm_rows``. A partial product may take a LUT in addition to the adder's."""
    products = 1 if family.adders_multiply else x * y
    return (y - 1) * _sum_luts(x + 1, family) + products


def _tree_luts(x: int, y: int, top: bool, family: Estimates) -> int:
    """Return the LUTs of ``rtlstm_tree``."""
    if y == 1:
        return x
    if y <= 3:
        return _row_luts(x, y, family)
    low, high = _split(y)
    bits = x + high
    luts = _tree_luts(x, low, False, family)
    if high == 1 and top:
        return luts + _sum_luts(bits, family) + (0 if family.adders_multiply else x)
    luts += _tree_luts(x, high, top, family)
    return luts + (_sum_luts(bits, family) if bits % 2 else _sum_luts(bits - 1, family) + 1)


def multiplier_luts(a: int, b: int, stages: int, family: Estimates) -> int:
    """Return the LUTs of one multiplier of factors of these bits."""
    x, y = max(a, b), min(a, b)
    return _row_luts(x, y, family) if stages == 1 else _tree_luts(x, y, True, family)


def _tree_registers(x: int, y: int, registers: int, top: bool = True) -> tuple[int, int]:
    """Return the bits in the registers of ``rtlstm_tree``: its own, and those that only delay ``x``."""
    if y <= 3:
        return registers * (x + y), 0
    low, high = _split(y)
    inner = 1 if registers == 2 and y <= 6 else registers
    exclusive, delayed = _tree_registers(x, low, inner, False)
    if high == 1 and top:
        exclusive, delayed = exclusive + inner, delayed + inner * x
    else:
        upper, more = _tree_registers(x, high, inner, top)
        exclusive, delayed = exclusive + upper, delayed + more
    return exclusive + (registers - inner) * (x + y), delayed


def multiplier_registers(a: int, b: int, stages: int) -> tuple[int, int]:
    """Return the bits in the registers of one multiplier: its own, and those that only delay ``b``."""
    x, y = max(a, b), min(a, b)
    inside = min(stages - 1, 2 if y > 6 else 1 if y > 3 else 0)
    exclusive, delayed = _tree_registers(x, y, inside)
    waits = stages - 1 - inside
    if b < a:
        # The delayed factor is a.
        exclusive, delayed = exclusive + delayed, 0
    return exclusive + waits * a + a + b, delayed + waits * b


def sum_tiles(bits: int) -> int:
    """Return the tiles of the carry chain of one ``rtlstm_sum`` on ECP5."""
    return chain_tiles(bits // 2 + 1)


def _row_tiles(x: int, y: int) -> int:
    """Return the tiles of the chains of ``rtlstm_rows``."""
    return (y - 1) * sum_tiles(x + 1)


def _tree_tiles(x: int, y: int, top: bool = True) -> int:
    """Return the tiles of the chains of ``rtlstm_tree``."""
    if y <= 3:
        return _row_tiles(x, y)
    low, high = _split(y)
    bits = x + high
    tiles = _tree_tiles(x, low, False)
    if high == 1 and top:
        return tiles + sum_tiles(bits)
    return tiles + _tree_tiles(x, high, top) + sum_tiles(bits if bits % 2 else bits - 1)


def multiplier_tiles(a: int, b: int, stages: int) -> int:
    """Return the tiles of the chains of one multiplier on ECP5."""
    x, y = max(a, b), min(a, b)
    return _row_tiles(x, y) if stages == 1 else _tree_tiles(x, y)
