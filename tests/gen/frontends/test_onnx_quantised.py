"""ONNX files that were quantised already: what is read of them, what is said, and what is refused."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat, QuantType
from support.onnx_files import const, edited, ints, node, save
from support.quantised_files import (
    STEP,
    H,
    I,
    M,
    O,
    dynamic,
    float_model,
    grid,
    inputs,
    lstm_weights,
    quantised_dense,
    rounding_bound,
    static,
)
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.gen.frontends.arrays import reorder
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float

FLOAT32 = 1e-5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "float.onnx"


def notes(path):
    return "\n".join(inspect_model(path).notes)


def difference(path, x, optimised=True):
    """Largest difference of the float reference from onnxruntime.

    If its optimiser may work on the file, it also rounds what is multiplied by integers of constants alone.
    """
    ours = run_float(read_model(path).network, x).y
    return np.abs(ours - run_onnxruntime(path, x, optimised).reshape(ours.shape)).max()


def run_onnxruntime(path, x, optimised=True):
    options = onnxruntime.SessionOptions()
    # Without VNNI, products of 8 bits would saturate in pairs at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x})[0]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_static_quantiser_with_the_recurrent_node(path, kind, per_channel):
    """Input, weights, biases and results are rounded; the weights are whole steps of powers of two."""
    rng = np.random.default_rng(0)
    x = inputs(rng)
    float_model(path, rng, kind)
    kinds = [kind, "MatMul", "Add", "Relu", "Sigmoid"]
    found = static(path, x, True, per_channel=per_channel, op_types_to_quantize=kinds)
    float_y, y = (run_float(read_model(file).network, x).y for file in (path, found))
    np.testing.assert_allclose(y, float_y, atol=FLOAT32)
    bound = rounding_bound(found)
    assert 0 < bound < 0.1
    assert difference(found, x) <= bound + FLOAT32
    report = inspect_model(found)
    assert report.input == "x"
    assert [(one.layer, one.weight) for one in report.integer_weights] == [
        ("rec", "w_ih"),
        ("rec", "w_hh"),
        ("fc", "weight"),
        ("fc2", "weight"),
    ]
    assert all(one.exact_bits == one.bits == 8 and set(one.steps) == {STEP} for one in report.integer_weights)
    text = notes(found)
    assert "rounds the input 'x' to 8 bits, -2 to 1.984 in steps of 0.01562" in text
    assert "nearest are `data_bits=8` and `input_range=2`" in text
    assert "w_ih of 'rec' has integers of 8 bits in the model, in steps of 0.0078125 (a power of two)" in text
    assert text.count("`weight_bits=8` or more holds them exactly") == 4
    assert "saturates sums where its integers end, 'm0' at" in text


@pytest.mark.parametrize("bits", [8, 10, 16])
def test_integers_of_the_file_are_kept(path, bits):
    rng = np.random.default_rng(1)
    x = inputs(rng)
    codes = float_model(path, rng)
    found = static(path, x, True, op_types_to_quantize=["LSTM", "MatMul"])
    settings = QuantizationSettings(weight_bits=bits)
    lstm, *dense = quantise(read_model(found).network, settings).layers
    factor = 1 << (bits - 8)
    np.testing.assert_array_equal(lstm.w_ih, reorder(codes["W"][0], "onnx", "lstm") * factor)
    np.testing.assert_array_equal(lstm.w_hh, reorder(codes["R"][0], "onnx", "lstm") * factor)
    for layer, name in zip(dense, ("G1", "G2"), strict=True):
        np.testing.assert_array_equal(layer.weight, codes[name].T * factor)


@pytest.mark.parametrize("tensor", ["p1", "y_QuantizeLinear_Input", "p1_DequantizeLinear_Output"])
def test_ends_at_tensors_of_the_file(path, tensor):
    rng = np.random.default_rng(1)
    float_model(path, rng)
    found = static(path, inputs(rng), True)
    assert any(tensor in one.output for one in onnx.load(found).graph.node)
    report = inspect_model(found, ReadOptions(output=tensor))
    assert (report.refusal, report.output) == ("", tensor)


def test_merged_relu_is_read(path):
    """Without symmetric activations, onnxruntime's quantiser removes a Relu before its QuantizeLinear."""
    rng = np.random.default_rng(2)
    x = inputs(rng)
    float_model(path, rng)
    found = static(path, x, False)
    assert "Relu" not in [one.op_type for one in onnx.load(found).graph.node]
    assert "Relu" in [one.kind for one in inspect_model(found).nodes]
    text = notes(found)
    assert "'m2'" in text and "begin at 0, as where onnxruntime's quantiser merges a Relu" in text
    assert "have a zero point other than 0" in text
    bound = rounding_bound(found) + FLOAT32
    assert difference(found, x) <= bound
    network = read_model(found).network
    linear = [layer.replace(activation="identity") if layer.activation == "relu" else layer
              for layer in network.layers[1:]]  # fmt: skip
    without = run_float(network.replace(layers=(network.layers[0], *linear)), x).y
    assert np.abs(without - run_float(network, x).y).max() > 2 * bound


def test_merged_relu_is_read_once(path):
    """Quantisers around what moves axes begin at zero, too, but behind the Relu that changes nothing."""
    rng = np.random.default_rng(15)
    x = inputs(rng)
    float_model(path, rng)
    with edited(path) as model:
        del model.graph.node[5:]
        model.graph.node.extend(
            [
                node("Transpose", "m2", "m3", "there", perm=[1, 0, 2]),
                node("Transpose", "m3", "y", "back", perm=[1, 0, 2]),
            ]
        )
    found = static(path, x, False)
    assert [one.op_type for one in onnx.load(found).graph.node].count("QuantizeLinear") == 5
    assert [one.kind for one in inspect_model(found).nodes].count("Relu") == 1
    assert difference(found, x) <= rounding_bound(found) + FLOAT32


@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_quantiser(path, per_channel):
    rng = np.random.default_rng(3)
    x = inputs(rng)
    float_model(path, rng)
    found = dynamic(path, per_channel=per_channel)
    kinds = [one.op_type for one in onnx.load(found).graph.node]
    assert "DynamicQuantizeLSTM" in kinds and kinds.count("MatMulInteger") == 2
    np.testing.assert_allclose(
        run_float(read_model(found).network, x).y, run_float(read_model(path).network, x).y, atol=FLOAT32
    )
    assert difference(found, x) < 0.03  # onnxruntime rounds x, h and what the products read to 8 bits
    report, text = inspect_model(found), notes(found)
    assert [one.weight for one in report.integer_weights] == ["w_ih", "w_hh", "weight", "weight"]
    assert all(one.exact_bits == 8 for one in report.integer_weights)
    assert "'y1', 'm2' to 8 bits before products" in text
    assert [one.kind for one in report.nodes].count("MatMul") == 2


def test_dynamic_quantiser_without_a_sign(path):
    """Zero points are then in the middle of 0 to 255, except those of an LSTM, which keeps its sign."""
    rng = np.random.default_rng(3)
    x = inputs(rng)
    float_model(path, rng)
    found = dynamic(path, weight_type=QuantType.QUInt8)
    assert difference(found, x) < 0.03
    assert [one.zero_points for one in inspect_model(found).integer_weights] == [False, False, True, True]
    assert notes(found).count("with zero points other than 0, in steps of 0.007") == 2


@pytest.mark.parametrize("per_channel", [False, True])
def test_gemm_of_the_last_step(path, per_channel):
    """As PyTorch exports it, with rows of the weight as outputs and a bias of 32 bits."""
    rng = np.random.default_rng(11)
    x = inputs(rng)
    codes = {
        "W": grid(rng, 1, 4 * H, I),
        "R": grid(rng, 1, 4 * H, H),
        "G": grid(rng, M, H),
        "b": grid(rng, M),
    }
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R"], ["", "h"], name="rec", hidden_size=H),
        node("Squeeze", "h ax", "last"),
        node("Gemm", "last G b", "y", "fc", transB=1),
    ]
    weights = [const(name, (array * STEP).astype(np.float32)) for name, array in codes.items()]
    save(path, nodes, [*weights, ints("ax", 0)], ["y"], shape=("T", 1, I), ir=8)
    found = static(path, x, True, per_channel=per_channel)
    ours = run_float(read_model(found).network, x).y[-1]
    assert np.abs(ours - run_onnxruntime(found, x)).max() <= rounding_bound(found) + FLOAT32
    (one,) = inspect_model(found).integer_weights
    assert (one.layer, one.exact_bits) == ("fc", 8)
    np.testing.assert_array_equal(
        quantise(read_model(found).network, QuantizationSettings(weight_bits=8)).layers[1].weight, codes["G"]
    )


def test_dynamic_products_alone(path):
    """The bound of what DynamicQuantizeLinear rounds: half a step of 1/255 of each call's range."""
    rng = np.random.default_rng(4)
    x = inputs(rng)
    codes = float_model(path, rng)
    found = dynamic(path, op_types_to_quantize=["MatMul"])
    first, second = (np.abs(codes[name] * STEP).sum(axis=0).max() for name in ("G1", "G2"))
    sums = codes["g1"] * STEP
    largest = first + np.abs(sums).max()  # |h| is at most 1
    assert difference(found, x) <= (2 / 255 / 2 * first * second + largest / 255 / 2 * second) / 4 + FLOAT32


@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
def test_dynamic_convolution(path, kind):
    """As silero VAD's last layer: a Conv of width 1 with a bias. |h| is at most 1, so steps are 2/255."""
    rng = np.random.default_rng(14)
    x = inputs(rng)
    weight = rng.normal(size=(O, H, 1)).astype(np.float32)
    weights = [*lstm_weights(rng), const("K", weight), const("b", rng.normal(size=O).astype(np.float32))]
    weights.append(ints("ax", 1))
    nodes = [
        node("LSTM", "x W R", "y0", "rec", hidden_size=H),
        node("Squeeze", "y0 ax", "y1"),
        node("Transpose", "y1", "channels", perm=[1, 2, 0]),
        node("Conv", "channels K b", "y", "conv", kernel_shape=[1]),
    ]
    save(path, nodes, weights, ["y"], shape=("T", 1, I), ir=8)
    found = dynamic(path, op_types_to_quantize=["Conv"], weight_type=kind)
    assert "ConvInteger" in [one.op_type for one in onnx.load(found).graph.node]
    (one,) = inspect_model(found).integer_weights
    assert (one.layer, one.bits, one.zero_points) == ("conv", 8, kind == QuantType.QUInt8)
    network = read_model(found).network
    assert np.abs(network.layers[1].weight - weight[..., 0]).max() <= one.steps[0] * 0.5001
    theirs = onnxruntime.InferenceSession(str(found)).run(["y"], {"x": x})[0][0].T
    bound = 1 / 255 * np.abs(network.layers[1].weight).sum(axis=1).max()
    assert np.abs(run_float(network, x).y[:, 0] - theirs).max() <= bound + FLOAT32


def test_zero_points_and_other_steps(path):
    """Numbers of the note: the least change that 8 bits can make, computed another way."""
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 256, (H, M)).astype(np.uint8)
    scale, zero = np.float32(0.013), np.uint8(101)
    quantised_dense(path, codes, scale, zero)
    assert difference(path, inputs(rng), optimised=False) < FLOAT32
    weight = ((codes.astype(int) - 101).astype(np.float32) * scale).astype(np.float64).T
    change = 0.0
    for row in weight:
        step = min(2.0**-k for k in range(-4, 12) if np.abs(np.floor(row * 2.0**k + 0.5)).max() <= 127)
        change = max(change, np.abs(np.floor(row / step + 0.5) * step - row).max())
    text = notes(path)
    assert (
        "weight of 'fc' has integers of 8 bits in the model, with zero points other than 0, in steps of "
        f"0.013 (not a power of two): `weight_bits=8` changes them by at most {change / 0.013:.2g} of the "
        f"model's step ({change:.2g})"
    ) in text
    (one,) = inspect_model(path).integer_weights
    assert one.largest == np.abs(codes.astype(int) - 101).max() and one.exact_bits is None


@pytest.mark.parametrize("signed", [True, False])
def test_integers_of_four_bits(path, signed):
    rng = np.random.default_rng(12)
    codes = rng.integers(*((-7, 8) if signed else (1, 16)), (H, M))
    codes[0] = 7 if signed else 15
    quantised_dense(path, codes.astype(np.int8), np.float32(0.5), np.int8(0))
    with edited(path) as model:
        kind = TensorProto.INT4 if signed else TensorProto.UINT4
        zero = 0 if signed else 8
        narrow = [
            helper.make_tensor("codes", kind, codes.shape, codes.ravel()),
            helper.make_tensor("zero", kind, (), [zero]),
        ]
        kept = [item for item in model.graph.initializer if item.name not in ("codes", "zero")]
        del model.graph.initializer[:]
        model.graph.initializer.extend([*kept, *narrow])
        model.opset_import[0].version, model.ir_version = 21, 10
    assert difference(path, inputs(rng), optimised=False) < FLOAT32
    (one,) = inspect_model(path).integer_weights
    assert (one.bits, one.exact_bits, one.zero_points) == (4, 4, not signed)
    (layer,) = quantise(read_model(path).network, QuantizationSettings(weight_bits=4)).layers[1:]
    np.testing.assert_array_equal(layer.weight, (codes - zero).T)


def test_blocks_of_an_axis(path):
    """A scale for each two of the rows of the constant, which are inputs of the layer."""
    rng = np.random.default_rng(13)
    codes = rng.integers(-127, 128, (H, M)).astype(np.int8)
    scales = np.exp2(rng.integers(-9, -5, (2, M))).astype(np.float32)
    quantised_dense(path, codes, scales, np.zeros((2, M), np.int8), axis=0, block_size=2)
    with edited(path) as model:
        model.opset_import[0].version, model.ir_version = 21, 10
    assert difference(path, inputs(rng), optimised=False) < FLOAT32
    (one,) = inspect_model(path).integer_weights
    rows = (codes * np.repeat(scales, 2, axis=0)).T
    assert one.exact_bits == int(max(np.abs(rows / scales.min(axis=0)[:, None]).max(axis=1))).bit_length() + 1
    (layer,) = quantise(read_model(path).network, QuantizationSettings(weight_bits=one.exact_bits)).layers[1:]
    factors = layer.weight / rows
    np.testing.assert_array_equal(factors, np.broadcast_to(factors[:, :1], rows.shape))


def test_zero_point_of_powers_of_two_takes_a_bit_more(path):
    codes = np.random.default_rng(7).integers(0, 256, (H, M)).astype(np.uint8)
    codes[0, 0] = 255
    quantised_dense(path, codes, np.float32(2.0**-6), np.uint8(100))
    assert "with zero points other than 0, in steps of 0.015625 (a power of two): `weight_bits=9`" in notes(
        path
    )
    (layer,) = quantise(read_model(path).network, QuantizationSettings(weight_bits=9)).layers[1:]
    rows = np.abs(codes.astype(int) - 100).max(axis=0) > 127
    assert rows.any()
    np.testing.assert_array_equal(layer.weight[rows], (codes.astype(int) - 100).T[rows])


@pytest.mark.parametrize("per_row", [False, True])
def test_clip_says_the_bits(path, per_row):
    """As brevitas exports weights: floats, QuantizeLinear, Clip to a narrow range, DequantizeLinear."""
    rng = np.random.default_rng(8)
    codes = rng.integers(-7, 8, (H, M)).astype(np.int8)
    codes[0] = 7
    scale, zero = np.float32(0.25), np.int8(0)
    if per_row:
        scale, zero = np.exp2(-np.arange(M) % 3).astype(np.float32), np.zeros(M, np.int8)
    quantised_dense(path, codes, scale, zero, clip=(-7, 7))
    if per_row:  # along the columns of the constant, which are rows of the layer
        with edited(path) as model:
            for one in model.graph.node:
                if one.op_type.endswith("quantizeLinear") or one.op_type == "QuantizeLinear":
                    one.attribute.append(helper.make_attribute("axis", 1))
    assert difference(path, inputs(rng), optimised=False) < FLOAT32
    (one,) = inspect_model(path).integer_weights
    assert (one.bits, one.largest, one.exact_bits) == (4, 7, 4)
    assert ("one for each row (powers of two)" in notes(path)) == per_row
    (layer,) = quantise(read_model(path).network, QuantizationSettings(weight_bits=4)).layers[1:]
    np.testing.assert_array_equal(layer.weight, codes.T)


def test_folded_integers_are_named(path):
    rng = np.random.default_rng(9)
    quantised_dense(path, rng.integers(-127, 128, (H, M)).astype(np.int8), np.float32(0.01), np.int8(0))
    model = onnx.load(path)
    model.graph.node[-1].output[0] = "before"
    model.graph.node.append(node("Mul", "before factors", "y"))
    model.graph.initializer.append(const("factors", rng.uniform(1, 2, M).astype(np.float32)))
    onnx.save(model, path)
    assert not inspect_model(path).integer_weights
    assert "the model's integers 'codes' are no layer's weights as they stand" in notes(path)


def rounded(path, second=None, middle=()):
    """A model that rounds the LSTM's result, with constants of its own for DequantizeLinear."""
    rng = np.random.default_rng(10)
    weights = [
        *lstm_weights(rng),
        const("s1", np.float32(1 / 128)),
        const("s2", np.float32(1 / 128 if second is None else second)),
        const("z", np.int8(0)),
        const("low", np.int8(-64)),
        const("high", np.int8(63)),
        ints("ax", 1),
    ]
    nodes = [
        node("LSTM", "x W R", "y0", "rec", hidden_size=H),
        node("Squeeze", "y0 ax", "y1"),
        node("QuantizeLinear", "y1 s1 z", "q", "quantise"),
        *middle,
        node("DequantizeLinear", f"{middle[-1].output[0] if middle else 'q'} s2 z", "y", "back"),
    ]
    return save(path, nodes, weights, ["y"], shape=("T", 1, I), ir=8)


def test_clip_between_a_pair(path):
    rounded(path, middle=[node("Clip", "q low high", "c")])
    assert "rounds 1 tensor to 7 bits" in notes(path)
    assert difference(path, inputs(np.random.default_rng(0)) / 64) <= 1 / 256


@pytest.mark.parametrize(
    ("second", "middle"), [(1 / 64, ()), (None, [node("Reshape", "q shape", "c")])], ids=["scales", "reshape"]
)
def test_quantisers_that_are_no_pair_are_refused(path, second, middle):
    rounded(path, second, middle)
    if middle:
        with edited(path) as model:
            model.graph.initializer.append(ints("shape", -1, H))
    refused(path, r"QuantizeLinear node 'quantise', which reads 'y1', .*the same const")
    assert read_model(path, ReadOptions(output="y1")).network.outputs == H


def test_operators_on_integers_are_refused(path):
    rng = np.random.default_rng(0)
    float_model(path, rng)
    found = static(path, inputs(rng), True, quant_format=QuantFormat.QOperator)
    assert "QLinearMatMul" in [one.op_type for one in onnx.load(found).graph.node]
    refused(found, r"computes with integers; .*quant_format=QuantFormat.QDQ")


def test_integers_as_input_are_outside(path):
    """The core's input is what DequantizeLinear gives."""
    rng = np.random.default_rng(0)
    weights = [*lstm_weights(rng), const("s", np.float32(0.5)), const("z", np.int8(0))]
    nodes = [
        node("DequantizeLinear", "x s z", "floats"),
        node("LSTM", "floats W R", "y", "rec", hidden_size=H),
    ]
    save(path, nodes, weights, ["y"], shape=("T", 1, I), ir=8)
    with edited(path) as model:
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8
    report = inspect_model(path)
    assert report.refusal == "" and report.input == "floats"
    assert report.outside[0].kind == "DequantizeLinear"
