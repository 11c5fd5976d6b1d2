"""Layers around recurrent ones in Keras models: each kind has a function that applies it to its inputs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rtlstm.gen.frontends.bidirectional import without_identity
from rtlstm.gen.frontends.describe import one_input
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.keras.archive import KerasLayer
from rtlstm.gen.frontends.keras.node import KerasNode, KerasTensor
from rtlstm.gen.frontends.keras.recurrent import activation, activation_name
from rtlstm.gen.frontends.keras.weights import read_table, read_weights, rounding
from rtlstm.gen.frontends.pace import CausalTaps
from rtlstm.gen.frontends.reading import Embedding
from rtlstm.spec.activations.functions import ActivationFunction, FunctionName
from rtlstm.spec.errors import ModelError

__all__ = ["LAYERS", "LINEAR", "MERGERS", "WINDOWS", "with_activation"]

LINEAR = ":linear"
"""Behind a layer's name: the end is its result before its activation."""


def _input(step: KerasNode) -> KerasTensor:
    shape = step.config.get("batch_shape", step.config.get("batch_input_shape")) or []
    width = shape[2] if len(shape) == 3 else None
    return KerasTensor(Flow(width=width), step.layer.name, last=len(shape) == 2)


def _nothing(step: KerasNode) -> KerasTensor:
    step.becomes("shape", "does nothing when a trained model is used")
    return step.only


def _mask(step: KerasNode) -> KerasTensor:
    step.becomes("outside", "give the driver the lengths of the sequences")
    _note_mask(step, "padding")
    return step.only


def _note_mask(step: KerasNode, what: str) -> None:
    step.report.note(
        f"{step.where} hides {what}: give run() the lengths of the sequences instead, with padding behind "
        "them; if it stands in front, as Keras' pad_sequences puts it by default, give "
        "`pad='front'`, too; leave out of the data what it hides within a sequence"
    )


def _embed(step: KerasNode) -> KerasTensor:
    table = read_table(step)
    if table is None or step.only.flow.layers:
        raise ModelError(f"{step.where} must be the model's first layer")
    step.report.embeddings.append(Embedding(name=step.layer.name, table=table))
    step.becomes("outside", "a table: the host looks rows up")
    if step.config.get("mask_zero"):
        _note_mask(step, "zeros")
    return KerasTensor(Flow(width=table.shape[1]), step.layer.name)


def _each_step(step: KerasNode) -> KerasTensor:
    """TimeDistributed: the layer that it wraps."""
    inner = step.config["layer"]
    if inner["class_name"] not in _STEPWISE:
        raise ModelError(
            f"{step.where} wraps {inner['class_name']}, but must wrap one of {', '.join(_STEPWISE)}"
        )
    if rounding(step.where, inner["config"]).name:
        raise ModelError(
            f"{step.where} wraps a layer that model.quantize has rounded, which Keras then computes without "
            "the scales; use the layer itself, which acts on each step alone, or round the model without it "
            "(the filters of model.quantize)"
        )
    config = {**inner["config"], "name": step.layer.name}
    part = step.layer.arrays.part("layer", inner["config"]["name"])
    layer = KerasLayer(inner["class_name"], config, part, step.layer.reads)
    return LAYERS[layer.kind](replace(step, layer=layer))


# Dense layers, activations, batch norm


def _dense(step: KerasNode) -> KerasTensor:
    kernel, bias = read_weights(step)
    weight = kernel.T
    step.becomes("core", f"{weight.shape[1]} -> {weight.shape[0]}")
    return _apply(step, step.only.flow.linear(step.layer.name, step.where, weight, bias))


def with_activation(layer: KerasLayer) -> bool:
    """Whether it computes a linear result first, and an activation of that."""
    kind = layer.config["layer"]["class_name"] if layer.kind == "TimeDistributed" else layer.kind
    return kind in ("Dense", "Conv1D")


def _apply(step: KerasNode, flow: Flow) -> KerasTensor:
    """A layer's activation."""
    name = activation_name(step.config.get("activation"))
    if name == "softmax":
        return _classify(step, flow)
    if step.linear:
        step.report.note(f"{step.where} ends before its activation {name!r}, which the host computes")
        return step.only.with_flow(flow)
    function = activation(step, step.config.get("activation"), instead=_before(step))
    if function.name != "identity":
        flow = flow.activate(function, step.layer.name, step.where)
    return step.only.with_flow(flow)


def _before(step: KerasNode) -> str:
    """Return the advice to end before an activation that the core cannot compute."""
    if step.only.flow.before:
        return ""
    name = step.layer.name + LINEAR if with_activation(step.layer) else step.layer.reads.values[0].layer
    return f"; or end before it, with `output={name!r}`, and compute it on the host"


def _activate(step: KerasNode) -> KerasTensor:
    step.becomes("core")
    return _apply(step, step.only.flow)


def _classify(step: KerasNode, flow: Flow) -> KerasTensor:
    """Leave a softmax at the end to the host; the core outputs its input."""
    if not step.ends or step.config.get("axis", -1) != -1:
        raise ModelError(
            f"{step.where} is softmax, which the host computes: it must be the last layer, over the features"
            f"{_before(step)}"
        )
    return replace(step.only.with_flow(flow), softmax=step.where)


def _softmax(step: KerasNode) -> KerasTensor:
    step.becomes("outside", "rtlstm.host.softmax")
    return _classify(step, step.only.flow)


def _slope(step: KerasNode) -> KerasTensor:
    config, kind = step.config, step.layer.kind
    names: dict[str, FunctionName] = {"LeakyReLU": "leaky_relu", "ELU": "elu", "ReLU": "relu"}
    if kind == "ReLU" and any(config.get(name) for name in ("max_value", "negative_slope", "threshold")):
        raise ModelError(
            f"{step.where} has max_value, negative_slope or threshold; use LeakyReLU, or a plain ReLU"
        )
    slope = config.get("negative_slope", config.get("alpha"))
    function = ActivationFunction.of(names[kind], None if slope is None else float(np.asarray(slope)))
    step.becomes("core")
    return step.only.with_flow(step.only.flow.activate(function, step.layer.name, step.where))


def _normalise(step: KerasNode) -> KerasTensor:
    config = step.config
    affine = [name for name, key in (("gamma", "scale"), ("beta", "center")) if config.get(key, True)]
    names = (*affine, "moving_mean", "moving_variance")
    found = dict(zip(names, step.layer.arrays.get(names), strict=False))
    if "moving_variance" not in found:
        raise ModelError(f"{step.where} has no weights in the file; save the model again")
    axis = config.get("axis", -1)
    if (axis[0] if isinstance(axis, list) else axis) not in (-1, _last_axis(step.only)):
        raise ModelError(f"{step.where} must work along the features, its last axis, not along axis {axis}")
    factor = found.get("gamma", 1.0) / np.sqrt(found["moving_variance"] + config.get("epsilon", 1e-3))
    addend = found.get("beta", 0.0) - found["moving_mean"] * factor
    step.becomes("core", "folded into a neighbour")
    return step.only.with_flow(step.only.flow.scale(factor, step.where).shift(addend, step.where))


def _last_axis(given: KerasTensor) -> int:
    return 1 if given.last else 2


# Layers that read steps before the present one


def _pad(step: KerasNode) -> KerasTensor:
    before, after = step.config["padding"]
    if after:
        raise ModelError(
            f"{step.where} appends {after} zeros, but steps must be computed as they come: pad in front"
        )
    step.becomes("core", f"{before} zeros in front")
    return replace(step.only, padding=before, padded=step.where)


def _window(step: KerasNode, history: int, features: int) -> KerasTensor:
    """The present step and those before it, if a layer reads these, the newest first, strides apart."""
    flow = step.only.flow.delays(history, features, step.layer.name, step.where)
    return _after(step, flow.strided(*_taps(step, history)))


def _after(step: KerasNode, flow: Flow) -> KerasTensor:
    return replace(step.only.with_flow(flow), padding=0)


def _taps(step: KerasNode, history: int) -> tuple[int, int]:
    """The stride of a layer that reads earlier steps, and which of so many steps it reads last."""
    config, where, given = step.config, step.where, step.only
    (stride,) = config.get("strides") or [1]
    if config.get("data_format") not in (None, "channels_last"):
        raise ModelError(
            f"{where} has data_format={config['data_format']!r}, but must have channels_last: the core "
            "has the features last"
        )
    if config.get("groups", 1) != 1:
        raise ModelError(
            f"{where} must have groups of 1; compute it outside of the core, and end or begin the model there"
        )
    around = max(history + 1 - stride, 0)
    zeros = {"causal": (history, 0), "same": (around // 2, around - around // 2), "valid": (given.padding, 0)}
    fits = config["padding"] in zeros and (config["padding"] == "valid" or not given.padding)
    taps = CausalTaps.of(history, stride, *zeros[config["padding"]]) if fits else None
    if taps is None:
        raise ModelError(
            f"{where} must be causal, to run step by step: padding='causal', or "
            f"{CausalTaps.zeros(history, stride)} zeros in front by ZeroPadding1D; compute it outside of the "
            "core, and end or begin the model there"
        )
    return stride, taps.phase


def _convolve(step: KerasNode) -> KerasTensor:
    kernel, *bias = step.layer.arrays.get(("kernel", "bias"))
    taps, features, filters = kernel.shape
    (dilation,) = step.config.get("dilation_rate") or [1]
    history = dilation * (taps - 1)
    flow = step.only.flow.convolve(
        step.layer.name,
        step.where,
        kernel.transpose(2, 1, 0),
        bias[0] if bias else np.zeros(filters),
        dilation,
        *_taps(step, history),
    )
    step.becomes("core", f"{features} -> {filters}, {history + 1} steps")
    return _apply(replace(step, read=(_after(step, flow),)), flow)


def _average_steps(step: KerasNode) -> KerasTensor:
    (steps,), features = step.config["pool_size"], step.only.flow.outputs
    if features is None:
        raise ModelError(f"{step.where} must follow a layer with weights, such as Conv1D")
    window = _window(step, steps - 1, features)
    every = np.arange(features)
    parts = [window.flow.pick((every + at * features).tolist(), step.where) for at in range(steps)]
    step.becomes("core", f"mean of {steps} steps")
    return window.with_flow(_sum(step, parts).scale(np.array(1 / steps), step.where))


# Layers that read several


def _sum(step: KerasNode, flows: list[Flow]) -> Flow:
    total = flows[0]
    for flow in flows[1:]:
        total = total.plus(flow, step.where)
    return total


def _alike(step: KerasNode) -> list[Flow]:
    """Return a layer's inputs, if they can be joined."""
    sources = sorted({repr(given.source) for given in step.read})
    if len(sources) > 1:
        raise ModelError(
            one_input(f"{step.where} needs two inputs of the model at once, {' and '.join(sources)}")
        )
    if len({given.last for given in step.read}) > 1:
        raise ModelError(f"{step.where} needs a last step and whole sequences at once; set return_sequences")
    return [given.flow for given in step.read]


def _merged(step: KerasNode, flow: Flow) -> KerasTensor:
    step.becomes("core", "folded into a neighbour, or a skip")
    return step.only.with_flow(without_identity(flow))


def _add(step: KerasNode) -> KerasTensor:
    return _merged(step, _sum(step, _alike(step)))


def _subtract(step: KerasNode) -> KerasTensor:
    first, second = _alike(step)
    return _merged(step, first.plus(second.scale(np.array(-1.0), step.where), step.where))


def _average(step: KerasNode) -> KerasTensor:
    flows = _alike(step)
    return _merged(step, _sum(step, flows).scale(np.array(1.0 / len(flows)), step.where))


def _concatenate(step: KerasNode) -> KerasTensor:
    flows = _alike(step)
    if step.config.get("axis", -1) not in (-1, _last_axis(step.only)):
        raise ModelError(f"{step.where} must join features, along the last axis")
    return _merged(step, flows[0].join(flows[1:], step.where))


_NOTHING = (
    "Dropout",
    "SpatialDropout1D",
    "GaussianNoise",
    "GaussianDropout",
    "AlphaDropout",
    "ActivityRegularization",
)
_STEPWISE = ("Dense", "Activation", "LeakyReLU", "ELU", "ReLU", "BatchNormalization", "Dropout")
"""Layers that act on each step alone, so TimeDistributed may wrap them."""
WINDOWS: dict[str, Callable[[KerasNode], KerasTensor]] = {
    "Conv1D": _convolve,
    "AveragePooling1D": _average_steps,
}
"""Layers that may read padded steps."""
LAYERS: dict[str, Callable[[KerasNode], KerasTensor]] = {
    "InputLayer": _input,
    "Masking": _mask,
    "Embedding": _embed,
    "TimeDistributed": _each_step,
    "Dense": _dense,
    "Activation": _activate,
    "Softmax": _softmax,
    "LeakyReLU": _slope,
    "ELU": _slope,
    "ReLU": _slope,
    "BatchNormalization": _normalise,
    "ZeroPadding1D": _pad,
    **WINDOWS,
    **dict.fromkeys(_NOTHING, _nothing),
}
"""Layers that read one tensor."""
MERGERS: dict[str, Callable[[KerasNode], KerasTensor]] = {
    "Add": _add,
    "Average": _average,
    "Concatenate": _concatenate,
    "Subtract": _subtract,
}
"""Layers that read several."""
