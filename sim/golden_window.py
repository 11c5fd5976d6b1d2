"""The memories of a core and the registers that reach them, in Python."""

from dataclasses import dataclass

import numpy as np

from rtlstm.spec.errors import DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.image import WordArray
from rtlstm.spec.manifest import RegionLayout
from rtlstm.spec.registers import Region, Register, field

_REGION, _BANK = field(Register.SELECT, "REGION"), field(Register.SELECT, "BANK")


@dataclass
class MemoryWindow:
    """The memories and the position in them that SELECT, ROW and DATA work on."""

    layouts: dict[Region, RegionLayout]
    constants: dict[Region, WordArray]
    """Those that keep these words, whatever is written."""

    def __post_init__(self) -> None:
        self.memories: dict[Region, WordArray] = {
            region: np.zeros((layout.banks, layout.rows, layout.words), dtype=np.uint32)
            for region, layout in self.layouts.items()
        } | self.constants
        self.select = self.row = self._word = 0
        self._staged: list[int] = []

    def point(self, select: int | None = None, row: int | None = None) -> None:
        """Write SELECT or ROW; both begin a new row."""
        self.select = self.select if select is None else select & (_REGION.mask | _BANK.mask)
        self.row = self.row if row is None else row
        self._word, self._staged = 0, []

    @property
    def region(self) -> Region:
        """The region that SELECT names."""
        number = _REGION.of(self.select)
        if number not in self.layouts:
            named = ", ".join(str(int(region)) for region in self.layouts)
            raise DeviceError(f"SELECT must name a region of {named}, not {number}; write it before DATA")
        return Region(number)

    def _bank(self) -> tuple[RegionLayout, WordArray]:
        layout = self.layouts[self.region]
        bank = _BANK.of(self.select)
        if bank >= layout.banks:
            raise DeviceError(
                f"{layout.region.name} has banks 0 to {layout.banks - 1}, but SELECT names bank {bank}"
            )
        return layout, self.memories[self.region][bank]

    def _limit(self, layout: RegionLayout, end: int) -> None:
        if end > layout.rows:
            raise DeviceError(
                f"{layout.region.name} has rows 0 to {layout.rows - 1}, but row {end - 1} was asked "
                "for; write ROW before DATA"
            )

    def write(self, words: IntArray) -> int:
        """Write to DATA; return the rows completed. A row reaches the memory with its last word."""
        layout, bank = self._bank()
        pending = np.concatenate([np.asarray(self._staged, dtype=np.int64), words])
        rows = len(pending) // layout.words
        self._limit(layout, self.row + -(-len(pending) // layout.words))
        whole = pending[: rows * layout.words].reshape(rows, layout.words).astype(np.uint32)
        # A row need not fill its last word: the surplus bits are dropped.
        whole[:, -1] &= np.uint32((1 << (layout.width - 32 * (layout.words - 1))) - 1)
        if layout.region not in self.constants:
            bank[self.row : self.row + rows] = whole
        self.row += rows
        self._staged = pending[rows * layout.words :].tolist()
        self._word = len(self._staged)
        return rows

    def read(self, count: int) -> IntArray:
        """Read DATA ``count`` times."""
        layout, bank = self._bank()
        end = self._word + count
        self._limit(layout, self.row + -(-end // layout.words))
        words = bank[self.row :].reshape(-1)[self._word : end].astype(np.int64)
        self.row += end // layout.words
        self._word = end % layout.words
        return words
