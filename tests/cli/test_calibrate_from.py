"""Decoders: what is said of their initial states, and how those are had from the encoder's build."""

import shutil

import numpy as np
import pytest
from support.lazy import nets, torch
from support.no_logic import no_logic

import rtlstm
from rtlstm.gen.builds.final_states import load_final_states
from rtlstm.sim.reference import run_float

pytestmark = [
    pytest.mark.usefixtures("without_verilog"),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning"
    ),
]

SIZES = ("--lanes", "4", "--macs", "2", "--quick")
WORDS, SYMBOLS, UNITS, SEQUENCES = 3, 2, 7, 6


def encoder(kind="LSTM", units=UNITS):
    torch.manual_seed(0)
    rnn = getattr(torch.nn, kind)(WORDS, units, 2)
    if kind == "LSTM":
        for layer in range(2):
            # It forgets little, so that c grows from word to word.
            getattr(rnn, f"bias_ih_l{layer}").data[: 2 * units] = 3.0
            getattr(rnn, f"weight_ih_l{layer}").data *= 2.0
    return rnn.eval()


def decoder():
    torch.manual_seed(1)
    rnn = torch.nn.LSTM(SYMBOLS, UNITS, 2)
    return nets.StateNet(
        lambda m, x, h, c: m.fc(m.rnn(x, (h, c))[0]), rnn=rnn, fc=torch.nn.Linear(UNITS, 4)
    ).eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Both models in files, typical words, symbols that follow them, and the encoder's build."""
    folder = tmp_path_factory.mktemp("models")
    words, symbols = torch.zeros(5, 2, WORDS), torch.zeros(5, 2, SYMBOLS)
    state = (torch.zeros(2, 2, UNITS), torch.zeros(2, 2, UNITS))
    some = {"x": {0: "T", 1: "N"}}
    torch.onnx.export(
        encoder(), (words,), folder / "encoder.onnx", dynamo=False, input_names=["x"], dynamic_axes=some
    )
    torch.onnx.export(
        decoder(),
        (symbols, *state),
        folder / "decoder.onnx",
        dynamo=False,
        input_names=["x", "h_begin", "c_begin"],
        dynamic_axes=some | {"h_begin": {1: "N"}, "c_begin": {1: "N"}},
    )
    rng = np.random.default_rng(0)
    np.save(folder / "words.npy", rng.normal(size=(15, SEQUENCES, WORDS)))
    np.save(folder / "symbols.npy", rng.normal(size=(8, SEQUENCES, SYMBOLS)))
    with no_logic():
        rtlstm.compile(
            folder / "encoder.onnx",
            calibration=np.load(folder / "words.npy"),
            folder=folder / "encoder",
            lanes=4,
            macs=2,
            quick=True,
        )
    return folder


def generate(cli, files, folder, *more):
    return cli("generate", files / "decoder.onnx", "-o", folder, *SIZES, *more)


def typical(files):
    return ("--calibrate", files / "symbols.npy")


def advice(result):
    (found,) = [text for text in result.json["report"]["assumptions"] if "as inputs" in text]
    return found


def test_a_decoder_says_that_its_calibration_needs_states(cli, files, tmp_path):
    alone = advice(generate(cli, files, tmp_path / "b", "--json"))
    assert "'h_begin' and 'c_begin', but there are no calibration data" in alone
    found = advice(generate(cli, files, tmp_path / "b", *typical(files), "--json"))
    assert "'h_begin' and 'c_begin', but the calibration data begin with zeros" in found
    assert found.endswith(
        "give the states (--calibrate-state), or the build whose final ones they are (--calibrate-from)"
    )
    assert f"note: {found}" in generate(cli, files, tmp_path / "b", *typical(files)).err.splitlines()
    # Either way out ends the note. An encoder gets none.
    run = ("run", files / "encoder", "--backend", "golden", "--input", files / "words.npy")
    cli(*run, "--state-output", tmp_path / "state.npz").good()
    for more in (("--calibrate-state", tmp_path / "state.npz"), ("--calibrate-from", files / "encoder")):
        told = generate(cli, files, tmp_path / "b", *typical(files), *more, "--json").json["report"]
        assert not [text for text in told["assumptions"] if "as inputs" in text]
        if more[0] == "--calibrate-from":
            assert "the calibration data begin in final states of the build 'encoder'" in told["notes"]
    assert not [text for text in rtlstm.Build(files / "encoder").report().assumptions if "as inputs" in text]


def test_the_states_are_those_of_the_encoder(cli, files, tmp_path):
    """With them, the decoder's c has room for what it begins with, and new words have smaller errors."""
    build = rtlstm.Build(files / "encoder")
    words, symbols = (np.load(files / name) for name in ("words.npy", "symbols.npy"))
    h, c = build.final_states()
    _, (run_h, run_c) = build.run(words)
    np.testing.assert_allclose(np.stack(h), run_h, atol=1e-6)
    np.testing.assert_allclose(np.stack(c), run_c, atol=1e-6)
    assert np.abs(run_c).max() > 3.0
    generate(cli, files, tmp_path / "from", *typical(files), "--calibrate-from", files / "encoder").good()
    generate(cli, files, tmp_path / "zeros", *typical(files)).good()
    stated = rtlstm.compile(
        files / "decoder.onnx",
        calibration=symbols,
        calibration_state=build.run(words)[1],
        folder=tmp_path / "stated",
        name="decoder",
        lanes=4,
        macs=2,
        quick=True,
    )
    taken = rtlstm.Build(tmp_path / "from")
    assert taken.manifest.numerics == stated.manifest.numerics
    # For rtlstm accuracy, the file is a state like others: these are the data that calibrated the build.
    judged = ("accuracy", taken.folder, "--model", files / "decoder.onnx", "--input", files / "symbols.npy")
    state = ("--calibrate-state", files / "encoder" / "final_states.npz")
    assert "other calibration data" not in cli(*judged, *typical(files), *state, "--json").good().err
    assert "other calibration data" in cli(*judged, *typical(files), "--json").good().err
    rng = np.random.default_rng(1)
    state = build.run(rng.normal(size=(20, 50, WORDS)))[1]
    x = rng.normal(size=(8, 50, SYMBOLS))
    wanted = run_float(rtlstm.read_model(files / "decoder.onnx").network, x, tuple(map(tuple, state))).y
    errors = [
        np.sqrt(np.mean((folder.run(x, state=state)[0] - wanted) ** 2))
        for folder in (taken, rtlstm.Build(tmp_path / "zeros"))
    ]
    assert errors[0] < 0.5 * errors[1], errors


def test_other_inputs_of_the_encoder(cli, files, tmp_path):
    """What the encoder reads may be given, with lengths; from Python, too."""
    words = np.random.default_rng(2).normal(size=(9, 4, WORDS))
    np.save(tmp_path / "words.npy", words)
    np.save(tmp_path / "symbols.npy", np.load(files / "symbols.npy")[:, :4])
    result = generate(
        *(cli, files, tmp_path / "b", "--calibrate", tmp_path / "symbols.npy"),
        *("--calibrate-from", files / "encoder", "--calibrate-from-input", tmp_path / "words.npy"),
        *("--calibrate-from-lengths", "9,1,4,9", "--json"),
    ).good()
    encoder_build = rtlstm.Build(files / "encoder")
    options = {"folder": tmp_path / "python", "name": "decoder", "lanes": 4, "macs": 2, "quick": True}
    options["calibration"] = np.load(tmp_path / "symbols.npy")
    build = rtlstm.compile(
        files / "decoder.onnx",
        calibration_from=encoder_build,
        calibration_from_input=words,
        calibration_from_lengths=[9, 1, 4, 9],
        **options,
    )
    state = encoder_build.run(words, [9, 1, 4, 9])[1]
    stated = rtlstm.compile(files / "decoder.onnx", calibration_state=state, **options)
    assert build.manifest.numerics == stated.manifest.numerics
    assert build.report().accuracy.model_dump(mode="json") == result.json["report"]["accuracy"]
    # One sequence has no axis of sequences, in both.
    one = rtlstm.compile(
        files / "decoder.onnx",
        calibration_from=encoder_build,
        calibration_from_input=words[:, 0],
        **options | {"calibration": options["calibration"][:, 0]},
    )
    assert one.report().accuracy.sequences == 1


def test_finetune_from_an_encoder(cli, files, tmp_path):
    result = generate(
        *(cli, files, tmp_path / "b", "--finetune", files / "symbols.npy", "--finetune-updates", "2"),
        *("--calibrate-from", files / "encoder", "--weight-bits", "6", "--json"),
    ).good()
    assert not [text for text in result.json["report"]["assumptions"] if "as inputs" in text]


def test_wrong_ways_name_the_right_one(cli, files, tmp_path):
    """Each message's way out is tried."""

    def refused(*arguments, words):
        generate(cli, files, tmp_path / "b", *arguments).refused(*words)
        assert not (tmp_path / "b").exists()

    def works(*arguments):
        generate(cli, files, tmp_path / "b", *arguments).good()
        assert (tmp_path / "b" / "manifest.json").exists()
        shutil.rmtree(tmp_path / "b")

    data, source = typical(files), ("--calibrate-from", files / "encoder")
    refused(*source, words=["but there are no data: give --calibrate, too"])
    works(*data, *source)
    inputs = ("--calibrate-from-input", files / "words.npy")
    refused(*data, *inputs, words=["--calibrate-from-input", "give --calibrate-from, too"])
    works(*data, *inputs, *source)
    lengths = ("--calibrate-from-lengths", "3,3,3,3,3,15")
    refused(*data, *lengths, words=["--calibrate-from-lengths", "give --calibrate-from, too"])
    refused(*data, *source, *lengths, words=["give --calibrate-from-input, too"])
    works(*data, *source, *inputs, *lengths)
    np.savez(tmp_path / "s.npz", h=np.zeros((2, SEQUENCES, UNITS)), c=np.zeros((2, SEQUENCES, UNITS)))
    state = ("--calibrate-state", tmp_path / "s.npz")
    refused(*data, *source, *state, words=["--calibrate-from and --calibrate-state both", "leave one"])
    works(*data, *state)
    # Another number of sequences.
    np.save(tmp_path / "few.npy", np.load(files / "symbols.npy")[:, :5])
    few = ("--calibrate", tmp_path / "few.npy")
    refused(
        *few, *source, words=["calibrated", ", 6, in the same order, but have 5; ", "--calibrate-from-input"]
    )
    np.save(tmp_path / "words.npy", np.load(files / "words.npy")[:, :5])
    works(*few, *source, "--calibrate-from-input", tmp_path / "words.npy")
    refused(*few, *source, *inputs, words=["of --calibrate-from-input, 6, in the same order, but have 5"])
    # No build, and one that has no final states.
    refused(*data, "--calibrate-from", tmp_path / "no", words=["no"])
    bare = tmp_path / "bare"
    cli("generate", files / "encoder.onnx", "-o", bare, *SIZES).good()
    refused(
        *data, "--calibrate-from", bare, words=["has none: generate it with typical inputs (--calibrate)"]
    )
    works(*data, "--calibrate-from", bare, *inputs)
    cli("generate", files / "encoder.onnx", "-o", bare, *SIZES, "--calibrate", files / "words.npy").good()
    works(*data, "--calibrate-from", bare)
    path = bare / "final_states.npz"
    path.write_bytes(path.read_bytes()[:200])
    refused(*data, "--calibrate-from", bare, words=["final_states.npz", "generate the build again"])


@pytest.mark.parametrize(
    ("kind", "units", "sizes"),
    [("LSTM", 4, "h of 4 and 4 units and c of 4 and 4"), ("GRU", UNITS, "h of 7 and 7 units and no c")],
)
def test_an_encoder_of_other_sizes(files, tmp_path, kind, units, sizes):
    words = np.load(files / "words.npy")
    options = {"lanes": 4, "macs": 2, "quick": True}
    other = rtlstm.compile(encoder(kind, units), calibration=words, folder=tmp_path / "other", **options)
    given = {"calibration": np.load(files / "symbols.npy"), "folder": tmp_path / "b"}
    expected = f"h of 7 and 7 units and c of 7 and 7, but .*other ends in {sizes}; .* `calibration_state`"
    with pytest.raises(rtlstm.ConfigurationError, match=expected):
        rtlstm.compile(files / "decoder.onnx", calibration_from=other, **given, **options)
    h, c = other.final_states()
    fill = np.zeros((2, SEQUENCES, UNITS))
    fill[:, :, :units] = np.stack(h)
    made = (
        fill,
        np.zeros_like(fill) if not len(c) else np.pad(np.stack(c), ((0, 0), (0, 0), (0, UNITS - units))),
    )
    rtlstm.compile(files / "decoder.onnx", calibration_state=made, **given, **options)


def test_an_encoder_with_a_dense_layer_keeps_states_if_asked(files, tmp_path):
    torch.manual_seed(0)
    module = nets.Net(
        lambda m, x: m.fc(m.rnn(x)[0]), rnn=torch.nn.LSTM(WORDS, UNITS), fc=torch.nn.Linear(UNITS, 2)
    ).eval()
    options = {"calibration": np.load(files / "words.npy"), "lanes": 4, "macs": 2, "quick": True}
    build = rtlstm.compile(module, folder=tmp_path / "b", **options)
    with pytest.raises(rtlstm.BuildError, match="if it ends in a dense layer with `final_states=True`"):
        build.final_states()
    kept = rtlstm.compile(module, folder=tmp_path / "kept", final_states=True, **options)
    h, c = load_final_states(kept.folder)
    assert h[0].shape == c[0].shape == (SEQUENCES, UNITS)
