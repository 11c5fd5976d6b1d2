"""What goes wrong between a user and a board: one clear error each, and the board works on."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.served_board import served
from support.small_builds import network

from rtlstm import Accelerator, DeviceError, Parameters
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.on_board import OnBoard

pytestmark = [pytest.mark.slow, pytest.mark.rtl]


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    """A build that is not the board's."""
    folder = tmp_path_factory.mktemp("other") / "build"
    generate_build(network(), folder, parameters=Parameters(lanes=8, macs=2))
    return folder


@pytest.fixture
def run(board_user: Path, cli, tmp_path: Path):
    """Run a build on a backend by command; check the outputs if it is expected to work."""

    def call(folder: Path, backend: str, works: bool = True):
        y = tmp_path / "y.npy"
        y.unlink(missing_ok=True)
        done = cli("run", folder, "--backend", backend, "--input", board_user / "x.npy", "--output", y)
        assert y.exists() == works, done.err
        if works:
            with Accelerator.open(folder, "golden") as golden:
                assert np.array_equal(np.load(y), golden.run(np.load(board_user / "x.npy"))[0])
        return done

    return call


def with_weights(build: Path, weights: bytes, folder: Path) -> Path:
    """Copy a build, but for its weights."""
    shutil.copytree(build, folder, ignore=shutil.ignore_patterns("boards"))
    (folder / "weights.bin").write_bytes(weights)
    return folder


def test_wrong_builds_and_weights(on_board: OnBoard, other: Path, run, tmp_path: Path):
    build = on_board.folder
    image = (build / "weights.bin").read_bytes()
    flipped = with_weights(build, image[:100] + bytes([image[100] ^ 1]) + image[101:], tmp_path / "flipped")
    foreign = with_weights(build, (other / "weights.bin").read_bytes(), tmp_path / "foreign")
    with served(on_board, tmp_path) as (_, serial, tcp):
        for port in (serial, tcp):
            held = f"it holds build {on_board.manifest.build_number:08x}"
            run(other, port, works=False).refused(held, code=1)
            run(foreign, port, works=False).refused("the weight image must belong to build")
            run(flipped, port, works=False).refused("the weight image is damaged")
            run(build, port)


@pytest.mark.parametrize("way", ["serial", "tcp"])
def test_two_programs(on_board: OnBoard, run, tmp_path: Path, way: str):
    build, words = (
        on_board.folder,
        {"serial": "must exist and be free", "tcp": "another program may be using"},
    )
    with served(on_board, tmp_path) as (_, serial, tcp):
        port = serial if way == "serial" else tcp
        with Accelerator.open(build, port) as first:
            run(build, port, works=False).refused(words[way], code=1)
            x = np.random.default_rng(1).uniform(-1, 1, (5, first.manifest.program.inputs))
            with Accelerator.open(build, "golden") as golden:
                assert np.array_equal(first.run(x)[0], golden.run(x)[0])
        run(build, port)


@pytest.mark.parametrize("way", ["serial", "tcp"])
def test_unplugged_in_mid_load(on_board: OnBoard, run, tmp_path: Path, way: str):
    with served(on_board, tmp_path) as (board, serial, tcp):
        done = []

        def unplug(what: str, written: int, total: int) -> None:
            done.append(written)
            if written == total // 2:
                board.kill()

        with pytest.raises(DeviceError, match=r"nothing was received from it for .*; check cable, power"):
            Accelerator.open(on_board.folder, serial if way == "serial" else tcp, progress=unplug)
        assert done
    with served(on_board, tmp_path) as (_, serial, tcp):
        run(on_board.folder, serial if way == "serial" else tcp)
