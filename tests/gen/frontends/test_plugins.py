"""Front ends of other packages come before those of rtlstm."""

import pytest

import rtlstm
from rtlstm.gen.frontends import FRONT_ENDS, FrontEnd
from rtlstm.gen.frontends.torch.module_names import supported
from rtlstm.spec.activations.functions import ACTIVATIONS, FunctionDefinition, TorchNames

torch = pytest.importorskip("torch")


class Own(torch.nn.Module):
    """A module that rtlstm cannot read."""


def test_a_module_is_offered_to_front_ends_of_other_packages_first():
    network = rtlstm.Network(layers=[rtlstm.Rnn(w_ih=[[1.0]], w_hh=[[1.0]], bias=[0.0])])
    front_end = FrontEnd(
        recognises=lambda source: isinstance(source, Own), read=lambda source, options, report: network
    )
    FRONT_ENDS.add("own", front_end)
    try:
        assert rtlstm.read_model(Own()).network is network
        with pytest.raises(rtlstm.ModelError):
            rtlstm.read_model(torch.nn.Linear(1, 1))
    finally:
        FRONT_ENDS.remove("own")


def test_messages_list_activations_of_other_packages() -> None:
    names = TorchNames("mish", "Mish")
    ACTIVATIONS.add("mish", FunctionDefinition(formula=lambda x, a, b: x, torch=names))
    try:
        assert ", LeakyReLU, Mish, ReLU, " in supported()
    finally:
        ACTIVATIONS.remove("mish")
    assert "Mish" not in supported()
