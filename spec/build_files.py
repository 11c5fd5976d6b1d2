"""Files of a build folder that other tools compile: used only if they are what was generated.

Verilog can do what its simulator can, call C included, so that every file is checked before it is handed to
one. A hash shows that a file was damaged, changed or taken from another build. It does not show who
wrote the folder: whoever can change all of it can change the hashes, too.
"""

import hashlib
from pathlib import Path

from rtlstm.spec.errors import BuildError
from rtlstm.spec.manifest import Manifest

__all__ = ["check_rtl", "read_listed", "read_verilog"]


def read_listed(folder: Path, manifest: Manifest, name: str) -> bytes:
    """Return a file of a build folder, ``name`` relative to it, as its manifest lists it.

    A manifest that lists no files, one that was made in this process and not read from a folder, vouches
    for nothing, and nothing is checked.

    Raises
    ------
    BuildError
        If the file cannot be read, is not listed, or is another one than was generated.
    """
    path = Path(folder) / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BuildError(f"{path} cannot be read ({error.strerror}); generate the build again") from None
    if not manifest.files:
        return content
    wanted = next((file.sha256 for file in manifest.files if file.path == name), None)
    found = hashlib.sha256(content).hexdigest()
    if wanted != found:
        must = "is not listed in manifest.json" if wanted is None else "was changed after it was generated"
        raise BuildError(
            f"{path} {must} and is not used; generate the build again or, if the change is yours, write its "
            f"SHA-256 into 'files' of manifest.json: {found}"
        )
    return content


def check_rtl(folder: Path, manifest: Manifest) -> Path:
    """Return the path of a build's Verilog; errors as :func:`read_listed`."""
    read_listed(folder, manifest, manifest.rtl)
    return Path(folder) / manifest.rtl


def read_verilog(folder: Path, manifest: Manifest) -> str:
    """Return a build's Verilog; errors as :func:`read_listed`, or if it is no text."""
    try:
        return read_listed(folder, manifest, manifest.rtl).decode()
    except UnicodeDecodeError:
        raise BuildError(
            f"{Path(folder) / manifest.rtl} cannot be read (it is not text); generate the build again"
        ) from None
