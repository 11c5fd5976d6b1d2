"""Draws the pictures of docs/zoo.md, each of what its example computes.

    python examples/gallery.py [NAME]...

Some fetch their model with pip. Needs matplotlib and ``rtlstm[zoo]``.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from svg_picture import BLUE, GREY, INK, ORANGE, bare, picture

__all__ = ["FOLDER", "PICTURES", "main"]

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "gallery"
Floats = NDArray[np.float64]


def curves(
    path: Path, x: Floats, lines: dict[str, tuple[Floats, str, str]], xlabel: str, ylabel: str
) -> None:
    """Draw lines with their names: values, colour and kind of each; those in float are wide."""
    with picture(path, 7.2, 2.6) as figure:
        axes = figure.subplots()
        for name, (values, colour, kind) in lines.items():
            width, alpha = (4, 0.6) if name.endswith("float") else (1.4, None)
            axes.plot(x, np.round(values, 3), kind, color=colour, label=name, linewidth=width, alpha=alpha)
        axes.set_xlabel(xlabel, color=INK)
        axes.set_ylabel(ylabel, color=INK)
        axes.legend(frameon=False, labelcolor=INK, loc="upper right", ncols=3, bbox_to_anchor=(1, 1.18))
        bare(axes)


def blocks(path: Path, names: Sequence[str], between: Sequence[str]) -> None:
    """Draw boxes in a row, and what goes between two of them, both ways."""
    with picture(path, 7.2, 1.3) as figure:
        axes = figure.subplots()
        for at, name in enumerate(names):
            axes.text(
                3 * at, 0, name, ha="center", va="center", color=INK,
                bbox={"boxstyle": "round,pad=0.7", "facecolor": "none", "edgecolor": BLUE, "linewidth": 1.4},
            )  # fmt: skip
        for at, name in enumerate(between):
            arrow = {"arrowstyle": "<->", "color": GREY}
            axes.annotate("", (3 * at + 2.0, 0), (3 * at + 1.0, 0), arrowprops=arrow)
            axes.text(3 * at + 1.5, 0.25, name, ha="center", va="bottom", color=INK, fontsize=9)
        axes.set_xlim(-1, 3 * len(names) - 2)
        axes.set_ylim(-1, 1)
        axes.set_axis_off()


def speech(path: Path) -> None:
    """Twelve seconds of speech, and its probability in float and as built."""
    from rtlstm.gen.frontends import read_model
    from rtlstm.gen.quantise.quantiser import quantise
    from rtlstm.sim.golden import Golden
    from rtlstm.zoo.silero import CHUNK, STEPS_PER_SECOND, fetch_silero, read_speech, run_float_model

    files = fetch_silero()
    model = read_model(files.model)
    recording = run_float_model(files.model, read_speech(files.speech), model.report.input)
    built = quantise(model.network, calibration=recording.features[:625].astype(np.float64))
    y = Golden(built).run(built.numerics.quantise_input(recording.features[:, None])).y[:, 0, 0]
    shown = slice(0, round(12 * STEPS_PER_SECOND))
    time = np.arange(shown.stop) / STEPS_PER_SECOND
    loudness = np.abs(recording.audio.reshape(-1, CHUNK)).max(axis=1)
    lines = {
        "sound": (loudness[shown], GREY, "-"),
        "speech, float": (recording.probability[shown], ORANGE, "-"),
        "speech, built": (built.shapes[-1].output.to_floats(y)[shown], BLUE, "-"),
    }
    curves(path, time, lines, "seconds", "probability")


def gait(path: Path) -> None:
    """Four seconds of a walk: the true phase, the float model's and the build's."""
    import gait_phase

    model, x, truth = gait_phase.load_gait()
    x, truth = x[:6000], truth[:6000]
    built, in_float = (gait_phase.run(model, x, backend) for backend in ("golden", "float"))
    shown = slice(5600, 6000)
    lines = {
        "true": (truth[shown], GREY, "-"),
        "float": (gait_phase.phase(in_float)[shown], ORANGE, "-"),
        "built": (gait_phase.phase(built)[shown], BLUE, "-"),
    }
    curves(path, np.arange(400) / 100, lines, "seconds", "phase, rad")


def words(path: Path) -> None:
    """Letters of an Arabic word, from right to left, with the share of each tag in float."""
    import word_taggers

    tagger = word_taggers.TAGGERS["segmenter"]()
    at = tagger.words.index("وبكتابهم")
    scores = word_taggers.score(tagger, "float")[at]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    places = np.arange(len(scores))[::-1]
    with picture(path, 7.2, 2.4) as figure:
        axes = figure.subplots()
        bottom = np.zeros(len(scores))
        for number, (tag, colour) in enumerate(
            zip(("prefix", "stem", "suffix"), (ORANGE, BLUE, GREY), strict=True)
        ):
            axes.bar(places, shares[:, number], 0.7, bottom, color=colour, label=tag)
            bottom += shares[:, number]
        axes.set_xticks(places, list(tagger.words[at]), fontsize=14)
        axes.set_ylabel("share of the tag", color=INK)
        axes.legend(frameon=False, labelcolor=INK, loc="upper right", ncols=3, bbox_to_anchor=(1, 1.2))
        bare(axes)


def amplifier(path: Path) -> None:
    """Eight milliseconds of a plucked string, before the amplifier and behind it."""
    import amplifier as example

    from rtlstm.gen.frontends import read_model
    from rtlstm.gen.quantise.quantiser import quantise
    from rtlstm.sim.golden import Golden
    from rtlstm.sim.reference import run_float

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.nam"
        example.make(made)
        model = read_model(made)
    x = example.pluck(example.RATE // 4, 1)[:, None, None]
    built = quantise(model.network, calibration=x)
    y = Golden(built).run(built.numerics.quantise_input(x)).y
    shown = slice(2000, 2384)
    lines = {
        "string": (x[shown, 0, 0], GREY, "-"),
        "amplified, float": (run_float(model.network, x).y[shown, 0, 0], ORANGE, "-"),
        "amplified, built": (built.shapes[-1].output.to_floats(y)[shown, 0, 0], BLUE, "-"),
    }
    curves(path, 1000 * np.arange(384) / example.RATE, lines, "milliseconds", "sample")


def cell(path: Path) -> None:
    """The own cell's first output, in float and as built."""
    import own_cell

    from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
    from rtlstm.sim.golden import Golden
    from rtlstm.sim.reference import run_float

    network = own_cell.network()
    x = np.random.default_rng(1).uniform(-1, 1, (own_cell.STEPS, 1, own_cell.INPUTS))
    built = quantise(network, QuantizationSettings(weight_bits=12, data_bits=12), x)
    y = Golden(built).run(built.numerics.quantise_input(x)).y
    lines = {
        "float": (run_float(network, x).y[:, 0, 0], ORANGE, "-"),
        "built": (built.shapes[-1].output.to_floats(y)[:, 0, 0], BLUE, "o"),
    }
    curves(path, np.arange(own_cell.STEPS, dtype=np.float64), lines, "step", "first output")


def two_layers(path: Path) -> None:
    """Cycles of a step, and of the array in it."""
    import vollo_lstm

    figures = vollo_lstm.compare("golden")
    bars = {
        "from step to step": figures["cycles between steps, back to back"],
        "from input to output": figures["cycles per streaming step"],
        "of it the array": figures["of them array cycles"],
    }
    with picture(path, 7.2, 1.6) as figure:
        axes = figure.subplots()
        axes.barh(list(bars), list(bars.values()), 0.6, color=(GREY, BLUE, BLUE))
        for at, cycles in enumerate(bars.values()):
            axes.text(cycles, at, f" {cycles:,.0f} cycles", va="center", color=INK)
        axes.set_xlim(0, 1.25 * max(bars.values()))
        axes.set_xticks([])
        axes.invert_yaxis()
        bare(axes)


def usages(path: Path) -> None:
    """A module whose LSTM is a build."""
    names = ("your module,\npadded or packed", "rtlstm.host.torch\nas its LSTM", "the build")
    blocks(path, names, ("forward", "driver"))


def client(path: Path) -> None:
    """A program in C, and the core that it drives."""
    blocks(path, ("your program,\nrtlstm.c", "link", "core"), ("serial or TCP", "on the board"))


def litex(path: Path) -> None:
    """A core on the bus of a SoC."""
    blocks(path, ("CPU", "RtlstmCore", "core"), ("Wishbone,\ninterrupt", "registers"))


PICTURES: dict[str, Callable[[Path], Any]] = {
    "speech": speech,
    "gait": gait,
    "words": words,
    "amplifier": amplifier,
    "cell": cell,
    "two_layers": two_layers,
    "usages": usages,
    "client": client,
    "litex": litex,
}


def main(arguments: list[str] | None = None) -> None:
    """Draw the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/zoo.md.")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(PICTURES)}")
    parser.add_argument("-o", "--output", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    for name in given.name or PICTURES:
        PICTURES[name](given.output / f"{name}.svg")
        print(f"drawn: {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
