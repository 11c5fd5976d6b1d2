"""The hardware of a network's cells: one fused LSTM gate unit, or a pipeline for each graph.

Program, memory layout, RTL and estimates get all data of either from a :class:`Unit`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from rtlstm.spec.activations.functions import PiecewiseLinear
from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.graph import CellGraph, CellPipeline, join_cells
from rtlstm.spec.fixed import Format, HiddenRounding
from rtlstm.spec.network import Activation
from rtlstm.spec.norms import Normalisation, NormForm, norm_results
from rtlstm.spec.parameters import Parameters, ceil_log2
from rtlstm.spec.registers import Region

WIDEST_FACTOR = 18
"""Widest factor of most families' multipliers."""


@dataclass(frozen=True)
class UnitTiming:
    """Cycles from a beat's pre-activations to the states and results of a unit."""

    state: int
    """The first use of the old state; cells that need it later delay it."""
    keep: int
    """The new state is written."""
    of_units: int
    """The results of units with four rows each are there."""
    of_rows: int
    """The results of single rows are there, with an activation function."""
    of_linear_rows: int
    """The results of single rows are there that are the sums themselves, perhaps with ReLU."""
    of_norms: int = 0
    """The results of norms are there; 0 without."""
    norm_values: int = 0
    """Values of the largest norm; 0 without."""

    @property
    def slowest(self) -> int:
        """The results that come last are there."""
        return max(self.of_units, self.of_rows, self.of_linear_rows, self.of_norms)

    @property
    def spread(self) -> int:
        """Cycles between the results that come first and those that come last."""
        return self.slowest - min(self.of_units, self.of_rows, self.of_linear_rows)


@dataclass(frozen=True)
class Product:
    """A product of two signed factors in a unit."""

    name: str
    """Unique among the unit's products."""
    a_bits: int
    b_bits: int
    follows_cell: bool = False
    """It has a second register where ``pipeline.cell`` asks for more than three."""


@dataclass(frozen=True)
class Norms:
    """What a core has for norms beside its gate units, which all norms share."""

    forms: tuple[NormForm, ...]
    """Those of the norms, by index."""
    root: ActivationTable
    bank: int
    """The root's table, and its bank in the region of tables."""
    of_cell: Mapping[int, int]
    """The index of the norm that a cell is."""

    @property
    def normalisations(self) -> tuple[Normalisation, ...]:
        """The norms."""
        return tuple(form.norm for form in self.forms)

    @property
    def most_values(self) -> int:
        """Values of the largest norm."""
        return max(norm.values for norm in self.normalisations)

    @property
    def beat_fields(self) -> Mapping[str, int]:
        """A beat's fields: the index, plus 1, of the norm that reads it; whether it is a norm's."""
        return {"measured": ceil_log2(len(self.forms) + 1), "norm": 1}

    def results(self, parameters: Parameters) -> int:
        """Return the cycles from a beat's pre-activations, of which there are none, to a norm's results."""
        return norm_results(parameters, self.normalisations) - parameters.preactivation

    def number(self, measured: int | None, norm: bool) -> int:
        """Return these fields, of results that the cell ``measured`` reads, if it is a norm."""
        index = self.of_cell.get(-1 if measured is None else measured, -1) + 1
        return index | norm << ceil_log2(len(self.forms) + 1)

    @property
    def gain_bits(self) -> int:
        """Bits of the widest gain; 0 without any."""
        return max(0 if form.norm.gain is None else form.norm.gain.bits for form in self.forms)

    def ahead(self, form: NormForm) -> int:
        """Return the zeros behind what a norm's root multiplies: as many bits as of any other are dropped."""
        return self.drop - form.drop

    @property
    def drop(self) -> int:
        """Bits of the products that are dropped of all results."""
        return max(0, *(form.drop for form in self.forms))

    @property
    def shifted_bits(self) -> int:
        """Signed width of shifted deviations."""
        return max(form.norm.shifted_bits for form in self.forms)

    @property
    def factor_bits(self) -> int:
        """Signed width of what the root multiplies."""
        return max(form.norm.factor.bits + self.ahead(form) for form in self.forms)


@dataclass(frozen=True)
class FusedUnit:
    """The LSTM gate unit: ``c = f c + i g``, ``h = o tanh(c)``, and the plain functions of dense layers.

    The flags of a beat select the function, so that networks may differ in their dense layers.
    """

    sigmoid: ActivationTable
    tanh: ActivationTable
    """Table of the candidate g."""
    cell_tanh: ActivationTable
    """Table of tanh, which reads the new c."""
    gate: Format
    cell: Format
    """Format of the c that has the most fraction bits."""
    hidden: Format
    """Format of the h that has the least fraction bits."""
    cell_shifts: tuple[int, ...] = (0,)
    """The numbers of fraction bits that a layer's c may have less."""
    hidden_shifts: tuple[int, ...] = (0,)
    """The numbers of fraction bits that a layer's h may have more."""
    hidden_rounding: HiddenRounding = "half_up"
    norms: Norms | None = None

    functions: ClassVar[tuple[Activation, ...]] = ("relu", "sigmoid", "tanh")
    """The functions that the flags of a beat of single rows can select."""
    idle_fields: ClassVar[frozenset[str]] = frozenset({"cells", "pieces"})
    """Fields of the numerics that do not affect this hardware."""

    @property
    def beat_fields(self) -> Mapping[str, int]:
        """Names and widths of a beat's fields for the unit, in addition to the flags: shifts, by index."""
        shifts = {"cell_shift": self.cell_shifts, "hidden_shift": self.hidden_shifts}
        found = {name: ceil_log2(len(some)) for name, some in shifts.items() if len(some) > 1}
        return found | dict(self.norms.beat_fields if self.norms else {})

    @property
    def number_bits(self) -> int:
        """Bits of what :meth:`number` gives: 0 if all layers have one format of c, and one of h."""
        return sum(self.beat_fields.values())

    @property
    def wide_cell(self) -> Format:
        """Format that holds the c of every layer."""
        return Format(bits=self.cell.bits + self.cell_shifts[-1], fraction=self.cell.fraction)

    @property
    def shifts_read(self) -> bool:
        """Whether c is shifted when it is read, beside zeros that are chosen there, and not the product f c.

        It is where a multiplier of a DSP block takes it.
        """
        return self.wide_cell.bits <= WIDEST_FACTOR

    def timing(self, parameters: Parameters) -> UnitTiming:
        """Return when states and results are there; c is shifted back in a cycle before it is rounded."""
        timing = self.timing_of(parameters, self.hidden_rounding)
        if self.norms is not None:
            of_norms, most = self.norms.results(parameters), self.norms.most_values
            timing = replace(timing, of_norms=of_norms, norm_values=most)
        return timing if len(self.cell_shifts) == 1 else replace(timing, keep=timing.keep + 1)

    @staticmethod
    def timing_of(parameters: Parameters, rounding: HiddenRounding = "half_up") -> UnitTiming:
        """Return the timing, which does not depend on formats."""
        table, product = parameters.activation, parameters.pipeline.product
        result = parameters.pipeline.result
        # What has neither an adder nor a limit needs no register of its own.
        rounded = result if rounding == "half_up" else 0
        return UnitTiming(
            state=table,
            keep=table + product - 1 + parameters.pipeline.cell,
            # Products, their sum, the argument of tanh; tanh and the product.
            of_units=table + product + 2 + table + product + rounded,
            of_rows=table + 1 + result,
            of_linear_rows=1 + result,
        )

    def number(self, cell: int, state: Format | None, output: Format, measured: int | None = None) -> int:
        """Return the indices of the shifts of a layer's c and h; the flags select the function.

        ``measured`` is the cell that reads the results next, if there is one.
        """
        of_c = of_h = of_norms = 0
        if state is not None:
            of_c = self.cell_shifts.index(self.cell.fraction - state.fraction)
            of_h = self.hidden_shifts.index(output.fraction - self.hidden.fraction)
        if self.norms is not None:
            of_norms = self.norms.number(measured, cell in self.norms.of_cell)
        of_h |= of_norms << ceil_log2(len(self.hidden_shifts))
        return of_c | of_h << ceil_log2(len(self.cell_shifts))

    @property
    def memories(self) -> Mapping[Region, tuple[ActivationTable, ...]]:
        """Tables that the memory window can access, one per region."""
        return {
            Region.SIGMOID: (self.sigmoid,),
            Region.TANH: (self.tanh,),
            Region.CELL_TANH: (self.cell_tanh,),
            **({Region.TABLES: (self.norms.root,)} if self.norms else {}),
        }

    @property
    def table_uses(self) -> tuple[tuple[str, ActivationTable, int], ...]:
        """Name of each table, the table, and how many of it a unit has; 0 of that which all norms share."""
        plain = ("sigmoid", self.sigmoid, 3), ("tanh", self.tanh, 1), ("cell tanh", self.cell_tanh, 1)
        return (*plain, ("inverse root", self.norms.root, 0)) if self.norms else plain

    @property
    def products(self) -> tuple[Product, ...]:
        """Return ``f c``, ``i g`` and ``o tanh(c)``."""
        gate = self.gate.bits
        return (
            Product("f c", gate, (self.wide_cell if self.shifts_read else self.cell).bits),
            Product("i g", gate, gate),
            Product("o tanh(c)", gate + self.hidden_shifts[-1], gate),
        )


@dataclass(frozen=True)
class GraphUnit:
    """Parallel pipelines of the graphs; the index in a beat selects the one whose result is used."""

    cells: tuple[CellGraph, ...]
    tables: tuple[ActivationTable, ...]
    pieces: tuple[PiecewiseLinear, ...]
    norms: Norms | None = None

    functions: ClassVar[tuple[Activation, ...]] = ()
    idle_fields: ClassVar[frozenset[str]] = frozenset()

    def timing(self, parameters: Parameters) -> UnitTiming:
        """Return the common timing of all cells, for which results come in the order of their beats."""
        stages = [(pipeline, pipeline.graph.stages(parameters)) for pipeline in self.pipelines]
        states = [
            stage
            for pipeline, found in stages
            for node, stage in zip(pipeline.graph.nodes, found, strict=True)
            if node.kind == "state"
        ]
        keeps = [
            found[pipeline.graph.state] + pipeline.extra
            for pipeline, found in stages
            if pipeline.graph.state is not None
        ]
        results = max(2, *(max(found) for _, found in stages)) + parameters.pipeline.result
        # A norm's results must not come after those of a step's first layer, which may follow.
        of_norms = self.norms.results(parameters) if self.norms else 0
        results = max(results, of_norms)
        return UnitTiming(
            state=min(states, default=parameters.activation),
            keep=max(keeps, default=0),
            of_units=results,
            of_rows=results,
            of_linear_rows=results,
            of_norms=of_norms,
            norm_values=self.norms.most_values if self.norms else 0,
        )

    @cached_property
    def _joined(self) -> tuple[tuple[CellPipeline, ...], tuple[tuple[int, int], ...]]:
        norms = self.norms.of_cell if self.norms else {}
        mine = [number for number in range(len(self.cells)) if number not in norms]
        pipelines, where = join_cells([self.cells[number] for number in mine])
        # The cells of norms have none, and their beats have any.
        found = dict.fromkeys(range(len(self.cells)), (0, 0)) | dict(zip(mine, where, strict=True))
        return pipelines, tuple(found[number] for number in range(len(self.cells)))

    @property
    def pipelines(self) -> tuple[CellPipeline, ...]:
        """The pipelines that compute the cells."""
        return self._joined[0]

    @property
    def beat_fields(self) -> Mapping[str, int]:
        """The index of the pipeline whose result is used, and that of c's shift in it, if it has some; with
        norms, theirs."""
        widths = {
            "cell": max(1, ceil_log2(len(self.pipelines))),
            "cell_shift": ceil_log2(max(len(pipeline.shifts) for pipeline in self.pipelines)),
            **(self.norms.beat_fields if self.norms else {}),
        }
        return {name: width for name, width in widths.items() if width}

    @property
    def number_bits(self) -> int:
        """Bits of what :meth:`number` gives: 0 if there is one cell."""
        return sum(self.beat_fields.values()) if len(self.cells) > 1 else 0

    def number(self, cell: int, state: Format | None, output: Format, measured: int | None = None) -> int:
        """Return the beat's fields of a cell; ``measured`` is that which reads the results next, if any."""
        pipeline, shift = self._joined[1][cell]
        widths = self.beat_fields
        found = pipeline | shift << widths["cell"]
        if self.norms is None:
            return found
        of_norms = self.norms.number(measured, cell in self.norms.of_cell)
        return found | of_norms << (widths["cell"] + widths.get("cell_shift", 0))

    @property
    def memories(self) -> Mapping[Region, tuple[ActivationTable, ...]]:
        """Tables that the memory window can access: all in one region, one per bank."""
        return {Region.TABLES: self.tables} if self.tables else {}

    @property
    def table_uses(self) -> tuple[tuple[str, ActivationTable, int], ...]:
        """Name of each table, the table, and how many of it a unit has; 0 of that which all norms share."""
        nodes = (node for pipeline in self.pipelines for node in pipeline.graph.nodes)
        read = [node.index for node in nodes if node.kind == "table"]
        return tuple(
            (str(table.function), table, read.count(number)) for number, table in enumerate(self.tables)
        )

    @property
    def products(self) -> tuple[Product, ...]:
        """All products, with those of linear pieces, named like their nodes in the Verilog."""
        found: list[Product] = []
        for number, cell in enumerate(pipeline.graph for pipeline in self.pipelines):
            for index, node in enumerate(cell.nodes):
                name = f"cell{number}_{node.kind}{index}"
                if node.kind == "multiply":
                    a, b = (cell.nodes[arg].format.bits for arg in node.args)
                    found.append(Product(name, a, b, follows_cell=True))
                elif node.kind == "pieces":
                    lines = self.pieces[node.index]
                    found.append(Product(name, lines.input.bits, lines.slope_bits))
        return tuple(found)


Unit = FusedUnit | GraphUnit
"""Computes results from pre-activations."""
