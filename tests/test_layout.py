"""Every door reads data in the order of steps and sequences that the model has, unless told otherwise."""

import json
import shutil
import warnings

import numpy as np
import pytest
import safetensors.numpy
from support.lazy import nets, torch
from support.no_logic import no_logic

import rtlstm
from rtlstm import InputError, Manifest, read_model
from rtlstm.spec.layout import LayoutWarning, sequences_first

pytestmark = pytest.mark.usefixtures("without_verilog")

I, H, N, T = 3, 5, 4, 6  # noqa: E741
ARRAY = {"lanes": 4, "macs": 2, "weight_bits": 16, "data_bits": 16}


def first_lstm():
    torch.manual_seed(3)
    return torch.nn.LSTM(I, H, batch_first=True).eval()


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(5).normal(size=(N, T, I)).astype(np.float32)


@pytest.fixture(scope="module")
def build(x, tmp_path_factory):
    folder = tmp_path_factory.mktemp("first") / "build"
    with no_logic():
        return rtlstm.compile(first_lstm(), calibration=x, folder=folder, name="first", **ARRAY)


@pytest.fixture(scope="module")
def unknown(x, tmp_path_factory):
    """A build of the same module's state dict, which tells no order."""
    folder = tmp_path_factory.mktemp("unknown")
    state = {name: value.numpy() for name, value in first_lstm().state_dict().items()}
    safetensors.numpy.save_file(state, folder / "lstm.safetensors")
    with no_logic():
        return rtlstm.compile(folder / "lstm.safetensors", folder=folder / "build", **ARRAY)


def test_run_follows_the_model(build, x):
    wanted = first_lstm()(torch.from_numpy(x))[0].detach().numpy()
    y, (h, _) = build.run(x)
    assert np.abs(y - wanted).max() < 1e-3 and h.shape == (1, N, H)
    assert np.array_equal(build.run(x, batch_first=True)[0], y)
    assert np.array_equal(build.run(x.swapaxes(0, 1), batch_first=False)[0], y.swapaxes(0, 1))
    lengths = np.arange(1, N + 1)
    short = build.run(x, lengths)[0]
    assert np.array_equal(short[0, :1], y[0, :1]) and not short[0, 1:].any()
    with pytest.raises(InputError, match=f"{N} steps of {T} sequences, .* otherwise with `batch_first=True`"):
        build.run(x, lengths, batch_first=False)


def test_calibration_follows_the_model(build, x, tmp_path):
    """The order makes formats: the same as those of the data said to have the batch first."""
    said = rtlstm.compile(
        first_lstm(), calibration=x, batch_first=True, folder=tmp_path / "said", name="first", **ARRAY
    )
    assert said.manifest.build_hash == build.manifest.build_hash
    assert said.report().accuracy == build.report().accuracy


def test_accuracy_and_its_labels_follow_the_model(build, x):
    y, _ = build.run(x)
    found = build.accuracy(x, labels=y.astype(np.float64), model=first_lstm())
    same = build.accuracy(x, labels=y.astype(np.float64), model=first_lstm(), batch_first=True)
    assert found == same and (found.sequences, found.steps) == (N, T)


def test_the_module_for_pytorch_follows_the_model(build, x):
    from rtlstm.host.torch import LSTM

    module, tensor = first_lstm(), torch.from_numpy(x)
    with build.open() as accelerator, torch.no_grad():
        device = LSTM(accelerator)
        y, (h, c) = device(tensor)
        wanted, (h_n, c_n) = module(tensor)
        assert device.batch_first is True
        for found, expected in ((y, wanted), (h, h_n), (c, c_n)):
            assert found.shape == expected.shape and (found - expected).abs().max() < 1e-3
        swapped = LSTM(accelerator, batch_first=False)(tensor.swapaxes(0, 1))[0]
        assert torch.equal(swapped.swapaxes(0, 1), y)


def test_a_file_of_tensors_tells_no_order_and_that_is_said_once(unknown, x):
    assert unknown.manifest.batch_first is None
    wanted = first_lstm()(torch.from_numpy(x))[0].detach().numpy()
    with unknown.open() as accelerator:
        with pytest.warns(
            LayoutWarning, match=rf"x of shape \({N}, {T}, {I}\) was read as {N} steps of {T} seq"
        ):
            assert accelerator.run(x)[0].shape == (N, T, H)
        accelerator.run(x)
    with unknown.open() as accelerator:
        # What the message names helps; so do shapes that leave no doubt.
        assert np.abs(accelerator.run(x, batch_first=True)[0] - wanted).max() < 2e-2
        accelerator.run(x, batch_first=False)
        accelerator.run(x, np.full(T, 2))
        accelerator.run(x[0])
    with pytest.warns(LayoutWarning, match="calibration data of shape"):
        rtlstm.compile(read_model(unknown.folder.parent / "lstm.safetensors"), calibration=x,
                       folder=unknown.folder.parent / "again", **ARRAY)  # fmt: skip
    from rtlstm.host.torch import LSTM

    with unknown.open() as accelerator, pytest.warns(LayoutWarning, match="give `batch_first=False` if this"):
        LSTM(accelerator)(torch.from_numpy(x))


def test_a_network_of_ones_own_has_steps_first(x, tmp_path):
    network = read_model(first_lstm()).network
    build = rtlstm.compile(network, calibration=x.swapaxes(0, 1), folder=tmp_path / "build", **ARRAY)
    assert build.manifest.batch_first is False and build.run(x.swapaxes(0, 1))[0].shape == (T, N, H)


def test_the_order_is_no_part_of_the_hardware(build, tmp_path):
    fields = json.loads(build.manifest.to_json())
    assert fields["batch_first"] is True
    folder = shutil.copytree(build.folder, tmp_path / "other")
    (folder / "manifest.json").write_text(json.dumps({**fields, "batch_first": False}))
    other = Manifest.load(folder)
    assert other.batch_first is False and other.build_hash == build.manifest.build_hash


def transposing(first):
    """Takes sequences first, though its LSTM takes steps first."""
    lstm = torch.nn.LSTM(I, H, batch_first=first)
    return nets.Net(lambda net, x: net.lstm(x.transpose(0, 1))[0].transpose(0, 1), lstm=lstm)


@pytest.mark.parametrize(
    ("make", "order"),
    [
        (lambda: torch.nn.LSTM(I, H), False),
        (lambda: torch.nn.GRU(I, H, batch_first=True), True),
        (lambda: transposing(first=False), True),
        (lambda: transposing(first=True), False),
        (lambda: torch.nn.Conv1d(I, H, 1), False),
        (lambda: torch.nn.LSTMCell(I, H), None),
    ],
    ids=["steps", "batch", "swapped", "swapped twice", "no state", "one step"],
)
def test_what_a_module_tells(make, order):
    report = read_model(make()).report
    assert report.batch_first is order and bool(report.layout) == bool(order)


def test_the_callers_word_comes_first_and_doubt_is_told():
    data = np.zeros((5000, 1, 2))
    with pytest.warns(LayoutWarning, match="read as 5,000 steps of 1 sequence, because .*=True` if it is"):
        assert sequences_first("x", data, None, None) is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given, known in ((True, False), (1, None), (None, True), (np.True_, False)):
            assert sequences_first("x", data, given, known) is True
        for given, known in ((False, True), (0, None), (None, False)):
            assert sequences_first("x", data, given, known) is False
        assert sequences_first("x", data[0], None, None) is False
        assert sequences_first("x", np.zeros((1, 1, 4)), None, None) is False
    with pytest.raises(InputError, match="batch_first must be True or False, not 'yes'"):
        sequences_first("x", data, "yes", True)
