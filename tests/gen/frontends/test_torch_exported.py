"""Exported programs (torch.export), objects and .pt2 files, against PyTorch's own outputs; hostile files."""

import io
import itertools
import json
import zipfile

import numpy as np
import pytest
from support.lazy import nets, nn, torch
from support.quick import quick
from support.refusals import refused
from support.torch_forms import equals

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
T, N, I, H = 4, 3, 5, 6  # noqa: E741


def export(module, *inputs, batch=None):
    """Export in inference mode; ``batch`` is the axis of the first input that is dynamic."""
    shapes = None if batch is None else ({batch: torch.export.Dim.DYNAMIC},)
    return torch.export.export(module.eval(), inputs, dynamic_shapes=shapes)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


SHAPES = {"one layer": {}, "bidirectional": {"bidirectional": True}, "two layers": {"num_layers": 2}}
FEW = [
    (kind, number % 2 == 0, ("last", "all", "final")[(number + at) % 3], number + at == 3, shape)
    for at, kind in enumerate(("LSTM", "GRU", "RNN"))
    for number, shape in enumerate(SHAPES)
]
CASES = itertools.product(
    ("LSTM", "GRU", "RNN"), (False, True), ("last", "all", "final"), (False, True), SHAPES
)


@pytest.mark.parametrize(("kind", "first", "head", "dynamic", "shape"), quick(CASES, *FEW))
def test_program_equals_module(kind, first, head, dynamic, shape):
    module = nets.Recurrent(kind, head, batch_first=first, **SHAPES[shape])
    x = torch.randn((N + 1, T, I) if first else (T, N + 1, I))
    program = export(module, x, batch=(0 if first else 1) if dynamic else None)
    result = equals(program, module, torch.randn((N, T, I) if first else (T, N, I)))
    assert result.report.format == "exported program"
    assert result.network.layers[0].name.startswith("rnn") and result.network.name == "exportedprogram"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {"proj_size": 4, "bidirectional": True, "num_layers": 2}),
        ("GRU", {"bias": False}),
        ("RNN", {"nonlinearity": "relu"}),
    ],
)
def test_file_with_every_option(tmp_path, kind, options):
    module, path = nets.Recurrent(kind, "all", **options), tmp_path / "net.pt2"
    torch.export.save(export(module, torch.randn(T, N, I)), path)
    assert equals(path, module, torch.randn(T, N, I)).network.name == "net"
    assert inspect_model(path).refusal == ""


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_cell(kind):
    cell = getattr(nn, f"{kind}Cell")(I, H)
    x, h = torch.randn(N, I), torch.zeros(N, H)
    state = (h, h) if kind == "LSTM" else h
    equals(export(cell, x, state), lambda steps: cell(steps[0], state), x[None])


def test_end_and_beginning_are_chosen_by_name():
    program = export(nets.Recurrent("LSTM", "all"), torch.randn(T, N, I))
    network = read_model(program, ReadOptions(output="rnn"), name="cut").network
    assert network.name == "cut" and [layer.kind for layer in network.layers] == ["lstm"]
    refused(program, "`dense` is for files of tensors", ReadOptions(dense=()))


def test_training_mode_is_refused():
    module = nn.Sequential(nn.BatchNorm1d(I), nn.Flatten(0, 0))
    program = torch.export.export(module.train(), (torch.randn(N, I, T),))
    refused(program, "is in training mode; call eval")


# Files that are damaged, or that want more than a model


@pytest.fixture(scope="module")
def members():
    """Names and bytes of the members of a good archive."""
    saved = io.BytesIO()
    torch.export.save(export(nets.Recurrent("LSTM", "all"), torch.randn(T, N, I)), saved)
    with zipfile.ZipFile(saved) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def named(members, end):
    return next(name for name in members if name.endswith(end))


def changed(members, end, change):
    """The same archive with one member of JSON changed."""
    name = named(members, end)
    tree = json.loads(members[name])
    change(tree)
    return members | {name: json.dumps(tree).encode()}


def meta(tree, name="rnn.weight_ih_l0"):
    return tree["config"][name]["tensor_meta"]


def operators(tree):
    return tree["graph_module"]["graph"]["nodes"]


def argument(tree, operator, name):
    node = next(node for node in operators(tree) if operator in node["target"])
    return next(item["arg"] for item in node["inputs"] if item["name"] == name)


TENSORS = [
    (lambda t: meta(t)["strides"].__setitem__(0, {"as_int": 500}), "goes beyond its data"),
    (lambda t: meta(t)["strides"].__setitem__(0, {"as_int": -5}), "goes beyond its data"),
    (lambda t: meta(t)["storage_offset"].update(as_int=10**30), "goes beyond its data"),
    (lambda t: meta(t).update(sizes=[{"as_int": 10**6}] * 2, strides=[{"as_int": 0}] * 2), "elements that a"),
    (lambda t: meta(t).update(sizes=[{"as_int": 8}, {"as_int": 15}]), "tensor 'weight_ih_l0' must have"),
    (lambda t: meta(t).update(sizes=[{"as_int": 1}] * 40), "is damaged"),
    (lambda t: meta(t).update(dtype=35), "of a type that is not read"),
    (lambda t: t["config"]["fc.bias"].update(use_pickle=True), "is pickled"),
    (lambda t: t["config"]["fc.bias"].update(path_name="../../etc/passwd"), "is damaged"),
    (lambda t: t["config"].pop("fc.weight"), "must hold the tensor 'fc.weight'"),
    (lambda t: t.update(config=[1, 2]), "is damaged"),
]
GRAPHS = [
    (lambda t: argument(t, "lstm", "num_layers").update(as_int=10**9), "which do not fit its layers"),
    (lambda t: argument(t, "lstm", "num_layers").update(as_int=0), "which do not fit its layers"),
    (lambda t: argument(t, "lstm", "params")["as_tensors"].pop(), "which do not fit its layers"),
    (lambda t: argument(t, "linear", "weight").update(as_tensor={"name": "nobody"}), "is damaged (KeyError"),
    (lambda t: argument(t, "linear", "input").update(as_tensor={"name": "linear"}), "is damaged"),
    (lambda t: operators(t)[-1].update(target="torch.ops.aten.load.default"), "load 'fc', which reads"),
    (lambda t: operators(t)[-1].update(target="os.system"), "which reads"),
    (lambda t: operators(t).clear(), "is damaged (KeyError"),
    (lambda t: t["graph_module"].update(graph=[]), "is damaged"),
    (lambda t: t["graph_module"]["signature"].update(output_specs=[]), "does not depend on a recurrent"),
    (lambda t: t.clear(), "is damaged (KeyError"),
]


@pytest.mark.parametrize(
    ("member", "change", "words"),
    [
        *(("model_weights_config.json", *case) for case in TENSORS),
        *(("models/model.json", *case) for case in GRAPHS),
    ],
)
def test_tensors_and_graphs_that_are_not_what_they_say(tmp_path, members, member, change, words):
    path = write(tmp_path / "net.pt2", changed(members, member, change))
    assert words in inspect_model(path).refusal


def test_archives_that_are_not_read(tmp_path, members):
    model = named(members, "models/model.json")
    for archive, words in (
        ({**members, model: b"[" * 100_000}, "RecursionError"),
        ({**members, model: b"\xff{}"}, "is damaged"),
        ({**members, model: b"[" + b"[]," * 3 * 2**20 + b"[]]"}, "more than 8,388,608"),
        ({**members, model.replace("model.json", "other.json"): b"{}"}, "it holds 2"),
        ({name: data for name, data in members.items() if name != model}, "it holds 0"),
        ({**members, named(members, "byteorder"): b"big"}, "little-endian"),
        ({"serialized_exported_program.json": b"{}"}, "PyTorch 2.9 or newer"),
    ):
        path = write(tmp_path / "net.pt2", archive)
        assert words in inspect_model(path).refusal, words
    path = write(tmp_path / "net.pt2", members)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(model, members[model])
    assert "two members of one name" in inspect_model(path).refusal
    packed = write(tmp_path / "net.pt2", members, zipfile.ZIP_DEFLATED)
    assert "not compressed" in inspect_model(packed).refusal


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_end_with_one_error(tmp_path, members, seed):
    rng = np.random.default_rng(seed)
    good = write(tmp_path / "good.pt2", members).read_bytes()
    path = tmp_path / "net.pt2"
    for _ in range(25):
        data = bytearray(good)
        for at in rng.integers(len(data), size=rng.integers(1, 40)):
            data[at] = rng.integers(256)
        path.write_bytes(
            bytes(data[: rng.integers(len(data) // 2, len(data) + 1)] if rng.random() < 0.3 else data)
        )
        inspect_model(path)  # raises nothing but ModelError, which it catches


def convolved(conv, norm=None, steps=7):
    """Convolutions over the steps in front of a GRU, exported with so many steps; the notes about them."""
    norm = norm or nn.Identity()
    forward = lambda m, x: m.gru(m.norm(m.up(x)).transpose(1, 2))[0]  # noqa: E731
    program = export(nets.Net(forward, up=conv, norm=norm, gru=nn.GRU(H, 2)), torch.rand(2, I, steps))
    return " ".join(read_model(program).report.notes)


def test_a_front_over_a_known_number_of_steps_says_why_it_stays_outside():
    """The steps of an export may be frames inside a step: what is wrong with these is said if it may help."""
    note = convolved(nn.Conv1d(I, H, 4, padding=2))
    assert "'up': it must be causal, but with pads=[2, 2]" in note and "frames" not in note
    note = convolved(nn.Conv1d(I, H, 3, padding=1), nn.GroupNorm(2, H))
    assert "'norm', which reads 'conv1d', is not supported, or, with the 7 frames of 'x'" in note
    note = convolved(nn.Conv1d(I, H, 3, dilation=2, padding=1))
    assert "'up': it must be causal, but" in note
    assert "or, with the 7 frames of 'x' inside a step, conv1d 'up' convolves over the 7 frames" in note
