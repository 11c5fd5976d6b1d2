"""Registers and flags: golden device and RTL answer alike."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.quick import quick
from support.random_builds import Case, random_case

from rtlstm.host import Accelerator
from rtlstm.host.transport import Transport
from rtlstm.spec.errors import InputError
from rtlstm.spec.registers import IDENTITY, Command, Region, Register

pytestmark = pytest.mark.rtl


@cache
def pick_case() -> Case:
    """A case with several streams, and tables that Icarus loads in seconds."""
    case = random_case(515, sizes=(2, 3, 5))
    assert case.manifest.parameters.streams == 3
    return case


def flags(device: Transport) -> list[int]:
    found = []
    for stream in range(3):
        device.write(Register.STREAM, [stream])
        found.append(int(device.read(Register.FLAGS)[0]))
    return found


def rewrite(device: Transport, region: Region) -> None:
    """Write a region's first row with what it holds."""
    device.write(Register.SELECT, [region << 28])
    device.write(Register.ROW, [0])
    words = device.read(Register.DATA, WORDS[region])
    device.write(Register.ROW, [0])
    device.write(Register.DATA, words)
    assert device.read(Register.ROW)[0] == 1 and device.read(Register.SELECT)[0] == region << 28


WORDS: dict[Region, int] = {}


def play(accelerator: Accelerator, case: Case) -> list[object]:
    """Do what a host may do; return everything the registers say on the way."""
    device = accelerator.device.transport
    WORDS.update({region: layout.words for region, layout in accelerator.manifest.regions.items()})
    said: list[object] = [flags(device)]
    one = np.array([1])
    for _ in range(2):
        device.exchange(one, case.x[:1])
        device.read(Register.CYCLES, 4 * case.manifest.cycles.step_interval_cycles)
        said += [flags(device), int(device.read(Register.LATENCY)[0])]
    device.exchange(np.array([2, 1, 2, 0]), case.x[:1].repeat(4, axis=0))
    for region in (Region.CELLS, Region.VECTORS, Region.WEIGHTS, Region.SHIFTS, Region.TANH):
        rewrite(device, region)
        said.append(flags(device))
        device.exchange(np.array([0, 1, 2]), case.x[:1].repeat(3, axis=0))
        said.append(flags(device))
    device.write(Register.STREAM, [2])
    for command in (Command.STATE_WRITTEN, Command.RESET, Command.HAND_OVER, 0, 7):
        device.write(Register.COMMAND, [command])
        said.append(flags(device))
        device.write(Register.STREAM, [2])
    registers = (Register.ID, Register.BUILD, Register.STREAM, Register.STEPS)
    said += [int(device.read(register)[0]) for register in registers]
    said.append(int(device.read(Register.CELL_SATURATIONS)[0]))
    return said


@pytest.mark.parametrize("backend", quick(("icarus", "verilator"), "verilator"))
def test_registers_answer_alike(backend: str, tmp_path: Path) -> None:
    case = pick_case()
    case.write(tmp_path)
    with Accelerator.open(tmp_path, backend="golden") as golden:
        expected = play(golden, case)
    assert expected[-5] == IDENTITY
    with Accelerator.open(tmp_path, backend=backend) as accelerator:
        assert play(accelerator, case) == expected


@pytest.mark.parametrize("backend", quick(["icarus", "verilator"], "verilator"))
def test_bad_steps_are_refused_and_harm_nothing(backend: str, tmp_path: Path) -> None:
    """What is refused reaches no register of the core: it then computes as if nothing had happened."""
    case = pick_case()
    case.write(tmp_path)
    good: dict[str, Any] = {"streams": case.streams, "x": case.x}
    with Accelerator.open(tmp_path, backend="golden") as golden:
        golden.device.reset([0, 1, 2])
        expected = golden.device.transport.exchange(**good)
    with Accelerator.open(tmp_path, backend=backend, verify=False) as accelerator:
        accelerator.device.reset([0, 1, 2])
        device = accelerator.device.transport
        before = device.read(Register.STEPS)[0]
        for wrong, message in (
            ({"x": case.x[:, 1:]}, "x must be"),
            ({"x": case.x + (1 << 20)}, "x must be within"),
            ({"x": case.x.astype(float)}, "x must"),
            ({"streams": case.streams + 3}, "streams must be within 0 to 2"),
        ):
            with pytest.raises(InputError, match=message):
                device.exchange(**(good | wrong))
        with pytest.raises(InputError, match="words must be within 0 to"):
            device.write(Register.DATA, [-1])
        assert device.read(Register.STEPS)[0] == before
        np.testing.assert_array_equal(device.exchange(**good), expected)
    assert expected.any()
