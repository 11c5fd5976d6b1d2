"""A command that is done names the one that usually follows."""

from pathlib import Path

import numpy as np
import pytest
from support.lazy import torch
from support.quick import quick
from support.small_builds import INPUTS

from rtlstm.cli.commands import next_command
from rtlstm.cli.implement import _board
from rtlstm.cli.run import _following


@pytest.mark.usefixtures("without_verilog")
def test_people_read_it_and_json_holds_it(cli, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a build"
    generate = ("generate", model, "-o", folder, "--lanes", "4", "--macs", "2")
    done = cli(*generate)
    assert done.code == 0 and done.err.splitlines()[-1] == f"next: rtlstm simulate '{folder}'"
    assert "next:" not in done.out
    done = cli(*generate, "--json")
    assert done.json["next"] == f"rtlstm simulate '{folder}'" and "next:" not in done.err
    assert cli("inspect", model, "--json").json["next"] == f"rtlstm generate {model} --output build/tiny"
    asked = ("--lstm", "lstm", "--dense", "fc:sigmoid")
    chosen = cli("inspect", model, *asked, "--json").json["next"]
    assert chosen == f"rtlstm generate {model} --output build/tiny --lstm lstm --dense fc:sigmoid"
    assert cli("inspect", folder, "--json").json["next"] is None


@pytest.mark.slow
def test_a_reverse_direction_needs_the_longest_sequence(cli, tmp_path: Path) -> None:
    torch.save(torch.nn.LSTM(3, 4, bidirectional=True).state_dict(), tmp_path / "bi.pt")
    following = cli("inspect", tmp_path / "bi.pt", "--json").json["next"]
    assert following.endswith("bi.pt --output build/bi --max-steps STEPS")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_the_order_of_axes_need_not_be_said(cli, tmp_path: Path) -> None:
    x = torch.zeros(2, 3, 3)
    torch.export.save(
        torch.export.export(torch.nn.LSTM(3, 4, batch_first=True).eval(), (x,)), tmp_path / "lstm.pt2"
    )
    following = cli("inspect", tmp_path / "lstm.pt2", "--json").json["next"]
    assert following.endswith("lstm.pt2 --output build/lstm")


def test_nothing_follows_an_error(cli, model: Path, tmp_path: Path) -> None:
    refused = ("generate", model, "-o", tmp_path / "b", "--lanes", "5")
    cli(*refused).refused("--lanes must be")
    assert cli(*refused, "--json").json["next"] is None


def test_nothing_follows_a_run(cli, pristine: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, INPUTS)))
    done = cli("run", pristine, "--backend", "golden", "--input", tmp_path / "x.npy", "--json")
    assert done.code == 0 and done.json["next"] is None


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize(
    ("device", "family", "lanes", "board"),
    quick(
        [
            ("lfe5u-85f", "ecp5", 4, "ulx3s-85f"),
            ("up5k", "ice40", 4, "icebreaker"),
            # With its link it is too large.
            ("up5k", "ice40", 32, None),
            ("xc7a35t", "xilinx", 4, None),
        ],
        ("up5k", "ice40", 4, "icebreaker"),
        ("up5k", "ice40", 32, None),
    ),
)
def test_a_board_has_the_device(
    cli, model: Path, tmp_path: Path, device: str, family: str, lanes: int, board: str | None
) -> None:
    array = ("--family", family, "--lanes", lanes, "--macs", 1)
    bits = ("--weight-bits", 6, "--data-bits", 6, "--gate-bits", 8, "--cell-bits", 12, "--tables", "direct")
    assert cli("generate", model, "-o", tmp_path / "b", *array, *bits).code == 0
    assert _board(tmp_path / "b", device) == board


@pytest.mark.slow
def test_device_of_a_build(cli, model: Path, pristine: Path, tmp_path: Path) -> None:
    for folder in (pristine, tmp_path):
        assert _following(folder) == next_command("implement", folder, device="DEVICE")
    folder = tmp_path / "fit"
    bits = ("--weight-bits", "4", "--data-bits", "8")
    assert cli("generate", model, "-o", folder, "--fit", "lfe5u-85f-8", *bits).code == 0
    assert _following(folder) == next_command("implement", folder, device="lfe5u-85f-8")
    assert cli("generate", model, "-o", folder, "--fit", "ulx3s-85f", *bits).code == 0
    assert _following(folder) == next_command("bitstream", folder, board="ulx3s-85f")


def test_words_are_quoted_for_a_shell() -> None:
    assert next_command("run", Path("a b"), input="x y.npy") == "rtlstm run 'a b' --input 'x y.npy'"
