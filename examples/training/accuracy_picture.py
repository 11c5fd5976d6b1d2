"""Draws accuracy against bits, with cycles and LUTs beside it, from the tables of docs/training.md.

    python examples/training/accuracy_picture.py -o docs/images/accuracy-bits.svg
    python examples/training/accuracy_picture.py --hardware    # cycles and LUTs, measured anew, as that table

The errors are what ``python examples/training/tasks.py gait`` measures. Needs matplotlib; ``--hardware``
fetches the model with pip, and needs ``rtlstm[keras]``.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import estimate
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Network
from rtlstm.spec.parameters import Parameters

sys.path.insert(0, str(Path(__file__).parents[1]))

from svg_picture import BLUE, GREY, INK, ORANGE, bare, picture

__all__ = ["BITS", "DEVICE", "Figures", "draw", "hardware", "read"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "training.md"
BITS = (8, 4, 3, 2)
DEVICE, LANES, MACS = "lfe5u-25f-6", 16, 4
_FLOAT, _ROUNDED, _TRAINED = GREY, ORANGE, BLUE


@dataclass(frozen=True)
class Figures:
    """What is known of one width of the weights."""

    bits: int
    in_float: float
    """Errors, rad: of the float network, of the one that is rounded only, and of the trained one."""
    rounded: float
    trained: float
    cycles: int
    """Of a step."""
    luts: int


def read(page: str) -> list[Figures]:
    """Read the two tables of ``docs/training.md``, widest weights first."""
    number = r" ([\d.,]+) (?:rad )?\|"
    errors = re.findall(rf"^\| (?:phase of a walker's gait.*|the same) \|{4 * number}$", page, re.MULTILINE)
    sizes = {int(bits): rest for bits, *rest in re.findall(rf"^\|{3 * number}$", page, re.MULTILINE)}
    found = []
    for bits, in_float, rounded, trained in errors:
        cycles, luts = (int(each.replace(",", "")) for each in sizes[int(bits)])
        found.append(Figures(int(bits), float(in_float), float(rounded), float(trained), cycles, luts))
    return found


def hardware(network: Network, data: NDArray[np.float64], bits: int) -> tuple[int, int]:
    """Return a step's cycles, which are exact, and the estimated LUTs; the array's multipliers are of
    LUTs."""
    settings = QuantizationSettings(weight_bits=bits, data_bits=8, hidden_bits=8, output_bits=12)
    found = quantise(network, settings, data)
    parameters = Parameters.for_family("ecp5", lanes=LANES, macs=MACS, lut_macs=MACS)
    manifest = Manifest.of("gait", found, parameters)
    sizes = estimate(manifest, find_device(DEVICE))
    assert sizes is not None
    return manifest.cycles.step_latency_cycles, sizes.luts


def draw(figures: list[Figures], path: Path) -> None:
    """Write the picture, whose ink is dark or light as its reader's page is."""
    with picture(path, 7.6, 3.2) as figure:
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        places = range(len(figures))
        for name, colour, errors in (
            ("float", _FLOAT, [each.in_float for each in figures]),
            ("rounded only", _ROUNDED, [each.rounded for each in figures]),
            ("trained", _TRAINED, [each.trained for each in figures]),
        ):
            left.plot(places, errors, "--" if name == "float" else "o-", color=colour, label=name)
            if name == "float":
                continue
            for place, error in zip(places, errors, strict=True):
                above = name == "rounded only"
                offset = (-8, 7) if above else (0, -15)
                left.annotate(
                    f"{error:.3f}",
                    (place, error),
                    offset,
                    textcoords="offset points",
                    ha="center",
                    color=colour,
                )
        left.set_xlim(-0.4, len(figures) - 0.6)
        left.set_ylim(0, 1.12 * max(each.rounded for each in figures))
        left.set_title("mean error of the gait's phase, rad", fontsize=10)
        left.legend(frameon=False, loc="upper left", labelcolor=INK)
        right.bar(places, [each.luts for each in figures], color=_TRAINED, width=0.6)
        for place, each in zip(places, figures, strict=True):
            right.annotate(
                f"{each.luts:,}",
                (place, each.luts),
                (0, 3),
                textcoords="offset points",
                ha="center",
                color=INK,
            )
        right.set_ylim(0, 1.15 * max(each.luts for each in figures))
        cycles = sorted({each.cycles for each in figures})
        right.set_title(f"LUTs; {' or '.join(map(str, cycles))} cycles a step", fontsize=10)
        for axes in (left, right):
            axes.set_xticks(places, [f"{each.bits} bits" for each in figures])
            bare(axes)


def main(arguments: list[str] | None = None) -> int:
    """Draw the picture, or print the table of cycles and LUTs."""
    parser = argparse.ArgumentParser(description="Draw accuracy against bits, with cycles and LUTs.")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "images" / "accuracy-bits.svg")
    parser.add_argument("--hardware", action="store_true", help="print the table of cycles and LUTs instead")
    given = parser.parse_args(arguments)
    if not given.hardware:
        draw(read(PAGE.read_text()), given.output)
        return 0
    from rtlstm.zoo.gait import load_gait, read_gait

    path, x, _ = load_gait()
    network = read_gait(path).network
    print("| weight bits | cycles of a step | LUTs |\n|---|---|---|")
    for bits in BITS:
        cycles, luts = hardware(network, x[: int(0.8 * len(x))], bits)
        print(f"| {bits} | {cycles} | {luts:,} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
