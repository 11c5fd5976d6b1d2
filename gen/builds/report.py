"""The report of a build: sizes, formats, cycles, accuracy and what was assumed."""

import json
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import ValidationError

from rtlstm.fpga.estimate import Estimate, estimate_devices
from rtlstm.fpga.fit import Fit
from rtlstm.fpga.implementation import Implementation
from rtlstm.gen.accuracy.records import ErrorReport
from rtlstm.gen.builds.advice import (
    Headroom,
    WeightChange,
    change_notes,
    explain_trials,
    list_assumptions,
    measure_changes,
    measure_headroom,
)
from rtlstm.gen.builds.hardware import Asked, Design
from rtlstm.gen.frontends.reading import NodeReport, ReadResult
from rtlstm.gen.pictures.charts import DeviceUse, expected_use
from rtlstm.gen.pictures.network import Block, describe_blocks
from rtlstm.gen.quantise.accuracy import Accuracy, measure_accuracy
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.plan import Trial
from rtlstm.spec.activations.interpolated import ActivationTable, correctly_rounded
from rtlstm.spec.errors import BuildError, ConfigurationError
from rtlstm.spec.files import read_file
from rtlstm.spec.fixed import Format
from rtlstm.spec.inventory import memories, multipliers, wrapper_memories
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import continues_sums
from rtlstm.spec.parameters import MultiplierKind
from rtlstm.spec.record import Record, filled

CLOCKS_MHZ = (50, 100, 200)
"""Clocks at which latencies are stated. None of them was placed and routed."""


class FormatReport(Record):
    """A fixed-point format and the numbers it holds, ``+-limit`` in steps of ``step``."""

    use: str
    bits: int
    fraction: int
    limit: float
    step: float


class LayerReport(Record):
    """A layer: its size, and its cycles on the way from input to output."""

    name: str
    kind: str
    inputs: int
    outputs: int
    activation: str
    input_relu: bool
    parameters: int
    """Weights and biases as the core stores them (one bias per row), those of unused rows included."""
    output_format: str
    array_cycles: int
    overhead_cycles: int
    recurrent_cycles: int


class MemoryReport(Record):
    """A memory: ``banks`` of ``rows`` words of ``width`` bits."""

    name: str
    banks: int
    rows: int
    width: int
    bits: int


class MultiplierReport(Record):
    """Multipliers of one use: how many, the bits of their signed factors, and what they are to be made of."""

    name: str
    count: int
    a_bits: int
    b_bits: int
    kind: MultiplierKind


class TableReport(Record):
    """An activation table and its largest error, over every input, against exact rounding."""

    name: str
    input_format: str
    output_format: str
    rows: int
    bits: int
    max_error_ulp: int


class TimeReport(Record):
    """Times at an assumed clock, not placed and routed."""

    assumed_clock_mhz: int
    step_latency_us: float
    step_interval_us: float
    steps_per_second: float


class CycleReport(Record):
    """Cycle counts of one step; exact, see the schedule."""

    step_latency_cycles: int
    first_step_latency_cycles: int
    step_interval_cycles: int
    array_cycles: int
    overhead_cycles: int
    recurrent_cycles: int
    array_use: float


class SpatialReport(Record):
    """The constant products of a spatial build."""

    loop_registers: int
    adders: int
    """Adders of all products, which rows share."""
    depth: int
    """Adders behind each other in a product, at most."""
    shared_interval_cycles: int
    """Cycles from a step to the next one while all streams have some."""

    @classmethod
    def of(cls, manifest: Manifest) -> Self | None:
        """Describe a build's products; None if it has an array."""
        plan = manifest.spatial
        if plan is None:
            return None
        return cls(
            loop_registers=plan.loop_registers,
            adders=sum(len(graph.adders) for graph in plan.graphs),
            depth=max(graph.depth for graph in plan.graphs),
            shared_interval_cycles=manifest.schedule.duration(1),
        )

    @property
    def how_often(self) -> str:
        """How often a step begins while all streams have some."""
        every = self.shared_interval_cycles
        return "every cycle" if every == 1 else f"every {every} cycles"

    @property
    def text(self) -> str:
        """What stands where other builds have their array."""
        fewer = self.shared_interval_cycles < self.loop_registers
        shared = f", a step of any stream {self.how_often}" if fewer else ""
        registers = f"{self.loop_registers} register{'s' * (self.loop_registers > 1)}"
        return (
            f"none: in space, {registers} in the loop of h, {self.adders:,} adders with "
            f"at most {self.depth} behind each other{shared}"
        )


class BuildReport(Record):
    """What ``report.json`` holds."""

    schema_version: Literal[1] = 1
    name: str
    rtlstm_version: str
    build_hash: str
    device_hash: str
    source: str
    """The model file's name; empty if the network did not come from a file."""
    source_format: str
    batch_first: bool | None = None
    """Whether the model takes sequences before steps; None if it does not tell."""
    inputs: int
    outputs: int
    parameters: int
    """Weights and biases of the model; of some cells the layers store more."""
    family: str
    lanes: int
    macs: int
    multiplies_per_cycle: int
    beat_in: int
    beat_out: int
    streams: int
    max_steps: int | None
    accumulator_bits: int
    partial_bits: int
    headroom: Headroom
    """Headroom of the hardware beyond these weights, for those of a retrained model."""
    layers: tuple[LayerReport, ...]
    input_factors: tuple[float, ...] = ()
    """Factor of each input feature; none if all are 1."""
    input_zeros: tuple[int, ...] = ()
    """Code of zero of each input feature; none if all are 0."""
    formats: tuple[FormatReport, ...]
    memories: tuple[MemoryReport, ...]
    memory_bits: int
    tables: tuple[TableReport, ...]
    cycles: CycleReport
    times: tuple[TimeReport, ...]
    accuracy: Accuracy
    trained: bool = False
    """Whether the weights were trained in this arithmetic: ``accuracy`` then is against these weights in
    float, not against the model's."""
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    """What the front end remarks about the model, and what is lost in its formats."""
    blocks: tuple[Block, ...] = ()
    """The layers of the network as it was read; ``layers`` are those of the hardware."""
    host: tuple[NodeReport, ...] = ()
    """Parts of the model that stay on the host."""
    multipliers: tuple[MultiplierReport, ...] = ()
    spatial: SpatialReport | None = None
    """The products of a spatial build, whose lanes and multipliers in them mean nothing."""
    gate_units: int = 1
    lut_macs: int = 0
    lut_lanes: int = 0
    weight_memory: str = "block"
    table_memory: str = "ram"
    estimates: tuple[Estimate, ...] = ()
    """What it is expected to take and to reach on the family's devices, each in its slowest grade."""
    expected: DeviceUse | None = None
    """What it is expected to take of the device that it was chosen for, or of the smallest that it fits."""
    fit: Fit | None = None
    """How its size was chosen, if it was for a device."""
    asked: Asked | None = None
    """What the build was asked to be; None if it was trained, or has existing hardware."""
    trials: tuple[Trial, ...] = ()
    """Formats and roundings that were tried on calibration data, and what each gave."""
    errors: ErrorReport | None = None
    """What ``rtlstm accuracy`` found."""
    weight_changes: tuple[WeightChange, ...] = ()
    """How far the weights are from the integers that the model holds, if it does."""
    implementations: tuple[Implementation, ...] = ()
    """What ``rtlstm implement`` found, one per device, package, speed grade and number of cores."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read ``report.json`` of a build folder.

        Raises BuildError if it is missing, damaged or of another version.
        """
        path = Path(folder) / "report.json"
        try:
            return cls.model_validate_json(read_file(path))
        except OSError as error:
            raise BuildError(f"{path} cannot be read ({error.strerror}); generate the build again") from None
        except (ValidationError, ConfigurationError):
            raise BuildError(
                f"{path} is damaged or comes from another version of rtlstm; generate the build again"
            ) from None

    @property
    def verdict(self) -> str:
        """One sentence: the error in percent of the outputs' spread, decisions changed, a step's time."""
        found, parts = self.accuracy, []
        against = "the trained weights in float" if self.trained else "float"
        on = "calibration data" if found.data == "calibration" else "random inputs"
        if found.spread:
            share = 100 * found.rms_error / found.spread
            parts.append(
                f"the error against {against} is {share:.2g} % of the {found.outputs}' spread, on {on}"
            )
        else:
            parts.append(
                f"the error of the {found.outputs} against {against} is {found.rms_error:.3g} rms, on {on}"
            )
        if found.decisions:
            parts.append(f"{found.decisions_changed:,} of {found.decisions:,} decisions change")
        device = None if self.expected is None else self.expected.device
        chosen = next((each for each in self.estimates if each.device == device), None)
        chosen = chosen if self.fit is None else self.fit.estimate
        what = "a step" if self.max_steps is None else f"a sequence of {self.max_steps} steps"
        took = f"{what} takes {self.cycles.step_latency_cycles:,} cycles"
        if chosen is None or chosen.step_latency_us is None:
            time = self.times[len(self.times) // 2]
            clock = f"{time.assumed_clock_mhz} MHz"
            parts.append(f"{took}, {time.step_latency_us:.4g} us at an assumed {clock}")
        else:
            where = chosen.board or chosen.device
            misfit = "" if chosen.fits else ", in which it does not fit"
            estimated = "" if chosen.clock_assumed else "an estimated "
            assumed = f" at an assumed {chosen.fmax_mhz:g} MHz" if chosen.clock_assumed else ""
            parts.append(f"{took}, {estimated}{chosen.step_latency_us:.4g} us on {where}{assumed}{misfit}")
        if self.spatial is not None:
            mhz = None if chosen is None else chosen.clock_mhz
            taken = "" if mhz is None else f", {1000 * self.spatial.shared_interval_cycles / mhz:.3g} ns"
            parts.append(f"the next step can follow {self.spatial.how_often}{taken}")
        elif self.max_steps is None and self.cycles.step_interval_cycles > self.cycles.step_latency_cycles:
            parts.append(f"the next step can follow after {self.cycles.step_interval_cycles:,} cycles")
        text = "; ".join(parts)
        return text[0].upper() + text[1:] + "."

    @property
    def array(self) -> str:
        """What multiplies."""
        return f"{self.lanes} lanes x {self.macs} multipliers" if self.spatial is None else self.spatial.text

    def __str__(self) -> str:
        sizes = f"{self.inputs} inputs, {self.outputs} outputs, {self.parameters:,} weights and biases"
        source = f" from {self.source}" if self.source else ""
        array = f"{self.array}, {self.family}, {self.streams} streams"
        cycles = self.cycles
        lines = [
            f"Build {self.name}{source}",
            f"  network  {sizes}",
            *(
                f"           {each.name}: {each.kind}, {each.inputs} -> {each.outputs}, {each.activation}"
                for each in self.layers
            ),
            f"  array    {array}",
            f"  memory   {self.memory_bits / 1024:.1f} Kibit",
            f"  step     {cycles.step_latency_cycles:,} cycles, one every {cycles.step_interval_cycles:,}",
            f"  error    {self.accuracy.max_abs_error:.3g} at most, {self.accuracy.rms_error:.3g} rms, of "
            f"{self.accuracy.outputs} up to {self.accuracy.max_abs_output:.3g}; {self.accuracy.description}",
            *(f"  note     {text}" for text in (*self.assumptions, *self.notes)),
            f"  {self.verdict}",
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<BuildReport {self.name}: {self.verdict}>"

    def with_implementation(self, found: Implementation) -> Self:
        """Return a copy that has this implementation, instead of an earlier one of the same label."""
        others = (item for item in self.implementations if item.label != found.label)
        return self.replace(implementations=(*others, found))

    def to_json(self) -> str:
        """Return the text of ``report.json``."""
        return json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"


def layer_reports(manifest: Manifest) -> tuple[LayerReport, ...]:
    """Describe the layers."""
    return tuple(
        filled(
            LayerReport,
            cycles,
            shape,
            parameters=shape.rows
            * (
                shape.inputs
                + (not continues_sums(manifest.layers, index))
                + (shape.outputs if shape.recurrent else 0)
            ),
            output_format=str(shape.output),
        )
        for index, (shape, cycles) in enumerate(zip(manifest.layers, manifest.cycles.layers, strict=True))
    )


def format_reports(manifest: Manifest) -> tuple[FormatReport, ...]:
    """Describe the formats; a weight's scale is its row's own."""
    numerics = manifest.numerics
    uses: list[tuple[str, Format]] = [
        *_input_formats(manifest),
        *_hidden_formats(manifest),
        *_cell_formats(manifest),
        ("pre-activation", numerics.preactivation),
        ("gate", numerics.gate),
        ("cell state at its tanh", numerics.cell_argument),
        ("output y", manifest.output),
    ]
    if manifest.parameters.capacity is None and all(layer.kind != "lstm" for layer in manifest.layers):
        uses = [(use, form) for use, form in uses if not use.startswith("cell state")]
    return tuple(filled(FormatReport, form, use=use) for use, form in uses)


def _input_formats(manifest: Manifest) -> list[tuple[str, Format]]:
    """The input's format, which features have of whatever factors and codes of zero."""
    numerics, tokens = manifest.numerics, manifest.parameters.token_rows
    text = f"row of the table, for a step's token x, 0 to {tokens - 1}" if tokens else "input x"
    if factors := numerics.input_factors:
        least, most = (f"{factor:g}" for factor in (min(factors), max(factors)))
        text += f" times {least if least == most else f'{least} to {most}, feature by feature'}"
    if zeros := numerics.input_zeros:
        text += f"; codes of zero {min(zeros)} to {max(zeros)}"
    return [(text, numerics.input)]


def _hidden_formats(manifest: Manifest) -> list[tuple[str, Format]]:
    """The format of h, or one for the layers that share it."""
    numerics, layers = manifest.numerics, manifest.layers
    codes = "" if numerics.hidden_rounding == "half_up" else ", odd codes"
    names: dict[Format, list[str]] = {}
    for index, layer in enumerate(layers):
        if layer.has_h:
            names.setdefault(layers[index + layer.feedback].output, []).append(layer.name)
    if len(names) < 2:
        return [(f"hidden state h{codes}", next(iter(names), numerics.hidden))]
    return [(f"hidden state h of {', '.join(some)}{codes}", form) for form, some in names.items()]


def _cell_formats(manifest: Manifest) -> list[tuple[str, Format]]:
    """The format of c, or one for the layers that share it."""
    names: dict[Format, list[str]] = {}
    for layer in manifest.layers:
        if layer.kind == "lstm" and layer.state is not None:
            names.setdefault(layer.state, []).append(layer.name)
    if len(names) < 2:
        return [("cell state c", next(iter(names), manifest.numerics.cell))]
    return [(f"cell state c of {', '.join(some)}", form) for form, some in names.items()]


def memory_reports(manifest: Manifest) -> tuple[MemoryReport, ...]:
    """Describe the memories of the core and of its wrapper."""
    return tuple(
        filled(MemoryReport, memory, banks=memory.count, rows=memory.depth)
        for memory in (memories(manifest) | wrapper_memories(manifest)).values()
    )


def multiplier_reports(manifest: Manifest) -> tuple[MultiplierReport, ...]:
    """Describe the core's multipliers."""
    return tuple(filled(MultiplierReport, some) for some in multipliers(manifest).values() if some.count)


def table_error(table: ActivationTable) -> int:
    """Return a table's largest error over every input, in units of its output's last place."""
    negative = np.arange(-table.input.maximum, 0) if table.halves == 2 else np.arange(0)
    # tanh computes magnitudes; its sign costs nothing.
    integers = np.concatenate([negative, np.arange(table.input.maximum + 1)])
    x = table.input.to_floats(integers) + (table.input.step / 2 if table.middle else 0.0)
    exact = correctly_rounded(table.function, x, table.output)
    return int(np.abs(table.compute(integers) - exact).max())


def _table_reports(manifest: Manifest) -> tuple[TableReport, ...]:
    return tuple(
        TableReport(
            name=f"{name} table",
            input_format=str(table.input),
            output_format=str(table.output),
            rows=table.rows,
            bits=table.rows * table.word_bits,
            max_error_ulp=table_error(table),
        )
        for name, table, _ in manifest.numerics.unit.table_uses
    )


def time_reports(manifest: Manifest) -> tuple[TimeReport, ...]:
    """Return step latency and rate at the stated clocks; in space the rate is that of all streams."""
    cycles = manifest.cycles
    shared = cycles.step_interval_cycles if manifest.spatial is None else manifest.schedule.duration(1)
    return tuple(
        TimeReport(
            assumed_clock_mhz=clock,
            step_latency_us=round(cycles.step_latency_cycles / clock, 4),
            step_interval_us=round(cycles.step_interval_cycles / clock, 4),
            steps_per_second=round(clock * 1e6 / shared, 1),
        )
        for clock in CLOCKS_MHZ
    )


def cycle_report(manifest: Manifest) -> CycleReport:
    """Return the cycles of a step."""
    return filled(CycleReport, manifest.cycles, array_use=round(manifest.cycles.use, 4))


_DECIDED = "the device gives the {} of {} outputs{}; the host computes no {}"


def create_report(
    read: ReadResult,
    design: Design,
    calibration: Calibration | None = None,
    loaded: bool = False,
    trained: bool = False,
) -> BuildReport:
    """Make a build's report, of hardware that was there if ``loaded``.

    Runs golden model and float reference for the accuracy.
    """
    network, source, quantised, manifest = read.network, read.report, design.quantised, design.manifest
    parameters, numerics, notes = manifest.parameters, manifest.numerics, design.notes
    held = memory_reports(manifest)
    if manifest.decides:
        classes, best, of_host = manifest.classes, parameters.best, "softmax, log-softmax or argmax"
        said = "number of the largest", classes, ", the first of equal ones", of_host
        if parameters.decide == "softmax":
            said = "probabilities", classes, "", "softmax"
        elif best:
            before = f"{of_host}, and scores are those before them"
            said = f"numbers and scores of the {best} largest", classes, said[2], before
        notes = (*notes, _DECIDED.format(*said))
        source = source.decided(parameters.decide or "")
    if parameters.token_rows:
        source = source.looked_up_in_core()
    decides = manifest.decides or source.decides
    accuracy = measure_accuracy(network, quantised, calibration, read.initial_state, decides, manifest)
    fitted = None if design.fit is None else design.fit.estimate
    estimates = estimate_devices(manifest, fitted)
    changes = measure_changes(network, quantised, source.integer_weights)
    return filled(
        BuildReport,
        *(numerics, parameters, manifest, design),
        schema_version=1,
        trained=trained,
        source=source.source,
        source_format=source.format,
        inputs=network.inputs,
        outputs=network.outputs,
        parameters=network.weight_count,
        accumulator_bits=numerics.accumulator.bits,
        partial_bits=numerics.accumulator.partial_bits,
        headroom=measure_headroom(quantised),
        layers=layer_reports(manifest),
        formats=format_reports(manifest),
        memories=held,
        memory_bits=sum(memory.bits for memory in held),
        multipliers=multiplier_reports(manifest),
        spatial=SpatialReport.of(manifest),
        tables=_table_reports(manifest),
        cycles=cycle_report(manifest),
        times=time_reports(manifest),
        accuracy=accuracy,
        assumptions=list_assumptions(read, design, calibration, accuracy, loaded),
        notes=(
            *explain_trials(design.trials),
            *source.notes,
            *change_notes(changes),
            *(loss.note for loss in accuracy.losses if loss.note),
            *notes,
        ),
        blocks=describe_blocks(network),
        host=source.outside,
        weight_changes=changes,
        estimates=estimates,
        expected=expected_use(estimates, fitted),
    )


def find_fit(folder: Path) -> Fit | None:
    """Return what a build's sizes were chosen for; None if for nothing, or its report cannot be read."""
    try:
        return BuildReport.load(folder).fit
    except BuildError:
        return None
