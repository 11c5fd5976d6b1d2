"""Bytes of raw transfers, right and wrong ones."""

from binascii import crc_hqx

from rtlstm.spec.link import RAW_CRC_BYTES, RAW_CRC_START, RAW_STEP, value_bytes
from rtlstm.spec.manifest import Manifest


def sealed(data: bytes) -> bytes:
    """Bytes with their checksum."""
    return data + crc_hqx(data, RAW_CRC_START).to_bytes(RAW_CRC_BYTES, "big")


def raw_step(x: bytes, head: int = 0) -> bytes:
    """A transfer with a step."""
    return sealed(bytes([RAW_STEP]) + head.to_bytes(2, "little") + x)


def input_bytes(manifest: Manifest) -> int:
    return manifest.program.inputs * value_bytes(manifest.numerics.input.bits)


def result_bytes(manifest: Manifest) -> int:
    """Bytes of a whole result."""
    return 1 + manifest.program.outputs * value_bytes(manifest.numerics.output_bits) + RAW_CRC_BYTES


def result_in(data: bytes) -> bytes:
    """What came behind zeros, up to its checksum, which is right; nothing if there is none such."""
    data = data.lstrip(b"\0")
    found = (data[:size] for size in range(3, len(data) + 1))
    return next((each for each in found if not crc_hqx(each, RAW_CRC_START)), b"")
