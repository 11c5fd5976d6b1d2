"""The driver's simulated devices: a build's Verilog in a simulator, and its waveforms."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
from vcd.gtkw import GTKWSave, make_translation_filter

from rtlstm.host.raw_values import Steps
from rtlstm.host.transport import Transport, register_words
from rtlstm.sim.compile_model import NativeModel, build_native
from rtlstm.sim.icarus import IcarusModel, build_icarus
from rtlstm.sim.simulated_ports import Model, PortSpec, Simulator, StepCycles
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.files import check_writable, write_file
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest, check_rtl
from rtlstm.spec.parameters import ceil_log2
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import Register
from rtlstm.tools.cache import load_cached

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

        Raises ConfigurationError if the simulator does not write such files. Raises InputError if the file
        cannot be written.
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


_LOADED = 3
"""Register accesses in which a core loads its first operation, after the memory window was open."""


class SimulatedDevice(Transport):
    """A core in a simulator. With ``waves``, its first run writes the save file beside them.

    After a :class:`~rtlstm.spec.errors.DeviceError` the core's state is unknown: the device
    refuses all further calls but ``close``.
    """

    takes_sequences = True
    simulated = True

    def __init__(self, model: Model, ports: PortSpec, manifest: Manifest, waves: Waves | None = None) -> None:
        super().__init__(manifest)
        self._model: Model | None = model
        self._waves = waves
        self._ports = ports
        self._fault = ""
        empty = np.empty(0, dtype=np.int64)
        self.last_cycles = StepCycles(empty, empty, empty)
        """Cycles of each step of the last exchange."""

    @property
    def cycle(self) -> int:
        """Cycles since reset."""
        return self._use().cycle

    def stalls(self, seed: int, p_in: float, p_out: float) -> None:
        """Insert random stalls from now on: each input beat and bus request waits with probability
        ``p_in`` in each cycle, each output beat with ``p_out``. Zeros end the stalls.

        Raises ConfigurationError if a probability is not in [0, 1).
        """
        if not (0.0 <= p_in < 1.0 and 0.0 <= p_out < 1.0):
            raise ConfigurationError(
                f"stall probabilities must be at least 0 and below 1, not {p_in} and {p_out}"
            )
        self._use().stalls(seed, p_in, p_out)

    def write(self, register: Register, words: Sequence[int] | IntArray) -> None:
        """Write 32-bit words to a register, one after the other."""
        values, model = register_words(words), self._use()
        try:
            model.write(int(register), values.astype(np.uint32))
        except DeviceError as error:
            raise self._failed(error) from None

    def read(self, register: Register, count: int = 1) -> IntArray:
        """Read a register ``count`` times; 32-bit words as non-negative int64."""
        model = self._use()
        try:
            return model.read(int(register), count).astype(np.int64)
        except DeviceError as error:
            raise self._failed(error) from None

    def run_steps(self, steps: Steps) -> IntArray:
        """Run checked steps in order; see :meth:`rtlstm.host.transport.Transport.run_steps`."""
        model = self._use()
        if not len(steps):
            return np.empty((0, self._ports.outputs), dtype=np.int64)
        streams, x = steps.streams.astype(np.int32), steps.x.astype(np.int32)
        if not self.manifest.schedule.prepares:
            # Cycles are predicted for a core that has loaded its first operation. Where streams are prepared,
            # that takes longer.
            model.read(int(Register.ID), _LOADED)
        try:
            y, self.last_cycles = model.exchange(streams, x, steps.suppress, steps.ends)
        except DeviceError as error:
            raise self._failed(error) from None
        except BaseException:
            # After an interrupt there are unfinished steps in the core.
            self._fault = "it was interrupted"
            raise
        if self._waves is not None:
            self._waves.save(self.manifest, self.last_cycles)
            self._waves = None
        return y.astype(np.int64)

    def adopt(self, manifest: Manifest) -> None:
        """Take steps of another build of the same hardware from now on."""
        model = self._use()
        self.manifest = manifest
        self._ports = PortSpec.from_manifest(manifest)
        model.resize(self._ports)

    def close(self) -> None:
        """End the simulation. May be called again."""
        if self._model is not None:
            self._model.close()
            self._model = None

    def _use(self) -> Model:
        if self._model is None:
            raise DeviceError(f"{self._ports.name}: the device is closed; open it again")
        if self._fault:
            raise DeviceError(
                f"{self._ports.name}: the device cannot be used any more, because of an earlier "
                f"failure ({self._fault}); open it again"
            )
        return self._model

    def _failed(self, error: DeviceError) -> DeviceError:
        self._fault = str(error)
        return error


class VerilatorDevice(SimulatedDevice):
    """A natively compiled model. ``argument`` is the seed of the random initial contents, or a file for
    waveforms, ``*.vcd``."""

    def __init__(
        self, folder: Path, manifest: Manifest, argument: str = "", progress: Progress | None = None
    ) -> None:
        seeded = not argument or argument.isdecimal()
        if not (seeded or "." in argument):
            raise ConfigurationError(
                "what follows 'verilator:' must be a seed, a whole number, or a file for waveforms, *.vcd, "
                f"not {argument!r}"
            )
        waves = None if seeded else Waves.named(argument, "verilator")
        ports = PortSpec.from_manifest(manifest)
        verilog = check_rtl(folder, manifest)
        seed, path = int(argument or 1) if seeded else 1, None if waves is None else waves.path
        model = load_cached(
            lambda: build_native(verilog, ports, progress, waves is not None),
            lambda library: NativeModel(library, ports, seed, progress, path),
        )
        super().__init__(model, ports, manifest, waves)


class IcarusDevice(SimulatedDevice):
    """A four-state model: slow, but reports every unset bit. ``argument`` is a file for waveforms, ``*.vcd``
    or ``*.fst``."""

    def __init__(
        self, folder: Path, manifest: Manifest, argument: str = "", progress: Progress | None = None
    ) -> None:
        waves = Waves.named(argument, "icarus") if argument else None
        ports = PortSpec.from_manifest(manifest)
        verilog = check_rtl(folder, manifest)
        model = load_cached(
            lambda: build_icarus(verilog, ports, progress),
            lambda program: IcarusModel(program, ports, progress, None if waves is None else waves.path),
        )
        super().__init__(model, ports, manifest, waves)
