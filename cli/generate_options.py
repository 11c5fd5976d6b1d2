"""Options that ``rtlstm generate`` alone takes."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "BatchFirstOption",
    "BeatInOption",
    "BeatOutOption",
    "BusOption",
    "CalibrateLengthsOption",
    "CalibrateOption",
    "CalibrateStateOption",
    "CapacityOption",
    "CellBitsOption",
    "CellRangeOption",
    "DataBitsOption",
    "DenseWeightBitsOption",
    "FamilyOption",
    "FinalStatesOption",
    "FitOption",
    "ForOption",
    "GateBitsOption",
    "GateUnitsOption",
    "HeadroomBitsOption",
    "InputRangeOption",
    "LanesOption",
    "LoadableOption",
    "MacsOption",
    "MaxStepsOption",
    "ModelArgument",
    "MultipliersOption",
    "NameOption",
    "OutputBitsOption",
    "OutputFolderOption",
    "StreamsOption",
    "TablesOption",
    "WeightBitsOption",
    "WeightMemoryOption",
]

_HARDWARE, _NUMBERS, _LOADABLE = "Hardware", "Numbers", "Loadable program"

ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="An ONNX, Keras, TorchScript, .pt2 or safetensors file, or a PyTorch state dict.",
    ),
]

OutputFolderOption = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="The build folder: new, empty or a build to replace."),
]

BeatInOption = Annotated[
    int,
    typer.Option(
        help="Input words per transfer; must divide the multipliers per lane.", rich_help_panel=_HARDWARE
    ),
]

BeatOutOption = Annotated[
    int | None,
    typer.Option(
        help="Output words per transfer, a multiple of the gate units; by default as many.",
        rich_help_panel=_HARDWARE,
    ),
]

BusOption = Annotated[
    str,
    typer.Option(
        help="A wrapper for a system's bus: none; axi (AXI4-Stream data, AXI4-Lite registers); "
        "axilite (registers alone, steps go through them); or wishbone (likewise).",
        rich_help_panel=_HARDWARE,
    ),
]

MultipliersOption = Annotated[
    str | None,
    typer.Option(
        help="dsp (the default): the family's hard multipliers; lut: of look-up tables; N: that many of each "
        "lane's of look-up tables; auto (the default with --fit): those that the device lacks.",
        rich_help_panel=_HARDWARE,
    ),
]

GateUnitsOption = Annotated[
    int | None,
    typer.Option(
        help="Hidden units finished per cycle; must divide lanes / 4 and macs; by default 1.",
        rich_help_panel=_HARDWARE,
    ),
]

CalibrateOption = Annotated[
    Path | None,
    typer.Option(
        help="Typical inputs, (T, I) or (T, N, I): an .npy file, or an .npz file with an array x.",
        rich_help_panel=_NUMBERS,
    ),
]

BatchFirstOption = Annotated[
    bool,
    typer.Option(
        "--batch-first", help="The typical inputs have the batch first, (N, T, I).", rich_help_panel=_NUMBERS
    ),
]

CalibrateLengthsOption = Annotated[
    str | None,
    typer.Option(
        help="Valid steps of each sequence of the typical inputs: numbers with commas between them, or an "
        ".npy file; all by default.",
        rich_help_panel=_NUMBERS,
    ),
]

CalibrateStateOption = Annotated[
    Path | None,
    typer.Option(
        help="What each sequence of the typical inputs begins with: an .npz file of h and c, as rtlstm run "
        "--state-output writes it; zeros by default.",
        rich_help_panel=_NUMBERS,
    ),
]

CellBitsOption = Annotated[
    int,
    typer.Option(help="Of the cell state, 8 to 32.", rich_help_panel=_NUMBERS),
]

CellRangeOption = Annotated[
    float | None,
    typer.Option(
        help="Where the cell state saturates; by default from the calibration data, else 16.",
        rich_help_panel=_NUMBERS,
    ),
]

DataBitsOption = Annotated[
    int,
    typer.Option(help="Of inputs, h and dense results, 4 to 18.", rich_help_panel=_NUMBERS),
]

OutputBitsOption = Annotated[
    int | None,
    typer.Option(
        help="Of the network's outputs, behind a dense layer, 4 to 18; by default those of the data.",
        rich_help_panel=_NUMBERS,
    ),
]

DenseWeightBitsOption = Annotated[
    int | None,
    typer.Option(
        help="Of dense layers' weights, 2 to 18; by default those of all. Words have the wider ones' bits.",
        rich_help_panel=_NUMBERS,
    ),
]

FamilyOption = Annotated[
    str | None,
    typer.Option(
        help="generic (the default), ecp5, ice40, nexus, gowin, xilinx or intel.", rich_help_panel=_HARDWARE
    ),
]

FinalStatesOption = Annotated[
    bool | None,
    typer.Option(
        "--final-states/--no-final-states",
        help="Whether final states go on elsewhere, as an encoder's to a decoder: then the range that the "
        "calibration data give c holds them; by default if the network does not end in a dense layer.",
        rich_help_panel=_NUMBERS,
    ),
]

FitOption = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE|BOARD",
        help="Choose family, lanes, macs, gate units and multipliers for the shortest step on this ECP5 or "
        "iCE40 device, or on this board, its serial link counted in; those given are kept.",
        rich_help_panel=_HARDWARE,
    ),
]

GateBitsOption = Annotated[
    int | None,
    typer.Option(
        help="Of sigmoid and tanh, 6 to 18; by default the data's or the outputs', at least 12.",
        rich_help_panel=_NUMBERS,
    ),
]

HeadroomBitsOption = Annotated[
    int,
    typer.Option(
        help="Bits by which a retrained model's weights and sums may be larger that the hardware is given "
        "later, 0 to 16.",
        rich_help_panel=_NUMBERS,
    ),
]

InputRangeOption = Annotated[
    float | None,
    typer.Option(
        help="Largest input of any feature; by default from the calibration data, feature by feature, or 8.",
        rich_help_panel=_NUMBERS,
    ),
]

LanesOption = Annotated[
    int | None,
    typer.Option(
        help="Dot-product engines, a multiple of 4; by default those of the smallest array that is as fast "
        "as 4 x 32.",
        rich_help_panel=_HARDWARE,
    ),
]

LoadableOption = Annotated[
    bool,
    typer.Option(
        "--loadable",
        help="The program is loaded like the weights: the device takes other networks, too, within its "
        "capacities.",
        rich_help_panel=_LOADABLE,
    ),
]

CapacityOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER",
        help="A capacity of a loadable device; by default what the network takes, up to the next power of "
        "two. Names: operations, inputs, outputs, weight-rows, shift-rows, bias-rows, partial-rows, "
        "vector-words, cell-rows, headroom. May be repeated.",
        rich_help_panel=_LOADABLE,
    ),
]

ForOption = Annotated[
    Path | None,
    typer.Option(
        "--for",
        metavar="DEVICE",
        help="Make a build that the device of this build folder can be given: another network's for a "
        "loadable one, else a retrained model's. It brings hardware, formats and name.",
        rich_help_panel=_LOADABLE,
    ),
]

MacsOption = Annotated[
    int | None,
    typer.Option(help="Multipliers per lane; by default as for --lanes.", rich_help_panel=_HARDWARE),
]

MaxStepsOption = Annotated[
    int | None,
    typer.Option(help="Longest sequence the driver accepts.", rich_help_panel=_HARDWARE),
]

NameOption = Annotated[
    str | None,
    typer.Option(help="Name of the build and its top module; by default from the model file's."),
]

StreamsOption = Annotated[
    int,
    typer.Option(help="Sequences whose state is kept on chip.", rich_help_panel=_HARDWARE),
]

TablesOption = Annotated[
    str,
    typer.Option(
        help="interpolated; or direct: an entry for every input, quicker, for data of up to 12 bits.",
        rich_help_panel=_HARDWARE,
    ),
]

WeightBitsOption = Annotated[
    int,
    typer.Option(help="Of the weights, 2 to 18.", rich_help_panel=_NUMBERS),
]

WeightMemoryOption = Annotated[
    str | None,
    typer.Option(
        help="What holds the weights: block (the default) or large, the family's largest memory, such as "
        "the iCE40 UP5K's single port RAM; with --fit, large where block RAM is too small.",
        rich_help_panel=_HARDWARE,
    ),
]
