"""A model in three parts: together they compute what the model computes, within the format's error."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from support.lazy import Lazy, nn, torch
from support.no_logic import no_logic
from support.quick import quick
from support.torch_forms import in_form

import rtlstm
from rtlstm.gen.builds import split as builds
from rtlstm.spec.errors import ConfigurationError, InputError, ModelError

models = Lazy("support.split_models")
host = Lazy("rtlstm.host.torch")
onnx = Lazy("onnx")


def draw(*shape: int):
    return torch.randn(*shape)


def numbers(*shape: int):
    return torch.randint(0, 11, shape)


def leaves(value) -> list:
    if isinstance(value, dict | tuple | list):
        parts = value.values() if isinstance(value, dict) else value
        return [leaf for each in parts for leaf in leaves(each)]
    return [value]


def close(found, wanted, most: float = 1e-3) -> None:
    for mine, theirs in zip(leaves(found), leaves(wanted), strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        assert np.abs(np.asarray(mine.detach()) - np.asarray(theirs.detach())).max() < most


def same(model, x, folder, **options):
    """Split a model, compare the parts' results with its own; give the core's arguments and its build."""
    args = x if isinstance(x, tuple) else (x,)
    front, build, back = rtlstm.split(model, x, folder=folder, **options)
    core, past = front(*args)
    y, state = build.run(**core)
    with torch.no_grad():
        close(back(y, state, past), model(*args))
    return core, build


@pytest.fixture(autouse=True)
def _seeded(request):
    torch.manual_seed(0)
    with nullcontext() if "rtl" in request.keywords else no_logic():
        yield


def layers(build) -> list[str]:
    return [layer.name for layer in build.manifest.layers]


CASES = {
    "audio": (lambda: models.Audio(), lambda: draw(3, 6, 9), {}, ["gru"]),
    "attention": (lambda: models.Attention(), lambda: numbers(3, 7), {}, ["lstm"]),
    "encoder": (lambda: models.Translation(), lambda: (draw(6, 2, 4), draw(5, 2, 3)), {}, ["encoder"]),
    "decoder": (
        lambda: models.Translation(),
        lambda: (draw(6, 2, 4), draw(5, 2, 3)),
        {"lstm": "decoder"},
        ["decoder", "head"],
    ),
    "tagger": (
        lambda: models.Tagger(bidirectional=True),
        lambda: (numbers(3, 7), torch.tensor([7, 2, 5])),
        {"max_steps": 8},
        ["rnn_forward", "rnn_backward"],
    ),
    "tagger of a GRU": (
        lambda: models.Tagger("GRU"),
        lambda: (numbers(3, 7), torch.tensor([4, 2, 7])),
        {},
        ["rnn"],
    ),
    "regression": (lambda: models.Regression(), lambda: (draw(3, 9, 4), draw(3, 3)), {}, ["first", "lstm"]),
    "decisions": (lambda: models.Decisions(), lambda: draw(3, 9, 4), {}, ["lstm"]),
    "asks": (lambda: models.Asks(), lambda: draw(7, 3, 4), {}, ["lstm"]),
    "a cell in a loop": (
        lambda: models.Stepped(models.Unknown(), models.Unknown()),
        lambda: draw(3, 7, 4),
        {},
        ["cell"],
    ),
    "a cell of its own in a loop": (lambda: models.Minimal(), lambda: draw(3, 7, 4), {}, ["add_1"]),
    "a loop behind a GRU": (
        lambda: models.Loop(),
        lambda: draw(2, 6, 4),
        {},
        ["body.0", "body.2", "rnn.gru", "cell"],
    ),
    "a loop alone": (lambda: models.Loop(), lambda: draw(2, 6, 4), {"lstm": "cell"}, ["cell"]),
    "a GRU alone, with a state": (
        lambda: nn.GRU(4, 5, 2, batch_first=True),
        lambda: (draw(3, 7, 4), torch.tanh(draw(2, 3, 5))),
        {},
        ["gru_l0", "gru_l1"],
    ),
    "an LSTM alone, of one sequence": (lambda: nn.LSTM(4, 5), lambda: draw(7, 4), {}, ["lstm"]),
}


@pytest.mark.parametrize("case", CASES)
def test_modules(case: str, tmp_path):
    make, x, options, expected = CASES[case]
    _, build = same(make().eval(), x(), tmp_path / "build", **options)
    assert layers(build) == expected


@pytest.mark.parametrize("case", ["a cell in a loop", "a cell of its own in a loop"])
def test_loops_go_over_any_number_of_steps(case: str, tmp_path):
    make, x, _, _ = CASES[case]
    model = make().eval()
    with pytest.warns(rtlstm.NoteWarning) as told:
        front, build, back = rtlstm.split(model, x(), folder=tmp_path / "build")
    assert {each.filename for each in told if each.category is rtlstm.NoteWarning} == {__file__}
    for steps in (2, 11):
        core, past = front(more := draw(3, steps, 4) / 4)
        with torch.no_grad():
            close(back(*build.run(**core), past), model(more))


EXPORTED = [case for case in CASES if "tagger" not in case and case != "decisions"]
"""Not packed sequences, which torch.export refuses, nor what Python decides."""


@pytest.mark.parametrize(
    "case", quick(EXPORTED, "regression", "a cell in a loop", "an LSTM alone, of one sequence")
)
def test_exported_programs(case: str, tmp_path):
    """The file and the object, whose names of inputs and layers are the module's."""
    make, x, options, expected = CASES[case]
    model, x = make().eval(), x()
    args = x if isinstance(x, tuple) else (x,)
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.export(model, args)
        torch.export.save(program, path := tmp_path / "model.pt2")
    with torch.no_grad():
        wanted = model(*args)
    for source in (path, program):
        front, build, back = rtlstm.split(source, x, folder=tmp_path / "build", **options)
        core, past = front(*args)
        found = back(*build.run(**core), past)
        close(found, wanted)
        assert type(found) is type(wanted) and len(layers(build)) == len(expected)


def test_last_steps_are_all_that_is_computed(tmp_path):
    core, _ = same(models.Regression().eval(), (draw(3, 9, 4), draw(3, 3)), tmp_path / "build")
    assert core["outputs"] == "none"  # Its final states are all that is read.
    core, build = same(models.Last().eval(), (numbers(3, 7), torch.tensor([4, 2, 7])), tmp_path / "last")
    assert core["outputs"] == "last" and layers(build) == ["lstm", "head"]
    chain = nn.Sequential(nn.Linear(6, 3), nn.Tanh())
    core, build = same(models.Behind(chain).eval(), draw(3, 9, 4), tmp_path / "whole")
    assert set(core) == {"x", "batch_first"} and layers(build) == ["lstm", "what.0"]


def test_calls_of_several_lengths_calibrate_together():
    one = {"x": np.ones((4, 2, 3)), "batch_first": False}
    other = {"x": np.full((2, 6, 3), 2.0), "batch_first": True, "state": ((np.ones((2, 5)),), ())}
    x, lengths, (h, c) = builds.calibration([one, other])
    assert x.shape == (6, 4, 3) and lengths.tolist() == [4, 4, 6, 6] and not x[4:, :2].any()
    assert h[0].tolist() == [[0.0] * 5] * 2 + [[1.0] * 5] * 2 and c == ()


# What a refusal names


REFUSED = {
    "attention": (lambda: models.Attention(), lambda: numbers(3, 7)),
    "unknown": (lambda: models.behind("unknown"), lambda: draw(3, 7, 4)),
    "norm": (lambda: models.behind("norm"), lambda: draw(3, 7, 4)),
    "cell in a loop": (lambda: models.Stepped(models.Unknown()), lambda: draw(3, 7, 4)),
    "cell of its own in a loop": (lambda: models.Minimal(), lambda: draw(3, 7, 4)),
}


def told(source) -> str:
    """What the reader says of what stays outside."""
    try:
        return " ".join(rtlstm.read_model(source).report.notes)
    except ModelError as error:
        return str(error)


@pytest.mark.parametrize("case", [*REFUSED, "audio"])
def test_what_refusals_name_works(case: str, tmp_path):
    make, x = REFUSED.get(case) or CASES[case][:2]
    model, given = make().eval(), x()
    text = told(model)
    assert case == "norm" or "rtlstm.split(model, x) leaves in PyTorch" in text
    same(model, given, tmp_path / "build")
    saved = in_form("exported", model, (given,), tmp_path)
    assert case == "norm" or "rtlstm.split(model, x) leaves in PyTorch" in told(saved)
    front, build, back = rtlstm.split(saved, given, folder=tmp_path / "program")
    core, past = front(given)
    with torch.no_grad():
        close(back(*build.run(**core), past), model(given))
    if case == "cell in a loop":
        # Where an ONNX file has its steps one after the other, the core's last c is none of its tensors.
        whole = in_form("onnx", model, (given,), tmp_path)
        with pytest.raises(
            ModelError, match="it cannot be split either: the core must give all that is read"
        ):
            rtlstm.split(whole, given.numpy())
        model = models.Results(model)
    path = in_form("onnx", model, (given,), tmp_path)
    assert case == "norm" or "rtlstm.split(path, x) leaves in ONNX files" in told(path)
    same_file(path, (given,), tmp_path / "file")


def test_refusals_that_a_split_does_not_help_with_do_not_name_it():
    damaged = nn.LSTM(4, 5)
    with torch.no_grad():
        damaged.weight_hh_l0[0, 0] = float("nan")
    with pytest.raises(ModelError) as caught:
        rtlstm.read_model(damaged)
    assert "split" not in str(caught.value)


def test_modules_of_brevitas_stay_whole():
    model = models.behind("unknown").eval()
    model.lstm = Lazy("brevitas.nn").QuantLSTM(4, 6, batch_first=True).eval()
    with pytest.raises(ModelError) as caught:
        rtlstm.read_model(model)
    assert "is not supported" in str(caught.value) and "split" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"give the recurrent one alone to rtlstm\.compile"):
        rtlstm.split(model, draw(3, 7, 4))
    assert [layer.kind for layer in rtlstm.read_model(model.lstm).network.layers] == ["lstm"]


# ONNX files


def same_file(path, args, folder, **options):
    """Split a file, compare the parts' results with the whole's; give the parts and the build."""
    runtime = pytest.importorskip("onnxruntime")

    def run(file, given):
        session = runtime.InferenceSession(file)
        names = [each.name for each in session.get_outputs()]
        found = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})
        return dict(zip(names, found, strict=True))

    inputs = [each.name for each in runtime.InferenceSession(path).get_inputs()]
    known = dict(zip(inputs, (each.numpy() for each in args), strict=True))
    wanted = run(path, known)
    front, build, back = rtlstm.split(path, tuple(known.values()), folder=folder, **options)
    known |= run(front, known) if front else {"core_x": next(iter(known.values()))}
    state = (known["core_h"], known.get("core_c", ())) if "core_h" in known else None
    known["core_y"], (h, c) = build.run(known["core_x"], state=state)
    known |= {f"core_{key}_n": np.asarray(each, "float32") for key, each in zip("hc", (h, c), strict=True)}
    found = run(back, known) if back else {next(iter(wanted)): known["core_y"]}
    for name, mine in found.items():
        assert mine.shape == wanted[name].shape
        assert np.abs(mine - wanted[name]).max() < 1e-3
    assert list(found) == list(wanted)
    return front, build, back


@pytest.mark.parametrize(
    "dynamo", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["older exporter", "newer exporter"]
)
@pytest.mark.parametrize("case", ["regression", "encoder", "decoder"])
def test_files_of_both_exporters(case: str, dynamo: bool, tmp_path):
    if dynamo:
        pytest.importorskip("onnxscript")
    make, x, options, _ = CASES[case]
    path = in_form("dynamo" if dynamo else "onnx", make().eval(), x(), tmp_path)
    if options:  # The file's name of the layer.
        nodes = onnx.load(path).graph.node
        options = {"lstm": [node.name for node in nodes if node.op_type == "LSTM"][-1]}
    same_file(path, x(), tmp_path / "build", **options)


def test_a_file_with_nothing_in_front(tmp_path):
    model = models.behind("unknown").eval()
    model.lstm.batch_first = False
    path = in_form("onnx", model, (draw(7, 3, 4),), tmp_path)
    front, _, back = same_file(path, (draw(7, 3, 4),), tmp_path / "build")
    assert front is None and back == tmp_path / "build_back.onnx"


# A part that runs on a build


@pytest.mark.parametrize("part", ["rnn.gru", "cell", "body"])
def test_attach_and_detach(part: str, tmp_path):
    model, x = models.Loop().eval(), draw(2, 6, 4)
    with torch.no_grad():
        wanted, before = model(x), model.get_submodule(part)
    attached = host.attach(model, part, x, folder=tmp_path / "build")
    with attached:
        assert model.get_submodule(part) is attached
        close(model(x), wanted)
        assert attached.accelerator.manifest.name == attached.build.name
        for refused in (rtlstm.compile, rtlstm.read_model, lambda model: rtlstm.split(model, x)):
            with pytest.raises(ModelError, match=rf"{part!r} runs on a build; call its detach\(\) first"):
                refused(model)
    assert model.get_submodule(part) is before
    attached.detach()
    rtlstm.read_model(model, rtlstm.ReadOptions(lstm="rnn.gru"))
    with pytest.raises(rtlstm.DeviceError, match="attach it again"):
        attached(x)


def test_attach_takes_packed_sequences(tmp_path):
    model, x = models.Tagger(bidirectional=True).eval(), (numbers(3, 7), torch.tensor([7, 2, 5]))
    with torch.no_grad():
        wanted = model(*x)
    with pytest.warns(rtlstm.NoteWarning) as told:
        attached = host.attach(model, "rnn", [x, x], folder=tmp_path / "build", max_steps=8)
    assert {each.filename for each in told if each.category is rtlstm.NoteWarning} == {__file__}
    with attached:
        close(model(*x), wanted)


# Errors


def test_wrong_calls(tmp_path):
    model, x = models.Loop().eval(), draw(2, 6, 4)
    with pytest.raises(ConfigurationError, match=r"call eval\(\) on it first"):
        rtlstm.split(models.Audio(), draw(3, 6, 9))
    for name, why in (("model.h5", r"not \S*model.h5; read other models"), ("none.onnx", "no such file")):
        with pytest.raises((ConfigurationError, ModelError), match=why):
            rtlstm.split(tmp_path / name, x)
    for suffix in (".pt2", ".onnx"):
        (tmp_path / f"damaged{suffix}").write_bytes(b"\0damaged")
        with pytest.raises(ModelError, match=rf"damaged{suffix}: must be an "):
            rtlstm.split(tmp_path / f"damaged{suffix}", x)
    with pytest.raises(ConfigurationError, match="not int"):
        rtlstm.split(3, x)
    with pytest.raises(ConfigurationError, match="leave out calibration, and give x"):
        rtlstm.split(model, x, calibration=x)
    with pytest.raises(ConfigurationError, match="leave out decide"):
        rtlstm.split(model, x, decide="argmax")
    with pytest.raises(ConfigurationError, match=r"6 times.*attach\(model, 'cell', x\) takes every call"):
        rtlstm.split(models.Steered().eval(), x, lstm="cell")
    with pytest.raises(ConfigurationError, match=r"7 times.*attach\(model, 'cell', x\) takes every call"):
        rtlstm.split(models.Stepped(models.Unknown()).eval(), (draw(3, 7, 4), draw(3, 6)))
    # The way out of the message.
    for other, given in (
        (models.Steered(), (x,)),
        (models.Stepped(models.Unknown()), (draw(3, 7, 4), draw(3, 6))),
    ):
        with torch.no_grad():
            wanted = other.eval()(*given)
        with host.attach(other, "cell", given, folder=tmp_path / "attached"):
            close(other(*given), wanted)
    with pytest.raises(ConfigurationError, match="no 'rnn.lstm'; recurrent ones are 'rnn.gru', 'cell'"):
        rtlstm.split(model, x, lstm="rnn.lstm")
    with pytest.raises(ConfigurationError, match="no 'nothing'; its recurrent parts are 'rnn.gru'"):
        host.attach(model, "nothing", x)
    with pytest.raises(ConfigurationError, match="not str and 'cell'"):
        host.attach("model", "cell", x)
    for call in (lambda: rtlstm.split(model, "x"), lambda: host.attach(model, "cell", (x, x))):
        with pytest.raises(InputError, match="x must be what Loop takes, but that refuses it"):
            call()
    with pytest.raises(InputError, match="x must be what Audio takes, but that refuses it"):
        rtlstm.split(models.Audio().eval(), draw(3, 5, 9))
    with pytest.raises(InputError, match="at least one call"):
        rtlstm.split(model, [])
    _, build, back = rtlstm.split(models.behind("unknown").eval(), draw(3, 7, 4), folder=tmp_path / "b")
    with pytest.raises(InputError, match=r"core, past = front\(x\)"):
        back(*build.run(np.zeros((3, 7, 4), "float32")))


def test_an_end_that_hides_what_is_read_behind_it(tmp_path):
    model, x = models.Twice().eval(), draw(7, 3, 4)
    with pytest.raises(ModelError, match=r"end at `output='lstm'`, or leave `output` out"):
        rtlstm.split(model, x, output="head")
    for options in ({"output": "lstm"}, {}):
        assert layers(same(model, x, tmp_path / "build", **options)[1]) == ["lstm"]


@pytest.mark.slow
@pytest.mark.rtl
def test_parts_around_a_simulated_core(tmp_path):
    model, x = models.Attention().eval(), numbers(2, 5)
    with torch.no_grad():
        wanted = model(x)
    front, build, back = rtlstm.split(model, x, folder=tmp_path / "build")
    core, past = front(x)
    with build.open("verilator") as accelerator:
        y, state = accelerator.run(**core)
    assert np.array_equal(y, build.run(**core)[0])
    close(back(y, state, past), wanted)
    with host.attach(model, "lstm", x, backend="icarus", folder=tmp_path / "other"):
        close(model(x), wanted)
