"""What a refusal advises is followed here: with the option that it names, the model is read."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
from onnx import helper, version_converter
from support.lazy import Lazy, nets, nn, torch
from support.no_logic import no_logic
from support.onnx_files import H, I, const, lstm, node, rand, save, squeezed
from support.quick import quick
from support.torch_forms import equals, in_form

from rtlstm.gen.builds.compiled import compile
from rtlstm.gen.builds.split import split
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ConfigurationError, ModelError

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:The tensor attributes", "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"
    ),
    pytest.mark.usefixtures("read_here"),
]
scripted = Lazy("support.scripted_nets")
GIVEN = re.compile(r"\b(lstm|output|begin|dense|branches)=('[^']*'|\('[^']*',\))")
INTERNAL = re.compile(r"\w+\((where|flow|axes|array|sizes|tags|number)=|<[\w.]+ object at|slice\(")
"""What a message has that shows an object of the program's own."""


def refusal(source: Any, options: ReadOptions | None = None) -> str:
    with pytest.raises(ModelError) as raised:
        read_model(source, options)
    text = str(raised.value)
    assert not INTERNAL.search(text), text
    return text


def follow(source: Any, options: ReadOptions | None = None, most: int = 3) -> ReadOptions:
    """Follow the option that each refusal names, until the model is read; none may ask for what was given."""
    given: dict[str, Any] = {} if options is None else options.model_dump(exclude_unset=True)
    for _ in range(most):
        text = refusal(source, ReadOptions(**given))
        found = [(name, eval(value)) for name, value in GIVEN.findall(text)]
        assert found, f"no option with a value in: {text}"
        name, value = found[-1]
        assert given.get(name) != value, f"asks for what was given: {text}"
        given[name] = value
        try:
            read_model(source, ReadOptions(**given))
        except ModelError:
            continue
        return ReadOptions(**given)
    raise AssertionError(f"not read after {given}")


# ONNX


def behind(*more: Any, weights: Any = ()) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        nodes, given = squeezed()
        return save(folder / "a.onnx", [*nodes, *more], [*given, *weights], shape=(4, 1, I))

    return write


SQUARE, WIDE = const("k", rand(H, 2)), const("k", rand(4 * H, 2))
ONNX = {
    "softmax in between": behind(
        node("Softmax", "s", "p", axis=-1), node("MatMul", "p k", "out"), weights=[SQUARE]
    ),
    "unit norm": behind(node("LpNormalization", "s", "out", axis=-1)),
    "a quotient": behind(node("Tanh", "s", "p"), node("Div", "p s", "out")),
    "a step in the middle": behind(node("Gather", "s i", "out", axis=0), weights=[const("i", np.int64(2))]),
    "an addend for each step": behind(node("Add", "s b", "out"), weights=[const("b", rand(4, 1, H))]),
    "one row of all steps": behind(
        node("Flatten", "s", "f", axis=0), node("MatMul", "f k", "out"), weights=[WIDE]
    ),
}


@pytest.mark.parametrize("case", ONNX)
def test_onnx(case: str, tmp_path: Path):
    path = ONNX[case](tmp_path)
    network = read_model(path, follow(path)).network
    assert network.inputs == I and network.layers[0].units == H


def test_a_branch(tmp_path: Path):
    """The condition is an input of the model."""
    nodes, weights = squeezed()
    graphs = {
        f"{name}_branch": helper.make_graph(
            [node(kind, "s", "r")], "g", [], [helper.make_tensor_value_info("r", 1, None)]
        )
        for name, kind in (("then", "Relu"), ("else", "Tanh"))
    }
    given = [helper.make_tensor_value_info("yes", onnx.TensorProto.BOOL, ())]
    path = save(tmp_path / "a.onnx", [*nodes, node("If", "yes", "out", **graphs)], weights, inputs=given)
    assert follow(path).branches == ("if:then",)


@pytest.mark.parametrize("opset", [3, 5, 6])
@pytest.mark.parametrize("kind", ["LSTM", "Gemm"])
def test_an_old_opset(kind: str, opset: int, tmp_path: Path):
    """The converter is advised where it can convert, and then what it gives is read."""
    weights = [const("W", rand(1, 4 * H, I)), const("R", rand(1, 4 * H, H))]
    nodes = [helper.make_node("LSTM", ["x", "W", "R"], ["out"], hidden_size=H)]
    if kind == "Gemm":
        nodes = [node("Gemm", "x k b", "out", broadcast=1)]
        weights = [const("k", rand(I, 3)), const("b", rand(3))]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", 1, ("T", "N", I) if kind == "LSTM" else ("N", I)),
            *(helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in weights),
        ],
        [helper.make_tensor_value_info("out", 1, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    path = tmp_path / "a.onnx"
    onnx.save(model, path)
    text = refusal(path)
    assert f"must use ONNX opset 7 or newer, not {opset}; export it again with opset 7 or newer" in text
    if "convert_version(model, 7)" in text:
        onnx.save(version_converter.convert_version(model, 7), path)
        assert read_model(path).network.outputs == 3
    else:
        with pytest.raises(Exception, match=r"Adapter|Unsupported|convert"):
            version_converter.convert_version(model, 7)


def test_weights_that_are_inputs(tmp_path: Path):
    nodes, weights = lstm(y="out")
    infos = [helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in weights]
    path = save(tmp_path / "a.onnx", nodes, [], inputs=infos)
    words = "input W ('rec.W') must be constant, but it is an input of the model; export the model with its"
    assert words in refusal(path)
    assert read_model(save(tmp_path / "b.onnx", nodes, weights)).network.inputs == I
    nodes[0].input[1] = "w"
    computed = [node("Relu", "rec.W", "w"), *nodes]
    text = refusal(save(tmp_path / "a.onnx", computed, weights[1:], inputs=infos[:1]))
    assert "must be constant, but Relu node 'relu' computes it of the input" in text


@pytest.mark.slow
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("function", ["tanh", "relu"])
def test_an_unrolled_loop(function: str, state: bool, tmp_path: Path):
    """The newer exporter's nn.RNN; each way out is read."""
    module, path = nn.RNN(4, 6, nonlinearity=function).eval(), tmp_path / "a.onnx"
    inputs = (torch.randn(5, 2, 4), *([torch.zeros(1, 2, 6)] if state else []))
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(module, inputs, str(path), dynamo=True, verbose=False)
    if state:  # Then the first step computes what all others do.
        assert read_model(path).network.layers[0].units == 6
        return
    assert re.search("unrolled a loop over the steps.*export it with dynamo=False, or", refusal(path))
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(module, inputs, str(path), dynamo=False)
        torch.export.save(torch.export.export(module, inputs), tmp_path / "a.pt2")
    for source in (path, module, tmp_path / "a.pt2"):
        assert read_model(source).network.layers[0].units == 6


def unrolled(path: Path, steps: int) -> Path:
    """A loop as an exporter writes it: one product with the same weight behind the other."""
    parts, h = [], "h0"
    for step in range(steps):
        parts += [
            node("Gather", f"x i{step}", f"x{step}", f"gather{step}", axis=0),
            node("MatMul", f"x{step} w", f"p{step}", f"p{step}"),
            node("Transpose", "r", f"r{step}", f"turn{step}", perm=[1, 0]),
            node("MatMul", f"{h} r{step}", f"q{step}", f"q{step}"),
            node("Add", f"p{step} q{step}", f"a{step}", f"a{step}"),
            node("Tanh", f"a{step}", f"h{step + 1}", f"tanh{step}"),
        ]
        h = f"h{step + 1}"
    weights = [const("w", rand(I, H)), const("r", rand(H, H)), const("h0", np.zeros((1, H), "f4"))]
    weights += [const(f"i{step}", np.int64(step)) for step in range(steps)]
    return save(path, parts, weights, outputs=(h,), shape=(steps, 1, I))


def test_an_unrolled_loop_by_hand(tmp_path: Path):
    text = refusal(unrolled(tmp_path / "two.onnx", 2))
    assert "nodes multiply with 'r', one after the other: the exporter has unrolled a loop" in text
    assert "dynamo" not in text  # Another exporter than PyTorch's newer one has made it.
    assert "it has 2 steps, but 3 are needed to tell what a step is; export the model with a longer" in text
    assert read_model(unrolled(tmp_path / "three.onnx", 3)).network.layers[0].units == H


# PyTorch


def towers() -> Any:
    return nets.Net(
        lambda m, o: (m.pi(m.a(o)[0]).softmax(-1), m.vf(m.v(o)[0])),
        a=nn.LSTM(6, 8),
        v=nn.GRU(6, 8),
        pi=nn.Linear(8, 2),
        vf=nn.Linear(8, 1),
    )


IN_FRONT = {
    "celu": lambda: nets.chain(act=nn.CELU(), lstm=nn.LSTM(6, 8)),
    "layers and celu": lambda: nets.chain(fc=nn.Linear(6, 5), act=nn.CELU(), lstm=nn.LSTM(5, 8)),
    "a convolution behind celu": lambda: nets.chain(
        act=nn.CELU(), conv=nn.Conv1d(6, 6, 3, padding=1, groups=2), lstm=nn.LSTM(6, 8)
    ),
}
MODULES = {
    "celu behind": lambda: nets.chain(lstm=nn.LSTM(6, 8), act=nn.CELU()),
    "celu between": lambda: nets.chain(lstm=nn.LSTM(6, 8), act=nn.CELU(), gru=nn.GRU(8, 4)),
    "celu": lambda: nets.chain(lstm=nn.LSTM(6, 8), act=nn.CELU(), fc=nn.Linear(8, 2)),
}


@pytest.mark.parametrize("form", ["module", "exported"])
@pytest.mark.parametrize("case", MODULES)
def test_modules(case: str, form: str):
    module = MODULES[case]().eval()
    follow(module if form == "module" else torch.export.export(module, (torch.rand(6, 6, 6),)))


@pytest.mark.parametrize("form", ["module", "exported"])
@pytest.mark.parametrize("case", IN_FRONT)
def test_what_stays_outside_in_front_says_why(case: str, form: str):
    module = IN_FRONT[case]().eval()
    source = module if form == "module" else torch.export.export(module, (torch.rand(6, 6, 6),))
    (note,) = (note for note in read_model(source).report.notes if "stay outside of the core" in note)
    assert "its input is '" in note and note.partition("; rtlstm.split")[0].endswith(")")


def test_two_inputs():
    """Features side by side; a state with a cell. Nobody is told to join a state to the features."""
    lstm = nn.LSTM(7, 8)
    two = nets.LengthsNet(lambda m, a, b: m.lstm(torch.cat([a, b], -1))[0], lstm=lstm).eval()
    notes = read_model(two).report.notes
    assert any("stay outside of the core: its input is 'cat'" in note for note in notes)
    assert read_model(nets.chain(lstm=lstm).eval()).network.inputs == 7
    parts = {"w": nn.Linear(6, 8), "r": nn.Linear(8, 8)}
    step = nets.LengthsNet(lambda m, x, h: torch.tanh(m.w(x) + m.r(h)), **parts)
    assert read_model(step.eval()).network.layers[0].kind == "rnn"
    found = read_model(nets.LengthsNet(lambda m, x, h: m.cell(x, h), cell=nn.RNNCell(6, 8)).eval())
    assert found.network.layers[0].kind == "rnn" and any(
        "state to the driver" in note for note in found.report.notes
    )


@pytest.mark.parametrize(
    "index",
    [
        lambda x, y: y[torch.arange(2, device=x.device)],
        lambda x, y: y[: x.sum().long()],
        lambda x, y: y.flatten(1)[::2],
    ],
)
def test_an_index_that_only_a_run_knows(index: Callable[..., Any]):
    """No message shows an object of the program's own."""
    text = refusal(nets.Net(lambda m, x: index(x, m.lstm(x)[0]), lstm=nn.LSTM(6, 8)).eval())
    assert "Outside" not in text and "sizes=" not in text


@pytest.mark.parametrize(("name", "wide"), [("a", 2), ("v", 1)])
def test_one_of_two_towers(name: str, wide: int):
    """lstm is enough: what does not come from it stays outside, with a note. Without it both are read."""
    module, x = towers().eval(), torch.randn(9, 1, 6)
    actor, critic = (lambda x: module.pi(module.a(x)[0])), (lambda x: module.vf(module.v(x)[0]))
    both = equals(module, lambda x: torch.cat([actor(x), critic(x)], -1), x)
    assert [part.width for part in both.network.parts] == [2, 1]
    found = equals(module, actor if name == "a" else critic, x, options=ReadOptions(lstm=name))
    assert found.network.outputs == wide
    assert any("stays outside: it does not come from" in note for note in found.report.notes)


@pytest.mark.parametrize(
    ("form", "state", "kind"),
    quick(
        (
            (*form, kind)
            for form in (("trace", False), ("trace", True), ("script", False))
            for kind in ("LSTM", "GRU", "RNN")
        ),
        ("trace", True, "GRU"),
        ("script", False, "LSTM"),
    ),
)
def test_torchscript_of_a_bare_module(kind: str, form: str, state: bool, tmp_path: Path):
    """A scripted one always has the state as an input, which need not be given."""
    module, x, zero = getattr(nn, kind)(4, 6, 2).eval(), torch.randn(5, 3, 4), torch.zeros(2, 3, 6)
    inputs = (x, (zero, zero) if kind == "LSTM" else zero) if state else (x,)
    equals(in_form(form, module, inputs, tmp_path), module, x)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("layers", [1, 2])
def test_an_unbatched_module(kind: str, layers: int, tmp_path: Path):
    module, x = getattr(nn, kind)(4, 6, layers).eval(), torch.randn(5, 4)
    y = run_float(read_model(in_form("exported", module, (x,), tmp_path)).network, x.numpy()[:, None]).y[:, 0]
    np.testing.assert_allclose(y, module(x)[0].detach().numpy(), atol=1e-5)


# State dicts


def test_an_encoder_of_a_file_with_a_decoder(tmp_path: Path):
    """The first refusal names both; the next one says how to take no dense layer."""
    parts = {"encoder": nn.LSTM(5, 6), "decoder": nn.LSTM(5, 6), "head": nn.Linear(6, 9)}
    tensors = {
        f"{name}.{key}": value.numpy()
        for name, part in parts.items()
        for key, value in part.state_dict().items()
    }
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file(tensors, path)
    assert "choose with `lstm`" in refusal(path)
    options = follow(path, ReadOptions(lstm="encoder"))
    assert options.dense == ("none",)
    network = read_model(path, options).network
    assert [layer.name for layer in network.layers] == ["encoder"] and network.outputs == 6
    assert len(read_model(path, ReadOptions(lstm="encoder", dense=())).network.layers) == 1
    tensors["none.weight"] = tensors.pop("head.weight")
    tensors["none.bias"] = tensors.pop("head.bias")
    safetensors.numpy.save_file(tensors, path)
    assert read_model(path, ReadOptions(lstm="decoder", dense=("none",))).network.outputs == 9


# Episodes


def policy(masked: bool) -> Any:
    """A recurrent policy; masked, its state begins anew where an episode does, as ``done`` says."""

    def call(m: Any, x: Any, hc: Any, done: Any) -> Any:
        keep = 1 - done.unsqueeze(-1)
        h, c = m.cell(x, (hc[0] * keep, hc[1] * keep) if masked else (hc[0], hc[1]))
        return m.head(h), torch.stack((h, c))

    torch.manual_seed(3)
    return nets.StateNet(call, cell=nn.LSTMCell(4, 6), head=nn.Linear(6, 2)).eval()


@pytest.mark.parametrize("form", ["live", "exported", "trace", "onnx"])
def test_episodes_reset_the_stream(form: str, tmp_path: Path):
    """The mask is left out of the model; where an episode begins, the stream is reset."""
    x, hc, done = torch.randn(6, 1, 4), torch.zeros(2, 1, 6), torch.tensor([1.0, 0, 0, 1, 0, 0])
    text = refusal(in_form(form, policy(True), (x[0], hc, done[:1]), tmp_path))
    assert re.search("if [Mm]ul .* clears .* leave that out of the model.*Stream.reset", text)
    assert ("look like an LSTM cell" in text) == (form == "onnx")
    assert "the loop over" not in text
    source = in_form(form, policy(False), (x[0], hc, done[:1]), tmp_path)
    if form != "live":
        assert read_model(source).network.layers[0].units == 6
        return
    with no_logic():
        build = compile(source, folder=tmp_path / "build", calibration=x.numpy(), lanes=4, macs=1)
    with build.open("golden") as accelerator, accelerator.stream() as stream:
        for each, begins in zip(x, done, strict=True):
            if begins:
                stream.reset()
            y, hc = policy(True)(each, hc, begins[None])
            np.testing.assert_allclose(stream.step(each[0].numpy()), y[0].detach().numpy(), atol=1e-2)


# Lengths


def lengths_of(which: str) -> tuple[Any, tuple[Any, Any]]:
    torch.manual_seed(3)
    return getattr(scripted, which)().eval(), (torch.rand(2, 5, 3), torch.tensor([3, 5]))


def test_packing_is_read_of_a_script_and_not_of_a_trace(tmp_path: Path):
    """As a trace has it, it is put together of parts; these and its two lengths look like no loop."""
    module, given = lengths_of("Packing")
    text = refusal(in_form("trace", module, given, tmp_path))
    assert re.search("part of pack_padded_sequence.*torch.jit.script; lengths are given to the driver", text)
    assert "sort" not in text and "the loop" not in text
    both = refusal(in_form("trace", *lengths_of("PackedLastValid"), tmp_path))
    assert "a part of pack_padded_sequence" in both and "takes steps by a tensor of indices" in both
    result = read_model(in_form("script", module, given, tmp_path))
    x, lengths = given
    y = run_float(result.network, x.numpy().swapaxes(0, 1), lengths=lengths.numpy()).y.swapaxes(0, 1)
    for mine, theirs, length in zip(y, module(x, lengths).detach().numpy(), lengths, strict=True):
        np.testing.assert_allclose(mine[:length], theirs[:length], atol=1e-5)


@pytest.mark.parametrize("form", ["live", "exported", "trace", "onnx"])
def test_the_last_valid_step_is_the_drivers(form: str, tmp_path: Path):
    """No message speaks of the lengths' integers; the driver gives that step of the model without lengths."""
    module, given = lengths_of("LastValid")
    text = refusal(in_form(form, module, given, tmp_path))
    assert re.search("tensor of indices.*the driver the lengths, run.x, lengths.*outputs='last'", text)
    if form != "live":
        return
    x, lengths = given
    without = nets.Net(lambda m, x: m.head(m.rnn(x)[0]), rnn=module.rnn, head=module.head)
    with no_logic():
        build = compile(without, folder=tmp_path / "build", calibration=x.numpy(), lanes=4, macs=1)
    with build.open("golden") as accelerator:
        y, _ = accelerator.run(x.numpy(), lengths=lengths.numpy(), outputs="last")
    np.testing.assert_allclose(y, module(x, lengths).detach().numpy(), atol=1e-2)


# Loops that are written by hand


def hand_written(step: Callable[..., Any], **parts: Any) -> Any:
    """A model that goes through the steps itself; ``step`` gives the new h and c of one."""

    def call(m: Any, x: Any, done: Any = None) -> Any:
        h = c = x.new_zeros(x.shape[0], 6)
        results = []
        for t in range(x.shape[1]):
            h, c = step(m, x[:, t], h if done is None else h * (1 - done[:, t]), c)
            results.append(h)
        return m.head(torch.stack(results, 1))

    torch.manual_seed(3)
    parts = {"w": nn.Linear(10, 6), "u": nn.Linear(6, 6), "v": nn.Linear(4, 6), **parts}
    return nets.Net(call, head=nn.Linear(6, 2), **parts).eval()


def two_products(m: Any, x: Any, h: Any, c: Any) -> Any:
    """As CfC has it: the second matrix reads a value of the same step."""
    z = torch.tanh(m.w(torch.cat([x, h], -1)))
    return torch.tanh(m.u(z)), c


def two_states(m: Any, x: Any, h: Any, c: Any) -> Any:
    """As LEM has it: the same, and no mask of an episode."""
    share = torch.sigmoid(m.w(torch.cat([x, h], -1)))
    c = (1 - share) * c + share * torch.tanh(m.v(x))
    return (1 - share) * h + share * torch.tanh(m.u(c)), c


def quotient(m: Any, x: Any, h: Any, c: Any) -> Any:
    """As LTC has it."""
    f = torch.sigmoid(m.w(torch.cat([x, h], -1)))
    return (h + 0.1 * f) / (1.5 + 0.1 * f), c


def mogrified(m: Any, x: Any, h: Any, c: Any) -> Any:
    return m.cell(x, (2 * torch.sigmoid(m.v(x) + m.u(h)) * h, c))


FORMS = ("live", "exported", "trace", "onnx", "dynamo")
NO_CORE = "this recurrence cannot be on the core; that of an LSTM, a GRU or a plain RNN can"


@pytest.mark.parametrize(
    ("step", "form"),
    quick(
        [
            *((step, form) for step in (two_products, quotient) for form in FORMS),
            *((two_states, form) for form in FORMS[:3]),
        ],
        (two_products, "live"),
        (two_states, "live"),
        (two_products, "onnx"),
        (quotient, "exported"),
    ),
)
def test_a_recurrence_that_is_no_cell_gets_its_reason_alone(step: Any, form: str, tmp_path: Path):
    """No export, option or cell of the project would help, so none is named; the same in all forms."""
    module, x = hand_written(step), torch.randn(2, 5, 4)
    text = refusal(in_form(form, module, (x,), tmp_path))
    assert re.match(r"\S+ the loop over the steps of '\w+' is not read: .* is no cell: ", text)
    assert text.endswith(NO_CORE)
    assert not re.search("dynamo|takes element|Custom|keep c|split|episode|`", text)
    if form == "live":
        with pytest.raises(ConfigurationError, match=re.escape(NO_CORE)):
            split(module, x)
        for kind in ("LSTM", "GRU", "RNN"):
            assert read_model(getattr(nn, kind)(4, 6)).network.layers[0].units == 6


def test_a_convolution_of_the_state_is_named():
    """As ConvLSTM has it."""

    def step(m: Any, x: Any, h: Any, c: Any) -> Any:
        return torch.tanh(m.conv(torch.cat([x, h], 1))), c

    def call(m: Any, x: Any) -> Any:
        h, results = x.new_zeros(x.shape[0], 3, 8), []
        for t in range(x.shape[1]):
            h, _ = step(m, x[:, t], h, h)
            results.append(h)
        return torch.stack(results, 1)

    text = refusal(nets.Net(call, conv=nn.Conv1d(5, 3, 3, padding=1)).eval())
    assert "Conv1d 'conv', which gives 'conv_1', has no place in a cell" in text and text.endswith(NO_CORE)


def test_a_cell_whose_state_is_changed_runs_alone(tmp_path: Path):
    """Its calls are attached to the core, as both messages say."""
    module, x = hand_written(mogrified, cell=nn.LSTMCell(4, 6)), torch.randn(2, 5, 4)
    attach = r"rtlstm.host.torch.attach\(model, 'cell', x\) takes every call to the core$"
    text = refusal(module)
    assert re.search("begins each step in 'mul_.*no state of the loop; " + attach, text)
    with pytest.raises(ConfigurationError, match="not 5 times: what is split off runs once.*" + attach):
        split(module, x)
    assert refusal(in_form("exported", module, (x,), tmp_path)).endswith(NO_CORE)
    wanted = module(x).detach().numpy()
    with no_logic(), Lazy("rtlstm.host.torch").attach(module, "cell", x, folder=tmp_path / "build"):
        np.testing.assert_allclose(module(x).detach().numpy(), wanted, atol=1e-2)


@pytest.mark.parametrize("form", quick(["live", "exported", "trace", "onnx", "dynamo"], "live", "onnx"))
def test_episodes_in_a_loop_reset_the_stream(form: str, tmp_path: Path):
    module = hand_written(lambda m, x, h, c: (m.cell(x, h), c), cell=nn.GRUCell(4, 6))
    assert read_model(module).network.layers[0].units == 6
    masked = nets.LengthsNet(module.call, **dict(module.named_children())).eval()
    text = refusal(in_form(form, masked, (torch.randn(2, 5, 4), torch.zeros(2, 5, 1)), tmp_path))
    assert re.search("if [Mm]ul .* clears .* leave that out of the model.*\\(Stream.reset\\)", text)
    assert "look like" not in text and "takes element" not in text


# An encoder and a decoder with attention


@pytest.mark.parametrize("form", ["live", "exported", "onnx", "dynamo"])
def test_a_decoder_with_attention_is_explained_in_all_forms(form: str, tmp_path: Path):
    def call(m: Any, x: Any, given: Any) -> Any:
        e, h = m.enc(x)
        d, _ = m.dec(given, h)
        weights = torch.softmax(d @ e.transpose(1, 2), -1)
        return m.head(torch.cat([d, weights @ e], -1))

    parts = {name: nn.GRU(4, 6, batch_first=True) for name in ("enc", "dec")}
    module = nets.LengthsNet(call, head=nn.Linear(12, 2), **parts).eval()
    source = in_form(form, module, (torch.randn(2, 7, 4), torch.randn(2, 5, 4)), tmp_path)
    text = refusal(source)
    assert re.search("begins in the final state of GRU .*, as a decoder does: make two builds", text)
    assert text.endswith("give the state that the first returns to the second")
    found = dict(GIVEN.findall(text))
    assert read_model(source, ReadOptions(output=eval(found["output"]))).network.layers[0].units == 6
    options = follow(source, ReadOptions(lstm=eval(found["lstm"])))
    assert read_model(source, options).network.outputs == 6
    if form in ("live", "exported"):  # There a module has a name that the user gave.
        assert options.output == "dec"
