"""Modules of brevitas, and the ONNX files that brevitas writes of them."""

import numpy as np
import pytest
from support.lazy import Lazy, nets, nn, torch
from support.refusals import refused
from support.torch_forms import equals

from rtlstm.gen.frontends import inspect_model, read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float

qnn, quant = Lazy("brevitas.nn"), Lazy("brevitas.quant")

T, N, I, H, O = 7, 2, 3, 5, 2  # noqa: E741
FLOAT32 = 1e-5
RNN_FLOATS = dict.fromkeys(("io_quant", "gate_acc_quant", "bias_quant"))
LSTM_FLOATS = RNN_FLOATS | dict.fromkeys(("sigmoid_quant", "tanh_quant", "cell_state_quant"))
"""Quantisers that are left out: weights alone are integers."""

pytestmark = pytest.mark.filterwarnings("ignore")


def inputs(steps=T):
    return torch.randn(steps, N, I)


def difference(module, x):
    """Largest difference of the float reference from the module."""
    with torch.no_grad():
        expected = module(x)
    expected = expected[0] if isinstance(expected, tuple) else expected
    return np.abs(run_float(read_model(module).network, x.numpy()).y - expected.numpy()).max()


def lstm(**options):
    torch.manual_seed(0)
    return qnn.QuantLSTM(I, H, **(LSTM_FLOATS | options)).eval()


VARIANTS = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "two directions": {"bidirectional": True},
    "shared weights": {"bidirectional": True, "shared_input_hidden_weights": True},
    "no bias": {"bias": False},
    "weights as floats": {"weight_quant": None},
}


@pytest.mark.parametrize("name", [*VARIANTS, "f is 1 - i"])
def test_quant_lstm(name):
    options = VARIANTS.get(name, {"coupled_input_forget_gates": True})
    module = lstm(**({"weight_bit_width": 4} | options))
    report = equals(module, module, inputs()).report
    expected = 0 if name == "weights as floats" else 2 if name in ("plain", "no bias", "f is 1 - i") else 4
    assert len(report.integer_weights) == expected
    assert all(one.bits == 4 and one.largest <= 7 for one in report.integer_weights)
    rounded = [note for note in report.notes if "is a state" not in note]
    assert all("4 bits" in note for note in rounded) and len(rounded) == expected


@pytest.mark.parametrize("name", [*VARIANTS, "relu"])
def test_quant_rnn(name):
    torch.manual_seed(0)
    options = VARIANTS.get(name, {"nonlinearity": "relu"})
    module = qnn.QuantRNN(I, H, **(RNN_FLOATS | {"weight_bit_width": 4} | options)).eval()
    equals(module, module, inputs())


def test_batch_first():
    module = lstm(batch_first=True)
    equals(module, module, inputs().transpose(0, 1))


def test_integers_are_the_builds():
    """With powers of two as scales, a build's integers are brevitas', gate by gate."""
    module = lstm(weight_quant=quant.Int8WeightPerTensorFixedPoint, weight_bit_width=4)
    assert all(one.exact_bits == 4 for one in inspect_model(module).integer_weights)
    (layer,) = quantise(read_model(module).network, QuantizationSettings(weight_bits=8)).layers
    gates = [
        getattr(module.layers[0][0], f"{gate}_gate_params") for gate in ("input", "forget", "cell", "output")
    ]
    for ours, part in ((layer.w_ih, "input_weight"), (layer.w_hh, "hidden_weight")):
        theirs = torch.cat([getattr(gate, part).quant_weight().int() for gate in gates]).numpy().astype(int)
        factors = ours.max(axis=1) / theirs.max(axis=1)
        np.testing.assert_array_equal(ours, theirs * factors[:, None])
        assert set(np.log2(factors)) <= {4.0, 5.0, 6.0, 7.0}


def calibrated(module, x):
    with torch.no_grad(), Lazy("brevitas.graph.calibrate").calibration_mode(module.eval()):
        for _ in range(3):
            module(x)
    return module.eval()


RANGES = {"io": 4.0, "gate_acc": 16.0, "sigmoid": 1.0, "tanh": 1.0, "cell_state": 8.0}
"""Ranges of what an LSTM rounds, in which nothing saturates."""


def net(bits=8, **options):
    """What people train with brevitas."""
    widths = {f"{name}_bit_width": bits for name in RANGES}
    return nets.Net(
        lambda m, x: m.fc2(m.act(m.fc(m.round(m.rnn(x)[0])))),
        rnn=qnn.QuantLSTM(I, H, weight_bit_width=4, **(widths | options)),
        round=qnn.QuantIdentity(bit_width=bits), fc=qnn.QuantLinear(H, 4, bias=True, weight_bit_width=4),
        act=qnn.QuantReLU(bit_width=bits), fc2=qnn.QuantLinear(4, O, bias=True),
    )  # fmt: skip


def trained(x, bits=8, **options):
    """A module whose ranges were learned on x."""
    torch.manual_seed(1)
    return calibrated(net(bits, **options), x)


def test_rounding_alone_differs():
    """In wide ranges, the difference is that of the roundings: of 8 bits more it is far smaller."""
    torch.manual_seed(2)
    x, wide = inputs(), {f"{name}_scaling_impl_type": "const" for name in RANGES}
    wide |= {f"{name}_scaling_init": size for name, size in RANGES.items()}
    narrow_bits, more_bits = (difference(trained(x, bits, **wide).rnn, x) for bits in (8, 16))
    assert 1e-3 < narrow_bits < 0.2
    assert more_bits < narrow_bits / 100


def test_what_is_rounded_and_where_it_ends_is_noted():
    torch.manual_seed(2)
    module = trained(inputs())
    text = "; ".join(inspect_model(module).notes)
    step = module.rnn.layers[0][0].cell.output_quant.scale().item()
    assert (
        f"brevitas rounds 7 results: x and h of 'rnn.layers.0' to 8 bits, at most {127 * step:.4g} in steps "
        f"of {step:.4g}, gates' sums of"
    ) in text
    assert "'act' to 8 bits, at most" in text and "What is larger saturates there" in text
    assert "`data_bits`, `gate_bits`, `cell_bits`, `cell_range`" in text
    assert "weight of 'fc' has integers of 4 bits in the model" in text


def test_module_is_not_changed():
    module = trained(inputs())
    before = [type(part).__name__ for part in module.modules()]
    read_model(module)
    assert [type(part).__name__ for part in module.modules()] == before
    assert isinstance(module.rnn, qnn.QuantLSTM)


def test_states_one_by_one():
    module = nets.StateNet(lambda m, x, h, c: m.rnn(x, h, c), rnn=lstm())
    notes = "; ".join(inspect_model(module.eval()).notes)
    assert "initial_h is the model's input 'h': give the state to the driver" in notes
    assert "initial_c is the model's input 'c'" in notes


def test_identity_without_a_sign_is_a_relu():
    module = nn.Sequential()
    module.add_module("fc", nn.Linear(I, H))
    module.add_module("round", qnn.QuantIdentity(act_quant=quant.Uint8ActPerTensorFloat, bit_width=16))
    module.add_module("rnn", nn.LSTM(H, H))
    assert read_model(calibrated(module, inputs())).network.layers[0].activation == "relu"


def test_modules_of_brevitas_are_refused_by_name():
    class Own(qnn.QuantLinear):
        def forward(self, x):
            return super().forward(x) * 2

    def behind(part):
        return nn.Sequential(nn.Linear(I, I), part)

    refused(behind(qnn.QuantConv1d(I, H, 1)), r"brevitas' QuantConv1d '1' is not supported; supported are")
    refused(behind(Own(I, H, bias=True)), "brevitas' QuantLinear '1' with a forward of its own is not")
    refused(
        lstm(io_quant=quant.Uint8ActPerTensorFloat),
        r"layers.0: brevitas rounds x and h to integers without a sign",
    )


@pytest.mark.parametrize("alone", [True, False], ids=["LSTM", "behind an LSTM"])
def test_exported_files(tmp_path, alone):
    """What brevitas' QCDQ export writes: of an LSTM only weights may be integers.

    The bound behind one is that of two roundings, a step each: values may be just beyond their ranges.
    """
    pytest.importorskip("onnxoptimizer")
    from brevitas.export import export_onnx_qcdq

    x, path = inputs(), tmp_path / "qcdq.onnx"
    if alone:
        module = lstm(weight_bit_width=4)
    else:
        module = trained(x, **LSTM_FLOATS)
        module.rnn = nn.LSTM(I, H)
    if alone:
        # It removes the axis of sequences: with two of them, onnxruntime refuses the file, too.
        export_onnx_qcdq(module, x, path, dynamo=False, opset_version=17)
        refused(path, "Squeeze.* is not as ONNX defines it")
    export_onnx_qcdq(module, x[:, :1], path, dynamo=False, opset_version=17)
    with torch.no_grad():
        expected = module(x)[0] if alone else module(x)
    bound = FLOAT32
    if not alone:
        first, second = (part.act_quant.scale().item() for part in (module.round, module.act))
        norms = [part.quant_weight().value.abs().sum(1).max().item() for part in (module.fc, module.fc2)]
        bound += (first * norms[0] + second) * norms[1]
    y = run_float(read_model(path).network, x.numpy()).y
    np.testing.assert_allclose(y, expected.numpy().reshape(y.shape), atol=bound)
    assert [one.bits for one in inspect_model(path).integer_weights] == ([4, 4] if alone else [4, 8])
