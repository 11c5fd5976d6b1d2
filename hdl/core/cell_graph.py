"""A cell's graph in hardware: the value of each node, with the operations of the golden model.

Who uses it says where gates, constants and tables come from, and where registers stand.
"""

from abc import ABC, abstractmethod

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed

from rtlstm.hdl.core.unit import round_down
from rtlstm.hdl.primitives.staged import Staged, combine, mux
from rtlstm.spec.activations.functions import PiecewiseLinear
from rtlstm.spec.cells.graph import CellGraph, Node
from rtlstm.spec.fixed import Format
from rtlstm.spec.numerics import Numerics

Signed = tuple[Staged, Staged]
"""Sign and magnitude of a value, as a ``middle`` table counts it."""


class CellValues(ABC):
    """Makes the values of a graph's nodes, in a module."""

    def __init__(self, m: Module, graph: CellGraph, numerics: Numerics, name: str) -> None:
        self._m, self.graph, self._numerics, self._name = m, graph, numerics, name
        self.values: list[Staged] = []
        self.clipped = Staged(m, Const(0, 1), 0)
        """Whether what is kept saturated."""

    @abstractmethod
    def signed_gate(self, node: Node) -> Signed:
        """Return a gate's pre-activation."""

    @abstractmethod
    def parameter(self, node: Node) -> Staged:
        """Return a constant of the unit."""

    @abstractmethod
    def times(self, a: Staged, b: Staged, name: str) -> Staged:
        """Return an exact product."""

    def times_slope(self, x: Staged, slope: Staged, name: str) -> Staged:
        """Return the product with a line's slope."""
        return self.times(x, slope, name)

    @abstractmethod
    def look_up(self, name: str, node: Node, gate: Node | None, argument: Signed) -> Staged:
        """Return a table's value; the argument is the pre-activation of a ``gate``, or found for it."""

    def argument(self, node_number: int) -> Staged:
        """Return a value for an operation that reads it."""
        return self.values[node_number]

    def registered(self, value: Staged, name: str, shape: Shape | int | None = None) -> Staged:
        """Return a value of this shape behind the register that an operation has."""
        return value.registered(name, shape)

    def for_table(self, value: Staged, name: str, bits: int) -> Staged:
        """Return a part of a table's argument behind its register."""
        return self.registered(value, name, bits)

    def rounded(self, value: Staged) -> Staged:
        """Return what was rounded and is not limited yet, behind the register that is between, if any."""
        return value

    def node(self, node_number: int, node: Node) -> Staged:
        """Return the value of a node that is not the state; those before it are in ``values``."""
        m, args = self._m, [self.argument(arg) for arg in node.args]
        name = f"{self._name}_{node.kind}{node_number}"
        shape = signed(node.format.bits)
        match node.kind:
            case "gate":
                return combine(_with_sign, *self.signed_gate(node))
            case "parameter":
                return self.parameter(node)
            case "constant":
                return Staged(m, Const(node.value, shape), 0)
            case "multiply":
                return self.times(args[0], args[1], name).as_signed(node.format.bits)
            case "add" | "subtract":
                left = [node.format.fraction - self.graph.nodes[index].format.fraction for index in node.args]

                def exact(a: Value, b: Value) -> Value:
                    a, b = a.shift_left(left[0]), b.shift_left(left[1])
                    return a + b if node.kind == "add" else a - b

                return self.registered(combine(exact, *args), name, shape)
            case "clamp":
                return self.registered(_clipped(args[0], -node.value, node.value), name, shape)
            case "floor":
                negative, magnitude = round_down(args[0].value, self._drop(node), node.format.bits)
                rounded = Staged(m, _with_sign(negative, magnitude), args[0].stage)
                return self.registered(rounded, name, shape)
            case "narrow":
                return self.narrow(node_number, node, name, args[0])
            case "table":
                return self._table(node, name, args[0])
            case "pieces":
                function = self._numerics.pieces[node.index]
                return self.registered(self._pieces(name, args[0], function), name, shape)
            case _:
                raise AssertionError(node.kind)

    def _drop(self, node: Node) -> int:
        """Return the bits behind a node's last one that its argument has more."""
        return self.graph.nodes[node.args[0]].format.fraction - node.format.fraction

    def narrow(self, node_number: int, node: Node, name: str, exact: Staged) -> Staged:
        """Round half up and limit, beside each other."""
        return self._limited(node_number, node, name, exact, Format(bits=node.format.bits, fraction=0))

    def _limited(self, node_number: int, node: Node, name: str, exact: Staged, form: Format) -> Staged:
        drop, most = self._drop(node), form.maximum
        half = (1 << drop) >> 1 if drop > 0 else 0

        def rounded(value: Value) -> Value:
            return (value + half).shift_right(drop)

        def over(value: Value) -> Value:
            return value >= ((most + 1) << drop) - half if drop >= 0 else rounded(value) > most

        def under(value: Value) -> Value:
            return value < (-most << drop) - half if drop >= 0 else rounded(value) < -most

        above, below, kept = (self.rounded(exact.map(function)) for function in (over, under, rounded))
        if node_number == self.graph.state:
            self.clipped = self.registered(above | below, f"{name}_clipped")
        return self.registered(mux(above, most, mux(below, -most, kept)), name, signed(form.bits))

    def _table(self, node: Node, name: str, x: Staged) -> Staged:
        """Look up a function; of what is not a gate, find sign and magnitude first."""
        source, table = self.graph.nodes[node.args[0]], self._numerics.tables[node.index]
        if source.kind == "gate":
            negative, magnitude = self.signed_gate(source)
            found = self.look_up(name, node, source, (negative, magnitude))
        else:
            minus = x.map(lambda value: ~value if table.middle else -value)
            negative, magnitude = (
                self.for_table(each, f"{name}_{part}", bits)
                for part, each, bits in (
                    ("negative", x[-1], 1),
                    ("magnitude", mux(x[-1], minus, x), len(x) - 1),
                )
            )
            found = self.look_up(name, node, None, (negative, magnitude))
        above, below = table.negates
        inverts: Staged | Value = Const(below, 1) if above == below else negative ^ above
        value = mux(inverts, found.map(lambda value: -value), found)
        return value.as_signed(node.format.bits).named(f"{name}_value")

    def _pieces(self, name: str, x: Staged, function: PiecewiseLinear) -> Staged:
        """Pick a line; multiply, add, round and limit."""
        slope, offset = (
            self._of_line(x, function.thresholds, values, f"{name}_{part}")
            for part, values in (("slope", function.slopes), ("offset", function.offsets))
        )
        product = self.times_slope(x, slope.as_signed(function.slope_bits), name)
        half = (1 << function.extra) >> 1
        total = (product + offset + half).map(lambda value: value.shift_right(function.extra))
        return _clipped(total, function.lowest, function.highest)

    def _of_line(self, x: Staged, thresholds: tuple[int, ...], values: tuple[int, ...], name: str) -> Staged:
        """Return the value of the last line whose threshold x has reached, from a register."""
        found = Signal(_range(values), name=f"{name}_of_line")
        self._m.d.comb += found.eq(values[0])
        for threshold, value in zip(thresholds, values[1:], strict=True):
            with self._m.If(x.value >= threshold):
                self._m.d.comb += found.eq(value)
        return self.registered(Staged(self._m, found, x.stage), name)


def _clipped(x: Staged, lowest: int, highest: int) -> Staged:
    return x.map(lambda value: Mux(value > highest, highest, Mux(value < lowest, lowest, value)))


def _with_sign(negative: Value, magnitude: Value) -> Value:
    """Return the value of a sign and a magnitude as a ``middle`` table counts it."""
    return Cat(magnitude ^ negative.replicate(len(magnitude)), negative).as_signed()


def _range(values: tuple[int, ...]) -> Shape:
    """A signed shape that holds all values."""
    return signed(max(2, *(value.bit_length() + 1 for value in values)))
