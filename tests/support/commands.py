"""A small model, builds of it, one of them on a board, and the command line in this process."""

import json
import re
import shlex
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from rtlstm.cli.main import main
from rtlstm.gen import frontends
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard
from rtlstm.gen.frontends import child
from rtlstm.sim.simulated_board import BoardSpec
from support.no_logic import no_logic
from support.served_board import commands, finish, start
from support.small_builds import NARROW, TINY, network, tensors

_AXES = re.compile(r"note: .* of shape .* was read as ")


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    def good(self) -> "Outcome":
        """Check that it ended with 0; return itself."""
        assert self.code == 0, self.err
        return self

    def refused(self, *words: str, code: int = 2) -> None:
        """Check that it ended with 2, or this code, and one sentence that holds these words.

        Before it, a note may say which axis of data was taken for time.
        """
        assert self.code == code, self.err
        lines = [line for line in self.err.splitlines() if not _AXES.match(line)]
        assert len(lines) == 1 and lines[0].startswith("error: "), self.err
        for word in words:
            assert word in lines[0], self.err


@pytest.fixture
def cli(capfd):
    """Run a command line in this process."""

    def call(*arguments: object) -> Outcome:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def without_verilog():
    """Builds that a test makes have Verilog without logic."""
    with no_logic():
        yield


@pytest.fixture
def read_here(monkeypatch):
    """Read foreign files in this process: what their layers become does not depend on where they are read."""

    def read(path, kind, options, report):
        # A child's warnings reach nobody.
        with warnings.catch_warnings(action="ignore"), path.open("rb") as file:
            return child.read_foreign(file, kind, options, report)

    monkeypatch.setattr(frontends, "read_in_child", read)


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.net.safetensors"
    safetensors.numpy.save_file(tensors(), path)
    return path


@pytest.fixture(scope="session")
def pristine(tmp_path_factory) -> Path:
    """A build that no test may change."""
    folder = tmp_path_factory.mktemp("builds") / "tiny"
    generate_build(network(), folder, parameters=TINY, settings=NARROW)
    return folder


@pytest.fixture
def build(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it to write into, or to damage."""
    return shutil.copytree(pristine, tmp_path / "build")


@pytest.fixture(scope="session")
def board_user(tmp_path_factory) -> Path:
    """What a new user has: a model and some inputs; then the README's first command for boards."""
    folder = tmp_path_factory.mktemp("user")
    state = {name: value for name, value in tensors().items() if name.startswith("lstm.")}
    safetensors.numpy.save_file(state, folder / "model.safetensors")
    np.save(folder / "x.npy", np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32))
    finish(start(commands()[0], folder))
    return folder


@pytest.fixture(scope="session")
def board_build(board_user: Path) -> Path:
    return board_user / shlex.split(commands()[0])[4]


@pytest.fixture(scope="session")
def on_board(board_build: Path) -> OnBoard:
    """That build on the README's board, so that it is compiled once."""
    options = shlex.split(commands()[1])
    clock = float(options[options.index("--clock") + 1]) if "--clock" in options else None
    return OnBoard.create(board_build, options[options.index("--board") + 1], clock)


@pytest.fixture(scope="module")
def compiled(on_board: OnBoard) -> tuple[Path, BoardSpec]:
    """The simulation of the board that ``on_board`` says, this one or a module's own."""
    return on_board.compile()
