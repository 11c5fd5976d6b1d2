"""Writes a build folder completely or not at all, and tells which results of a former build that removes."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rtlstm.fpga.implementation import Implementation
from rtlstm.gen.builds.command_options import DEFAULT_SEEDS
from rtlstm.gen.ip import IpPaths
from rtlstm.spec.errors import BuildError
from rtlstm.spec.files import locked, read_file
from rtlstm.spec.manifest import C_HEADER, EMBEDDINGS, INITIAL_STATE
from rtlstm.spec.record import Record

FINAL_STATES = "final_states.npz"
"""Final states of the calibration data's sequences, for another build that begins in them."""

_OURS = {
    "manifest.json",
    "rtl",
    "weights.bin",
    INITIAL_STATE,
    EMBEDDINGS,
    FINAL_STATES,
    C_HEADER,
    "report.json",
    "report.html",
    "sim",
    "impl",
    "boards",
}


def check_target(folder: Path) -> Path:
    """Return the real path of a folder that a build may be written to.

    Raises BuildError if it holds anything but a build, is not a folder or is the current one.
    """
    folder = Path(folder).resolve()
    if not folder.exists():
        return folder
    if not folder.is_dir():
        raise BuildError(f"the build must go to a folder, but {folder} is a file; choose another path")
    if folder == Path.cwd():
        raise BuildError(
            f"the build must not replace the current folder {folder}; name another, or run from elsewhere"
        )
    found = sorted(path.name for path in folder.iterdir())
    if not found:
        return folder
    name = _build_name(folder)
    if name is None:
        raise BuildError(
            f"{folder} must be new, empty or an rtlstm build, but it is none of these "
            f"(it holds {found[0]!r}); choose another folder"
        )
    foreign = sorted(set(found) - _OURS - IpPaths(name).top)
    if foreign:
        raise BuildError(
            f"{folder} is a build that would be replaced, but it also holds {foreign[0]!r}; "
            "move that away or choose another folder"
        )
    return folder


def _build_name(folder: Path) -> str | None:
    """The name of the build in a folder; None if there is no build."""
    try:
        fields = json.loads(read_file(folder / "manifest.json"))
    except (OSError, ValueError, RecursionError):
        return None
    return str(fields.get("name")) if isinstance(fields, dict) and "build_hash" in fields else None


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files, named relative to ``folder``, text as UTF-8 with plain line ends."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a new folder that replaces ``target`` when the block ends without an error.

    After an error or an interrupt, ``target`` is unchanged and the new folder is removed; what a killed
    process left is removed by the next one. ``target`` must have passed :func:`check_target`.

    Raises BuildError if the files cannot be written.
    """
    made = [path for path in target.parents if not path.exists()]
    work = _beside(target, "new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as locks:
            # Nobody clears between the making of the folder and its lock.
            with locked(target.parent, wait=True) as alone:
                if alone:
                    _clear(target)
                work.mkdir()
                locks.enter_context(locked(work))
            yield work
            _swap(work, target)
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        if target.exists():
            # The interrupt may have come while the old build was being removed.
            shutil.rmtree(_beside(target, "old"), ignore_errors=True)
        for path in made:
            with suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError):
            # Without the file's name: it is in the new folder, which nobody named.
            reason = error.strerror or error
            raise BuildError(
                f"the build cannot be written to {target}: {reason}; name another folder"
            ) from None
        raise


def _beside(target: Path, kind: str) -> Path:
    return target.parent / f".{target.name}.{os.getpid()}.{kind}"


def _clear(target: Path) -> None:
    """Remove folders that killed processes left, and give an old build its name back if it is alone."""
    for left in [*target.parent.glob(".*")]:
        named = re.fullmatch(r"\.(.*)\.\d+\.(new|old)", left.name)
        if named is None or named[1] != target.name:
            continue
        if named[2] == "old" and not target.exists():
            left.rename(target)
        elif named[2] == "old":
            shutil.rmtree(left, ignore_errors=True)
        else:
            with locked(left) as alone:
                if alone:
                    shutil.rmtree(left, ignore_errors=True)


def _swap(work: Path, target: Path) -> None:
    old = _beside(target, "old")
    with locked(target.parent, wait=True):
        try:
            if target.exists():
                target.rename(old)
            work.rename(target)
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise
        finally:
            # The new build is complete, so remains of the old one are not needed.
            if target.exists():
                shutil.rmtree(old, ignore_errors=True)


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
    # Boards bring Amaranth and reports the golden model, which whoever only looks at a folder does not need.
    from rtlstm.boards.bitstream import BITSTREAM_RECORD
    from rtlstm.boards.zynq import RECORD as VIVADO_RECORD
    from rtlstm.gen.builds.report import BuildReport

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
    """The command that made an implementation; DEVICE stands for what is not known."""
    words = ["rtlstm", "implement", str(folder), "--device"]
    if made is None:
        return f"{shlex.join(words)} DEVICE"
    seeds = made.tried
    options = {
        "--package": made.package,
        "--speed-grade": made.speed_grade,
        "--cores": made.cores if made.cores > 1 else None,
        "--clock": None if made.requested_mhz is None else f"{made.requested_mhz:g}",
        "--seeds": seeds if seeds != DEFAULT_SEEDS else None,
    }
    words += [made.device, *(str(word) for pair in options.items() if pair[1] for word in pair)]
    words += ["--no-dsp"] * (not made.multiplier_blocks) + ["--try"] * made.insist
    return shlex.join(words)
