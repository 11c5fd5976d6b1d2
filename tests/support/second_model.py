"""A second model of every bit, in Python integers, written from docs/numerics.md alone.

It takes a network's integers, formats, tables and graphs as data, and shares no arithmetic with the package.
While it computes it counts rare events, such as a tie exactly at a limit: what a test of the RTL has met is
then known, and not supposed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from rtlstm.spec.activations.interpolated import ActivationTable
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.fixed import Format
from rtlstm.spec.numerics import LayerShape, QuantizedDense, QuantizedLayer, QuantizedNetwork

Row = list[int]

GUARD = 4
"""Fraction bits that a row's sum has beside those of what is read next."""


@dataclass(frozen=True)
class Rounded:
    """A value of a unit before ``drop`` bits were rounded away, and the bits it was limited to."""

    unit: int
    value: int
    drop: int
    bits: int


@dataclass
class State:
    """One sequence's h of each recurrent layer, and what each layer that keeps a cell state keeps."""

    h: list[Row]
    c: list[Row]

    @classmethod
    def of(cls, h: Iterable[Any], c: Iterable[Any]) -> "State":
        """From arrays ``(units,)``."""
        return cls(*([np.asarray(part).tolist() for part in parts] for parts in (h, c)))

    def copy(self) -> "State":
        """Another one, of the same values."""
        return State([list(part) for part in self.h], [list(part) for part in self.c])


def limit_events(what: str) -> set[str]:
    """Where a limit can be off by one: at it, and one unit beyond."""
    return {f"{what}: {place} {side}" for place in ("at", "one beyond") for side in ("+max", "-max")}


def of_unit(event: str, unit: int, gate_units: int) -> str:
    """The event in the gate unit that computes a unit, for those of limits: each gate unit has its limits."""
    is_limit = event.partition(": ")[2] in ("at +max", "at -max", "one beyond +max", "one beyond -max")
    return f"{event}, gate unit {unit % gate_units}" if is_limit and gate_units > 1 else event


def rounding_events(what: str) -> set[str]:
    """Where rounding can be, and the ties half a unit beyond a limit: only the upper one is limited."""
    ties = {
        f"{what}: tie, positive",
        f"{what}: tie, negative",
        f"{what}: tie at +max",
        f"{what}: tie at -max",
    }
    return ties | limit_events(what)


def _parts(layer: QuantizedLayer) -> list[tuple[list[Row], Row, list[int | None]]]:
    """Weights, shifts and scales of the input part and, if there is one, the recurrent part."""
    parts = [("weight", "shift", "scale")]
    if not isinstance(layer, QuantizedDense):
        parts = [("w_ih", "shift_ih", "scale_ih"), ("w_hh", "shift_hh", "scale_hh")]
    found = []
    for names in parts:
        weights, shift, scale = (getattr(layer, name) for name in names)
        scales = [None] * len(shift) if scale is None else scale.tolist()
        found.append((weights.tolist(), shift.tolist(), scales))
    return found


WITH_H = ("lstm", "gru", "gru_reset", "unit", "rnn")
"""Kinds of layers whose results, or those of the next layer, are an h."""


class SecondModel:
    """Sequences through a network, one integer at a time."""

    def __init__(self, network: QuantizedNetwork, gate_units: int = 1) -> None:
        self.network = network
        self._gate_units = gate_units
        self.numerics = network.numerics
        self._fused = network.numerics.fused_lstm is not None
        """Whether the equations of LSTM and dense layers count, or the graphs."""
        self.saturations = 0
        """What the register CELL_SATURATIONS counts."""
        self.events: Counter[str] = Counter()
        self.rounded: list[Rounded] = []
        """What was rounded in the first layer since this was cleared."""
        self._unit_at = 0, 0
        self._parts = [_parts(layer) for layer in network.layers]
        self._biases = [layer.bias.tolist() for layer in network.layers]

    def zeros(self) -> State:
        """Of a sequence that has not begun."""
        shapes = self.network.shapes
        h = [shapes[at + shape.feedback].outputs for at, shape in enumerate(shapes) if shape.kind in WITH_H]
        c = [shape.outputs for shape in shapes if shape.has_state]
        return State([[0] * size for size in h], [[0] * size for size in c])

    def sequence(self, x: Sequence[Row], state: State) -> list[Row]:
        """A whole sequence, ``(T, inputs)``; ``state`` becomes the one after it."""
        if not self.network.passes:
            return [self.step(row, state) for row in x]
        values, first = list(x), 0
        for parts in self.network.passes:
            found = []
            for part in parts:
                layers = range(first, first + part.layers)
                first += part.layers
                ordered = values[::-1] if part.reverse else values
                y = [self.step(row, state, layers) for row in ordered]
                found.append(y[::-1] if part.reverse and not part.reversed_output else y)
            values = [list(chain(*rows)) for rows in zip(*found, strict=True)]
        return values

    def step(self, x: Row, state: State, layers: range | None = None) -> Row:
        """One step of some layers (all, if None), which stand one behind the other."""
        shapes = self.network.shapes
        layers = range(len(shapes)) if layers is None else layers
        given: dict[int, Row] = {}
        sums: list[Row] = []
        with_h = [at for at, shape in enumerate(shapes) if shape.kind in WITH_H]
        read_back = {at + shapes[at].feedback: number for number, at in enumerate(with_h)}
        c_number = sum(shape.has_state for shape in shapes[: layers[0]]) - 1
        for at in layers:
            shape = shapes[at]
            c_number += shape.has_state
            values = given[at - self._before(shape)] if at > layers[0] else x
            reads_h = shape.kind == "recall" or (shape.kind in WITH_H and not shape.feedforward)
            h = state.h[read_back[at + shape.feedback]] if reads_h else None
            sums = [values] if shape.kind == "norm" else self._sums(at, values, h, sums)
            if shape.kind in ("skip", "unit_skip"):
                continue
            c = state.c[c_number] if c_number >= 0 and self._keeps(shape) else [0] * shape.outputs
            given[at], kept = self._results(at, sums, c)
            if kept is not None:
                state.c[c_number] = kept
            if at in read_back:
                state.h[read_back[at]] = given[at]
        return given[layers[-1]]

    @staticmethod
    def _before(shape: LayerShape) -> int:
        return shape.skips or (2 if shape.kind == "sum" else 1)

    def _keeps(self, shape: LayerShape) -> bool:
        if self._fused:
            return shape.kind == "lstm"
        return any(node.kind == "state" for node in self._graph(shape).nodes) or (
            self._graph(shape).state is not None
        )

    def _graph(self, shape: LayerShape) -> CellGraph:
        return self.numerics.cells[shape.cell]

    # Rows

    def _sums(self, at: int, x: Row, h: Row | None, partials: list[Row]) -> list[Row]:
        """Sums of all rows with guard bits, ``[gate][unit]``."""
        shape, bias = self.network.shapes[at], self._biases[at]
        if shape.input_relu:
            x = [max(0, value) for value in x]
        if shape.kind == "recall":
            x = x[: shape.inputs]
        if self.numerics.input.lowest in x:
            self.events["input: lowest code"] += 1
        behind_skip = at > 0 and self.network.shapes[at - 1].kind in ("skip", "unit_skip")
        goes_on = shape.kind == "gru_candidate" or behind_skip
        flat = [a + b for a, b in zip(bias, chain(*partials), strict=True)] if goes_on else list(bias)
        for part, vector in zip(self._parts[at], [x] if h is None else [x, h], strict=True):
            for row, (mine, shift, scale) in enumerate(zip(*part, strict=True)):
                exact = sum(w * v for w, v in zip(mine, vector, strict=True))
                shifted = (exact << self.numerics.accumulator.align) >> shift
                flat[row] += shifted if scale is None else shifted * scale // 2**17
        units = shape.outputs
        return [flat[first : first + units] for first in range(0, len(flat), units)]

    def _preactivation(self, total: int, bits: int) -> int:
        """A row's sum without its guard bits, rounded down: any half that is to be added is in the bias."""
        return self._rounded_down("pre-activation", total, GUARD, bits)

    # Rounding

    def _count_limit(self, event: str) -> None:
        self.events[of_unit(event, self._unit_at[1], self._gate_units)] += 1

    def _saturated(self, what: str, value: int, bits: int) -> int:
        most = 2 ** (bits - 1) - 1
        for sign, name in ((1, "+max"), (-1, "-max")):
            for beyond, place in enumerate(("at", "one beyond")):
                if sign * value == most + beyond:
                    self._count_limit(f"{what}: {place} {name}")
        return min(max(value, -most), most)

    def _rounded(self, what: str, value: int, drop: int, bits: int) -> tuple[int, bool]:
        """Half up, then limited; and whether it was."""
        layer, unit = self._unit_at
        if layer == 0:
            self.rounded.append(Rounded(unit, value, drop, bits))
        if drop <= 0:
            found = value * 2**-drop
        else:
            found = (value + 2 ** (drop - 1)) // 2**drop
            if value % 2**drop == 2 ** (drop - 1):
                self.events[f"{what}: tie, {'positive' if value > 0 else 'negative'}"] += 1
                most = 2 ** (bits - 1) - 1
                if found in (most + 1, -most):
                    self.events[f"{what}: tie at {'+' if found > 0 else '-'}max"] += 1
        saturated = self._saturated(what, found, bits)
        return saturated, saturated != found

    def _odd(self, value: int, drop: int) -> int:
        """The odd code of the two steps that the value lies in, by its magnitude."""
        size = abs(value) // 2**drop
        size += size % 2 == 0
        for sign, name in ((1, "positive"), (-1, "negative")):
            if value % 2 ** (drop + 1) == 0 and value * sign > 0:
                self.events[f"h: at the end of two steps, {name}"] += 1
        return -size if value < 0 else size

    def _rounded_down(self, what: str, value: int, drop: int, bits: int) -> int:
        """Down, then limited to all codes of that many bits, the lowest among them."""
        most = 2 ** (bits - 1) - 1
        found = (value * 2 ** max(0, -drop)) // 2 ** max(0, drop)
        for beyond, place in enumerate(("at", "one beyond")):
            if found == most + beyond:
                self._count_limit(f"{what}: {place} +max")
            if found == -most - 1 - beyond:
                self._count_limit(f"{what}: {place} -max")
        return min(max(found, -most - 1), most)

    # Functions

    def _look_up(self, table: ActivationTable, value: int) -> int:
        negative, size = value < 0, -1 - value if table.middle and value < 0 else abs(value)
        odd = table.function.name in ("tanh", "softsign", "scaled_tanh")
        low_bits = table.input.bits - 1 - table.segment_bits
        entry, low = divmod(size, 2**low_bits)
        if negative and not odd:
            entry += 2**table.segment_bits
        found = (table.base[entry] + table.slope[entry] * low) >> table.extra
        function = table.function
        if function.name == "scaled_tanh":
            negative ^= (function.alpha < 0) != (function.beta < 0)
        elif function.name == "elu":
            negative &= function.alpha > 0
        elif function.name in ("sigmoid", "softplus", "decay", "inverse_root"):
            negative = False
        return -found if negative else found

    # Results

    def _results(self, at: int, sums: list[Row], c: Row) -> tuple[Row, Row | None]:
        """Results of a layer's units, and what is kept of them."""
        shape = self.network.shapes[at]
        results, keeps = [], []
        for unit in range(shape.outputs):
            totals = [row[unit] for row in sums]
            self._unit_at = at, unit
            if not self._fused or shape.kind == "norm":
                own = getattr(self.network.layers[at], "parameters", None)
                mine = [] if own is None else own[unit].tolist()
                result, kept = self._cell(self._graph(shape), totals, c[unit], mine, sums[0])
            elif shape.kind == "lstm":
                result, kept = self._lstm(shape, totals, c[unit])
            else:
                result, kept = self._dense(shape.activation, totals[0], shape.output.bits), None
            results.append(result)
            keeps.append(kept)
        return results, None if None in keeps else keeps

    def _lstm(self, shape: LayerShape, totals: Row, c: int) -> tuple[int, int]:
        numerics, gate, cell = self.numerics, self.numerics.gate.fraction, shape.state
        assert cell is not None
        i, f, g, o = (self._preactivation(total, numerics.preactivation.bits) for total in totals)
        i, f, o = (self._look_up(numerics.unit.sigmoid, value) for value in (i, f, o))
        g = self._look_up(numerics.unit.tanh, g)
        # Exact in units that those of both products, and of any argument, are whole numbers of.
        fraction = gate + max(gate, cell.fraction, numerics.cell_argument.fraction)
        total = f * c * 2 ** (fraction - gate - cell.fraction) + i * g * 2 ** (fraction - 2 * gate)
        kept, saturated = self._rounded("c", total, fraction - cell.fraction, cell.bits)
        self.saturations += saturated
        reads = numerics.cell_argument
        argument = self._rounded_down("tanh's argument", total, fraction - reads.fraction, reads.bits)
        tanh = self._look_up(numerics.unit.cell_tanh, argument)
        # Only then does a product of nothing have a sign to lose.
        for name, factor in (("o", o), ("tanh", tanh)):
            self.events[f"h: nothing of a negative argument, by {name}"] += factor == 0 and argument < 0
        product = o * tanh
        bits = numerics.data_bits
        drop = 2 * gate - shape.output.fraction
        if numerics.hidden_rounding == "odd":
            return self._odd(product, drop), kept
        return self._rounded("h", product, drop, bits)[0], kept

    def _dense(self, activation: str, total: int, bits: int) -> int:
        numerics = self.numerics
        linear = activation in ("identity", "relu")
        widest = max(numerics.preactivation.bits, bits) if linear else numerics.preactivation.bits
        value = self._preactivation(total, widest)
        if linear:
            if total % (1 << GUARD) == 0:
                # The half that the bias brought is part of it.
                self.events[f"{activation}: tie, {'positive' if total > 0 else 'negative'}"] += 1
            if activation == "relu" and value <= 0:
                self.events[f"relu: {'negative' if value else 'zero'}"] += 1
                return 0
            return self._saturated(activation, value, bits)
        table = numerics.unit.sigmoid if activation == "sigmoid" else numerics.unit.tanh
        drop = numerics.gate.fraction - (bits - 1)
        return self._rounded(f"dense {activation}", self._look_up(table, value), drop, bits)[0]

    def _normalised(self, index: int, value: int, every: Row, gain: int | None) -> int:
        """A value of a step's, less their mean, over the root's power of two; times gain and root."""
        norm = self.numerics.norms[index]
        total = sum(every) if norm.centre else 0
        squares = sum(each**2 for each in every) * 4**norm.guard + norm.epsilon
        variance = norm.values * squares - total**2 * 4**norm.guard
        exponent = max(0, (variance.bit_length() - 1) // 2)
        # The mantissa, from 1 up to 4, in units of 4 ** -exponent.
        odd = variance >= 2 * 4**exponent
        ones = (2 if odd else 1) * 4**exponent
        argument = (variance - ones) * 2**norm.mantissa_bits // ones if variance else 0
        root = self._look_up(self.numerics.tables[norm.table], -1 - argument if odd else argument)
        deviation = (norm.values * value - total) * 2 ** (norm.fraction + norm.guard)
        factor = deviation // 2**exponent
        return (factor if gain is None else factor * gain // 2**norm.dropped) * root

    def _cell(self, graph: CellGraph, totals: Row, state: int, own: Row, row: Row) -> tuple[int, int | None]:
        values: Row = []
        for place, node in enumerate(graph.nodes):
            args = [values[arg] for arg in node.args]
            forms: list[Format] = [graph.nodes[arg].format for arg in node.args]
            match node.kind:
                case "gate" if graph.norm is not None:
                    value = totals[node.index]
                case "gate":
                    value = self._preactivation(totals[node.index], node.format.bits)
                case "state":
                    value = state
                case "parameter":
                    value = own[node.index]
                case "constant":
                    value = node.value
                case "multiply":
                    value = args[0] * args[1]
                case "add" | "subtract":
                    a, b = (
                        arg * 2 ** (node.format.fraction - form.fraction)
                        for arg, form in zip(args, forms, strict=True)
                    )
                    value = a + b if node.kind == "add" else a - b
                case "clamp":
                    value = min(max(args[0], -node.value), node.value)
                case "table":
                    value = self._look_up(self.numerics.tables[node.index], args[0])
                case "pieces":
                    lines = self.numerics.pieces[node.index]
                    piece = sum(threshold <= args[0] for threshold in lines.thresholds)
                    value = lines.slopes[piece] * args[0] + lines.offsets[piece]
                    value = (2 * value + 2**lines.extra) // 2 ** (lines.extra + 1)
                    value = min(max(value, lines.lowest), lines.highest)
                case "normalise":
                    value = self._normalised(node.index, args[0], row, args[1] if args[1:] else None)
                case "odd":
                    value = self._odd(args[0], forms[0].fraction - node.format.fraction)
                case "floor":
                    drop = forms[0].fraction - node.format.fraction
                    value = self._rounded_down("argument", args[0], drop, node.format.bits)
                case "narrow":
                    drop = forms[0].fraction - node.format.fraction
                    what = "kept value" if place == graph.state else "narrowed value"
                    value, saturated = self._rounded(what, args[0], drop, node.format.bits)
                    self.saturations += saturated and place == graph.state
            values.append(value)
        return values[graph.result], None if graph.state is None else values[graph.state]
