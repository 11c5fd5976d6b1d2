"""silero's files are one network however they are encoded; downloads them, so it is a slow test.

Two of the release's files are not among them: ``silero_vad_16k.safetensors`` and ``silero_vad_half.onnx``
hold other weights.
"""

import numpy as np
import pytest

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.zoo.entry import Package, fetch
from rtlstm.zoo.silero import MODEL

FIRST = "If_0_then_branch__Inline_0__"
ENCODINGS = {
    # The cell in parts: products, Split, activations.
    "silero_vad_op18_ifless.onnx": (
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        ReadOptions(branches=("*:then",), output="sigmoid_3"),
    ),
    # TorchScript: the forward of the decoder is read, with the 16 kHz model's own weights.
    "silero_vad.jit": (
        "e1122837f4154c511485fe0b9c64455f7b929c96fbb8d79fbdb336383ebd3720",
        ReadOptions(lstm="_model.decoder.rnn"),
    ),
    "silero_vad.onnx": (
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        ReadOptions(
            branches=("If_0:then", f"{FIRST}/decoder/If:then", "*:else"), output=f"{FIRST}/If_output_0"
        ),
    ),
    "silero_vad_16k_op15.onnx": (
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        ReadOptions(branches=("/model/decoder/If:then", "*:else"), output="/model/If_output_0"),
    ),
    "silero_vad_openvino_16k.onnx": (
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        ReadOptions(output=f"F0::{FIRST}/If_output_0"),
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_are_the_same_network(name: str) -> None:
    sha256, options = ENCODINGS[name]
    files = fetch(Package(MODEL.requirement, {f"silero_vad/data/{name}": sha256})) | fetch(MODEL)
    encoding, model = files.values()
    found, wanted = read_model(encoding, options).network, read_model(model).network
    assert len(found.layers) == len(wanted.layers) == 2
    for ours, theirs in zip(found.layers, wanted.layers, strict=True):
        for field in type(theirs).model_fields.keys() - {"name"}:
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))
