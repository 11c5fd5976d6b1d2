"""The command line names its options, where Python names arguments."""

import os
from pathlib import Path

import numpy as np
import pytest

from rtlstm import ModelError, ReadOptions, compile, read_model

pytestmark = pytest.mark.usefixtures("without_verilog")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--weight-bits 99", "--weight-bits must be less than or equal to 18, not 99"),
        ("--lanes 5", "--lanes must be a multiple of 4"),
        ("--macs 4 --beat-in 3", "--beat-in (3) must divide --macs (4)"),
        ("--max-steps 0", "--max-steps must be greater"),
        ("--macs 2 --multipliers 3", "--multipliers must be at most --macs (2)"),
        (
            "--lanes 4 --lut-lanes 4 --macs 2",
            "--lut-lanes must be less than --lanes (4), not 4; for one more in every lane, try --multi",
        ),
        (
            "--lanes 4 --lut-lanes 1 --macs 2 --multipliers lut",
            "--lut-lanes must be 0 where all multipliers are of LUTs, not 1; leave it out, or try --mul",
        ),
        (
            "--family ecp5 --weight-bits 4 --data-bits 8 --lanes 8 --lut-lanes 3",
            "must be even where two lanes share each DSP block, on ecp5 with 4 x 8 bits, not 3; try 2",
        ),
        ("--fit lfe5u-12f --lut-lanes 2", "--lut-lanes (2) needs a number of --multipliers beside --fit"),
        ("--fit lfe5u-12f --lut-lanes 2 --multipliers lut", "--lut-lanes must be 0 where"),
        ("--lut-lanes -1", "--lut-lanes must be greater than or equal to 0, not -1"),
        ("--lstm q", "--lstm must name an LSTM's prefix"),
        (
            "--output-tensor q",
            ": --output-tensor is for models with a graph; choose dense layers with --dense",
        ),
        ("--branch a:then", ": --branch must be left out"),
        # Nothing that is given counts as not given.
        ("--lanes 0", "--lanes must be greater than or equal to 4, not 0"),
        ("--macs 0", "--macs must be greater than or equal to 1, not 0"),
        ("--beat-out 0", "--beat-out must be greater than or equal to 1, not 0"),
        ("--fit up5k --gate-units 0", "--gate-units must be greater than or equal to 1, not 0"),
    ],
)
def test_refusals_name_options(cli, model: Path, tmp_path: Path, options: str, words: str) -> None:
    cli("generate", model, "-o", tmp_path / "b", *options.split()).refused(words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("board b --tcp 99999", "'--tcp': must be less than or equal to 65535, not '99999'"),
        ("board b --faults=2", "'--faults': must be less than or equal to 1, not '2'"),
        ("generate m -o b --finetune-updates -4", "must be greater than or equal to 1, not '-4'"),
        ("generate m -o b --data-bits abc", "'--data-bits': must be a valid integer, not 'abc'"),
    ],
)
def test_values_that_cannot_be_read(cli, tmp_path: Path, arguments: str, words: str) -> None:
    cli(*arguments.split()).refused(words)


def test_a_page_is_html(cli, model: Path, pristine: Path, tmp_path: Path) -> None:
    for command in (("inspect", model), ("accuracy", pristine, "--input", model)):
        cli(*command, "-o", tmp_path / "p.png").refused("p.png must be called *.html")
    assert cli("inspect", model, "-o", tmp_path / "p").code == 0


def test_arrays_are_no_model(cli, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    cli("generate", tmp_path / "x.npy", "-o", tmp_path / "b").refused(
        "holds arrays of NumPy's, not a model; give"
    )


def test_lengths_that_are_neither(cli, model: Path, tmp_path: Path) -> None:
    build = tmp_path / "b"
    assert cli("generate", model, "-o", build, "--macs", "2", "--lanes", "4").code == 0
    np.save(tmp_path / "x.npy", np.zeros((3, 2, 3)))
    given = ("--input", tmp_path / "x.npy", "--lengths", "a", "--backend", "golden")
    cli("run", build, *given).refused("or a file, but 'a' is neither")


def test_python_names_both(model: Path) -> None:
    with pytest.raises(ModelError, match=r"`lstm` must name"):
        read_model(model, ReadOptions(lstm="q"))


def test_calibration_data_may_have_the_batch_first(cli, model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(7, 2, 3))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "batch.npy", x.swapaxes(0, 1))
    sizes = ["--macs", "2", "--lanes", "4", "--calibrate-lengths", "7,3"]
    for name, data, more in (("a", "x", []), ("b", "batch", ["--batch-first"])):
        given = ["--calibrate", tmp_path / f"{data}.npy", *sizes, *more]
        assert cli("generate", model, "-o", tmp_path / name, *given).code == 0
    first, second = (tmp_path / name for name in ("a", "b"))
    assert (first / "manifest.json").read_bytes() == (second / "manifest.json").read_bytes()
    third = tmp_path / "c"
    compile(
        model,
        calibration=x.swapaxes(0, 1),
        calibration_lengths=[7, 3],
        batch_first=True,
        lanes=4,
        macs=2,
        folder=third,
    )
    assert (first / "manifest.json").read_bytes() == (third / "manifest.json").read_bytes()
    cli("generate", model, "-o", second, "--calibrate", tmp_path / "batch.npy", *sizes).refused("lengths")
    np.save(tmp_path / "wide.npy", np.zeros((2, 7, 4)))
    wide = ["--calibrate", tmp_path / "wide.npy", "--batch-first"]
    cli("generate", model, "-o", second, *wide).refused("(N, T, 3)", "not (2, 7, 4)")
    cli("generate", model, "-o", second, "--batch-first").refused("--batch-first is the order of calibration")


def test_files_that_never_end_are_not_opened(cli, model: Path, tmp_path: Path) -> None:
    """Whatever file a command is told to read: a pipe would wait for its writer, and a device has no end."""
    build, pipe = tmp_path / "b", tmp_path / "pipe.npy"
    os.mkfifo(pipe)
    assert cli("generate", model, "-o", build, "--macs", "2", "--lanes", "4").code == 0
    np.save(tmp_path / "x.npy", np.zeros((3, 2, 3)))
    run = ("run", build, "--backend", "golden", "--input")
    for path, kind in ((pipe, "a pipe"), (Path("/dev/zero"), "a character device")):
        for command in (
            ("inspect", path),
            ("generate", path, "-o", tmp_path / "c"),
            ("generate", model, "-o", tmp_path / "c", "--calibrate", path),
            ("accuracy", build, "--input", path),
            ("accuracy", build, "--input", tmp_path / "x.npy", "--labels", path),
            (*run, path),
            (*run, tmp_path / "x.npy", "--lengths", path),
            (*run, tmp_path / "x.npy", "--state", path),
        ):
            cli(*command).refused(f"it is {kind}, not a regular file; copy its content into one")
    for name in ("weights.bin", "manifest.json"):
        (build / name).unlink()
        os.mkfifo(build / name)
        cli(*run, tmp_path / "x.npy").refused("it is a pipe, not a regular file; copy its content into one")
