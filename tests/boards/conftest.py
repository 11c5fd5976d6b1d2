"""A board in simulation; a module's fixture ``on_board`` says which build is on which board."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rtlstm.sim.simulated_board import BoardSpec, NativeBoard


@pytest.fixture
def native(compiled: tuple[Path, BoardSpec]) -> Iterator[NativeBoard]:
    board = NativeBoard(*compiled)
    yield board
    board.close()
