"""Waveforms of a simulated core: the file's name, and a save file by which GTKWave shows a step's phases."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from vcd.gtkw import GTKWSave, make_translation_filter

from rtlstm.sim.simulated_ports import StepCycles
from rtlstm.sim.sources import Simulator
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.files import check_writable, write_file
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import ceil_log2

RESET_CYCLES: Final = 8
"""Cycles of the harnesses' reset, before cycle 0."""
CYCLE_TIME: Final = 2
"""Units of the waveforms' time that a cycle takes: the clock is low in the first and high in the second."""

_FORMATS: Final[dict[Simulator, tuple[str, ...]]] = {"verilator": (".vcd",), "icarus": (".vcd", ".fst")}
_SCOPES: Final[dict[Simulator, str]] = {"verilator": "core.{name}", "icarus": "rtlstm_harness.core"}
"""Path of the core's instance in the waveforms; ``name`` is the build's."""
_MARKERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Waves:
    """A file for waveforms, which begin with the first step: weights are loaded before."""

    path: Path
    simulator: Simulator

    @classmethod
    def named(cls, name: str, simulator: Simulator) -> Self:
        """Take a file's name, absolute or relative to the current folder.

        Raises
        ------
        ConfigurationError
            If the simulator does not write such files.
        InputError
            If the file cannot be written.
        """
        path, formats = Path(name), _FORMATS[simulator]
        if path.suffix.lower() not in formats:
            called = " or ".join(f"*{each}" for each in formats)
            also = "; icarus writes *.fst, too" if simulator == "verilator" else ""
            raise ConfigurationError(f"{simulator}'s waveforms must be called {called}, not {name!r}{also}")
        check_writable(path)
        return cls(path.absolute(), simulator)

    @property
    def save_file(self) -> Path:
        """GTKWave's save file."""
        return self.path.with_suffix(".gtkw")

    @property
    def operations_file(self) -> Path:
        """The names of the operations, which the save file refers to."""
        return self.path.with_suffix(".operations.txt")

    def save(self, manifest: Manifest, cycles: StepCycles) -> None:
        """Write the save file: ports and the array's work in groups, and markers where steps begin and end.

        The array's operation is shown by name, such as ``lstm recurrent``: the phases of a step.
        """
        names = [
            (index, f"{manifest.layers[op.layer].name} {op.kind}")
            for index, op in enumerate(manifest.program.ops)
        ]
        bits = max(1, ceil_log2(manifest.capacity.operations))
        write_file(self.operations_file, make_translation_filter(names, datafmt="hex", size=bits))
        text = io.StringIO()
        file = GTKWSave(text)
        file.comment(
            f"{manifest.name}: {len(cycles.begun)} steps in the first run. A cycle takes {CYCLE_TIME} units."
        )
        file.dumpfile(str(self.path))
        events = [
            (what, int(each[step]))
            for step in range(len(cycles.begun))
            for what, each in ((f"step {step} in", cycles.begun), (f"step {step} out", cycles.offered))
            # A step whose output is suppressed has no end.
            if each[step] >= 0
        ]
        marked = dict(zip(_MARKERS, events, strict=False))
        times = {letter: self.time(cycle) for letter, (_, cycle) in marked.items()}
        file.timestart(min(times.values(), default=0))
        # pyvcd declares the time of each marker as a dict, and takes it as an int.
        file.zoom_markers(-4.0, times.get("a", -1), **times)  # type: ignore[arg-type]
        with file.group("markers"):
            for letter, (what, cycle) in marked.items():
                file.blank(f"{letter.upper()}: {what}, cycle {cycle}")
        self._traces(file, manifest)
        write_file(self.save_file, text.getvalue())

    def _traces(self, file: GTKWSave, manifest: Manifest) -> None:
        """List the signals, by phase."""
        core = _SCOPES[self.simulator].format(name=manifest.name)
        sequencer = f"{core}.core.sequencer"
        last = ("x_last",) if manifest.sequence is not None else ()
        file.trace(f"{core}.clk")
        with file.group("input"):
            for name in ("x_valid", "x_ready", "x_stream", "x_quiet", *last, "x_data"):
                file.trace(f"{core}.{name}")
        with file.group("array"):
            names = str(self.operations_file)
            file.trace(f"{sequencer}.fetched__index", alias="operation", translate_filter_file=names)
            file.trace(f"{sequencer}.issued", alias="multiplies")
        with file.group("output"):
            for name in ("y_valid", "y_ready", "y_stream", "y_last", "y_data"):
                file.trace(f"{core}.{name}")

    @staticmethod
    def time(cycle: int) -> int:
        """The time at which a cycle begins."""
        return CYCLE_TIME * (cycle + RESET_CYCLES)
