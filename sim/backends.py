"""The driver's simulated devices: a build's Verilog in a simulator, and the golden model.

Entry points of the group ``rtlstm.backends`` name the classes of this module.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rtlstm.host.steps import Steps
from rtlstm.host.transport import Transport, register_words
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.sim.icarus import IcarusModel, build_icarus
from rtlstm.sim.native import NativeModel, build_native
from rtlstm.sim.simulated_ports import Model, PortSpec, StepCycles
from rtlstm.sim.waves import Waves
from rtlstm.spec.build_files import check_rtl
from rtlstm.spec.errors import ConfigurationError, DeviceError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import Register
from rtlstm.tools.cache import load_cached

_LOADED = 3
"""Register accesses in which a core loads its first operation, after the memory window was open."""

__all__ = ["GoldenDevice", "IcarusDevice", "SimulatedDevice", "VerilatorDevice"]


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

        Raises
        ------
        ConfigurationError
            If a probability is not in [0, 1).
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
