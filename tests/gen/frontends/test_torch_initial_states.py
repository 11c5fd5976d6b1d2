"""Initial states that modules learn: read, and begun in by the driver, on every backend."""

import re
import shutil
from collections.abc import Callable
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.lazy import nets, nn, torch
from support.no_logic import no_logic
from support.torch_forms import equals, in_form
from typer.testing import CliRunner

from rtlstm.cli.main import app
from rtlstm.gen.builds.compiled import Build, compile
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.ip.files import c_header
from rtlstm.host.accelerator import Accelerator
from rtlstm.host.state import StateLayout, load_initial_state
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import BuildError, ModelError
from rtlstm.spec.manifest import C_HEADER, Manifest

I, H, STEPS, BATCH = 3, 4, 6, 2  # noqa: E741
FORMS: dict[str, Callable[..., Any]] = {
    "expand": lambda h, x: h.expand(-1, x.shape[1], -1).contiguous(),
    "repeat": lambda h, x: h.repeat(1, x.size(1), 1),
    "vectors": lambda h, x: h[:, 0].unsqueeze(1).expand(h.shape[0], x.size(1), h.shape[2]).contiguous(),
}


def learned(kind: str = "LSTM", form: str = "expand", before: bool = False, **options: Any) -> Any:
    """A recurrent module that begins in parameters, and a dense layer."""

    def call(net: Any, x: Any) -> Any:
        x = net.first(x)[0] if before else x
        h = FORMS[form](net.h0, x)
        return net.fc(net.rnn(x, (h, FORMS[form](net.c0, x)) if kind == "LSTM" else h)[0])

    torch.manual_seed(0)
    parts = {"first": nn.GRU(I, I)} if before else {}
    rnn = getattr(nn, kind)(I, H, **options)
    directions = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    outputs = options.get("proj_size", H)
    h0 = nn.Parameter(torch.rand(directions, 1, outputs) - 0.5)
    c0 = nn.Parameter(torch.randn(directions, 1, H))
    fc = nn.Linear(outputs * (1 + options.get("bidirectional", False)), 2)
    return nets.Net(call, **parts, rnn=rnn, h0=h0, c0=c0, fc=fc).eval()


def data(seed: int = 1) -> Any:
    return torch.randn(STEPS, BATCH, I, generator=torch.Generator().manual_seed(seed))


def check(source: Any, module: Any, batch: int = BATCH) -> None:
    result = equals(source, module, data()[:, :batch], atol=1e-6)
    assert any("in a state that was learned" in note for note in result.report.notes)


KINDS = {
    "lstm": {},
    "lstm behind a gru": {"before": True},
    "two layers": {"num_layers": 2},
    "two directions": {"num_layers": 2, "bidirectional": True},
    "projection": {"proj_size": 2},
    "gru": {"kind": "GRU"},
    "rnn": {"kind": "RNN"},
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_learned_state_is_read(options: dict[str, Any]) -> None:
    module = learned(**options)
    check(module, module)


@pytest.mark.parametrize("form", FORMS)
def test_learned_state_in_every_form(form: str) -> None:
    module = learned(form=form)
    check(module, module)


def test_learned_state_of_exported_files(tmp_path: Path) -> None:
    """Of TorchScript, which is read in a process of its own, and of an exported program."""
    module = learned()
    check(in_form("trace", module, (data(),), tmp_path), module)
    check(in_form("exported", module, (data(),), tmp_path, saved=False), module)


def test_a_cells_learned_state() -> None:
    torch.manual_seed(0)
    parts = {"cell": nn.GRUCell(I, H), "h0": nn.Parameter(torch.randn(1, H))}
    module, x = nets.Net(lambda m, x: m.cell(x, m.h0.expand(x.shape[0], -1)), **parts).eval(), data()[0]
    equals(module, lambda steps: module(steps[0]), x[None], atol=1e-6)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("learned") / "build"
    with no_logic():
        return compile(learned(), folder=folder, calibration=data().numpy(), lanes=4, macs=2, streams=2)


def wanted(x: Any) -> np.ndarray:
    return learned()(x).detach().numpy()


def test_driver_begins_in_it_and_reset_returns_to_it(build: Build) -> None:
    x = data()
    with build.open("golden") as accelerator:
        y, _ = accelerator.run(x.numpy())
        np.testing.assert_allclose(y, wanted(x), atol=2e-3)
        zeros = tuple(np.zeros((1, BATCH, H)) for _ in "hc")
        assert np.abs(accelerator.run(x.numpy(), state=zeros)[0] - y)[0].max() > 0.01
        with accelerator.stream() as stream:
            begun = stream.state_integers
            for _ in range(2):
                np.testing.assert_array_equal(stream.steps(x[:, 0].numpy()), y[:, 0])
                stream.reset()
            stream.steps(x[:, 0].numpy())
            accelerator.load_weights(build.folder / "weights.bin")
            for part, again in zip(begun, stream.state_integers, strict=True):
                np.testing.assert_array_equal(part, again)


def test_c_header_has_it(build: Build) -> None:
    """In the order of rtlstm_mmio_write_state: h of each layer, then the cells."""
    text = (build.folder / C_HEADER).read_text()
    state = load_initial_state(build.folder, build.manifest, StateLayout(build.manifest))
    assert state is not None
    for name, layers in zip("HC", state, strict=True):
        (values,) = re.findall(rf"#define RTLSTM_INITIAL_{name} {{ (.*) }}", text)
        np.testing.assert_array_equal([int(value) for value in values.split(",")], np.concatenate(layers))
    assert "INITIAL_H" not in c_header(build.manifest)


@pytest.mark.slow
@pytest.mark.rtl
def test_simulation_begins_in_it(tmp_path: Path) -> None:
    x = data()
    build = compile(learned(), folder=tmp_path / "build", calibration=x.numpy(), lanes=4, macs=2, streams=2)
    assert build.simulate(x.numpy(), simulator="icarus", verify=False).passed
    with build.open("icarus", verify=False) as rtl, build.open("golden") as golden:
        np.testing.assert_array_equal(rtl.run(x.numpy())[0], golden.run(x.numpy())[0])


def test_command_line_begins_in_it(build: Build, tmp_path: Path) -> None:
    x, path = data()[:, :1], tmp_path / "x.npy"
    np.save(path, x[:, 0].numpy())
    run = (
        "run",
        str(build.folder),
        "--backend",
        "golden",
        "--input",
        str(path),
        "--output",
        str(tmp_path / "y.npy"),
    )
    done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted(x)[:, 0], atol=2e-3)


def test_damaged_initial_state_is_refused(build: Build) -> None:
    path = build.folder / "state.npz"
    whole = path.read_bytes()
    manifest = build.folder / "manifest.json"
    listed = manifest.read_text()
    other = {"h_0": np.zeros(H + 1), "c_0": np.zeros(H)}
    try:
        np.savez(path, **other)
        with pytest.raises(BuildError, match="state.npz was changed after it was generated and is not used"):
            Accelerator.open(build.folder)
        for damaged in (path.read_bytes(), whole[:50]):
            path.write_bytes(damaged)
            taken = manifest.read_text().replace(sha256(whole).hexdigest(), sha256(damaged).hexdigest())
            manifest.write_text(taken)
            with pytest.raises(BuildError, match="must hold the state in which the model begins"):
                Accelerator.open(build.folder)
            manifest.write_text(listed)
    finally:
        path.write_bytes(whole)
        manifest.write_text(listed)


def test_initial_state_that_is_missing_is_refused(build: Build, tmp_path: Path) -> None:
    folder = shutil.copytree(build.folder, tmp_path / "copy")
    (folder / "state.npz").unlink()
    with pytest.raises(BuildError, match=r"state.npz cannot be read \(No such file.*generate the build"):
        Accelerator.open(folder)
    with build.open() as accelerator, pytest.raises(BuildError, match="state.npz cannot be read"):
        accelerator.begin_as(folder)


def test_initial_state_that_is_not_listed_is_refused(build: Build, tmp_path: Path) -> None:
    """A state that was written there, as by ``rtlstm run --state-output``, is not the model's."""
    folder = shutil.copytree(build.folder, tmp_path / "copy")
    manifest = Manifest.load(folder)
    own = manifest.replace(files=tuple(file for file in manifest.files if file.path != "state.npz"))
    (folder / "manifest.json").write_text(own.to_json())
    with pytest.raises(BuildError, match="state.npz is not listed in manifest.json and is not used"):
        Accelerator.open(folder)
    (folder / "state.npz").unlink()
    with Accelerator.open(folder) as accelerator:
        assert accelerator.device.initial_state is None


def test_what_h_cannot_hold_is_told() -> None:
    module = learned()
    with torch.no_grad():
        module.h0[0, 0, 1] = -1.5
    assert any("an h of up to 1.5, but the core's format" in note for note in read_model(module).report.notes)


REFUSED = {
    "must be \\(1, sequences, 4\\), not \\(1, 1, 3\\)": lambda m, x: (m.h0, m.c0),
    "differs from sequence to sequence": lambda m, x: (m.several, m.several),
}


@pytest.mark.parametrize("words", REFUSED)
def test_learned_state_that_is_computed_is_refused_with_a_way_that_works(words: str) -> None:
    module = learned()
    module.call = lambda m, x: m.rnn(x, REFUSED[words](m, x))[0]
    module.several = nn.Parameter(torch.randn(1, BATCH, H))
    if "not" in words:
        module.h0 = nn.Parameter(torch.randn(1, 1, 3))
    with pytest.raises(ModelError, match=words):
        read_model(module)
    result = read_model(module, ReadOptions(lstm="rnn"))
    assert result.initial_state is None and [layer.name for layer in result.network.layers] == ["rnn"]


def begun(m: Any, x: Any) -> Any:
    return m.rnn(x, tuple(each.expand(-1, x.shape[1], -1) for each in (m.h0, m.c0)))[0]


def test_a_layer_that_the_reader_makes_anew_keeps_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of the two directions is the layer's own."""
    # No array of the network is one that the reader of modules made.
    made = Flow.network
    monkeypatch.setattr(Flow, "network", lambda *given: deepcopy(made(*given)))
    module = learned(bidirectional=True)
    module.call = lambda m, x: (lambda y: y[..., :H] + y[..., H:])(begun(m, x))
    check(module, module)


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bidirectional": True}])
def test_behind_a_stride(options: dict[str, Any]) -> None:
    """A recurrent module behind a strided convolution, which begins in parameters."""
    torch.manual_seed(0)
    states = {name: nn.Parameter(torch.rand(2, 1, H) - 0.5) for name in ("h0", "c0")}
    module = nets.Net(
        lambda m, x: begun(m, m.conv(x.permute(1, 2, 0)).permute(2, 0, 1)),
        conv=nn.Conv1d(I, 5, 2, stride=2),
        rnn=nn.LSTM(5, H, **options),
        **states,
    )
    x = data()
    result = read_model(module)
    assert result.network.frames == 2
    steps = x.numpy().astype(np.float64).reshape(STEPS // 2, 2, BATCH, I).swapaxes(1, 2)
    found = run_float(result.network, steps.reshape(STEPS // 2, BATCH, 2 * I), result.initial_state_of(BATCH))
    np.testing.assert_allclose(found.y, module(x).detach().numpy(), atol=1e-6)
