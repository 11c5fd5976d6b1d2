"""A quantised network in PyTorch: the golden model's bits, with gradients.

:class:`TorchLayers` is to training what :mod:`rtlstm.sim.golden` is to verification. It computes layer by
layer, whole sequences at once where no recurrence is in the way. The states of a prepared module are here as
its caller sees them, and as its layers keep them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rtlstm.gen.quantise.plan import RowPlan
from rtlstm.sim.reference import FloatState
from rtlstm.spec.cells.evaluate import evaluate
from rtlstm.spec.cells.graph import CellGraph, Node
from rtlstm.spec.cells.kinds import is_fused_cell
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Format
from rtlstm.spec.numerics import GUARD_BITS, SKIPS, QuantizedNetwork, joins_sums
from rtlstm.spec.program.passes import part_layers
from rtlstm.train.cells import (
    FLOAT32_BITS,
    Floats,
    FusedLayer,
    LookUp,
    StraightThrough,
    round_to,
    rounded,
    run_fused,
    straight_through,
)
from rtlstm.train.parameters import LayerArrays, RangeTensors, cell_name, exponent

_FLOAT32_EXACT = 1 << 24

LayerStates = tuple[list[Any], list[Any]]
"""h of each recurrent layer as the array reads it, and each layer's kept state, ``(N, values)``."""


Squares = dict[tuple[int, bool], Any]
"""Sums of squares of what a layer's product with h (True) or with its input reads, ``(values,)``."""


@dataclass(frozen=True)
class _Run:
    """What all layers of a run share."""

    alive: Any
    """Where sequences have steps, ``(T, N, 1)``; None if everywhere."""
    rounding: bool
    squares: Squares | None
    ranges: RangeTensors | None
    """Logarithms of the ranges that are trained."""
    seen: dict[int, Any] = field(default_factory=dict)
    """Takes the outputs of each recurrent layer, ``(T, N, values)``."""


class TorchLayers(torch.nn.Module):
    """The layers of a quantised network, whose formats are fixed and whose numbers are given to :meth:`run`.

    ``network`` has formats, shapes and passes; its integers are not used. ``plans`` are the formats around
    the rows of each layer.
    """

    def __init__(self, network: QuantizedNetwork, plans: Sequence[RowPlan]) -> None:
        super().__init__()
        self.network, self.plans = network, tuple(plans)
        self.shapes, self.numerics = network.shapes, network.numerics
        self.tables = torch.nn.ModuleList(LookUp(table) for table in self.numerics.tables)
        for index, plan in enumerate(self.plans):
            offsets = torch.from_numpy(plan.offsets).double()
            self.register_buffer(f"offsets_{index}", offsets, persistent=False)
        self._states = {at: number for number, at in enumerate(self._with(lambda shape: shape.has_state))}
        self._hidden = {at: number for number, at in enumerate(self._with(lambda shape: shape.has_h))}

    def _with(self, wanted: Any) -> list[int]:
        return [index for index, shape in enumerate(self.shapes) if wanted(shape)]

    def zeros(self, batch: int, like: Any) -> LayerStates:
        """Return the state before a sequence."""
        h = [self.shapes[at + self.shapes[at].feedback].outputs for at in self._hidden]
        c = [self.shapes[at].outputs for at in self._states]
        return [like.new_zeros((batch, size)) for size in h], [like.new_zeros((batch, size)) for size in c]

    def read(self, x: Any, ranges: RangeTensors | None = None) -> Any:
        """Return inputs times their factors, plus their zeros' codes, rounded to the format and saturated."""
        wide = x.double()  # In float32, half a unit more could round up to the next one.
        return round_to(self.scale(wide), self.numerics.input, (ranges or {}).get("input"))

    def scale(self, x: Any) -> Any:
        """Return the real values of which the codes of the inputs are made, like x."""
        factor, offset = self.numerics.input_factor, self.numerics.input_offset
        return x * torch.from_numpy(factor).to(x) + torch.as_tensor(offset).to(x)

    def run(
        self,
        arrays: Sequence[LayerArrays],
        x: Any,
        state: LayerStates,
        alive: Any,
        rounding: bool = True,
        squares: Squares | None = None,
        ranges: RangeTensors | None = None,
    ) -> tuple[list[Any], LayerStates]:
        """Run whole sequences of ``x``, ``(T, N, inputs)``, multiples of the input's step, from ``state`` on.

        ``arrays`` are those of each layer, as :class:`rtlstm.train.rows.LayerRows` gives them; ``ranges`` has
        the logarithms of the ranges that are trained. ``alive`` says where sequences have steps, ``(T, N,
        1)``; None if everywhere. Without ``rounding`` it computes the float network of these arrays.
        ``squares`` takes sums of squares of what is multiplied, if nothing is rounded. Padding counts as it
        is, and sequences that have ended with their last h. Returns y and the outputs of each recurrent
        layer, ``(T, N, values)``, and the final state.
        """
        run = _Run(alive, rounding, squares, ranges)
        h, c = list(state[0]), list(state[1])
        values = x
        if not self.network.passes:
            y = self._part(range(len(self.shapes)), arrays, values, h, c, run)
            values = y if alive is None else y * alive
        for parts, layers_of in zip(self.network.passes, part_layers(self.network.passes), strict=True):
            found = []
            for part, layers in zip(parts, layers_of, strict=True):
                mine = run if not part.reverse else replace(run, alive=_flipped(alive))
                given = values.flip(0) if part.reverse else values
                y = self._part(layers, arrays, given, h, c, mine)
                y = y.flip(0) if part.reverse else y
                y = y if alive is None else y * alive
                found.append(_reverse_valid(y, alive) if part.reversed_output else y)
            values = torch.cat(found, dim=-1)
        return [values, *(run.seen[at] for at in sorted(run.seen))], (h, c)

    def _part(
        self, layers: range, arrays: Sequence[LayerArrays], x: Any, h: list[Any], c: list[Any], run: _Run
    ) -> Any:
        """Run consecutive layers; ``h`` and ``c`` are those of the network, and change."""
        given: dict[int, Any] = {}
        partials: Any = None
        index = layers[0]
        while index in layers:
            shape = self.shapes[index]
            values = x if index == layers[0] else given[index - shape.before]
            last = index + shape.feedback
            partials = partials if joins_sums(self.shapes, index) else None
            if shape.kind == "recall" or shape.has_h:
                before = {**given, index - shape.before: values}
                given |= self._recurrence(range(index, last + 1), arrays, before, partials, h, c, run)
            else:
                partials = self._sums(index, arrays[index], values, partials, run)
                if shape.kind not in SKIPS:
                    given[index] = self._results(index, arrays[index], partials, None, run)[0]
            index = last + 1
        return given[layers[-1]]

    # Rows

    def _product(self, index: int, recurrent: bool, arrays: LayerArrays, values: Any, run: _Run) -> Any:
        """Multiply by the rows of a layer; rounded down to the sums' fraction bits, in units of these."""
        rows = arrays["w_rec" if recurrent else "w_in"]
        if run.squares is not None:
            more = values.square().sum(dim=tuple(range(values.ndim - 1)))
            run.squares[index, recurrent] = run.squares.get((index, recurrent), 0.0) + more
        if not run.rounding:
            return values @ rows.T
        product = values.double() @ (rows.double() * 2.0 ** self.plans[index].target).T
        return straight_through(torch.floor(product), product)

    def _sums(self, index: int, arrays: LayerArrays, values: Any, partials: Any, run: _Run) -> Any:
        """Return a layer's sums without the recurrent part: with the bias, and with partial sums if any."""
        plan, shape = self.plans[index], self.shapes[index]
        read = (torch.relu(values) if shape.input_relu else values)[..., : shape.inputs]
        product = self._product(index, False, arrays, read, run)
        product = product if partials is None else product + partials
        if plan.continues:
            return product
        bias = arrays["bias"]
        if not run.rounding:
            return product + bias
        return product + (bias.double() * 2.0**plan.target + getattr(self, f"offsets_{index}"))

    def _results(self, index: int, arrays: LayerArrays, sums: Any, state: Any, run: _Run) -> tuple[Any, Any]:
        """Return a layer's results and the new state, None if its cell keeps none."""
        plan, shape, constants = self.plans[index], self.shapes[index], arrays.get("unit_constants")
        read = self._preactivations(index, sums, run) if run.rounding else sums
        gates = read.split(shape.outputs, dim=-1)
        arithmetic = Floats(plan.layer.cell, read)
        if run.rounding:
            graph, pieces = self.numerics.cells[shape.cell], self.numerics.pieces
            ranges = self._ranges_of_nodes(index, run.ranges)
            arithmetic = StraightThrough(graph, read, self.tables, pieces, self.numerics.norms, ranges)
        values = evaluate(arithmetic, gates, state, () if constants is None else constants.unbind(dim=1))
        units, cell = gates[0].shape, arithmetic.cell
        kept = None if cell.state is None else values[cell.state].expand(units)
        return values[cell.result].expand(units), kept

    def _preactivations(self, index: int, sums: Any, run: _Run) -> Any:
        """Drop the guard bits and saturate; as real numbers."""
        plan = self.plans[index]
        most = (1 << (self.numerics.sum_bits(self.shapes[index].cell) - 1)) - 1
        fraction = plan.target - GUARD_BITS
        low, high = (code * 2.0**-fraction for code in (~most, most))
        values = torch.floor(sums.detach() * 0.5**GUARD_BITS) * 2.0**-fraction
        name = index if plan.layer.linear else "preactivation"
        # A norm reads results, which are in their layer's range.
        log_range = None if plan.layer.kind == "norm" else (run.ranges or {}).get(name)
        # What is read has half a step more than the sum, or the sum has, which was added to round it.
        return rounded(values, sums * 2.0**-plan.target, low, high, log_range, 0.5 * 2.0**-fraction)

    def _ranges_of_nodes(self, index: int, ranges: RangeTensors | None) -> dict[int, Any]:
        """Return the trained ranges to which a layer's cell rounds, by the node of its graph."""
        if not ranges:
            return {}
        shape, numerics = self.shapes[index], self.numerics
        graph = self.numerics.cells[shape.cell]
        keeps_c = self.plans[index].layer.state == "cell"
        # A wide c may be read in a range of its own, where its function is flat.
        read_whole = keeps_c and exponent(numerics.cell_argument) == exponent(shape.state or numerics.cell)
        kept = set() if graph.state is None else {graph.state, *graph.nodes[graph.state].args}
        found: dict[int, Any] = {}
        for position, node in enumerate(graph.nodes):
            if node.kind not in ("narrow", "floor"):
                continue
            if position == graph.result:
                name: str | int | None = index
            elif position == graph.state:
                name = index + shape.feedback
                if self.plans[index].layer.state != "hidden":
                    name = cell_name(max(at for at in self._states if at <= index))
            elif shape.kind == "norm":
                name = None
            elif keeps_c and kept & {*node.args}:
                name = cell_name(index) if read_whole else None
            else:
                name = "preactivation" if node.format == self.numerics.preactivation else None
            if name in ranges:
                found[position] = ranges[name]
        return found

    # Recurrent layers

    def _recurrence(
        self,
        block: range,
        arrays: Sequence[LayerArrays],
        before: Mapping[int, Any],
        partials: Any,
        h: list[Any],
        c: list[Any],
        run: _Run,
    ) -> dict[int, Any]:
        """Run a layer with an h, or one that recalls it, and all up to the one that gives this h.

        ``before`` are the sequences that earlier layers gave, ``partials`` the sums of what else the first
        one reads, None for nothing.
        """
        first, last = block[0], block[-1]
        mine = next(index for index in block if self.shapes[index].has_h)
        at, number = self._hidden[mine], self._states.get(mine)
        x = before[first - self.shapes[first].before]
        if number is not None and partials is None and self._is_plain(first):
            whole = self._whole(first, arrays[first], x, h[at], c[number], run)
            if whole is not None:
                run.seen[first], h[at], c[number] = whole
                return {first: run.seen[first]}
        found: dict[int, list[Any]] = {index: [] for index in block}
        # What the first one reads does not wait for h.
        for step, part in enumerate(self._sums(first, arrays[first], x, partials, run)):
            alive, sums = None if run.alive is None else run.alive[step], part
            for index in block:
                shape = self.shapes[index]
                if index > first:
                    source = index - shape.before
                    values = found[source][-1] if source in found else before[source][step]
                    joined = sums if joins_sums(self.shapes, index) else None
                    sums = self._sums(index, arrays[index], values, joined, run)
                if shape.recurrent:
                    sums = sums + self._product(index, True, arrays[index], h[at], run)
                if shape.kind in SKIPS:
                    continue
                state = None if number is None else c[number]
                results, kept = self._results(index, arrays[index], sums, state, run)
                found[index].append(results)
                if kept is not None and number is not None:
                    c[number] = _where(alive, kept, c[number])
            h[at] = _where(alive, found[last][-1], h[at])
        given = {index: torch.stack(values) for index, values in found.items() if values}
        run.seen[mine] = given[last]
        return given

    def _whole(
        self, index: int, arrays: LayerArrays, x: Any, h: Any, c: Any, run: _Run
    ) -> tuple[Any, Any, Any] | None:
        """Run PyTorch's LSTM as a whole; return outputs and final states, None if it must go step by step."""
        read = torch.relu(x) if self.shapes[index].input_relu else x
        # The gradients of ranges are those of the cell's graph.
        if run.rounding and not run.ranges:
            weights = (arrays["w_in"], arrays["w_rec"], arrays["bias"])
            layer = self._fused(index, arrays)
            return run_fused(layer, read.to(weights[0].dtype), h, c, *weights, run.alive)
        if not run.rounding and run.alive is None and run.squares is None:
            return _run_float(read, h, c, arrays)
        return None

    def _fused(self, index: int, arrays: LayerArrays) -> FusedLayer:
        """Return what the fused unit computes a layer with."""
        plan, shape = self.plans[index], self.shapes[index]
        graph = self.numerics.cells[shape.cell]
        i, f, g, o = (_table_of_gate(graph, gate) for gate in range(4))
        cell_tanh = next(node.index for node in graph.nodes if _reads(graph, node, "floor"))
        assert shape.state is not None
        assert i == f == o
        assert not plan.offsets.any()
        return FusedLayer(
            target=plan.target,
            single=self._fits_single(plan, arrays),
            sigmoid=self.tables[i],
            tanh=self.tables[g],
            cell_tanh=self.tables[cell_tanh],
            cell=shape.state,
            hidden=shape.output,
            rounding=self.numerics.hidden_rounding,
        )

    def _is_plain(self, index: int) -> bool:
        """Whether a layer is PyTorch's LSTM."""
        shape = self.shapes[index]
        return shape.kind == "lstm" and not shape.feedback and is_fused_cell(self.plans[index].layer.cell)

    def _fits_single(self, plan: RowPlan, arrays: LayerArrays) -> bool:
        """Whether float32 holds all sums of a layer exactly, as the golden model decides it."""
        largest = 2.0 ** (self.numerics.data_bits - 1)
        total = arrays["bias"].detach().abs().double() + self.numerics.preactivation.limit
        for rows, source, fractions in zip(
            (arrays["w_in"], arrays["w_rec"]), plan.sources, arrays["fractions"], strict=True
        ):
            sums = rows.detach().double().abs().sum(dim=1)
            if float((sums * torch.exp2(fractions.double())).max()) * largest > _FLOAT32_EXACT:
                return False
            total = total + sums * largest * 2.0**-source
        # Indices of two tables, one behind the other, have a bit more.
        return 2.0 * float(total.max()) * 2.0**plan.target <= _FLOAT32_EXACT


def _run_float(x: Any, h: Any, c: Any, arrays: LayerArrays) -> tuple[Any, Any, Any]:
    """Run PyTorch's LSTM, which is several times as fast as a cell's graph step by step."""
    bias = arrays["bias"]
    rows = [arrays["w_in"], arrays["w_rec"], bias, torch.zeros_like(bias)]
    training = torch.is_grad_enabled()
    y, h, c = torch.lstm(x, (h[None], c[None]), rows, True, 1, 0.0, training, False, False)
    return y, h[0], c[0]


def _reads(graph: CellGraph, node: Node, kind: str) -> bool:
    return node.kind == "table" and graph.nodes[node.args[0]].kind == kind


def _table_of_gate(graph: CellGraph, gate: int) -> int:
    """Return the index of the table that reads a gate."""
    return next(
        node.index
        for node in graph.nodes
        if _reads(graph, node, "gate") and graph.nodes[node.args[0]].index == gate
    )


def _where(alive: Any, new: Any, old: Any) -> Any:
    return new if alive is None else torch.where(alive, new, old)


def _flipped(alive: Any) -> Any:
    return None if alive is None else alive.flip(0)


def _reverse_valid(values: Any, alive: Any) -> Any:
    """Reverse the steps of each sequence that are ``alive``."""
    steps = torch.arange(len(values), device=values.device)[:, None]
    lengths = len(values) if alive is None else alive[:, :, 0].sum(dim=0)
    positions = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return torch.take_along_dim(values, positions.expand(values.shape[:2])[:, :, None], dim=0)


class States:
    """Converts the states of layers.

    A caller has h of each recurrent layer, and c of LSTM layers. Layers keep h as the array reads it, and c.
    A GRU keeps its h with more bits, too, which the caller sees. ``like`` is a parameter of the module:
    states have its type, unless that does not hold them, and its device.
    """

    def __init__(self, layers: TorchLayers, like: Any) -> None:
        self._layers, self._like = layers, like
        shapes = layers.shapes
        self._stateful: list[Any] = [shape for shape in shapes if shape.has_state]
        self._lstms = [number for number, shape in enumerate(self._stateful) if shape.kind == "lstm"]
        numbers = {id(shape): number for number, shape in enumerate(self._stateful)}
        recurrent = [(index, shape) for index, shape in enumerate(shapes) if shape.has_h]
        self._wide = [None if shape.kind == "lstm" else numbers.get(id(shape)) for _, shape in recurrent]
        """For each recurrent layer, the state that is its h with more bits, if any."""
        self._forms = [shapes[index + shape.feedback].output for index, shape in recurrent]
        """The format of each recurrent layer's h."""

    def begin(self, hx: Any, batch: int, single: bool) -> LayerStates:
        """Return the layers' states for those of the caller."""
        h, c = self._layers.zeros(batch, self._like)
        if hx is None:
            return h, c
        if self._lstms and (not isinstance(hx, tuple | list) or len(hx) != 2):
            raise InputError(f"hx must be a pair (h_0, c_0), not {type(hx).__name__}")
        given_h = self._split("h_0", hx[0] if self._lstms else hx, h, single)
        given_c = (
            self._split("c_0", hx[1], [c[number] for number in self._lstms], single) if self._lstms else []
        )
        for number, values in zip(self._lstms, given_c, strict=True):
            c[number] = values
        for number, (values, wide) in enumerate(zip(given_h, self._wide, strict=True)):
            h[number] = values
            if wide is not None:
                c[wide] = values
        return h, c

    def first(self, given: FloatState | None, batch: int) -> LayerStates:
        """Return the layers' states for those of calibration data; zeros if None."""
        hx: Any = given
        if given is not None:
            h, c = ([torch.from_numpy(values) for values in part] for part in given)
            hx = (h, c) if self._lstms else h
        return self.begin(hx, batch, single=False)

    def rounded(self, state: LayerStates) -> LayerStates:
        """Round states to the formats in which the layers keep them; what is a multiple already stays."""
        c = [
            round_to(values.double(), shape.state)
            for values, shape in zip(state[1], self._stateful, strict=True)
        ]
        h = [
            round_to(values.double() if wide is None else c[wide], form).to(self._like)
            for values, wide, form in zip(state[0], self._wide, self._forms, strict=True)
        ]
        return h, self._held(c)

    def _held(self, c: list[Any]) -> list[Any]:
        """Return kept states in the module's type, or in float64 if that type does not hold them."""

        def exact(form: Format) -> Any:
            return self._like.dtype if form.bits <= FLOAT32_BITS else torch.float64

        return [
            values.to(self._like.device, exact(shape.state))
            for values, shape in zip(c, self._stateful, strict=True)
        ]

    def end(self, state: LayerStates, single: bool) -> Any:
        """Return the final states as the caller sees them."""
        c = self._held(state[1])
        seen = [
            values.to(self._like) if wide is None else c[wide]
            for values, wide in zip(state[0], self._wide, strict=True)
        ]
        h = _joined(seen, single)
        return (h, _joined([c[number] for number in self._lstms], single)) if self._lstms else h

    @staticmethod
    def _split(name: str, part: Any, like: list[Any], single: bool) -> list[Any]:
        given = list(part) if isinstance(part, tuple | list) else [part]
        for values in given:
            if not isinstance(values, torch.Tensor) or not values.is_floating_point():
                kind = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
                raise InputError(f"{name} must be a tensor of floats, not {kind}")
            if not bool(torch.isfinite(values.detach()).all()):
                raise InputError(f"{name} must be finite numbers, but some are NaN or infinite")
        parts = list(part) if isinstance(part, tuple | list) or part.ndim > 1 + (not single) else [part]
        parts = [values[None] for values in parts] if single else parts
        found = [tuple(values.shape) for values in parts]
        wanted = [tuple(values.shape) for values in like]
        if found != wanted:
            raise InputError(f"{name} must have the shapes {wanted} layer by layer, not {found}")
        return [values.to(like[0].device) for values in parts]


def _joined(parts: list[Any], single: bool) -> Any:
    """One tensor ``(layers, N, H)``; a tuple of ``(N, H_l)`` where the layers differ in size."""
    mine = [values[0] for values in parts] if single else parts
    return torch.stack(mine) if len({values.shape for values in mine}) == 1 else tuple(mine)
