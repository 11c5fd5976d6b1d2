"""Trained ranges: of the input, the pre-activations, the cell state, and results that have no bound of 1.

Each is a power of two, the next one of a threshold that is trained on the logarithm to the base 2, with the
gradient of Jain et al., "Trained quantization thresholds", arXiv 1903.08066, equations 5 to 8.
"""

from dataclasses import replace
from typing import Any

import torch

from rtlstm.gen.quantise.plan import FormatChoices, Plan, QuantizationSettings
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format
from rtlstm.spec.network import Network

_REACH = 8
"""The most powers of two that a range goes from its first one."""

Range = str | int | tuple[int, ...]
"""``input`` or ``preactivation``; an array layer, for its c; or the layers whose results have one format."""

RangeTensors = dict[str | int, Any]
"""Logarithms of the ranges, those of results by their layer, and those of c by :func:`cell_name`."""


def cell_name(layer: int) -> str:
    """Return what the range of an array layer's c is called."""
    return f"cell {layer}"


class TrainedRanges(torch.nn.Module):
    """The logarithms of a network's ranges that its hardware can have otherwise.

    Parameters
    ----------
    network, settings, choices
        The network, and the ranges that it begins with.
    """

    bounds: Any
    """The least and the largest power of two of each range, ``(ranges, 2)``."""

    def __init__(self, network: Network, settings: QuantizationSettings, choices: FormatChoices) -> None:
        super().__init__()
        self._network, self._settings = network, settings
        first = self._formats(choices)
        cells = [index for index, layer in enumerate(first.layers) if layer.state == "cell"]
        names: list[Range] = ["input", "preactivation", *cells, *first.together]
        if first.linear:
            names.remove("preactivation")
        bounds = {name: self._bounds(choices, name) for name in names}
        self.names = tuple(name for name, (low, high) in bounds.items() if low < high)
        self.register_buffer("bounds", torch.tensor([bounds[name] for name in self.names]).reshape(-1, 2))
        # In the middle of a power of two, a range is as far from the next one as from the one before.
        begin = torch.tensor(self.of(choices), dtype=torch.get_default_dtype()) - 0.5
        self.log_ranges = torch.nn.Parameter(begin)

    def _bounds(self, choices: FormatChoices, name: Range) -> tuple[int, int]:
        """Return the least and the largest power of two that the formats follow."""
        begin = _exponent(self._formats(choices), name)
        found = []
        for step in (-1, 1):
            last = begin
            for exponent in range(begin + step, begin + step * (_REACH + 1), step):
                try:
                    there = _exponent(self._formats(_with(choices, name, exponent)), name)
                except ConfigurationError:
                    break
                if there != exponent:
                    break
                last = exponent
            found.append(last)
        return found[0], found[1]

    def _formats(self, choices: FormatChoices) -> Plan:
        return Plan(self._network, self._settings, choices)

    def of(self, choices: FormatChoices) -> list[int]:
        """Return the powers of two that the formats have now."""
        formats = self._formats(choices)
        return [_exponent(formats, name) for name in self.names]

    def wanted(self) -> list[int]:
        """Return the powers of two that the logarithms ask for; NaN counts as 0."""
        low, high = self.bounds.unbind(dim=1)
        asked = torch.ceil(self.log_ranges.detach().double().nan_to_num()).long()
        return [int(each) for each in torch.minimum(torch.maximum(asked, low), high)]

    def moved(self, choices: FormatChoices, now: list[int], wanted: list[int]) -> FormatChoices:
        """Return the choices with the ranges changed that differ."""
        for name, before, after in zip(self.names, now, wanted, strict=True):
            if after != before:
                choices = _with(choices, name, after)
        return choices

    def keep(self, number: int, now: int, wanted: int) -> None:
        """Do not go from ``now`` to ``wanted`` with a range, nor beyond: the hardware does not take that."""
        self.bounds[number, int(wanted > now)] = now

    def forward(self) -> RangeTensors:
        """Return the logarithms, by what they are of."""
        found: RangeTensors = {}
        for name, value in zip(self.names, self.log_ranges, strict=True):
            if isinstance(name, tuple):
                found |= dict.fromkeys(name, value)
            else:
                found[name if isinstance(name, str) else cell_name(name)] = value
        return found


def _exponent(formats: Plan, name: Range) -> int:
    if isinstance(name, int):
        return exponent(formats.cells[name])
    return exponent(getattr(formats, name) if isinstance(name, str) else formats.outputs[name[0]])


def exponent(form: Format) -> int:
    """Return the power of two at which a format saturates."""
    return form.bits - 1 - form.fraction


def _with(choices: FormatChoices, name: Range, power: int) -> FormatChoices:
    """Return the choices with another range: a magnitude whose formats end at this power of two."""
    magnitude = 0.75 * 2.0**power
    if name == "input":
        return replace(choices, input_range=magnitude)
    if isinstance(name, int):
        cells = tuple(magnitude if index == name else old for index, old in enumerate(choices.cell_ranges))
        return replace(choices, cell_ranges=cells)
    ranges = choices.ranges
    if name == "preactivation":
        return replace(choices, ranges=replace(ranges, preactivation=magnitude))
    layers = tuple(magnitude if index in name else old for index, old in enumerate(ranges.layers))
    return replace(choices, ranges=replace(ranges, layers=layers))
