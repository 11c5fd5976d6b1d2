"""The array of a build whose size nobody chose: the smallest that is as fast as a large one.

The large one is 4 lanes x 32 multipliers. It is more than a network of few units can use: beyond a word for
each row group more multipliers only lengthen the adder tree. So the sizes below it are tried, by the exact
schedule of the family's pipeline, and the smallest is taken whose steps have no longer latency and no longer
interval. A lane counts as one multiplier more, for its accumulator and its memory.
"""

from collections.abc import Iterator
from math import lcm

from rtlstm.fpga.request import HardwareRequest
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import GENERIC
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.numerics import LayerShape, QuantizedNetwork
from rtlstm.spec.options import option
from rtlstm.spec.parameters import Parameters

__all__ = ["ArrayRequest", "choose_array"]

_LANES, _MACS = 4, 32
"""The array that a smaller one must be as fast as, for each gate unit."""
_STEPS = 50
"""Steps of the sequences by which arrays are compared, if the network takes whole ones."""


class ArrayRequest(HardwareRequest):
    """What was chosen about an array of a family's multipliers and memories."""

    def check(self) -> None:
        """Check what was chosen, whatever the rest will be.

        Raises
        ------
        ConfigurationError
            If it cannot be built.
        """
        if self.multipliers == "auto":
            raise ConfigurationError(
                f"{option('multipliers', 'auto')} makes of LUTs what a device lacks, so it needs one to fit: "
                f"give {option('fit')}, or dsp, lut or a number"
            )
        self.largest()

    @property
    def multiple(self) -> int:
        """Of which the multipliers per lane are."""
        return lcm(self.gate_units or 1, self.beat_in)

    def largest(self) -> Parameters:
        """Return the array with the default's sizes in the place of those that were not chosen."""
        macs = -(-max(_MACS, self.lut_macs or 0) // self.multiple) * self.multiple
        return self.parameters(self.lanes or _LANES * (self.gate_units or 1), self.macs or macs)

    def parameters(self, lanes: int, macs: int) -> Parameters:
        """Return the parameters of an array of this size."""
        units = self.gate_units or 1
        return Parameters.for_family(
            self.family or GENERIC,
            lanes=lanes,
            macs=macs,
            gate_units=units,
            lut_macs=macs if self.all_lut else self.lut_macs or 0,
            weight_memory=self.weight_memory or "block",
            beat_out=self.beat_out or units,
            **self.core_options,
        )


def choose_array(network: QuantizedNetwork, request: ArrayRequest) -> Parameters:
    """Choose lanes and multipliers for a network, as far as the request leaves them open.

    Raises
    ------
    ConfigurationError
        If what was chosen cannot be built.
    """
    large = request.largest()
    if request.lanes and request.macs:
        return large
    latency, interval = _speed(network, large)
    smaller = sorted(
        _smaller(network.shapes, request, large), key=lambda size: (size[0] * (size[1] + 1), size[0])
    )
    for lanes, macs in smaller:
        if _words(network.shapes, lanes, macs) > interval:
            continue
        found = request.parameters(lanes, macs)
        its_latency, its_interval = _speed(network, found)
        if its_latency <= latency and its_interval <= interval:
            return found
    return large


def _smaller(
    shapes: tuple[LayerShape, ...], request: ArrayRequest, large: Parameters
) -> Iterator[tuple[int, int]]:
    """Yield lanes and multipliers of the smaller arrays: the fewest for each number of groups and words."""
    cost = large.lanes * (large.macs + 1)
    lengths = {shape.inputs for shape in shapes} | {shape.outputs for shape in shapes if shape.recurrent}
    rows = {shape.rows for shape in shapes}
    all_lanes = [request.lanes] if request.lanes else _sizes(rows, 4 * (request.gate_units or 1))
    all_macs = [request.macs] if request.macs else _sizes(lengths, request.multiple)
    for lanes in all_lanes:
        for macs in all_macs:
            if lanes * (macs + 1) < cost and macs >= (request.lut_macs or 0):
                yield lanes, macs


def _sizes(values: set[int], multiple: int) -> list[int]:
    """The least sizes of the parts that values can be cut into, each for another number of parts."""
    parts = {-(-value // count) for value in values for count in range(1, value + 1)}
    return sorted({-(-part // multiple) * multiple for part in parts})


def _words(shapes: tuple[LayerShape, ...], lanes: int, macs: int) -> int:
    """Words of the array in a step: it takes no fewer cycles."""
    total = 0
    for shape in shapes:
        columns = -(-shape.inputs // macs) + (-(-shape.outputs // macs) if shape.recurrent else 0)
        total += -(-shape.rows // lanes) * columns
    return total


def _speed(network: QuantizedNetwork, parameters: Parameters) -> tuple[int, int]:
    """Latency and interval of a step, or of a sequence, in cycles."""
    if network.passes and parameters.max_steps is not None:
        # Longer ones differ by steps that all take the same.
        parameters = parameters.replace(max_steps=min(parameters.max_steps, _STEPS))
    cycles = Manifest.create("size", network.shapes, parameters, network.numerics, network.passes).cycles
    return cycles.step_latency_cycles, cycles.step_interval_cycles
