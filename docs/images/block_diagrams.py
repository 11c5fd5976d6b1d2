"""The block diagrams: ``DIAGRAMS`` has a function for each, which draws the picture of that name."""

from collections.abc import Callable

from cobs import cobs
from schemdraw import Drawing
from schemdraw.elements import Element, Label, Rect
from schemdraw.segments import Segment

INK, MUTED, WIRE = "#1f2328", "#57606a", "#57606a"
KEPT, DONE = ("#e8f1fb", "#2f7fd1"), ("#f3f4f6", "#6e7781")
"""Fill and outline of what is kept (files, memories) and of what is done (programs, logic)."""

UNIT = 12
"""Pixels of a unit of the coordinates. Pictures are 33 units wide, so that phones show them legibly."""

FONT = "Helvetica, Arial, sans-serif"

LINE = 1.25
"""From a line of text to the next."""

Point = tuple[float, float]


class Wire(Element):
    """A line through points, with an arrow at its end, at both or at none."""

    def __init__(self, points: list[Point], arrow: str | None, dashed: bool) -> None:
        super().__init__()
        line = "--" if dashed else "-"
        self.segments.append(
            Segment(points, arrow=arrow, arrowwidth=0.6, arrowlength=0.8, lw=1.2, color=WIRE, ls=line)
        )
        self.at((0, 0)).theta(0)


class Outline(Element):
    """A rectangle below and right of its place, with its corners cut."""

    def __init__(self, width: float, height: float, cut: float) -> None:
        super().__init__()
        x, y = (0, cut, width - cut, width), (0, -cut, cut - height, -height)
        corners = [(0, 1), (1, 0), (2, 0), (3, 1), (3, 2), (2, 3), (1, 3), (0, 2), (0, 1)]
        self.segments.append(Segment([(x[column], y[row]) for column, row in corners]))
        self.theta(0)


class Picture:
    """A white panel with a picture. Coordinates begin at the upper left; y goes down."""

    def __init__(self, width: float, height: float) -> None:
        self._drawing = Drawing(canvas="svg", show=False)
        self._drawing.config(unit=1, inches_per_unit=UNIT / 72, lw=1.2, font=FONT, margin=0)
        panel = Rect(corner1=(0, 0), corner2=(width, -height), fill="#ffffff", lw=0)
        self._drawing.add(panel.color("#ffffff").at((0, 0)).zorder(0))

    def text(self, x: float, y: float, *lines: str, align: str = "left", color: str = MUTED) -> None:
        """Write lines of text; ``y`` is the middle of the first one."""
        for number, line in enumerate(lines):
            place = (x, -y - number * LINE)
            label = Label().at(place).label(line, ofst=(0, 0), halign=align, valign="center", fontsize=11)
            self._drawing.add(label.color(color))

    def box(
        self,
        x: float,
        y: float,
        width: float,
        name: str,
        *details: str,
        kept: bool = False,
        height: float = 0.0,
    ) -> None:
        """Draw a box with a name, of one line or more, and lines of details below it."""
        names = name.splitlines()
        lines = len(names) + len(details)
        height = height or lines * LINE + 0.75
        fill, outline = KEPT if kept else DONE
        cut = 0.0 if kept else 0.5
        self._drawing.add(Outline(width, height, cut).at((x, -y)).fill(fill).color(outline).zorder(1))
        middle = x + width / 2
        first = y + height / 2 - (lines - 1) * LINE / 2
        self.text(middle, first, *names, align="center", color=INK)
        self.text(middle, first + len(names) * LINE, *details, align="center")

    def frame(self, x: float, y: float, width: float, height: float, name: str) -> None:
        """Draw a dashed outline around parts, with a name at its upper left."""
        corners = [(x, -y), (x + width, -y), (x + width, -y - height), (x, -y - height), (x, -y)]
        self._drawing.add(Wire(corners, None, dashed=True))
        self.text(x + 0.6, y + 0.9, name)

    def wire(self, *points: Point, arrow: str | None = "->", dashed: bool = False) -> None:
        """Draw a line through points, by default with an arrow at its end."""
        self._drawing.add(Wire([(x, -y) for x, y in points], arrow, dashed))

    def svg(self) -> str:
        """Return the picture."""
        return self._drawing.get_imagedata("svg").decode() + "\n"


def model_to_answer() -> Picture:
    """From a model file to the device, with the modules that lead from each to the next."""
    p = Picture(33, 70)
    # From the model to the manifest.
    p.box(1, 1, 20, "model file", ".onnx, .keras, .pt2, ...", kept=True)
    p.wire((11, 4.25), (11, 5.75))
    p.box(5, 5.75, 12, "gen/frontends")
    p.wire((11, 7.75), (11, 9.25))
    p.box(1, 9.25, 20, "Network", "float weights, gate order i f g o", "spec/network.py", kept=True)
    p.wire((11, 13.75), (11, 15.25))
    p.box(5, 15.25, 12, "gen/quantise")
    p.box(23.5, 14.63, 8.5, "calibration\ninputs", kept=True)
    p.wire((23.5, 16.25), (17, 16.25))
    p.wire((11, 17.25), (11, 18.75))
    p.box(1, 18.75, 20, "QuantizedNetwork", "integers, a power of two per row", "spec/numerics.py", kept=True)
    p.wire((11, 23.25), (11, 24.75))
    p.box(5, 24.75, 12, "Manifest.create")
    p.wire((11, 26.75), (11, 28.25))
    p.box(
        1,
        28.25,
        31,
        "Manifest (spec/manifest.py)",
        "compile_program: what the array does in a step",
        "(spec/program/step.py)",
        "Schedule: when it does it, exactly",
        "(spec/program/schedule.py)",
        kept=True,
    )
    # From the manifest to weights, Verilog and the golden model.
    p.wire((5, 35.25), (5, 36.75))
    p.box(1, 36.75, 8, "spec/packing", height=3.25)
    p.wire((5, 40), (5, 41.5))
    p.box(1, 41.5, 8, "weights.bin", kept=True)
    p.wire((16, 35.25), (16, 36.75))
    p.box(11, 36.75, 10, "hdl/core", "Amaranth, Yosys")
    p.wire((16, 40), (16, 41.5))
    p.box(11, 41.5, 10, "rtl/NAME.v", kept=True)
    p.wire((28, 35.25), (28, 36.75))
    p.box(24, 36.75, 8, "sim/golden", "NumPy")
    # What takes the Verilog. The golden model's line meets all that must agree with it.
    for number, lines in enumerate(
        [
            ("Verilator, native", 'backend "verilator"'),
            ("Icarus", 'backend "icarus"'),
            ("cocotb under both", "sim/cocotb_run"),
            ("synthesis,\nplace and route",),
        ]
    ):
        y = 45 + 4.25 * number
        p.wire((12, 43.5), (12, y + 1.625), (13.5, y + 1.625))
        p.box(13.5, y, 11.5, *lines)
        if number < 3:
            p.wire((25, y + 1.625), (28, y + 1.625), arrow=None, dashed=True)
    p.text(28.6, 47, "the", "same", "bits")
    p.wire((28, 40), (28, 64.25), (25, 64.25), arrow=None, dashed=True)
    # The device.
    p.wire((19, 61), (19, 63))
    p.box(11, 63, 14, "FPGA", height=2.5)
    p.wire((5, 43.5), (5, 64.25), (11, 64.25))
    p.text(5.6, 55, "weights,", "state,", "registers", "(bus)")
    p.wire((14, 68), (14, 65.5))
    p.text(13.5, 67, "x, a valid/ready stream", align="right")
    p.wire((20, 65.5), (20, 68))
    p.text(20.6, 67, "y, a valid/ready stream")
    return p


def datapath() -> Picture:
    """The core's parts, and the way of a value through them."""
    p = Picture(33, 54)
    # What the array multiplies, and who says it.
    p.wire((15.75, 0.5), (15.75, 2.5))
    p.text(16.4, 1.2, "x")
    p.box(2.5, 2.5, 8.5, "vector memory", "h, dense results", kept=True)
    p.box(12, 2.5, 8, "input buffer", "2 steps", kept=True)
    p.box(22.5, 2.5, 9.5, "program", kept=True, height=3.25)
    p.wire((6.75, 5.75), (6.75, 7.88))
    p.wire((15.75, 5.75), (15.75, 7.88))
    p.box(2.5, 7.88, 15.5, "word of macs values", "ReLU, zero mask")
    p.wire((27.25, 5.75), (27.25, 7.25))
    p.box(22.5, 7.25, 9.5, "sequencer", "one word", "per cycle")
    p.wire((22.5, 9.5), (18, 9.5))
    p.text(20.5, 8.6, "vector", align="center")
    p.text(20.5, 10.4, "row", align="center")
    # The array.
    p.wire((4.5, 11.13), (4.5, 16.5))
    p.wire((27.25, 11.75), (27.25, 14), (7, 14), (7, 16.5))
    p.text(7.6, 14.9, "weight row; token: last, operation, stream")
    for x, name in ((2.5, "block 0"), (11.5, "block 1"), (24.5, "block B-1")):
        p.box(x, 16.5, 7.5, name, "4 G lanes")
    p.wire((10, 18.1), (11.5, 18.1))
    p.wire((19, 18.1), (20.5, 18.1))
    p.text(21.75, 17.9, "...", align="center")
    p.wire((23, 18.1), (24.5, 18.1))
    p.frame(1.75, 21.5, 30.75, 6.25, "each lane")
    x = 2.5
    for number, (width, name) in enumerate(
        [
            (5, "weight\nmemory"),
            (5.25, "macs\nproducts"),
            (4.25, "adder\ntree"),
            (6.75, "accumulator"),
            (3.75, "held\nsum"),
        ]
    ):
        p.box(x, 23.75, width, name, kept=number == 0, height=3.25)
        if number < 4:
            p.wire((x + width, 25.4), (x + width + 1.06, 25.4))
        x += width + 1.06
    p.wire((6, 19.75), (6, 21.5), arrow=None, dashed=True)
    # From sums to results.
    p.wire((11, 27.75), (11, 30.25))
    p.text(11.6, 29, "held sums, one block per cycle")
    p.box(2.5, 30.25, 18, "drain", "the sums of G units per cycle")
    p.wire((11, 33.5), (11, 35))
    p.box(2.5, 35, 18, "pre-activations", "shift per row,", "add bias or partial sum")
    p.box(23.5, 35, 8.5, "partial-sum\nmemory", "recurrent product", kept=True)
    p.wire((20.5, 37.25), (23.5, 37.25), arrow="<->")
    p.wire((11, 39.5), (11, 41.5))
    p.text(11.6, 40.4, "i, f, g, o: sign and magnitude")
    p.box(
        2.5,
        41.5,
        18,
        "gate unit",
        "sigmoid, sigmoid, tanh, sigmoid:",
        "tables, interpolated or direct",
        "c' = f c + i g",
        "h = o tanh(c')",
        "dense: identity, ReLU, sigmoid, tanh",
    )
    p.box(23.5, 44, 8.5, "cell memory", "per stream", kept=True)
    p.wire((20.5, 45.6), (23.5, 45.6), arrow="<->")
    p.wire((2.5, 45.6), (1, 45.6), (1, 4.1), (2.5, 4.1))
    p.wire((15, 49.75), (15, 51.6), (22, 51.6))
    p.box(22, 50, 7.5, "output queue", "2 steps", kept=True)
    p.wire((29.5, 51.6), (31.5, 51.6))
    p.text(31.8, 51.5, "y")
    return p


def sequence() -> Picture:
    """What a core for whole sequences has around the core of steps."""
    p = Picture(33, 22.5)
    p.wire((0.5, 3.6), (4, 3.6))
    p.text(1.5, 2.6, "x")
    p.box(4, 2, 25, "sequence memory", "two halves of max_steps x row_words words", kept=True)
    p.wire((29, 3.6), (32.5, 3.6))
    p.text(30.5, 2.6, "y")
    p.wire((8, 5.25), (8, 9.5))
    p.text(8.6, 6.8, "one half is read,", "not the input buffer")
    p.wire((24, 9.5), (24, 5.25))
    p.text(24.6, 6.8, "results,", "at their step")
    p.box(4, 9.5, 25, "the same core", "array, drain, gate units")
    p.wire((10.5, 16.75), (10.5, 12.75))
    p.box(4, 16.75, 13, "part sequencer", "next step's part, stream", "and first word")
    p.box(20, 16.75, 9, "passes,\nparts,\nsteps", kept=True)
    p.wire((20, 19), (17, 19))
    return p


def loop_in_space() -> Picture:
    """The loop of an LSTM layer in space, with three registers: h, before the tables, and the cell's sum."""
    p = Picture(33, 42)
    p.wire((6, 0.5), (6, 2.5))
    p.text(6.6, 1.2, "x")
    p.box(1, 2.5, 14, "W x + b", "adders that rows share")
    p.wire((8, 5.75), (8, 7.25))
    p.box(1, 7.25, 14, "register", "the input's share", kept=True)
    p.wire((8, 10.5), (8, 12), (14, 12), (14, 13))
    p.box(11, 13, 15, "U h + the share", "adders that rows share")
    p.wire((18.5, 16.25), (18.5, 17.75))
    p.box(11, 17.75, 15, "register 1", "or block RAM of the tables", kept=True)
    p.wire((18.5, 21), (18.5, 22.5))
    p.box(11, 22.5, 15, "i, f, g, o: tables", "f c + i g: DSP blocks")
    p.wire((18.5, 25.75), (18.5, 27.25))
    p.box(11, 27.25, 15, "register 2", "f c + i g; o waits", kept=True)
    p.wire((18.5, 30.5), (18.5, 32))
    p.box(11, 32, 15, "o tanh(f c + i g)", "a table, a DSP block")
    p.wire((18.5, 35.25), (18.5, 36.75))
    p.box(11, 36.75, 15, "register 3", "h", kept=True)
    p.wire((26, 38.4), (30.5, 38.4), (30.5, 14.6), (26, 14.6))
    p.text(30, 26.5, "h", align="right")
    p.wire((11, 28.9), (8.5, 28.9))
    p.box(1, 27.25, 7.5, "c", "limited", kept=True)
    p.wire((4.75, 27.25), (4.75, 24.1), (11, 24.1))
    p.wire((18.5, 40), (18.5, 41.6))
    p.text(19.1, 41.2, "h, to the next layer or the output")
    return p


def board() -> Picture:
    """The top level of a board."""
    p = Picture(35, 28.5)
    p.frame(6, 1, 28.5, 26.5, "top level: rtlstm_board")
    for y, pin in ((4.6, "clock pin"), (8.6, "button"), (14.6, "rx"), (19.1, "tx"), (25.1, "LEDs")):
        p.text(0.5, y, pin, color=INK)
    p.wire((5.5, 4.6), (7.5, 4.6))
    p.box(7.5, 3.4, 5, "PLL", height=2.4)
    p.wire((12.5, 4.6), (15, 4.6))
    p.text(15.5, 4, "clock of the core;", "the pin's is the clock of all else")
    p.wire((5.5, 8.6), (7.5, 8.6))
    p.box(7.5, 7.4, 5, "reset", height=2.4)
    p.wire((10, 5.8), (10, 7.4))
    p.text(10.6, 6.6, "locked")
    p.wire((12.5, 8.6), (15, 8.6))
    p.text(15.5, 8, "until the PLL has locked,", "and 1,024 cycles more")
    p.frame(6.8, 11, 19.4, 10.7, "pin's clock")
    p.frame(27, 11, 6.8, 10.7, "PLL's clock")
    p.box(7.5, 13, 4.5, "UART", height=7.75)
    p.box(28.2, 13, 4.5, "core", height=7.75, kept=True)
    for x, above, below in (
        (13.5, "frames,\nsession", "responses"),
        (20.25, "registers,\nsteps", "words,\noutputs"),
    ):
        p.box(x, 13, 5.25, above)
        p.box(x, 17.5, 5.25, below, height=3.25)
    for left, right in ((5.5, 7.5), (12, 13.5), (18.75, 20.25), (25.5, 28.2)):
        p.wire((left, 14.6), (right, 14.6))
        p.wire((right, 19.1), (left, 19.1))
    p.wire((7.5, 25.1), (5.5, 25.1))
    p.box(7.5, 23.9, 11.25, "alive, traffic, error", height=2.4)
    return p


def zynq() -> Picture:
    """The system on a Zynq: processor, SmartConnect and the build with its AXI4-Lite bus."""
    p = Picture(33, 21)
    p.box(1, 1, 31, "processor", height=2.5)
    p.wire((8, 3.5), (8, 8.5))
    p.text(8.6, 4.6, "M_AXI_GP0")
    p.box(3, 8.5, 10, "SmartConnect", height=2.5)
    p.wire((8, 11), (8, 16))
    p.text(8.6, 13.4, "AXI4-Lite")
    p.wire((18, 3.5), (18, 16))
    p.wire((18, 9.75), (13, 9.75))
    p.text(18.6, 8.5, "FCLK_CLK0", "and reset")
    p.wire((28, 16), (28, 3.5))
    p.text(27.5, 4.6, "IRQ_F2P[0]", align="right")
    p.text(27.5, 14.9, "irq", align="right")
    p.box(1, 16, 31, "rtlstm_zynq", "the build's NAME_axilite, two LEDs", height=4)
    return p


def linked_core() -> Picture:
    """The parts of the serial link between a UART's pins and the core."""
    p = Picture(33, 28.5)
    p.wire((8, 0.5), (8, 2.5))
    p.text(8.6, 1.2, "rx")
    p.wire((25, 2.5), (25, 0.5))
    p.text(25.6, 1.2, "tx")
    p.box(1, 2.5, 31, "Uart")
    rows = (
        (6, ("FrameReceiver", "COBS, CRC-32C"), ("FrameSender", "COBS, CRC-32C"), False),
        (10.75, ("Session",), ("Responder",), False),
        (15.5, ("RequestMemory",), ("ResponseMemory",), True),
    )
    above = 4.5
    for y, left, right, kept in rows:
        p.wire((8, above), (8, y))
        p.wire((25, y), (25, above))
        p.box(1, y, 14, *left, kept=kept, height=3.25)
        p.box(18, y, 14, *right, kept=kept, height=3.25)
        above = y + 3.25
    p.wire((15, 12.4), (18, 12.4))
    p.wire((8, above), (8, 20.25))
    p.wire((25, 20.25), (25, above))
    p.box(1, 20.25, 31, "Executor")
    p.wire((16.5, 22.25), (16.5, 24.5), arrow="<->")
    p.box(1, 24.5, 31, "core", height=2.5, kept=True)
    return p


def link_frame() -> Picture:
    """The first example of docs/link.md: its fields, their bytes, and the bytes on the line."""
    p = Picture(33, 15)
    line = bytes.fromhex("04 11 34 12 01 01 01 01 06 01 41 e3 8d 2c 00")
    body = cobs.decode(line[:-1])
    left, byte = 1.5, 2.0
    x = left + byte
    p.text(x, 1.25, "a request: READ of register ID, one word")
    fields = (
        (1, "type", ""),
        (2, "session", "0x1234"),
        (2, "seq", "0"),
        (2, "ack", "0"),
        (2, "payload", "ID, 1"),
        (4, "CRC-32C", "of what precedes"),
    )
    for count, name, value in fields:
        p.box(x, 2.25, count * byte, name, value, kept=True)
        x += count * byte
    # A code takes the place of each zero, and one stands before all: it says where the next zero is.
    for y, values, first in ((5.5, body, 1), (11, line, 0)):
        for number, value in enumerate(values):
            code = values is line and (number == 0 or (number < len(line) - 1 and not body[number - 1]))
            p.box(left + (first + number) * byte, y, byte, f"{value:02x}", kept=not code)
    for number, value in enumerate(body):
        middle = left + (number + 1.5) * byte
        if not value:
            p.wire((middle, 7.5), (middle, 11))
    p.text(left + 2 * byte, 8.4, "COBS", align="center")
    p.text(left + 9.4 * byte, 8.4, "the other bytes", "stay as they are")
    p.text(31.5, 13.9, "the end of the frame: 0", align="right")
    return p


DIAGRAMS: dict[str, Callable[[], Picture]] = {
    "board": board,
    "datapath": datapath,
    "link-frame": link_frame,
    "linked-core": linked_core,
    "loop-in-space": loop_in_space,
    "model-to-answer": model_to_answer,
    "sequence": sequence,
    "zynq": zynq,
}


def draw(name: str) -> str:
    """Return the SVG of a block diagram."""
    return DIAGRAMS[name]().svg()
