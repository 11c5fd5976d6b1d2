"""What a network's cells become in hardware: one fused LSTM gate unit, or a pipeline for each graph.

Program, memory layout, RTL and estimates ask a :class:`Unit` what they need to know of either.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.activations.piecewise import PiecewiseLinear
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.fixed import Format
from rtlstm.spec.network import Activation
from rtlstm.spec.parameters import Parameters, ceil_log2
from rtlstm.spec.registers import Region

__all__ = ["FusedUnit", "GraphUnit", "Product", "Unit", "UnitTiming"]


@dataclass(frozen=True)
class UnitTiming:
    """Cycles from an item's pre-activations to what a unit makes of them."""

    state: int
    """The old state is used first; cells that need it later delay it."""
    keep: int
    """The new state is written."""
    of_units: int
    """The results of units with four rows each are there."""
    of_rows: int
    """The results of single rows are there."""

    def results(self, four_rows: bool) -> int:
        """Cycles to the results of units with four rows each, or of single rows."""
        return self.of_units if four_rows else self.of_rows


@dataclass(frozen=True)
class Product:
    """A product of two signed factors in a unit."""

    name: str
    """Its own among the unit's."""
    a_bits: int
    b_bits: int
    follows_cell: bool = False
    """It has a second register where ``pipeline.cell`` asks for more than three."""


class Unit(ABC):
    """What turns pre-activations into results."""

    functions: ClassVar[tuple[Activation, ...]] = ()
    """What the flags of a single row's item may choose."""
    idle_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of the numerics that do not shape this hardware."""

    @abstractmethod
    def timing(self, parameters: Parameters) -> UnitTiming:
        """Return when states and results are there."""

    @property
    @abstractmethod
    def beat_fields(self) -> Mapping[str, int]:
        """What a beat from the array tells the unit beside its flags: names and widths."""

    @property
    @abstractmethod
    def number_bits(self) -> int:
        """Bits of a cell's number in a program."""

    @abstractmethod
    def number(self, cell: int) -> int:
        """Return a cell's number in a program."""

    @property
    @abstractmethod
    def memories(self) -> Mapping[Region, tuple[ActivationTable, ...]]:
        """Tables behind the memory window: those of a region's banks."""

    @property
    @abstractmethod
    def table_uses(self) -> tuple[tuple[str, ActivationTable, int], ...]:
        """Name of each table, the table, and how many of it a unit has."""

    @property
    @abstractmethod
    def products(self) -> tuple[Product, ...]:
        """Each product, but for those of tables' slopes."""


@dataclass(frozen=True)
class FusedUnit(Unit):
    """The LSTM gate unit: ``c = f c + i g``, ``h = o tanh(c)``, and the plain functions of dense layers.

    An item's flags say what it computes, so that networks may differ in their dense layers.
    """

    sigmoid: ActivationTable
    tanh: ActivationTable
    """Of the candidate g."""
    cell_tanh: ActivationTable
    """Of the new c, where tanh reads it."""
    gate: Format
    cell: Format

    functions = ("relu", "sigmoid", "tanh")
    idle_fields = frozenset({"cells", "pieces"})

    def timing(self, parameters: Parameters) -> UnitTiming:
        """Return when states and results are there."""
        return self.timing_of(parameters)

    @staticmethod
    def timing_of(parameters: Parameters) -> UnitTiming:
        """Return the same for any formats."""
        kept = parameters.activation + parameters.pipeline.cell
        return UnitTiming(
            state=parameters.activation,
            keep=kept,
            of_units=kept + parameters.activation + 1,
            of_rows=parameters.activation + 1,
        )

    @property
    def beat_fields(self) -> Mapping[str, int]:
        """Nothing: the flags say what is computed."""
        return {}

    @property
    def number_bits(self) -> int:
        """None: cells have no numbers."""
        return 0

    def number(self, cell: int) -> int:
        """Return 0: the flags say what is computed."""
        return 0

    @property
    def memories(self) -> Mapping[Region, tuple[ActivationTable, ...]]:
        """Tables behind the memory window, a region each."""
        return {
            Region.SIGMOID: (self.sigmoid,),
            Region.TANH: (self.tanh,),
            Region.CELL_TANH: (self.cell_tanh,),
        }

    @property
    def table_uses(self) -> tuple[tuple[str, ActivationTable, int], ...]:
        """Name of each table, the table, and how many of it a unit has."""
        return ("sigmoid", self.sigmoid, 3), ("tanh", self.tanh, 1), ("cell tanh", self.cell_tanh, 1)

    @property
    def products(self) -> tuple[Product, ...]:
        """Return ``f c``, ``i g`` and ``o tanh(c)``."""
        gate = self.gate.bits
        return (
            Product("f c", gate, self.cell.bits),
            Product("i g", gate, gate),
            Product("o tanh(c)", gate, gate),
        )


@dataclass(frozen=True)
class GraphUnit(Unit):
    """A pipeline for each graph, side by side; an item says by number which one counts."""

    cells: tuple[CellGraph, ...]
    tables: tuple[ActivationTable, ...]
    pieces: tuple[PiecewiseLinear, ...]

    def timing(self, parameters: Parameters) -> UnitTiming:
        """Return what all cells have in common, so that results come in the order of their items."""
        stages = [(cell, cell.stages(parameters)) for cell in self.cells]
        states = [
            stage
            for cell, found in stages
            for node, stage in zip(cell.nodes, found, strict=True)
            if node.kind == "state"
        ]
        keeps = [found[cell.state] for cell, found in stages if cell.state is not None]
        results = max(2, *(max(found) for _, found in stages))
        return UnitTiming(
            state=min(states, default=parameters.activation),
            keep=max(keeps, default=0),
            of_units=results,
            of_rows=results,
        )

    @property
    def beat_fields(self) -> Mapping[str, int]:
        """The number of the cell that counts."""
        return {"cell": max(1, self.number_bits)}

    @property
    def number_bits(self) -> int:
        """Bits of a cell's number in a program: none if there is one cell."""
        return ceil_log2(len(self.cells))

    def number(self, cell: int) -> int:
        """Return a cell's place among all."""
        return cell

    @property
    def memories(self) -> Mapping[Region, tuple[ActivationTable, ...]]:
        """Tables behind the memory window: all in one region, a bank each."""
        return {Region.TABLES: self.tables} if self.tables else {}

    @property
    def table_uses(self) -> tuple[tuple[str, ActivationTable, int], ...]:
        """Name of each table, the table, and how many of it a unit has."""
        read = [node.index for cell in self.cells for node in cell.nodes if node.kind == "table"]
        return tuple(
            (str(table.function), table, read.count(number)) for number, table in enumerate(self.tables)
        )

    @property
    def products(self) -> tuple[Product, ...]:
        """Each product, those of linear pieces among them, named as its node is in the Verilog."""
        found: list[Product] = []
        for number, cell in enumerate(self.cells):
            for index, node in enumerate(cell.nodes):
                name = f"cell{number}_{node.kind}{index}"
                if node.kind == "multiply":
                    a, b = (cell.nodes[arg].format.bits for arg in node.args)
                    found.append(Product(name, a, b, follows_cell=True))
                elif node.kind == "pieces":
                    lines = self.pieces[node.index]
                    found.append(Product(name, lines.input.bits, lines.slope_bits))
        return tuple(found)
