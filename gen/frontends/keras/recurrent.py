"""Reads Keras' recurrent layers: every argument is supported, or an error names it."""

from typing import Any, Literal

import numpy as np

from rtlstm.gen.frontends.gates import CellKind, reorder
from rtlstm.gen.frontends.graph import Recurrent
from rtlstm.gen.frontends.keras.archive import Arrays, KerasLayer, numbered
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Rnn

_RECURRENT: dict[str, CellKind] = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn"}
_CELLS = {f"{kind}Cell": kind for kind in _RECURRENT}
_MERGES: dict[str | None, Literal["concat", "sum", "average", "product"]] = {
    "concat": "concat",
    "sum": "sum",
    "ave": "average",
    "mul": "product",
    None: "concat",
}
RECURRENT = (*_RECURRENT, "RNN", "Bidirectional")


def recurrent(layer: KerasLayer, old: bool) -> Recurrent:
    """A recurrent layer's layers; ``old`` says that a Keras before 3 wrote the file."""
    both = layer.kind == "Bidirectional"
    notes: list[str] = []
    inner = layer.config["layer"]["config"] if both else layer.config
    made: list[Lstm | Gru | Rnn | Bidirectional]
    if both:
        made = [_both(layer, old, notes)]
    else:
        made = [_direction(each, each.arrays, old) for each in _cells(layer)]
    _note(layer, inner, notes)
    return Recurrent(tuple(made), tuple(notes))


def _cells(layer: KerasLayer) -> list[KerasLayer]:
    """Return the cells of an RNN layer as layers, the first reading first; another layer as it is."""
    if layer.kind != "RNN":
        return [layer]
    cell = layer.config["cell"]
    stacked = cell["class_name"] == "StackedRNNCells"
    entries = cell["config"]["cells"] if stacked else [cell]
    made: list[KerasLayer] = []
    for entry, number in zip(entries, numbered(entries), strict=True):
        kind, config = entry["class_name"], entry["config"]
        if kind not in _CELLS:
            raise ModelError(f"{layer.where} has the cell {kind}, but must have one of {', '.join(_CELLS)}")
        arrays = layer.arrays.part(f"cell/cells/{number}", config["name"]) if stacked else layer.arrays
        # Cells behind the first one read what it gives, in that order.
        changed = {"go_backwards": layer.config.get("go_backwards", False) and not made}
        changed["name"] = f"{layer.name}_{len(made)}" if stacked else layer.name
        made.append(KerasLayer(_CELLS[kind], {**config, **changed}, arrays, layer.reads))
    return made


def _note(layer: KerasLayer, config: dict[str, Any], notes: list[str]) -> None:
    where, whole = layer.where, config.get("return_sequences", False)
    backwards = layer.kind != "Bidirectional" and config.get("go_backwards", False)
    if backwards and not whole:
        notes.append(f"{where} reads sequences from their end, and so whole ones")
    elif backwards:
        notes.append(
            f"{where} gives its outputs backwards in time, and so does the core; of sequences with "
            "lengths from a sequence's own end, where Keras with a mask begins with the padding"
        )
    if config.get("stateful"):
        notes.append(f"{where} keeps its state from call to call: use a stream, which does so too")
    if config.get("return_state"):
        notes.append(f"{where} gives its final states, too: the driver always does")
    parts = [config]
    while parts[-1].get("cell"):
        parts.append(parts[-1]["cell"]["config"])
    parts += [each["config"] for each in parts[-1].get("cells", ())]
    if any(each.get("dropout") or each.get("recurrent_dropout") for each in parts):
        notes.append(f"{where} has dropout, which does nothing when a trained model is used")


def _both(layer: KerasLayer, old: bool, notes: list[str]) -> Bidirectional:
    config = layer.config
    merge = config.get("merge_mode", "concat")
    if merge not in _MERGES:
        raise ModelError(
            f"{layer.where} has merge_mode {merge!r}, but must have concat, sum, ave, mul or None"
        )
    if merge is None:
        notes.append(f"{layer.where} gives two tensors: the core puts them side by side, forward first")
    forward = config["layer"]
    # Without the whole sequence, the last step has the final h of both.
    last = not forward["config"].get("return_sequences", False)
    backward = config.get("backward_layer") or forward
    if forward["config"].get("go_backwards"):
        raise ModelError(
            f"{layer.where} wraps a forward layer with go_backwards, but it must go forward; give it as "
            "backward_layer, and the other one as layer"
        )
    names = (forward["config"]["name"], backward["config"]["name"])
    if names[0] == names[1]:
        names = (f"forward_{names[0]}", f"backward_{names[1]}")
    made = []
    for entry, number, name, reverse in (
        (forward, "forward_layer", names[0], False),
        (backward, "backward_layer", names[1], True),
    ):
        config = {**entry["config"], "go_backwards": reverse}
        arrays = layer.arrays.part(number, name)
        inner, *others = _cells(KerasLayer(entry["class_name"], config, arrays, layer.reads))
        if inner.kind not in _RECURRENT or others:
            what = "an RNN of several cells" if others else inner.kind
            raise ModelError(
                f"{layer.where} wraps {what}, but must wrap LSTM, GRU, SimpleRNN or RNN of one cell"
            )
        made.append(_direction(inner, inner.arrays, old, last, layer.where))
    return Bidirectional(name=layer.name, forward=made[0], backward=made[1], merge=_MERGES[merge])


def _direction(
    layer: KerasLayer, arrays: Arrays, old: bool, reversed_output: bool = True, where: str = ""
) -> Lstm | Gru | Rnn:
    """One direction's layer from its arrays."""
    config, where, kind = layer.config, where or layer.where, _RECURRENT[layer.kind]
    for argument, allowed in (("time_major", (False, None)), ("reset_after", (True, False, None))):
        if config.get(argument) not in allowed:
            raise ModelError(f"{where} has {argument}={config[argument]!r}, which is not supported")
    # Old files name a cell's arrays; new ones number them inside the cell.
    names = ("kernel", "recurrent_kernel", "bias")
    found = arrays.get(names) or arrays.part("cell", "").get(names)
    units = int(config["units"])
    expected = 3 if config.get("use_bias", True) else 2
    if len(found) != expected:
        raise ModelError(
            f"{where} must have {expected} arrays of weights, not {len(found)}; save the model again"
        )
    kernel, recurrent = (reorder(array.T, "keras", kind) for array in found[:2])
    reverse = bool(config.get("go_backwards", False))
    fields: dict[str, Any] = {"name": layer.name, "w_ih": kernel, "w_hh": recurrent}
    fields |= {"reverse": reverse, "reversed_output": reverse and reversed_output}
    bias = found[2] if expected == 3 else np.zeros(len(kernel))
    function = activation(layer, config.get("activation", "tanh"), old)
    if kind == "rnn":
        return Rnn(bias=bias, activation=function, **fields)
    gate = activation(layer, config.get("recurrent_activation", "sigmoid"), old, "recurrent_activation")
    if kind == "lstm":
        bias = reorder(bias, "keras", kind)
        return Lstm(bias=bias, gate=gate, candidate=function, output_activation=function, **fields)
    after = bool(config.get("reset_after", not old))
    biases = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
    if biases.shape != (2, 3 * units):
        raise ModelError(
            f"{where} must have biases (2, {3 * units}), not {biases.shape}; save the model again"
        )
    b_ih, b_hh = (reorder(one, "keras", kind) for one in biases)
    return Gru(bias_ih=b_ih, bias_hh=b_hh, gate=gate, candidate=function, reset_after=after, **fields)


def activation(layer: KerasLayer, given: Any, old: bool, argument: str = "activation") -> ActivationFunction:
    """The function that an argument names."""
    name = activation_name(given)
    if name == "hard_sigmoid":
        # Keras 3 has a slope of one sixth; before, it was one fifth.
        return ActivationFunction.of("hard_sigmoid", 0.2 if old else 1 / 6, 0.5)
    known = {definition.keras: ours for ours, definition in ACTIVATIONS.items() if definition.keras}
    if name not in known:
        raise ModelError(
            f"{layer.where} has {argument}={name!r}, but must be one of {', '.join(known)}, hard_sigmoid"
        )
    return ActivationFunction.of(known[name], 0.2 if name == "leaky_relu" else None)


def activation_name(given: Any) -> str:
    """The name of a function as a file gives it: alone, in an object's description, or none, ``linear``.

    Of a layer in a function's place it is the class: its name is the user's, and it has arguments.
    """
    if given is None:
        return "linear"
    name = given.get("config", given) if isinstance(given, dict) else given
    if isinstance(name, dict):
        name = given.get("class_name")
    return str(name)
