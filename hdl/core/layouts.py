"""Layouts of what travels between the parts: beats at the data ports, control beside the data."""

from amaranth.hdl import Cat, Module, Signal, Value, ValueLike
from amaranth.lib import stream
from amaranth.lib.data import StructLayout, View

from rtlstm.hdl.component import Struct
from rtlstm.spec.cells.unit import Norms
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import NETWORK_BIT, ceil_log2
from rtlstm.spec.registers import Region


def row_bits(rows: int) -> int:
    """Width of an address of ``rows`` rows."""
    return max(1, ceil_log2(rows))


def norms_of(manifest: Manifest) -> Norms:
    """Return what a core has for norms, if it has some."""
    norms = manifest.numerics.unit.norms
    assert norms is not None, "only a core with norms has parts for them"
    return norms


def stream_bits(manifest: Manifest) -> int:
    """Width of a stream's number within the core; the number of its network, if any, is in the upper bits."""
    return manifest.parameters.stream_bits + manifest.parameters.network_bits


def number_bits(manifest: Manifest) -> int:
    """Width of a stream's number at the ports."""
    return manifest.parameters.number_bits


def if_several(manifest: Manifest) -> int | None:
    """Width of a port of one bit that only a core of several networks has."""
    return 1 if manifest.parameters.networks > 1 else None


def from_number(manifest: Manifest, number: Value) -> Value:
    """Return a stream's number as the core has it, from that at the ports."""
    parameters = manifest.parameters
    if parameters.networks == 1:
        return number
    network = number[NETWORK_BIT : NETWORK_BIT + parameters.network_bits]
    return Cat(number[: parameters.stream_bits], network)


def upper_sum_bits(manifest: Manifest) -> int | None:
    """Bits that the sums of single rows have more than pre-activations, if wider outputs need some."""
    return manifest.sum_bits - manifest.numerics.preactivation.bits or None


def vector_bits(manifest: Manifest) -> int:
    """Width of the address of a word that the array multiplies, in the vector memory or the input's."""
    program = manifest.program
    words = manifest.parameters.streams * program.vector_context
    inputs = 2 * program.input_words if manifest.sequence is None else manifest.sequence.rows
    return row_bits(max(words, inputs))


def region_bits(manifest: Manifest) -> int:
    """Regions that the window tells apart: the last one only where tokens are looked up."""
    return len(Region) if Region.TOKENS in manifest.regions else int(Region.TOKENS)


def input_beats(manifest: Manifest) -> stream.Signature:
    """The stream of a core's input: a step's words, ``beat_in`` at a time, or its token.

    The whole step has the ``stream`` and the ``suppress`` flag (its output is not wanted) of its beats.
    """
    return _beats_of(manifest, manifest.input_port.beat * manifest.input_port.bits)


def row_stream(manifest: Manifest) -> stream.Signature:
    """The stream into the input buffer: that of the port, or the rows of its tokens in its stead."""
    return _beats_of(manifest, manifest.parameters.beat_in * manifest.numerics.input.bits)


def _beats_of(manifest: Manifest, words: int) -> stream.Signature:
    fields = {"data": words, "stream": number_bits(manifest), "suppress": 1}
    if manifest.sequence is not None:
        fields["last"] = 1  # of the sequence's last step
    return stream.Signature(StructLayout(fields))


def as_vector(manifest: Manifest, x: Value) -> Value:
    """Return the words of a beat of input as wide as the array's, which are those of h."""
    bits, wide = manifest.numerics.input.bits, manifest.numerics.data_bits
    if wide == bits:
        return x
    words = (x.word_select(index, bits) for index in range(manifest.parameters.beat_in))
    return Cat(Cat(word, word[-1].replicate(wide - bits)) for word in words)


def output_beats(manifest: Manifest) -> stream.Signature:
    """The stream of a core's output: a step's words, ``beat_out`` at a time."""
    words = manifest.parameters.beat_out * manifest.numerics.output_bits
    fields = {"data": words, "stream": number_bits(manifest), "last": 1}  # last: of the step
    return stream.Signature(StructLayout(fields))


def token_layout(manifest: Manifest) -> StructLayout:
    """One issued word of the array."""
    return StructLayout(
        {
            "valid": 1,
            "last": 1,  # of its row group
            "group_first": 1,  # of its operation
            "group_last": 1,
            "op": row_bits(manifest.capacity.operations),
            "stream": stream_bits(manifest),
            "zero_state": 1,  # the stream's state is zero, whatever the memories hold
            "copy": 1,  # results go to the second copy of the first layer's h
            "suppress": 1,  # the step's output is not wanted
            **(_sum_fields(sums) if (sums := manifest.parameters.lane_sums) else {}),
            **_bubble(manifest),
        }
    )


def _sum_fields(sums: int) -> dict[str, int]:
    """What goes with a word where lanes keep the sums of so many row groups."""
    return {
        "first": 1,  # of its row group, or of what a section has of it
        "keeps": 1,  # its row group's sum stays in the lanes, for another section
        "continues": 1,  # it goes on from the sum of an earlier section
        "sum_row": row_bits(sums),
    }


def _bubble(manifest: Manifest) -> dict[str, int]:
    """A field of what layers do that have no step in a wave-front: nothing is stored or given of it."""
    return {"bubble": 1} if manifest.parameters.wave_front else {}


def beat_layout(manifest: Manifest) -> StructLayout:
    """One beat drained from the array: ``gate_units`` units of an LSTM layer or dense outputs."""
    program, streams = manifest.program, manifest.parameters.streams
    return StructLayout(
        {
            "valid": 1,
            "last": 1,  # of its operation
            "mask": manifest.parameters.gate_units,  # the last beat may have fewer
            "writes_partial": 1,
            "lstm": 1,
            "dense": 1,
            "relu": 1,
            "sigmoid": 1,
            "tanh": 1,
            "emit": 1,
            "store": 1,
            "zero_state": 1,
            "stream": stream_bits(manifest),
            "partial_row": row_bits(program.bias_rows + streams * program.partials_context),
            "cell_row": row_bits(streams * program.cell_context),
            "row": row_bits(streams * program.vector_context),
            "slot": _slot_bits(manifest),
            **_bubble(manifest),
            **manifest.numerics.unit.beat_fields,
        }
    )


def _slot_bits(manifest: Manifest) -> int:
    """Width of a beat's place in a word of the vector memory."""
    return row_bits(manifest.parameters.macs // manifest.parameters.values_stored)


def result_layout(manifest: Manifest) -> StructLayout:
    """Where the new values of a beat, h or dense outputs side by side, go."""
    return StructLayout(
        {
            "valid": 1,
            "last": 1,
            "mask": manifest.parameters.gate_units,
            "emit": 1,
            "store": 1,
            "single": 1,  # of single rows, and not of units
            "stream": stream_bits(manifest),
            "row": row_bits(manifest.parameters.streams * manifest.program.vector_context),
            "slot": _slot_bits(manifest),
            # Which norm reads them, by its index plus 1.
            **{name: bits for name, bits in manifest.numerics.unit.beat_fields.items() if name == "measured"},
        }
    )


def result_words(manifest: Manifest) -> StructLayout:
    """Where the values go that are stored in one cycle: a beat's, or a word of a beat that fills several."""
    members = {name: field.shape for name, field in result_layout(manifest)}
    return StructLayout(members | {"mask": manifest.parameters.values_stored})


class DelayLine:
    """A structure and its past: ``line.at(k)`` is what it was ``k`` cycles ago.

    Only ``valid`` is reset; the other fields mean nothing without it.
    """

    def __init__(self, m: Module, layout: StructLayout, value: ValueLike, name: str, depth: int) -> None:
        stages: list[Struct] = [View(layout, value)]
        for stage in range(1, depth + 1):
            fields = Signal(layout, reset_less=True, name=f"{name}{stage}")
            valid = Signal(name=f"{name}{stage}_valid")
            m.d.sync += [fields.eq(stages[-1]), valid.eq(stages[-1].valid)]
            seen = View(layout, Signal(layout, name=f"{name}{stage}_q"))
            m.d.comb += [seen.eq(fields), seen.valid.eq(valid)]
            stages.append(seen)
        self._stages = stages

    def at(self, stage: int) -> Struct:
        """Return the structure as it was ``stage`` cycles ago."""
        return self._stages[stage]
