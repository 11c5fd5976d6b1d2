"""Notes say in which order a model has its axes, if the core has another one; their advice is followed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lazy import F, nets, nn, torch
from support.torch_forms import in_form

import rtlstm
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.frontends.arithmetic import note_output_orders
from rtlstm.gen.frontends.axes import Axes
from rtlstm.gen.frontends.reading import ReportBuilder
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import NoteWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore:The tensor attributes", "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"
)
SIZE = 6
"""Of all three axes: then nothing but a note tells that a wrong one is read."""
H = 5
DOORS = ("module", "exported", "trace", "onnx")
ARRAY = {"lanes": 4, "macs": 2, "weight_bits": 16, "data_bits": 16}


def net_of(forward: Callable[..., Any]) -> Any:
    """An LSTM in a forward of the test's."""
    torch.manual_seed(1)
    parts = {"conv": nn.Conv1d(SIZE, SIZE, 1), "wide": nn.Conv1d(SIZE, SIZE, 3)}
    return nets.Net(forward, lstm=nn.LSTM(SIZE, H, batch_first=True), **parts).eval()


def causal(net: Any, x: Any) -> Any:
    return net.wide(F.pad(x, (2, 0)))


FORWARDS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "as it is": (lambda net, x: net.lstm(x)[0], "", ""),
    "features in the middle": (lambda net, x: net.lstm(x.transpose(1, 2))[0], "NFT NTF", ""),
    "features first": (lambda net, x: net.lstm(x.permute(1, 2, 0))[0], "FNT NTF", ""),
    "reversed": (lambda net, x: net.lstm(x.permute(2, 1, 0))[0], "FTN TNF", "NTF TNF"),
    "steps first": (lambda net, x: net.lstm(x.transpose(0, 1))[0], "", "NTF TNF"),
    "steps first in both": (lambda net, x: net.lstm(x.transpose(0, 1))[0].transpose(0, 1), "", ""),
    "steps first in the output": (lambda net, x: net.lstm(x)[0].transpose(0, 1), "", "TNF NTF"),
    "features in the middle of both": (
        lambda net, x: net.lstm(x.transpose(1, 2))[0].transpose(1, 2),
        "NFT NTF",
        "NFT NTF",
    ),
    "behind a convolution": (
        lambda net, x: net.lstm(torch.relu(net.conv(x)).transpose(1, 2))[0],
        "NFT NTF",
        "",
    ),
    "behind a causal convolution": (
        lambda net, x: net.lstm(torch.relu(causal(net, x)).transpose(1, 2))[0],
        "NFT NTF",
        "",
    ),
    "a convolution between": (
        lambda net, x: net.lstm(net.conv(x.transpose(1, 2)).transpose(1, 2))[0],
        "",
        "",
    ),
    "a causal convolution alone": (causal, "NFT NTF", "NFT NTF"),
}
NAMES = {"N": "sequences", "T": "steps", "F": "features"}


def through(door: str, module: Any, folder: Path) -> Any:
    """The module as the door has it."""
    names = {"input_names": ["x"], "output_names": ["y"]} if door == "onnx" else {}
    return in_form(door, module, (torch.rand(SIZE, SIZE, SIZE),), folder, **names)


def order(tags: str) -> str:
    return f"({', '.join(NAMES[tag] for tag in tags)})"


def advised(notes: tuple[str, ...], what: str) -> list[int]:
    """The transposition that a note names."""
    found = [match for note in notes for match in re.findall(rf"{what}\.transpose\(([\d, ]+)\)", note)]
    return [int(number) for number in found[0].split(",")] if found else [0, 1, 2]


def doors(case: str) -> list[Any]:
    """All doors of a few cases; those that start a process, or export, are slow."""
    few = ("features in the middle of both", "reversed")
    marks = {} if case in few else dict.fromkeys(("exported", "trace"), pytest.mark.slow)
    return [pytest.param(case, door, marks=marks.get(door, ())) for door in DOORS]


@pytest.mark.usefixtures("read_here")
@pytest.mark.parametrize(("case", "door"), [each for case in FORWARDS for each in doors(case)])
def test_what_the_notes_advise_gives_the_models_numbers(case: str, door: str, tmp_path: Path) -> None:
    forward, taken, given = FORWARDS[case]
    module = net_of(forward)
    result = read_model(through(door, module, tmp_path))
    notes = result.report.notes
    assert sum("transpose(" in note for note in notes) == bool(taken) + bool(given)
    for verb, orders in (("takes", taken), ("gives", given)):
        if orders:
            model, core = map(order, orders.split())
            text = f"the model {verb} {model}, but rtlstm {verb} {core}: "
            assert any(note.startswith(text) for note in notes), notes

    def run(x: np.ndarray) -> np.ndarray:
        """As a driver of the model's order of steps and sequences does it."""
        first = result.report.batch_first
        y = run_float(result.network, x.swapaxes(0, 1) if first else x).y
        return (y.swapaxes(0, 1) if first else y).transpose(advised(notes, "y"))

    x = np.random.default_rng(2).normal(size=(SIZE, SIZE, SIZE)).astype(np.float32)
    wanted = module(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(run(x.transpose(advised(notes, "x"))), wanted, atol=1e-5)
    if taken:  # What the note is for: the model's data themselves give other numbers.
        assert np.abs(run(x) - wanted).max() > 5e-2


@pytest.mark.usefixtures("without_verilog")
def test_compile_warns_of_it_and_run_needs_it(tmp_path: Path) -> None:
    module = net_of(FORWARDS["features in the middle"][0])
    with pytest.warns(NoteWarning, match=r"the model takes \(sequences, features, steps\), but rtlstm takes"):
        build = rtlstm.compile(module, folder=tmp_path / "build", **ARRAY)
    x = np.random.default_rng(2).normal(size=(SIZE, SIZE, SIZE)).astype(np.float32)
    y, _ = build.run(x.transpose(advised(build.report().notes, "x")))
    assert np.abs(y - module(torch.from_numpy(x)).detach().numpy()).max() < 2e-2


@pytest.mark.parametrize("door", ["module", "onnx"])
def test_axes_that_no_layer_names_have_numbers(door: str, tmp_path: Path) -> None:
    first, second = read_model(through(door, net_of(lambda net, x: net.conv(x)), tmp_path)).report.notes
    assert first.startswith("the model takes (axis 0, features, axis 2), but rtlstm takes (axis 0, axis 2, f")
    assert first.endswith("x.transpose(0, 2, 1)")
    assert second == "the model gives (axis 0, features, axis 2), but rtlstm gives (axis 0, axis 2, features)"


def test_an_output_whose_axes_are_mixed(tmp_path: Path) -> None:
    module = net_of(lambda net, x: net.lstm(x)[0].reshape(SIZE, SIZE * H))
    joined, *_ = read_model(through("onnx", module, tmp_path)).report.notes
    assert f"joins {SIZE} steps" in joined  # The file says how many there are.
    (note,) = read_model(module).report.notes
    assert re.fullmatch(
        r"the model gives what \w+ .*'/?\w+' makes of several axes in one; rtlstm gives \(seq.*, st.*, f.*\)",
        note,
    )


def test_a_layer_to_begin_at_has_its_order() -> None:
    report = read_model(net_of(FORWARDS["features in the middle"][0]), ReadOptions(lstm="lstm")).report
    assert report.batch_first and not any("the model takes" in note for note in report.notes)


@pytest.mark.parametrize(
    ("tags", "batch_first", "text"),
    [
        ("TNF", False, ""),
        ("TNF", None, ""),
        ("NTF", None, ""),
        ("T1NF", False, ""),
        ("NF", True, ""),
        ("BNF", False, ""),
        ("TBNF", False, "(steps, directions, sequences, features), but rtlstm gives (steps, sequences, d"),
        ("FN", False, "(features, sequences), but rtlstm gives (sequences, features)"),
        ("NT1F", False, "(sequences, steps, 1, features), but rtlstm gives (steps, sequences, features)"),
        (("M:N:T", "F"), False, "(sequences x steps, features), but rtlstm gives (steps, sequences, f"),
        (("M:T:N", "F"), False, ""),
        (("M", "F"), True, ""),
    ],
)
def test_outputs(tags: Any, batch_first: bool | None, text: str) -> None:
    report = ReportBuilder("a")
    report.batch_first = batch_first
    note_output_orders({"y": Axes(tuple(tags), H)}, report)
    assert [note.startswith(f"the model gives {text}") for note in report.notes] == [True] * bool(text)


def test_of_several_outputs_the_note_names_one() -> None:
    report = ReportBuilder("a")
    report.batch_first = True
    note_output_orders({"one": Axes(("N", "T", "F"), H), "two": Axes(("T", "N", "F"), H)}, report)
    (note,) = report.notes
    assert note.startswith(
        "the model gives the output 'two' as (steps, sequences, features), but rtlstm gives"
    )


def test_an_only_feature_may_have_no_axis() -> None:
    """A squeezed output is no mixture of axes."""
    net = nets.headed(nn.LSTM(3, 2, batch_first=True), 1)
    net.call = lambda m, x: m.head(m.lstm(x)[0]).squeeze(-1)
    (note,) = [each for each in read_model(net).report.notes if "the model gives" in each]
    assert "its only feature without an axis of its own" in note and "y[..., 0] is that feature" in note
    x = torch.randn(4, 5, 3)
    y = run_float(read_model(net).network, x.transpose(0, 1).numpy()).y
    np.testing.assert_allclose(y[..., 0].T, net(x).detach().numpy(), atol=1e-6)
