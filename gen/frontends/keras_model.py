"""Keras models: LSTM, GRU, SimpleRNN and Bidirectional layers, and the dense layers around them.

Every argument of a recurrent layer is honoured or refused by name. Gate orders are Keras'
(:mod:`rtlstm.gen.frontends.gates`); a GRU's ``reset_after`` is kept, and so are its two biases.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rtlstm.gen.frontends.directions import without_identity
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.gates import CellKind, reorder
from rtlstm.gen.frontends.keras_archive import Arrays, Floats, KerasLayer, KerasModel, Result, read_archive
from rtlstm.gen.frontends.report import Embedding, ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.functions import ActivationFunction, FunctionName
from rtlstm.spec.network import Bidirectional, Gru, Lstm, Network, Rnn

__all__ = ["read_keras"]

_NOTHING = (
    "Dropout",
    "SpatialDropout1D",
    "GaussianNoise",
    "GaussianDropout",
    "AlphaDropout",
    "ActivityRegularization",
)
_RECURRENT: dict[str, CellKind] = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn"}
_MERGES: dict[str | None, Literal["concat", "sum", "average", "product"]] = {
    "concat": "concat",
    "sum": "sum",
    "ave": "average",
    "mul": "product",
    None: "concat",
}
_ACTIVATIONS: dict[str, FunctionName] = {
    "linear": "identity",
    "relu": "relu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "softsign": "softsign",
    "softplus": "softplus",
    "elu": "elu",
    "leaky_relu": "leaky_relu",
}


def read_keras(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a ``.keras`` or HDF5 model.

    Raises
    ------
    ModelError
        If a layer or an argument is not supported; the message has its name.
    ToolError
        If h5py is not installed.
    """
    model = read_archive(path)
    report.format = f"Keras {model.version}"
    if options.dense is not None or options.branches or options.lstm:
        raise ModelError(
            "of a Keras model only --output-tensor, the layer to end at, chooses what is read; leave out "
            "--dense, --branch and --lstm"
        )
    end, needed = _choose_end(model, options.output, report)
    reader = _Reader(report, old=model.version < 3, end=end)
    for layer in model.layers:
        if layer.name in needed:
            reader.take(layer)
        elif layer.kind != "InputLayer":
            report.node(layer.name, layer.kind, "outside", "not on the way to the core's output")
    return reader.network()


def _choose_end(model: KerasModel, output: str | None, report: ReportBuilder) -> tuple[str, set[str]]:
    """The layer to end at, and all that it takes."""
    layers = {layer.name: layer for layer in model.layers}
    if output is not None and output not in layers:
        raise ModelError(f"there is no layer {output!r}; there are {', '.join(layers)}")
    before = {name: _before(layers, name) for name in (model.ends if output is None else [output])}
    ends = [name for name in before if before.keys() <= before[name]]
    if not ends:
        raise ModelError(
            f"the model gives {' and '.join(map(repr, before))}, but the core computes one result; choose "
            "the layer to end at (--output-tensor)"
        )
    for name in before.keys() - ends:
        report.note(f"{name!r} is an output of the model too, but the core gives only the end, {ends[0]!r}")
    return ends[0], before[ends[0]]


def _before(layers: dict[str, KerasLayer], name: str) -> set[str]:
    """A layer, and those whose values it is computed from."""
    found, left = {name}, [name]
    while left:
        if left[-1] not in layers:
            raise ModelError(f"names a layer {left[-1]!r} that it does not have; save the model again")
        more = {result.layer for result in layers[left.pop()].reads.values} - found
        found |= more
        left += more
    return found


@dataclass(frozen=True)
class _Given:
    """What a layer gives."""

    flow: Flow
    source: str = ""
    """The model's input, or the embedding, that it is computed from."""
    last: bool = False
    """It has no steps any more."""
    padding: int = 0
    """Zeros in front of the sequence, and the layer that adds them."""
    padded: str = ""
    state: bool = False
    """Its second result is the h of the last step."""
    half: int = 0
    """Values of the first of two results that both are of every step."""


class _Reader:
    """Takes layer after layer."""

    def __init__(self, report: ReportBuilder, old: bool, end: str) -> None:
        self._report = report
        self._old = old
        self._end = end
        self._known: dict[str, _Given] = {}
        self._now = _Given(Flow())
        """What the layer at hand reads, and then what it gives."""

    @property
    def flow(self) -> Flow:
        """Of the layer at hand."""
        return self._now.flow

    @flow.setter
    def flow(self, flow: Flow) -> None:
        self._now = replace(self._now, flow=flow, state=False, half=0)

    def network(self) -> Network:
        """The network that gives what the last layer does."""
        self._check_padding(self._now, "the end of the model", "")
        return self.flow.network(self._report.name)

    def _check_padding(self, given: _Given, where: str, kind: str) -> None:
        if given.padding and kind not in ("Conv1D", "AveragePooling1D"):
            raise ModelError(
                f"{given.padded} pads what {where} reads, but only Conv1D and AveragePooling1D may read "
                "padded steps; pad the model's input instead, or drop the padding"
            )

    def take(self, layer: KerasLayer) -> None:
        """Compute a layer from those that it reads."""
        if layer.reads.calls > 1:
            raise ModelError(
                f"{layer.where} is called {layer.reads.calls} times, but the core computes a layer once a "
                "step; give each call a layer of its own"
            )
        read = [self._read(result, layer) for result in layer.reads.values]
        for given in read:
            self._check_padding(given, layer.where, layer.kind)
        if layer.kind in _RECURRENT or layer.kind == "Bidirectional":
            self._check_states(layer, [*layer.reads.values[1:], *layer.reads.states])
            read = read[:1]
        if layer.kind in _MERGERS:
            self._merge(layer, read)
        elif len(read) > 1:
            raise ModelError(f"{layer.where} reads {len(read)} tensors, which is not supported")
        else:
            self._now = read[0] if read else _Given(Flow())
            self._compute(layer)
        self._known[layer.name] = self._now
        self._report.output = layer.name

    def _read(self, result: Result, layer: KerasLayer) -> _Given:
        """One of the results of a layer."""
        given, index = self._known[result.layer], result.index
        if given.half:
            both = list(range(given.flow.outputs or 0))
            chosen = both[given.half :] if index else both[: given.half]
            return replace(given, flow=given.flow.pick(chosen, layer.where), half=0)
        if index == 0:
            return given
        if index == 1 and given.state:
            return replace(given, last=True, state=False)
        raise ModelError(
            f"{layer.where} reads a final state of {result.layer!r} (its result {index}), which the core "
            "gives only as state; compute it on the host"
        )

    def _check_states(self, layer: KerasLayer, states: list[Result]) -> None:
        """Initial states must be the caller's."""
        for result in states:
            if self._known.get(result.layer, _Given(Flow())).flow.layers:
                raise ModelError(
                    f"{layer.where}: its initial state comes from layer {result.layer!r}; it must be absent, "
                    "or an input of the model (give one build's state to the other)"
                )
            self._report.note(
                f"{layer.where} begins with the input {result.layer!r}: give the state to the driver at run "
                "time"
            )

    def _compute(self, layer: KerasLayer) -> None:
        """Compute a layer that reads one tensor."""
        kind = layer.kind
        if kind in _RECURRENT:
            self._recurrent(layer, lambda: self._direction(layer, layer.arrays))
        elif kind == "Bidirectional":
            self._recurrent(layer, lambda: self._both(layer))
        elif kind == "TimeDistributed":
            inner = layer.config["layer"]
            if inner["class_name"] not in _STEPWISE:
                raise ModelError(
                    f"{layer.where} wraps {inner['class_name']}, but must wrap one of {', '.join(_STEPWISE)}"
                )
            config = {**inner["config"], "name": layer.name}
            part = layer.arrays.part("layer", inner["config"]["name"])
            self._compute(KerasLayer(inner["class_name"], config, part, layer.reads))
        elif kind in _OTHERS:
            _OTHERS[kind](self, layer)
        elif kind == "InputLayer":
            self._input(layer)
        elif kind in _NOTHING:
            self._report.node(layer.name, kind, "shape", "does nothing when a trained model is used")
        else:
            raise ModelError(
                f"{layer.where} is not supported; end the model before it, or compute it outside of the core"
            )

    def _input(self, layer: KerasLayer) -> None:
        shape = layer.config.get("batch_shape", layer.config.get("batch_input_shape")) or []
        self._now = _Given(Flow(width=shape[2] if len(shape) == 3 else None), layer.name)
        self._report.input = layer.name

    def _merge(self, layer: KerasLayer, read: list[_Given]) -> None:
        """Add, subtract, average or join results."""
        where, first = layer.where, read[0]
        if len({given.source for given in read}) > 1:
            sources = " and ".join(sorted({repr(given.source) for given in read}))
            raise ModelError(
                f"{where} needs two inputs of the model at once, {sources}, but the core has one; join them "
                "before the model"
            )
        if len({given.last for given in read}) > 1:
            raise ModelError(f"{where} needs a last step and whole sequences at once; set return_sequences")
        flows = [given.flow for given in read]
        if layer.kind == "Concatenate":
            if layer.config.get("axis", -1) not in (-1, 1 if first.last else 2):
                raise ModelError(f"{where} must join features, along the last axis")
            merged = flows[0].join(flows[1:], where)
        else:
            if layer.kind == "Subtract":
                flows[1] = flows[1].scale(np.array(-1.0), where)
            merged = flows[0]
            for flow in flows[1:]:
                merged = merged.plus(flow, where)
            if layer.kind == "Average":
                merged = merged.scale(np.array(1.0 / len(flows)), where)
        self._now = replace(first, flow=without_identity(merged), state=False, half=0)
        self._report.node(layer.name, layer.kind, "core", "folded into a neighbour, or a skip")

    def _recurrent(self, layer: KerasLayer, read: Callable[[], Any]) -> None:
        made = read()
        self.flow = self.flow.recurrent(made, layer.where)
        self._report.node(layer.name, layer.kind, "core", f"{made.inputs} -> {made.outputs}")
        both = layer.kind == "Bidirectional"
        inner = layer.config["layer"]["config"] if both else layer.config
        apart = both and layer.config.get("merge_mode", "concat") is None
        self._now = replace(
            self._now,
            last=not inner.get("return_sequences", False),
            state=not both,
            half=made.forward.outputs if apart else 0,
        )
        self._notes(layer, inner)

    def _notes(self, layer: KerasLayer, config: dict[str, Any]) -> None:
        if not config.get("return_sequences", False):
            self._report.note(f"{layer.where} gives the last step alone: take y's last step, outputs='last'")
        elif layer.kind != "Bidirectional" and config.get("go_backwards"):
            self._report.note(
                f"{layer.where} gives its outputs backwards in time, and so does the core; of sequences with "
                "lengths from a sequence's own end, where Keras with a mask begins with the padding"
            )
        if config.get("stateful"):
            self._report.note(
                f"{layer.where} keeps its state from call to call: use a stream, which does so too"
            )
        if config.get("return_state"):
            self._report.note(f"{layer.where} gives its final states, too: the driver always does")
        if config.get("dropout") or config.get("recurrent_dropout"):
            self._report.note(f"{layer.where} has dropout, which does nothing when a trained model is used")

    def _both(self, layer: KerasLayer) -> Bidirectional:
        config = layer.config
        merge = config.get("merge_mode", "concat")
        if merge not in _MERGES:
            raise ModelError(
                f"{layer.where} has merge_mode {merge!r}, but must have concat, sum, ave, mul or None"
            )
        if merge is None:
            self._report.note(
                f"{layer.where} gives two tensors: the core puts them side by side, forward first"
            )
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
            inner = KerasLayer(entry["class_name"], config, layer.arrays, layer.reads)
            if inner.kind not in _RECURRENT:
                raise ModelError(f"{layer.where} wraps {inner.kind}, but must wrap LSTM, GRU or SimpleRNN")
            made.append(self._direction(inner, layer.arrays.part(number, name), last, layer))
        return Bidirectional(name=layer.name, forward=made[0], backward=made[1], merge=_MERGES[merge])

    def _direction(
        self, layer: KerasLayer, arrays: Arrays, turned: bool = True, owner: KerasLayer | None = None
    ) -> Lstm | Gru | Rnn:
        """One direction's layer from its arrays."""
        config, where, kind = layer.config, (owner or layer).where, _RECURRENT[layer.kind]
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
        fields |= {"reverse": reverse, "turned": reverse and turned}
        bias = found[2] if expected == 3 else np.zeros(len(kernel))
        activation = self._activation(config.get("activation", "tanh"), where, "activation")
        if kind == "rnn":
            return Rnn(bias=bias, activation=activation, **fields)
        gate = self._activation(config.get("recurrent_activation", "sigmoid"), where, "recurrent_activation")
        if kind == "lstm":
            bias = reorder(bias, "keras", kind)
            return Lstm(bias=bias, gate=gate, candidate=activation, squash=activation, **fields)
        after = bool(config.get("reset_after", not self._old))
        biases = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
        if biases.shape != (2, 3 * units):
            raise ModelError(
                f"{where} must have biases (2, {3 * units}), not {biases.shape}; save the model again"
            )
        b_ih, b_hh = (reorder(one, "keras", kind) for one in biases)
        return Gru(bias_ih=b_ih, bias_hh=b_hh, gate=gate, candidate=activation, reset_after=after, **fields)

    def _activation(self, given: Any, where: str, argument: str) -> ActivationFunction:
        name = given.get("config", given) if isinstance(given, dict) else given
        name = name if isinstance(name, str) else getattr(name, "get", lambda key: None)("name")
        if name is None:
            return ActivationFunction.of("identity")
        if name == "hard_sigmoid":
            # Keras 3 has a slope of one sixth; before, it was one fifth.
            return ActivationFunction.of("hard_sigmoid", 0.2 if self._old else 1 / 6, 0.5)
        if name not in _ACTIVATIONS:
            raise ModelError(
                f"{where} has {argument}={name!r}, but must be one of {', '.join(_ACTIVATIONS)}, hard_sigmoid"
            )
        return ActivationFunction.of(_ACTIVATIONS[name], 0.2 if name == "leaky_relu" else None)

    # Other layers

    def _dense(self, layer: KerasLayer) -> None:
        found = layer.arrays.get(("kernel", "bias"))
        if not found:
            raise ModelError(f"{layer.where} has no weights in the file; save the model again")
        weight = found[0].T
        bias = found[1] if layer.config.get("use_bias", True) else np.zeros(len(weight))
        self.flow = self.flow.linear(layer.name, layer.where, weight, bias)
        self._report.node(layer.name, layer.kind, "core", f"{weight.shape[1]} -> {weight.shape[0]}")
        self._apply(layer)

    def _apply(self, layer: KerasLayer) -> None:
        if layer.config.get("activation") == "softmax":
            self._classify(layer)
            return
        function = self._activation(layer.config.get("activation", "linear"), layer.where, "activation")
        if function.name != "identity":
            self.flow = self.flow.activate(function, layer.name, layer.where)

    def _classify(self, layer: KerasLayer) -> None:
        """Softmax at the end stays with the host, and the core gives what it reads."""
        if layer.name != self._end or layer.config.get("axis", -1) != -1:
            raise ModelError(
                f"{layer.where} is softmax, which the host computes: it must be the last layer, over the "
                "features"
            )
        self._report.note(f"{layer.where} ends in softmax, which the host computes: rtlstm.host.softmax(y)")

    def _soften(self, layer: KerasLayer) -> None:
        self._classify(layer)
        self._report.node(layer.name, layer.kind, "outside", "rtlstm.host.softmax")

    def _activate(self, layer: KerasLayer) -> None:
        self._apply(layer)
        self._report.node(layer.name, layer.kind, "core")

    def _slope(self, layer: KerasLayer) -> None:
        config = layer.config
        names: dict[str, FunctionName] = {"LeakyReLU": "leaky_relu", "ELU": "elu", "ReLU": "relu"}
        name = names[layer.kind]
        if layer.kind == "ReLU" and (
            config.get("max_value") or config.get("negative_slope") or config.get("threshold")
        ):
            raise ModelError(
                f"{layer.where} has max_value, negative_slope or threshold; use LeakyReLU, or a plain ReLU"
            )
        slope = config.get("negative_slope", config.get("alpha"))
        function = ActivationFunction.of(name, None if slope is None else float(np.asarray(slope)))
        self.flow = self.flow.activate(function, layer.name, layer.where)
        self._report.node(layer.name, layer.kind, "core")

    def _normalise(self, layer: KerasLayer) -> None:
        config = layer.config
        names = [
            name
            for name, there in (("gamma", config.get("scale", True)), ("beta", config.get("center", True)))
            if there
        ]
        found = dict(
            zip(
                (*names, "moving_mean", "moving_variance"),
                layer.arrays.get((*names, "moving_mean", "moving_variance")),
                strict=False,
            )
        )
        if "moving_variance" not in found:
            raise ModelError(f"{layer.where} has no weights in the file; save the model again")
        axis = config.get("axis", -1)
        if (axis[0] if isinstance(axis, list) else axis) not in (-1, 1 if self._now.last else 2):
            raise ModelError(
                f"{layer.where} must work along the features, its last axis, not along axis {axis}"
            )
        factor = found.get("gamma", 1.0) / np.sqrt(found["moving_variance"] + config.get("epsilon", 1e-3))
        self.flow = self.flow.scale(factor, layer.where).shift(
            found.get("beta", 0.0) - found["moving_mean"] * factor, layer.where
        )
        self._report.node(layer.name, layer.kind, "core", "folded into a neighbour")

    def _mask(self, layer: KerasLayer) -> None:
        self._report.node(layer.name, layer.kind, "outside", "give the driver the lengths of the sequences")
        self._report.note(f"{layer.where} hides padding: give run() the lengths of the sequences instead")

    def _embed(self, layer: KerasLayer) -> None:
        table = layer.arrays.get(("embeddings",))
        if not table or self.flow.layers:
            raise ModelError(f"{layer.where} must be the model's first layer")
        self._now = _Given(Flow(width=table[0].shape[1]), layer.name)
        self._report.embeddings.append(Embedding(name=layer.name, table=table[0]))
        self._report.node(layer.name, layer.kind, "outside", "a table: the host looks rows up")
        if layer.config.get("mask_zero"):
            self._report.note(f"{layer.where} hides zeros: give run() the lengths of the sequences instead")

    # Layers that read steps before the present one

    def _pad(self, layer: KerasLayer) -> None:
        before, after = layer.config["padding"]
        if after:
            raise ModelError(
                f"{layer.where} appends {after} zeros, but steps must be computed as they come: pad in front"
            )
        self._now = replace(self._now, padding=before, padded=layer.where)
        self._report.node(layer.name, layer.kind, "core", f"{before} zeros in front")

    def _window(self, layer: KerasLayer, steps: int) -> None:
        """Check that a layer reads the present step and those before it, in the order in which they come."""
        config, where = layer.config, layer.where
        single = {name: list(config.get(name) or [1]) for name in ("strides", "dilation_rate")}
        zeros = steps - 1 if config["padding"] == "causal" else self._now.padding
        padding = config["padding"] == "valid" or (config["padding"] == "causal" and not self._now.padding)
        if any(value != [1] for value in single.values()) or config.get("groups", 1) != 1:
            raise ModelError(
                f"{where} must have strides, dilation and groups of 1, to run step by step; "
                "compute it outside of the core, and end or begin the model there"
            )
        if not padding or zeros != steps - 1:
            raise ModelError(
                f"{where} must be causal, to run step by step: padding='causal', or {steps - 1} zeros in "
                "front by ZeroPadding1D; compute it outside of the core, and end or begin the model there"
            )
        self._now = replace(self._now, padding=0)

    def _convolve(self, layer: KerasLayer) -> None:
        kernel, *bias = layer.arrays.get(("kernel", "bias"))
        steps, features, filters = kernel.shape
        self._window(layer, steps)
        self.flow = self.flow.delays(steps - 1, features, layer.name, layer.where)
        weight: Floats = kernel[::-1].transpose(2, 0, 1).reshape(filters, -1)
        added = bias[0] if bias else np.zeros(filters)
        self.flow = self.flow.linear(layer.name, layer.where, weight, added)
        self._report.node(layer.name, layer.kind, "core", f"{features} -> {filters}, {steps} steps")
        self._apply(layer)

    def _average(self, layer: KerasLayer) -> None:
        (steps,), features = layer.config["pool_size"], self.flow.outputs
        self._window(layer, steps)
        if features is None:
            raise ModelError(f"{layer.where} must follow a layer with weights, such as Conv1D")
        self.flow = self.flow.delays(steps - 1, features, layer.name, layer.where)
        every = np.arange(features)
        parts = [self.flow.pick((every + step * features).tolist(), layer.where) for step in range(steps)]
        total = parts[0]
        for part in parts[1:]:
            total = total.plus(part, layer.where)
        self.flow = total.scale(np.array(1 / steps), layer.where)
        self._report.node(layer.name, layer.kind, "core", f"mean of {steps} steps")


_STEPWISE = ("Dense", "Activation", "LeakyReLU", "ELU", "ReLU", "BatchNormalization", "Dropout")
"""What does the same to each step, and so may be wrapped by TimeDistributed."""
_MERGERS = ("Add", "Average", "Concatenate", "Subtract")
_OTHERS: dict[str, Callable[[_Reader, KerasLayer], None]] = {
    "Dense": _Reader._dense,
    "Activation": _Reader._activate,
    "Softmax": _Reader._soften,
    "LeakyReLU": _Reader._slope,
    "ELU": _Reader._slope,
    "ReLU": _Reader._slope,
    "BatchNormalization": _Reader._normalise,
    "Masking": _Reader._mask,
    "Embedding": _Reader._embed,
    "ZeroPadding1D": _Reader._pad,
    "Conv1D": _Reader._convolve,
    "AveragePooling1D": _Reader._average,
}
