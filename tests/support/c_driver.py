"""The C driver for memory-mapped registers, compiled for this machine: its accesses go to a register file."""

import ctypes
import subprocess
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Protocol

import numpy as np

from rtlstm.gen.ip.files import c_header, driver_files
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import C_HEADER, Manifest
from rtlstm.spec.registers import Register
from support.paths import TESTS

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1")
PORT = TESTS / "support"
BASE = 0x4000_0000
LOAD, STORE = CFUNCTYPE(c_uint32, c_size_t), CFUNCTYPE(None, c_size_t, c_uint32)


class Registers(Protocol):
    def read(self, register: Register) -> int: ...
    def write(self, register: Register, word: int) -> None: ...


def write_sources(folder: Path, manifest: Manifest) -> list[Path]:
    """Header and driver of a build; the files to compile."""
    folder.mkdir(exist_ok=True)
    texts = driver_files(manifest) | {C_HEADER: c_header(manifest)}
    for name, text in texts.items():
        (folder / Path(name).name).write_text(text)
    return [folder / "rtlstm_mmio.c", PORT / "c_driver_port.c"]


def compile_driver(folder: Path, manifest: Manifest, *options: str) -> Path:
    """A library of the driver and one build."""
    sources, library = write_sources(folder, manifest), folder / "driver.so"
    include = ("-include", PORT / "c_driver_port.h", "-I", folder)
    subprocess.run(
        ["gcc", *STRICT, *options, *include, "-shared", "-fPIC", "-o", library, *sources], check=True
    )
    return library


class CDriver:
    """A core through the C driver. What a call returns is its code."""

    def __init__(self, folder: Path, manifest: Manifest, registers: Registers) -> None:
        self.manifest = manifest
        self.library = ctypes.CDLL(str(compile_driver(folder, manifest, "-fsanitize=undefined")))
        self.library.rtlstm_mmio_message.restype = ctypes.c_char_p
        self._functions = (
            LOAD(lambda address: registers.read(Register((address - BASE) // 4))),
            STORE(lambda address, word: registers.write(Register((address - BASE) // 4), word)),
        )
        c_void_p.in_dll(self.library, "port_load").value = ctypes.cast(self._functions[0], c_void_p).value
        c_void_p.in_dll(self.library, "port_store").value = ctypes.cast(self._functions[1], c_void_p).value
        self.core = byref(c_uint32.in_dll(self.library, "port_core"))
        self.build = byref(c_uint32.in_dll(self.library, "port_build"))

    def open(self) -> int:
        return int(self.library.rtlstm_mmio_open(self.core, c_size_t(BASE), self.build))

    def set_polls(self, polls: int) -> None:
        self.library.port_set_polls(polls)

    def load(self, image: bytes) -> int:
        return int(self.library.rtlstm_mmio_load(self.core, self.build, image, c_size_t(len(image))))

    def reset(self, stream: int) -> int:
        return int(self.library.rtlstm_mmio_reset(self.core, stream))

    def run(self, stream: int, x: IntArray) -> IntArray | int:
        y = np.zeros((len(x), self.manifest.program.outputs), dtype=np.int32)
        code = self.library.rtlstm_mmio_run(self.core, stream, integers(x), integers(y), c_size_t(len(x)))
        return int(code) or y

    def step(self, stream: int, x: IntArray) -> IntArray | int:
        y = np.zeros(self.manifest.program.outputs, dtype=np.int32)
        return int(self.library.rtlstm_mmio_step(self.core, stream, integers(x), integers(y))) or y

    def send(self, stream: int, x: IntArray) -> int:
        return int(self.library.rtlstm_mmio_send(self.core, stream, integers(x)))

    def receive(self) -> tuple[int, IntArray] | int:
        y, stream = np.zeros(self.manifest.program.outputs, dtype=np.int32), c_uint32()
        code = self.library.rtlstm_mmio_receive(self.core, byref(stream), integers(y))
        return int(code) or (stream.value, y)

    def read_state(self, stream: int, h: IntArray, c: IntArray) -> int:
        return int(self.library.rtlstm_mmio_read_state(self.core, stream, integers(h), integers(c)))

    def write_state(self, stream: int, h: IntArray, c: IntArray) -> int:
        return int(self.library.rtlstm_mmio_write_state(self.core, stream, integers(h), integers(c)))

    def message(self, code: int) -> str:
        return str(self.library.rtlstm_mmio_message(c_int(code)).decode())


def integers(values: IntArray) -> "ctypes._Pointer[c_int32]":
    """A C array of the values; outputs must have 32 bits, or what is written is lost."""
    return np.ascontiguousarray(values, dtype=np.int32).ctypes.data_as(POINTER(c_int32))
