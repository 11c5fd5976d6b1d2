"""Every attribute and input of ONNX's LSTM, GRU and RNN: read, run by the float model, and compared.

The oracle is onnxruntime, or onnx's reference for ``layout=1``, which onnxruntime does not run.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from support.onnx_nodes import GATES, Arrays, recurrent_model, run_ours
from support.refusals import refused

from rtlstm.gen.frontends import inspect_model, read_model

STEPS, BATCH, INPUTS, UNITS = 5, 3, 4, 6
FUNCTIONS = {
    "Affine": (0.6, 0.1),
    "Elu": (0.7,),
    "HardSigmoid": (0.3, 0.4),
    "LeakyRelu": (0.2,),
    "Relu": (),
    "ScaledTanh": (0.8, 0.7),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": (0.15,),
}
USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
PLACES = [(kind, place) for kind in GATES for place in range(len(USUAL[kind]))]


def arrays(kind: str, *given: str, directions: int = 1, seed: int = 0, scale: float = 0.5) -> Arrays:
    """X, W and R, and what else is asked for by name."""
    rng = np.random.default_rng(seed)
    rows = GATES[kind] * UNITS
    shapes = {
        "X": (STEPS, BATCH, INPUTS),
        "W": (directions, rows, INPUTS),
        "R": (directions, rows, UNITS),
        "B": (directions, 2 * rows),
        "P": (directions, 3 * UNITS),
        "initial_h": (directions, BATCH, UNITS),
        "initial_c": (directions, BATCH, UNITS),
    }
    found: Arrays = {
        name: rng.normal(size=shape, scale=1.0 if name == "X" else scale).astype(np.float32)
        for name, shape in shapes.items()
        if name in ("X", "W", "R", *given)
    }
    if "sequence_lens" in given:
        found["sequence_lens"] = np.array([STEPS, 2, 3], np.int32)
    return found


def compare(folder: Path, kind: str, data: Arrays, opset: int = 14, **attributes: Any) -> Arrays:
    """Check all outputs of a node against onnxruntime; return ours."""
    attributes.setdefault("hidden_size", UNITS)
    path = folder / "node.onnx"
    onnx.save(recurrent_model(kind, data, opset, **attributes), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {item.name: data[item.name] for item in session.get_inputs()}
    ours = run_ours(path, data)
    for item, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours[item.name], expected, rtol=1e-5, atol=1e-5, err_msg=item.name)
    return ours


@pytest.mark.parametrize("opset", [7, 14, 21])
@pytest.mark.parametrize("kind", GATES)
def test_plain(kind: str, opset: int, tmp_path: Path) -> None:
    compare(tmp_path, kind, arrays(kind), opset)
    compare(tmp_path, kind, arrays(kind, "B", "initial_h", "initial_c" * (kind == "LSTM")), opset)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_direction_with_unequal_sequence_lens(kind: str, direction: str, tmp_path: Path) -> None:
    given = ["B", "sequence_lens", "initial_h"] + ["initial_c", "P"] * (kind == "LSTM")
    data = arrays(kind, *given, directions=1 + (direction == "bidirectional"))
    ours = compare(tmp_path, kind, data, direction=direction)
    assert not ours["Y"][2:, :, 1].any() and ours["Y"][1, :, 1].any()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("kind", "place"), PLACES)
def test_activations(kind: str, place: int, function: str, tmp_path: Path) -> None:
    names = list(USUAL[kind])
    names[place] = function
    alpha, beta = FUNCTIONS[function][:1], FUNCTIONS[function][1:]
    parameters = {"activation_alpha": alpha, "activation_beta": beta}
    data = arrays(kind, "B", scale=0.2)
    compare(tmp_path, kind, data, activations=names, **{k: v for k, v in parameters.items() if v})


@pytest.mark.parametrize("function", ["Elu", "HardSigmoid", "LeakyRelu", "ThresholdedRelu"])
def test_activations_have_their_operators_defaults(function: str, tmp_path: Path) -> None:
    # onnxruntime does not know ThresholdedRelu's default in a node: given and left out are alike.
    given = {"activation_alpha": [1.0]} if function == "ThresholdedRelu" else {}
    data = arrays("RNN", "B")
    ours = compare(tmp_path, "RNN", data, activations=[function], **given)
    onnx.save(recurrent_model("RNN", data, activations=[function]), tmp_path / "default.onnx")
    np.testing.assert_array_equal(run_ours(tmp_path / "default.onnx", data)["Y"], ours["Y"])


def test_parameters_are_handed_out_in_order(tmp_path: Path) -> None:
    names = ["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "Affine", "hardsigmoid"]
    parameters = {"activation_alpha": [0.3, 0.2, 0.6, 0.4], "activation_beta": [0.4, 0.1, 0.3]}
    data = arrays("LSTM", "B", directions=2, scale=0.2)
    compare(tmp_path, "LSTM", data, direction="bidirectional", activations=names, **parameters)
    # Those that are left when the values are used up have their defaults.
    compare(tmp_path, "LSTM", arrays("LSTM"), activations=names[:3], activation_alpha=[0.3])


@pytest.mark.parametrize("kind", GATES)
def test_clip(kind: str, tmp_path: Path) -> None:
    data = arrays(kind, "B", "initial_h", scale=2.0)
    clipped = compare(tmp_path, kind, data, clip=0.3)
    assert np.abs(clipped["Y"] - compare(tmp_path, kind, data)["Y"]).max() > 0.1


def test_peepholes_and_input_forget(tmp_path: Path) -> None:
    for given in ((), ("P",)):
        data = arrays("LSTM", "B", "initial_c", *given)
        coupled = compare(tmp_path, "LSTM", data, input_forget=1)
        plain = compare(tmp_path, "LSTM", data, input_forget=0)
        assert np.abs(coupled["Y"] - plain["Y"]).max() > 0.01


def test_linear_before_reset(tmp_path: Path) -> None:
    data = arrays("GRU", "B", "initial_h")
    after = compare(tmp_path, "GRU", data, linear_before_reset=1)
    before = compare(tmp_path, "GRU", data, linear_before_reset=0)
    assert np.abs(after["Y"] - before["Y"]).max() > 0.01


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("kind", GATES)
def test_layout_1(kind: str, directions: int, tmp_path: Path) -> None:
    data = arrays(kind, "B", "sequence_lens", "initial_h", directions=directions)
    attributes = {"direction": "bidirectional"} if directions == 2 else {}
    expected = compare(tmp_path, kind, data, **attributes)
    data |= {name: data[name].swapaxes(0, 1).copy() for name in ("X", "initial_h")}
    path = tmp_path / "layout.onnx"
    onnx.save(recurrent_model(kind, data, layout=1, **attributes), path)
    ours = run_ours(path, data, layout=1)
    np.testing.assert_array_equal(ours["Y"], expected["Y"].transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(ours["Y_h"], expected["Y_h"].swapaxes(0, 1))


def random_case(seed: int) -> tuple[str, Arrays, dict[str, Any]]:
    """Any mixture of attributes and inputs that onnxruntime has."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(list(GATES)))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    directions = 1 + (direction == "bidirectional")
    optional = ["B", "sequence_lens", "initial_h"] + ["initial_c", "P"] * (kind == "LSTM")
    data = arrays(kind, *(name for name in optional if rng.random() < 0.6), directions=directions, seed=seed)
    names = [str(name) for name in rng.choice(list(FUNCTIONS), directions * len(USUAL[kind]))]
    attributes: dict[str, Any] = {"direction": direction}
    if rng.random() < 0.6:
        parameters = [FUNCTIONS[name] for name in names]
        attributes["activations"] = names
        attributes["activation_alpha"] = [values[0] for values in parameters if len(values) > 0] or None
        attributes["activation_beta"] = [values[1] for values in parameters if len(values) > 1] or None
    if rng.random() < 0.5:
        attributes["clip"] = float(rng.uniform(0.3, 2.0))
    own = {"LSTM": "input_forget", "GRU": "linear_before_reset"}.get(kind)
    if own is not None:
        attributes[own] = int(rng.integers(2))
    return kind, data, {name: value for name, value in attributes.items() if value is not None}


@pytest.mark.parametrize("seed", range(40))
def test_any_mixture(seed: int, tmp_path: Path) -> None:
    kind, data, attributes = random_case(seed)
    compare(tmp_path, kind, data, **attributes)


# What is refused, by name


@pytest.mark.parametrize(
    ("kind", "attributes", "words"),
    [
        ("LSTM", {"direction": "sideways"}, "attribute direction='sideways' must be one of forward, reverse"),
        ("LSTM", {"clip": 0.0}, "attribute clip=0 must be above 0"),
        ("GRU", {"linear_before_reset": 2}, "attribute linear_before_reset=2 must be 0 or 1"),
        ("LSTM", {"input_forget": 3}, "attribute input_forget=3 must be 0 or 1"),
        ("RNN", {"layout": 2}, "attribute layout=2 must be 0 or 1"),
        ("RNN", {"activations": ["Celu"]}, r"attribute activations=\['Celu'\] must be of Affine, .*Thresh"),
        ("LSTM", {"activations": ["Tanh"]}, r"attribute activations=\['Tanh'\] must hold 3 for each of 1"),
        (
            "RNN",
            {"direction": "bidirectional", "activations": ["Tanh"]},
            r"attribute activations=\['Tanh'\] must hold 1 for each of 2 directions",
        ),
        (
            "RNN",
            {"activation_alpha": [0.5]},
            r"attribute activation_alpha=\[0.5\] must hold one value for each .* which are none",
        ),
        (
            "RNN",
            {"activations": ["Elu"], "activation_beta": [0.5]},
            r"attribute activation_beta=\[0.5\] must hold one value for each .* which are none",
        ),
        ("RNN", {"activations": ["ScaledTanh"]}, "attribute activation_alpha must be given for ScaledTanh"),
        (
            "RNN",
            {"activations": ["Affine"], "activation_alpha": [1.0]},
            "attribute activation_beta must be given for Affine, which has no default",
        ),
        ("RNN", {"clip": -1.0, "layout": 2}, "attribute clip=-1 must be above 0; attribute layout=2"),
        ("GRU", {"hidden_size": 7}, r"input W \('W'\) must have shape \(1, 21, 4\), not \(1, 18, 4\)"),
        ("GRU", {"direction": "bidirectional"}, r"input W \('W'\) must have shape \(2, 18, 4\)"),
    ],
)
def test_attribute_is_refused_by_name(kind: str, attributes: dict, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(recurrent_model(kind, arrays(kind), **attributes), path)
    refused(path, f"model.onnx: {kind} node 'rec': {words}")


@pytest.mark.parametrize("lengths", [[STEPS] * BATCH, [STEPS, 2, 3]])
def test_constant_sequence_lens(lengths: list[int], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = recurrent_model("GRU", arrays("GRU", "sequence_lens"))
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(lengths, np.int32), "sequence_lens"))
    onnx.save(model, path)
    if set(lengths) == {STEPS}:  # that every sequence is whole needs no saying
        assert not read_model(path).report.notes[:-1]
    else:
        refused(path, r"input sequence_lens .*not the constant \[5, 2, 3\] .* 5 steps")


def test_inspect_names_the_options(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    data = arrays("LSTM", "P", directions=2)
    attributes = {"clip": 2.5, "input_forget": 1, "activations": ["HardSigmoid", "Tanh", "Tanh"] * 2}
    onnx.save(recurrent_model("LSTM", data, direction="bidirectional", **attributes), path)
    (entry,) = inspect_model(path).nodes
    assert entry.why == ("4 -> 12, lstm, concat, gate hard_sigmoid(0.2, 0.5), peephole, coupled, clip 2.5")
