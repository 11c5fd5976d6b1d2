"""Speech or silence at a pin: an I2S microphone, silero VAD and no processor, on a ULX3S-85F.

    python examples/microphone/listen.py [--seconds 2] [--bit-cycles 48] [--synthesis]

The script generates silero's network with its convolutions, 8-bit weights, and the board's top: microphone,
framing, transform, core, threshold, and a loader that reads the weights out of the board's flash memory. It
simulates the top with a sound that goes bit by bit through I2S. It compares each decision at the pin with
the golden model's, which computes everything from the same samples of 24 bits. It prints how long the pin
takes after the last bit of a step's last sample. It exits with 1 if a decision differs or a sample was lost.
"""

import argparse
import ctypes
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from listener import Listener, Settings
from sound_parts import decide, decision_codes, steps_of
from spectrum import FRACTION, SAMPLE_BITS

import rtlstm
from rtlstm.boards.bitstream import Bitstream, make_bitstream
from rtlstm.boards.board import Board, BoardTiming, find_logic_timing
from rtlstm.boards.catalogue import find_board
from rtlstm.boards.top import TOP, board_verilog
from rtlstm.fpga.families.base import Pin
from rtlstm.fpga.resources import Counts, check_fit, resource_uses
from rtlstm.fpga.synthesis import Top, synthesise
from rtlstm.fpga.tools import find_yosys
from rtlstm.host import SaturationWarning
from rtlstm.sim.compile_model import LibraryModel, compile_library
from rtlstm.sim.simulated_ports import board_models, simulation_sources
from rtlstm.spec.errors import InputError, RtlstmError
from rtlstm.spec.fixed import round_shift, saturate
from rtlstm.spec.image import WeightImage
from rtlstm.spec.manifest import Manifest, read_verilog
from rtlstm.spec.progress import Progress, tell

HERE = Path(__file__).parent
BOARD = "ulx3s-85f"
RATE = 16000
_FLASH = {"IO_TYPE": "LVCMOS33", "PULLMODE": "NONE", "DRIVE": "4"}
_HEADER = {"IO_TYPE": "LVCMOS33"}
PINS = (
    # The header's pins GP14, GN14 and GP15, then GN15 and GP16.
    Pin(port="mic_bclk", site="U18", attributes=_HEADER),
    Pin(port="mic_ws", site="U17", attributes=_HEADER),
    Pin(port="mic_sd", site="N17", attributes=_HEADER | {"PULLMODE": "DOWN"}),
    Pin(port="speech", site="P16", attributes=_HEADER),
    Pin(port="step", site="N16", attributes=_HEADER),
    Pin(port="flash_cs", site="R2", inverted=True, attributes=_FLASH),
    Pin(port="flash_copi", site="W2", attributes=_FLASH),
    Pin(port="flash_cipo", site="V2", attributes=_FLASH),
    Pin(port="flash_wp", site="Y2", inverted=True, attributes=_FLASH),
    Pin(port="flash_hold", site="W1", inverted=True, attributes=_FLASH),
)
_SLICE = 1 << 20
"""Cycles between two calls of ``progress``."""
_LOADED, _ERROR = 2, 4
"""The second and third LED."""
FAST = 4
"""Fewest cycles of a bit in which silero's transform loses no sample."""
_WAIT = 1 << 20
"""Cycles beyond those of the sound in which the last decision must come."""


@dataclass(frozen=True)
class Device:
    """A build on the board, without a link."""

    folder: Path
    manifest: Manifest
    settings: Settings = field(default_factory=Settings)

    @property
    def board(self) -> Board:
        """The board."""
        return find_board(BOARD)

    @property
    def timing(self) -> BoardTiming:
        """The PLL that gives the microphone its clock, whatever a simulation's bits are."""
        return find_logic_timing(self.board, Settings().bit_cycles * 64 * RATE / 1e6, PINS)

    @property
    def image(self) -> WeightImage:
        """What stands in the flash memory."""
        return WeightImage.load(self.folder / "weights.bin", self.manifest)

    @property
    def logic(self) -> Listener:
        """What is beside the core."""
        return Listener(self.manifest, self.image, self.settings)

    @property
    def verilog(self) -> str:
        """The top, without the core."""
        core = read_verilog(self.folder, self.manifest)
        return board_verilog(self.board, self.manifest, self.timing, core, self.logic)

    def synthesise(self, progress: Progress | None = None) -> Counts:
        """Return what core and logic take of the device, by Yosys.

        Raises ConfigurationError if they do not fit, ToolError if Yosys is missing or fails.
        """
        folder, device = self.folder / "synthesis", self.board.chosen.device
        folder.mkdir(exist_ok=True)
        core, name = read_verilog(self.folder, self.manifest), self.manifest.name
        top = Top(TOP, self.verilog)
        found = synthesise(core, name, device, find_yosys(), folder, top=top, progress=progress)
        used = found.core + found.harness
        check_fit(f"{name} with its microphone", used, device, self.board.name)
        return used

    def make_bitstream(self, progress: Progress | None = None) -> Bitstream:
        """Place and route; errors as :func:`rtlstm.boards.bitstream.make_bitstream`."""
        return make_bitstream(
            self.board,
            self.manifest,
            read_verilog(self.folder, self.manifest),
            self.timing,
            self.folder / "bitstream",
            requested_mhz=self.timing.clock_mhz,
            logic=self.logic,
            progress=progress,
        )

    def golden(self, samples: Any) -> list[bool]:
        """Return the decisions for samples of 24 bits: the golden model's, behind the parts' integers."""
        settings, frames = self.settings, self.settings.frames
        if len(samples) < settings.new:
            raise InputError(f"the sound must have at least {settings.new} samples, not {len(samples)}")
        narrow = saturate(round_shift(samples, 24 - SAMPLE_BITS - settings.gain), SAMPLE_BITS)
        found = frames.magnitudes(steps_of(narrow, settings.before, settings.new))
        with warnings.catch_warnings():
            # What calibration has not seen saturates in RTL and golden model alike.
            warnings.simplefilter("ignore", SaturationWarning)
            y, _ = rtlstm.Build(self.folder).run(
                np.ldexp(found, -FRACTION).reshape(len(found), 1, -1), batch_first=False
            )
        codes = self.manifest.layers[-1].output.to_integers(y.reshape(-1))
        return decide(codes, decision_codes(self.manifest, settings.above, settings.below))


@dataclass(frozen=True)
class Heard:
    """What a simulated board said."""

    speech: Any
    """Its decisions."""
    last_bit: Any
    """Cycles in which the last bit of each step's last sample is read."""
    changed: Any
    """Cycles in which the decision is at the pin."""
    loaded: bool
    """Whether the weights were taken."""
    failed: bool
    """Whether the weights were refused, or a sample was lost."""
    cycles: int
    seconds: float
    """Time that the simulation took."""

    @property
    def waits(self) -> Any:
        """Cycles from the last bit to the pin."""
        return self.changed - self.last_bit[: len(self.changed)]


_FUNCTIONS: Mapping[str, tuple[Any, list[Any]]] = {
    "flash": (None, [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]),
    "begin": (None, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 3]),
    "run": (ctypes.c_int64, [ctypes.c_int64]),
    "cycle": (ctypes.c_int64, []),
    "leds": (ctypes.c_int, []),
}


def simulate(
    device: Device, samples: Any, flash: bytes | None = None, progress: Progress | None = None
) -> Heard:
    """Switch the board on with this content of its flash, by default the weights, and let it hear samples."""
    top, settings = device.folder / "top.v", device.settings
    top.write_text(device.verilog)
    core = device.folder / device.manifest.rtl
    family = device.manifest.parameters.family
    models = board_models(device.board.chosen.device.family)
    sources = [top, *simulation_sources(core, family), *models, HERE / "usrmclk.v"]
    library = compile_library(TOP, sources, HERE / "microphone.cpp", [], progress)
    model = LibraryModel(library, _FUNCTIONS, 1)
    content = device.image.to_bytes() if flash is None else flash
    model.call("flash", content, len(content), settings.address)
    given = np.ascontiguousarray(samples, dtype=np.int32)
    steps = len(given) // settings.new
    said, times = np.zeros(steps, dtype=np.uint8), np.full((2, steps), -1, dtype=np.int64)
    arrays = (each.ctypes.data for each in (said, *times))
    model.call("begin", given.ctypes.data, len(given), settings.new, *arrays)
    # A byte of the flash takes 32 cycles, and the core takes its words in less time.
    most = 2 * 32 * len(content) + 64 * settings.bit_cycles * len(given) + _WAIT
    begin, done = time.perf_counter(), 0
    while done < steps and not model.call("leds") & _ERROR and model.call("cycle") < most:
        done = int(model.call("run", _SLICE))
        tell(progress, "listening", done, steps)
    result = Heard(
        speech=said[:done].astype(bool),
        last_bit=times[0],
        changed=times[1, :done],
        loaded=bool(model.call("leds") & _LOADED),
        failed=bool(model.call("leds") & _ERROR),
        cycles=int(model.call("cycle")),
        seconds=time.perf_counter() - begin,
    )
    model.close()
    return result


def rows(device: Device, heard: Heard, golden: list[bool]) -> list[tuple[str, str]]:
    """Return what the script prints: names and values."""
    clock_hz, settings = float(device.timing.clock_hz), device.settings
    different = int(np.count_nonzero(heard.speech != golden[: len(heard.speech)]))
    first = heard.last_bit[0]
    loaded = f"{1e3 * (first - 64 * settings.bit_cycles * settings.new) / clock_hz:.0f} ms"
    if first < 0:
        loaded = "no step" if heard.loaded else "not loaded"
    waits = heard.waits
    return [
        ("clock", f"{clock_hz / 1e6:.3f} MHz, {clock_hz / 64 / Settings().bit_cycles:,.0f} samples a second"),
        (
            "simulated",
            f"{heard.cycles:,} cycles in {heard.seconds:.0f} s, {settings.bit_cycles} for a bit of I2S",
        ),
        ("weights loaded out of the flash after", loaded),
        ("steps of sound", f"{len(golden):,}"),
        ("decisions at the pin", f"{len(heard.speech):,}, {different:,} different from the golden model's"),
        (
            "speech in",
            f"{int(heard.speech.sum()):,}, {int(np.count_nonzero(np.diff(heard.speech))):,} changes",
        ),
        ("samples lost", "some" if heard.failed and heard.loaded else "none"),
        (
            "from the last sample's last bit to the pin",
            f"{waits.min():,} to {waits.max():,} cycles: {1e6 * waits.max() / clock_hz:.0f} us at most"
            if len(waits)
            else "no decision",
        ),
    ]


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="speech or silence at a pin, without a processor")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build/microphone"), help="folder of the build"
    )
    parser.add_argument(
        "--sound", type=Path, help="WAV file, 16 kHz, 1 channel, 16 bits; silero's by default"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how much of it is played; 2 by default")
    parser.add_argument(
        "--bit-cycles",
        type=int,
        default=FAST,
        help=f"cycles of a bit of I2S in simulation; {FAST} by default, the board's {Settings().bit_cycles}",
    )
    parser.add_argument("--synthesis", action="store_true", help="show what the device needs for it, too")
    parser.add_argument("--bitstream", action="store_true", help="place and route it, too")
    chosen = parser.parse_args(arguments)
    if not 0.064 <= chosen.seconds <= 3600:
        parser.error(f"--seconds must be 0.064 to 3600, not {chosen.seconds}")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Build, simulate, compare and print; return the exit code."""
    chosen = parse_arguments(arguments)
    # It needs onnx and onnxruntime, which other networks do not.
    from silero_build import Stages, prepare

    try:
        with Stages() as stages:
            manifest, audio, probability = prepare(chosen.output, chosen.sound, chosen.seconds, stages)
            settings = Settings(bit_cycles=chosen.bit_cycles)
            device = Device(chosen.output, manifest, settings)
            samples = np.round(np.ldexp(audio.astype(np.float64), 23)).astype(np.int64)
            golden = device.golden(samples)
            heard = simulate(device, samples, progress=stages)
            printed = rows(device, heard, golden)
            theirs = decide(probability, (settings.above, settings.below))
            changed = sum(ours != other for ours, other in zip(golden, theirs, strict=True))
            printed.append(("decisions other than onnxruntime's", f"{changed:,}"))
            whole = Device(chosen.output, manifest)
            if chosen.synthesis:
                uses = resource_uses(whole.synthesise(stages), whole.board.chosen.device)
                printed += [(what, f"{used:,} of {there:,}") for what, used, there in uses]
            if chosen.bitstream:
                made = whole.make_bitstream(stages)
                printed.append(("bitstream", f"{made.fmax_mhz:g} MHz reached of {made.clock_mhz:g} MHz"))
    except (RtlstmError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, value in printed:
        print(f"{name:42} {value}")
    return 0 if heard.speech.tolist() == golden and not heard.failed else 1


if __name__ == "__main__":
    sys.exit(main())
