"""Results in a build folder besides the build; they are removed when the build is replaced."""

import shlex
from pathlib import Path

from rtlstm.boards.bitstream import BITSTREAM_RECORD
from rtlstm.boards.vivado import RECORD as VIVADO_RECORD
from rtlstm.fpga.implementation import Implementation
from rtlstm.gen.builds.command_options import DEFAULT_SEEDS
from rtlstm.gen.builds.report import BuildReport
from rtlstm.spec.errors import BuildError
from rtlstm.spec.record import Record

__all__ = ["FormerResult", "ReplacedWarning", "former_results"]


class ReplacedWarning(UserWarning):
    """A build was replaced, and results of the former build were removed."""


class FormerResult(Record):
    """A result of ``rtlstm implement`` or ``rtlstm bitstream``."""

    path: str
    """Path in the build folder."""
    command: str
    """The command that makes it again; unchanged results of synthesis and routing come from the cache."""

    @property
    def text(self) -> str:
        """A sentence for messages."""
        return f"{self.path} belonged to the former build and is removed; make it again with '{self.command}'"


def former_results(folder: Path) -> tuple[FormerResult, ...]:
    """Return the results of commands after ``generate`` in a build folder; none if it is not a build."""
    folder = Path(folder)
    try:
        implementations = BuildReport.load(folder).implementations
    except BuildError:
        implementations = ()
    by_folder = {each.folder: each for each in implementations}
    found = [
        FormerResult(path=f"impl/{path.name}", command=_implement(folder, by_folder.get(path.name)))
        for path in sorted(folder.glob("impl/*"))
    ]
    for path in sorted(folder.glob("boards/*")):
        if any((path / name).exists() for name in (BITSTREAM_RECORD, VIVADO_RECORD)):
            command = shlex.join(["rtlstm", "bitstream", str(folder), "--board", path.name])
            found.append(FormerResult(path=f"boards/{path.name}", command=command))
    return tuple(found)


def _implement(folder: Path, made: Implementation | None) -> str:
    words = ["rtlstm", "implement", str(folder), "--device"]
    if made is None:
        return f"{shlex.join(words)} DEVICE"
    words += [made.device, "--package", made.package]
    if made.speed_grade:
        words += ["--speed-grade", made.speed_grade]
    if made.cores > 1:
        words += ["--cores", str(made.cores)]
    if made.requested_mhz is not None:
        words += ["--clock", f"{made.requested_mhz:g}"]
    if len(made.seeds) not in (0, DEFAULT_SEEDS):
        words += ["--seeds", str(len(made.seeds))]
    if not made.multiplier_blocks:
        words.append("--no-dsp")
    if made.insist:
        words.append("--try")
    return shlex.join(words)
