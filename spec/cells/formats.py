"""Converts a cell's description to its graph: values get fixed-point formats, functions get tables."""

from dataclasses import dataclass, field
from typing import TypeVar

from rtlstm.spec.activations.functions import ActivationFunction, PiecewiseLinear, design_pieces
from rtlstm.spec.activations.interpolated import VALUE_BITS, ActivationTable, design_table
from rtlstm.spec.cells.description import Cell, Operation
from rtlstm.spec.cells.evaluate import rounded_gates
from rtlstm.spec.cells.graph import WIDEST, CellGraph, Node, NodeKind
from rtlstm.spec.cells.kinds import is_fused_cell
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import LEAST_FRACTION, MOST_FRACTION, Format, HiddenRounding, round_half_up
from rtlstm.spec.norms import MOST_NORM_BITS, Normalisation, design_root

T = TypeVar("T")


@dataclass
class Functions:
    """Tables and piecewise linear functions that cells share."""

    direct: bool = False
    """Whether tables have one entry per input."""
    tables: list[ActivationTable] = field(default_factory=list)
    pieces: list[PiecewiseLinear] = field(default_factory=list)
    norms: list[Normalisation] = field(default_factory=list)

    def table(self, function: ActivationFunction, input: Format, output: Format, middle: bool = False) -> int:
        """Return the index of a table, which is added if there is no equal one."""
        return _number(self.tables, design_table(function, input, output, self.direct, middle))

    def norm(
        self, values: int, source: Format, operation: Operation, result: Format, gain: Format | None
    ) -> tuple[int, Format]:
        """Return the index of a norm, which is added if there is no equal one, and its products' format."""
        root = design_root(self.direct)
        table, centre = _number(self.tables, root), bool(operation.index)
        norm = Normalisation.of(values, source, centre, operation.value, result.fraction, table, root, gain)
        return _number(self.norms, norm), norm.product(root.output)

    def linear(self, function: ActivationFunction, input: Format, output: Format) -> int:
        """Return the index of a piecewise linear function, which is added if there is no equal one."""
        return _number(self.pieces, design_pieces(function, input, output))


class KnownFunctions(Functions):
    """The functions that a build has: a cell with others has no graph among the build's."""

    def table(self, function: ActivationFunction, input: Format, output: Format, middle: bool = False) -> int:
        """Return the index of a table; -1 if there is none."""
        wanted = (function, input, output, middle)
        found = [(table.function, table.input, table.output, table.middle) for table in self.tables]
        return found.index(wanted) if wanted in found else -1

    def linear(self, function: ActivationFunction, input: Format, output: Format) -> int:
        """Return the index of a piecewise linear function; -1 if there is none."""
        wanted = (function, input, output)
        found = [(pieces.function, pieces.input, pieces.output) for pieces in self.pieces]
        return found.index(wanted) if wanted in found else -1


def _number(known: list[T], wanted: T) -> int:
    if wanted not in known:
        known.append(wanted)
    return known.index(wanted)


@dataclass(frozen=True)
class CellFormats:
    """Formats of a layer's values."""

    preactivation: Format
    """Format of the gates, and of the other values that activation functions read."""
    gate: Format
    """Format of results of activation functions within -1 .. 1."""
    output: Format
    """Format of the result."""
    state: Format | None = None
    argument: Format | None = None
    """Format in which an activation function reads the kept value before that is rounded to ``state``."""
    parameter: Format | None = None
    rounding: HiddenRounding = "half_up"
    """How the result of a cell with a state is rounded."""
    normalised: tuple[int, Format] | None = None
    """The number of values of a norm, and their format."""


def resolve(cell: Cell, formats: CellFormats, functions: Functions) -> tuple[CellGraph, tuple[int, ...]]:
    """Choose the format of every value of a cell, and the tables of its functions.

    Return the graph, and the node that each step of the cell became.

    Raises ConfigurationError if an exact sum or product would need more than 48 bits.
    """
    resolver = _Resolver(cell, formats, functions)
    return resolver.graph(), tuple(resolver.of_step)


class _Resolver:
    def __init__(self, cell: Cell, formats: CellFormats, functions: Functions) -> None:
        self._cell = cell
        self._formats = formats
        self._functions = functions
        self._nodes: list[Node] = []
        self._known: dict[Node, int] = {}
        self.of_step: list[int] = []

    def graph(self) -> CellGraph:
        cell = self._cell
        for step in cell.steps:
            self.of_step.append(self._step(step, [self.of_step[arg] for arg in step.args]))
        result = self._rounded(self.of_step[cell.result], self._formats.output)
        state = None if cell.state is None else self.of_step[cell.state]
        return CellGraph(name=cell.name, nodes=tuple(self._nodes), result=result, state=state)

    def _add(self, kind: NodeKind, format: Format, *args: int, index: int = 0, value: int = 0) -> int:
        node = Node(kind=kind, args=args, format=format, index=index, value=value)
        if node not in self._known:
            self._known[node] = len(self._nodes)
            self._nodes.append(node)
        return self._known[node]

    def _format(self, position: int) -> Format:
        return self._nodes[position].format

    def _step(self, step: Operation, args: list[int]) -> int:
        formats = self._formats
        match step.kind:
            case "gate":
                return self._add("gate", formats.preactivation, index=step.index)
            case "state":
                assert formats.state is not None
                return self._add("state", formats.state)
            case "parameter":
                assert formats.parameter is not None
                return self._add("parameter", formats.parameter, index=step.index)
            case "constant":
                return self._constant(step.value)
            case "multiply":
                if (more := sum(self._format(arg).bits for arg in args) - WIDEST) > 0:
                    # Of a product of products, the longest one is rounded.
                    longest = max(args, key=lambda arg: self._format(arg).bits)
                    fewer = self._shortened(longest, self._format(longest).fraction - more)
                    args = [fewer if arg == longest else arg for arg in args]
                a, b = map(self._format, args)
                return self._exact("multiply", a.bits + b.bits, a.fraction + b.fraction, args)
            case "add" | "subtract":
                whole = max(self._format(arg).bits - self._format(arg).fraction for arg in args)
                args = [self._shortened(arg, WIDEST - whole - 1) for arg in args]
                fraction = max(self._format(arg).fraction for arg in args)
                return self._exact(step.kind, whole + fraction + 1, fraction, args)
            case "apply":
                assert step.function is not None
                return self._apply(step.function, args[0], step.args[0])
            case "clip":
                return self._clip(args[0], step.value)
            case "keep":
                assert formats.state is not None
                return self._narrow(args[0], formats.state)
            case "normalise":
                return self._normalise(step, args)

    def _normalise(self, step: Operation, args: list[int]) -> int:
        """Return the products with the root."""
        output, gain = self._formats.output, self._formats.parameter if args[1:] else None
        assert self._formats.normalised is not None
        if output.bits > MOST_NORM_BITS:
            raise ConfigurationError(
                f"a norm's results have at most {MOST_NORM_BITS} bits, not {output.bits}; choose fewer "
                "`data_bits`, or fewer `output_bits` of a norm at the network's end"
            )
        values, source = self._formats.normalised
        index, product = self._functions.norm(values, source, step, output, gain)
        return self._exact("normalise", product.bits, product.fraction, args, index)

    def _constant(self, value: float) -> int:
        fraction = next((f for f in range(24) if float(value * 2**f).is_integer()), 24)
        integer = round(value * 2**fraction)
        return self._add(
            "constant", Format(bits=max(2, abs(integer).bit_length() + 1), fraction=fraction), value=integer
        )

    def _exact(self, kind: NodeKind, bits: int, fraction: int, args: list[int], index: int = 0) -> int:
        if bits > WIDEST:
            raise ConfigurationError(
                f"cell {self._cell.name!r} needs exact values of {bits} bits, but {WIDEST} is the most; "
                "choose fewer cell or gate bits"
            )
        if not LEAST_FRACTION <= fraction <= MOST_FRACTION:
            raise ConfigurationError(
                f"cell {self._cell.name!r} needs exact values of {fraction} fraction bits, but they must be "
                f"{LEAST_FRACTION} to {MOST_FRACTION}; choose a `cell_range` nearer to 1, or other bits"
            )
        return self._add(kind, Format(bits=bits, fraction=fraction), *args, index=index)

    def _narrow(self, position: int, format: Format) -> int:
        """Round half up and saturate symmetrically, where the value is not as it must be."""
        ready = self._format(position) == format and self._nodes[position].kind != "gate"
        return position if ready else self._add("narrow", format, position)

    def _shortened(self, position: int, most: int) -> int:
        """A value with at most so many fraction bits, and all that are before them."""
        form = self._format(position)
        fewer = form.fraction - most
        # The fused unit's values are exact, and so are the graphs that stand for it.
        if fewer <= 0 or most < 0 or is_fused_cell(self._cell):
            return position
        return self._narrow(position, Format(bits=form.bits - fewer, fraction=most))

    def _rounded(self, position: int, format: Format) -> int:
        """Round the result as the layer's format asks for."""
        if self._formats.rounding == "half_up":
            return self._narrow(position, format)
        return self._add("odd", format, position)

    def _clip(self, position: int, limit: float) -> int:
        form = self._format(position)
        value = int(round_half_up(limit, form.fraction))
        return position if value >= form.maximum else self._add("clamp", form, position, value=value)

    def _apply(self, function: ActivationFunction, position: int, step: int) -> int:
        if function.name == "identity":
            return position
        linear = function.lines is not None
        read, middle = self._read(position, step, rounds=linear)
        form = self._format(read)
        if function.within_one:
            output = self._formats.gate
        else:
            bits = form.bits if linear else min(form.bits, VALUE_BITS)
            output = Format.covering(bits, max(function.max_abs(form.limit), form.step))
        if linear:
            return self._add("pieces", output, read, index=self._functions.linear(function, form, output))
        return self._add("table", output, read, index=self._functions.table(function, form, output, middle))

    def _read(self, position: int, step: int, rounds: bool) -> tuple[int, bool]:
        """Return a value in the format that a function reads, and whether it was rounded down.

        Only tables read values that were rounded down; ``rounds`` says that the function takes no such value.
        """
        inner = self._nodes[position]
        while inner.kind == "clamp":
            inner = self._nodes[inner.args[0]]
        of_gate = inner.kind == "gate"
        if of_gate and inner.index not in rounded_gates(self._cell):
            return position, True
        if of_gate and rounds:
            return position, False
        kept = not of_gate and any(s.kind == "keep" and s.args[0] == step for s in self._cell.steps)
        form = (self._formats.argument if kept else None) or self._formats.preactivation
        if rounds or self._format(position).fraction <= form.fraction:
            return self._narrow(position, form), False
        return self._add("floor", form, position), True
