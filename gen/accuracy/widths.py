"""Errors of a network with one width changed: quantised anew, and run through the golden model."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rtlstm.gen.accuracy.records import WidthErrors
from rtlstm.gen.accuracy.samples import Floats, Samples
from rtlstm.gen.quantise.format_request import FormatRequest
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.sim.golden import Golden
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork

_CHANGES = (1, -1)


def fixed_outputs(network: QuantizedNetwork, samples: Samples) -> Floats:
    """Return the golden model's outputs as real values, ``(T, N, outputs)``."""
    codes = network.numerics.quantise_input(samples.x)
    found = Golden(network).run(codes, None, samples.lengths)
    return network.shapes[-1].output.to_floats(found.y)


def measure_widths(
    model: Network,
    network: QuantizedNetwork,
    request: FormatRequest,
    samples: Samples,
    exact: Floats,
    begin: Callable[[], None],
) -> Iterator[WidthErrors]:
    """Change each width by a bit, as ``generate`` does it with the options that are named.

    The range of c is not searched anew but stated: else a bit more could widen the range, and gain nothing.

    Parameters
    ----------
    request
        What the network's formats were chosen from.
    exact
        The float outputs, ``(T, N, outputs)``.
    begin
        Called before each change.
    """
    kept, less = _kept_range(model, network, request)
    for name in changeable_widths(network, request.settings):
        for change in _CHANGES:
            begin()
            bits = _bits(network, request.settings, name) + change
            also = _wider_gates(request.settings, name, bits) | kept
            about: dict[str, Any] = {
                "option": name, "bits": bits, "change": change, "also": also, "less": less,
            }  # fmt: skip
            try:
                changes = {name: bits, **also, **dict.fromkeys(less)}
                wider = request.replace(settings=request.settings.replace(**changes)).quantise(model)
            except ConfigurationError as refused:
                yield WidthErrors(**about, rms_error=None, max_abs_error=None, refusal=str(refused))
                continue
            error = (fixed_outputs(wider, samples) - exact)[samples.alive]
            yield WidthErrors(
                **about,
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


def _bits(network: QuantizedNetwork, settings: QuantizationSettings, name: str) -> int:
    bits: int | None = getattr(settings, name)
    return network.numerics.gate.bits if bits is None else bits


def _wider_gates(settings: QuantizationSettings, name: str, bits: int) -> dict[str, int | float]:
    """Return wider gates where stated ones are too narrow for data or outputs of so many bits."""
    if name not in ("data_bits", "output_bits") or settings.gate_bits is None or settings.gate_bits >= bits:
        return {}
    return {"gate_bits": bits}


def _kept_range(
    model: Network, network: QuantizedNetwork, request: FormatRequest
) -> tuple[dict[str, int | float], tuple[str, ...]]:
    """Return the option that states the range of c that was searched, and the one that goes without it."""
    if not request.searches(model):
        return {}, ()
    cell = network.numerics.cell
    searched = {"cell_range": 2.0 ** (cell.bits - 1 - cell.fraction)}
    return searched, () if request.settings.final_states is None else ("final_states",)
