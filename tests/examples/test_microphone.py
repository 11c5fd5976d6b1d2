"""The microphone's parts against their models, and the whole board between I2S and a pin."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import listen
import numpy as np
import pytest
from adc import FourChannels
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from listen import BOARD, PINS, Device, parse_arguments, rows, simulate
from listener import FrontEnd, Settings
from sound_parts import Codes, Decision, Framer, I2sReceiver, Narrow, decide, decision_codes, steps_of
from spectrum import Frames, Magnitude, Transform
from support.small_builds import normal_lstm

from rtlstm import ConfigurationError, Dense, InputError, Manifest, Network, Parameters
from rtlstm.boards.bitstream import constraints
from rtlstm.boards.board import find_logic_timing, find_timing
from rtlstm.boards.catalogue import find_board
from rtlstm.boards.top import board_verilog
from rtlstm.fpga.families.base import Pin
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.hardware import ArrayRequest
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.component import Component, In, Out
from rtlstm.sim.amaranth_platform import simulator
from rtlstm.spec.fixed import round_shift, saturate

SMALL = Frames(points=16, samples=36)
"""silero's sizes, but sixteen times smaller: 4 frames of 9 bins, of 32 new samples with 4 before."""
SETTINGS = Settings(frames=SMALL, before=4, bit_cycles=8, above=0.52, below=0.48)
NARROW = QuantizationSettings(weight_bits=8, data_bits=12, gate_bits=12)


refuses = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.fixture
def drop_unused() -> Iterator[None]:
    """Drop the components that a refusal leaves unused here, and not in the midst of another test."""
    yield
    gc.collect()


def network(inputs: int, outputs: int = 1) -> Network:
    rng = np.random.default_rng(3)
    head = Dense(weight=4 * rng.normal(size=(outputs, 4)), bias=np.zeros(outputs), activation="sigmoid")
    return Network(name="tiny", layers=(normal_lstm(rng, inputs, 4), head))


def described(inputs: int, largest: float | np.ndarray = 1.0, outputs: int = 1, **more: Any) -> Manifest:
    """A build's manifest, calibrated with inputs up to the largest."""
    x = np.random.default_rng(1).uniform(-1, 1, (40, 1, inputs)) * largest
    integers = quantise(network(inputs, outputs), NARROW, x)
    return Manifest.of("tiny", integers, Parameters(lanes=4, macs=2, **more))


def through(part: Component, given: list[Any], count: int, put: str = "i", get: str = "o") -> list[Any]:
    """Give payloads to a part's stream and return what comes out of the other."""
    found: list[Any] = []
    source, sink = getattr(part, put), getattr(part, get)

    async def feed(ctx: Any) -> None:
        for payload in given:
            ctx.set(source.payload, payload)
            ctx.set(source.valid, 1)
            await ctx.tick().until(source.ready)
        ctx.set(source.valid, 0)

    async def take(ctx: Any) -> None:
        ctx.set(sink.ready, 1)
        while len(found) < count:
            (payload,) = await ctx.tick().sample(sink.payload).until(sink.valid)
            found.append(payload)

    top, dummy = Module(), Signal()
    top.submodules.part = part
    # A part without a register has no clock in simulation.
    top.d.sync += dummy.eq(~dummy)
    simulation = simulator(top)
    simulation.add_testbench(feed, background=True)
    simulation.add_testbench(take)
    simulation.run()
    return found


def signed_codes(found: list[Any], bits: int) -> list[int]:
    """The codes of beats."""
    words = np.array([beat.data for beat in found])
    return (words - ((words >> (bits - 1)) << bits)).tolist()


class Spectrum(Component):
    """Transform and magnitudes."""

    i: stream.Interface = In(stream.Signature(StructLayout({"sample": signed(16), "last": 1})))
    o: stream.Interface = Out(lambda frames: stream.Signature(signed(frames.bits)))

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        super().__init__(frames)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.transform = transform = Transform(self._frames)
        m.submodules.magnitude = magnitude = Magnitude(self._frames.bits)
        wiring.connect(m, wiring.flipped(self.i), transform.i)
        wiring.connect(m, transform.o, magnitude.i)
        wiring.connect(m, magnitude.o, wiring.flipped(self.o))
        return m


def test_magnitudes_equal_the_model() -> None:
    """Each bit, also at the largest sums; and the model is the float transform but for its rounding."""
    steps = np.random.default_rng(0).integers(-32767, 32768, (3, SMALL.samples))
    steps[1] = 32767
    wanted = SMALL.magnitudes(steps)
    given = [
        {"sample": int(sample), "last": number == SMALL.samples - 1}
        for step in steps
        for number, sample in enumerate(step)
    ]
    assert through(Spectrum(SMALL), given, wanted.size) == wanted.reshape(-1).tolist()
    padded = np.pad(steps / 2**15, ((0, 0), (0, 4)), mode="reflect")
    window = np.hanning(SMALL.points + 1)[:-1]
    frames = np.stack([padded[:, 8 * k :][:, : SMALL.points] * window for k in range(SMALL.count)], axis=1)
    np.testing.assert_allclose(wanted / 2**16, abs(np.fft.rfft(frames)), atol=1e-4)


def test_sizes_of_silero() -> None:
    frames = Frames()
    assert (frames.count, frames.bins, Settings().new) == (4, 129, 512)


def test_samples_are_rounded_and_saturated() -> None:
    given = [0, 127, 128, -128, -129, 2**23 - 1, -(2**23), 2**23 - 129, -(2**23) + 127]
    for gain in (0, 3):
        wanted = saturate(round_shift(given, 8 - gain), 16).tolist()
        assert through(Narrow(24, 16, gain), given, len(given)) == wanted
    assert max(wanted) == -min(wanted) == 32767


def test_steps_begin_with_the_last_samples() -> None:
    samples = np.arange(1, 41)
    wanted = steps_of(samples, 3, 8)
    assert wanted.tolist()[:2] == [[0, 0, 0, *range(1, 9)], [6, 7, 8, *range(9, 17)]]
    found = through(Framer(16, 3, 8), samples.tolist(), wanted.size)
    assert [each.sample for each in found] == wanted.reshape(-1).tolist()
    assert [number for number, each in enumerate(found) if each.last] == list(range(10, 55, 11))


@pytest.mark.parametrize("zeros", [(), (5, -1200, 0)])
def test_codes_are_those_of_the_build(zeros: tuple[int, ...]) -> None:
    """With a factor and a code of zero for each input, some of them beyond the range."""
    manifest = described(3, np.array([0.01, 0.3, 20.0]))
    manifest = manifest.replace(numerics=manifest.numerics.replace(input_zeros=zeros))
    assert len(set(manifest.numerics.input_factors or ())) > 1
    values = np.random.default_rng(2).integers(-(2**22), 2**22, (30, 3))
    values[:5, 0] = [0, 1, -1, 2**11, -(2**11)]
    wanted = manifest.numerics.quantise_input(values / 2**16)
    assert {-2047, 2047} < set(wanted.reshape(-1).tolist())
    found = through(Codes(manifest, 23, 16), values.reshape(-1).tolist(), values.size, get="x")
    assert signed_codes(found, manifest.numerics.data_bits) == wanted.reshape(-1).tolist()


def test_decision_has_hysteresis() -> None:
    manifest = described(2)
    codes = decision_codes(manifest, 0.5, 0.35)
    given = [0, codes[0], codes[0] + 1, codes[0], codes[1], codes[1] - 1, codes[0], 32767, 0]
    wanted = [False, False, True, True, True, False, False, True, False]
    assert decide(given, codes) == wanted
    part = Decision(manifest, 0.5, 0.35)
    found = []

    async def play(ctx: Any) -> None:
        step = 0
        for value in given:
            ctx.set(part.y.payload, {"data": value, "stream": 0, "last": 1})
            ctx.set(part.y.valid, 1)
            await ctx.tick()
            ctx.set(part.y.valid, 0)
            await ctx.tick()
            found.append(bool(ctx.get(part.on)))
            assert ctx.get(part.step) == (step := 1 - step)

    simulation = simulator(part)
    simulation.add_testbench(play)
    simulation.run()
    assert found == wanted


async def speak(ctx: Any, part: I2sReceiver | FrontEnd, samples: list[int]) -> None:
    """Be an I2S microphone."""
    bit, right, number, before = 24, True, -1, 0
    while True:
        await ctx.tick()
        clock = ctx.get(part.bclk)
        if clock and not before and ctx.get(part.ws) != right:
            right, bit = not right, 0
            number += not right
        if before and not clock:
            sample = samples[number] if number < len(samples) else 0
            ctx.set(part.sd, bit < 24 and (~sample if right else sample) >> (23 - bit) & 1)
            bit += 1
        before = clock


@pytest.mark.parametrize("cycles", [4, 10])
def test_every_bit_of_i2s(cycles: int) -> None:
    """The left channel's 24 bits; a sample that nobody takes is lost, and the next one is given."""
    samples, found, lost = [2**23 - 1, -(2**23), 0x555555, -1, 1], [], 0
    part = I2sReceiver(cycles)

    async def take(ctx: Any) -> None:
        nonlocal lost
        while len(found) < 4:
            # The third one waits until the fourth is there.
            ready = len(found) != 2 or lost
            ctx.set(part.samples.ready, ready)
            if ready and ctx.get(part.samples.valid):
                found.append(ctx.get(part.samples.payload))
            lost += ctx.get(part.lost)
            await ctx.tick()

    async def microphone(ctx: Any) -> None:
        await speak(ctx, part, samples)

    simulation = simulator(part)
    simulation.add_testbench(microphone, background=True)
    simulation.add_testbench(take)
    simulation.run()
    assert (found, lost) == ([2**23 - 1, -(2**23), -1, 1], 1)


def test_four_channels_of_an_adc() -> None:
    """Of an MCP3204, as its data sheet has it: each channel's value is the code of its input."""
    manifest = described(4, 0.7)
    volts = np.random.default_rng(4).integers(0, 4096, (3, 4))
    volts[0] = [0, 4095, 2048, 2047]
    part, found = FourChannels(manifest, 3), []

    async def convert(ctx: Any) -> None:
        clocks, command, before, done = 0, 0, 0, 0
        while True:
            await ctx.tick()
            clock = ctx.get(part.sck)
            if ctx.get(part.cs_n):
                clocks, command = 0, 0
            elif clock and not before:
                clocks += 1
                if clocks <= 5:
                    command = command << 1 | ctx.get(part.din)
            elif before and not clock and clocks >= 6:
                assert command >> 3 == 0b11
                value = int(volts[done // 4 % 3, command & 3])
                # A bit of zero comes before the twelve.
                ctx.set(part.dout, value >> (18 - clocks) & 1 if clocks > 6 else 0)
                done += clocks == 18
            before = clock

    async def take(ctx: Any) -> None:
        ctx.set(part.x.ready, 1)
        while len(found) < volts.size:
            if ctx.get(part.x.valid):
                found.append(ctx.get(part.x.payload))
            assert not ctx.get(part.lost)
            await ctx.tick()

    simulation = simulator(part)
    simulation.add_testbench(convert, background=True)
    simulation.add_testbench(take)
    simulation.run()
    wanted = manifest.numerics.quantise_input((volts - 2048) / 2048)
    assert signed_codes(found, manifest.numerics.data_bits) == wanted.reshape(-1).tolist()


@refuses
def test_refusals(drop_unused: None) -> None:
    with pytest.raises(ConfigurationError, match="must have an even number of cycles from 4 on, not 5"):
        I2sReceiver(5)
    with pytest.raises(ConfigurationError, match="must have at least 3 cycles, not 2"):
        FourChannels(described(4, 0.7), 2)
    with pytest.raises(ConfigurationError, match="build with --beat-in 1 and --streams 1"):
        Codes(described(4, beat_in=2), 12, 11)
    manifest = described(2)
    factors = manifest.numerics.replace(input_factors=(1.0, 1.5))
    with pytest.raises(ConfigurationError, match="give the range of the inputs with --input-range"):
        Codes(manifest.replace(numerics=factors), 12, 11)
    with pytest.raises(ConfigurationError, match="a network with 1 output, not 2"):
        Decision(described(2, outputs=2), 0.5, 0.35)
    with pytest.raises(ConfigurationError, match=r"on above 0.3 and off below 0.4 contradict each other"):
        Decision(manifest, 0.3, 0.4)
    with pytest.raises(SystemExit):
        parse_arguments(["--seconds", "0"])


@refuses
def test_own_logic_needs_its_pins(drop_unused: None) -> None:
    board = find_board(BOARD)
    twice = Pin(port="mine", site=board.leds[0].site)
    with pytest.raises(ConfigurationError, match="must have a site each, but B2 is used twice; give each of"):
        find_logic_timing(board, 50, [twice])
    timing = find_logic_timing(board, 50, PINS)
    text = constraints(board, timing.link, more=timing.logic_pins)
    assert 'LOCATE COMP "mic_sd" SITE "N17";' in text and 'COMP "rx"' not in text
    # Nor a clock of a link: there is none, also on a board without SPI.
    assert "spi" not in text and "spi" not in constraints(find_board("colorlight-i5"), "logic")
    manifest = described(2)
    core = "module tiny(clk, rst);\ninput clk;\ninput rst;\nendmodule\n"
    with pytest.raises(ConfigurationError, match="must have a link or your own logic, and not both"):
        board_verilog(board, manifest, timing, core)
    logic = Decision(manifest, 0.5, 0.35)
    with pytest.raises(ConfigurationError, match="must have a link or your own logic, and not both"):
        board_verilog(board, manifest, find_timing(board, 50), core, logic)
    wider = core.replace("rst;", "rst;\ninput x_valid;").replace("rst)", "rst, x_valid)")
    with pytest.raises(ConfigurationError, match="must have a port x_valid, an input of the core"):
        board_verilog(board, manifest, timing, wider, logic)
    with pytest.raises(ConfigurationError, match="must have a port mic_bclk of one bit for its pin"):
        board_verilog(board, manifest, timing, core, logic)
    (pin,) = (Pin(port="on", site="P16"),)
    text = board_verilog(board, manifest, find_logic_timing(board, 50, [pin]), core, logic)
    assert "no link" in text and "output on;" in text


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """A network that reads magnitudes, on the board; its decisions change with the sound."""
    folder = tmp_path_factory.mktemp("microphone") / "tiny"
    x = np.random.default_rng(1).uniform(0, 2, (40, 1, SMALL.count * SMALL.bins))
    manifest = generate_build(
        network(SMALL.count * SMALL.bins),
        folder,
        name="tiny",
        settings=NARROW,
        array=ArrayRequest(family="ecp5", lanes=4, macs=2),
        calibration=x,
        batch_first=False,
    )
    return Device(folder, manifest, SETTINGS)


@pytest.fixture
def sound() -> Any:
    """Samples of 24 bits, 31 steps of noise that is now strong, now weak."""
    rng = np.random.default_rng(5)
    volume = np.repeat(rng.uniform(0, 1, 31) ** 3, SETTINGS.new)
    return (rng.integers(-(2**23), 2**23, len(volume)) * volume).astype(np.int64)


@pytest.mark.rtl
def test_board_decides_as_the_golden_model(device: Device, sound: Any) -> None:
    golden = device.golden(sound)
    assert 5 < sum(golden) < 26
    with pytest.raises(InputError, match="the sound must have at least 32 samples, not 31"):
        device.golden(sound[:31])
    heard = simulate(device, sound)
    assert heard.speech.tolist() == golden and not heard.failed
    # The last frame's transform is behind the core's cycles.
    least = device.manifest.cycles.step_latency_cycles
    assert (heard.waits[1:] == heard.waits[1]).all() and least < heard.waits[1] < least + 1000
    printed = dict(rows(device, heard, golden))
    assert printed["decisions at the pin"] == "31, 0 different from the golden model's"
    assert printed["samples lost"] == "none"


@pytest.mark.rtl
@pytest.mark.parametrize("at", [0, 20, 70, -200, -1])
def test_wrong_weights_are_refused(device: Device, sound: Any, at: int) -> None:
    """Whatever byte is wrong, of head, weights or checksum: the third LED is lit, and no pin moves."""
    content = bytearray(device.image.to_bytes())
    content[at] ^= 1
    heard = simulate(device, sound, bytes(content))
    assert heard.failed and not len(heard.speech)
    printed = dict(rows(device, heard, device.golden(sound)))
    assert printed["from the last sample's last bit to the pin"] == "no decision"
    assert printed["weights loaded out of the flash after"] == "not loaded"
    assert printed["samples lost"] == "none"


@pytest.mark.rtl
def test_a_lost_sample_lights_the_led(device: Device, sound: Any) -> None:
    """Steps that overlap so far that all frames are due with every fourth sample."""
    other = Device(device.folder, device.manifest, replace(SETTINGS, before=32, bit_cycles=4))
    heard = simulate(other, sound[:400])
    assert heard.failed
    assert dict(rows(other, heard, other.golden(sound[:400])))["samples lost"] == "some"


@pytest.mark.slow
@pytest.mark.tools
def test_device_has_room_for_all(device: Device) -> None:
    """The parts take multipliers and block RAMs beside those of the core."""
    used = device.synthesise()
    assert used.multipliers > device.manifest.parameters.lanes * device.manifest.parameters.macs
    assert 0 < used.block_rams < 208 and used.ffs > 500


@pytest.mark.slow
@pytest.mark.rtl
def test_silero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten seconds of speech."""
    assert listen.main(["-o", str(tmp_path / "vad"), "--seconds", "10"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "decisions at the pin 312, 0 different" in printed and "samples lost none" in printed
    assert "other than onnxruntime's 0" in printed
