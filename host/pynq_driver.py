"""The driver that PYNQ gives a core in an overlay.

PYNQ imports this module with each overlay: entry point of the group ``pynq.lib``. Nothing else does.
"""

from pathlib import Path

from pynq import DefaultIP

from rtlstm.host.accelerator import Accelerator
from rtlstm.host.pynq import open_core
from rtlstm.spec.progress import Progress
from rtlstm.spec.registers import CORE_TYPE


class RtlstmCore(DefaultIP):
    """What ``overlay.core`` is: a cell of the type in the block designs of ``rtlstm bitstream``."""

    bindto = (CORE_TYPE,)

    def open(self, folder: str | Path, verify: bool = True, progress: Progress | None = None) -> Accelerator:
        """Load a build's weights into the core; see :func:`rtlstm.host.pynq.open_core`."""
        return open_core(self, folder, verify, progress)
