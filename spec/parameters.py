"""The options of the hardware, the pipeline that follows from them, and capacities of loadable programs."""

from functools import partial
from math import ceil, gcd
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from rtlstm.spec.buses import NO_BUS, BusName
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import DEFAULT_PIPELINE, FAMILIES, GENERIC, FamilyName, Pipeline
from rtlstm.spec.record import Extended, Option, Record

_LEAST_OPERATIONS = 16
_MOST_HEADROOM = 16
_SHARED = ("operations", "weight_rows", "shift_rows", "bias_rows")
"""Capacities of which networks in one device have a part each; others are those of the largest."""

NETWORK_BIT: Final = 10
"""First bit of the network's number in that of a stream, where a device holds several networks."""
NUMBER_BITS: Final = 14
"""Bits of both numbers."""
MOST_NETWORKS: Final = 1 << (NUMBER_BITS - NETWORK_BIT)
"""The most networks that one device holds."""


class Capacity(Extended):
    """Depths of a loadable core's memories, and its other limits on networks.

    Rows and words depend on the array: these bound the sizes of :class:`rtlstm.spec.program.step.Program`.
    """

    _later = frozenset({"networks"})

    operations: Annotated[int, Field(ge=4, le=1024)]
    """Operations of a step's program."""
    inputs: Annotated[int, Field(ge=1, le=65536)]
    """Input values of a step."""
    outputs: Annotated[int, Field(ge=1, le=65536)]
    """Output values of a step."""
    weight_rows: Annotated[int, Field(ge=1, le=1 << 24)]
    """Rows of each lane's weight bank."""
    shift_rows: Annotated[int, Field(ge=1, le=1 << 20)]
    """Rows of each gate unit's shift memory."""
    bias_rows: Annotated[int, Field(ge=1, le=1 << 20)]
    """Rows of biases in each gate unit's partial-sum memory."""
    partial_rows: Annotated[int, Field(ge=1, le=1 << 20)]
    """Rows of a stream's partial sums in each gate unit's partial-sum memory."""
    vector_words: Annotated[int, Field(ge=1, le=1 << 20)]
    """Words of the vector memory for each stream."""
    cell_rows: Annotated[int, Field(ge=1, le=1 << 20)]
    """Rows of each gate unit's cell memory for each stream."""
    headroom: Annotated[int, Field(ge=0, le=_MOST_HEADROOM)] = 4
    """Bits by which another network's weights and sums may be larger than those of the first."""
    networks: Annotated[int, Field(ge=1, le=MOST_NETWORKS)] = 1
    """Networks that the device holds at once."""


class Needs(Record):
    """What a network needs of each capacity except the headroom."""

    operations: int
    inputs: int
    outputs: int
    weight_rows: int
    shift_rows: int
    bias_rows: int
    partial_rows: int
    vector_words: int
    cell_rows: int

    def check(self, capacity: Capacity) -> None:
        """Check that a network with these needs fits.

        Raises ConfigurationError if it does not; the message lists every capacity that is too small, and how
        to raise it.
        """
        lacking = {
            name: needed for name, needed in self.model_dump().items() if needed > getattr(capacity, name)
        }
        if lacking:
            listed = "; ".join(
                f"it needs {needed} {name.replace('_', '-')} and the device holds {getattr(capacity, name)}"
                for name, needed in lacking.items()
            )
            raise ConfigurationError(
                f"the network must fit the device's capacities, but {listed}; load a smaller one, or "
                f"generate the device again with `capacities={lacking!r}`"
            )

    def capacity(self, **chosen: int) -> Capacity:
        """Return the capacities ``chosen``; for the others, these needs up to the next power of two.

        Those that networks share are as many times that as there are networks.

        Raises ConfigurationError if one is out of range, or less than is needed.
        """
        sizes = {name: 1 << (needed - 1).bit_length() for name, needed in self.model_dump().items()}
        sizes["operations"] = max(_LEAST_OPERATIONS, sizes["operations"])
        sizes |= {name: max(1, chosen.get("networks", 1)) * sizes[name] for name in _SHARED}
        try:
            capacity = Capacity(**(sizes | chosen))
        except ConfigurationError as error:
            raise ConfigurationError(f"a capacity is out of range: {error}") from None
        self.check(capacity)
        return capacity


TableKind = Literal["interpolated", "direct"]
"""Interpolation between a table's entries, or an entry for each input: faster, larger, coarser."""
MemoryStyle = Literal["auto", "block", "distributed", "huge"]
"""Kind of memory requested from ``rtlstm_memory``; see ``docs/primitives.md``."""
WeightMemory = Literal["block", "large"]
"""Block RAM, or the family's largest memory: iCE40's single port RAM, Nexus' large RAM, UltraRAM."""
TableMemory = Literal["ram", "rom"]
"""Memories that are loaded with the weights, or constants made of LUTs."""
TokenTable = Literal["host", "core"]
"""Who looks up tokens: the driver, or the core in a memory that is loaded with the weights."""
MOST_TOKENS: Final = 32768
"""The most tokens that a core looks up: a link has two bytes for one."""
TOKEN_CYCLES: Final = 3
"""Cycles from a token at the port to the first beat of its row at the input buffer."""
MOST_BEST = 16
"""The most largest outputs that a device finds of a step: each takes a comparison of its chain."""


def _known_decision(name: str) -> str:
    """Return the name of a decision; raise a ValueError about any other."""
    if name not in {"argmax", "softmax", *(f"top{best}" for best in range(1, MOST_BEST + 1))}:
        raise ValueError(f"`decide` must be argmax, softmax, or top1 to top{MOST_BEST}, not {name!r}")
    return name


Decision = Annotated[str, AfterValidator(_known_decision)]
"""What is made of a step's outputs: which is the largest, or which are (``top5``), or softmax."""
MultiplierKind = Literal["dsp", "lut"]
"""A DSP block, or a multiplier of LUTs."""


def ceil_log2(value: int) -> int:
    """Return the bits of numbers below ``value`` (0 for one)."""
    return (value - 1).bit_length()


HardwareOption = partial(Option, group="Hardware")
"""An option that is listed with those of the hardware."""

_MOST_FACTOR_BITS = 18
"""Largest narrower factor of a lane's products."""

Size = Annotated[int, Field(ge=1, le=1024)]

Tables = Annotated[
    TableKind,
    HardwareOption(
        "Tables of sigmoid and tanh: interpolated, or with one entry for each argument "
        "(direct). Direct tables save cycles, and suit data of at most 12 bits."
    ),
]


class CoreOptions(Record):
    """Options of the hardware that only the user can choose: they are never derived."""

    tables: Tables = "interpolated"
    beat_in: Annotated[
        Size, HardwareOption("Input values per transfer. It must divide the multipliers per lane.")
    ] = 1
    streams: Annotated[
        Size, HardwareOption("Number of independent sequences whose state stays on the chip.")
    ] = 1
    max_steps: Annotated[
        Annotated[int, Field(ge=1)] | None,
        HardwareOption("Longest sequence. A network with a reverse direction needs it. Default: no limit."),
    ] = None
    bus: Annotated[
        BusName,
        HardwareOption(
            "Bus wrapper around the core: none, axi (AXI4-Stream data, AXI4-Lite registers), "
            "axilite, wishbone, or one of an installed package. With axilite and wishbone, "
            "steps go through registers."
        ),
    ] = NO_BUS
    decide: Annotated[
        Decision | None,
        HardwareOption(
            "What the device gives in place of a step's outputs: the number of the largest one (argmax), "
            "numbers and scores of the K largest ones (topK), of equal ones the first, or probabilities "
            "(softmax). Default: the outputs.",
            metavar="argmax|topK|softmax",
        ),
    ] = None
    lane_sums: Annotated[
        Annotated[int, Field(ge=4, le=256)] | None,
        HardwareOption(
            "Row groups of which each lane keeps a sum, to multiply early what is there of their vector. "
            "Default: none."
        ),
    ] = None
    wave_front: Annotated[
        bool,
        HardwareOption(
            "Let layers work on different steps at once where inputs wait, for a shorter interval."
        ),
    ] = False
    token_rows: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = 0
    """Tokens that the core looks up, a row of its table for each; 0 where it is given a step's values."""


class Parameters(CoreOptions, Extended):
    """Size and shape of the array and its ports."""

    _later = frozenset({"decide", "lane_sums", "wave_front", "token_rows"})

    lanes: Annotated[int, Field(ge=4, le=1024)] = 4
    """Dot-product engines; a multiple of 4, so that a unit's four gates finish together."""
    macs: Size = 32
    """Multipliers per lane."""
    gate_units: Annotated[int, Field(ge=1, le=256)] = 1
    """Units that drain and enter the gate units in one cycle; must divide ``lanes / 4``, and divide ``macs``
    or be a multiple of it."""
    beat_out: Size = 1
    """Output words per transfer; a multiple of ``gate_units``."""
    lut_macs: Annotated[int, Field(ge=0, le=1024)] = 0
    """Multipliers per lane made of LUTs; the others are DSP blocks."""
    lut_lanes: Annotated[int, Field(ge=0, le=1023)] = 0
    """Lanes with one more multiplier made of LUTs than ``lut_macs``: the last ones."""
    slope_multipliers: MultiplierKind = "dsp"
    """Kind of the multipliers for slopes of sigmoid and tanh, five per gate unit."""
    weight_memory: WeightMemory = "block"
    """Kind of memory for the weights."""
    table_memory: TableMemory = "ram"
    """Kind of memory for the tables of sigmoid and tanh."""
    capacity: Capacity | None = None
    """Capacities of a loadable program; None if the program is a constant of the build."""
    family: FamilyName = GENERIC
    pipeline: Pipeline = Pipeline()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.lanes % 4:
            raise ValueError(
                f"`lanes` must be a multiple of 4 (one lane per gate of a unit), not {self.lanes}; "
                f"try {self.lanes // 4 * 4 + 4}"
            )
        if self.lut_macs > self.macs:
            raise ValueError(
                f"`multipliers` must be at most `macs` ({self.macs}), of which it is a part, not "
                f"{self.lut_macs}"
            )
        if self.macs % self.beat_in:
            raise ValueError(
                f"`beat_in` ({self.beat_in}) must divide `macs` ({self.macs}), so that a transfer "
                "never straddles two words of the array; try 1"
            )
        if self.units % self.gate_units or (self.macs % self.gate_units and self.gate_units % self.macs):
            raise ValueError(
                f"`gate_units` ({self.gate_units}) must divide `lanes` / 4 ({self.units}), and divide `macs` "
                f"({self.macs}) or be a multiple of it, so that units of one cycle are stored together; "
                f"try {gcd(self.units, self.macs, self.gate_units)}"
            )
        if self.weight_memory == "large" and not FAMILIES.named(self.family).large_memory:
            having = [name for name, family in FAMILIES.items() if family.large_memory]
            raise ValueError(
                f"`weight_memory` must be block on {self.family}, which has no larger memory than "
                f"block RAM, not large; families with larger memory: {', '.join(having)}"
            )
        if self.beat_out % self.gate_units:
            raise ValueError(
                f"`beat_out` ({self.beat_out}) must be a multiple of `gate_units` "
                f"({self.gate_units}), which give that many results per cycle; try {self.gate_units}"
            )
        return self

    @model_validator(mode="after")
    def _check_lut_lanes(self) -> Self:
        if self.lut_lanes and self.lut_lanes >= self.lanes:
            raise ValueError(
                f"`lut_lanes` must be less than `lanes` ({self.lanes}), not {self.lut_lanes}; for "
                f"one more in every lane, try `multipliers={self.lut_macs + 1}`"
            )
        if self.lut_lanes and self.lut_macs == self.macs:
            raise ValueError(
                f"`lut_lanes` must be 0 where all multipliers are of LUTs, not {self.lut_lanes}; leave it "
                f"out, or try `multipliers={self.macs - 1}`"
            )
        return self

    @model_validator(mode="after")
    def _check_wave_front(self) -> Self:
        if self.wave_front and self.streams > 1:
            raise ValueError(
                f"`wave_front` is for one stream, whose layers work on different steps; {self.streams} "
                "streams fill each other's waits already: leave it out, or try `streams=1`"
            )
        if self.wave_front and self.lane_sums is not None:
            raise ValueError(
                "`wave_front` and `lane_sums` exclude each other: products begin when their vector is "
                "complete, or before; leave one of them out"
            )
        if self.wave_front and self.capacity is not None:
            raise ValueError(
                "`wave_front` needs a fixed program, but a loadable one takes other networks: leave it or "
                "`capacities` out"
            )
        return self

    @classmethod
    def for_family(
        cls,
        family: str,
        factor_bits: int = _MOST_FACTOR_BITS,
        pipeline_name: str = DEFAULT_PIPELINE,
        **fields: Any,
    ) -> Self:
        """Return parameters with one of the family's pipelines.

        ``factor_bits`` are those of the narrower factor of a lane's products.
        """
        direct = fields.get("tables") == "direct"
        lut_bits = factor_bits if fields.get("lut_macs") or fields.get("lut_lanes") else 0
        logic_slopes = fields.get("slope_multipliers") == "lut"
        pipeline = FAMILIES.named(family).pipelines(lut_bits, direct, logic_slopes)[pipeline_name]
        return cls(family=family, pipeline=pipeline, **fields)

    @property
    def pipeline_name(self) -> str:
        """Name of the pipeline in its family; "own" if it is none of the family's."""
        family, direct = FAMILIES.named(self.family), self.tables == "direct"
        logic_slopes = self.slope_multipliers == "lut"
        for lut_bits in range(_MOST_FACTOR_BITS + 1) if self.lut_macs or self.lut_lanes else (0,):
            for name, pipeline in family.pipelines(lut_bits, direct, logic_slopes).items():
                if pipeline == self.pipeline.replace(scale=0):
                    return name
        return "own"

    def with_scales(self, scale_bits: int) -> Self:
        """Return them with the registers that scales of rows of so many bits need; none for 0."""
        stages = max(2, self.pipeline.multiplier) if scale_bits else 0
        return self.replace(pipeline=self.pipeline.replace(scale=stages))

    @property
    def multiplies_per_cycle(self) -> int:
        """Multiply-accumulates per cycle, lanes x macs."""
        return self.lanes * self.macs

    @property
    def units(self) -> int:
        """Hidden units that one row group finishes."""
        return self.lanes // 4

    @property
    def blocks(self) -> int:
        """Number of blocks of ``4 * gate_units`` lanes. One block drains per cycle."""
        return self.units // self.gate_units

    @property
    def stream_bits(self) -> int:
        """Width of a stream number."""
        return max(1, ceil_log2(self.streams))

    @property
    def networks(self) -> int:
        """Networks that the device holds at once."""
        return 1 if self.capacity is None else self.capacity.networks

    @property
    def network_bits(self) -> int:
        """Width of a network's number; 0 if there is one."""
        return ceil_log2(self.networks)

    @property
    def number_bits(self) -> int:
        """Width of a stream's number at the ports; from ``NETWORK_BIT`` on it names its network, if any."""
        return NUMBER_BITS if self.networks > 1 else self.stream_bits

    def words(self, values: int) -> int:
        """Return the words of ``macs`` values that hold ``values`` values."""
        return ceil(values / self.macs)

    @property
    def values_stored(self) -> int:
        """Results that are stored in one cycle: a beat's, but no more than a word of the vector memory."""
        return min(self.gate_units, self.macs)

    @property
    def words_per_beat(self) -> int:
        """Words of the vector memory that a beat's results fill, one per cycle."""
        return self.gate_units // self.values_stored

    def drain_beats(self, values: int) -> int:
        """Return the beats, and so the rows of the drain's memories, for ``values`` results."""
        return ceil(values / self.gate_units)

    def most_drain_cycles(self, norm_values: int = 0) -> int:
        """Cycles in which a group of any operation drains at most; a norm's of so many values is one."""
        return self.drain_beats(max(self.lanes, norm_values)) * self.words_per_beat

    def decision_cycles(self, outputs: int) -> int:
        """Cycles from a step's last results to what is made of all of them; 0 where nothing is.

        ``outputs`` are those of the program. Results of a beat are registered and compared in pairs, level by
        level, then with those before them. Where several are found, each is found behind the one before, and
        all are then given. Softmax reads all twice.
        """
        levels = ceil_log2(self.gate_units)
        if self.decide == "softmax":
            return 14 + 2 * levels + 4 * self.softmax_stages + 2 * self.drain_beats(outputs)
        if not self.best:
            return 0 if self.decide is None else 2 + levels
        return 1 + self.best * (1 + levels) + self.best_beats

    @property
    def softmax_stages(self) -> int:
        """Registers of softmax's multipliers."""
        return max(2, self.pipeline.multiplier)

    @property
    def best(self) -> int:
        """How many largest outputs the device gives with their scores: 5 for ``top5``; else 0."""
        return int((self.decide or "").removeprefix("top")) if (self.decide or "").startswith("top") else 0

    @property
    def best_beats(self) -> int:
        """Cycles in which it gives them, ``gate_units`` numbers or scores in each; else 0."""
        return self.drain_beats(2 * self.best)

    @property
    def token_bits(self) -> int:
        """Bits of a token at the port, as many as a signed number of it has."""
        return ceil_log2(self.token_rows) + 1

    def values_taken(self, inputs: int) -> int:
        """Return how many values the port takes of a step of so many inputs: of a token its number alone."""
        return 1 if self.token_rows else inputs

    def port_beats(self, inputs: int) -> int:
        """Return the beats of a step of so many inputs at the port."""
        return 1 if self.token_rows else self.row_beats(inputs)

    def row_beats(self, inputs: int) -> int:
        """Return the beats in which a step of so many inputs enters the input buffer."""
        return ceil(inputs / self.beat_in)

    def look_up_cycles(self, inputs: int) -> int:
        """Return the cycles from a token to the last beat of its row; 0 where the port takes values."""
        return TOKEN_CYCLES + self.row_beats(inputs) - 1 if self.token_rows else 0

    def values_given(self, outputs: int) -> int:
        """Return how many values the device gives of a step of so many outputs."""
        return outputs if self.decide in (None, "softmax") else 2 * self.best or 1

    @property
    def program_memory(self) -> Capacity:
        """What the memories of a loadable program hold; nobody asks for those of a fixed one."""
        assert self.capacity is not None, "only a loadable program is in a memory"
        return self.capacity

    @property
    def capacity_options(self) -> tuple[str, ...]:
        """The options of ``rtlstm generate`` that say what a loadable program's memories hold."""
        if self.capacity is None:
            return ()
        sizes = self.capacity.model_dump().items()
        return ("--loadable", *(f"--capacity {name.replace('_', '-')}={value}" for name, value in sizes))

    def require_fixed_program(self, why: str) -> None:
        """Refuse a loadable program, with a ConfigurationError that says why."""
        if self.capacity is not None:
            raise ConfigurationError(why)

    # Stages count cycles from the issue cycle, in which the address registers hold a word's
    # address, to the cycle in which the named register holds that word's result. Blocks work one
    # cycle after each other and drain in the same order: stages are those of the first.

    FEW_BLOCKS: ClassVar[int] = 3
    """Number of blocks up to which one register behind their multiplexer is enough."""
    HELD: ClassVar[int] = 1
    """Register stages of a group's totals."""

    @property
    def adders(self) -> list[list[int]]:
        """Terms of every adder of a lane's tree, level by level; the accumulator takes what is left.

        Of the numbers of adders of the last level, the one is taken with which it and the accumulator have
        the fewest terms.
        """
        levels, terms, most = list[list[int]](), self.macs, self.pipeline.adder_terms
        while terms >= most:
            count = ceil(terms / most)
            if count < most:
                count = min(range(count, most), key=lambda adders: max(ceil(terms / adders), adders + 1))
            levels.append([terms // count + (index < terms % count) for index in range(count)])
            terms = count
        return levels

    @property
    def sums_in_dsp(self) -> bool:
        """Whether DSP blocks add products in twos: the first level of a tree with registers behind each."""
        stages = self.pipeline
        in_twos = stages.adder_terms == 2 and stages.tree_levels == 1
        return in_twos and FAMILIES.named(self.family).product_sums

    @property
    def tree(self) -> int:
        """Register stages of a lane's adder tree."""
        return ceil(len(self.adders) / self.pipeline.tree_levels)

    @property
    def collect(self) -> int:
        """Register stages after the multiplexer that selects the block to drain."""
        most = 2 if self.blocks > self.FEW_BLOCKS else 1
        return max(min(self.pipeline.collect, most), 1 if self.blocks > 1 else 0)

    @property
    def shifts_collected(self) -> bool:
        """Whether the first part of a total's shift is in the cycle that collects it, before its register."""
        return self.collect > 0 and self.pipeline.narrow == 2

    @property
    def register_copies(self) -> bool:
        """Whether the family has registers that synthesis does not merge."""
        return FAMILIES.named(self.family).register_copies

    @property
    def unit_copies(self) -> int:
        """Register stages of which each gate unit has a copy: they hold what the drain gives."""
        return min(self.pipeline.copies, 1)

    @property
    def lane_copies(self) -> int:
        """Register stages of which each four lanes have a copy: they hold vector and address."""
        return max(0, self.pipeline.copies - 1)

    @property
    def summed(self) -> int:
        """Stage of the sum of one word's products."""
        return self.pipeline.operand + self.lane_copies + self.pipeline.multiplier + self.tree

    @property
    def activation(self) -> int:
        """Register stages of sigmoid and tanh behind a gate's pre-activation.

        That of the table, and those of product and sum if it is interpolated. A table of two registers reads
        the pre-activation beside its register.
        """
        return 1 + (self.pipeline.slope + 1 if self.tables == "interpolated" else 0)

    @property
    def preactivation(self) -> int:
        """Stage of the first drain beat's rounded pre-activations."""
        return self.summed + self.HELD + self.collect + self.pipeline.narrow + self.pipeline.scale

    def ahead(self, results: int) -> int:
        """Return the cycles by which a word is issued before the last result that it contains is there.

        The result reaches the multipliers in the cycle after it is there; a word does ``operand`` cycles
        after its issue. Results that are there ``results`` cycles after a group's last word are announced
        three cycles after its sum at the earliest.
        """
        return min(self.pipeline.operand - 1, results - self.summed - 3)

    @property
    def announced(self) -> int:
        """Cycles before a result in which its place is known, and compared with the rows that are read.

        They are the latency of the vector memory.
        """
        return min(self.pipeline.operand - 1, 2)

    @property
    def partial_to_add(self) -> int:
        """Issue cycles from the end of a group that stores partial sums to the end of the one that adds them.

        The least number. If ``collect`` is 2, the address of what is added reaches its memory a cycle later.
        Sums of scaled parts are written as much later as they are read.
        """
        return self.HELD + min(self.collect, 1) + self.pipeline.narrow + 1
