"""Translates a Keras model into the graph that is read."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

from rtlstm.gen.frontends.arrays import Floats, listed, one_error
from rtlstm.gen.frontends.formulas import ALONE
from rtlstm.gen.frontends.graph import Graph, Node, Stored, Words
from rtlstm.gen.frontends.keras.archive import OPERATION, KerasLayer, KerasModel, is_array, read_archive
from rtlstm.gen.frontends.keras.weights import (
    RECURRENT,
    activation,
    activation_name,
    activations,
    read_table,
    read_weights,
    recurrent,
    rounding,
)
from rtlstm.gen.frontends.layers import of_one_group
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.activations.functions import RELU
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network


def read_keras(file: BinaryIO, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a ``.keras`` or HDF5 model.

    Raises ModelError if a layer or an argument is not supported; the message has its name. Raises ToolError
    if h5py is not installed.
    """
    with one_error("is a damaged Keras file ({}); save the model again"):
        model = read_archive(file)
        report.format = f"Keras {model.version}"
        _check_end(model, options.output)
        return read(_Translator(model, report).graph(), options, report)


def _check_end(model: KerasModel, output: str | None) -> None:
    """Refuse an end before the activation of a layer that has none."""
    layers = {layer.name: layer for layer in model.layers}
    if output is None or output in layers or not output.endswith(LINEAR):
        return
    name = output.removesuffix(LINEAR)
    if name in layers and not with_activation(layers[name]):
        raise ModelError(
            f"{layers[name].where} has no linear result that {output!r} could end at, as Dense and Conv1D "
            f"have; end at a layer, such as `output={name!r}`"
        )


LINEAR = ":linear"
"""Behind a layer's name: its result before its activation."""
_NOTHING = (
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "Identity",
    "SpatialDropout1D",
    "StopGradient",
)
_KERNELS = {
    "Conv1D": (("kernel",),) * 2,
    "DepthwiseConv1D": (("kernel",), ("depthwise_kernel",)),
    "SeparableConv1D": (("depthwise_kernel", "pointwise_kernel"),) * 2,
}
"""The arrays of convolutions along the steps, as Keras 3 and as Keras 2 name them."""
_STEPWISE = (
    "Dense",
    "Activation",
    "LeakyReLU",
    "ELU",
    "ReLU",
    "BatchNormalization",
    "LayerNormalization",
    "RMSNormalization",
    "Dropout",
)
"""Layers that act on each step alone, so TimeDistributed may wrap them."""
_MERGERS = {
    "Add": "sum",
    "Average": "mean",
    "Concatenate": "concat",
    "Maximum": "max",
    "Minimum": "min",
    "Multiply": "mul",
    "Subtract": "sub",
}


def tensor(layer: str, index: int = 0) -> str:
    """The name of one of a layer's results."""
    return f"{layer}:{index}" if index else layer


def with_activation(layer: KerasLayer) -> bool:
    """Whether it computes a linear result first, and an activation of that."""
    kind = layer.config["layer"]["class_name"] if layer.kind == "TimeDistributed" else layer.kind
    return kind == "Dense" or kind in _KERNELS


class _Translator:
    """Translates layer by layer; ``report`` gets notes about weights when they are read."""

    def __init__(self, model: KerasModel, report: ReportBuilder) -> None:
        self.model, self.report = model, report
        self.old = model.version < 3
        self.constants = Stored()
        self.nodes: list[Node] = []
        self.inputs: dict[str, Sequence[int | str]] = {}
        self.layer = model.layers[0]
        self.seen = {"input"}

    def graph(self) -> Graph:
        """The whole model."""
        model, first = self.model, self.model.layers[0]
        if not first.reads.values and first.kind != "InputLayer":  # a file of early Keras 2
            self._add_input("input", first.config.get("batch_input_shape"))
        for layer in model.layers:
            self.layer = layer
            self._translate()
        axes = {name: tags for name, sizes in self.inputs.items() if (tags := self._axes(name, len(sizes)))}
        return Graph(
            self.nodes,
            sorted(self.inputs, key=lambda name: model.begins.index(name) if name in model.begins else 0),
            list(dict.fromkeys(tensor(result.layer, result.index) for result in model.ends)),
            self.constants,
            words=Words(
                "a recurrent layer",
                "a layer",
                ", ".join(sorted({*_LAYERS, *_function_layers()})),
                sequences_first="Keras has sequences before steps",
                needed="a layer with weights, such as LSTM, GRU, SimpleRNN, Dense or Conv1D",
            ),
            dimensions=lambda name: self.inputs.get(name, ()),
            integer_rows=self.report.integer_rows,
            axes=axes,
        )

    def _axes(self, name: str, rank: int) -> tuple[str, ...]:
        """The axes of an input, which Keras' layers have in one order unless some of them move axes."""
        layers = self.model.layers
        readers = [layer.kind for layer in layers if name in [one.layer for one in layer.reads.values]]
        if "Embedding" in readers:
            return ("N", "T")[:rank]
        if any(layer.kind in ("Permute", "Reshape") for layer in layers):
            return ()
        return {2: ("N", "F"), 3: ("N", "T", "F")}.get(rank, ())

    def _add_input(self, name: str, shape: Any) -> None:
        sizes = shape or [None, None, None]
        self.inputs[name] = tuple(size if isinstance(size, int) else "" for size in sizes)

    # What nodes have

    @property
    def reads(self) -> list[str]:
        """The tensors that the layer at hand reads."""
        found = [tensor(result.layer, result.index) for result in self.layer.reads.values]
        return found or ["input"]

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        output: str | Sequence[str] = "",
        *,
        notes: Sequence[str] = (),
        hidden: bool = False,
        **attributes: Any,
    ) -> str:
        """Add a node of the layer at hand; return the name of its first result, by default the layer's."""
        layer = self.layer
        outputs = (output or layer.name,) if isinstance(output, str) else tuple(output)
        how: dict[str, Any] = {"notes": tuple(notes), "hidden": hidden, "title": layer.where}
        self.nodes.append(Node(operator, tuple(inputs), outputs, layer.name, layer.kind, attributes, **how))
        return outputs[0]

    def constant(self, what: str, value: Any) -> str:
        """Store a constant of the layer at hand."""
        return self.constants.add(f"{self.layer.name}/{what}", value)

    def _stored(self, *names: str) -> Callable[[], dict[str, Any]]:
        """The arrays of the layer at hand, which are read when they are asked for; all must be there."""
        layer = self.layer
        return cache(lambda: dict(zip(names, layer.expect(layer.arrays.get(names), len(names)), strict=True)))

    # Layers

    def _translate(self) -> None:
        layer = self.layer
        for result in (*layer.reads.values, *layer.reads.states):
            if result.layer not in self.seen:
                problem = f"reads a layer {result.layer!r} that the model does not have"
                if any(each.name == result.layer for each in self.model.layers):
                    problem = f"stands before {result.layer!r}, which it reads"
                raise ModelError(f"{layer.where} {problem}; save the model again")
        self.seen.add(layer.name)
        for mask in layer.reads.masks:
            if mask.layer in self.inputs:
                self.report.note(
                    f"{layer.where} reads a mask, the input {mask.layer!r}, which the core does not take: "
                    "give run() the lengths of the sequences, and leave out what it hides within one"
                )
        refusal = self._refusal()
        if refusal:
            self._refuse(refusal)
        elif layer.kind in _LAYERS:
            _LAYERS[layer.kind](self)
        elif layer.kind in _function_layers():
            self._function()
        else:
            self.node(layer.kind, self.reads)

    def _refuse(self, why: str) -> None:
        self.node("refused", self.reads, why=why)

    def _refusal(self) -> str:
        """Why a layer cannot be read, whatever it computes."""
        layer = self.layer
        if layer.reads.calls > 1:
            return (
                f"{layer.where} is called {layer.reads.calls} times, but the core computes a layer once a "
                "step; give each call a layer of its own"
            )
        operation = layer.kind.startswith(OPERATION)
        if operation and layer.reads.named:
            return f"{layer.where} is given {listed(layer.reads.named)} by name, which is not supported"
        more = [key for key in layer.config if key not in _READ and layer.config[key] not in (None, False)]
        if operation and layer.kind in _LAYERS and more:
            return f"{layer.where} has {listed(more)}, which is not supported"
        if layer.reads.constants and not operation:
            return (
                f"{layer.where} is called with numbers that are stored in the file, as "
                f"{listed(layer.reads.constants)}; save the model without, and give a state, or the lengths "
                "of sequences, to the driver at run time"
            )
        several = (*RECURRENT, *_MERGERS, "InputLayer", "Nested")
        if layer.kind not in several and not operation and len(self.reads) > 1:
            return f"{layer.where} must read one tensor, not {len(self.reads)}"
        return ""

    def _recurrent(self) -> None:
        layer, (x, *others) = self.layer, self.reads
        others += [tensor(result.layer, result.index) for result in layer.reads.states]
        read = cache(lambda: recurrent(layer, self.old))
        both = layer.kind == "Bidirectional"
        inner = layer.config["layer"]["config"] if both else layer.config
        whole = bool(inner.get("return_sequences", False))
        apart = both and layer.config.get("merge_mode", "concat") is None
        y = self._result("halves") if apart else layer.name
        names = [tensor(layer.name, at) for at in range(1 + apart, 6)]
        h = self._result("h")
        # Of several cells, and of both directions, the driver alone gives the final states.
        single = not both and layer.config.get("cell", {}).get("class_name") != "StackedRNNCells"
        states = names[1:] if single else names
        self.node(
            "recurrent",
            (x, *others[:2]),
            (y, h, *states) if whole else ("", y, *states),
            layers=read,
            axes=("N", "T", "F"),
            h_is_output=not whole,
        )
        if apart:
            self.node("split", [y], (layer.name, tensor(layer.name, 1)), hidden=True, axis=-1)
        if single:
            self.node("identity", [h if whole else y], names[0], hidden=True)

    def _result(self, what: str) -> str:
        return f"{self.layer.name}/{what}"

    def _input(self) -> None:
        if self.layer.reads.values:  # of a model within the model
            self.node("identity", self.reads, hidden=True)
            return
        config = self.layer.config
        self._add_input(self.layer.name, config.get("batch_shape", config.get("batch_input_shape")))

    def _nested(self) -> None:
        for at, source in enumerate(self.reads):
            self.node("identity", [source], tensor(self.layer.name, at), hidden=True)

    def _mask(self) -> None:
        self.node(
            "identity",
            self.reads,
            notes=[self._mask_note("padding")],
            role="outside",
            reason="give the driver the lengths of the sequences",
        )

    def _mask_note(self, what: str) -> str:
        return (
            f"{self.layer.where} hides {what}: give run() the lengths of the sequences instead, with padding "
            "behind them; if it stands in front, as Keras' pad_sequences puts it by default, give "
            "`pad='front'`, too; leave out of the data what it hides within a sequence"
        )

    def _embed(self) -> None:
        table = self.constant("table", partial(read_table, self.layer, self.report))
        notes = [self._mask_note("zeros")] if self.layer.config.get("mask_zero") else []
        self.node("embedding", [*self.reads, table], notes=notes)

    def _each_step(self) -> None:
        """TimeDistributed: the layer that it wraps."""
        layer = self.layer
        inner = layer.config["layer"]
        kind = inner["class_name"]
        why = ""
        if kind not in _STEPWISE:
            why = f"{layer.where} wraps {kind}, but must wrap one of {', '.join(_STEPWISE)}"
        elif rounding(layer.where, inner["config"]).name:
            why = (
                f"{layer.where} wraps a layer that model.quantize has rounded, which Keras then computes "
                "without the scales; use the layer itself, which acts on each step alone, or round the model "
                "without it (the filters of model.quantize)"
            )
        if why:
            self._refuse(why)
            return
        config = {**inner["config"], "name": layer.name}
        part = layer.arrays.part("layer", inner["config"]["name"])
        self.layer = KerasLayer(kind, config, part, layer.reads)
        self._translate()

    # Dense layers and activations

    def _dense(self) -> None:
        layer = self.layer
        read = cache(lambda: read_weights(layer, self.report))
        weight = self.constant("kernel", lambda: read()[0].T)
        bias = self.constant("bias", lambda: read()[1])
        self._activated(self.node("linear", [*self.reads, weight, bias], layer.name + LINEAR))

    def _activated(self, source: str = "") -> None:
        """Add a layer's activation, or that of what it reads; the host computes a softmax."""
        layer, given = self.layer, self.layer.config.get("activation")
        source, hidden = source or self.reads[0], bool(source)
        name = activation_name(given)
        if name == "softmax":
            self.node("softmax", [source], axis=layer.config.get("axis", -1))
        elif name == "linear":
            self.node("identity", [source], hidden=hidden)
        else:
            self.node(
                "activation", [source], hidden=hidden, function=lambda: activation(layer, given, self.old)
            )

    def _function(self) -> None:
        """An activation with arguments of its own: a layer, or a function of keras.ops."""
        layer, name = self.layer, _function_layers()[self.layer.kind]
        arguments = {key: value for key, value in layer.config.items() if key not in _OF_ALL_LAYERS}
        read = partial(activation, layer, name, self.old, arguments=arguments)
        self.node("activation", self.reads, function=read)

    def _relu(self) -> None:
        config = self.layer.config
        if config.get("threshold") or config.get("negative_slope", config.get("alpha")):
            self._refuse(
                f"{self.layer.where} has negative_slope or threshold; use LeakyReLU, or a ReLU with "
                "max_value alone"
            )
        elif config.get("max_value") is not None:
            self.node("clip", self.reads, min=0.0, max=float(config["max_value"]))
        else:
            self.node("activation", self.reads, function=RELU)

    # Normalisation

    def _batch_norm(self) -> None:
        config = self.layer.config
        affine = [name for name, key in (("gamma", "scale"), ("beta", "center")) if config.get(key, True)]
        found = self._stored(*affine, "moving_mean", "moving_variance")

        def of(name: str, default: float) -> Callable[[], Any]:
            return lambda: found().get(name, np.full_like(found()["moving_mean"], default))

        wanted = (("gamma", 1.0), ("beta", 0.0), ("moving_mean", 0.0), ("moving_variance", 1.0))
        arrays = [self.constant(name, of(name, default)) for name, default in wanted]
        axis = config.get("axis", -1)
        axis = axis[0] if isinstance(axis, list) else axis
        self.node("batch_norm", [*self.reads, *arrays], axis=axis, epsilon=config.get("epsilon", 1e-3))

    def _layer_norm(self) -> None:
        layer, config = self.layer, self.layer.config
        if config.get("rms_scaling"):
            raise ModelError(
                f"{layer.where}: rms_scaling must be False, not True; use RMSNormalization, or train without"
            )
        rms = layer.kind == "RMSNormalization"
        affine = (("gamma", config.get("scale", True)), ("beta", config.get("center", True)))
        names = ["scale"] if rms else [name for name, there in affine if there]
        found = self._stored(*names)
        given = {name: self.constant(name, lambda name=name: found()[name]) for name in names}
        axis = config.get("axis", -1)
        self.node(
            "layer_norm",
            [*self.reads, given.get("scale", given.get("gamma", "")), given.get("beta", "")],
            axes=list(axis) if isinstance(axis, list | tuple) else [axis],
            epsilon=config.get("epsilon", 1e-6 if rms else 1e-3),
            centre=not rms,
        )

    def _normalise(self) -> None:
        """Normalization: a mean and a variance of each feature, stored or given."""
        layer, config = self.layer, self.layer.config
        names = ("mean", "variance", "count")

        @cache
        def found() -> tuple[Any, Any]:
            given = [config.get(name) for name in names[:2]]
            stored = layer.arrays.named(names, integers=("count",))
            arrays = [*stored.values()] if None in given else [np.asarray(each) for each in given]
            if len(arrays) < 2:
                raise ModelError(f"{layer.where} has no mean and variance in the file; save the model again")
            mean, variance = (np.asarray(each, dtype=np.float64).reshape(-1) for each in arrays[:2])
            deviation = np.maximum(np.sqrt(variance), 1e-7)
            scale = deviation if config.get("invert") else 1.0 / deviation
            return scale, mean if config.get("invert") else -mean * scale

        scale = self.constant("scale", lambda: found()[0])
        shift = self.constant("shift", lambda: found()[1])
        self._scale_and_shift(scale, shift)

    def _rescale(self) -> None:
        config = self.layer.config
        scale, offset = (
            self.constant(name, np.asarray(config.get(name, default), dtype=np.float64))
            for name, default in (("scale", 1.0), ("offset", 0.0))
        )
        self._scale_and_shift(scale, offset)

    def _scale_and_shift(self, scale: str, shift: str) -> None:
        scaled = self.node("mul", [*self.reads, scale], self._result("scaled"))
        self.node("add", [scaled, shift], hidden=True)

    # Layers that read steps before the present one

    def _layout(self) -> str:
        given = self.layer.config.get("data_format")
        return "NFT" if given == "channels_first" else "NTF"

    def _pad(self) -> None:
        layout, pads = self._layout(), [0] * 6
        axis = layout.index("T")
        pads[axis], pads[axis + 3] = self.layer.config["padding"]
        self.node("pad", self.reads, pads=pads, layout=layout)

    def _around(self, history: int, stride: int) -> list[int]:
        """Zeros in front and behind."""
        around = max(history + 1 - stride, 0)
        padding = self.layer.config["padding"]
        return {"causal": [history, 0], "same": [around // 2, around - around // 2]}.get(padding, [0, 0])

    def _convolve(self) -> None:
        layer, config = self.layer, self.layer.config
        (stride,), (dilation,) = config.get("strides") or [1], config.get("dilation_rate") or [1]
        (taps,), bias = config["kernel_size"], config.get("use_bias", True)
        names = _KERNELS[layer.kind][self.old]
        found = cache(lambda: layer.expect(layer.arrays.get((*names, "bias")), len(names) + bias))

        def kernel() -> Floats:
            first, *points = found()[: len(names)]
            if layer.kind != "Conv1D":  # (taps, inputs, results of each input)
                apart = first.transpose(1, 2, 0).reshape(-1, 1, taps)
                first = of_one_group(apart, first.shape[1], layer.where).transpose(2, 1, 0)
            for each in points:
                first = first @ each[0]
            whole: Floats = first.transpose(2, 1, 0)
            return whole

        inputs = [*self.reads, self.constant("kernel", kernel)]
        if bias:
            inputs.append(self.constant("bias", lambda: found()[len(names)]))
        source = self.node(
            "conv",
            inputs,
            layer.name + LINEAR,
            strides=[stride],
            dilations=[dilation],
            pads=self._around(dilation * (taps - 1), stride),
            group=config.get("groups", 1),
            layout=self._layout(),
        )
        self._activated(source)

    def _over_steps(self) -> None:
        """The mean or the maximum over all steps."""
        axis, keep = self._layout().index("T"), int(bool(self.layer.config.get("keepdims", False)))
        operator = "reduce_max" if "Max" in self.layer.kind else "reduce_mean"
        self.node(operator, self.reads, axes=[axis], keepdims=keep)

    def _average(self) -> None:
        config = self.layer.config
        (size,) = np.ravel(config["pool_size"]).tolist()
        (stride,) = config.get("strides") or [size]
        self.node(
            "average_pool",
            self.reads,
            size=[size],
            strides=[stride],
            pads=self._around(size - 1, stride),
            layout=self._layout(),
        )

    # Functions of keras.ops

    def _operands(self) -> list[Any]:
        """What a function is given: names of tensors and of constants, and lists of these."""
        tensors = iter(self.reads)

        def operand(given: Any, at: str) -> Any:
            if isinstance(given, list) and any(isinstance(item, dict) for item in given):
                return [operand(item, f"{at}.{index}") for index, item in enumerate(given)]
            if is_array(given) or isinstance(given, int | float | list):
                value = given["config"]["value"] if isinstance(given, dict) else given
                return self.constant(f"argument {at}", np.asarray(value, dtype=np.float64))
            return None if given is None else next(tensors)

        return [operand(given, str(at)) for at, given in enumerate(self.layer.reads.arguments)]

    def _operate(self) -> None:
        operator, attributes = _OPERATIONS[self.layer.kind.removeprefix(OPERATION)]
        config = self.layer.config
        given = {name: config[key] for name, key in attributes.items() if config.get(key) is not None}
        if operator == "cast":
            given["floating"] = "float" in str(config["dtype"])
        self.node(operator, self._operands(), **given)

    def _join(self) -> None:
        operator = "stack" if self.layer.kind.endswith("Stack") else "concat"
        self.node(operator, self._operands()[0], **_axis(self.layer.config))

    def _reduce(self) -> None:
        config = self.layer.config
        operator = _REDUCED[self.layer.kind.removeprefix(OPERATION)]
        keep = int(bool(config.get("keepdims", False)))
        self.node(operator, self.reads, keepdims=keep, **self._axes_of(config.get("axis")))

    @staticmethod
    def _axes_of(given: Any) -> dict[str, Any]:
        """The axes that an operation names; all of them if it names none."""
        return {} if given is None else {"axes": [given] if isinstance(given, int) else list(given)}

    def _squeeze(self) -> None:
        operator = "squeeze" if self.layer.kind.endswith("Squeeze") else "unsqueeze"
        self.node(operator, self.reads, **self._axes_of(self.layer.config.get("axis")))

    def _flip(self) -> None:
        axes = self._axes_of(self.layer.config.get("axis")).get("axes")
        if axes is None:
            self._refuse(f"{self.layer.where} must name its axis")
            return
        cut = {"starts": [-1], "ends": [-(2**31)], "steps": [-1]}
        self._moved([("slice", {**{key: value * len(axes) for key, value in cut.items()}, "axes": axes})])

    def _swap(self) -> None:
        config = self.layer.config
        self.node("transpose", self.reads, swap=[config["axis1"], config["axis2"]])

    def _split(self) -> None:
        config = self.layer.config
        given, axis = config["indices_or_sections"], config.get("axis", 0)
        if isinstance(given, int):
            self.node("split", self.reads, [tensor(self.layer.name, at) for at in range(given)], axis=axis)
            return
        for at, (start, stop) in enumerate(pairwise([0, *given, 2**31 - 1])):
            cut: dict[str, Any] = {"starts": [start], "ends": [stop], "axes": [axis], "steps": [1]}
            self.node("slice", self.reads, tensor(self.layer.name, at), hidden=at > 0, **cut)

    def _pad_axes(self) -> None:
        config, (source, *value) = self.layer.config, self._operands()
        before, after = zip(*config["pad_width"], strict=True)
        more: dict[str, Any] = {"layout": self._layout()} if len(before) == 3 else {}
        mode = config.get("mode", "constant")
        self.node("pad", [source, "", *value], pads=[*before, *after], mode=mode, **more)

    # Moves

    def _get_item(self) -> None:
        """Slices and numbers in brackets; each number takes its axis away."""
        axis = 0
        key = self.layer.reads.arguments[1] if len(self.layer.reads.arguments) > 1 else []
        moves: list[tuple[str, dict[str, Any]]] = []
        parts = key if isinstance(key, list) else [key]
        for at, part in enumerate(parts, start=1):
            if isinstance(part, int):
                moves.append(("select", {"axis": axis, "index": part}))
                axis += axis < 0
                continue
            if isinstance(part, dict) and part.get("class_name") == "__ellipsis__":
                axis = at - len(parts)
                continue
            limits = part.get("config", {}) if isinstance(part, dict) else {}
            start, stop, step = (limits.get(name) for name in ("start", "stop", "step"))
            if part is None or (isinstance(part, dict) and part.get("class_name") != "__slice__"):
                self._refuse(f"{self.layer.where} must index with numbers and slices, not {part!r}")
                return
            if (start, stop, step) != (None, None, None):
                cut = {"starts": [start or 0], "ends": [2**31 - 1 if stop is None else stop]}
                moves.append(("slice", {**cut, "axes": [axis], "steps": [step or 1]}))
            axis += 1
        self._moved(moves or [("identity", {})])

    def _moved(self, moves: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Moves of axes, one after the other."""
        source = self.reads[0]
        for at, (operator, attributes) in enumerate(moves, start=1):
            name = self.layer.name if at == len(moves) else self._result(f"part {at}")
            source = self.node(operator, [source], name, hidden=at < len(moves), **attributes)


def _function_layers() -> dict[str, str]:
    """Activations by their layers, and by the classes of functions of keras.ops."""
    names = [name for name in activations(old=False) if name != "linear"]
    operations = {OPERATION + "".join(part.capitalize() for part in name.split("_")): name for name in names}
    return operations | {"ELU": "elu", "LeakyReLU": "leaky_relu"}


def _simple(operator: str, attributes: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., None]:
    """One node, whose attributes are made of the layer's configuration."""
    return lambda to: to.node(operator, to.reads, **attributes(to.layer.config))


def _axis(config: dict[str, Any]) -> dict[str, Any]:
    return {"axis": config.get("axis", -1)}


_OPERATIONS: dict[str, tuple[str, dict[str, str]]] = {
    **{name.capitalize(): (name, {}) for name in ALONE},
    **dict.fromkeys(("Abs", "Absolute"), ("abs", {})),
    "Add": ("add", {}),
    "Argmax": ("argmax", {"axis": "axis"}),
    "BroadcastTo": ("expand", {"shape": "shape"}),
    "Cast": ("cast", {"floating": "dtype"}),
    "Clip": ("clip", {"min": "x_min", "max": "x_max"}),
    "Copy": ("identity", {}),
    **dict.fromkeys(("Divide", "TrueDivide"), ("div", {})),
    "Einsum": ("einsum", {"equation": "subscripts"}),
    "Glu": ("glu", {"axis": "axis"}),
    "Greater": ("greater", {}),
    "GreaterEqual": ("greaterorequal", {}),
    "Less": ("less", {}),
    "LessEqual": ("lessorequal", {}),
    "LogSoftmax": ("log_softmax", {"axis": "axis"}),
    "Matmul": ("matmul", {}),
    "Maximum": ("max", {}),
    "Minimum": ("min", {}),
    "Multiply": ("mul", {}),
    **dict.fromkeys(("Negative", "Neg"), ("neg", {})),
    "Power": ("pow", {}),
    "Reshape": ("reshape", {"shape": "newshape"}),
    "Softmax": ("softmax", {"axis": "axis"}),
    "StopGradient": ("identity", {}),
    "Subtract": ("sub", {}),
    "Take": ("gather", {"axis": "axis"}),
    "Tile": ("tile", {"repeats": "repeats"}),
    "Transpose": ("transpose", {"perm": "axes"}),
    "Where": ("where", {}),
}
"""Functions of keras.ops: the operator, and its attributes as the configuration names them."""
_READ = {
    *("axis", "axis1", "axis2", "indices_or_sections", "keepdims", "mode", "name", "pad_width"),
    *(key for _, attributes in _OPERATIONS.values() for key in attributes.values()),
}
"""What is read of the configuration of functions of keras.ops."""
_REDUCED = {
    **dict.fromkeys(("Amax", "Max"), "reduce_max"),
    **dict.fromkeys(("Amin", "Min"), "reduce_min"),
    **dict.fromkeys(("Average", "Mean"), "reduce_mean"),
    "Sum": "reduce_sum",
}
_OF_ALL_LAYERS = ("activity_regularizer", "batch_input_shape", "batch_shape", "dtype", "name", "trainable")
_LAYERS: dict[str, Callable[[_Translator], None]] = {
    **dict.fromkeys(RECURRENT, _Translator._recurrent),
    **dict.fromkeys(
        _NOTHING, _simple("identity", lambda _: {"reason": "does nothing when a trained model is used"})
    ),
    **{kind: _simple(operator, _axis) for kind, operator in _MERGERS.items()},
    "Activation": _Translator._activated,
    "AveragePooling1D": _Translator._average,
    "BatchNormalization": _Translator._batch_norm,
    **dict.fromkeys(_KERNELS, _Translator._convolve),
    "Dense": _Translator._dense,
    "Embedding": _Translator._embed,
    "Flatten": _simple("flatten", lambda _: {"start": 1, "end": -1}),
    "GlobalAveragePooling1D": _Translator._over_steps,
    "GlobalMaxPooling1D": _Translator._over_steps,
    "InputLayer": _Translator._input,
    "LayerNormalization": _Translator._layer_norm,
    "Masking": _Translator._mask,
    "Nested": _Translator._nested,
    "Normalization": _Translator._normalise,
    "Permute": _simple("transpose", lambda config: {"perm": [0, *map(int, config["dims"])]}),
    "RMSNormalization": _Translator._layer_norm,
    "ReLU": _Translator._relu,
    "Rescaling": _Translator._rescale,
    "Reshape": _simple("reshape", lambda config: {"shape": [0, *map(int, config["target_shape"])]}),
    "Softmax": _simple("softmax", _axis),
    "TimeDistributed": _Translator._each_step,
    "ZeroPadding1D": _Translator._pad,
    **{OPERATION + name: _Translator._operate for name in _OPERATIONS},
    **{OPERATION + name: _Translator._reduce for name in _REDUCED},
    **dict.fromkeys((OPERATION + "Concatenate", OPERATION + "Stack"), _Translator._join),
    **dict.fromkeys((OPERATION + "ExpandDims", OPERATION + "Squeeze"), _Translator._squeeze),
    OPERATION + "Flip": _Translator._flip,
    OPERATION + "GetItem": _Translator._get_item,
    OPERATION + "Pad": _Translator._pad_axes,
    OPERATION + "Split": _Translator._split,
    OPERATION + "Swapaxes": _Translator._swap,
}
"""Layers by class, each with what translates it."""
