"""Files of arrays: what numpy.save and numpy.savez write is read, anything else is one named error."""

import io
import re
import zipfile

import numpy as np
import pytest

from rtlstm.spec.errors import InputError
from rtlstm.spec.files import MAX_ELEMENTS, DamagedArraysError, read_arrays


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def npy(header: str, data: bytes = b"") -> bytes:
    """A file of version 1.0 with this header, whatever it says."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + data


def declare(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0, dtype=">f4").reshape(2, 3)),
        np.float16(3),
        np.zeros((0, 4), np.int8),
        np.array([True, False]),
        np.ones((2, 1), np.complex64),
    ],
)
def test_numpys_own_files(path, array):
    with path.open("wb") as file:
        np.save(file, array)
    found = read_arrays(path)
    assert found.dtype == array.dtype and found.flags.writeable
    np.testing.assert_array_equal(found, array)
    for write in (np.savez, np.savez_compressed):
        with path.open("wb") as file:
            write(file, x=array, y=np.arange(3))
        both = read_arrays(path)
        assert list(both) == ["x", "y"]
        np.testing.assert_array_equal(both["x"], array)


NO_HEADER = "it does not begin with a whole header of NumPy's"
FILES = {
    "empty": (b"", NO_HEADER),
    "text": (b"1, 2, 3\n", NO_HEADER),
    "pickle": (b"\x80\x04]\x94.", NO_HEADER),
    "other version": (b"\x93NUMPY\3\0" + bytes(20), "it is of the format's version (3, 0)"),
    "declares 40 GB": (
        npy(declare("(10000000000,)")),
        "it declares float32 (10000000000,), but holds 0 bytes",
    ),
    "beyond any integer": (npy(declare("(" + "9" * 4000 + ",)")), "it declares float32 (999"),
    # The product of the sizes has more digits than Python writes.
    "beyond any text": (npy(declare("(" + "9" * 4000 + ", " + "9" * 4000 + ")")), "it declares float32 (999"),
    "beside one of 0": (npy(declare("(0, " + "9" * 50 + ")")), "it declares float32 (0, 999"),
    "negative": (npy(declare("(-1,)")), "it declares float32 (-1,), but holds 0 bytes"),
    "objects": (npy(declare("(1,)", "'|O'"), bytes(8)), "it holds object, not numbers"),
    "text in it": (npy(declare("(1,)", "'<U4'"), bytes(16)), "it holds <U4, not numbers"),
    "of no bytes": (npy(declare("(10000000000,)", "'|V0'")), "it holds |V0, not numbers"),
    "arrays in it": (npy(declare("(1,)", "('<f4', (2,))"), bytes(8)), "it holds ('<f4', (2,)), not numbers"),
    "short": (npy(declare("(4,)"), bytes(12)), "it declares float32 (4,), but holds 12 bytes"),
    "open bracket": (npy("{'descr': ("), NO_HEADER),
    "deep": (npy("(" * 5000), NO_HEADER),
    "code": (npy("__import__('os').abort()"), NO_HEADER),
    "other keys": (npy("{'shape': (1,)}"), NO_HEADER),
    "shape of truths": (npy(declare("(True,)"), bytes(4)), NO_HEADER),
    "shape of fractions": (npy(declare("(1.0,)"), bytes(4)), NO_HEADER),
    "shape of names": (npy(declare("('a',)"), bytes(40)), NO_HEADER),
    "cut header": (npy(declare("(1,)"))[:30], NO_HEADER),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("archived", [False, True])
def test_other_files_are_named(path, name, archived):
    content, message = FILES[name]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("x.npy", content)
    path.write_bytes(data.getvalue() if archived else content)
    begins = "its member 'x.npy': " if archived else ""
    with pytest.raises(DamagedArraysError, match=f"^{re.escape(begins + message)}") as raised:
        read_arrays(path)
    assert len(str(raised.value)) < 150


def mark(data: bytes, **places: int) -> bytes:
    """Set bits in both headers of an archive's first member."""
    changed = bytearray(data)
    for start, shift in ((b"PK\3\4", 0), (b"PK\1\2", 2)):
        at = data.find(start)
        changed[at + 6 + shift] |= places.get("flags", 0)
        changed[at + 8 + shift] |= places.get("method", 0)
    return bytes(changed)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-30],
        lambda data: b"PK" + bytes(60),
        lambda data: mark(data, flags=1),
        lambda data: mark(data, method=99),
        lambda data: data[:70] + b"\xff" + data[71:],
        lambda data: data.replace(b"y.npy", b"x.npy"),
    ],
    ids=["cut", "zeros", "encrypted", "unknown compression", "changed", "one name twice"],
)
def test_damaged_archives_are_named(path, change):
    data = io.BytesIO()
    np.savez_compressed(data, x=np.arange(40), y=np.arange(3))
    path.write_bytes(change(data.getvalue()))
    with pytest.raises(DamagedArraysError):
        read_arrays(path)


def test_archive_that_unpacks_to_more_than_the_budget_is_refused(path):
    """Of what goes beyond it, nothing is unpacked."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in "xy":
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(npy(declare(str((MAX_ELEMENTS * 3 // 4,)), "'|i1'")))
                for _ in range(48):
                    member.write(bytes(2**20))
    with pytest.raises(InputError, match=rf"array 'y' of .* beyond the {MAX_ELEMENTS:,} elements"):
        read_arrays(path)
