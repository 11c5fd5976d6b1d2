"""An I2S microphone, a network on the core, and a pin that says whether somebody speaks."""

from dataclasses import dataclass, field

from amaranth.hdl import Const, Instance, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from flash import FlashLoader
from sound_parts import Codes, Decision, Framer, I2sReceiver, Narrow
from spectrum import FRACTION, SAMPLE_BITS, Frames, Magnitude, Transform

from rtlstm.hdl.component import Component, In, Out
from rtlstm.hdl.core.core import CoreSide
from rtlstm.hdl.core.layouts import input_beats
from rtlstm.spec.image import WeightImage
from rtlstm.spec.manifest import Manifest


@dataclass(frozen=True)
class Settings:
    """What is chosen when the hardware is made; lengths are of silero VAD."""

    frames: Frames = field(default_factory=Frames)
    before: int = 64
    """Samples of a step that stood in the one before."""
    gain: int = 0
    """How often each sample is doubled."""
    above: float = 0.5
    below: float = 0.35
    """Probabilities: the pin goes up above the one and down below the other."""
    bit_cycles: int = 48
    """Cycles of a bit of I2S: 64 of them are a sample's."""
    address: int = 0x300000
    """Where the weights begin in the flash memory, behind the bitstream."""

    @property
    def new(self) -> int:
        """New samples of a step."""
        return self.frames.samples - self.before


class FrontEnd(Component):
    """From the microphone's pins to the core's input: your sensor here."""

    bclk: Signal = Out(1)
    ws: Signal = Out(1)
    sd: Signal = In(1)
    lost: Signal = Out(1)
    x: stream.Interface = Out(lambda given: input_beats(given[0]))

    def __init__(self, manifest: Manifest, settings: Settings) -> None:
        self._manifest, self._settings = manifest, settings
        super().__init__((manifest, settings))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        settings, frames = self._settings, self._settings.frames
        m.submodules.receiver = receiver = I2sReceiver(settings.bit_cycles)
        m.submodules.narrow = narrow = Narrow(24, SAMPLE_BITS, settings.gain)
        m.submodules.framer = framer = Framer(SAMPLE_BITS, settings.before, settings.new)
        m.submodules.transform = transform = Transform(frames)
        m.submodules.magnitude = magnitude = Magnitude(frames.bits)
        m.submodules.codes = codes = Codes(self._manifest, frames.bits, FRACTION)
        wiring.connect(m, receiver.samples, narrow.i)
        wiring.connect(m, narrow.o, framer.i)
        wiring.connect(m, framer.o, transform.i)
        wiring.connect(m, transform.o, magnitude.i)
        wiring.connect(m, magnitude.o, codes.i)
        wiring.connect(m, codes.x, wiring.flipped(self.x))
        m.d.comb += [self.bclk.eq(receiver.bclk), self.ws.eq(receiver.ws), receiver.sd.eq(self.sd)]
        m.d.comb += self.lost.eq(receiver.lost)
        return m


class Listener(CoreSide, Component):
    """All that is beside the core. Its ports are those of the core, and pins of the board."""

    mic_bclk: Signal = Out(1)
    mic_ws: Signal = Out(1)
    mic_sd: Signal = In(1)
    """The microphone."""
    flash_cs: Signal = Out(1)
    flash_copi: Signal = Out(1)
    flash_cipo: Signal = In(1)
    flash_wp: Signal = Out(1)
    flash_hold: Signal = Out(1)
    """The flash memory; its clock is behind a cell of the ECP5. CS, WP and HOLD are inverted at the pins."""
    speech: Signal = Out(1)
    step: Signal = Out(1)
    """The decision, and a pin that changes with each."""
    leds: Signal = Out(3)
    """Speech; the weights are there; they are not, or a sample was lost."""

    def __init__(self, manifest: Manifest, image: WeightImage, settings: Settings) -> None:
        self._manifest, self._image, self._settings = manifest, image, settings
        super().__init__(manifest)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        settings = self._settings
        m.submodules.loader = loader = FlashLoader(self._image, settings.address)
        # It has no output: without the attribute Yosys would drop it.
        clock = {"i_USRMCLKI": loader.sck, "i_USRMCLKTS": Const(0)}
        m.submodules.usrmclk = Instance("USRMCLK", a_keep=1, **clock)
        front = FrontEnd(self._manifest, settings)
        # No sample comes before the weights are there.
        m.submodules.front = ResetInserter({"sync": ~loader.loaded})(front)
        m.submodules.decision = decision = Decision(self._manifest, settings.above, settings.below)
        wiring.connect(m, loader.bus, wiring.flipped(self.bus))
        wiring.connect(m, front.x, wiring.flipped(self.x))
        wiring.connect(m, wiring.flipped(self.y), decision.y)
        lost = Signal()
        m.d.sync += lost.eq(lost | (front.lost & loader.loaded))
        m.d.comb += [
            self.mic_bclk.eq(front.bclk),
            self.mic_ws.eq(front.ws),
            front.sd.eq(self.mic_sd),
            self.flash_cs.eq(loader.select),
            self.flash_copi.eq(loader.mosi),
            loader.miso.eq(self.flash_cipo),
            self.speech.eq(decision.on),
            self.step.eq(decision.step),
            self.leds[0].eq(decision.on),
            self.leds[1].eq(loader.loaded),
            self.leds[2].eq(loader.failed | lost),
        ]
        return m
