"""Errors of a network with one width changed: quantised anew, and run through the golden model."""

from collections.abc import Callable, Iterator

import numpy as np

from rtlstm.gen.accuracy.records import WidthErrors
from rtlstm.gen.accuracy.samples import Floats, Samples
from rtlstm.gen.quantise.quantiser import QuantizationSettings, requantise
from rtlstm.sim.golden import Golden
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.parameters import Tables

__all__ = ["build_settings", "changeable_widths", "fixed_outputs", "measure_widths", "same_integers"]

_CHANGES = (1, -1)


def build_settings(network: QuantizedNetwork, tables: Tables) -> QuantizationSettings:
    """Return the widths of a quantised network, as settings."""
    numerics = network.numerics
    weights, dense = numerics.own_weight_bits or (numerics.weight_bits, None)
    return QuantizationSettings(
        weight_bits=weights,
        dense_weight_bits=dense,
        data_bits=numerics.data_bits,
        output_bits=numerics.own_output_bits,
        gate_bits=numerics.gate.bits,
        cell_bits=numerics.cell.bits,
        hidden_rounding=numerics.hidden_rounding,
        tables=tables,
    )


def fixed_outputs(network: QuantizedNetwork, samples: Samples) -> Floats:
    """Return the golden model's outputs as real values, ``(T, N, outputs)``."""
    codes = network.numerics.quantise_input(samples.x)
    found = Golden(network).run(codes, None, samples.lengths)
    return network.shapes[-1].output.to_floats(found.y)


def same_integers(one: QuantizedNetwork, other: QuantizedNetwork) -> bool:
    """Whether two networks have the same formats of layers and the same weights."""
    if [shape.output for shape in one.shapes] != [shape.output for shape in other.shapes]:
        return False
    pairs = zip(one.layers, other.layers, strict=True)
    return all(
        np.array_equal(np.asarray(getattr(a, name)), np.asarray(getattr(b, name)))
        for a, b in pairs
        for name in vars(a)
        if not name.startswith("shift")
    )


def measure_widths(
    model: Network,
    network: QuantizedNetwork,
    settings: QuantizationSettings,
    samples: Samples,
    exact: Floats,
    begin: Callable[[], None],
) -> Iterator[WidthErrors]:
    """Change each width by a bit, over the ranges of the quantised network.

    Parameters
    ----------
    exact
        The float outputs, ``(T, N, outputs)``.
    begin
        Called before each change.
    """
    for name in changeable_widths(network, settings):
        now = getattr(settings, name)
        for change in _CHANGES:
            begin()
            try:
                wider = _quantise_with(model, network, settings, name, now + change)
            except ConfigurationError as refused:
                yield WidthErrors(
                    option=name,
                    bits=now + change,
                    change=change,
                    rms_error=None,
                    max_abs_error=None,
                    refusal=str(refused),
                )
                continue
            error = (fixed_outputs(wider, samples) - exact)[samples.alive]
            yield WidthErrors(
                option=name,
                bits=now + change,
                change=change,
                rms_error=float(f"{np.sqrt(np.mean(error**2)):.5g}"),
                max_abs_error=float(f"{np.abs(error).max():.5g}"),
            )


def changeable_widths(network: QuantizedNetwork, settings: QuantizationSettings) -> list[str]:
    """Return the widths that matter to a network."""
    names = ["weight_bits", "data_bits"]
    if settings.dense_weight_bits is not None:
        names.append("dense_weight_bits")
    if settings.output_bits is not None:
        names.append("output_bits")
    numerics = network.numerics
    graphs = [numerics.cells[shape.cell] for shape in network.shapes]
    if any(node.kind in ("table", "pieces") for graph in graphs for node in graph.nodes):
        names.append("gate_bits")
    if any(graph.state is not None for graph in graphs):
        names.append("cell_bits")
    return names


def _quantise_with(
    model: Network, network: QuantizedNetwork, settings: QuantizationSettings, name: str, bits: int
) -> QuantizedNetwork:
    """Quantise with another width; gates are at least as wide as data and outputs."""
    changed = settings.replace(**{name: bits})
    least = max(changed.data_bits, changed.output_bits or 0)
    if name != "gate_bits" and changed.gate_bits is not None:
        changed = changed.replace(gate_bits=max(changed.gate_bits, least))
    return requantise(model, changed, network)
