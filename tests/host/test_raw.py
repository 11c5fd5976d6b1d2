"""Raw steps: the host's side, against a device that answers as the page says, or wrongly."""

import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from support.paths import DOCS
from support.raw_transfers import raw_step, sealed

from rtlstm.host.link.raw import RawLink, UdpExchange
from rtlstm.spec.errors import DeviceError, InputError
from rtlstm.spec.link import RESET_STATE, FrameType, value_bytes
from rtlstm.spec.manifest import Manifest

PAGE = (DOCS / "link.md").read_text()


@pytest.fixture
def manifest(pristine: Path) -> Manifest:
    return Manifest.load(pristine)


def packed(values: range, bits: int) -> bytes:
    return b"".join(value.to_bytes(value_bytes(bits), "little") for value in values)


@pytest.fixture
def good(manifest: Manifest) -> bytes:
    """A result: its outputs are 0, 1, 2 and so on."""
    outputs = packed(range(manifest.program.outputs), manifest.numerics.output_bits)
    return sealed(bytes([FrameType.DONE]) + outputs)


def test_the_page_has_these_bytes():
    assert raw_step(b"\x05\xff", 2).hex(" ") in PAGE
    assert sealed(b"\x90\x07\xfe").hex(" ") in PAGE
    assert int.from_bytes(sealed(b"123456789")[9:], "big") == 0x29B1 and "0x29B1" in PAGE


def test_a_step_over_spi(manifest: Manifest, good: bytes):
    """The result comes in the same transfer, or in one of the next."""
    sent = []

    def exchange(data: bytes) -> bytes:
        sent.append(data)
        if spare and len(sent) == 1:
            return data[:-spare] + b"\0\0" + good + bytes(spare)
        return bytes([0x90, 0]) + (good if len(sent) == 3 else b"").ljust(len(data), b"\0")

    x = np.arange(manifest.program.inputs)
    for spare, transfers in ((5, 1), (0, 3)):
        sent.clear()
        y = RawLink(manifest, exchange, spare).step(x, reset=True)
        assert y.tolist() == list(range(manifest.program.outputs)) and len(sent) == transfers
        step = raw_step(packed(range(len(x)), manifest.numerics.data_bits), RESET_STATE)
        assert sent[0] == step + bytes(spare and spare + len(good))
        assert all(data == bytes(2 + len(good)) for data in sent[1:])


def test_no_whole_result(manifest: Manifest, good: bytes):
    x = np.zeros(manifest.program.inputs, dtype=int)
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    for answer in (b"", good[:-1], damaged, sealed(b"\x10" + good[1:-2])):
        with pytest.raises(DeviceError, match="no whole result came; .* reset the state"):
            RawLink(manifest, lambda _: answer, seconds=0.01).step(x)  # noqa: B023
    with pytest.raises(DeviceError, match="no whole result came"):
        RawLink(manifest, lambda data: data, 0, seconds=0.01).step(x)
    with pytest.raises(DeviceError, match="no such stream"):
        RawLink(manifest, lambda _: sealed(bytes([FrameType.ERROR, 4]))).step(x)
    with pytest.raises(InputError):
        RawLink(manifest, lambda _: good).step(x, stream=manifest.parameters.streams)


def test_results_may_take_long(manifest: Manifest, good: bytes):
    """Over SPI for as many transfers as there is time for; of datagrams, those with no result are skipped."""
    sent, x = [], np.zeros(manifest.program.inputs, dtype=int)

    def exchange(data: bytes) -> bytes:
        sent.append(data)
        return (good if len(sent) == 1000 else b"").rjust(len(data), b"\0")

    found = RawLink(manifest, exchange, 0, seconds=60).step(x)
    assert found.tolist() == list(range(manifest.program.outputs)) and len(sent) == 1000

    def answer() -> None:
        _, host = board.recvfrom(2000)
        for datagram in (b"", sealed(b"\x10"), good[:-1], good):
            board.sendto(datagram, host)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as board:
        board.bind(("127.0.0.1", 0))
        board.settimeout(10)
        with UdpExchange("127.0.0.1", board.getsockname()[1], 10) as exchange_udp:
            thread = threading.Thread(target=answer)
            thread.start()
            found = RawLink(manifest, exchange_udp, seconds=10).step(x)
            thread.join()
    assert found.tolist() == list(range(manifest.program.outputs))


def test_no_such_host():
    with pytest.raises(DeviceError, match="must be reachable for raw steps"):
        UdpExchange("no.such.host.invalid")
    with UdpExchange("127.0.0.1", 9, 0.01) as exchange:
        assert exchange(b"\1") == b""
