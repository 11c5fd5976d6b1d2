"""Converts an exported program (``torch.export``) to a graph of torch.fx, which is read like a module's.

Operators of ATen that are a layer with parameters become modules of torch.nn again; others become calls of
tensors' methods of the same name. Nothing of the program is run.
"""

import io
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.torch.cells import PARAMETERS
from rtlstm.gen.frontends.torch.exported_archive import Archive, one_error
from rtlstm.gen.frontends.weight_parts import PLAIN
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import open_file
from rtlstm.spec.network import Network

__all__ = ["read_exported"]

_SEQUENCES = {"lstm": ("LSTM", 4), "gru": ("GRU", 3), "rnn_tanh": ("RNN", 1), "rnn_relu": ("RNN", 1)}
_CELLS = {f"{name}_cell": found for name, found in _SEQUENCES.items()}
_PASS = ("alias", "clone", "contiguous", "detach", "lift_fresh_copy")
_CASTS = ("_to_copy", "to", "type_as")
_FLOATS = (6, 7, 8, 13)
_RENAMED = {"_unsafe_view": "reshape", "sym_size": "size"}
_POSITIONAL = 1
_Made = dict[str, Any]


def read_exported(source: Path | Any, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read a file that ``torch.export.save`` wrote, or a ``torch.export.ExportedProgram``."""
    from rtlstm.gen.frontends.torch.module import read_graph

    torch = import_extra("torch", "torch")
    report.format = "exported program"
    if options.dense is not None:
        raise ModelError(
            "the option dense is for files of tensors; an exported program has its dense layers in the graph"
        )
    if isinstance(source, Path):
        with open_file(source) as file:
            converter = _convert(torch, file)
    else:
        saved = io.BytesIO()
        torch.export.save(source, saved)
        saved.seek(0)
        converter = _convert(torch, saved)
    return read_graph(converter.root, converter.modules, converter.graph, options, report)


def _convert(torch: Any, file: BinaryIO) -> "_Converter":
    archive = Archive(file)
    converter = _Converter(torch, archive)
    with one_error():
        converter.run()
    return converter


class _Parameter(str):
    """A tensor of the model, by its name in the module."""


class _Converter:
    """Converts node by node; ``scope`` maps names of values to nodes of the new graph or to parameters."""

    def __init__(self, torch: Any, archive: Archive) -> None:
        self.torch, self.archive = torch, archive
        self.graph = torch.fx.Graph()
        self.root = SimpleNamespace()
        self.modules: dict[str, Any] = {}
        self.scope: dict[str, Any] = {}
        self._made: dict[tuple[Any, ...], str] = {}

    def run(self) -> None:
        """Convert the whole program."""
        for spec in self.archive.signature["input_specs"]:
            self._input(spec)
        for node in self.archive.graph["nodes"]:
            self._node(node)
        results = []
        for spec in self.archive.signature["output_specs"]:
            if "user_output" in spec:
                value = self._value(spec["user_output"]["arg"])
                results += [value] if isinstance(value, self.torch.fx.Node) else []
        self.graph.output(tuple(results))

    def _input(self, spec: Mapping[str, Any]) -> None:
        for kind in ("parameter", "buffer", "tensor_constant"):
            if kind in spec:
                self.scope[spec[kind]["arg"]["name"]] = _Parameter(spec[kind][f"{kind}_name"])
        arg = spec.get("user_input", {}).get("arg", {})
        if "as_tensor" in arg:
            name = arg["as_tensor"]["name"]
            placeholder = self.graph.placeholder(name)
            declared = self.archive.graph["tensor_values"].get(name, {}).get("sizes", [])
            placeholder.meta["sizes"] = [size.get("as_int") for size in declared]
            self.scope[name] = placeholder

    def _node(self, node: Mapping[str, Any]) -> None:
        *home, name, _ = str(node["target"]).split(".")[-3:] if "." in node["target"] else ("", "", "")
        operation = name.rstrip("_")
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for item in node["inputs"]:
            value = self._value(item["arg"])
            if item.get("kind", _POSITIONAL) == _POSITIONAL:
                args.append(value)
            else:
                kwargs[str(item["name"])] = value
        named = {str(item["name"]): self._value(item["arg"]) for item in node["inputs"]}
        outputs = [found for item in node["outputs"] for found in _names(item)]
        label = str(node.get("name") or (outputs[0] if outputs else operation))
        aten = home == ["aten"]
        if aten and operation in _SEQUENCES:
            results = self._sequence(operation, str(node["target"]), named, label)
        elif aten and operation in _CELLS:
            results = self._cell(operation, named, label)
        elif aten and operation in _LAYERS:
            results = [_LAYERS[operation](self, named, label)]
        elif aten and (operation in _PASS or _is_float_cast(operation, args, named)):
            results = [self._plain(args[0])]
        else:
            called = self._call(operation, args, kwargs, label)
            many = len(outputs) > 1 or "as_tensors" in next(iter(node["outputs"]), {})
            results = [self._item(called, at) for at in range(len(outputs))] if many else [called]
        self.scope.update(zip(outputs, results, strict=False))

    def _value(self, arg: Mapping[str, Any]) -> Any:
        """An argument: nodes and parameters in place of names."""
        ((kind, value),) = arg.items()
        if kind in ("as_tensor", "as_custom_obj"):
            return self.scope[value["name"]]
        if kind in ("as_tensors", "as_nested_tensors"):
            return [self.scope[item["name"]] for item in value]
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return self._symbol(value)
        if kind in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [self._symbol(item) for item in value]
        if kind == "as_optional_tensor":
            return self._value(value)
        if kind == "as_optional_tensors":
            return [self._value(item) for item in value]
        if kind == "as_none":
            return None
        if kind in ("as_device", "as_graph", "as_operator"):
            return str(value)
        return value

    def _symbol(self, item: Mapping[str, Any]) -> Any:
        ((kind, value),) = item.items()
        return self.scope[value] if kind == "as_name" else value

    # Calls

    def _plain(self, value: Any) -> Any:
        """A value of the graph: a parameter becomes a node."""
        if isinstance(value, _Parameter):
            flat = value.replace(".", "_")
            if not hasattr(self.root, flat):
                setattr(self.root, flat, self._tensor(value))
            return self.graph.get_attr(flat)
        if isinstance(value, list | tuple):
            return type(value)(map(self._plain, value))
        return value

    def _call(self, name: str, args: list[Any], kwargs: dict[str, Any], label: str) -> Any:
        """A call of a tensor's method, as the front end knows them."""
        name = _RENAMED.get(name, name)
        if name == "constant_pad_nd":
            name, args = "pad", [*args[:2], "constant", *args[2:]]
        if name in ("add", "sub") and len(args) > 2:
            args, kwargs = args[:2], {**kwargs, "alpha": args[2]}
        if name == "elu" and any(scale != 1 for scale in args[2:]):
            name = "scaled_elu"
        given = tuple(self._plain(item) for item in args)
        named = {key: self._plain(item) for key, item in kwargs.items()}
        return self.graph.create_node("call_method", name or "call", given, named, name=label)

    def _item(self, value: Any, *indices: int) -> Any:
        for at in indices:
            value = self.graph.call_function(operator.getitem, (value, at))
        return value

    # Layers

    def _tensor(self, name: str) -> Any:
        return self.torch.from_numpy(self.archive.tensor(name))

    def _parameter(self, value: Any, what: str) -> Any:
        """A parameter as a tensor."""
        if not isinstance(value, _Parameter):
            raise ModelError(
                f"{what} must read its weights from the model's parameters, not compute them; {PLAIN}"
            )
        return self._tensor(value)

    def _module(
        self, tensors: Mapping[str, Any], options: tuple[Any, ...], label: str, make: Callable[[_Made], Any]
    ) -> str:
        """The path of the module that ``make`` makes of parameters; they say where it stood."""
        present = {key: value for key, value in tensors.items() if value is not None}
        key = (*options, *sorted((part, str(value)) for part, value in present.items()))
        if key not in self._made:
            loaded = {
                part: self._parameter(value, f"the operator {label!r}") for part, value in present.items()
            }
            try:
                module = make(loaded).double()
                module.load_state_dict(loaded)
            except RuntimeError:
                shapes = ", ".join(f"{part} {tuple(value.shape)}" for part, value in loaded.items())
                raise ModelError(f"the operator {label!r} has weights that do not fit: {shapes}") from None
            path = str(next(iter(present.values()))).rpartition(".")[0] or label
            while path in self.modules:
                path += "_again"
            self.modules[path] = module.eval()
            self._made[key] = path
        return self._made[key]

    def _called(self, path: str, args: Sequence[Any], label: str) -> Any:
        given = tuple(self._plain(item) for item in args)
        return self.graph.create_node("call_module", path, given, name=label)

    def _sequence(self, operation: str, target: str, named: Mapping[str, Any], label: str) -> list[Any]:
        kind, gates = _SEQUENCES[operation]
        if not target.endswith(".input"):
            raise ModelError(
                f"the operator {label!r} reads a PackedSequence, which is not read from an exported program; "
                "export the model without packing and give the lengths to the driver"
            )
        layers, bias = int(named["num_layers"]), bool(named["has_biases"])
        both, first = bool(named["bidirectional"]), bool(named["batch_first"])
        given = named["params"]
        each, rest = divmod(len(given), max(layers, 1) * (1 + both))
        parts = [part for part in PARAMETERS if bias or not part.startswith("bias")]
        if each == len(parts) - 1:
            parts = parts[:-1]
        if layers < 1 or rest or each != len(parts):
            raise ModelError(f"the operator {label!r} has {len(given)} weights, which do not fit its layers")
        names = [
            f"{part}_l{layer}{suffix}"
            for layer in range(layers)
            for suffix in ("", "_reverse")[: 1 + both]
            for part in parts
        ]

        def make(made: _Made) -> Any:
            w_hh = made["weight_hh_l0"]
            options: dict[str, Any] = {"proj_size": w_hh.shape[1]} if "weight_hr_l0" in made else {}
            if kind == "RNN":
                options["nonlinearity"] = operation.removeprefix("rnn_")
            options |= {"num_layers": layers, "bias": bias, "batch_first": first, "bidirectional": both}
            sizes = made["weight_ih_l0"].shape[1], w_hh.shape[0] // gates
            return getattr(self.torch.nn, kind)(*sizes, **options)

        path = self._module(dict(zip(names, given, strict=True)), (operation, first), label, make)
        if layers > 1 and named.get("dropout"):
            self.modules[path].dropout = float(named["dropout"])
        state = named["hx"]
        state = tuple(state) if isinstance(state, list) else state
        called = self._called(path, [named["input"], state], label)
        final = [(1, 0), (1, 1)] if kind == "LSTM" else [(1,)]
        return [self._item(called, *indices) for indices in ((0,), *final)]

    def _cell(self, operation: str, named: Mapping[str, Any], label: str) -> list[Any]:
        kind, gates = _CELLS[operation]
        tensors = {f"{part[0]}_{part[2:]}": named.get(part) for part in ("w_ih", "w_hh", "b_ih", "b_hh")}
        tensors = {
            f"{'weight' if part[0] == 'w' else 'bias'}{part[1:]}": value for part, value in tensors.items()
        }

        def make(made: _Made) -> Any:
            options = {"nonlinearity": operation.split("_")[1]} if kind == "RNN" else {}
            sizes = made["weight_ih"].shape[1], made["weight_hh"].shape[0] // gates
            return getattr(self.torch.nn, f"{kind}Cell")(*sizes, "bias_ih" in made, **options)

        path = self._module(tensors, (operation,), label, make)
        state = named["hx"]
        called = self._called(
            path, [named["input"], tuple(state) if isinstance(state, list) else state], label
        )
        return [self._item(called, 0), self._item(called, 1)] if kind == "LSTM" else [called]

    def _linear(self, named: Mapping[str, Any], label: str) -> Any:
        def make(made: _Made) -> Any:
            outputs, inputs = made["weight"].shape
            return self.torch.nn.Linear(inputs, outputs, "bias" in made)

        tensors = {"weight": named["weight"], "bias": named.get("bias")}
        return self._called(self._module(tensors, ("linear",), label, make), [named["input"]], label)

    def _embedding(self, named: Mapping[str, Any], label: str) -> Any:
        def make(made: _Made) -> Any:
            return self.torch.nn.Embedding(*made["weight"].shape)

        path = self._module({"weight": named["weight"]}, ("embedding",), label, make)
        return self._called(path, [named["indices"]], label)

    def _conv1d(self, named: Mapping[str, Any], label: str) -> Any:
        defaults = {"stride": [1], "padding": [0], "dilation": [1], "groups": 1}
        chosen: dict[str, Any] = {name: named.get(name, default) for name, default in defaults.items()}
        chosen = {name: tuple(value) if isinstance(value, list) else value for name, value in chosen.items()}

        def make(made: _Made) -> Any:
            outputs, inputs, size = made["weight"].shape
            given = inputs * int(chosen["groups"])
            return self.torch.nn.Conv1d(given, outputs, size, bias="bias" in made, **chosen)

        tensors = {"weight": named["weight"], "bias": named.get("bias")}
        path = self._module(tensors, ("conv1d", *chosen.values()), label, make)
        return self._called(path, [named["input"]], label)

    def _batch_norm(self, named: Mapping[str, Any], label: str) -> Any:
        if named.get("training"):
            raise ModelError(
                f"the operator {label!r} is in training mode; call eval() on the model, export again"
            )
        eps = float(named["eps"])

        def make(made: _Made) -> Any:
            affine = "weight" in made
            made["num_batches_tracked"] = self.torch.tensor(0)
            return self.torch.nn.BatchNorm1d(len(made["running_mean"]), eps, affine=affine)

        names = {
            "running_mean": "running_mean",
            "running_var": "running_var",
            "weight": "weight",
            "bias": "bias",
        }
        tensors = {part: named.get(name) for part, name in names.items()}
        return self._called(self._module(tensors, ("batch_norm", eps), label, make), [named["input"]], label)


_LAYERS: dict[str, Callable[[_Converter, Mapping[str, Any], str], Any]] = {
    "batch_norm": _Converter._batch_norm,
    "conv1d": _Converter._conv1d,
    "embedding": _Converter._embedding,
    "linear": _Converter._linear,
}


def _is_float_cast(operation: str, args: list[Any], named: Mapping[str, Any]) -> bool:
    return operation in _CASTS and bool(args) and named.get("dtype", _FLOATS[0]) in _FLOATS


def _names(output: Mapping[str, Any]) -> list[str]:
    """Names of the values that one of a node's outputs stands for."""
    ((kind, value),) = output.items()
    if kind == "as_tensors":
        return [item["name"] for item in value]
    if kind == "as_none":
        return [""]
    return [value["as_name"] if kind.startswith("as_sym") else value["name"]]
