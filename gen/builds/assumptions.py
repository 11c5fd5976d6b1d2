"""What a build assumes of its inputs and its network, in the words of its report."""

from collections.abc import Iterator

import numpy as np

from rtlstm.gen.builds.loadable import formats_note
from rtlstm.gen.quantise.accuracy import Accuracy
from rtlstm.gen.quantise.calibration import Calibration, keeps_cell_state
from rtlstm.gen.quantise.cell_range import search_sample, states_leave
from rtlstm.gen.quantise.directions import unfold
from rtlstm.gen.quantise.lowering import lower
from rtlstm.gen.quantise.quantiser import DEFAULT_CELL_RANGE, DEFAULT_INPUT_RANGE, QuantizationSettings
from rtlstm.spec.fixed import Format
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import LINEAR, Dense, Network

__all__ = ["list_assumptions"]


def list_assumptions(
    network: Network,
    settings: QuantizationSettings,
    calibration: Calibration | None,
    manifest: Manifest,
    accuracy: Accuracy,
    loaded: bool,
) -> tuple[str, ...]:
    """Return what was assumed, and what to do where that does not hold: a sentence each."""
    sequences = tuple(_whole_sequences(manifest))
    if loaded:
        return (
            *sequences,
            _loaded(manifest),
            *_cut_states(manifest, accuracy, "generate that hardware with a larger cell range"),
        )
    sequences += tuple(_wide_states(network, manifest))
    if calibration is None:
        return (*sequences, *_uncalibrated(network, settings, manifest))
    searched = settings.cell_range is None
    asked = "generate with `final_states=True`" if searched else "choose a larger cell range"
    found = [
        "the calibration data are typical: pre-activations and linear outputs have the largest values met "
        "and a quarter more"
    ]
    if searched and any(map(keeps_cell_state, network.pseudo_layers)):
        found.append(_searched(network, settings, calibration, manifest, accuracy))
    return (
        *sequences,
        *found,
        *_untypical(network, calibration),
        *_offset_inputs(settings, calibration),
        *_cut_states(manifest, accuracy, asked),
    )


def _whole_sequences(manifest: Manifest) -> Iterator[str]:
    """Say what latency and interval are of a network that takes whole sequences."""
    if manifest.sequence is not None:
        yield (
            "the core takes whole sequences: its step latency is that of the longest one, of "
            f"{manifest.sequence.steps} steps, from its last input to its last output; the step interval is "
            "what a step more takes where sequences follow one another, its input included"
        )


def _wide_states(network: Network, manifest: Manifest) -> Iterator[str]:
    """Say which layers have fewer fraction bits of h, so that it holds the states that sequences begin in."""
    pairs = zip(lower(unfold(network))[0], manifest.layers, strict=True)
    wide = [shape for layer, shape in pairs if layer.in_format_of_h and shape.output.limit > 1.0]
    if wide:
        yield (
            f"h of {', '.join(dict.fromkeys(shape.name for shape in wide))} reaches "
            f"{_limit(min((shape.output for shape in wide), key=lambda form: form.fraction))}, to hold the "
            "states in which sequences begin: beyond +-1, each doubling takes a bit of its fraction"
        )


def _untypical(network: Network, calibration: Calibration) -> Iterator[str]:
    """Say why calibration data are unlikely to be typical."""
    if not calibration.x.any():
        yield (
            "all calibration data are 0, so ranges follow from initial states and biases alone: give typical "
            "inputs"
        )
    if network.pseudo_layers and calibration.lengths.max() == 1 and calibration.state is None:
        yield (
            "no sequence of the calibration data has more than one step, so ranges hold no state that builds "
            "up: give sequences as long as those in use"
        )


def _offset_inputs(settings: QuantizationSettings, calibration: Calibration) -> Iterator[str]:
    """Say which inputs are so far from 0 that rounding them and their weights costs what they tell.

    Rounding to b bits is off by up to 2**-b of the mean: too much above an eighth of the standard deviation.
    """
    values = calibration.x[calibration.alive]
    mean, spread = values.mean(axis=0), values.std(axis=0)
    bits = min(settings.weight_bits, settings.data_bits)
    offset = np.flatnonzero((spread > 0) & (np.abs(mean) * 2.0**-bits > spread / 8))
    if not len(offset):
        return
    worst = offset[np.argmax(np.abs(mean[offset]) / spread[offset])]
    more = f" and {len(offset) - 8} more" if len(offset) > 8 else ""
    named = f"inputs {', '.join(map(str, offset[:8]))}{more} are far from 0 for how much they change"
    if len(offset) == 1:
        named = f"input {worst} is far from 0 for how much it changes"
    yield (
        f"{named} (input {worst}: {mean[worst]:.3g} +- "
        f"{spread[worst]:.2g}), which rounding to {bits} bits blurs: subtract the mean before the core; of a "
        "model that does so itself, begin behind that, with `lstm`"
    )


def _limit(form: Format) -> str:
    return f"+-{form.limit:.4g}"


def _loaded(manifest: Manifest) -> str:
    """Say what the hardware that a build is loaded into decides."""
    numerics = manifest.numerics
    return (
        f"formats are those of the hardware it is loaded into{formats_note(manifest)}: cell states saturate "
        f"at {_limit(numerics.cell)}, pre-activations at {_limit(numerics.preactivation)}, outputs at "
        f"{_limit(manifest.layers[-1].output)}"
    )


def _searched(
    network: Network,
    settings: QuantizationSettings,
    calibration: Calibration,
    manifest: Manifest,
    accuracy: Accuracy,
) -> str:
    """Say how the calibration data decided the range of c."""
    share = search_sample(network, calibration).share_of(calibration)
    finals = ", and holds final states" if states_leave(network, settings.final_states) else ""
    best = "most accurate with room for cell states half as large again"
    if accuracy.max_abs_cell > manifest.numerics.cell.limit:
        best = "most accurate, finer steps being worth more than the states that saturate"
    return (
        f"cell states reach {accuracy.max_abs_cell:.4g} and saturate at "
        f"{_limit(manifest.numerics.cell)}: of the ranges tried on {share}, that is where outputs are "
        f"{best}{finals}"
    )


def _cut_states(manifest: Manifest, accuracy: Accuracy, asked: str) -> Iterator[str]:
    """Say what to do if final states that are needed elsewhere saturate."""
    cell = manifest.numerics.cell
    if accuracy.data != "random" and accuracy.max_abs_final_cell > cell.limit:
        yield (
            f"c reaches {accuracy.max_abs_final_cell:.4g} after a sequence's last step and saturates at "
            f"{_limit(cell)}: if final states go on elsewhere, for example to a decoder, {asked}"
        )


def _uncalibrated(network: Network, settings: QuantizationSettings, manifest: Manifest) -> Iterator[str]:
    """Say which ranges stand for what calibration data would tell."""
    if settings.input_range is None:
        yield f"input range +-{DEFAULT_INPUT_RANGE:g} assumed: no calibration data"
    if settings.cell_range is None and any(map(keeps_cell_state, network.pseudo_layers)):
        yield f"cell states saturate at +-{DEFAULT_CELL_RANGE:g}, assumed to suffice: no calibration data"
    yield (
        f"pre-activations saturate at {_limit(manifest.numerics.preactivation)}, from the weights' bounds or "
        "where sigmoid is flat: no calibration data"
    )
    if any(isinstance(layer, Dense) and layer.activation in LINEAR for layer in network.layers):
        yield (
            "linear outputs have the range that the weights bound, or twice that of random inputs: no "
            "calibration data"
        )
