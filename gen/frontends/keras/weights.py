"""Weights of Keras layers as a file has them: plain, rounded by ``model.quantize``, or with LoRA beside."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import CellKind, Floats, expect_shape, half_bytes, stacked_layer
from rtlstm.gen.frontends.graph import Recurrent
from rtlstm.gen.frontends.keras.archive import KerasLayer, numbered
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.spec.activations.functions import ActivationFunction, function, functions
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Rnn

_KERNEL, _TABLE = "kernel", "embeddings"
_GROUPED = ("{}_zero", "g_idx")
"""Zero points of blocks of weights that share a scale, and which block each weight is of."""
_STORED: dict[str, tuple[str, ...]] = {
    "": ("{}", "bias"),
    "int8": ("{}", "bias", "{}_scale"),
    "int4": ("{}", "bias", "{}_scale"),
    "float8": (
        "{}",
        "bias",
        "inputs_scale",
        "inputs_amax_history",
        "{}_scale",
        "{}_amax_history",
        "outputs_grad_scale",
        "outputs_grad_amax_history",
    ),
    "gptq": ("bias", "{}", "{}_scale", *_GROUPED),
    "awq": ("bias", "{}", "{}_scale", "{}_zero", "awq_scales", "g_idx"),
}
"""The arrays of a layer by its mode, in Keras' order; ``{}`` is the matrix."""
_INTEGERS = ("{}", "{}_zero")


class Rounding(NamedTuple):
    """How a layer's weights are rounded."""

    name: str
    """Keras' mode; empty for weights that are not rounded."""
    numbers: tuple[int, ...]
    """int4: weights in a block, or -1; gptq and awq: bits, and weights in a block, or -1."""

    @property
    def bits(self) -> int:
        """Bits of the integers."""
        return {"int8": 8, "int4": 4}.get(self.name) or self.numbers[0]

    def stored(self, matrix: str, bias: bool) -> tuple[str, ...]:
        """The arrays' names, in the file's order."""
        names = _STORED[self.name] + (_GROUPED if self.name == "int4" and self.numbers[0] > 0 else ())
        return tuple(name.format(matrix) for name in names if bias or name != "bias")


def read_weights(layer: KerasLayer, report: ReportBuilder) -> tuple[Floats, Floats]:
    """Return a dense layer's matrix ``(inputs, outputs)`` as it is used, and its bias.

    Raises ModelError if they are missing, or rounded in a way that is not known.
    """
    mode = rounding(layer.where, layer.config)
    bias = bool(layer.config.get("use_bias", True))
    found = _read(layer, mode, _KERNEL, bias)
    kernel, steps = _used(layer, report, mode, _KERNEL, found, int(layer.config["units"]))
    kernel, steps = _adapted(layer, _KERNEL, found, kernel, steps)
    if steps is not None:
        zeros = bool(np.any(found.get("kernel_zero", 0)))
        report.integer_rows.add(f"{layer.name}/kernel", kernel, steps, mode.bits, zeros)
    addend = found["bias"] if bias else np.zeros(kernel.shape[1])
    return kernel, _rounded(addend, 7) if mode.name == "float8" else addend


def read_table(layer: KerasLayer, report: ReportBuilder) -> Floats:
    """Return an embedding's table ``(rows, width)`` as it is used. Raises as above."""
    mode = rounding(layer.where, layer.config)
    found = _read(layer, mode, _TABLE, bias=False)
    table, steps = _used(layer, report, mode, _TABLE, found, int(layer.config["output_dim"]))
    return _adapted(layer, _TABLE, found, table, steps)[0]


def rounding(where: str, config: Mapping[str, Any]) -> Rounding:
    """Return how the policy of types in a layer's configuration says that its weights are rounded."""
    policy = config.get("dtype")
    if isinstance(policy, dict):
        config = policy.get("config") or {}
        policy = config.get("mode") or config.get("name")
    name, *numbers = str(policy or "").split("_from_")[0].split("/")
    if name not in _STORED:
        return Rounding("", ())
    whole = len(numbers) == {"int4": 1, "gptq": 2, "awq": 2}.get(name, 0)
    if not whole:
        raise ModelError(
            f"{where} has weights in the mode {policy!r} of an earlier Keras, which packed them in "
            "another way; give the model as it was before model.quantize, since rtlstm rounds weights itself"
        )
    return Rounding(name, tuple(map(int, numbers)))


def _read(layer: KerasLayer, mode: Rounding, matrix: str, bias: bool) -> dict[str, NDArray[Any]]:
    integers = () if mode.name in ("", "float8") else tuple(name.format(matrix) for name in _INTEGERS)
    # HDF5 files have the two factors of LoRA; the others have them in the matrix.
    factors = (f"lora_{matrix}_a", f"lora_{matrix}_b")
    found = layer.arrays.named(mode.stored(matrix, bias), factors, integers)
    layer.expect([name for name in (matrix, "bias") if name in found], 1 + bias)
    return found


def _used(
    layer: KerasLayer,
    report: ReportBuilder,
    mode: Rounding,
    matrix: str,
    found: Mapping[str, NDArray[Any]],
    width: int,
) -> tuple[Floats, Floats | None]:
    """Return a matrix as Keras computes with it, and the step of each of its integers, if it has some."""
    stored, where = found[matrix], f"{layer.where}: the array {matrix!r}"
    if not mode.name:
        return stored, None
    missing = [name for name in mode.stored(matrix, bias=False) if name not in found]
    if missing:
        raise ModelError(
            f"{layer.where} is rounded in the mode {mode.name}, but the file has not all of "
            f"{', '.join(mode.stored(matrix, bias=False))}; save the model as HDF5, which has them, or "
            "give it as it was before model.quantize"
        )
    scale = found[f"{matrix}_scale"]
    if mode.name == "float8":
        _note_inputs(layer, report, "float8")
        return _float8(stored, scale), None
    if mode.name in ("gptq", "awq"):
        integers = half_bytes(stored, 0, width, signed=False) if mode.bits == 4 else stored
        values, steps = _of_blocks(integers, found, matrix, 1)
        expect_shape(values, (width, stored.shape[1]), where)
        if mode.name == "gptq":
            return values.T, _of_rows(steps.T, found)
        return values.T / found["awq_scales"][:, np.newaxis], None
    if mode.name == "int4":
        stored = half_bytes(stored, 1, width)
    expect_shape(stored, (len(stored), width), where)
    if _rounds_inputs(layer, mode):
        _note_inputs(layer, report, "8 bits")
    if f"{matrix}_zero" in found:
        values, steps = _of_blocks(stored, found, matrix, 0 if matrix == _KERNEL else 1)
        return values, _of_rows(steps, found)
    expect_shape(scale, (width if matrix == _KERNEL else len(stored),), f"{layer.where}: its scale")
    steps = np.broadcast_to(1 / (scale if matrix == _KERNEL else scale[:, np.newaxis]), stored.shape)
    return stored * steps, steps


def _of_blocks(
    integers: NDArray[Any], found: Mapping[str, NDArray[Any]], matrix: str, axis: int
) -> tuple[Floats, Floats]:
    """Return weights whose blocks along an axis have a scale and a zero point each, and the scales."""
    blocks = found["g_idx"].astype(np.int64)
    steps = np.take(found[f"{matrix}_scale"], blocks, axis).astype(np.float64)
    zeros = np.take(found[f"{matrix}_zero"], blocks, axis).astype(np.float64)
    expect_shape(steps, integers.shape, f"the scales of {matrix!r}")
    return (integers - zeros) * steps, steps


def _of_rows(steps: Floats, found: Mapping[str, NDArray[Any]]) -> Floats | None:
    """The steps of integers, if all of a row have one."""
    return None if found["g_idx"].astype(np.int64).any() else steps


def _adapted(
    layer: KerasLayer, matrix: str, found: Mapping[str, NDArray[Any]], values: Floats, steps: Floats | None
) -> tuple[Floats, Floats | None]:
    """Add the product of LoRA's factors, which an HDF5 file has beside the matrix."""
    factors = [found.get(f"lora_{matrix}_{name}") for name in "ab"]
    if factors[0] is None or factors[1] is None:
        return values, steps
    rank = factors[0].shape[1]
    alpha = layer.config.get("lora_alpha")
    product = (rank if alpha is None else float(alpha)) / rank * (factors[0] @ factors[1])
    expect_shape(product, values.shape, f"{layer.where}: the product of lora_{matrix}_a and lora_{matrix}_b")
    return (values + product, None) if product.any() else (values, steps)


# What is rounded when the model runs


def _rounds_inputs(layer: KerasLayer, mode: Rounding) -> bool:
    """Whether Keras rounds what the layer reads, too: in int8 unless told otherwise."""
    if layer.kind == "Embedding":
        return False
    asked = layer.config.get("quantization_config")
    if not isinstance(asked, dict):
        return mode.name == "int8"
    return asked.get("config", {}).get("activation_quantizer") is not None


def _note_inputs(layer: KerasLayer, report: ReportBuilder, form: str) -> None:
    report.note(
        f"{layer.where} rounds what it reads to {form} in Keras; the core does not, and rounds its data to "
        "formats of its own, so outputs differ from Keras' by that much"
    )


def _float8(values: Floats, scale: NDArray[Any]) -> Floats:
    """Return values as float8 (e4m3fn) times a scale holds them."""
    factor = np.float32(scale)
    scaled = (values.astype(np.float32) / factor).astype(np.float64)
    rounded = _rounded(np.clip(scaled, -448, 448), 3, -6)
    return (rounded.astype(np.float32) * factor).astype(np.float64)


def _rounded(values: Floats, bits: int, least: int = -126) -> Floats:
    """Round to a mantissa of ``bits`` bits, ties to even; exponents below ``least`` count as that."""
    exponent = np.maximum(np.frexp(values)[1] - 1, least) - bits
    rounded: Floats = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)
    return rounded


# Recurrent layers: every argument is supported, or an error names it


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
    made: list[Any] = [_both(layer, old, notes)] if both else []
    made = made or [_direction(each, old) for each in _cells(layer)]
    _note(layer, layer.config["layer"]["config"] if both else layer.config, notes)
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
        made.append(_direction(inner, old, last, layer.where))
    return Bidirectional(name=layer.name, forward=made[0], backward=made[1], merge=_MERGES[merge])


def _direction(
    layer: KerasLayer, old: bool, reversed_output: bool = True, where: str = ""
) -> Lstm | Gru | Rnn:
    """One direction's layer from its arrays."""
    config, where, kind = layer.config, where or layer.where, _RECURRENT[layer.kind]
    for argument, allowed in (("time_major", (False, None)), ("reset_after", (True, False, None))):
        if config.get(argument) not in allowed:
            raise ModelError(f"{where} has {argument}={config[argument]!r}, which is not supported")
    # Old files name a cell's arrays; new ones number them inside the cell.
    names = ("kernel", "recurrent_kernel", "bias")
    found = layer.arrays.get(names) or layer.arrays.part("cell", "").get(names)
    units = int(config["units"])
    expected = 3 if config.get("use_bias", True) else 2
    if len(found) != expected:
        raise ModelError(
            f"{where} must have {expected} arrays of weights, not {len(found)}; save the model again"
        )
    kernel, recurrent = (array.T for array in found[:2])
    reverse = bool(config.get("go_backwards", False))
    given: dict[str, Any] = {"reverse": reverse, "reversed_output": reverse and reversed_output}
    bias = found[2] if expected == 3 else np.zeros(len(kernel))
    functions = [activation(layer, config.get("activation", "tanh"), old)] * 2
    biases: Sequence[Floats | None] = (bias, None)
    if kind != "rnn":
        name = config.get("recurrent_activation", "sigmoid")
        functions = [activation(layer, name, old, "recurrent_activation"), *functions]
    if kind == "gru":
        given["reset_after"] = bool(config.get("reset_after", not old))
        stacked = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
        if stacked.shape != (2, 3 * units):
            raise ModelError(
                f"{where} must have biases (2, {3 * units}), not {stacked.shape}; save the model again"
            )
        biases = tuple(stacked)
    return stacked_layer("keras", kind, layer.name, (kernel, recurrent, *biases), functions, **given)


def activation(
    layer: KerasLayer,
    given: Any,
    old: bool,
    argument: str = "activation",
    arguments: Mapping[str, Any] | None = None,
) -> ActivationFunction:
    """The function that an argument names, or a layer that has ``arguments`` for it."""
    name, known = activation_name(given), activations(old)
    if name not in known:
        raise ModelError(f"{layer.where} has {argument}={name!r}, but must be one of {', '.join(known)}")
    ours, *parameters = known[name]
    given = dict(zip(("alpha", "beta"), parameters, strict=False))
    return function(ours, {**given, **(arguments or {})}, layer.where)


def activations(old: bool) -> dict[str, tuple[Any, ...]]:
    """The functions by Keras' names, each with ours and the parameters that differ from its defaults."""
    slope = 0.2 if old else 1 / 6  # Keras 3 changed it.
    others = {"hard_sigmoid": ("hard_sigmoid", slope, 0.5), "leaky_relu": ("leaky_relu", 0.2)}
    others["relu6"] = ("hard_tanh", 0.0, 6.0)
    return {name: (ours,) for name, ours in functions("keras").items()} | others


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
