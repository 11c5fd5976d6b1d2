"""A core in a PYNQ overlay, on a Zynq board: the backend ``pynq``.

:mod:`rtlstm.host.pynq_driver` is what PYNQ itself finds.
"""

from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from rtlstm.host.accelerator import Accelerator
from rtlstm.host.mmio import MmioTransport, check_fifos
from rtlstm.spec.errors import ConfigurationError, DeviceError, ToolError, distribution
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import CORE_TYPE, Register


class PynqRegisters:
    """Registers behind PYNQ's ``MMIO``, one word at a time.

    There is one user of an address at a time: a second one takes the registers over, as when a cell of a
    notebook runs again. The first one's further accesses raise DeviceError.
    """

    def __init__(self, mmio: Any) -> None:
        self._mmio: Any | None = mmio
        former = _USERS.pop(mmio.base_addr, None)
        if former is not None:
            former.close()
        _USERS[mmio.base_addr] = self

    def _use(self) -> Any:
        if self._mmio is None:
            raise DeviceError(
                "the core's registers have another user now, because it was opened again: use that "
                "accelerator, or open it once more"
            )
        return self._mmio

    def read(self, register: Register) -> int:
        """Read a register: an unsigned 32-bit word."""
        return int(self._use().read(4 * register))

    def write(self, register: Register, word: int) -> None:
        """Write an unsigned 32-bit word."""
        # PYNQ refuses subclasses of int.
        self._use().write(4 * register, int(word))

    def close(self) -> None:
        """Let go of the registers; PYNQ unmaps them with the overlay."""
        self._mmio = None


_USERS: Final = WeakValueDictionary[int, PynqRegisters]()
"""Who uses the registers at an address."""


def _pynq() -> Any:
    try:
        import pynq
    except ImportError as error:
        raise ToolError(
            f"overlays need the package pynq ({error}), on the Zynq board itself; install it there, beside "
            f"{distribution()}, with pip install pynq"
        ) from None
    return pynq


def load_overlay(bitstream: str | Path) -> Any:
    """Load an overlay into the logic and set its clock, as ``pynq.Overlay`` does; return that object.

    That of pynq 4.0.0 fails on a Zynq-7000: it looks for the clock's rate where only the ``.hwh`` of newer
    processors has it. The divisors, which set the same rate, are there.

    Raises ToolError if PYNQ is missing.
    """
    pynq = _pynq()
    overlay = pynq.Overlay(str(Path(bitstream).absolute()), download=False)
    clocks = {index: about for index, about in overlay.clock_dict.items() if about.get("enable")}
    if all(about.get("frequency", 0) is not None for about in clocks.values()):
        overlay.download()
        return overlay
    for index, about in clocks.items():
        pynq.Clocks.set_pl_clk(index, about["divisor0"], about["divisor1"])
    pynq.Bitstream.download(overlay, overlay.parser)
    return overlay


def open_core(
    core: Any, folder: str | Path, verify: bool = True, progress: Progress | None = None
) -> Accelerator:
    """Open a core of an overlay that is loaded, and load a build's weights into it.

    Raises BuildError, ImageError if the folder's manifest or weights cannot be used. Raises
    ConfigurationError if the build has no data FIFOs behind registers. Raises DeviceError if the core is not
    one of rtlstm or of this build, or its memories do not read back.

    Parameters
    ----------
    core
        PYNQ's driver of the core's cell. That of a block design of your own is a ``DefaultIP``.
    folder
        The build, or the overlay's folder: manifest and weights.
    verify, progress
        As for :meth:`rtlstm.host.Accelerator.open`.
    """

    def over_mmio(
        folder: Path, manifest: Manifest, argument: str, progress: Progress | None
    ) -> MmioTransport:
        check_fifos(manifest)
        return MmioTransport(PynqRegisters(core.mmio), manifest)

    return Accelerator.open(folder, over_mmio, verify, progress)


def open_pynq(
    folder: Path, manifest: Manifest, argument: str, progress: Progress | None = None
) -> MmioTransport:
    """Load an overlay into the logic and open its core; the factory of the backend ``pynq``.

    ``argument`` is the bitstream, with its ``.hwh`` beside it; by default that of the build's name in
    ``folder``. Raises ConfigurationError if the build has no data FIFOs behind registers, or a file is
    missing. Raises DeviceError if PYNQ cannot load the overlay, or it has not just one core. Raises ToolError
    if PYNQ is missing.
    """
    _pynq()
    check_fifos(manifest)
    bitstream = Path(argument) if argument else Path(folder) / f"{manifest.name}.bit"
    missing = [path.name for path in (bitstream, bitstream.with_suffix(".hwh")) if not path.is_file()]
    if missing:
        raise ConfigurationError(
            f"{bitstream.parent} must have the overlay's .bit and .hwh, but lacks {' and '.join(missing)}; "
            "Vivado makes both with the script of rtlstm bitstream, or give another one as pynq:FILE.bit"
        )
    hardware = bitstream.with_suffix(".xsa")
    if hardware.is_file():
        raise ConfigurationError(
            f"PYNQ would read {hardware.name} in the place of {bitstream.stem}.hwh, and fail; move "
            f"{bitstream.name} and its .hwh into a folder without it, such as the overlay's"
        )
    try:
        overlay = load_overlay(bitstream)
        cells = {name: about["type"] for name, about in overlay.ip_dict.items()}
        cores = [name for name, type_ in cells.items() if type_ == CORE_TYPE]
        core = getattr(overlay, cores[0]) if len(cores) == 1 else None
    # PYNQ and what it imports raise errors of many kinds.
    except Exception as error:
        raise DeviceError(f"PYNQ must load {bitstream}, but could not: {error}") from error
    if core is None:
        raise DeviceError(
            f"{bitstream.name} must have one cell of type {CORE_TYPE}, not {len(cores)} (its cells: "
            f"{', '.join(cells) or 'none'}); for a block design of your own, open the cell with "
            "rtlstm.host.pynq.open_core"
        )
    return MmioTransport(PynqRegisters(core.mmio), manifest)
