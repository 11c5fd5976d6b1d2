"""Front ends, operators and activations of other packages: which one reads a model, and what is refused."""

import numpy as np
import pytest
from support.lazy import nn
from support.onnx_files import H, after_lstm, const, node
from support.packages import install

import rtlstm
from rtlstm.gen.frontends import FRONT_ENDS, FrontEnd
from rtlstm.gen.frontends.onnx.translate import OFFERED as OPERATORS
from rtlstm.gen.frontends.torch.operators import supported
from rtlstm.spec.activations.functions import ACTIVATIONS, FunctionDefinition, TorchNames


def test_a_module_is_offered_to_front_ends_of_other_packages_first():
    network = rtlstm.Network(layers=[rtlstm.Rnn(w_ih=[[1.0]], w_hh=[[1.0]], bias=[0.0])])
    front_end = FrontEnd(
        recognises=lambda source: isinstance(source, nn.Bilinear),
        read=lambda source, options, report: network,
    )
    FRONT_ENDS.add("own", front_end)
    try:
        assert rtlstm.read_model(nn.Bilinear(1, 1, 1)).network is network
        with pytest.raises(rtlstm.ModelError):
            rtlstm.read_model(nn.ReLU())
    finally:
        FRONT_ENDS.remove("own")


def test_messages_list_activations_of_other_packages() -> None:
    names = TorchNames("logsigmoid log_sigmoid", "LogSigmoid")
    ACTIVATIONS.add("log_sigmoid", FunctionDefinition(formula=lambda x, a, b: x, torch=names))
    try:
        assert ", LeakyReLU, LogSigmoid, Mish, " in supported()
    finally:
        ACTIVATIONS.remove("log_sigmoid")
    assert "LogSigmoid" not in supported()


def offer(folder, monkeypatch, group, *points):
    """Install a package with entry points."""
    install(folder, "acme", "\n".join([f"[{group}]", *points]), "2.0")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("operator", ["LSTM", "Squeeze", "Shape", "Tanh", "MatMul"])
def test_an_operator_of_rtlstms_cannot_be_offered(operator, tmp_path, monkeypatch):
    nodes = [node("Tanh", "s", "t"), node("MatMul", "t m", "out"), node("Shape", "out", "sizes")]
    after_lstm(tmp_path / "model.onnx", nodes, [const("m", np.ones((H, 2), np.float32))])
    assert rtlstm.read_model(tmp_path / "model.onnx")
    offer(tmp_path, monkeypatch, "rtlstm.onnx_operators", f"{operator} = acme:read")
    with pytest.raises(
        rtlstm.ModelError, match=f"ONNX operator '{operator}' is one of rtlstm's, but acme 2.0 "
    ):
        rtlstm.read_model(tmp_path / "model.onnx")
    with pytest.raises(rtlstm.ConfigurationError, match=f"ONNX operator '{operator}' is there already"):
        OPERATORS.add(operator, print)


@pytest.mark.parametrize(
    ("operator", "already"),
    [("Celu", "ONNX operator 'Celu' of acme 2.0"), ("Squeeze", "ONNX operator 'Squeeze' of rtlstm")],
)
def test_an_activation_cannot_be_another_operator_too(operator, already, tmp_path, monkeypatch):
    after_lstm(tmp_path / "model.onnx", [node("Celu", "s", "out")])
    offer(tmp_path, monkeypatch, "rtlstm.onnx_operators", "Celu = acme:read")
    ACTIVATIONS.add("mine", FunctionDefinition(formula=lambda x, a, b: x, onnx=operator))
    try:
        text = (
            f"ONNX operator '{operator}' is activation 'mine' of this program and also {already}; rename one"
        )
        with pytest.raises(rtlstm.ModelError, match=text):
            rtlstm.read_model(tmp_path / "model.onnx")
    finally:
        ACTIVATIONS.remove("mine")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("node.no_such", "must return a Value or raise a ModelError, but raises AttributeError: .*"),
        ("3", "must return a Value, not 3; correct it"),
    ],
)
def test_an_operator_that_fails_is_named(cli, body, text, tmp_path, monkeypatch):
    after_lstm(tmp_path / "model.onnx", [node("Celu", "s", "out")])
    module = f"acme_{len(body)}"
    (tmp_path / f"{module}.py").write_text(f"read = lambda node: {body}\n")
    offer(tmp_path, monkeypatch, "rtlstm.onnx_operators", f"Celu = {module}:read")
    with pytest.raises(rtlstm.ModelError, match=f"ONNX operator 'Celu' of acme 2.0 {text}"):
        rtlstm.read_model(tmp_path / "model.onnx")
    cli("generate", tmp_path / "model.onnx", "-o", tmp_path / "b").refused("'Celu' of acme 2.0 must return")


def test_a_front_end_that_fails_is_named(cli, tmp_path, monkeypatch):
    (tmp_path / "acme.py").write_text(
        "from rtlstm.gen.frontends import FrontEnd\n"
        "ASKED = FrontEnd(recognises=lambda source: source.no_such, read=None)\n"
    )
    offer(tmp_path, monkeypatch, "rtlstm.front_ends", "acme = acme:ASKED")
    text = "front end 'acme' of acme 2.0 must say whether it reads 'model.onnx', but raises AttributeError: "
    with pytest.raises(rtlstm.ModelError, match=text):
        rtlstm.read_model("model.onnx")
    with pytest.raises(rtlstm.ConfigurationError, match="front end 'acme' of acme 2.0 must say whether"):
        rtlstm.read_model(None)
    cli("generate", tmp_path / "model.onnx", "-o", tmp_path / "b").refused("front end 'acme' of acme 2.0")


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (lambda source, *_: source.no_such, "must return a Network or raise a ModelError, but raises Attr"),
        (lambda *_: 5, "must return a Network, not 5"),
    ],
)
def test_a_front_end_that_reads_no_network_is_named(read, problem):
    FRONT_ENDS.add("own", FrontEnd(recognises=lambda source: source == "model.own", read=read))
    try:
        with pytest.raises(rtlstm.ModelError, match=f"front end 'own' of this program {problem}"):
            rtlstm.read_model("model.own")
    finally:
        FRONT_ENDS.remove("own")


def test_a_file_that_cannot_be_opened_is_not_the_front_ends_fault(tmp_path, monkeypatch):
    (tmp_path / "acme_opens.py").write_text(
        "from rtlstm.gen.frontends import FrontEnd\n"
        "OWN = FrontEnd(recognises=lambda source: True, read=lambda source, *_: open(source))\n"
    )
    offer(tmp_path, monkeypatch, "rtlstm.front_ends", "acme = acme_opens:OWN")
    with pytest.raises(rtlstm.ModelError, match="cannot be read: No such file or directory"):
        rtlstm.read_model(str(tmp_path / "none.acme"))
