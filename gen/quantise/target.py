"""The hardware that a network is quantised for: made for it alone, for others, too, or existing."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.quantise.lowering import ArrayLayer
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format
from rtlstm.spec.numerics import Accumulator, LayerShape, Numerics, SumBounds, has_h

FINEST = 10
"""Bits by which a row's scale may be finer than that of its products with the smallest input."""
_MOST_ALIGN, _MOST_BITS, _MOST_PARTIAL_BITS = 32, 48, 50


@dataclass(frozen=True)
class TargetHardware:
    """The target of quantisation; by default hardware for this network alone.

    With ``headroom``, the hardware must also take other networks or weights, whose weights and sums may need
    so many more bits. ``device`` has the formats of an existing device. With ``layers``, that device's
    program is fixed, so it takes weights of these layers alone, in their formats.
    """

    headroom: int | None = None
    device: Numerics | None = None
    layers: tuple[LayerShape, ...] = ()
    finer_arguments: int = 2
    """Bits that sigmoid and tanh read beyond those that they give."""
    wider_hidden: int = 1
    """Bits that h may have beyond inputs of 8: a byte of a block RAM has 9, and factors of 9 bits cost most
    multipliers no more."""
    constant: bool = False
    """Whether weights are constants, whose products are adders."""

    @property
    def shared(self) -> bool:
        """Whether the hardware takes other networks, too."""
        return self.headroom is not None or self.device is not None

    @property
    def fixed(self) -> Numerics | None:
        """The formats of a device with a fixed program, including the input's and its shifts."""
        return self.device if self.layers else None

    def check_layers(self, layers: Sequence[ArrayLayer]) -> None:
        """Check that a network's layers are those of hardware with a fixed program; names do not matter.

        Raises ConfigurationError if they are not.
        """
        if not self.layers:
            return
        there, given = ([describe_layer(layer) for layer in each] for each in (self.layers, layers))
        for number, (ours, theirs) in enumerate(zip_longest(given, there, fillvalue="nothing"), 1):
            if ours != theirs:
                raise ConfigurationError(
                    "the network must have the layers of the device, whose program is fixed, but layer "
                    f"{number} is {ours} and there {theirs}; generate a build of its own for it, or the "
                    "device with `capacities`"
                )

    def constants_format(self, index: int, values: NDArray[np.float64]) -> Format:
        """Return the format that fixed hardware has for a layer's per-unit constants.

        Raises ConfigurationError if they do not fit in it.
        """
        assert self.device is not None
        nodes = self.device.cells[self.layers[index].cell].nodes
        form = next(node.format for node in nodes if node.kind == "parameter")
        if form.saturated(values):
            raise ConfigurationError(
                f"the {'gain and bias' if self.layers[index].kind == 'norm' else 'peepholes'} of layer "
                f"{self.layers[index].name!r} must be within "
                f"+-{form.limit:g}, the range that the device has for them, but they reach "
                f"{float(np.abs(values).max()):g}; generate a build of its own for this network"
            )
        return form

    def check_begin(self, name: str, h: Format, begin: float) -> None:
        """Check that a layer's h on the device holds the states in which sequences begin, up to ``begin``.

        Raises ConfigurationError if it does not.
        """
        if begin > h.limit + h.step:
            raise ConfigurationError(
                f"h of layer {name!r} must be within +-{h.limit:g}, the range that the device has for it, "
                f"but sequences begin with {begin:g}; generate the device with "
                "`calibration_state` that reaches as far, or a build of its own for this network"
            )

    def align(self, needed: int) -> int:
        """Return the common left shift of sums. Raises ConfigurationError if the device's is too small."""
        if self.device is None:
            return min(needed + (self.headroom or 0), _MOST_ALIGN)
        there = self.device.accumulator.align
        if needed > there:
            raise self._lacks(needed - there, "its largest weights need", "")
        return there

    def finest(self, target: int, data_bits: int) -> int:
        """Return the most fraction bits of a row's sums, where what is read next has ``target``."""
        finest = target + data_bits + FINEST
        if self.device is None:
            return finest
        # The device's memory of right shifts limits the shift of every row.
        return min(finest, target - self.device.accumulator.align + (1 << self.device.shift_bits) - 1)

    def coarsest(self, target: int) -> int:
        """Return the least fraction bits of a row's sums, where what is read next has ``target``."""
        return target - (_MOST_ALIGN if self.device is None else self.device.accumulator.align)

    def most_sum(self, data: Format) -> int | None:
        """Return what a row's integers must sum to less than, as magnitudes, for an existing device; see
        :func:`rtlstm.spec.numerics.bound_sums`."""
        if self.device is None:
            return None
        return 1 << (self.device.accumulator.bits - data.bits)

    def accumulator(
        self, needed: SumBounds, align: int, weight_bits: int, layers: Sequence[LayerShape]
    ) -> Accumulator:
        """Return the widths of sums; errors as :meth:`align`."""
        if self.device is not None:
            there = self.device.accumulator
            if clause := needed.lacking(there, layers):
                lacking = max(needed.lane.bits - there.bits, needed.partial.bits - there.partial_bits)
                raise self._lacks(lacking, "its sums need", f": {clause}")
            return there
        widths = needed.widths(align, weight_bits)
        if self.headroom is None:
            return widths
        return widths.replace(
            bits=min(widths.bits + self.headroom, _MOST_BITS),
            partial_bits=min(widths.partial_bits + self.headroom, _MOST_PARTIAL_BITS),
        )

    def shift_bits(self, largest: int, data_bits: int, align: int) -> int:
        """Return the width of a row's right shift; if shared, that of the finest possible row."""
        if self.device is not None:
            return self.device.shift_bits
        return max(1, (data_bits + FINEST + align if self.shared else largest).bit_length())

    def check(self, numerics: Numerics) -> None:
        """Check that these formats are the device's; binary points of inputs may differ.

        Raises ConfigurationError if they are not.
        """
        if self.device is None:
            return
        ours, there = numerics.hardware, self.device.hardware
        if names := [name for name in ours | there if ours.get(name) != there.get(name)]:
            raise self.other_cells(", ".join(names))

    def other_cells(self, what: str, fused: bool = False) -> ConfigurationError:
        """Return the error about what this network has and the device has not.

        ``fused`` says whether a device of plain LSTMs takes it.
        """
        one = "a network of LSTMs with dense layers behind them alone, whose device takes such layers in any"
        return ConfigurationError(
            "the network must have the kinds of cells and functions that the device was built with, in "
            f"the same formats, but its {what} differ; generate a loadable device from a network that has "
            f"them, and give it the same ranges{f', or from {one} order' if fused else ''}"
        )

    def _lacks(self, bits: int, what: str, more: str) -> ConfigurationError:
        larger = "`headroom_bits`" if self.layers else "headroom (`capacities`)"
        unit = "bit" if bits == 1 else "bits"
        return ConfigurationError(
            f"the network must fit the device, but {what} {bits} {unit} more headroom than the device has"
            f"{more}; generate the device again with a larger {larger}, or a build of its own for this "
            "network"
        )


def describe_layer(layer: ArrayLayer | LayerShape) -> str:
    """Describe the properties of a layer that a fixed program depends on."""
    inputs = layer.inputs if isinstance(layer, LayerShape) else layer.w_in.shape[1]
    text = f"{layer.kind} {inputs} -> {layer.outputs}"
    text += f" {layer.activation}" if layer.kind in ("dense", "sum", "product") else ""
    text += " with h of the next layer" if layer.feedback else ""
    text += f" from {layer.skips} layers back" if layer.skips else ""
    text += " without a product with h" if has_h(layer.kind) and not layer.recurrent else ""
    return text + (" behind a ReLU" if layer.input_relu else "")
