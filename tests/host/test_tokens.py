"""Tokens, which the driver looks up in the model's table, at every door; wrong ones are refused."""

import asyncio
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.lazy import nets, torch, train
from support.no_logic import no_logic
from support.onnx_nodes import recurrent_model
from support.small_builds import INPUTS, tensors

import rtlstm
from rtlstm import Accelerator, AsyncAccelerator, BuildError, InputError, SharedAccelerator, WeightImage
from rtlstm.host.embeddings import Embedding, Tables

ROWS = 7
ARRAY = {"lanes": 4, "macs": 2, "weight_bits": 8, "data_bits": 10}


def model(folder: Path, seed: int = 0, rows: int = ROWS) -> Path:
    """A file of tensors with a table, which does not tell the order of axes."""
    path = folder / "words.safetensors"
    table = np.random.default_rng(seed).normal(size=(rows, INPUTS)).astype(np.float32)
    safetensors.numpy.save_file(tensors() | {"words.weight": table}, path)
    return path


@pytest.fixture(scope="module")
def tokens():
    return np.random.default_rng(1).integers(0, ROWS, (5, 3))


@pytest.fixture(scope="module")
def build(tmp_path_factory, tokens):
    folder = tmp_path_factory.mktemp("tokens")
    with no_logic():
        built = rtlstm.compile(
            model(folder), calibration=tokens, batch_first=False, folder=folder / "build", streams=3, **ARRAY
        )
    return rtlstm.Build(built.folder)


@pytest.fixture(scope="module")
def core(tmp_path_factory, tokens):
    """The same network, whose core looks up."""
    folder, given = tmp_path_factory.mktemp("core"), tokens[..., None]
    with no_logic():
        return rtlstm.compile(
            model(folder),
            calibration=given,
            batch_first=False,
            folder=folder / "build",
            token_table="core",
            streams=3,
            **ARRAY,
        )


@pytest.fixture(scope="module")
def wanted(build, tokens):
    (table,) = build.embeddings
    return build.run(table(tokens), batch_first=False)[0]


def test_the_table_is_in_the_folder(build, tokens, wanted):
    (table,) = build.embeddings
    assert (table.name, table.table.shape) == ("words", (ROWS, INPUTS))
    assert build.manifest.embeddings[0].rows == ROWS
    assert np.array_equal(build.run(tokens, batch_first=False)[0], wanted)
    assert np.array_equal(build.run(tokens.T, batch_first=True)[0], wanted.swapaxes(0, 1))
    assert np.array_equal(build.run(tokens[:, 0])[0], wanted[:, 0])
    assert np.array_equal(build.run(tokens.astype(np.uint8), batch_first=False)[0], wanted)


def test_what_is_said_of_a_core_that_looks_up(build, core, cli):
    for each, words in ((build, "a build has as embeddings.npz"), (core, "the core looks up 7 tokens: ")):
        report = each.report()
        (note,) = [text for text in report.notes if "look" in text or "embedding" in text]
        assert words in note
        assert any(node.kind == "embedding" for node in report.host) == (each is build)
    assert re.search(r"row of the table, for a step's token x, 0 to 6 +s10", cli("inspect", core.folder).out)
    assert re.search(r"input x +s10", cli("inspect", build.folder).out)


@pytest.mark.parametrize("make", [np.asarray, np.float32], ids=["integers", "whole floats"])
def test_tokens_may_have_an_axis_of_their_own(build, core, wanted, tokens, make):
    x = make(tokens[..., None])
    for each in (build, core):
        assert np.array_equal(each.run(x, batch_first=False)[0], wanted)
        assert np.array_equal(each.run(x.swapaxes(0, 1), batch_first=True)[0], wanted.swapaxes(0, 1))
        with each.open() as accelerator, accelerator.stream() as one, accelerator.stream() as other:
            assert np.array_equal(one.step(x[0, 0]), wanted[0, 0])
            both = accelerator.step_many([one, other], [x[1, 0], x[0, 1]])
            assert np.array_equal(both, [wanted[1, 0], wanted[0, 1]])
            assert np.array_equal(one.steps(x[2:, 0]), wanted[2:, 0])


def test_wrong_shapes_speak_of_tokens(build, core, tokens, wanted):
    ways = (build, r"or its rows as floats \(..., 3\), not"), (core, "generate with `token_table='host'`")
    for each, way in ways:
        with each.open() as accelerator, accelerator.stream() as stream:
            for door, x, words in (
                (
                    accelerator.run,
                    tokens[..., None, None][..., [0, 0]],
                    r"tokens \(T,\), or \(T, N\) or \(N, T\)",
                ),
                (accelerator.run, 3, r"tokens \(T,\)"),
                (stream.steps, tokens[:, :2], r"tokens \(T,\), one for each step"),
                (stream.step, tokens[:2, 0], r"one token \(steps takes several\)"),
            ):
                with pytest.raises(InputError, match=f"x must hold {words}.*{way}"):
                    door(x)
            assert stream.steps(tokens[:2, 0]).shape == wanted[:2, 0].shape
            with pytest.raises(InputError, match=r"tokens as integers, .* not \(\d+, \d+, 1\) of float64"):
                accelerator.run(tokens[..., None] + 0.5)
        with pytest.raises(InputError, match="calibration must hold tokens"):
            rtlstm.compile(
                rtlstm.read_model(model(build.folder.parent)), calibration=tokens[..., [0, 0]][None]
            )
    accelerator = core.open()
    for x, words in (
        ([[7]], r"x must be within 0 to 6 \(tokens that the core looks up\), but x\[.* is 7"),
        ([[1.0]], "x must hold tokens, integers, not float64"),
        ([[1, 2]], "reads a token per time step"),
    ):
        with pytest.raises(InputError, match=words):
            accelerator.device.transport.exchange([0], x)


def test_the_driver_and_its_streams_take_tokens(build, tokens, wanted):
    with Accelerator.open(build.folder) as accelerator:
        assert np.array_equal(accelerator.run(tokens, batch_first=False)[0], wanted)
        with accelerator.stream() as one, accelerator.stream() as other:
            assert np.array_equal(one.step(int(tokens[0, 0])), wanted[0, 0])
            assert np.array_equal(one.steps(tokens[1:3, 0]), wanted[1:3, 0])
            both = accelerator.step_many([one, other], [tokens[3, 0], tokens[0, 1]])
            assert np.array_equal(both, [wanted[3, 0], wanted[0, 1]])
    with SharedAccelerator.open(build.folder) as shared, shared.stream() as stream:
        assert np.array_equal(stream.step(tokens[0, 0]), wanted[0, 0])
        assert np.array_equal(stream.steps(tokens[1:, 0]), wanted[1:, 0])

    async def follow():
        async with await AsyncAccelerator.open(build.folder) as acc, await acc.stream() as stream:
            return [await stream.step(token) for token in tokens[:, 0].tolist()]

    assert np.array_equal(asyncio.run(follow()), wanted[:, 0])


@pytest.mark.parametrize("pad", ["back", "front"])
def test_padding_may_hold_anything(build, tokens, pad):
    lengths = [5, 2, 3]
    padded = tokens.copy()
    for sequence, length in enumerate(lengths):
        padded[slice(length, None) if pad == "back" else slice(0, 5 - length), sequence] = -1
    (table,) = build.embeddings
    rows = table(np.maximum(padded, 0))
    given = {"lengths": lengths, "pad": pad}
    assert np.array_equal(
        build.run(padded, batch_first=False, **given)[0], build.run(rows, batch_first=False, **given)[0]
    )
    swapped = build.run(padded.T, batch_first=True, **given)[0]
    assert np.array_equal(swapped, build.run(rows.swapaxes(0, 1), batch_first=True, **given)[0])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([0, -1], r"tokens from 0 to 6, .*'words', but x\[1\] is -1; correct them"),
        ([0, ROWS, ROWS], r"x\[1\] is 7 and 1 more"),
        (
            [0.5, 1.0],
            r"tokens as integers, .*, or its rows as floats \(\.\.\., 3\), not \(2,\) .*asarray\(x, int\)",
        ),
        ([True, False], "of bool"),
        (np.array([2**63], dtype=np.uint64), r"x\[0\] is 9223372036854775808"),
        (np.array(["a"]), "of <U1"),
    ],
)
def test_wrong_tokens_are_refused_at_every_door(build, wrong, words):
    doors = [build.run]
    with Accelerator.open(build.folder) as accelerator, accelerator.stream() as stream:
        doors += [accelerator.run, stream.steps, lambda x: accelerator.step_many([stream] * len(x), x)]
        doors += [build.accuracy, build.simulate]
        for door in doors:
            with pytest.raises(InputError, match=words):
                door(np.asarray(wrong))
        with pytest.raises(InputError, match="tokens"):
            stream.step(np.asarray(wrong)[-1])


def test_codes_and_rows_are_what_they_were(build, wanted, tokens):
    (table,) = build.embeddings
    with Accelerator.open(build.folder) as accelerator, accelerator.stream() as stream:
        form = build.manifest.numerics.input
        codes = form.to_integers(build.manifest.numerics.scale_input(table(tokens)))
        with pytest.warns(rtlstm.host.CodesWarning):
            y = accelerator.run(codes, batch_first=False)[0]
        assert np.array_equal(build.manifest.layers[-1].output.to_floats(y), wanted)
        assert np.array_equal(stream.steps(codes[:, 0]), y[:, 0])
        assert np.array_equal(accelerator.run(table(tokens[:, 0]))[0], wanted[:, 0])


def test_another_table_is_refused(build, tmp_path, tokens):
    copy = tmp_path / "copy"
    shutil.copytree(build.folder, copy)
    file = copy / "embeddings.npz"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(BuildError, match="embeddings.npz was changed after it was generated"):
        Accelerator.open(copy)
    file.unlink()
    with pytest.raises(BuildError, match=r"embeddings.npz cannot be read .*; generate the build again"):
        rtlstm.Build(copy).run(tokens)
    file.write_bytes(content)
    assert Accelerator.open(copy).tables.tables


def test_the_table_of_a_retrained_model(build, core, tmp_path, tokens):
    with no_logic():
        other = rtlstm.compile(
            model(tmp_path, seed=5, rows=9),
            device=build,
            calibration=tokens,
            batch_first=False,
            folder=tmp_path / "other",
        )
    its = other.run(tokens, batch_first=False)[0]
    assert not np.array_equal(its, build.run(tokens, batch_first=False)[0])
    with Accelerator.open(build.folder) as accelerator:
        accelerator.load(other.folder)
        assert np.array_equal(accelerator.run(tokens, batch_first=False)[0], its)
        accelerator.load(build.folder)
        accelerator.load_weights(other.folder / "weights.bin")
        assert np.array_equal(accelerator.run(tokens, batch_first=False)[0], its)
        shutil.copy(build.folder / "weights.bin", tmp_path)
        alone = tmp_path / "weights.bin"
        for weights in (alone, WeightImage.load(other.folder / "weights.bin", other.manifest)):
            with pytest.warns(rtlstm.NoteWarning, match=r"come without a table: .* call begin_as") as told:
                accelerator.load_weights(weights)
            assert [each.filename for each in told] == [__file__]
        stranger = tmp_path / "stranger"
        stranger.mkdir()
        shutil.copy(alone, stranger)
        shutil.copy(core.folder / "manifest.json", stranger)
        with pytest.raises(rtlstm.RtlstmError, match="must stand alone or .* is of .*, another build; copy"):
            accelerator.load_weights(stranger / "weights.bin")
        accelerator.begin_as(other.folder)
        assert np.array_equal(accelerator.run(tokens, batch_first=False)[0], its)


def test_commands_take_tokens(cli, tmp_path, tokens, without_verilog):
    np.save(tmp_path / "tokens.npy", tokens.T)
    words = ("--calibrate", tmp_path / "tokens.npy", "--batch-first", "--lanes", 4, "--macs", 2)
    assert cli("generate", model(tmp_path), "-o", tmp_path / "b", *words).code == 0
    given = ("--input", tmp_path / "tokens.npy", "--batch-first", "--json")
    found = cli("run", tmp_path / "b", *given, "--output", tmp_path / "y.npy").json
    assert (found["sequences"], found["steps"]) == (3, 15)
    assert np.array_equal(
        np.load(tmp_path / "y.npy"), rtlstm.Build(tmp_path / "b").run(tokens.T, batch_first=True)[0]
    )
    assert cli("accuracy", tmp_path / "b", *given).json["total_steps"] == 15
    np.save(tmp_path / "tokens.npy", tokens.T + 4)
    cli("run", tmp_path / "b", *given).refused("tokens from 0 to 6", "'words'")


@pytest.mark.slow
@pytest.mark.rtl
@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_tokens_in_a_simulator(tmp_path, tokens, simulator):
    built = rtlstm.compile(
        model(tmp_path), calibration=tokens, batch_first=False, folder=tmp_path / "build", **ARRAY
    )
    assert built.simulate(tokens, batch_first=False, simulator=simulator, steps=4).passed
    with Accelerator.open(built.folder, simulator) as accelerator:
        assert np.array_equal(
            accelerator.run(tokens, batch_first=False)[0], built.run(tokens, batch_first=False)[0]
        )


def test_frames_of_tokens():
    """A model with strides takes several tokens in a step."""
    tables = Tables((Embedding(name="t", table=np.arange(10.0).reshape(5, 2)),), frames=3)
    assert tables.look_up([1, 2, 3], axes=(0,)).shape == (3, 2)
    assert tables.look_up([[1, 2, 3]] * 4, axes=(1,)).shape == (4, 3, 2)
    assert tables.look_up([1, 2, 3] * 4, axes=(1,)).shape == (12, 2)
    assert tables.look_up(np.zeros((4, 6)), axes=(1,)).shape == (4, 6)
    assert tables.look_up(np.zeros((4, 6)), axes=(1, 2)).shape == (4, 6)


def test_several_tables_are_looked_up_by_the_caller():
    tables = Tables(tuple(Embedding(name=name, table=np.eye(3)) for name in "ab"))
    with pytest.raises(InputError, match=r"several tables \(a, b\): .*embeddings"):
        tables.look_up([1, 2])
    assert tables.look_up(np.zeros((2, 3))).shape == (2, 3)


def gather(folder: Path, embedding, lstm) -> Path:
    """A file of ONNX that looks up."""
    weights = {name: getattr(lstm, f"{kind}_l0").detach().numpy()
               for name, kind in (("W", "weight_ih"), ("R", "weight_hh"))}  # fmt: skip
    order = [0, 3, 1, 2]
    swap = {k: np.concatenate([np.split(v, 4)[i] for i in order])[None] for k, v in weights.items()}
    bias = [np.concatenate([np.split(getattr(lstm, f"bias_{k}_l0").detach().numpy(), 4)[i] for i in order])
            for k in ("ih", "hh")]  # fmt: skip
    data = {"X": np.zeros((5, 3, INPUTS), np.float32), **swap, "B": np.concatenate(bias)[None]}
    found = recurrent_model("LSTM", data, hidden_size=lstm.hidden_size)
    from onnx import TensorProto, helper, numpy_helper

    graph = found.graph
    graph.initializer.append(numpy_helper.from_array(embedding.weight.detach().numpy(), "table"))
    graph.node.insert(0, helper.make_node("Gather", ["table", "tokens"], ["X"], name="look"))
    del graph.input[0]
    graph.input.append(helper.make_tensor_value_info("tokens", TensorProto.INT64, (5, 3)))
    path = folder / "look.onnx"
    path.write_bytes(found.SerializeToString())
    return path


def test_modules_and_files_of_onnx(tmp_path, tokens):
    torch.manual_seed(0)
    net = nets.chain(torch.nn.Embedding(ROWS, INPUTS), torch.nn.LSTM(INPUTS, 4)).eval()
    exact = net(torch.from_numpy(tokens)).detach().numpy()
    path = gather(tmp_path, net.part0, net.part1)
    for number, each in enumerate((net, path)):
        with no_logic():
            built = rtlstm.compile(
                each,
                calibration=tokens,
                folder=tmp_path / f"{number}",
                weight_bits=16,
                data_bits=16,
                lanes=4,
                macs=2,
            )
        assert np.abs(built.run(tokens)[0].reshape(exact.shape) - exact).max() < 2e-3


def test_a_prepared_module_has_the_range_of_its_table():
    net = nets.chain(torch.nn.Embedding(ROWS, INPUTS), torch.nn.LSTM(INPUTS, 4))
    with torch.no_grad():
        net.part0.weight.copy_(net.part0.weight / net.part0.weight.abs().max())
    assert train.prepare(net).layers.numerics.input.limit < 2
    assert train.prepare(net, input_range=5.0).layers.numerics.input.limit >= 5


@pytest.mark.slow
def test_a_trained_table_goes_with_its_build(tmp_path, tokens):
    torch.manual_seed(0)
    net = nets.chain(torch.nn.Embedding(ROWS, INPUTS), torch.nn.LSTM(INPUTS, 4)).eval()
    prepared = train.prepare(net, calibration=tokens)
    with torch.no_grad():
        prepared.embedding.weight.mul_(0.5)
        wanted = prepared(torch.from_numpy(tokens)).numpy()
    with no_logic():
        built = rtlstm.compile(prepared, folder=tmp_path / "build", lanes=4, macs=2)
    assert np.array_equal(built.run(tokens)[0].astype(np.float32), wanted)
