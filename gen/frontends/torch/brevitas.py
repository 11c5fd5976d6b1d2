"""Replaces brevitas' quantised modules by plain ones with the dequantised weights, which the reader knows.

brevitas itself is not imported: its modules are recognised by their classes, and asked for what they hold.
"""

import copy
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.arrays import import_extra, listed
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.spec.errors import ModelError

_PACKAGE: Final = "brevitas.nn."
_GATES: Final = ("input", "forget", "cell", "output")
"""brevitas' names of gates, in PyTorch's order."""
_LSTM_ROUNDINGS: Final = {
    "output_quant": "x and h",
    "input_acc_quant": "gates' sums",
    "input_sigmoid_quant": "sigmoid",
    "cell_tanh_quant": "tanh",
    "cell_state_quant": "c",
}
_RNN_ROUNDINGS: Final = {"output_quant": "x and h", "gate_acc_quant": "sums"}


def without_brevitas(module: Any, report: ReportBuilder) -> Any:
    """Return a module with plain modules instead of brevitas'; it itself if it has none. It is not changed.

    Raises
    ------
    ModelError
        If a module of brevitas has no such counterpart; the message names it.
    """
    if not any(_kind(part) for part in module.modules()):
        return module
    reader = _Reader(report)
    found = reader.plain(module, "")
    if reader.roundings:
        count = len(reader.roundings)
        report.note(
            f"brevitas rounds {count} results: {listed(reader.roundings)}. What is larger saturates there, x "
            "too: give the core an input that is clipped likewise. Here they have the core's formats instead "
            "(`data_bits`, `gate_bits`, `cell_bits`, `cell_range`), and biases are read before they are "
            "rounded"
        )
    return found


def _kind(module: Any) -> str:
    """The name of brevitas' class that a module is of, or derived from; empty if it is of none."""
    classes = (base for base in type(module).__mro__ if base.__module__.startswith(_PACKAGE))
    return next((str(base.__name__) for base in classes), "")


class _Reader:
    """Makes plain modules, and collects what is rounded."""

    def __init__(self, report: ReportBuilder) -> None:
        self.torch = import_extra("torch", "torch")
        self.report = report
        self.roundings: list[str] = []
        self.made: dict[int, Any] = {}

    def plain(self, module: Any, name: str) -> Any:
        """Return a module with plain ones in it: a copy that shares the others, and all tensors."""
        if id(module) not in self.made:
            kind = _kind(module)
            if kind:
                self.made[id(module)] = self._replaced(module, kind, name or kind)
            elif any(_kind(part) for part in module.modules()):
                changed = copy.copy(module)
                parts = module.named_children()
                children = {key: self.plain(part, f"{name}.{key}".lstrip(".")) for key, part in parts}
                changed.__dict__["_modules"] = {**module._modules, **children}
                self.made[id(module)] = changed
            else:
                self.made[id(module)] = module
        return self.made[id(module)]

    def _replaced(self, module: Any, kind: str, name: str) -> Any:
        makers: dict[str, Callable[[Any, str], Any]] = {
            "QuantIdentity": self._identity,
            "QuantLinear": self._linear,
            "QuantLSTM": self._recurrent,
            "QuantRNN": self._recurrent,
            "QuantReLU": self._activation("ReLU"),
            "QuantSigmoid": self._activation("Sigmoid"),
            "QuantTanh": self._activation("Tanh"),
        }
        forwards = [getattr(base, "forward", None) for base in type(module).__mro__ if base.__name__ == kind]
        if kind not in makers or type(module).forward is not forwards[0]:
            why = " with a forward of its own" if kind in makers else ""
            raise ModelError(
                f"brevitas' {kind} {name!r}{why} is not supported; supported are {', '.join(makers)}: put "
                "one of them, or a module of torch.nn, in its place"
            )
        with self.torch.no_grad():
            return makers[kind](module, name)

    # Modules

    def _activation(self, kind: str) -> Callable[[Any, str], Any]:
        def make(module: Any, name: str) -> Any:
            self._round(module.input_quant, f"what {name!r} reads")
            self._round(module.act_quant, repr(name))
            return getattr(self.torch.nn, kind)()

        return make

    def _identity(self, module: Any, name: str) -> Any:
        kind = "ReLU" if _begins_at_zero(module.act_quant) else "Identity"
        return self._activation(kind)(module, name)

    def _linear(self, module: Any, name: str) -> Any:
        self._round(module.input_quant, f"what {name!r} reads")
        self._round(module.output_quant, f"what {name!r} gives")
        weight = self._weight(module, f"{name}.weight")
        made = self.torch.nn.Linear(module.in_features, module.out_features, bias=module.bias is not None)
        made.weight = self._parameter(weight)
        if module.bias is not None:
            made.bias = self._parameter(module.bias)
        return made

    def _recurrent(self, module: Any, name: str) -> Any:
        """QuantLSTM or QuantRNN: one layer's weights are those of its gates."""
        layers = [list(directions) for directions in module.layers]
        first, lstm = layers[0][0], _kind(module) == "QuantLSTM"
        options: dict[str, Any] = {
            "batch_first": first.cell.batch_first,
            "bidirectional": len(layers[0]) == 2,
        }
        if not lstm:
            relu = isinstance(first.cell.act_fn, self.torch.nn.ReLU)
            options["nonlinearity"] = "relu" if relu else "tanh"
        of_torch = self.torch.nn.LSTM if lstm else self.torch.nn.RNN
        made = of_torch(first.input_size, first.hidden_size, len(layers), **options)
        for number, directions in enumerate(layers):
            for layer, suffix in zip(directions, ("", "_reverse"), strict=False):
                label = f"{name}.layers.{number}{suffix}"
                self._round_cell(layer.cell, label, _LSTM_ROUNDINGS if lstm else _RNN_ROUNDINGS)
                for key, value in self._gates(layer, label, lstm).items():
                    setattr(made, f"{key}_l{number}{suffix}", self._parameter(value))
        return made

    def _gates(self, layer: Any, label: str, lstm: bool) -> dict[str, Any]:
        """Return the parameters of a layer of torch.nn."""
        found = []
        for gate in _GATES if lstm else ("",):
            parameters, sign = getattr(layer, f"{gate}_gate_params".lstrip("_")), 1
            if parameters is None:  # f is 1 - i, the sigmoid of the negative sum.
                parameters, sign = layer.input_gate_params, -1
            both = [
                sign * self._weight(part, f"{label}.{gate}.{key}", sign)
                for key, part in (("w_ih", parameters.input_weight), ("w_hh", parameters.hidden_weight))
            ]
            bias = parameters.bias
            found.append((*both, both[0].new_zeros(layer.hidden_size) if bias is None else sign * bias))
        w_ih, w_hh, bias = (self.torch.cat(parts) for parts in zip(*found, strict=True))
        return {"weight_ih": w_ih, "weight_hh": w_hh, "bias_ih": bias, "bias_hh": self.torch.zeros_like(bias)}

    # Values

    def _weight(self, module: Any, tensor: str, sign: int = 1) -> Any:
        """Return a module's dequantised weights, and register their integers."""
        found = module.quant_weight()
        if not module.weight_quant.is_quant_enabled:
            return found
        value = found.value
        scale, zero = (_floats(part.expand(value.shape)) for part in (found.scale, found.zero_point))
        self.report.integer_rows.add(
            tensor, sign * _floats(value), np.abs(scale), round(float(found.bit_width)), bool(zero.any())
        )
        return value

    def _parameter(self, tensor: Any) -> Any:
        return self.torch.nn.Parameter(tensor.detach().clone())

    def _round_cell(self, cell: Any, label: str, roundings: dict[str, str]) -> None:
        for key, what in roundings.items():
            proxy = getattr(cell, key)
            if what != "sigmoid" and _begins_at_zero(proxy):
                raise ModelError(
                    f"{label}: brevitas rounds {what} to integers without a sign, so that negative values "
                    "become 0, which is not supported; choose a signed quantiser, as Int8ActPerTensorFloat"
                )
            self._round(proxy, f"{what} of {label!r}")

    def _round(self, proxy: Any, what: str) -> None:
        """Note what an activation's quantiser does."""
        if proxy.is_quant_enabled:
            bits, step, zero = (
                float(part().reshape(-1)[0]) for part in (proxy.bit_width, proxy.scale, proxy.zero_point)
            )
            most = (2 ** (bits - 1 if proxy.is_signed else bits) - 1 - zero) * step
            self.roundings.append(f"{what} to {bits:g} bits, at most {most:.4g} in steps of {step:.4g}")


def _begins_at_zero(proxy: Any) -> bool:
    """Whether an activation's quantiser makes negative values 0."""
    return bool(proxy.is_quant_enabled and not proxy.is_signed and not proxy.zero_point().any())


def _floats(tensor: Any) -> NDArray[np.float64]:
    return np.asarray(tensor.detach().cpu().double().numpy())
