"""A small model, a build of it, and the command line in this process."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
from small_builds import NARROW, TINY, network, tensors

from rtlstm.gen.build import generate_build
from rtlstm.gen.cli import main


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

    def refused(self, *words: str) -> None:
        """Check that it ended with 2 and one sentence that holds these words."""
        assert self.code == 2, self.err
        lines = self.err.splitlines()
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
