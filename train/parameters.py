"""A network's arrays as parameters, and the map from them to the rows of the array's layers.

Lowering and folded input shifts only move, add and scale a network's numbers, by powers of two and halves.
So they are linear, and this map is found by lowering networks of numbered entries: nothing here knows what
kinds of layers there are.

Trained ranges are parameters, too: of the input, the pre-activations, the cell state, and results that have
no bound of 1. Each is a power of two, the next one of a threshold that is trained on the logarithm to the
base 2, with the gradient of Jain et al., "Trained quantization thresholds", arXiv 1903.08066, equations 5 to
8.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import ArrayLayer, lower
from rtlstm.gen.quantise.plan import FormatChoices, Plan, QuantizationSettings, fold_factors
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format
from rtlstm.spec.network import Bidirectional, Lstm, Network

Floats = NDArray[np.float64]
ARRAYS = ("w_in", "w_rec", "bias", "unit_constants")
"""The arrays of an array layer that a network's numbers determine."""

Path = tuple[int, str, str]
"""A network's array: the layer's index, its direction (or an empty text), the field."""

LayerArrays = dict[str, Any]
"""Tensors of an array layer, by the names in :data:`ARRAYS`; those that it has."""


def _records(layer: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(layer, Bidirectional):
        yield from (("forward", layer.forward), ("backward", layer.backward))
    else:
        yield "", layer
    if isinstance(layer, Lstm) and layer.norms is not None:
        yield "norms", layer.norms
        yield from ((f"{name}_norm", norm) for name, norm in layer.norms.each.items())


def _arrays(network: Network) -> dict[Path, Floats]:
    return {
        (index, direction, field): getattr(record, field)
        for index, layer in enumerate(network.layers)
        for direction, record in _records(layer)
        for field in type(record).model_fields
        if isinstance(getattr(record, field), np.ndarray)
        # Zeros that say that h is not read are no numbers to train.
        and (field != "w_hh" or getattr(record, "reads_h", True))
    }


def _with_arrays(network: Network, arrays: Mapping[Path, Floats]) -> Network:
    layers = []
    for index, layer in enumerate(network.layers):
        changed = {}
        for direction, record in _records(layer):
            mine = {path[2]: array for path, array in arrays.items() if path[:2] == (index, direction)}
            changed[direction] = record.replace(**mine) if mine else record
        if isinstance(layer, Lstm) and layer.norms is not None:
            norms = {name: changed.pop(f"{name}_norm") for name in layer.norms.each}
            changed[""] = changed[""].replace(norms=changed.pop("norms").replace(**norms))
        layers.append(layer.replace(**changed) if isinstance(layer, Bidirectional) else changed[""])
    return network.replace(layers=tuple(layers))


@dataclass(frozen=True)
class _Share:
    """What an array of a layer gets from one of the network's: ``factor * source[index]``, flattened."""

    path: Path
    index: NDArray[np.int64]
    factor: Floats
    """0 where nothing comes from this source."""

    @property
    def whole(self) -> bool:
        """Whether the source is taken as it is, or its first values."""
        return bool((self.factor == 1.0).all()) and np.array_equal(self.index, np.arange(len(self.index)))


@dataclass(frozen=True)
class _Lowered:
    """How an array of an array layer is made."""

    constant: Floats
    shares: tuple[_Share, ...]


class NetworkParameters(torch.nn.Module):
    """All arrays of a network as parameters.

    ``network`` is the network with its initial numbers. ``input_factors`` are those of the input features; 1
    if empty. ``normalised`` says whether each row of a matrix of weights is a direction and a length, which
    are trained apart: the row is ``length * direction / norm(direction)`` (weight normalisation, arXiv
    1602.07868).
    """

    def __init__(self, network: Network, input_factors: Sequence[float], normalised: bool = False) -> None:
        super().__init__()
        self._network, self._factors = network, input_factors
        arrays = _arrays(network)
        self.layers = torch.nn.ModuleList(torch.nn.ParameterDict() for _ in network.layers)
        for path, array in arrays.items():
            value = torch.tensor(array, dtype=torch.get_default_dtype())
            self.layers[path[0]][_key(path)] = torch.nn.Parameter(value)
        self._lowered = self._probe(arrays)
        self._maps = torch.nn.ModuleList(_Maps(made) for made in self._lowered)
        for path in self._matrices() if normalised else ():
            direction = self.layers[path[0]][_key(path)].detach()
            lengths = torch.linalg.vector_norm(direction, dim=1, keepdim=True)
            self.layers[path[0]][_lengths_key(path)] = torch.nn.Parameter(lengths)

    def blank(self) -> Network:
        """Return the network with zeros in all its arrays."""
        nothing = {path: np.zeros_like(array) for path, array in _arrays(self._network).items()}
        return _with_arrays(self._network, nothing)

    def lower(self, network: Network) -> tuple[ArrayLayer, ...]:
        """Return the array's layers of a network, whose inputs have factors."""
        return lower(unfold(fold_factors(network, self._factors)))[0]

    def forward(self) -> list[LayerArrays]:
        """Return the arrays of every array layer, as they follow from the parameters."""
        dtype = next(self.parameters()).dtype
        return [maps(self.parameter, dtype) for maps in self._maps]

    def parameter(self, path: Path) -> Any:
        """Return a network's array as it follows from its parameters."""
        mine = self.layers[path[0]]
        value, lengths = mine[_key(path)], mine.get(_lengths_key(path))
        if lengths is None:
            return value
        norms = torch.linalg.vector_norm(value, dim=1, keepdim=True)
        # A row of zeros has no direction: it stays.
        return value * (lengths / torch.where(norms > 0, norms, 1.0))

    def _matrices(self) -> list[Path]:
        """Return the network's arrays whose rows the array multiplies by."""
        products = (made.get(name) for made in self._lowered for name in ("w_in", "w_rec"))
        return sorted({share.path for product in products if product is not None for share in product.shares})

    def trains(self, index: int) -> bool:
        """Whether the rows of an array layer come from the network, and not from its structure."""
        made = self._lowered[index]
        return any(made[name].shares for name in ("w_in", "w_rec") if name in made)

    def raised(self, arrays: Sequence[Mapping[str, Floats]]) -> Network:
        """Return the network that is lowered to these arrays of the array layers.

        A sum of two of the network's numbers is given to the first of them, and 0 to the second.
        """
        found = {path: np.zeros(array.shape).ravel() for path, array in _arrays(self._network).items()}
        for made, mine in zip(self._lowered, arrays, strict=True):
            for name, lowered in made.items():
                rest = np.array(mine[name] - lowered.constant).ravel()
                for share in lowered.shares:
                    some = share.factor != 0
                    found[share.path][share.index[some]] = rest[some] / share.factor[some]
                    rest = np.where(some, 0.0, rest)
        shapes = {path: array.shape for path, array in _arrays(self._network).items()}
        return _with_arrays(self._network, {path: flat.reshape(shapes[path]) for path, flat in found.items()})

    def _probe(self, arrays: Mapping[Path, Floats]) -> list[dict[str, _Lowered]]:
        nothing = {path: np.zeros_like(array) for path, array in arrays.items()}
        blank = self.lower(_with_arrays(self._network, nothing))
        names = [[name for name in ARRAYS if getattr(layer, name) is not None] for layer in blank]
        shares: list[dict[str, list[_Share]]] = [{name: [] for name in mine} for mine in names]
        for path, array in arrays.items():
            numbers = np.arange(1, array.size + 1, dtype=np.float64).reshape(array.shape)
            ones, numbered = (
                self.lower(_with_arrays(self._network, nothing | {path: values}))
                for values in (np.ones_like(array), numbers)
            )
            for layer, mine in enumerate(names):
                for name in mine:
                    constant = getattr(blank[layer], name)
                    factor = (getattr(ones[layer], name) - constant).ravel()
                    if not factor.any():
                        continue
                    scaled = (getattr(numbered[layer], name) - constant).ravel()
                    index = np.where(factor != 0, scaled / np.where(factor != 0, factor, 1.0), 1.0) - 1.0
                    shares[layer][name].append(_Share(path, np.rint(index).astype(np.int64), factor))
        return [
            {name: _Lowered(np.array(getattr(layer, name)), tuple(mine[name])) for name in mine}
            for layer, mine in zip(blank, shares, strict=True)
        ]


def _key(path: Path) -> str:
    _, direction, field = path
    field = "unit_constants" if field == "parameters" else field  # ParameterDict has a method of that name.
    return f"{direction}_{field}" if direction else field


def _lengths_key(path: Path) -> str:
    return f"{_key(path)}_lengths"


class _Maps(torch.nn.Module):
    """The linear maps to the arrays of one array layer."""

    def __init__(self, made: Mapping[str, _Lowered]) -> None:
        super().__init__()
        self._made = made
        for name, lowered in made.items():
            self.register_buffer(f"{name}_constant", torch.tensor(lowered.constant), persistent=False)
            for number, share in enumerate(lowered.shares):
                if not share.whole:
                    index = torch.from_numpy(share.index)
                    self.register_buffer(f"{name}_index_{number}", index, persistent=False)
                    factor = torch.tensor(share.factor)
                    self.register_buffer(f"{name}_factor_{number}", factor, persistent=False)

    def forward(self, parameter: Any, dtype: Any) -> LayerArrays:
        """Return the arrays, in this type of the parameters; ``parameter`` returns that of a path."""
        found = {}
        for name, lowered in self._made.items():
            total = getattr(self, f"{name}_constant")
            for number, share in enumerate(lowered.shares):
                source = parameter(share.path).reshape(-1)
                if share.whole:
                    source = source[: len(share.index)]
                else:
                    factor = getattr(self, f"{name}_factor_{number}").to(source.dtype)
                    source = source[getattr(self, f"{name}_index_{number}")] * factor
                total = total.to(source.dtype) + source.reshape(total.shape)
            found[name] = total.to(dtype)
        return found


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

    ``settings`` and ``choices`` have the ranges that the network begins with.
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
