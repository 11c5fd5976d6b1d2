"""Builds in space: weights are constants of the fabric, and a step of the recurrence takes few registers.

All layers compute at once, each with logic of its own. :class:`SpatialPlan` is what such a build has beside
shapes, formats and parameters: its weights, and how many registers are in the loop from h to the next h.

A register stands behind every layer, and behind the products of a recurrent layer with its input. If all
cells are those of the fused gate unit, the others stand behind the same kinds of values in every layer. Else
:mod:`rtlstm.spec.program.retiming` finds where they stand.

A step is accepted when its last input beat has come, the step before is ``interval`` cycles old, and the
last step of the same stream is ``loop`` cycles old. From then on nothing waits: outputs go to a queue that
has room for all steps on their way. With several streams, memories hold the states, and a step reads its
stream's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rtlstm.spec.adders import AdderGraph, share_adders
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.numerics import (
    SKIPS,
    LayerShape,
    Numerics,
    QuantizedDense,
    QuantizedLayer,
    QuantizedNetwork,
    QuantizedRecurrent,
    RowPart,
)
from rtlstm.spec.parameters import Parameters, ceil_log2
from rtlstm.spec.program.retiming import NO_STAGES, LayerStages, LayerTimes, adders_time, choose_stages
from rtlstm.spec.program.schedule import Cycles, LayerCycles, Schedule
from rtlstm.spec.program.step import Program
from rtlstm.spec.record import Extended, Record

ValueKind = Literal[
    "halves", "products", "sums", "gates", "multiplied", "total", "argument", "bent", "output"
]
"""Values in a layer that may have a register behind them, in their order: sums half-way through the adders of
a matrix; its products; rounded pre-activations; what sigmoid and tanh make of them; products with gates; that
exact sum; the argument of c's tanh; that tanh; its product with the output gate."""

_REGISTERED: dict[int, frozenset[ValueKind]] = {
    1: frozenset(),
    2: frozenset({"multiplied"}),
    3: frozenset({"sums", "total"}),
    4: frozenset({"products", "gates", "bent"}),
    5: frozenset({"products", "gates", "multiplied", "bent"}),
    6: frozenset({"products", "gates", "multiplied", "argument", "bent"}),
    7: frozenset({"products", "gates", "multiplied", "argument", "bent", "output"}),
    8: frozenset({"products", "sums", "gates", "multiplied", "argument", "bent", "output"}),
    9: frozenset({"halves", "products", "sums", "gates", "multiplied", "total", "bent", "output"}),
}
"""Values with a register, by the registers in the loop, of which h is one."""
BEHIND_SUMS = tuple(registers for registers, kinds in _REGISTERED.items() if "sums" in kinds)
"""The loops with a register behind pre-activations: that of a block RAM can replace it."""
MOST_LOOP_REGISTERS = max(_REGISTERED)
_OF_PRODUCTS: tuple[ValueKind, ...] = ("halves", "products")
_OF_ROWS: tuple[ValueKind, ...] = (*_OF_PRODUCTS, "sums", "gates")
"""What a dense layer has of them, too."""

LoopRegisters = Annotated[int, Field(ge=1, le=MOST_LOOP_REGISTERS)]
Integers = tuple[int, ...]
Matrix = tuple[Integers, ...]


def _integers(values: Integers | Matrix) -> IntArray:
    return np.array(values, dtype=np.int64)


class ConstantLayer(Extended):
    """Integers of a layer, as :data:`~rtlstm.spec.numerics.QuantizedLayer` has them; with h if it has any."""

    _later = frozenset({"parameters"})

    weight: Matrix
    bias: Integers
    shift: Integers
    recurrent_weight: Matrix = ()
    recurrent_shift: Integers = ()
    parameters: Matrix = ()
    """Constants of units, if the cell has some."""

    @classmethod
    def of(cls, layer: QuantizedLayer) -> Self:
        """Return the integers of a layer."""
        parameters = () if layer.parameters is None else layer.parameters.tolist()
        if isinstance(layer, QuantizedDense):
            weight, shift = layer.weight.tolist(), layer.shift.tolist()
            return cls(weight=weight, bias=layer.bias.tolist(), shift=shift, parameters=parameters)
        return cls(
            weight=layer.w_ih.tolist(),
            bias=layer.bias.tolist(),
            shift=layer.shift_ih.tolist(),
            recurrent_weight=layer.w_hh.tolist(),
            recurrent_shift=layer.shift_hh.tolist(),
            parameters=parameters,
        )

    @property
    def matrices(self) -> tuple[IntArray, ...]:
        """The weights for the input and, if the layer is recurrent, those for h."""
        return tuple(map(_integers, filter(None, (self.weight, self.recurrent_weight))))

    def quantised(self) -> QuantizedLayer:
        """Return the layer; the inverse of :meth:`of`."""
        bias, shift = _integers(self.bias), _integers(self.shift)
        weight, *recurrent = self.matrices
        parameters = _integers(self.parameters) if self.parameters else None
        if not recurrent:
            return QuantizedDense(weight, bias, shift, parameters=parameters)
        shift_hh = _integers(self.recurrent_shift)
        return QuantizedRecurrent(weight, recurrent[0], bias, shift, shift_hh, parameters)


@dataclass(frozen=True)
class RowSums:
    """How a matrix's products become rows; stages count from the vector that it multiplies."""

    halves: bool
    """Whether a register stands half-way through the adders."""
    stage: int
    """When addends are added to the products, if those are there by then; else as soon as they are."""
    joined: bool
    """Whether an addend is one of the terms of its row's adders. Else an adder behind them adds it."""
    groups: int
    """Groups of rows that share adders."""


class SpatialPlan(Record):
    """What a spatial build has beside shapes, formats and parameters."""

    loop_registers: LoopRegisters
    """Registers from h to the next h, and so cycles of a step of the recurrence."""
    layers: tuple[ConstantLayer, ...]

    @classmethod
    def of(cls, network: QuantizedNetwork, loop_registers: int) -> Self:
        """Return the plan of a network. Raises ConfigurationError if no spatial build computes it."""
        if network.passes:
            raise ConfigurationError(
                "`array='spatial'` takes steps in order, and no layers in reverse; leave it out, and give "
                "`max_steps`"
            )
        check_spatial(network.shapes, network.numerics)
        layers = tuple(map(ConstantLayer.of, network.layers))
        return cls(loop_registers=loop_registers, layers=layers)

    def network(self, shapes: tuple[LayerShape, ...], numerics: Numerics) -> QuantizedNetwork:
        """Return the network whose weights these are."""
        return QuantizedNetwork(shapes, numerics, tuple(layer.quantised() for layer in self.layers))

    @property
    def graphs(self) -> tuple[AdderGraph, ...]:
        """The adders of each matrix, without addends."""
        return tuple(
            share_adders(matrix, groups=self.groups(index, number))
            for index, layer in enumerate(self.layers)
            for number, matrix in zip((0, -1), layer.matrices, strict=False)
        )

    def groups(self, index: int, number: int) -> int:
        """Return the groups of rows of a layer's matrix that share adders; ``number`` is -1 of that for h.

        Where all of a step is between two registers, these are the units for h: wires from an adder that many
        units share are as long as those from h to it.
        """
        rows, units = self.layers[index].matrices[-1].shape
        return units if number < 0 and self.loop_registers == 1 and rows == 4 * units else 1

    @property
    def registered(self) -> frozenset[ValueKind]:
        """The values with a register behind them, in every layer of fused gate units."""
        return _REGISTERED[self.loop_registers]

    def stages(self, shapes: Sequence[LayerShape], numerics: Numerics) -> tuple[LayerStages, ...]:
        """Return where registers stand in the layers."""
        found = iter(
            choose_stages(self._times(shapes, numerics), self.loop_registers)[1]
            if numerics.fused_lstm is None
            else [self._fused_stages(shape) for shape in shapes if shape.kind not in SKIPS]
        )
        return tuple(NO_STAGES if shape.kind in SKIPS else next(found) for shape in shapes)

    def period(self, shapes: Sequence[LayerShape], numerics: Numerics) -> float:
        """Return the longest time between two registers, in about ns: estimates of clocks follow it."""
        return choose_stages(self._times(shapes, numerics), self.loop_registers)[0]

    def _times(self, shapes: Sequence[LayerShape], numerics: Numerics) -> list[LayerTimes]:
        times, products = list[LayerTimes](), list[float]()
        for index, (layer, shape) in enumerate(zip(self.layers, shapes, strict=True)):
            products += [adders_time(matrix.shape[1], numerics.weight_bits) for matrix in layer.matrices]
            if shape.kind in SKIPS:
                continue
            found = LayerTimes(tuple(products), numerics.cells[shape.cell], shape.recurrent)
            if gives_h(shapes, index):
                times[-1] = replace(times[-1], tail=found)
            else:
                times.append(found)
            products = []
        return times

    def _fused_stages(self, layer: LayerShape) -> LayerStages:
        before = 1 + self._count(_OF_PRODUCTS) if layer.recurrent else 0
        rows = 1 + self._count(_OF_ROWS[:-1] if layer.linear else _OF_ROWS)
        return LayerStages(
            input=before,
            halves=("halves" in self.registered,) * (1 + layer.recurrent),
            sums=0,
            gates=0,
            nodes=(),
            registers=before + self.loop_registers if layer.recurrent else rows,
        )

    def _count(self, kinds: Sequence[ValueKind]) -> int:
        return sum(kind in self.registered for kind in kinds)


def input_sum_bits(layers: Sequence[ConstantLayer], numerics: Numerics) -> tuple[int, ...]:
    """Return how many bits each row's sum of its bias and its products with the input needs.

    ``layers`` are the skips that a layer adds, and that layer: each has a matrix and a share of the biases.
    """
    most = np.abs(np.sum([layer.bias for layer in layers], axis=0))
    for layer in layers:
        part = RowPart("products", layer.matrices[0], np.array(layer.shift), None)
        most = most + part.largest(numerics.input, numerics.accumulator.align)
    return tuple(int(row).bit_length() + 1 for row in most)


def gives_h(shapes: Sequence[LayerShape], index: int) -> bool:
    """Whether a layer gives the h of the one before it: a projection, or a GRU that resets before."""
    return index > 0 and shapes[index - 1].feedback == 1


def check_spatial(shapes: Sequence[LayerShape], numerics: Numerics) -> None:
    """Raise a ConfigurationError unless there is a spatial build of such a network, with a way out."""
    for shape in shapes:
        if shape.kind in ("product", "norm", "recall") or shape.feedback > 1:
            raise ConfigurationError(
                f"`array='spatial'` has no norms and no products of results, but layer {shape.name!r} is of "
                f"kind {shape.kind}; leave it out"
            )
    if numerics.scale_bits:
        raise ConfigurationError("`array='spatial'` has no scales of rows; leave out `scale_bits`")
    if not all(table.direct for table in numerics.tables):
        raise ConfigurationError(
            "`array='spatial'` has tables with one entry for each argument: give `tables='direct'`"
        )


def spatial_program(shapes: Sequence[LayerShape], parameters: Parameters) -> Program:
    """Return the addresses of h and c in the memory window; there are no operations."""
    hidden, cells, word, row = list[tuple[int, int]](), list[tuple[int, int]](), 0, 0
    for index, shape in enumerate(shapes):
        if shape.has_h:
            values = shapes[index + shape.feedback].outputs
            hidden.append((word, values))
            word += parameters.words(values)
        if shape.has_state:
            cells.append((row, shape.outputs))
            row += shape.outputs
    if parameters.streams > 1 and word:
        # So that the upper bits of a row are its stream.
        word, row = 1 << ceil_log2(word), 1 << ceil_log2(row or 1)
    return Program(
        ops=(),
        body=0,
        prefetch=None,
        recurrent_end=0,
        copy_words=0,
        inputs=shapes[0].inputs,
        outputs=shapes[-1].outputs,
        input_words=parameters.words(shapes[0].inputs),
        weight_rows=0,
        bias_rows=0,
        partials_context=0,
        shift_rows=0,
        vector_context=word,
        cell_context=row,
        hidden=tuple(hidden),
        cells=tuple(cells),
    )


@dataclass(frozen=True)
class SpatialSchedule(Schedule):
    """The schedule of a spatial build."""

    plan: SpatialPlan
    shapes: tuple[LayerShape, ...]
    parameters: Parameters
    numerics: Numerics

    @cached_property
    def stages(self) -> tuple[LayerStages, ...]:
        """Where registers stand in each layer."""
        return self.plan.stages(self.shapes, self.numerics)

    def row_sums(self, index: int, number: int) -> RowSums:
        """Return how a layer's products with a matrix become rows: hardware and estimates follow it.

        ``number`` counts the matrices for the layer's input, those of its skips first; -1 is that for h.
        """
        stages, of_input = self.stages[index], number >= 0
        halves = stages.halves[min(number, len(stages.halves) - 1)]
        stage = stages.sums
        if of_input and self.shapes[index].recurrent:
            # The sums have a register, and meet h behind it.
            stage = stages.input - 1
        elif gives_h(self.shapes, index):
            stage -= stages.input
        # A register half-way lets addends come a stage later. But those of a second matrix are sums that come
        # then, too late for the first half of its adders.
        latest = halves and number < 1
        joined = "products" not in self.plan.registered and stage <= latest
        return RowSums(halves, stage, joined, self.plan.groups(index, number))

    @property
    def input_beats(self) -> int:
        """Beats of a step's input."""
        return -(-self.shapes[0].inputs // self.parameters.beat_in)

    @property
    def output_beats(self) -> int:
        """Beats of a step's output."""
        return -(-self.shapes[-1].outputs // self.parameters.beat_out)

    @property
    def loop(self) -> int:
        """Cycles from a step's acceptance to the next one's of the same stream, if nothing else waits."""
        return self.plan.loop_registers if any(shape.has_h for shape in self.shapes) else 1

    @property
    def interval(self) -> int:
        """Cycles from a step's acceptance to the next one's, of another stream where there is one."""
        return max(self.output_beats, self.loop if self.parameters.streams == 1 else 1)

    @cached_property
    def times(self) -> tuple[tuple[int, int], ...]:
        """Cycles from a step's acceptance to the input of each layer, and to its results."""
        found, begins = list[tuple[int, int]](), 0
        for index, (shape, stages) in enumerate(zip(self.shapes, self.stages, strict=True)):
            begins = max(begins, found[index - shape.before][1] if index else 0)
            # A skip passes on what it reads, to the next skip from there.
            ends = found[index - shape.before][1] if index else 0
            if shape.kind not in SKIPS:
                ends, begins = begins + stages.registers, 0
            found.append((ends - stages.registers, ends))
        return tuple(found)

    @property
    def results(self) -> int:
        """Cycles from a step's acceptance to its outputs, side by side."""
        return self.times[-1][1]

    @property
    def longest(self) -> int:
        """Cycles from a step's acceptance to the last result of any layer."""
        return max(ends for _, ends in self.times)

    @property
    def latency_of_step(self) -> int:
        """Cycles from a step's last input beat to its last output beat.

        The step is accepted a cycle after the one, and its outputs are offered a cycle after their results.
        """
        return 1 + self.results + self.output_beats

    @property
    def depth(self) -> int:
        """Steps that the output queue holds, so that it delays none while outputs are taken."""
        return -(-self.latency_of_step // self.interval) + 2

    @property
    def prepares(self) -> bool:
        """Nothing is computed before a step's input comes."""
        return False

    @cached_property
    def output_index(self) -> IntArray:
        """Index of each output among the values of a step's beats."""
        return np.arange(self.shapes[-1].outputs)

    def count(self, shapes: tuple[LayerShape, ...]) -> Cycles:
        """Count the cycles that the manifest states; nothing of them is an array's."""
        latency = self.latency_of_step
        return Cycles(
            step_latency_cycles=latency,
            array_cycles=0,
            overhead_cycles=latency,
            recurrent_cycles=0,
            first_step_latency_cycles=latency,
            step_interval_cycles=max(self.loop, self.interval, self.input_beats),
            layers=tuple(
                LayerCycles(
                    name=shape.name,
                    array_cycles=0,
                    overhead_cycles=stages.registers,
                    recurrent_cycles=0,
                )
                for shape, stages in zip(shapes, self.stages, strict=True)
            ),
        )

    def accept(self, last_beat: int, stream: int, before: dict[int, int]) -> int:
        """Return the cycle that accepts a stream's step with this last beat.

        ``before`` has the cycle that accepted each stream's last step, and then has this one.
        """
        others = max(before.values()) + self.interval if before else 0
        mine = before[stream] + self.loop if stream in before else 0
        before[stream] = max(last_beat + 1, mine, others)
        return before[stream]

    def steps(self, streams: Sequence[int]) -> list[tuple[int, int]]:
        """Return the cycles of the last input beat and of the last output beat of steps back to back."""
        found, last, before = [], self.input_beats - 1, dict[int, int]()
        for stream in streams:
            accepted = self.accept(last, stream, before)
            found.append((last, accepted - 1 + self.latency_of_step))
            # The next step's first beat comes in the cycle that accepts this step.
            last = accepted + self.input_beats - 1
        return found

    def offered(self, streams: IntArray, ends: NDArray[np.bool_]) -> list[int]:
        """Return the cycle that offers each step's last output beat; cycle 0 accepts the first input beat."""
        return [offered for _, offered in self.steps(streams.tolist())]

    def latency(
        self,
        streams: IntArray,
        ends: NDArray[np.bool_],
        ready: NDArray[np.bool_],
        suppress: NDArray[np.bool_],
    ) -> int:
        """Return the latency of the last step with an output, its wait for earlier ones included."""
        last = int(np.flatnonzero(~suppress)[-1])
        came, offered = self.steps(streams[: last + 1].tolist())[last]
        return offered - came

    def duration(self, length: int) -> int:
        """Return the cycles of a sequence among others."""
        loop = -(-self.loop // self.parameters.streams)
        return length * max(loop, self.interval, self.input_beats)
