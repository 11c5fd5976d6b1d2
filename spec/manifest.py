"""The manifest of a build: all data that host, simulation and documentation need."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from rtlstm.spec.cells.unit import UnitTiming
from rtlstm.spec.errors import BuildError, ConfigurationError
from rtlstm.spec.family import FAMILIES
from rtlstm.spec.files import as_bytes, read_file
from rtlstm.spec.fixed import Format, IntArray
from rtlstm.spec.layout import EmbeddingShape, OutputPart, Window, check_parts, check_window
from rtlstm.spec.numerics import LayerShape, Numerics, QuantizedNetwork
from rtlstm.spec.parameters import Capacity, Needs, Parameters, ceil_log2
from rtlstm.spec.program.fields import (
    FIRST,
    Bases,
    drain_fields,
    drain_widths,
    issue_fields,
    issue_widths,
    norm_fields,
    norm_widths,
    resident_fields,
    step_fields,
    step_widths,
)
from rtlstm.spec.program.passes import NOTHING_SKIPPED, Kept, Passes
from rtlstm.spec.program.schedule import Cycles, Schedule, StepSchedule
from rtlstm.spec.program.sections import plan_program
from rtlstm.spec.program.sequences import SequencePlan, SequenceSchedule, compile_sequences
from rtlstm.spec.program.spatial import SpatialPlan, SpatialSchedule, spatial_program
from rtlstm.spec.program.step import Program, compile_program
from rtlstm.spec.program.wave import compile_wave
from rtlstm.spec.record import Record, describe_validation
from rtlstm.spec.registers import IDENTITY, MAP_VERSION, Region, Register
from rtlstm.spec.softmax import Softmax

C_HEADER: Final = "rtlstm_registers.h"
"""The C header's name in a build."""
INITIAL_STATE: Final = "state.npz"
"""The name of the state in which a build's model begins, if that is not zeros."""
EMBEDDINGS: Final = "embeddings.npz"
"""The name of the tables in which a build's model looks up what it reads, if it looks anything up."""
_SCHEMA: Final = 1
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@cache
def _version() -> str:
    try:
        return version("rtlstm")
    except PackageNotFoundError:
        return "unknown"


def _digest(shaped: dict[str, Any]) -> str:
    text = json.dumps(shaped, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


_DISAGREEMENT = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
"""Exceptions of compiling an invalid program, for example one whose layers name a missing cell."""


def _shares_multipliers(parameters: Parameters, numerics: Numerics) -> bool:
    """Whether two lanes share each hard multiplier."""
    family = FAMILIES.named(parameters.family)
    return family.shares_multipliers(numerics.weight_bits, numerics.data_bits)


def _check_pairs(parameters: Parameters, numerics: Numerics) -> None:
    """Refuse two lanes of two kinds that share their multipliers."""
    if parameters.lut_lanes % 2 and _shares_multipliers(parameters, numerics):
        given, on = parameters.lut_lanes, parameters.family
        bits = f"{numerics.weight_bits} x {numerics.data_bits} bits"
        raise ConfigurationError(
            f"`lut_lanes` must be even where two lanes share each DSP block, on {on} "
            f"with {bits}, not {given}; try {max(2, given - 1)}"
        )


def _check_tokens(parameters: Parameters, whole: bool, spatial: bool) -> None:
    """Refuse cores that look up no tokens."""
    parameters.require_fixed_program(
        "`token_table='core'` has a memory for its network's table, but a loadable core takes others; "
        "leave `token_table` out, so that the driver looks tokens up, or leave `capacities` out"
    )
    kind = (
        "in space, where all is constant" if spatial else "of whole sequences, as a reverse direction needs"
    )
    if whole or spatial:
        raise ConfigurationError(
            f"`token_table='core'` needs a core that takes steps one by one, not one {kind}; leave it "
            "out, so that the driver looks tokens up"
        )


def _check_decision(
    parameters: Parameters, layers: tuple[LayerShape, ...], passes: Passes, numerics: Numerics
) -> None:
    """Refuse networks of whose outputs no device decides."""
    if passes and len(passes[-1]) > 1:
        raise ConfigurationError(
            "`decide` needs outputs of one layer in one direction, but the network ends in a bidirectional "
            "layer; put a dense layer behind it, or leave `decide` out"
        )
    classes, bits = layers[-1].outputs, numerics.output_bits
    its = "" if parameters.capacity is None else " (of the device, if it is for one)"
    if classes < 2:
        raise ConfigurationError(
            f"`decide` needs a network of two outputs or more, but this one has {classes}; leave `decide` "
            f"out{its}, and compare the output with a threshold"
        )
    if parameters.decide == "softmax":
        parameters.require_fixed_program(
            "`decide='softmax'` has tables of its network's outputs, but a loadable core takes other "
            "networks; leave `decide` out and take rtlstm.host.softmax(y), or leave `capacities` out"
        )
        Softmax(classes=classes, bits=bits, fraction=layers[-1].output.fraction).check()
    elif classes > 1 << bits - 1:
        needed = (classes - 1).bit_length() + 1
        raise ConfigurationError(
            f"`decide` gives the number of an output in the {bits} bits of one, 0 to {(1 << bits - 1) - 1}, "
            f"but the network has {classes}; give it more bits with `output_bits={needed}`, or behind a "
            f"recurrent layer with `data_bits={needed}`"
        )
    if 2 * parameters.best > classes:
        raise ConfigurationError(
            f"`decide={parameters.decide!r}` gives {parameters.best} numbers and as many scores, more than "
            f"the {classes} outputs of the network; try `decide='top{classes // 2}'`{its}, or leave "
            f"`decide` out and take rtlstm.host.top_k(y, {parameters.best})"
        )


class FileHash(Record):
    """A file of the build folder that is not used without a check, with its hash."""

    path: Annotated[str, Field(max_length=200)]
    """Relative to the folder, with slashes."""
    sha256: _Sha256


class RegionLayout(Record):
    """A memory region of the window: ``banks`` memories of ``rows`` words of ``width`` bits.

    The first ``image_rows`` rows of each bank are in the weight image; the others are working memory.
    """

    region: Region
    banks: int
    rows: int
    image_rows: int
    width: int

    @property
    def words(self) -> int:
        """32-bit words per row."""
        return -(-self.width // 32)


@dataclass(frozen=True)
class InputPort:
    """What the port ``x`` takes: values of a step, or the number of a token that the core looks up."""

    values: int
    """How many of a step."""
    most: int
    """How many of a step of any network that the device can hold."""
    beat: int
    """How many at a time."""
    bits: int
    """Bits of one, signed."""


class Manifest(Record):
    """The description of a build for all its users: ``manifest.json`` in the build folder."""

    schema_version: Literal[1] = _SCHEMA
    name: Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_]*$")]
    rtlstm_version: str
    build_hash: _Sha256
    """SHA-256 of all data that determine the hardware, and of the program (not the weights)."""
    layers: Annotated[tuple[LayerShape, ...], Field(min_length=1)]
    parameters: Parameters
    numerics: Numerics
    program: Program
    cycles: Cycles
    passes: Passes = ()
    """The passes of whole sequences through the layers; none if steps are computed one by one."""
    sequence: SequencePlan | None = None
    """The programs for whole sequences, if the device computes them."""
    spatial: SpatialPlan | None = None
    """The weights of a spatial build, and its registers; None if an array computes all layers in turn. Lanes
    and gate units then mean nothing, and ``macs`` is how many values of h the memory window has in a row."""
    frames: Annotated[int, Field(ge=1)] = 1
    """Frames of the model in a step, side by side, the oldest first: the product of its strides. They say
    what the inputs mean; the hardware takes any."""
    window: Window = (0, 0)
    """Steps of the model before and after each one that stand beside it, the oldest first; beyond the ends of
    a sequence they are zeros. They say what the inputs mean; the hardware takes any."""
    batch_first: bool | None = None
    """Whether the model's data have sequences before steps, ``(N, T, I)``, and so what is read by default;
    None if the model does not tell. The hardware takes any order."""
    parts: tuple[OutputPart, ...] = ()
    """The model's outputs, if it has several: parts of the core's, in order."""
    embeddings: tuple[EmbeddingShape, ...] = ()
    """The tables in which tokens are looked up, of a model that begins so."""
    input_parts: tuple[OutputPart, ...] = ()
    """The model's inputs, if it has several: parts of the core's, in order."""
    files: tuple[FileHash, ...] = ()
    """Verilog, C header and, if there are such, initial state and tables of the folder. They are not in the
    build's hash; empty until they are written."""

    @property
    def step_width(self) -> int:
        """How many values a step of the model has, or a frame of a model with strides."""
        return self.program.inputs // (self.frames * (sum(self.window) + 1))

    def with_files(self, contents: Mapping[str, str | bytes]) -> Self:
        """Return a copy that lists these files of the folder, contents by path."""
        files = (
            FileHash(path=path, sha256=hashlib.sha256(as_bytes(content)).hexdigest())
            for path, content in contents.items()
        )
        return self.replace(files=tuple(files))

    @property
    def rtl(self) -> str:
        """The path of the build's Verilog in its folder."""
        return f"rtl/{self.name}.v"

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("input_factors", "input_zeros"):
            count = len(getattr(self.numerics, name))
            if count not in (0, self.program.inputs):
                raise ValueError(f"{name} must be one for each of {self.program.inputs} inputs, not {count}")
        if (self.parameters.pipeline.scale > 0) != (self.numerics.scale_bits > 0):
            raise ValueError("pipeline.scale and scale_bits must both be 0, or none of them")
        if self.program.inputs % self.frames:
            raise ValueError(f"{self.program.inputs} inputs must be {self.frames} frames of as many values")
        check_window(self.window, self.program.inputs, self.frames)
        if self.decides and self.parts:
            raise ValueError(
                f"`decide` needs a model with one output, but this one has {len(self.parts)} "
                f"({', '.join(part.name for part in self.parts)}); choose one with `output`"
            )
        check_parts(self.parts, self.outputs)
        check_parts(self.input_parts, self.program.inputs, "inputs")
        widest = self.layers[-1].output.bits
        if widest > self.numerics.output_bits:
            raise ValueError(f"outputs have {self.numerics.output_bits} bits, but need {widest}")
        return self

    @classmethod
    def of(
        cls,
        name: str,
        network: QuantizedNetwork,
        parameters: Parameters,
        kept: Kept = NOTHING_SKIPPED,
        spatial: SpatialPlan | None = None,
    ) -> Self:
        """Return the manifest of a network; all else and errors as :meth:`create`."""
        return cls.create(name, network.shapes, parameters, network.numerics, network.passes, kept, spatial)

    @classmethod
    def create(
        cls,
        name: str,
        layers: tuple[LayerShape, ...],
        parameters: Parameters,
        numerics: Numerics,
        passes: Passes = (),
        kept: Kept = NOTHING_SKIPPED,
        spatial: SpatialPlan | None = None,
    ) -> Self:
        """Compile the program, count its cycles and hash the result.

        ``kept`` says which words of weights are kept of products that skip some; ``spatial`` has the weights
        of a spatial build.

        Raises ConfigurationError if the parameters do not fit the numerics, no core of these parameters can
        take the sequences of ``passes``, the network does not fit the parameters' capacities, or ``kept``
        does not fit it.
        """
        parameters = parameters.with_scales(numerics.scale_bits)
        timing = numerics.unit.timing(parameters)
        schedule: Schedule
        hashed: dict[str, Any] = {}
        plan = None
        if spatial is not None:
            program = spatial_program(layers, parameters)
            schedule = SpatialSchedule(spatial, layers, parameters, numerics)
            hashed = {"spatial": spatial.model_dump(mode="json")}
        elif passes:
            program, plan = compile_sequences(layers, passes, parameters, timing, kept)
            schedule = SequenceSchedule(program, parameters, plan)
            parted = [[part.model_dump(mode="json") for part in parts] for parts in passes]
            hashed = {"sequence": {"passes": parted} | plan.model_dump(mode="json")}
        else:
            planned = compile_wave if parameters.wave_front else plan_program
            program = planned(layers, parameters, timing, kept)
            schedule = StepSchedule(program, parameters)
        shaped: dict[str, Any] = {
            "name": name,
            "layers": [layer.model_dump(mode="json") for layer in layers],
            "parameters": parameters.model_dump(mode="json"),
            "numerics": numerics.model_dump(mode="json"),
            "program": program.model_dump(mode="json"),
            **hashed,
        }
        if parameters.tables == "direct" and not all(table.direct for table in numerics.tables):
            raise ConfigurationError(
                "direct tables need an entry for every input, but these interpolate; quantise the "
                "network with direct tables, or choose tables interpolated"
            )
        _check_pairs(parameters, numerics)
        if parameters.token_rows:
            _check_tokens(parameters, bool(passes), spatial is not None)
        if parameters.decide is not None:
            _check_decision(parameters, layers, passes, numerics)
        return cls(
            name=name,
            rtlstm_version=_version(),
            build_hash=_digest(shaped),
            layers=layers,
            parameters=parameters,
            numerics=numerics,
            program=program,
            cycles=schedule.count(layers),
            passes=passes,
            sequence=plan,
            spatial=spatial,
            batch_first=False,
        )

    @property
    def device_hash(self) -> str:
        """SHA-256 of the data that determine the hardware; for a loadable core independent of the network."""
        if self.parameters.capacity is None:
            return self.build_hash
        shaped = {
            "name": self.name,
            "parameters": self.parameters.model_dump(mode="json"),
            "numerics": self.numerics.hardware,
        }
        return _digest(shaped)

    @property
    def build_number(self) -> int:
        """Value of the BUILD register: the first 32 bits of the device's hash."""
        return int(self.device_hash[:8], 16)

    @property
    def constants(self) -> dict[Register, int]:
        """Registers with constant values."""
        words = {
            Register.ID: IDENTITY,
            Register.BUILD: self.build_number,
            Register.VERSION: MAP_VERSION[0] << 16 | MAP_VERSION[1],
            Register.CAPACITY: self.numerics.output_bits << 24
            | self.input_port.bits << 16
            | self.parameters.networks - 1 << 12
            | self.parameters.streams,
        }
        # That of a loadable program is 0 until a network is loaded, and then tells of that one.
        return words if self.parameters.capacity else words | {Register.SHAPE: self.shape}

    @property
    def shape(self) -> int:
        """What SHAPE reads while the build's own network is in the device."""
        return (self.program.outputs & 0xFFFF) << 16 | self.input_port.values & 0xFFFF

    @cached_property
    def input_port(self) -> InputPort:
        """What the port ``x`` takes."""
        if self.parameters.token_rows:
            return InputPort(values=1, most=1, beat=1, bits=self.parameters.token_bits)
        inputs, beat = self.program.inputs, self.parameters.beat_in
        return InputPort(inputs, self.capacity.inputs, beat, self.numerics.input.bits)

    @cached_property
    def schedule(self) -> Schedule:
        """When the device computes what, to the cycle."""
        if self.spatial is not None:
            return self.spatial_schedule
        if self.sequence is None:
            return StepSchedule(self.program, self.parameters)
        return SequenceSchedule(self.program, self.parameters, self.sequence)

    @property
    def settling_cycles(self) -> int:
        """Cycles after a step's output in which the core has finished whatever follows it."""
        layers = 1 if self.program.wave is None else len(self.layers) + 1
        return 2 * layers * self.cycles.step_interval_cycles

    @property
    def outputs(self) -> int:
        """Number of values that the device gives of a time step: 1 where that is a number alone."""
        return len(self.schedule.output_index)

    @property
    def decides(self) -> bool:
        """Whether the device gives which outputs are the largest, or probabilities, in their stead."""
        return self.parameters.decide is not None

    @property
    def gives_number(self) -> bool:
        """Whether it gives the number of the largest output alone."""
        return self.parameters.decide == "argmax"

    @property
    def softmax(self) -> Softmax:
        """The softmax of the outputs; its tables are of no use where there is none."""
        form = self.layers[-1].output
        return Softmax(classes=self.classes, bits=self.numerics.output_bits, fraction=form.fraction)

    @property
    def decision_cycles(self) -> int:
        """Cycles from a step's last results to what is made of them."""
        return self.parameters.decision_cycles(self.program.outputs)

    @property
    def classes(self) -> int:
        """Number of outputs of the network's step, of which the device may decide which is the largest."""
        last = () if self.sequence is None else self.sequence.output_positions
        return len(last) or self.layers[-1].outputs

    @property
    def output(self) -> Format:
        """Format of the outputs, or scores, that the device gives; a number alone is an integer."""
        outputs = self.layers[-1].output
        if self.parameters.decide == "softmax":
            return self.softmax.output
        return Format(bits=self.numerics.output_bits, fraction=0) if self.gives_number else outputs

    def emitted(self, y: IntArray) -> IntArray:
        """Return the values of the device's beats for a network's outputs: ``(..., outputs)`` to those.

        They are the outputs, with zeros between them, or the number of the largest one, the first of equal
        ones; or the numbers of several, the largest first, and then their scores; or probabilities.
        """
        if self.parameters.decide == "softmax":
            return self.softmax.probabilities(y)
        if best := self.parameters.best:
            numbers = np.argsort(-y, axis=-1, kind="stable")[..., :best]
            return np.concatenate([numbers, np.take_along_axis(y, numbers, axis=-1)], axis=-1)
        if self.decides:
            return np.asarray(y.argmax(axis=-1)[..., np.newaxis], dtype=np.int64)
        values = np.zeros((*y.shape[:-1], self.program.outputs), dtype=np.int64)
        values[..., self.schedule.output_index] = y
        return values

    @property
    def capacity(self) -> Capacity | Needs:
        """The largest network that the hardware holds: that of a fixed program is its own."""
        return self.parameters.capacity or self.program.needs

    @property
    def timing(self) -> UnitTiming:
        """The stages in which cells read their state and give their results."""
        return self.numerics.unit.timing(self.parameters)

    @property
    def spatial_schedule(self) -> SpatialSchedule:
        """The schedule of a spatial build; nobody asks for that of another one."""
        assert self.spatial is not None, "only a spatial build has such a schedule"
        return SpatialSchedule(self.spatial, self.layers, self.parameters, self.numerics)

    @property
    def most_saturated(self) -> int:
        """Cell states that can saturate in one cycle."""
        if self.spatial is None:
            return self.parameters.gate_units
        return sum(layer.outputs for layer in self.layers if layer.has_state)

    @property
    def paired_lanes(self) -> bool:
        """Whether two lanes share each hard multiplier."""
        return _shares_multipliers(self.parameters, self.numerics)

    @property
    def needs(self) -> Needs:
        """What the network needs of a loadable core's capacities."""
        return compile_program(self.layers, self.parameters.replace(capacity=None), self.timing).needs

    @property
    def has_single_rows(self) -> bool:
        """Whether there are layers with one row per output; a loadable core may be given some."""
        return self.parameters.capacity is not None or any(not layer.four_rows for layer in self.layers)

    @property
    def stores_single_rows(self) -> bool:
        """Whether results of single rows are stored for later layers; a loadable core may be given some."""
        before = self.layers[:-1]
        return self.parameters.capacity is not None or any(not layer.four_rows for layer in before)

    @property
    def sum_bits(self) -> int:
        """Bits of the sums that single rows give: those of pre-activations, or of wider linear outputs."""
        numerics = self.numerics
        if self.parameters.capacity is not None and numerics.fused_lstm is not None:
            # The cells of another network do not matter.
            return max(numerics.preactivation.bits, numerics.output_bits)
        # A norm reads no sums.
        read = (at for at, cell in enumerate(numerics.cells) if cell.norm is None)
        return max(map(numerics.sum_bits, read))

    @property
    def ends_passes_in_both_widths(self) -> bool:
        """Whether single rows end passes in the data's bits, and the last one in the outputs'.

        Only the fused unit must be told: elsewhere other formats are another cell's.
        """
        numerics = self.numerics
        differ = self.sequence is not None and numerics.output_bits != numerics.data_bits
        return differ and numerics.fused_lstm is not None and self.stores_single_rows

    @property
    def single_functions(self) -> frozenset[str]:
        """Functions of single rows that the unit may be asked for."""
        known = frozenset(("identity", *self.numerics.unit.functions))
        if self.parameters.capacity is not None:
            return known
        return known & {layer.activation for layer in self.layers if not layer.four_rows}

    @property
    def program_memories(self) -> dict[str, dict[str, int]]:
        """Widths of the fields in each memory of a loadable program, from the low bits up, by name."""
        if self.parameters.capacity is None:
            return {}
        norms = self.numerics.unit.norms
        return {
            "program, issued": issue_widths(self.parameters, self.timing),
            "program, drained": drain_widths(self.parameters, self.numerics.unit),
            **({"program, norms": norm_widths(self.parameters, norms)} if norms else {}),
        }

    @property
    def program_rows(self) -> dict[Region, list[list[tuple[int, int]]]]:
        """Value and width of the fields, from the low bits up, in each row of the region of the program.

        An operation in each row, zeros behind them, and in the last row the fields of a step, or in the last
        rows those of each network that the device holds: zeros of all but the first.
        """
        if self.parameters.capacity is None:
            return {}
        ops, step = self.program_at(FIRST)
        unused: list[list[tuple[int, int]]] = [[]] * (self.capacity.operations - len(ops))
        others: list[list[tuple[int, int]]] = [[]] * (self.parameters.networks - 1)
        return {Region.PROGRAM: [*ops, *unused, step, *others]}

    def program_at(self, bases: Bases) -> tuple[list[list[tuple[int, int]]], list[tuple[int, int]]]:
        """Value and width of the fields of each operation, and of a step, of a loadable program that begins
        at these rows."""
        issued = issue_fields(self.program, bases, self.parameters.lane_sums is not None)
        drained = drain_fields(self.program, self.layers, self.numerics.unit, bases)
        norms = self.numerics.unit.norms
        normed = [norm_fields(self.program, self.layers, norms, bases)] if norms else []
        parts = (issued, drained, *normed)
        columns = [
            (fields[name], width)
            for fields, widths in zip(parts, self.program_memories.values(), strict=True)
            for name, width in widths.items()
        ]
        rows = [[(values[op], width) for values, width in columns] for op in range(len(self.program.ops))]
        step = step_fields(self.program, self.parameters, bases)
        step |= resident_fields(self.program, self.parameters, self.timing, bases)
        return rows, [(step[name], width) for name, width in step_widths(self.parameters).items()]

    @property
    def capacities(self) -> dict[str, tuple[int, int]]:
        """What a loadable device holds and this network takes of each capacity, by name; else nothing."""
        if self.parameters.capacity is None:
            return {}
        return {
            name.replace("_", "-"): (getattr(self.capacity, name), taken)
            for name, taken in self.needs.model_dump().items()
        }

    @property
    def regions(self) -> dict[Region, RegionLayout]:
        """Memory regions of the window."""
        program, parameters, numerics = self.program, self.parameters, self.numerics
        streams, units, capacity = parameters.streams, parameters.gate_units, self.capacity
        sizes = {
            Region.WEIGHTS: (
                parameters.lanes,
                capacity.weight_rows,
                program.weight_rows,
                parameters.macs * numerics.weight_bits,
            ),
            Region.PARTIALS: (
                units,
                program.bias_rows + streams * program.partials_context,
                program.bias_rows,
                4 * numerics.accumulator.partial_bits,
            ),
            Region.SHIFTS: (
                units,
                capacity.shift_rows,
                program.shift_rows,
                4 * (numerics.shift_bits + numerics.scale_field_bits)
                + numerics.unit_parameters * numerics.weight_bits,
            ),
            Region.VECTORS: (
                1,
                streams * program.vector_context,
                0,
                parameters.macs * numerics.data_bits,
            ),
            Region.CELLS: (units, streams * program.cell_context, 0, numerics.cell.bits),
        }
        if parameters.token_rows:
            # Each row begins at a multiple of a power of two: no address is a product.
            rows = parameters.token_rows << ceil_log2(parameters.row_beats(program.inputs))
            sizes[Region.TOKENS] = (1, rows, rows, parameters.beat_in * numerics.input.bits)
        for region, tables in numerics.unit.memories.items():
            rows = max(table.rows for table in tables)
            width = max(table.word_bits for table in tables)
            sizes[region] = (len(tables), rows, rows, width)
        for region, words in self.program_rows.items():
            width = max(sum(width for _, width in fields) for fields in words)
            sizes[region] = (1, len(words), len(words), width)
        return {
            region: RegionLayout(region=region, banks=banks, rows=rows, image_rows=image_rows, width=width)
            for region, (banks, rows, image_rows, width) in sizes.items()
            # All else of a spatial build is a constant of its logic.
            if self.spatial is None or region in (Region.VECTORS, Region.CELLS)
        }

    def to_json(self) -> str:
        """Return the text of ``manifest.json``."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read ``manifest.json`` of a build folder.

        Program, cycles and all other values that follow from shapes, formats and options are computed again
        and compared. The files that it lists are not read: see :mod:`rtlstm.spec.manifest`.

        Raises BuildError if it is missing, is not JSON, has another schema version, does not validate, was
        changed after it was generated, or does not list the folder's Verilog.
        """
        folder = Path(folder)
        path = folder / "manifest.json"
        fields = _read_fields(path)
        found = fields.get("schema_version")
        if found != _SCHEMA:
            raise BuildError(
                f"{path} has schema version {found!r}, but this rtlstm reads version {_SCHEMA}; "
                "generate the build again"
            )
        try:
            manifest = cls.model_validate(fields)
        except (ConfigurationError, ValidationError) as error:
            reason = describe_validation(error) if isinstance(error, ValidationError) else error
            raise BuildError(f"{path} does not validate: {reason}") from None
        try:
            manifest._check_derived()
            manifest._check_files(folder)
        except ConfigurationError as error:
            raise BuildError(
                f"{path} was changed after it was generated, or comes from another version of rtlstm "
                f"({manifest.rtlstm_version}): {error}; generate the build again"
            ) from None
        return manifest

    def _check_derived(self) -> None:
        """Refuse values that do not follow from the others, with a ConfigurationError that names one."""
        try:
            expected = self.create(
                self.name,
                self.layers,
                self.parameters,
                self.numerics,
                self.passes,
                self.program.kept,
                self.spatial,
            )
        except _DISAGREEMENT as error:
            apart = "its layers, passes, parameters and formats are inconsistent"
            raise ConfigurationError(error if isinstance(error, ConfigurationError) else apart) from None
        if expected.build_hash != self.build_hash:
            raise ConfigurationError("its build_hash is not that of its shapes, formats and options")
        # The fields that are given; all others follow from them.
        given = {
            "rtlstm_version",
            "files",
            "frames",
            "window",
            "batch_first",
            "parts",
            "embeddings",
            "input_parts",
        }
        found, wanted = (each.model_dump(mode="json", exclude=given) for each in (self, expected))
        if difference := _json_difference(found, wanted):
            raise ConfigurationError(f"by its shapes, formats and options {difference}")

    def _check_files(self, folder: Path) -> None:
        """Check that the required files are listed and no others; raise a ConfigurationError."""
        listed = [file.path for file in self.files]
        compiled, tables = [self.rtl, C_HEADER], [EMBEDDINGS] * bool(self.embeddings)
        if listed != [path for path in (*compiled, INITIAL_STATE, *tables) if path in listed]:
            raise ConfigurationError(
                f"its files must be {' and '.join([*compiled, *tables])}, or {INITIAL_STATE}, too, not "
                f"{_short_json(listed)}"
            )
        if self.rtl not in listed and (folder / self.rtl).exists():
            raise ConfigurationError(f"its files do not list {self.rtl}")


def _read_fields(path: Path) -> dict[str, Any]:
    """Return the JSON object in a manifest's file. Raises BuildError if there is none."""
    try:
        fields = json.loads(read_file(path))
    except (FileNotFoundError, NotADirectoryError):
        folder = path.parent
        what = "is a file" if folder.is_file() else "has no manifest.json"
        what = what if folder.exists() else "does not exist"
        raise BuildError(
            f"{folder} is not a build folder: it {what}; make one with 'rtlstm generate MODEL -o DIR'"
        ) from None
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: it nests too deep
        why = f": {error.strerror or error}" if isinstance(error, OSError) else f" as JSON: {error}"
        raise BuildError(f"{path} cannot be read{why}; the build is damaged: generate it again") from None
    return fields if isinstance(fields, dict) else {}


def _json_difference(found: Any, wanted: Any, path: str = "") -> str | None:
    """Return a text with the first path at which two JSON values differ, and both values, or None."""
    if type(found) is type(wanted) and isinstance(wanted, dict | list) and len(found) == len(wanted):
        pairs: Iterable[tuple[Any, Any]] = wanted.items() if isinstance(wanted, dict) else enumerate(wanted)
        for key, value in pairs:
            inside = f"{path}.{key}" if path else str(key)
            if difference := _json_difference(found[key], value, inside):
                return difference
        return None
    if found == wanted:
        return None
    return f"{path} must be {_short_json(wanted)}, not {_short_json(found)}"


def _short_json(value: Any) -> str:
    """Return a value's JSON, cut after some 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."


def read_listed(folder: Path, manifest: Manifest, name: str) -> bytes:
    """Return a file of a build folder, ``name`` relative to it, as its manifest lists it.

    Verilog can call C code in a simulator, so every file is checked before a simulator reads it. A hash shows
    that a file was damaged, changed or taken from another build, not who wrote the folder.

    Nothing is checked if the manifest lists no files: it was then made in this process, not read from a
    folder.

    Raises BuildError if the file cannot be read, is not listed, or is not the file that was generated.
    """
    path = Path(folder) / name
    try:
        content = read_file(path)
    except OSError as error:
        raise BuildError(f"{path} cannot be read ({error.strerror}); generate the build again") from None
    if not manifest.files:
        return content
    wanted = next((file.sha256 for file in manifest.files if file.path == name), None)
    found = hashlib.sha256(content).hexdigest()
    if wanted != found:
        must = "is not listed in manifest.json" if wanted is None else "was changed after it was generated"
        raise BuildError(
            f"{path} {must} and is not used; generate the build again or, if the change is yours, write its "
            f"SHA-256 into 'files' of manifest.json: {found}"
        )
    return content


def check_rtl(folder: Path, manifest: Manifest) -> Path:
    """Return the path of a build's Verilog. Raises the errors of :func:`read_listed`."""
    read_listed(folder, manifest, manifest.rtl)
    return Path(folder) / manifest.rtl


def read_verilog(folder: Path, manifest: Manifest) -> str:
    """Return a build's Verilog. Raises the errors of :func:`read_listed`, also if it is not text."""
    try:
        return read_listed(folder, manifest, manifest.rtl).decode()
    except UnicodeDecodeError:
        raise BuildError(
            f"{Path(folder) / manifest.rtl} cannot be read (it is not text); generate the build again"
        ) from None
