"""Files of a build folder that its manifest lists: they are used only if their hashes match.

Verilog can call C code in a simulator, so every file is checked before a simulator reads it. A hash shows
that a file was damaged, changed or taken from another build. It does not show who wrote the folder: someone
who can change all files can change the hashes, too.
"""

import hashlib
from pathlib import Path

from rtlstm.spec.errors import BuildError
from rtlstm.spec.files import read_file
from rtlstm.spec.manifest import Manifest


def read_listed(folder: Path, manifest: Manifest, name: str) -> bytes:
    """Return a file of a build folder, ``name`` relative to it, as its manifest lists it.

    Nothing is checked if the manifest lists no files: it was then made in this process, not read from a
    folder.

    Raises
    ------
    BuildError
        If the file cannot be read, is not listed, or is not the file that was generated.
    """
    path = Path(folder) / name
    try:
        content = read_file(path)
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
    """Return the path of a build's Verilog. Raises the errors of :func:`read_listed`."""
    read_listed(folder, manifest, manifest.rtl)
    return Path(folder) / manifest.rtl


def read_verilog(folder: Path, manifest: Manifest) -> str:
    """Return a build's Verilog. Raises the errors of :func:`read_listed`, also if it is not text."""
    try:
        return read_listed(folder, manifest, manifest.rtl).decode()
    except UnicodeDecodeError:
        raise BuildError(
            f"{Path(folder) / manifest.rtl} cannot be read (it is not text); generate the build again"
        ) from None
