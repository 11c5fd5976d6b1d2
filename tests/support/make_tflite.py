"""Makes tests/support/tflite: files of TensorFlow and of tflite_files.py, with interpreters' outputs.

    pip install tensorflow-cpu tf-keras ai-edge-litert tflite-micro pyyaml bitarray tflite
    PYTHONPATH=tests python tests/support/make_tflite.py

``outputs.npz`` has of each file ``NAME.x``, the data, and ``NAME.y``, what the interpreter gave, as integers
where the file has these: LiteRT's without delegates, TFLite Micro's for 16 bits.
"""

import os
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Keras 3's LSTM becomes a loop

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tflite_micro.python.tflite_micro import runtime

from support.tflite_files import Operator, Tensor, build, lstm

FOLDER = Path(__file__).parent / "tflite"
STEPS, INPUTS = 12, 5
L = tf.keras.layers
INT16 = 2.0**-15


def keras(*layers: Any, inputs: int = INPUTS) -> Any:
    start = end = tf.keras.Input((STEPS, inputs), batch_size=1)
    for layer in layers:
        end = layer(end)
    model = tf.keras.Model(start, end)
    rng = np.random.default_rng(0)
    model.set_weights(
        [w + rng.uniform(-0.3, 0.3, w.shape) if w.ndim == 1 else w for w in model.get_weights()]
    )
    return model


def converted(model: Any, kind: str) -> bytes:
    """Float, or with weights or all in integers of 8 bits; ``int8`` has inputs and outputs of floats."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    width = model.inputs[0].shape[-1]
    if kind != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind.startswith("int8"):
        rng = np.random.default_rng(1)
        converter.representative_dataset = lambda: (
            [rng.normal(size=(1, STEPS, width)).astype(np.float32)] for _ in range(100)
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    if kind == "int8_ends":
        converter.inference_input_type = converter.inference_output_type = tf.int8
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


def micro() -> bytes:
    """An LSTM with data of 16 and weights of 8 bits, as TFLite Micro computes it."""
    tensors, operator = lstm(np.random.default_rng(2), INPUTS, 6, steps=STEPS)
    step = 4.0 * INT16
    for name, tensor in tensors.items():
        part = name.rpartition("/")[2]
        if tensor.array is None:
            tensor.kind, tensor.zero = "int16", [0]
            tensor.scale = [{"x": step, "c": 2.0**-12}.get(part, INT16)]
            continue
        scale = np.abs(tensor.array).max() / 127 if part[0] in "wr" else 0.0
        kind = "int8"
        if part[0] == "b":
            scale, kind = step * tensors[f"y/w_{part[2:]}"].scale[0], "int64"
        tensor.scale, tensor.zero = [float(scale)], [0]
        tensor.array = np.round(tensor.array / scale).astype(kind)
    return build(tensors, [operator], ["x"], ["y"])


def around() -> bytes:
    """Every other operator around an LSTM of which steps come first."""
    rng, full, kept = np.random.default_rng(5), "FullyConnectedOptions", {"KeepNumDims": True}

    def some(*shape: int) -> Tensor:
        return Tensor(rng.uniform(-0.8, 0.8, shape).astype(np.float32))

    def whole(*values: int) -> Tensor:
        return Tensor(np.array(values, np.int32))

    tensors, operator = lstm(rng, 4, 4, steps=STEPS, time_major=True, read="turned", gives="h")
    tensors |= {
        "x": Tensor(shape=(1, STEPS, 3)),
        "w0": some(4, 3),
        "b0": some(4),
        "k": some(4),
        "w1": some(3, 8),
    }
    shapes = {"rows": (STEPS, 3), "steps": (1, STEPS, 4), "b": (1, STEPS, 4), "sum": (1, STEPS, 4)}
    shapes |= dict.fromkeys(("scaled", "difference", "quotient", "leaky", "elu", "negative"), (1, STEPS, 4))
    shapes |= {
        "wide": (1, STEPS, 1, 4),
        "narrow": (1, STEPS, 4),
        "joined": (1, STEPS, 8),
        "dense": (1, STEPS, 3),
    }
    shapes |= {"y": (1, STEPS, 3), **dict.fromkeys(("tanh", "limited", "logistic", "relu"), (1, STEPS, 3))}
    tensors |= {name: Tensor(shape=shape) for name, shape in shapes.items()}
    tensors |= {"to": whole(1, STEPS, 3), "order": whole(1, 0, 2), "two": whole(2)}
    operators = [
        Operator(
            "FULLY_CONNECTED", ["x", "w0", "b0"], ["steps"], full, {**kept, "FusedActivationFunction": 3}
        ),
        Operator("TRANSPOSE", ["steps", "order"], ["turned"]),
        operator,
        Operator("TRANSPOSE", ["h", "order"], ["b"]),
        Operator("ADD", ["b", "steps"], ["sum"], "AddOptions", {"FusedActivationFunction": 0}),
        Operator("MUL", ["sum", "k"], ["scaled"], "MulOptions", {"FusedActivationFunction": 0}),
        Operator("SUB", ["scaled", "k"], ["difference"], "SubOptions", {"FusedActivationFunction": 0}),
        Operator("DIV", ["difference", "k"], ["quotient"], "DivOptions", {"FusedActivationFunction": 0}),
        Operator("LEAKY_RELU", ["quotient"], ["leaky"], "LeakyReluOptions", {"Alpha": 0.2}),
        Operator("EXPAND_DIMS", ["leaky", "two"], ["wide"], "ExpandDimsOptions"),
        Operator("SQUEEZE", ["wide"], ["narrow"], "SqueezeOptions", {"SqueezeDims": [2]}),
        Operator("NEG", ["narrow"], ["negative"], "NegOptions"),
        Operator("ELU", ["negative"], ["elu"]),
        Operator("CONCATENATION", ["elu", "leaky"], ["joined"], "ConcatenationOptions", {"Axis": -1}),
        Operator("FULLY_CONNECTED", ["joined", "w1", ""], ["rows"], full),
        Operator("RESHAPE", ["rows", "to"], ["dense"]),
        Operator("LOGISTIC", ["dense"], ["logistic"]),
        Operator("RELU_N1_TO_1", ["logistic"], ["limited"]),
        Operator("TANH", ["limited"], ["tanh"]),
        Operator("RELU", ["tanh"], ["relu"]),
        Operator("LOG_SOFTMAX", ["relu"], ["y"], "LogSoftmaxOptions"),
    ]
    return build(tensors, operators, ["x"], ["y"])


def files() -> dict[str, bytes]:
    tf.keras.utils.set_random_seed(0)
    every, rng = {"return_sequences": True}, np.random.default_rng(3)
    stack = keras(
        L.LSTM(8, **every), L.LSTM(7), L.Dense(4, activation="relu"), L.Dense(3, activation="softmax")
    )
    steps = keras(L.LSTM(16, **every), L.Dense(3, activation="sigmoid"))
    wide = keras(L.LSTM(32, **every), L.Dense(4), inputs=32)
    both = keras(L.Bidirectional(L.LSTM(4, **every)), L.Bidirectional(L.LSTM(3)), L.Dense(2))
    found = {"stack": converted(stack, "float"), "stack_int8": converted(stack, "int8")}
    found |= {f"steps_{kind}": converted(steps, kind) for kind in ("float", "int8_ends", "float16")}
    found |= {"wide_dynamic": converted(wide, "dynamic"), "both": converted(both, "float")}
    special = {
        "special": lstm(rng, 3, 5, outputs=4, peephole=True, time_major=True, CellClip=0.4),
        "coupled": lstm(rng, 3, 5, coupled=True, peephole=True),
    }
    found |= {name: build(each[0], [each[1]], ["x"], ["y"]) for name, each in special.items()}
    return found | {"around": around(), "micro": micro()}


def run(name: str, data: bytes) -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    if name == "micro":
        x = np.round(rng.uniform(-2, 2, (1, STEPS, INPUTS)) / (4 * INT16)).astype(np.int16)
        interpreter = runtime.Interpreter.from_bytes(data, arena_size=100_000)
        interpreter.set_input(x, 0)
        interpreter.invoke()
        return x, interpreter.get_output(0)
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    (start,), (end,) = interpreter.get_input_details(), interpreter.get_output_details()
    x = rng.normal(size=start["shape"])
    if start["dtype"] == np.int8:
        scale, zero = start["quantization"]
        x = np.clip(np.round(x / scale) + zero, -128, 127)
    x = x.astype(start["dtype"])
    interpreter.set_tensor(start["index"], x)
    interpreter.invoke()
    return x, interpreter.get_tensor(end["index"])


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    outputs = {}
    for name, data in files().items():
        (FOLDER / f"{name}.tflite").write_bytes(data)
        outputs[f"{name}.x"], outputs[f"{name}.y"] = run(name, data)
        print(name, len(data), outputs[f"{name}.y"].shape, outputs[f"{name}.y"].dtype)
    np.savez_compressed(FOLDER / "outputs.npz", **outputs)


if __name__ == "__main__":
    main()
