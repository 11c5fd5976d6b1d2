"""Describes layers and inputs as text."""

from rtlstm.spec.activations.functions import SIGMOID, TANH, ActivationFunction
from rtlstm.spec.network import Bidirectional, CellLayer, Dense, Gru, Layer, PseudoLayer, Rnn


def one_input(found: str) -> str:
    """Return the refusal of two inputs where the core has one; ``found`` says what needs them."""
    return (
        f"{found}, but the core has one input: give features of one step side by side, to a model with one "
        "input; for a state use a recurrent layer or cell of the framework, which keeps it; and for another "
        "sequence a build of its own"
    )


def layer_options(layer: Layer) -> str:
    """Describe what is special about a layer: unusual functions, directions, clips.

    Empty for ``torch.nn.LSTM``'s own layer, and for a dense one without an activation.
    """
    if isinstance(layer, Bidirectional):
        parts = (layer.forward, layer.backward.replace(reversed_output=False))
        forward, backward = (layer_options(part) for part in parts)
        kinds = layer.forward.kind if layer.forward.kind == layer.backward.kind else "two kinds"
        usual = f"{forward}, reverse".lstrip(", ")
        other = "" if backward == usual else backward
        final = "final states at the last step" if layer.backward.reversed_output else ""
        return ", ".join(filter(None, [kinds, layer.merge, forward, other, final]))
    if isinstance(layer, Dense):
        function = [str(layer.function)] if layer.activation != "identity" else []
        skip = [] if layer.skip is None else [f"adds what stands {layer.skips} layers back"]
        return ", ".join(function + skip)
    reversed_output = ["outputs reversed"] if layer.reversed_output else []
    limits = [f"clip {layer.clip:g}"] if layer.clip is not None else []
    return ", ".join([*_details(layer), *limits, *(["reverse"] if layer.reverse else []), *reversed_output])


def _details(layer: PseudoLayer) -> list[str]:
    """Describe what only this kind of layer has."""
    if isinstance(layer, CellLayer):
        return ["a step function of its own"]
    if isinstance(layer, Rnn):
        return _functions(("activation", layer.activation, TANH))
    functions = _functions(("gate", layer.gate, SIGMOID), ("candidate", layer.candidate, TANH))
    if isinstance(layer, Gru):
        return functions + ([] if layer.reset_after else ["reset before"])
    functions += _functions(("output_activation", layer.output_activation, TANH))
    if layer.cell_clip is not None:
        functions.append(f"cell clip {layer.cell_clip:g}")
    if layer.projection is not None:
        functions.append(f"projection {layer.units} -> {layer.outputs}")
    given = {"peephole": layer.peephole is not None, "coupled": layer.coupled}
    return functions + [name for name, there in given.items() if there]


def _functions(*functions: tuple[str, ActivationFunction, ActivationFunction]) -> list[str]:
    return [f"{name} {function}" for name, function, usual in functions if function != usual]
