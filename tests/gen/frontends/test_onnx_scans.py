"""Scan and Loop nodes whose bodies are cells, against onnxruntime, and Loop nodes of scripted PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import onnx_files
from support.lazy import Lazy, torch
from support.onnx_files import H, I, O, const, edited, ints, rand, run, save
from support.random_builds import make_case
from support.refusals import refused
from support.step_checks import check_device

from rtlstm.gen.builds.compiled import compile
from rtlstm.gen.frontends import inspect_model, read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.parameters import Parameters

BATCH, STEPS = 2, 7


def node(kind: str, inputs: str, outputs: str, name: str = "") -> Any:
    """A node with a name of its own, as onnxruntime wants it."""
    return onnx_files.node(kind, inputs, outputs, name or f"make_{outputs}")


def linear(name: str, bias: bool = True) -> list[Any]:
    """``NAME = x @ w + h @ u + b``."""
    nodes = [node("MatMul", f"x_t w{name}", f"{name}_x"), node("MatMul", f"h u{name}", f"{name}_h")]
    total = f"{name}_sum" if bias else name
    nodes.append(node("Add", f"{name}_x {name}_h", total))
    return [*nodes, *([node("Add", f"{total} b{name}", name)] if bias else [])]


def weights(*names: str) -> list[Any]:
    return [
        const(f"{kind}{name}", rand(*shape))
        for name in names
        for kind, shape in (("w", (I, H)), ("u", (H, H)), ("b", (H,)))
    ]


LSTM = [
    *linear("i"), *linear("f"), *linear("g"), *linear("o"),
    node("Sigmoid", "i", "ia"), node("Sigmoid", "f", "fa"), node("Tanh", "g", "ga"),
    node("Sigmoid", "o", "oa"),
    node("Mul", "fa c", "kept"), node("Mul", "ia ga", "new"), node("Add", "kept new", "c_out"),
    node("Tanh", "c_out", "ct"), node("Mul", "oa ct", "h_out"),
]  # fmt: skip
PEEPHOLE = [
    *linear("i"), *linear("f"), *linear("g"), *linear("o"),
    node("Mul", "c p", "cp"), node("Add", "i cp", "ip"), node("Sigmoid", "ip", "ia"),
    node("Sigmoid", "f", "fa"),
    node("Tanh", "g", "ga"), node("Sigmoid", "o", "oa"),
    node("Mul", "fa c", "kept"), node("Mul", "ia ga", "new"), node("Add", "kept new", "c_out"),
    node("Softsign", "c_out", "ct"), node("Mul", "oa ct", "h_out"),
]  # fmt: skip
GRU = [
    *linear("r"), *linear("z"), node("Sigmoid", "r", "ra"), node("Sigmoid", "z", "za"),
    node("MatMul", "x_t wn", "nx"), node("Gemm", "h un bn", "nh"), node("Mul", "ra nh", "gated"),
    node("Add", "nx gated", "n"), node("Tanh", "n", "na"), node("Sub", "one za", "rest"),
    node("Mul", "rest na", "new"), node("Mul", "za h", "kept"), node("Add", "new kept", "h_out"),
]  # fmt: skip
RNN = [*linear("a"), node("Tanh", "a", "h_out")]
LEAKY = [
    *linear("a"), node("Relu", "a", "aa"), node("Mul", "aa half", "new"), node("Div", "h two", "old"),
    node("Add", "old new", "sum"), node("Neg", "sum", "minus"), node("Sub", "minus new", "h_out"),
]  # fmt: skip
RESET_BEFORE = [
    *linear("r"), node("Sigmoid", "r", "ra"), node("Mul", "ra h", "rh"),
    node("MatMul", "rh un", "nh", "deep"),
    node("MatMul", "x_t wn", "nx"), node("Add", "nh nx", "n"), node("Tanh", "n", "h_out"),
]  # fmt: skip
NUMBERS = [const("one", np.float32(1)), const("half", np.float32(0.5)), const("two", np.float32(2))]
BODIES = {
    "lstm": (LSTM, "ifgo", "h c", "lstm"),
    "c first": (LSTM, "ifgo", "c h", "lstm"),
    "peephole": (PEEPHOLE, "ifgo", "h c", "custom"),
    "without x": ([node("MatMul", "h ua", "a"), node("Tanh", "a", "h_out")], "a", "h", "custom"),
    "gru": (GRU, "rzn", "h", "gru"),
    "rnn": (RNN, "a", "h", "rnn"),
    "leaky": (LEAKY, "a", "h", "custom"),
}


def tensor(name: str, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def scan(
    path: Path,
    body: list[Any],
    names: str,
    states: str = "h",
    more: tuple[str, ...] = (),
    given: str = "h_out",
    around: bool = False,
    **attributes: Any,
) -> Path:
    """A Scan with a dense layer behind it, which hands its final states out."""
    kept = states.split()
    constants = [*weights(*names), *NUMBERS, const("p", rand(H))]
    steps = [f"{name}_of_step" for name in (given, *more)]
    # Every scan output has a name of its own.
    ends = [*body, *(node("Identity", name.removesuffix("_of_step"), name) for name in steps)]
    read = [*(tensor(name, (BATCH, H)) for name in kept), tensor("x_t", (BATCH, I))]
    gives = [tensor(name) for name in (*(f"{name}_out" for name in kept), *steps)]
    attributes["body"] = helper.make_graph(ends, "body", read, gives, [] if around else constants)
    begin, last = [f"{name}_0" for name in kept], [f"{name}_n" for name in kept]
    nodes = [
        helper.make_node("Scan", [*begin, "x"], [*last, "y", *more], "scan", num_scan_inputs=1, **attributes),
        node("MatMul", "y head", "z"),
        node("Tanh", "z", "out"),
    ]
    shape = (BATCH, "T", I) if "scan_input_axes" in attributes else ("T", BATCH, I)
    given_states = [tensor(name, (BATCH, H)) for name in begin]
    constants = [*(constants if around else []), const("head", rand(H, O))]
    return save(path, nodes, constants, ["out", *last], given_states, shape=shape)


def compare(path: Path, states: str, axis: int = 0) -> Any:
    x = rand(STEPS, BATCH, I)
    feeds = {f"{name}_0": rand(BATCH, H) for name in states.split()}
    wanted = run(path, x.swapaxes(0, axis), **feeds).swapaxes(0, axis)
    result = read_model(path)
    layer = result.network.layers[0]
    has_c = layer.kind == "lstm" or getattr(layer, "has_cell_state", False)
    state = ((feeds["h_0"],), (feeds["c_0"],) if has_c else ())
    found = run_float(result.network, x, state)
    np.testing.assert_allclose(found.y, wanted, atol=1e-5)
    final = run(path, x.swapaxes(0, axis), "h_n", **feeds)
    np.testing.assert_allclose(found.h[0], final, atol=1e-5)
    return result


@pytest.mark.parametrize("name", BODIES)
def test_cell_in_a_scan(name: str, tmp_path: Path) -> None:
    body, gates, states, kind = BODIES[name]
    result = compare(scan(tmp_path / "s.onnx", body, gates, states), states)
    assert [layer.kind for layer in result.network.layers] == [kind, "dense"]
    assert result.network.layers[0].name == "scan"
    assert any("is the model's input 'h_0'" in note for note in result.report.notes)


def test_scan_from_the_end_batch_first_and_with_constants_around(tmp_path: Path) -> None:
    backward = {"scan_input_directions": [1], "scan_output_directions": [1]}
    path = scan(tmp_path / "a.onnx", GRU, "rzn", around=True, **backward)
    assert compare(path, "h").network.layers[0].reverse
    first = {"scan_input_axes": [1], "scan_output_axes": [1]}
    compare(scan(tmp_path / "b.onnx", LSTM, "ifgo", "h c", **first), "h c", axis=1)


@pytest.mark.usefixtures("without_verilog")
def test_scan_on_the_golden_model(tmp_path: Path) -> None:
    path = scan(tmp_path / "s.onnx", GRU, "rzn")
    x, h = rand(STEPS, BATCH, I), np.zeros((BATCH, H), np.float32)
    build = compile(path, folder=tmp_path / "build", calibration=x, lanes=4, macs=2)
    with build.open("golden") as accelerator:
        y, _ = accelerator.run(x)
    np.testing.assert_allclose(y, run(path, x, h_0=h), atol=2e-3)


REFUSED = {
    "a matrix is multiplied with 'rh' of Mul node 'make_rh', which is computed of the old state": (
        RESET_BEFORE, "rn", {}
    ),
    "MatMul node 'make_a_h' reads the old state 'h', which only its cell can": (RNN, "a", {"given": "a"}),
    "steps on the same axis, 0 or 1, and in the same direction": (RNN, "a", {"scan_output_directions": [1]}),
    "Erf node 'erf', which gives 'h_out', has no place in a cell": (
        [*linear("a"), node("Erf", "a", "h_out", "erf")], "a", {}
    ),
    "divides by what is no number": ([*linear("a"), node("Div", "a h", "h_out")], "a", {}),
    "computes elements of 'x_t', which must have one value for each of 6 units": (
        [*linear("a"), node("Mul", "a x_t", "h_out")], "a", {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_scan_that_is_no_cell_is_refused_by_name(words: str, tmp_path: Path) -> None:
    body, gates, options = REFUSED[words]
    path = scan(tmp_path / "s.onnx", body, gates, **options)
    assert words in refused(path, "Scan node 'scan' is not read: ") and inspect_model(path).refusal


def test_scan_with_other_states_is_refused(tmp_path: Path) -> None:
    path = scan(tmp_path / "s.onnx", LSTM, "ifgo", "h c")
    model = onnx.load(path)
    model.graph.node[0].attribute[-1].i = 2
    onnx.save(model, path)
    refused(path, "Scan node 'scan' is not read: ")
    foreign = save(
        tmp_path / "f.onnx", [helper.make_node("Scan", ["x"], ["out"], "own", domain="rtlstm")], []
    )
    model = onnx.load(foreign)
    model.opset_import.append(helper.make_opsetid("rtlstm", 1))
    onnx.save(model, foreign)
    refused(foreign, r"but there is none in it; it has Scan")


# The same bodies in Loop nodes


def loop(path: Path) -> Path:
    """A file's Scan as a Loop, which takes steps by number and gives tensors of all steps."""
    model = onnx.load(path)
    scan = model.graph.node[0]
    body = next(item.g for item in scan.attribute if item.name == "body")
    integers, flag = onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    body.input.pop()
    states = len(body.input)
    number = [
        helper.make_tensor_value_info("step", integers, []),
        helper.make_tensor_value_info("go", flag, []),
    ]
    given = [*number, *body.input]
    del body.input[:]
    body.input.extend(given)
    ends = [helper.make_tensor_value_info("go_on", flag, []), *body.output]
    del body.output[:]
    body.output.extend(ends)
    nodes = [node("Identity", "go", "go_on"), node("Gather", "x step", "x_t"), *body.node]
    del body.node[:]
    body.node.extend(nodes)
    front = [node("Shape", "x", "shape"), node("Gather", "shape first", "count")]
    made = helper.make_node("Loop", ["count", "", *scan.input[:states]], scan.output, "loop", body=body)
    nodes = [*front, made, *model.graph.node[1:]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(ints("first", 0))
    model.graph.initializer[-1].dims.pop()
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", ["lstm", "peephole", "gru", "leaky"])
def test_cell_in_a_loop(name: str, tmp_path: Path) -> None:
    body, gates, states, kind = BODIES[name]
    result = compare(loop(scan(tmp_path / "s.onnx", body, gates, states)), states)
    assert [layer.kind for layer in result.network.layers] == [kind, "dense"]
    assert result.network.layers[0].name == "loop"
    assert "Loop node 'loop' goes over the steps of 'x'" in result.report.notes


def test_a_loop_without_a_count_is_refused(tmp_path: Path) -> None:
    path = loop(scan(tmp_path / "s.onnx", *BODIES["rnn"][:3]))
    model = onnx.load(path)
    model.graph.node[2].input[0] = ""
    onnx.save(model, path)
    refused(path, "Loop node 'loop' is not read: it must go over all steps .*nothing is not known")


def test_a_count_may_be_the_declared_number_of_steps(tmp_path: Path) -> None:
    path = loop(scan(tmp_path / "s.onnx", *BODIES["rnn"][:3]))
    with edited(path) as model:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7
        model.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(np.array(7), "count"))
        del model.graph.node[:2]
    x = rand(7, 2, I)
    feeds = {"h_0": rand(2, H)}
    found = run_float(read_model(path).network, x, ((feeds["h_0"],), ())).y
    np.testing.assert_allclose(found, run(path, x, **feeds), atol=1e-5)


# Loops over the steps of scripted PyTorch


loops = Lazy("support.scripted_loops")
KINDS = {
    "BatchFirst": ["custom", "dense"],
    "FromBehind": ["custom", "dense"],
    "TwoTensors": ["dense", "custom", "dense"],
    "LastStep": ["custom", "dense"],
    "LastOfList": ["custom", "dense"],
    "Numbered": ["custom", "custom", "dense"],
    "TwoLoops": ["lstm", "custom", "dense"],
    "Swapped": ["custom", "dense"],
    "Three": ["custom", "dense"],
}
X = np.random.default_rng(1).uniform(-2, 2, (7, 2, 3)).astype(np.float32)
"""Steps, sequences, features."""


@pytest.mark.parametrize("name", KINDS)
def test_a_scripted_loop_equals_pytorch(name: str, tmp_path: Path) -> None:
    path, module, axis = loops.export(name, tmp_path)
    wanted = module(torch.as_tensor(X.swapaxes(0, axis).copy())).detach().numpy()
    result = read_model(path)
    assert [layer.kind for layer in result.network.layers] == KINDS[name]
    assert "Loop" in {node.kind for node in result.report.nodes} and "Scan" not in str(result.report)
    found = run_float(result.network, X, result.calibration_state(X, batch_first=False)).y
    np.testing.assert_allclose(
        found[-1] if name.startswith("Last") else found,
        wanted.swapaxes(0, axis) if wanted.ndim > 2 else wanted,
        atol=2e-6,
    )


@pytest.mark.rtl
@pytest.mark.parametrize("name", ["BatchFirst", "Numbered"])
def test_a_scripted_loop_on_hardware(name: str, tmp_path: Path) -> None:
    path, _, _ = loops.export(name, tmp_path)
    settings = QuantizationSettings(weight_bits=8, data_bits=8, gate_bits=8, cell_bits=12)
    network = quantise(read_model(path).network, settings, X)
    check_device(make_case(0, network, Parameters(lanes=4, macs=2), steps=5), tmp_path, "icarus")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Stopped", "its condition must be true in every step, as of a loop that nothing ends"),
        ("Shorter", r"it must go over all steps of a sequence, as `for t in range\(x.size\(0\)\)`"),
        (
            "Joined",
            "must stack all tensors of the list along axis 0 or 1, as torch.stack does, or take the last",
        ),
        ("Ahead", "of the graph around it, which must be constant, or a step of what it goes over"),
        ("Table", "it goes through the constant 'rows', .* give what differs as a feature of x"),
        ("Features", r"take x\[t\] or x\[:, t\], not steps of axis 2"),
    ],
)
def test_other_loops_are_refused_by_name(name: str, words: str, tmp_path: Path) -> None:
    """The loops above are the ways out."""
    refused(loops.export(name, tmp_path)[0], f"node '/Loop' is not read: .*{words}")
