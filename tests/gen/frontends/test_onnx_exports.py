"""Models as PyTorch's exporters write them, read and computed in float, against PyTorch's own outputs."""

import itertools
import logging

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static
from support.lazy import nets, nn, torch
from support.quantised_files import Data, static
from support.quick import quick
from support.torch_forms import equals

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.sim.reference import run_float

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

T, N, I, H = 4, 3, 5, 6  # noqa: E741
SHAPES = {"one layer": {}, "bidirectional": {"bidirectional": True}, "two layers": {"num_layers": 2}}
BOTH = {"both, two layers": {"bidirectional": True, "num_layers": 2}}


HEADS = ("last", "all", "final")
FEW = [
    (kind, number % 2 == 0, HEADS[(number + at) % 3], "batch and steps", shape)
    for at, kind in enumerate(("LSTM", "GRU", "RNN"))
    for number, shape in enumerate(SHAPES)
]
MORE = [
    (kind, False, head, "static", "both, two layers")
    for kind, head in (("LSTM", "all"), ("LSTM", "final"), ("GRU", "all"), ("RNN", "all"))
]


def model(kind, batch_first, head, sizes, shape):
    """A model in inference mode, an input, and the axes that are to be dynamic."""
    torch.manual_seed(0)
    module = nets.Recurrent(kind, head, batch_first=batch_first, **(SHAPES | BOTH)[shape]).eval()
    free = {"static": [], "batch": [0 if batch_first else 1], "batch and steps": [0, 1]}[sizes]
    return module, torch.randn((N, T, I) if batch_first else (T, N, I)), free


def expect_equal(source, module, *, steps=T, batch=N):
    """The network computes what the module does."""
    first = module.rnn.batch_first
    result = equals(source, module, torch.randn((batch, steps, I) if first else (steps, batch, I)))
    assert result.report.batch_first == first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "batch_first", "head", "sizes", "shape"),
    [*itertools.product(("LSTM", "GRU"), (False, True), HEADS, ("static", "batch"), SHAPES), *MORE[:-1]],
)
def test_newer_onnx_exporter(tmp_path, caplog, kind, batch_first, head, sizes, shape):
    """It has dynamic batches, but fixes the number of steps of a recurrent module itself."""
    module, x, free = model(kind, batch_first, head, sizes, shape)
    path = tmp_path / "model.onnx"
    shapes = (dict.fromkeys(free, torch.export.Dim.DYNAMIC),) if free else None
    with caplog.at_level(logging.ERROR):
        torch.onnx.export(module, (x,), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    expect_equal(path, module, batch=N + 2 if free else N)


@pytest.mark.parametrize(
    ("kind", "batch_first", "head", "sizes", "shape"),
    quick(
        [
            *itertools.product(
                ("LSTM", "GRU", "RNN"), (False, True), HEADS, ("static", "batch", "batch and steps"), SHAPES
            ),
            *MORE,
        ],
        *FEW,
        *MORE,
    ),
)
def test_older_onnx_exporter(tmp_path, kind, batch_first, head, sizes, shape):
    module, x, free = model(kind, batch_first, head, sizes, shape)
    path = tmp_path / "model.onnx"
    axes = {"x": dict(zip(free, "ab", strict=False))}
    torch.onnx.export(module, (x,), path, dynamo=False, input_names=["x"], dynamic_axes=axes)
    expect_equal(path, module, steps=T + 3, batch=N + 2)


def decoder(kind, batch_first, how):
    """One step of a decoder: a token of each sequence, and the state before it."""
    at = 1 if batch_first else 0

    def call(m, t, h, c):
        if how == "squeeze":
            x = m.emb(t).unsqueeze(at)
        elif how == "index":
            x = m.emb(t)[:, None] if batch_first else m.emb(t)[None]
        elif how == "token":
            x = m.emb(t.unsqueeze(at))
        else:
            x = m.emb(t).view((-1, 1, I) if batch_first else (1, -1, I))
        y, state = m.rnn(x, (h, c) if kind == "LSTM" else h)
        if how == "index":
            return m.fc(y[:, 0] if batch_first else y[0]), state
        return m.fc(y.view(-1, H) if how == "view" else y.squeeze(at)), state

    rnn = getattr(nn, kind)(I, H, batch_first=batch_first)
    return nets.StateNet(call, emb=nn.Embedding(10, I), fc=nn.Linear(H, 10), rnn=rnn)


@pytest.mark.parametrize("how", ["squeeze", "index", "token", "view"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_step_of_a_decoder(tmp_path, kind, batch_first, how):
    """Read from the module as from its exports."""
    torch.manual_seed(0)
    module = decoder(kind, batch_first, how).eval()
    tokens, state = torch.tensor([1, 7, 3]), torch.zeros(2, 1, N, H)
    with torch.no_grad():
        expected, rows = module(tokens, *state)[0].numpy(), module.emb(tokens)[None].numpy()
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, (tokens, *state), path, dynamo=False)
    sources = [module, path]
    if (kind, batch_first) == ("LSTM", False):
        sources.append(torch.export.export(module, (tokens, *state)))
    for source in sources:
        result = read_model(source)
        np.testing.assert_allclose(run_float(result.network, rows).y[0], expected, atol=1e-5)
    notes = "; ".join(read_model(module).report.notes)
    assert "computes one step: the core keeps its state from step to step" in notes
    assert "give the state to the driver at run time" in notes


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("bits", [8, 16])
def test_model_with_a_quantised_end(tmp_path, bits, opset):
    """It is read as a whole, or cut before it; with 16 bits, older opsets have operators of onnxruntime's."""
    module, x, free = model("LSTM", False, "all", "batch and steps", "one layer")
    path = tmp_path / "float.onnx"
    axes = {"x": dict(zip(free, "ab", strict=True))}
    torch.onnx.export(
        module, (x,), path, dynamo=False, input_names=["x"], dynamic_axes=axes, opset_version=opset
    )
    chosen = {8: QuantType.QInt8, 16: QuantType.QInt16}[bits]
    quantised = static(path, x.numpy(), False, weight_type=chosen, activation_type=chosen)
    end = next(node for node in onnx.load(quantised).graph.node if node.op_type == "QuantizeLinear").input[0]
    equals(quantised, module.rnn, x, options=ReadOptions(output=end))
    whole = run_float(read_model(quantised).network, x.numpy()).y
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(whole.reshape(expected.shape), expected, atol={8: 0.02, 16: 1e-4}[bits])


@pytest.mark.parametrize("dynamic", [False, True])
def test_quantised_cell(tmp_path, dynamic):
    """An LSTM cell in parts, with quantisers between them: the integers of its gates are found again."""
    module = nets.StateNet(lambda m, x, h, c: m.cell(x, (h, c)), cell=nn.LSTMCell(I, H)).eval()
    torch.manual_seed(0)
    path, quantised = tmp_path / "float.onnx", tmp_path / "quantised.onnx"
    step = {name: torch.randn(N, width) for name, width in (("x", I), ("h", H), ("c", H))}
    names = {"input_names": list(step), "output_names": ["h_new", "c_new"]}
    torch.onnx.export(module, tuple(step.values()), path, dynamo=False, **names)
    if dynamic:
        quantize_dynamic(path, quantised)
    else:
        data = Data(**{name: each.numpy() for name, each in step.items()})
        quantize_static(path, quantised, data, weight_type=QuantType.QInt8)
    result = read_model(quantised)
    floats, (layer,) = read_model(path).network.layers[0], result.network.layers
    for found, name in zip(result.report.integer_weights, ("w_ih", "w_hh"), strict=True):
        assert (found.weight, found.bits, found.largest) == (name, 8, 127)
        assert 0 < np.abs(getattr(layer, name) - getattr(floats, name)).max() <= found.steps[0] * 0.5001
