"""The magnitudes that a network's formats are to hold: bounded by its weights, or met in float runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.reading import directions_of
from rtlstm.gen.quantise.calibration import Calibration, fixed_outputs, repeat_state, run_reference
from rtlstm.gen.quantise.directions import Product, unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.sim.reference import FloatResult, FloatState
from rtlstm.spec.cells.description import DEFAULT_CELL_RANGE
from rtlstm.spec.cells.graph import CellGraph
from rtlstm.spec.network import Bidirectional, Custom, Lstm, Network, StatelessLayer, keeps_cell_state
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.program.passes import feeds
from rtlstm.spec.record import Record

MARGIN = 1.25
"""Factor from the largest calibrated magnitude to the one that a format must hold."""
_SATURATED = 2 / 3
"""Share of a range at which c saturates in the float network's trial."""
_GAIN = 1.25
"""A range is taken if its error is at most this multiple of the smallest one."""
_STEPS = 2048
_WORK = 100_000_000
"""Steps that each trial may always run, and multiplications that it may take if it runs more."""


@dataclass(frozen=True)
class Ranges:
    """Magnitudes that formats are to hold."""

    preactivation: float
    layers: tuple[float, ...]
    """Largest magnitude of each array layer's results."""
    begins: tuple[float, ...] = ()
    """Largest magnitude of the h in which sequences begin, of each array layer whose results are h or a share
    of it, 0 of others; empty if all begin with zeros."""

    def begin(self, index: int) -> float:
        """Return an array layer's of ``begins``."""
        return self.begins[index] if self.begins else 0.0

    def joined(self, other: "Ranges") -> "Ranges":
        """Return ranges that hold those of both, which begin in the same states."""
        layers = tuple(map(max, self.layers, other.layers))
        return replace(self, preactivation=max(self.preactivation, other.preactivation), layers=layers)


InputFit = Literal["powers of two", "balanced", "full"]
"""Factors of input features: powers of two or any numbers for which the rounding of features and of their
weights cost as much, or such that each feature fills its format."""


class Candidate(Record):
    """What the formulas leave open, and what they begin with."""

    cancelling: bool = False
    """Whether weights are rounded so that the changes of a row cancel, instead of each to the nearest."""
    input_fit: InputFit = "powers of two"
    """How factors equalise the input features."""
    factor_share: float = 1.0
    """Share of the exponents of these factors."""
    zero_points: bool = False
    """Whether the codes of features whose values are uneven around zero are moved to the middle of these."""
    input_share: float = 1.0
    """Share of the largest input that the input's format holds."""
    result_share: float = 1.0
    """Share of the ranges of unbounded results that their formats hold."""
    cells_apart: bool = False
    """Whether each layer's c has a range of its own."""
    cell_share: float = 1.0
    """Share of the range of c that its format holds."""
    more_cell_bits: int = 0
    """Bits of c beyond those that its range asks for."""
    more_gate_bits: int = 0
    """Bits of gates beyond those that the data ask for."""
    more_hidden_bits: int = 0
    """Bits of h beyond those of the data, where the hardware has them for nothing."""
    hidden_share: float = 0.0
    """Share of the range of each layer's h that its format holds, of the fused LSTM gate unit; 0 if all hold
    numbers up to 1, as every h is."""
    preactivation_share: float = 1.0
    """Share of the pre-activations' range that their format holds."""
    fewer_terms: bool = False
    """Whether the longest rows of weights for h lose signed digits, where these are terms of adders."""


FORMULAS = Candidate()


def largest_begins(states: Sequence[FloatState]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest magnitude of each layer's h, and of each c, in which sequences begin."""
    h, c = (
        np.max([[np.abs(layer).max(initial=0.0) for layer in state[part]] for state in states], axis=0)
        for part in range(2)
    )
    return h, c


def begin_ranges(network: Network, states: Sequence[FloatState]) -> tuple[float, ...]:
    """Return ``begins`` of a network's :class:`Ranges`."""
    if not states:
        return ()
    unfolded = unfold(network)
    given = iter(largest_begins(states)[0].tolist())
    h = [0.0 if isinstance(layer, StatelessLayer | Product) else next(given) for layer in unfolded.layers]
    found: list[float] = []
    ends: dict[int, float] = {}
    for layer in lower(unfolded)[0]:
        if isinstance(unfolded.layers[layer.origin], Product):
            mine = max(1.0, ends[layer.origin - 2]) * max(1.0, ends[layer.origin - 1])
        else:
            is_h = layer.origin >= 0 and not layer.projected and layer.range_of in ("output", "inner")
            mine = h[layer.origin] if is_h else 0.0
        ends[layer.origin] = mine
        found.append(mine)
    return tuple(found)


def bound_ranges(network: Network, input_range: float, begins: tuple[float, ...] = ()) -> Ranges:
    """Return bounds of the pre-activations and of each layer's output, from the weights alone."""
    preactivation = 0.0
    results: list[float] = []
    layers, passes = lower(unfold(network))
    for index, layer in enumerate(layers):
        max_abs = max((results[before] for before in feeds(passes, index, layer.before)), default=input_range)
        total = np.abs(layer.w_in).sum(axis=1) * max_abs + np.abs(layer.bias)
        if layer.w_rec is not None:
            total = total + np.abs(layer.w_rec).sum(axis=1) * max(1.0, begins[index] if begins else 0.0)
        if not layer.linear:
            preactivation = max(preactivation, float(total.max()))
        results.append(1.0 if layer.within_one else float(total.max()))
    return Ranges(preactivation, tuple(results), begins)


def measure_ranges(network: Network, reference: FloatResult, begins: tuple[float, ...] = ()) -> Ranges:
    """Return the ranges of a float run, and a quarter more."""
    results, preactivation = [], 0.0
    unfolded = unfold(network)
    for layer in lower(unfolded)[0]:
        if layer.copies:
            results.append(0.0)
            continue
        found = unfolded.measured_range(reference, layer.origin)
        results.append(MARGIN * getattr(found, layer.range_of))
        if not layer.linear:
            preactivation = max(preactivation, MARGIN * found.preactivation)
    return Ranges(preactivation, tuple(results), begins)


def guess_ranges(network: Network, input_range: float, begin: FloatState | None = None) -> Ranges:
    """Return the ranges of a run on random inputs, twice, where weights alone give no bound.

    ``begin`` is the state in which the sequences begin, ``(units,)`` per layer; zeros if None.
    """
    x = np.random.default_rng(0).uniform(-input_range, input_range, (64, 16, network.inputs))
    data = Calibration.of(network, x, state=repeat_state(begin, x.shape[1]))
    found = measure_ranges(network, run_reference(network, data))
    begins = begin_ranges(network, () if begin is None else (begin,))
    return Ranges(2 * found.preactivation, tuple(2 * max_abs for max_abs in found.layers), begins)


def choice_limits(network: Network, data: Calibration | None, least: float) -> tuple[float, ...]:
    """Return within which magnitude the units of each layer choose among formulas; empty if none do.

    It is a power of two that holds what the data reach, and at least ``least`` and 16.
    """
    choosing = _choosing(network)
    if not any(choosing):
        return ()
    met = [0.0] * len(choosing)
    if data is not None:
        found = run_reference(network, data).layer_ranges
        met = [max(max(one.cell, one.output) for one in each) for each in found]
    return tuple(
        power_of_two(max(DEFAULT_CELL_RANGE, least, MARGIN * each)) if chooses else 1.0
        for each, chooses in zip(met, choosing, strict=True)
    )


def device_limits(network: Network, cells: Sequence[CellGraph]) -> list[tuple[float, ...]]:
    """Return what :func:`choice_limits` may have been for a device with these cells."""
    choosing = _choosing(network)
    if not any(choosing):
        return [()]
    return list(product(*(limits_there(cells) if chooses else [1.0] for chooses in choosing)))


def limits_there(cells: Sequence[CellGraph]) -> list[float]:
    """Return within which magnitudes units may choose among formulas in cells: what these clamp to, or
    constants if they clamp nothing."""
    nodes = [(node.kind, abs(node.value) * node.format.step) for graph in cells for node in graph.nodes]
    met = [{size for kind, size in nodes if kind == wanted} for wanted in ("clamp", "constant")]
    there = [sorted(s for s in sizes if s == max(power_of_two(s), DEFAULT_CELL_RANGE)) for sizes in met]
    # Where nothing is beyond a layer's limit, nothing is clamped to it: most likely that is the least.
    return list(dict.fromkeys([*(there[0] or there[1]), DEFAULT_CELL_RANGE]))


def choosing_within(network: Network, limits: Sequence[float]) -> Network:
    """Return a network whose layers' units choose among formulas within these limits; empty for 16 each."""

    def changed(layer: Any, limit: float) -> Any:
        if isinstance(layer, Bidirectional):
            both = {name: changed(getattr(layer, name), limit) for name in ("forward", "backward")}
            return layer.replace(**both)
        return layer.replace(cell=layer.cell.choosing_within(limit)) if _chooses(layer) else layer

    if not any(_choosing(network)):
        return network
    limits = limits or (DEFAULT_CELL_RANGE,) * len(network.layers)
    return network.replace(layers=tuple(map(changed, network.layers, limits)))


def _choosing(network: Network) -> list[bool]:
    """Return of which layers the units choose among formulas."""
    return [any(map(_chooses, directions_of(layer))) for layer in network.layers]


def _chooses(layer: Any) -> bool:
    return isinstance(layer, Custom) and layer.cell.chooses


def power_of_two(magnitude: float) -> float:
    """Return the least power of two that is at least ``magnitude``; 1 for 0."""
    return float(2.0 ** np.ceil(np.log2(magnitude))) if magnitude > 0 else 1.0


def states_leave(network: Network, asked: bool | None) -> bool:
    """Whether final states are results like y: as ``asked``, else if no dense layer is the last one."""
    return not isinstance(network.layers[-1], StatelessLayer) if asked is None else asked


def _bound(network: Network) -> float:
    """Return the magnitude to which the network itself clips c; infinite if it does not."""
    kept = [layer for layer in network.pseudo_layers if keeps_cell_state(layer)]
    clips = [layer.cell_clip if isinstance(layer, Lstm) else None for layer in kept]
    return max((math.inf if clip is None else clip for clip in clips), default=math.inf)


def search_sample(network: Network, data: Calibration) -> Calibration:
    """Return the sequences that the search runs: all, or a sample if all would take too long."""
    return data.sample(max(_STEPS, _WORK // (network.weight_count or 1)))


def search_cell_range(
    network: Network,
    data: Calibration,
    reference: FloatResult,
    leave: bool,
    begin: float,
    build: Callable[[float], QuantizedNetwork],
    limit: float,
) -> float:
    """Try powers of two as ranges of c; return the widest one whose error is about the smallest.

    In a wide range c is rounded coarsely, in a narrow one it saturates. Rounding has the same effect on any
    data, but saturation only where c reaches the limit, and other data may have a larger c than those of the
    calibration. So two errors judge a range: that of the golden model with it, and that of the float network
    whose c saturates at two thirds of it. The latter covers data whose c is half as large again.

    A sample is run of ``data``, which ``reference`` is the result of. If final states are results, too
    (``leave``), the range holds them with a quarter more, as it always holds the initial states, whose
    largest c is ``begin``. ``build`` quantises with a range; ``limit`` is the largest that may be taken.
    """
    if not any(map(keeps_cell_state, network.pseudo_layers)):
        return 1.0
    some = search_sample(network, data)
    wanted = reference.y if some is data else run_reference(network, some).y
    most = _bound(network)
    held = max([begin, *(float(np.abs(c).max(initial=0.0)) for c in (reference.c if leave else ()))])
    least = min(power_of_two(max(min(MARGIN * held, most), 1.0)), limit)
    max_abs = min(power_of_two(max(min(2.0 * reference.cell, most), least)), limit)
    errors: dict[float, float] = {}
    # When one range is far worse than the best, narrower ones are worse still.
    while max_abs >= least and (not errors or errors[2 * max_abs] <= 4 * min(errors.values())):
        rounded = fixed_outputs(build(max_abs), some)
        saturated = run_reference(network, some, max_abs if max_abs >= most else _SATURATED * max_abs).y
        errors[max_abs] = max(float(np.abs(y - wanted).max()) for y in (rounded, saturated))
        max_abs /= 2
    return max(max_abs for max_abs, error in errors.items() if error <= _GAIN * min(errors.values()))
