"""The same networks on the processor: onnxruntime, PyTorch and a plain C++ loop, one step at a time."""

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rtlstm.bench.shapes import Shape
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ToolError
from rtlstm.spec.network import Dense, Gru, Lstm, PseudoLayer
from rtlstm.tools.toolchain import compiler, run_tool

_WARM, _FEWEST, _MOST = 20, 20, 100_000

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Environment of a program whose libraries must not start threads of their own."""


def pin() -> int | None:
    """Pin this process to one core, the last it may use; return which, or None if the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def sample(call: Callable[[int], object], seconds: float) -> NDArray[np.float64]:
    """Call ``call(0)``, ``call(1)``, ... for about ``seconds``; return each call's time but the first's."""
    clock = time.perf_counter_ns
    for index in range(_WARM):
        call(index)
    end = clock() + round(seconds * 1e9)
    taken: list[int] = []
    while len(taken) < _FEWEST or (clock() < end and len(taken) < _MOST):
        before = clock()
        call(len(taken))
        taken.append(clock() - before)
    return np.array(taken) * 1e-9


Floats = NDArray[np.float32]

_CPP_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"),
    *("-fno-trapping-math", "-fno-signed-zeros", "-ffinite-math-only"),
)
"""The last three let a comparison become a minimum instruction, with the same results."""
_BURST = 2e-4
"""Seconds of steps between two readings of the clock: other programs interrupt few of them."""
_OPSET, _IR = 17, 8
_RANGE_STEPS = 64
"""Steps that the largest values of dense layers are taken from."""


class Engine:
    """A network that keeps its state between steps, with one Python call per step if it has no other."""

    def step(self, x: Floats) -> Floats:
        """Compute one step."""
        raise NotImplementedError

    def run(self, x: Floats) -> Floats:
        """Compute steps ``(T, inputs)``, outputs ``(T, outputs)``."""
        return np.stack([np.array(self.step(row), dtype=np.float32) for row in x])

    def time(self, x: Floats, seconds: float) -> tuple[NDArray[np.float64], float]:
        """Run the steps of ``x`` repeatedly for about ``seconds``; return each step's time, and the mean."""
        rows = list(x)
        taken = sample(lambda index: self.step(rows[index % len(rows)]), seconds)
        return taken, float(taken.mean())


def onnx_gates(weights: NDArray[Any], order: tuple[int, ...]) -> NDArray[Any]:
    """Reorder the rows of gates."""
    parts = weights.reshape(len(order), -1, *weights.shape[1:])[list(order)]
    return np.ascontiguousarray(parts.reshape(weights.shape)[None])


def onnx_model(nodes: list[Any], constants: dict[str, Any], ins: list[Any], outs: list[Any]) -> Any:
    """Return an ONNX model of nodes, with constants by their names."""
    from onnx import helper, numpy_helper

    single = {name: array.astype(np.float32) for name, array in constants.items() if array.dtype.kind == "f"}
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants | single).items()]
    graph = helper.make_graph(nodes, "network", ins, outs, tensors)
    opset = [helper.make_opsetid("", _OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=_IR)


def onnx_session(model: Any) -> Any:
    """Return an onnxruntime session of a model, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


@dataclass(frozen=True)
class OnnxCell:
    """ONNX's operator for a plain recurrent layer."""

    operator: str
    order: tuple[int, ...]
    """Our gates in ONNX's order: i, o, f, c and z, r, n."""
    states: str
    options: dict[str, Any]

    @classmethod
    def of(cls, layer: PseudoLayer) -> Self:
        """Find it; of a layer that is neither LSTM nor GRU, an RNN without a function."""
        if isinstance(layer, Lstm):
            return cls("LSTM", (0, 3, 1, 2), "hc", {})
        if isinstance(layer, Gru):
            return cls("GRU", (1, 0, 2), "h", {"linear_before_reset": int(layer.reset_after)})
        return cls("RNN", (0,), "h", {"activations": ["Affine"], "activation_alpha": [1.0]})


def both_biases(layer: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """A recurrent layer's biases of the input's and of the recurrent product."""
    return (
        (layer.bias_ih, layer.bias_hh) if isinstance(layer, Gru) else (layer.bias, np.zeros_like(layer.bias))
    )


def _recurrent_node(
    index: int, layer: Lstm | Gru, constants: dict[str, NDArray[Any]], source: str, sequence: str
) -> Any:
    from onnx import helper

    cell = OnnxCell.of(layer)
    order, states = cell.order, cell.states
    constants[f"w{index}"] = onnx_gates(layer.w_ih, order)
    constants[f"r{index}"] = onnx_gates(layer.w_hh, order)
    constants[f"b{index}"] = np.concatenate([onnx_gates(bias, order) for bias in both_biases(layer)], axis=1)
    return helper.make_node(
        cell.operator,
        [source, f"w{index}", f"r{index}", f"b{index}", "", *(f"{state}{index}" for state in states)],
        [sequence, *(f"{state}{index}_out" for state in states)],
        hidden_size=layer.units,
        **cell.options,
    )


def lstm_session(shape: Shape) -> Callable[[Floats], Floats]:
    """Return a function that runs a network's only LSTM layer over sequences ``(T, N, inputs)`` at once."""
    from onnx import TensorProto, helper

    layer = shape.network().layers[0]
    assert isinstance(layer, Lstm)
    constants: dict[str, NDArray[Any]] = {}
    units, real = shape.units[0], TensorProto.FLOAT
    node = _recurrent_node(0, layer, constants, "x", "y")
    ins = [helper.make_tensor_value_info("x", real, ["T", "N", shape.inputs])]
    ins += [helper.make_tensor_value_info(name, real, [1, "N", units]) for name in ("h0", "c0")]
    outs = [helper.make_tensor_value_info("y", real, ["T", 1, "N", units])]
    session = onnx_session(onnx_model([node], constants, ins, outs))

    def run(x: Floats) -> Floats:
        zeros = np.zeros((1, x.shape[1], units), dtype=np.float32)
        return np.asarray(session.run(None, {"x": x, "h0": zeros, "c0": zeros})[0][:, 0])

    return run


class OnnxRuntimeStep(Engine):
    """onnxruntime with bound buffers: a step's new state is the next one's input, without a copy."""

    def __init__(self, shape: Shape) -> None:
        import onnxruntime
        from onnx import TensorProto, helper

        nodes: list[Any] = []
        constants: dict[str, NDArray[Any]] = {}
        states: dict[str, int] = {}
        values = "x"
        for index, layer in enumerate(shape.network().layers):
            if isinstance(layer, Lstm | Gru):
                nodes.append(_recurrent_node(index, layer, constants, values, ""))
                states |= {f"{part}{index}": layer.units for part in OnnxCell.of(layer).states}
                # (1, 1, units) is also the shape of the one step's output.
                values = f"h{index}_out"
            elif isinstance(layer, Dense):
                nodes += self._dense(index, layer, constants, values)
                values = f"y{index}"
        nodes.append(helper.make_node("Identity", [values], ["y"]))
        real = TensorProto.FLOAT
        ins = [helper.make_tensor_value_info("x", real, [1, 1, shape.inputs])]
        ins += [helper.make_tensor_value_info(name, real, [1, 1, units]) for name, units in states.items()]
        outs = [helper.make_tensor_value_info("y", real, [1, 1, shape.outputs])]
        outs += [
            helper.make_tensor_value_info(f"{name}_out", real, [1, 1, units])
            for name, units in states.items()
        ]
        self._session = onnx_session(onnx_model(nodes, constants, ins, outs))

        def buffer(size: int) -> Any:
            return onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, 1, size), dtype=np.float32))

        self._x, self._y = buffer(shape.inputs), buffer(shape.outputs)
        self._x_view: Floats = self._x.numpy()
        sides = [{name: buffer(units) for name, units in states.items()} for _ in range(2)]
        self._bindings = [self._bind(*sides), self._bind(*sides[::-1])]

    @staticmethod
    def _dense(index: int, layer: Dense, constants: dict[str, NDArray[Any]], source: str) -> list[Any]:
        from onnx import helper

        constants[f"w{index}"] = layer.weight.T
        constants[f"b{index}"] = layer.bias
        linear = f"y{index}" if layer.activation == "identity" else f"linear{index}"
        nodes = [
            helper.make_node("MatMul", [source, f"w{index}"], [f"product{index}"]),
            helper.make_node("Add", [f"product{index}", f"b{index}"], [linear]),
        ]
        if layer.activation == "relu":
            nodes.append(helper.make_node("Relu", [linear], [f"y{index}"]))
        return nodes

    def _bind(self, old: dict[str, Any], new: dict[str, Any]) -> Any:
        binding = self._session.io_binding()
        binding.bind_ortvalue_input("x", self._x)
        binding.bind_ortvalue_output("y", self._y)
        for name in old:
            binding.bind_ortvalue_input(name, old[name])
            binding.bind_ortvalue_output(f"{name}_out", new[name])
        return binding

    def step(self, x: Floats) -> Floats:
        """Compute one step; the next call overwrites the result."""
        self._x.update_inplace(x.reshape(1, 1, -1))
        self._session.run_with_iobinding(self._bindings[0])
        self._bindings.reverse()
        result: Floats = self._y.numpy()
        return result.reshape(-1)


class TorchStep(Engine):
    """PyTorch without gradients."""

    def __init__(self, shape: Shape) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self._recurrent, self._dense, self._states = [], [], []
        for layer in shape.network().layers:
            if isinstance(layer, Lstm | Gru):
                lstm, zeros = isinstance(layer, Lstm), torch.zeros(1, 1, layer.units)
                module = (torch.nn.LSTM if lstm else torch.nn.GRU)(layer.inputs, layer.units)
                self._states.append((zeros, zeros) if lstm else zeros)
                # PyTorch's parameters have this order.
                arrays = layer.w_ih, layer.w_hh, *both_biases(layer)
                with torch.no_grad():
                    for parameter, array in zip(module.parameters(), arrays, strict=True):
                        parameter.copy_(torch.tensor(array))
                self._recurrent.append(module.eval())
            elif isinstance(layer, Dense):
                tensors = (torch.tensor(each, dtype=torch.float32) for each in (layer.weight, layer.bias))
                self._dense.append((*tensors, layer.activation == "relu"))

    def step(self, x: Floats) -> Floats:
        """Compute one step."""
        torch = self._torch
        with torch.inference_mode():
            values = torch.from_numpy(x).reshape(1, 1, -1)
            for index, module in enumerate(self._recurrent):
                values, self._states[index] = module(values, self._states[index])
            for weight, bias, relu in self._dense:
                values = torch.nn.functional.linear(values, weight, bias)
                values = torch.relu(values) if relu else values
            result: Floats = values.reshape(-1).numpy()
            return result


_ARRAYS = ("w_ih", "w_hh", "weight", "bias", "bias_ih", "bias_hh")
"""A layer's, as the loop reads them."""


class CppLoop(Engine):
    """``cpu_loop.cpp``, compiled for this processor and this network.

    ``int8`` says whether weights, inputs and h are integers of 8 bits; they are floats otherwise. ``flags``
    are more options for the compiler.
    """

    def __init__(self, shape: Shape, int8: bool = False, flags: Sequence[str] = ()) -> None:
        cxx = compiler()
        source = Path(__file__).with_name("cpu_loop.cpp")
        defines = {
            "CELL": (shape.cell.capitalize(),),
            "INPUTS": (shape.inputs,),
            "UNITS": shape.units,
            "DENSE_OUTPUTS": shape.dense or (-1,),
        }
        words = [f"-D{name}={','.join(map(str, sizes))}" for name, sizes in defines.items()]
        words += ["-DINT8"] * int8
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "loop.so"
            run_tool(
                [cxx.path, *_CPP_FLAGS, *flags, *words, source, "-o", library], f"compiling {source.name}"
            )
            self._library = ctypes.CDLL(str(library))
        pointer, number = ctypes.c_void_p, ctypes.c_long
        self._library.loop_kernel.restype = ctypes.c_char_p
        self._library.loop_create.restype = pointer
        self._library.loop_create.argtypes = [pointer, pointer]
        self._library.loop_destroy.argtypes = [pointer]
        self._library.loop_run.restype = ctypes.c_double
        self._library.loop_run.argtypes = [
            pointer,
            pointer,
            number,
            number,
            pointer,
            number,
            pointer,
            pointer,
        ]
        arrays = [
            getattr(layer, name)
            for layer in shape.network().layers
            for name in _ARRAYS
            if hasattr(layer, name)
        ]
        flat = np.concatenate([np.ravel(array) for array in arrays]).astype(np.float32)
        found = _dense_ranges(shape) if int8 else [np.finfo(np.float32).max] * (len(shape.dense) + 1)
        ranges = np.array(found, dtype=np.float32)
        self._outputs = shape.outputs
        self._model = self._library.loop_create(flat.ctypes.data, ranges.ctypes.data)

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._library.loop_destroy(self._model)

    @property
    def kernel(self) -> str:
        """What multiplies: ``float``, or the instructions for integers."""
        name: bytes = self._library.loop_kernel()
        return name.decode()

    def _run(self, x: Floats, steps: int, kept: int, *each: NDArray[np.float64]) -> Any:
        """Run steps; ``each`` is filled with the steps' times, and with those from input to output."""
        x = np.ascontiguousarray(x, dtype=np.float32)
        y = np.empty((kept, self._outputs), dtype=np.float32)
        times = [array.ctypes.data for array in each] + [None] * (2 - len(each))
        total = self._library.loop_run(self._model, x.ctypes.data, len(x), steps, y.ctypes.data, kept, *times)
        return total, y

    def run(self, x: Floats) -> Floats:
        """Compute steps."""
        outputs: Floats = self._run(x, len(x), len(x))[1]
        return outputs

    def time(self, x: Floats, seconds: float) -> tuple[NDArray[np.float64], float]:
        """Time steps one by one; and many together, the median of a few times, without reading the clock."""
        steps = 16
        while (total := self._run(x, steps, 1)[0]) < min(_BURST, seconds / 4) and steps < 1 << 22:
            steps *= 2
        bursts = max(3, int(seconds / 2 / total))
        mean = float(np.median([self._run(x, steps, 1)[0] for _ in range(bursts)])) / steps
        each = np.empty(max(steps, round(seconds / 4 / mean)), dtype=np.float64)
        self._run(x, len(each), 1, each)
        return each, mean

    def time_ready(self, x: Floats, steps: int) -> NDArray[np.float64]:
        """Time steps from input to output, whose recurrent product is there before the input."""
        ready = np.empty(steps, dtype=np.float64)
        self._run(x, steps, 1, np.empty(steps, dtype=np.float64), ready)
        return ready


def _dense_ranges(shape: Shape) -> list[float]:
    """The largest input of each dense layer, which is at most 1 for the first, and 1 for what follows."""
    x = shape.input_values(_RANGE_STEPS)[:, None].astype(np.float64)
    found = [1.0]
    for count in range(1, len(shape.dense)):
        first = shape.replace(dense=shape.dense[:count])
        found.append(max(float(run_float(first.network(), x).y.max()), 1e-6))
    return [*found, 1.0]


def _checked(engine: Callable[[Shape], Engine]) -> Callable[[Shape], Engine]:
    """Have an engine say which package it misses."""

    def checked(shape: Shape) -> Engine:
        try:
            return engine(shape)
        except ModuleNotFoundError as missing:
            raise ToolError(f"{missing.name} is not installed: run 'make setup'") from None

    return checked


ENGINES: dict[str, Callable[[Shape], Engine]] = {
    "onnxruntime": _checked(OnnxRuntimeStep),
    "torch": _checked(TorchStep),
    "c++": CppLoop,
    "c++ int8": lambda shape: CppLoop(shape, int8=True),
}
"""The engines by name. Each takes a network, and raises ToolError if a package is not installed."""
