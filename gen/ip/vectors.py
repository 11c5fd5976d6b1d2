"""What the testbench of a build sends and expects: steps of the golden model, with the cycle of each."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.golden import Golden
from rtlstm.sim.simulated_ports import PortSpec, pack_beats
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import QuantizedNetwork

__all__ = ["Vectors"]

_STEPS = 4
_STREAMS = 2


@dataclass(frozen=True)
class Vectors:
    """Steps in the order in which they are sent, back to back after a reset; ``K`` in all."""

    streams: IntArray
    """Stream of each step, ``(K,)``."""
    ends: NDArray[np.bool_]
    """Which steps are the last of a sequence, ``(K,)``; for builds of whole sequences, else none."""
    x: IntArray
    """Codes, ``(K, inputs)``."""
    y: IntArray
    """What the golden model computes, ``(K, outputs)``, with zeros where the core gives zeros."""
    offered: tuple[int, ...]
    """Cycles from the first input beat to the last output beat of each step, by the schedule."""

    @classmethod
    def create(cls, network: QuantizedNetwork, manifest: Manifest) -> Self:
        """Draw inputs over the whole range, the same for the same build, and compute the rest.

        Four steps on each of two streams in turn, or on one if there is no second; of a build for whole
        sequences one sequence of each, shorter if the build takes no such length.
        """
        count = min(_STREAMS, manifest.parameters.streams)
        whole = manifest.sequence is not None
        steps = min(_STEPS, manifest.parameters.max_steps or _STEPS) if whole else _STEPS
        most = manifest.numerics.input.maximum
        shape = (steps, count, manifest.program.inputs)
        x = np.random.default_rng(0).integers(-most, most, shape, endpoint=True)
        y = np.zeros((steps, count, manifest.program.outputs), dtype=np.int64)
        y[:, :, manifest.schedule.output_index] = Golden(network).run(x).y
        streams = np.tile(np.arange(count), (steps, 1))
        ends = np.zeros((steps, count), dtype=bool)
        if whole:
            # The steps of a sequence follow each other.
            x, y, streams, ends = x.swapaxes(0, 1), y.swapaxes(0, 1), streams.T, ends.T
            ends[:, -1] = True
        flat, marks = streams.reshape(-1), ends.reshape(-1)
        offered = tuple(manifest.schedule.offered(flat, marks))
        total = len(flat)
        return cls(flat, marks, x.reshape(total, -1), y.reshape(total, -1), offered)

    def to_hex(self, ports: PortSpec) -> str:
        """Return the text of a file for ``$readmemh``, a line per word.

        Of each step: stream, 1 at a sequence's end, cycle of the last output beat, beats of x, beats of y.
        """
        x = _beats(self.x, ports.beats_in, ports.beat_in, ports.data_bits)
        y = _beats(self.y, ports.beats_out, ports.beat_out, ports.y_bits)
        lines = []
        for step, cycle in enumerate(self.offered):
            lines += [
                f"// step {step}: stream, end of a sequence, cycle of its last output beat",
                f"{self.streams[step]:x} {int(self.ends[step]):x} {cycle:x}",
                "// x",
                *x[step],
                "// y",
                *y[step],
            ]
        return "\n".join([*lines, ""])


def _beats(words: IntArray, beats: int, beat: int, bits: int) -> list[list[str]]:
    """Each step's words as hexadecimal beats; what is missing in the last beat is 0."""
    padded = np.zeros((len(words), beats * beat), dtype=np.int64)
    padded[:, : words.shape[1]] = words & ((1 << bits) - 1)
    flat = pack_beats(padded.reshape(-1, beat), bits)
    return [flat[first : first + beats] for first in range(0, len(flat), beats)]
