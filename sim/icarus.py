"""A core under Icarus Verilog: slow, but a four-state simulation, in which unset bits are seen.

``harness.v`` runs in one ``vvp`` process for the device's whole life; commands and results are
lines of text through its standard input and output.
"""

import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from rtlstm.sim.simulated_ports import (
    SIMULATION,
    PortFault,
    PortSpec,
    StepCycles,
    copy_sources,
    own_file,
    pack_beats,
    sign_extend,
    simulation_sources,
    step_marks,
    unpack_beats,
)
from rtlstm.spec.errors import DeviceError, ToolError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.progress import Progress, tell
from rtlstm.tools.cache import cached, digest
from rtlstm.tools.toolchain import icarus, run_tool

_PROGRAM = "core.vvp"
_WRITING = 60
"""Seconds in which a program must have written its waveforms after its last command."""
_DUE = 1024
"""Steps that may be in the core at once, in addition to those of a sequence."""


def build_icarus(verilog: Path, ports: PortSpec, progress: Progress | None = None) -> Path:
    """Compile a core and return the program for ``vvp``, from the cache if it is there.

    Raises ToolError if Icarus Verilog is missing or fails.
    """
    tool = icarus()
    harness = own_file("harness.v").read_text()
    sizes = {
        "TOP": ports.name,
        "X_BITS": ports.beat_in * ports.data_bits,
        "Y_BITS": ports.beat_out * ports.y_bits,
        "STREAM_BITS": ports.stream_bits,
        "DUE": _DUE + ports.sequence_steps,
    }
    defines = [f"-D{SIMULATION}", *(f"-DRTLSTM_{name}={size}" for name, size in sizes.items())]
    defines += ["-DRTLSTM_SEQUENCES"] if ports.sequence_steps else []
    sources = simulation_sources(verilog, ports.family)
    texts = [path.read_bytes() for path in sources]

    def build(folder: Path) -> None:
        what = f"compiling {ports.name} for simulation"
        tell(progress, what, 0, 1)
        names = copy_sources([*sources, own_file("harness.v")], folder)
        command: list[str | Path] = [tool.iverilog, "-g2012", *defines, "-s", "rtlstm_harness"]
        run_tool([*command, "-o", _PROGRAM, *names], what, folder)
        for name in names:
            (folder / name).unlink()
        # iverilog does not notice when the disk is full. Without commands the program ends after its reset.
        said = run_tool([tool.vvp, "-n", _PROGRAM], what, folder)
        if "k 0" not in said.splitlines():
            raise ToolError(f"{what} failed: the program ends at once; is the disk full?")
        tell(progress, what, 1, 1)

    key = digest(*texts, harness, tool.version, *defines)
    return cached("icarus", key, build, progress) / _PROGRAM


class IcarusModel:
    """A core in a program of :func:`build_icarus`.

    Implements :class:`rtlstm.sim.simulated_ports.Model`. It writes ``waves``, if given; they are complete
    when it is closed.
    """

    def __init__(
        self, program: Path, ports: PortSpec, progress: Progress | None = None, waves: Path | None = None
    ) -> None:
        self._ports = ports
        self._progress = progress
        self._junk = np.random.default_rng(1)
        self._process = subprocess.Popen(
            # -n: $stop or an interrupt ends the program instead of asking the user.
            [str(icarus().vvp), "-n", str(program), *_dump_options(waves)],
            cwd=None if waves is None else waves.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Ctrl-C of the terminal must reach only this process, which then closes the model.
            start_new_session=True,
        )
        self._waves = waves
        self._other: list[str] = []
        self._cycle = 0
        try:
            self._await_done()
            self.resize(ports)
        except BaseException:
            self.close()
            raise

    @property
    def cycle(self) -> int:
        """Cycles since reset."""
        return self._cycle

    def resize(self, ports: PortSpec) -> None:
        """Take steps of other sizes from now on."""
        self._ports = ports
        self._send([f"n {ports.beats_in:x} {ports.beats_out:x} {ports.timeout_cycles:x}"])
        self._await_done()

    def stalls(self, seed: int, p_in: float, p_out: float) -> None:
        """Hold back each request and input beat with probability ``p_in`` per cycle, each
        acceptance of an output with ``p_out``."""
        scale = (1 << 31) - 1
        self._junk = np.random.default_rng(seed)
        self._send([f"s {seed & 0xFFFFFFFF:x} {int(p_in * scale):x} {int(p_out * scale):x}"])
        self._await_done()

    def write(self, register: int, words: NDArray[np.uint32]) -> None:
        """Write words to a register."""
        self._send([f"w {register:x} {len(words):x}", *(f"{word:x}" for word in words.tolist())])
        self._await_done()

    def read(self, register: int, count: int) -> NDArray[np.uint32]:
        """Read a register ``count`` times."""
        self._send([f"r {register:x} {count:x}"])
        lines = self._await_done()
        return np.array([int(line[2:], 16) for line in lines], dtype=np.uint32)

    def exchange(
        self,
        streams: NDArray[np.int32],
        x: NDArray[np.int32],
        suppress: NDArray[np.bool_] | None = None,
        ends: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int32], StepCycles]:
        """Run steps; return the outputs and the cycles of each step."""
        ports, steps = self._ports, len(streams)
        suppress, ends = step_marks(steps, suppress, ends)
        marks = suppress + 2 * ends
        # Both pipes may be full at once, so a thread writes the inputs while this one reads the results.
        sender = threading.Thread(target=self._send, args=(self._commands(streams, x, marks),), daemon=True)
        sender.start()
        taken: list[list[str]] = []
        given: list[list[str]] = []
        for line in self._replies(steps):
            (taken if line[0] == "a" else given).append(line.split())
        sender.join()
        begun, accepted = _hexadecimal([row[1:] for row in taken]).reshape(steps, 2).T
        with_output = np.flatnonzero(~suppress)
        offered = np.full(steps, -1, dtype=np.int64)
        words = np.zeros((steps, ports.beats_out * ports.beat_out), dtype=np.int64)
        if with_output.size:
            offered[with_output] = _hexadecimal([[row[1]] for row in given]).reshape(-1, ports.beats_out)[
                :, -1
            ]
            beats = unpack_beats([row[2] for row in given], ports.beat_out, ports.y_bits)
            words[with_output] = beats.reshape(len(with_output), -1)
        wrong = np.flatnonzero(words[:, ports.outputs :].any(axis=1))
        if wrong.size:
            raise PortFault(8, int(wrong[0])).error(ports)
        y = sign_extend(words[:, : ports.outputs], ports.y_bits)
        return y, StepCycles(begun, accepted, offered)

    def close(self) -> None:
        """End the simulation."""
        process = self._process
        if self._waves is not None and process.poll() is None:
            # What is still to be written of the waveforms is, when the program ends by itself.
            self._send(["q"])
            with suppress(subprocess.TimeoutExpired):
                process.wait(_WRITING)
        if process.poll() is None:
            process.kill()
        process.wait()
        if self._waves is not None and (name := quote(self._waves.name)) != self._waves.name:
            with suppress(FileNotFoundError):  # There was no step.
                self._waves.with_name(name).replace(os.path.realpath(self._waves))
        for pipe in (process.stdin, process.stdout):
            if pipe:
                try:
                    pipe.close()
                except OSError:
                    # The program has ended: what is not sent yet is dropped.
                    continue

    def _commands(self, streams: NDArray[np.int32], x: NDArray[np.int32], marks: IntArray) -> list[str]:
        ports, steps = self._ports, len(streams)
        limit = 1 << ports.data_bits
        # Words past the last input are random, because the core must ignore them.
        words = self._junk.integers(0, limit, (steps, ports.beats_in * ports.beat_in))
        words[:, : ports.inputs] = x & (limit - 1)
        beats = pack_beats(words.reshape(steps * ports.beats_in, ports.beat_in), ports.data_bits)
        lines = [f"x {steps:x}"]
        for step, stream in enumerate(streams.tolist()):
            first = step * ports.beats_in
            lines += [f"{stream:x} {marks[step]:x}", *beats[first : first + ports.beats_in]]
        return lines

    def _send(self, lines: list[str]) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            stream.write("\n".join(lines) + "\n")
            stream.flush()
        except (BrokenPipeError, ValueError):
            # The simulator has ended; the reader of its replies raises the error.
            return

    def _await_done(self) -> list[str]:
        return self._replies(0)

    def _replies(self, steps: int) -> list[str]:
        stream = self._process.stdout
        assert stream is not None
        lines: list[str] = []
        for line in stream:
            kind = line[:2]
            if kind in ("y ", "a ", "v "):
                lines.append(line)
                if self._progress and steps and kind == "a " and not len(lines) % 256:
                    self._progress("simulating", len(lines) // (1 + self._ports.beats_out), steps)
            elif kind == "k ":
                self._cycle = int(line[2:], 16)
                return lines
            elif kind == "e ":
                code, step = line[2:].split()
                raise PortFault(int(code, 16), int(step)).error(self._ports)
            else:
                self._other.append(line.rstrip())
        said = "; it said: " + " / ".join(self._other[-5:]) if self._other else ""
        raise DeviceError(f"{self._ports.name}: the simulator ended without an answer{said}")


def _dump_options(waves: Path | None) -> list[str]:
    """The arguments of a program of :func:`build_icarus` that make it write waveforms.

    It takes a name of ASCII alone, and writes to dump.vcd if there is more in it.
    """
    if waves is None:
        return []
    return [f"+wave={quote(waves.name)}", "-fst" if waves.suffix.lower() == ".fst" else "-vcd"]


def _hexadecimal(rows: list[list[str]]) -> IntArray:
    return np.array([[int(number, 16) for number in row] for row in rows], dtype=np.int64)
