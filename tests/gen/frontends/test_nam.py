"""``.nam`` files against PyTorch, in the layout of Neural Amp Modeler; damaged ones are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.example_file import load_example
from support.lazy import nn, torch, train
from support.nam_files import content, save
from support.refusals import refused
from typer.testing import CliRunner

from rtlstm.cli.main import app
from rtlstm.gen.builds.compiled import compile
from rtlstm.gen.builds.folder import check_target
from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import InputError


@pytest.mark.parametrize(("layers", "inputs"), [(1, 1), (2, 3)])
def test_equals_torch_from_the_files_own_state(layers: int, inputs: int, tmp_path: Path) -> None:
    found, lstm, head, state = content(layers, inputs)
    result = read_model(save(tmp_path, found))
    x = torch.randn(9, 2, inputs)
    with torch.no_grad():
        wanted = head(lstm(x, tuple(part.expand(-1, 2, -1).contiguous() for part in state))[0])
    got = run_float(result.network, x.double().numpy(), result.initial_state_of(2))
    np.testing.assert_allclose(got.y, wanted, atol=1e-6)
    assert result.report.format == "nam" and any("state of its own" in note for note in result.report.notes)


@pytest.mark.usefixtures("without_verilog")
def test_driver_takes_the_state(tmp_path: Path) -> None:
    result = read_model(save(tmp_path, content()[0]))
    x, state = np.random.default_rng(0).uniform(-1, 1, (12, 3, 1)), result.initial_state_of(3)
    build = compile(result, folder=tmp_path / "build", calibration=x, calibration_state=state)
    with build.open("golden") as accelerator:
        y, _ = accelerator.run(x, state=state)
    np.testing.assert_allclose(y, run_float(result.network, x, state).y, atol=1e-3)
    plain = read_model(nn.LSTM(2, 3))
    with pytest.raises(InputError, match="begins with a state of zeros"):
        plain.initial_state_of(1)


@pytest.mark.slow
def test_command_line_has_the_state(tmp_path: Path) -> None:
    path, x = save(tmp_path, content(2)[0]), np.random.default_rng(0).uniform(-1, 1, (12, 1))
    np.save(tmp_path / "x.npy", x)
    build, given, found = (str(tmp_path / name) for name in ("build", "x.npy", "y.npy"))
    made = ("generate", str(path), "-o", build, "--calibrate", given, "--lanes", "4", "--weight-bits", "12")
    run = ("run", build, "--backend", "golden", "--state", f"{build}/state.npz")
    for command in (made, (*run, "--input", given, "--output", found)):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert check_target(Path(build))
    model = read_model(path)
    wanted = run_float(model.network, x[:, None], model.initial_state_of(1)).y[:, 0]
    np.testing.assert_allclose(np.load(found), wanted, atol=5e-3)
    bill = json.loads(next(Path(build).glob("ip/*.cdx.json")).read_text())
    (listed,) = (each for each in bill["components"] if each["name"] == "state.npz")
    assert "licenses" not in listed


@pytest.mark.slow
def test_calibration_begins_in_the_state(tmp_path: Path) -> None:
    result, x = read_model(save(tmp_path, content()[0])), np.zeros((4, 3, 1))
    swapped = {"calibration": x.swapaxes(0, 1), "batch_first": True}
    build = compile(result, folder=tmp_path / "build", lanes=4, macs=2, **swapped)
    begun, zeros = (
        quantise(result.network, QuantizationSettings(), Calibration.of(result.network, x, None, state))
        for state in (result.initial_state_of(3), None)
    )
    assert build.manifest.numerics == begun.numerics != zeros.numerics
    trained = compile(train.prepare(result), folder=tmp_path / "trained", lanes=4, macs=2)
    assert (trained.folder / "state.npz").read_bytes() == (build.folder / "state.npz").read_bytes()


CHANGES = [
    (lambda f: f | {"architecture": "WaveNet"}, "must be of the architecture 'LSTM', not 'WaveNet'"),
    (lambda f: f | {"weights": f["weights"][:-1]}, "'weights' ends within the head's bias: 1 numbers"),
    (
        lambda f: f | {"weights": f["weights"][:60]},
        "ends within weights of layer 0: 80 numbers must be left, but 60",
    ),
    (lambda f: f | {"weights": [*f["weights"], 1.0]}, "'weights' has 1 numbers more"),
    (lambda f: f | {"weights": "many"}, "an object 'config' and a list 'weights'"),
    (lambda f: f | {"weights": [[1.0], 2.0]}, "one list of numbers"),
    (lambda f: f | {"weights": ["0.1", *f["weights"][1:]]}, "must be one list of numbers"),
    (lambda f: f | {"weights": [True, *f["weights"][1:]]}, "'weights' must be one list of numbers"),
    (lambda f: f | {"weights": [10**400, *f["weights"][1:]]}, "but one is too large"),
    (lambda f: f | {"weights": [float("nan"), *f["weights"][1:]]}, "1 of 109 are NaN"),
    (lambda f: f | {"config": f["config"] | {"hidden_size": 0}}, "'hidden_size' of 1 or more, not 0"),
    (lambda f: f | {"config": f["config"] | {"num_layers": True}}, "'num_layers' of 1 or more, not True"),
    (lambda f: f | {"config": f["config"] | {"hidden_size": 10**7}}, "may have together"),
    (lambda f: [f], "must hold an object of JSON, not list"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words[:30] for _, words in CHANGES])
def test_bad_files_are_refused(change: Any, words: str, tmp_path: Path) -> None:
    assert words in inspect_model(save(tmp_path, change(content()[0]))).refusal


def test_text_and_options_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, content()[0])
    refused(path, r"read as a whole; leave out `output`", ReadOptions(output="head"))
    path.write_text("{")
    refused(path, r"is no JSON, as a \.nam file must be")


@pytest.mark.slow
def test_example(tmp_path: Path) -> None:
    """A model that is hardly trained, in the file that the example writes."""
    example = load_example("amplifier")
    example.make(tmp_path / "made.nam", updates=2)
    found = example.run(tmp_path / "made.nam", "golden", 300)
    assert found["error to signal against float"] < 1e-4 and found["cycles a sample"] == 35
    assert list(found.values())[2] < found["us between samples"]
