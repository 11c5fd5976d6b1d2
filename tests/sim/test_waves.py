"""Waveforms of both simulators, and that the save file beside them shows what is in them."""

import io
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from support.bus_builds import two_ways, write_build, write_loadable
from support.quick import quick
from vcd.reader import TokenKind, tokenize

from rtlstm import ConfigurationError, InputError, Parameters, QuantizationSettings
from rtlstm.gen.builds.command_options import SimulateOptions
from rtlstm.gen.builds.compare import compare_build
from rtlstm.gen.builds.generate import generate_build
from rtlstm.host.transport import open_transport
from rtlstm.sim.backends import CYCLE_TIME

SMALL = QuantizationSettings(weight_bits=4, data_bits=6, gate_bits=6, cell_bits=8)
pytestmark = pytest.mark.rtl


def values(path: Path) -> dict[str, list[tuple[int, int | str]]]:
    """Times and new values of every variable, by its path."""
    scopes: list[str] = []
    names: dict[str, list[str]] = defaultdict(list)
    changes: dict[str, list[tuple[int, int | str]]] = defaultdict(list)
    now = 0
    # Amaranth's signals without a name are called $signal: the reader takes that for a command.
    text = re.sub(rb"(\$var \w+ \d+ \S+ )\$", rb"\1_", path.read_bytes())
    with io.BytesIO(text) as file:
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                scopes.append(token.scope.ident)
            elif token.kind is TokenKind.UPSCOPE:
                scopes.pop()
            elif token.kind is TokenKind.VAR:
                names[token.var.id_code].append(".".join([*scopes, token.var.reference]))
            elif token.kind is TokenKind.CHANGE_TIME:
                now = token.time_change
            elif token.kind is TokenKind.CHANGE_SCALAR:
                changes[token.scalar_change.id_code].append((now, token.scalar_change.value))
            elif token.kind is TokenKind.CHANGE_VECTOR:
                changes[token.vector_change.id_code].append((now, token.vector_change.value))
    return {name: changes[code] for code, listed in names.items() for name in listed}


def at(found: list[tuple[int, int | str]], time: int) -> int | str:
    return [value for when, value in found if when <= time][-1]


@pytest.mark.parametrize(
    ("kind", "simulator"),
    quick(
        [("steps", "icarus"), ("steps", "verilator"), ("loadable", "icarus"), ("sequences", "verilator")],
        ("steps", "icarus"),
    ),
)
def test_save_file_shows_the_steps(tmp_path: Path, kind: str, simulator: str) -> None:
    build, waves = tmp_path / "build", tmp_path / "core.vcd"
    if kind == "sequences":
        sizes = Parameters(lanes=4, macs=2, max_steps=3)
        manifest = generate_build(two_ways(), build, name="dut", settings=SMALL, parameters=sizes)
    else:
        manifest = {"steps": write_build, "loadable": write_loadable}[kind](build, "none", streams=1)
    asked = SimulateOptions(simulator=simulator, steps=3, verify=False, wave=waves)
    assert compare_build(build, asked)[0].passed
    found, saved = values(waves), (tmp_path / "core.gtkw").read_text()
    shown = re.findall(r"^(?:\+\{\w+\} )?([\w.]+)$", saved, re.MULTILINE)
    assert len(shown) >= 13 and set(shown) <= set(found)
    core = shown[0].removesuffix(".clk")

    markers = re.findall(r"^-([A-Z]): step (\d) (in|out), cycle (\d+)$", saved, re.MULTILINE)
    times = [int(time) for time in re.findall(r"^\*\S+ \S+ (.*)$", saved, re.MULTILINE)[0].split()]
    assert [(step, what) for _, step, what, _ in markers] == [
        (str(step), what) for step in range(3) for what in ("in", "out")
    ]
    cycles = [int(cycle) for *_, cycle in markers]
    ends = np.array([False, False, kind == "sequences"])
    assert [out - cycles[0] for out in cycles[1::2]] == manifest.schedule.offered(np.zeros(3, int), ends)
    clock = found[f"{core}.clk"]
    for time, (_, _, what, _), cycle in zip(times, markers, cycles, strict=False):
        # What is offered is looked at before the clock rises.
        ports = ("x_valid", "x_ready") if what == "in" else ("y_valid", "y_last")
        assert [int(at(found[f"{core}.{port}"], time)) for port in ports] == [1, 1]
        assert [int(at(clock, time + half)) for half in (0, 1)] == [0, 1]
        assert (time - times[0]) == CYCLE_TIME * (cycle - cycles[0])

    named = dict(line.split(" ", 1) for line in (tmp_path / "core.operations.txt").read_text().splitlines())
    index = found[next(name for name in shown if name.endswith("fetched__index"))]
    worked = {f"{int(value):x}" for _, value in index if isinstance(value, int)}
    assert len(named) == len(manifest.program.ops) and worked <= {f"{int(key, 16):x}" for key in named}
    assert {name.split()[-1] for name in named.values()} >= {"recurrent", "input"}


def test_icarus_writes_fst(tmp_path: Path) -> None:
    build, waves = tmp_path / "build", tmp_path / "größe" / "ein ñ.fst"
    waves.parent.mkdir()
    manifest = write_build(build, "none")
    with_waves = SimulateOptions(simulator="icarus", steps=2, verify=False, wave=waves)
    assert compare_build(build, with_waves)[0].passed
    # A file that was not closed has no hierarchy: the last block is of kind 4, 6 or 7.
    content = waves.read_bytes()
    kinds, position = [], 0
    while position < len(content):
        kinds.append(content[position])
        position += 1 + int.from_bytes(content[position + 1 : position + 9], "big")
    assert position == len(content) and kinds[0] == 0 and set(kinds) & {4, 6, 7}
    assert {each.name for each in waves.parent.iterdir()} == {
        f"ein ñ{end}" for end in (".fst", ".gtkw", ".operations.txt")
    }
    with pytest.raises(
        ConfigurationError, match=r"verilator's waveforms must be called \*\.vcd, not .*icarus"
    ):
        open_transport(f"verilator:{waves}", build, manifest)
    with pytest.raises(
        ConfigurationError, match=r"icarus's waveforms must be called \*\.vcd or \*\.fst, not"
    ):
        open_transport("icarus:core.txt", build, manifest)
    with pytest.raises(InputError, match="none/core.vcd"):
        open_transport(f"icarus:{tmp_path / 'none' / 'core.vcd'}", build, manifest)


@pytest.mark.parametrize("name", ["5", "waves"])
def test_bad_names_are_the_options(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend would take the first for a seed."""
    monkeypatch.chdir(tmp_path)
    write_build(tmp_path / "build", "none")
    asked = SimulateOptions(steps=2, verify=False, wave=Path(name))
    with pytest.raises(ConfigurationError, match=rf"`wave`: verilator's waveforms must be .* not '{name}'"):
        compare_build(tmp_path / "build", asked)
