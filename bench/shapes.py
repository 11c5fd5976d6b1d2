"""The benchmark networks: their sizes, an array for each, and seeded random weights."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rtlstm.gen.builds.hardware import SPATIAL, ArrayRequest, in_space
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import HiddenRounding
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Activation, Dense, Gru, Lstm, Network
from rtlstm.spec.parameters import Parameters, TableKind
from rtlstm.spec.record import Record

Floats = NDArray[np.float32]

_SEED = 20_26
_GATES = {"lstm": 4, "gru": 3}


class Shape(Record):
    """A benchmark network: its sizes, and those of its array."""

    name: str
    origin: str
    inputs: Annotated[int, Field(ge=1)]
    cell: Literal["lstm", "gru"] = "lstm"
    """What all recurrent layers are."""
    units: tuple[int, ...]
    """Units of each recurrent layer."""
    dense: tuple[int, ...] = ()
    """Outputs of each dense layer after them; ReLU between two of them."""
    steps: Annotated[int, Field(ge=1)]
    """Number of steps of a sequence, or of the window for which a stream's figures are quoted."""
    lanes: int = 4
    macs: int = 32
    gate_units: int = 1
    lut_macs: int = 0
    """Multipliers per lane made of LUTs."""
    beat: int = 1
    """Input words per transfer."""
    tables: TableKind = "interpolated"
    family: str
    """Device family whose pipeline the build has; a real one, as cycles are compared with others'."""
    bits: int = 16
    """Bits of data, and of weights unless ``weight_bits`` says otherwise."""
    weight_bits: int | None = None
    """Bits of weights; by default those of data."""
    gate_bits: int | None = None
    """Bits of sigmoid and tanh results; by default those of the data, at least 12."""
    cell_bits: int = 16
    hidden_rounding: HiddenRounding = "half_up"
    wave_front: bool = False
    """Whether layers of one stream work on different steps at once."""
    loop_registers: int | None = None
    """Registers in the loop of a spatial build, which has no array; None for one with an array."""
    without_rtl: str = ""
    """Why its RTL is not simulated; empty if it is."""

    @property
    def recurrent_macs(self) -> int:
        """Multiplications of the recurrent layers in a step."""
        return sum(self._gates * units * (inputs + units) for inputs, units in self._recurrent_sizes())

    @property
    def dense_macs(self) -> int:
        """Multiplications of the dense layers in a step."""
        return sum(inputs * outputs for inputs, outputs in self._dense_sizes())

    @property
    def input_path_macs(self) -> int:
        """Multiplications of the recurrent layers that need the step's input; others are done before."""
        return sum(self._gates * units * inputs for inputs, units in self._recurrent_sizes())

    @property
    def weight_count(self) -> int:
        """Weights, and one bias per row; two per row of a GRU."""
        biases = {"lstm": 1, "gru": 2}[self.cell] * self._gates * sum(self.units) + sum(self.dense)
        return self.recurrent_macs + self.dense_macs + biases

    @property
    def parameters(self) -> Parameters:
        """The hardware's parameters."""
        return Parameters.for_family(
            self.family,
            lanes=self.lanes,
            macs=self.macs,
            gate_units=self.gate_units,
            beat_in=self.beat,
            beat_out=self.gate_units,
            lut_macs=self.lut_macs,
            tables=self.tables,
            wave_front=self.wave_front,
            factor_bits=min(self.bits, self.settings.weight_bits),
        )

    @property
    def hardware(self) -> dict[str, Parameters | ArrayRequest]:
        """What a build's request has for the hardware: parameters, or a request for a spatial build."""
        if self.loop_registers is None:
            return {"parameters": self.parameters}
        return {"array": self._spatial}

    @property
    def _spatial(self) -> ArrayRequest:
        asked = {"family": self.family, "loop_registers": self.loop_registers, "tables": self.tables}
        return ArrayRequest(array="spatial", **asked)

    def manifest(self, blank: bool = False) -> Manifest:
        """Return the manifest of a build; ``blank`` as for :meth:`network`."""
        network, target = self.network(blank), None if self.loop_registers is None else SPATIAL
        quantised = quantise(network, self.settings, hardware=target)
        if target is not None:
            return in_space(self.name, quantised, self._spatial)
        return Manifest.of(self.name, quantised, self.parameters)

    @property
    def settings(self) -> QuantizationSettings:
        """The formats."""
        return QuantizationSettings(
            weight_bits=self.weight_bits or self.bits,
            data_bits=self.bits,
            output_bits=self.bits,
            gate_bits=self.gate_bits,
            cell_bits=self.cell_bits,
            hidden_rounding=self.hidden_rounding,
            tables=self.tables,
        )

    @property
    def outputs(self) -> int:
        """Values that a step gives."""
        return (self.units + self.dense)[-1]

    @property
    def _gates(self) -> int:
        return _GATES[self.cell]

    def _recurrent_sizes(self) -> Iterator[tuple[int, int]]:
        yield from zip((self.inputs, *self.units), self.units, strict=False)

    def _dense_sizes(self) -> Iterator[tuple[int, int]]:
        yield from zip((self.units[-1], *self.dense), self.dense, strict=False)

    def network(self, blank: bool = False) -> Network:
        """The network, with weights as PyTorch initialises them, uniform within 1 / sqrt(units).

        They are single precision and always the same. If ``blank``, all are 0.
        """
        rng = np.random.default_rng(_SEED)

        def draw(*size: int, max_abs: float) -> Floats:
            if blank:
                return np.zeros(size, dtype=np.float32)
            return (rng.random(size, dtype=np.float32) * 2 - 1) * np.float32(max_abs)

        layers: list[Lstm | Gru | Dense] = []
        for index, (inputs, units) in enumerate(self._recurrent_sizes()):
            max_abs, rows, name = 1 / math.sqrt(units), self._gates * units, f"{self.cell}{index}"
            w_ih, w_hh = (draw(rows, width, max_abs=max_abs) for width in (inputs, units))
            bias_ih, bias_hh = (draw(rows, max_abs=max_abs) for _ in range(2))
            if self.cell == "gru":
                layers.append(Gru(name=name, w_ih=w_ih, w_hh=w_hh, bias_ih=bias_ih, bias_hh=bias_hh))
            else:
                layers.append(Lstm(name=name, w_ih=w_ih, w_hh=w_hh, bias=bias_ih + bias_hh))
        for index, (inputs, outputs) in enumerate(self._dense_sizes()):
            max_abs = 1 / math.sqrt(inputs)
            activation: Activation = "identity" if index == len(self.dense) - 1 else "relu"
            weight, bias = draw(outputs, inputs, max_abs=max_abs), draw(outputs, max_abs=max_abs)
            layers.append(Dense(name=f"dense{index}", weight=weight, bias=bias, activation=activation))
        return Network(name=self.name, layers=tuple(layers))

    def input_values(self, steps: int) -> Floats:
        """Draw inputs ``(steps, inputs)``, uniform within 1; always the same."""
        rng = np.random.default_rng(_SEED + 1)
        return rng.random((steps, self.inputs), dtype=np.float32) * 2 - 1


_NETWORKS: Final[dict[str, dict[str, Any]]] = {
    "traffic20": {"inputs": 1, "units": (20,), "dense": (1,), "steps": 6},
    "toptag": {"inputs": 6, "units": (20,), "dense": (64, 1), "steps": 20},
    "nam16": {"inputs": 1, "units": (16,), "dense": (1,), "steps": 100},
    "stac_a": {"inputs": 100, "units": (100, 100), "dense": (1,), "steps": 50},
    "dropbear": {"inputs": 16, "units": (15, 15, 15), "dense": (1,), "steps": 100},
    "mnist32": {"inputs": 28, "units": (32,), "dense": (10,), "steps": 28},
    "vad128": {"inputs": 128, "units": (128,), "dense": (1,), "steps": 100},
    "quickdraw": {"inputs": 3, "units": (128,), "dense": (256, 5), "steps": 100},
    "stac_b": {"inputs": 250, "units": (200, 200, 200), "dense": (1,), "steps": 100},
    "stac_c": {"inputs": 500, "units": (1000, 1000, 1000, 1000), "dense": (1,), "steps": 100},
    "vollo_ex3": {"inputs": 128, "units": (256, 256), "dense": (16,), "steps": 20},
    "lstm2x250": {"inputs": 250, "units": (250, 250), "steps": 20},
    "lstm4x177": {"inputs": 177, "units": (177,) * 4, "steps": 20},
    "gru512": {"inputs": 512, "cell": "gru", "units": (384,), "steps": 20},
    "deepbench256": {"inputs": 256, "units": (256,), "steps": 150},
}
"""Sizes of the networks, some of which stand with more than one kind of hardware."""
_IN_SPACE: Final[dict[str, Any]] = {
    "loop_registers": 1,
    "tables": "direct",
    "bits": 8,
    "weight_bits": 4,
    "gate_bits": 8,
    "cell_bits": 12,
    "hidden_rounding": "odd",
}
"""The loop and the formats of the networks in space."""


def _shape(name: str, origin: str, family: str, network: str = "", **array: Any) -> Shape:
    """Return a network, or ``network`` under another name, with an array and formats."""
    return Shape(name=name, origin=origin, family=family, **_NETWORKS[network or name], **array)


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        _shape("traffic20", "traffic forecast, the LSTM of the elastic-ai.creator papers", "ecp5", macs=20),
        _shape("traffic20_space", "traffic forecast, in space", "ecp5", "traffic20", **_IN_SPACE),
        _shape(
            "toptag",
            "top-quark tagging, the LSTM of the hls4ml papers",
            "ecp5",
            lanes=48,
            macs=3,
            gate_units=3,
            beat=3,
            tables="direct",
            bits=8,
            gate_bits=9,
        ),
        _shape("toptag_space", "top-quark tagging, in space", "ecp5", "toptag", **_IN_SPACE),
        _shape("mnist32", "digits row by row", "ecp5"),
        _shape("vad128", "speech detection, the LSTM of silero VAD", "ecp5"),
        _shape("quickdraw", "sketches as strokes", "ecp5"),
        _shape(
            "stac_a",
            "STAC-ML Markets, LSTM_A",
            "ecp5",
            lanes=40,
            macs=4,
            gate_units=2,
            lut_macs=1,
            beat=4,
            bits=8,
        ),
        _shape(
            "stac_a_4_bits",
            "STAC-ML Markets, LSTM_A, all products in DSP blocks, two in each",
            "ecp5",
            "stac_a",
            lanes=40,
            macs=7,
            beat=7,
            bits=8,
            weight_bits=4,
        ),
        _shape(
            "stac_a_4_bits_wide",
            "STAC-ML Markets, LSTM_A, two products in a DSP block, others of LUTs",
            "ecp5",
            "stac_a",
            lanes=80,
            macs=8,
            gate_units=4,
            lut_macs=5,
            beat=4,
            bits=8,
            weight_bits=4,
        ),
        _shape("stac_b", "STAC-ML Markets, LSTM_B", "ultrascale", lanes=16, macs=8),
        _shape(
            "stac_c",
            "STAC-ML Markets, LSTM_C",
            "ultrascale",
            lanes=16,
            macs=8,
            without_rtl="60 MB of weights would go through a simulated register port word by word",
        ),
        _shape("vollo_ex3", "example 3 of the VOLLO documentation", "ultrascale"),
        _shape("lstm2x250", "VOLLO's model zoo, 2 layers of 250", "ultrascale"),
        _shape("lstm4x177", "VOLLO's model zoo, 4 layers of 177", "ultrascale"),
        _shape("gru512", "VOLLO's model zoo, a GRU of 384", "ultrascale"),
        _shape(
            "dropbear",
            "structural monitoring, DROPBEAR; its 16 inputs are assumed",
            "ecp5",
            lanes=32,
            macs=4,
            gate_units=4,
            beat=4,
        ),
        _shape(
            "dropbear_wave",
            "DROPBEAR with 4-bit weights, its layers on different steps at once",
            "ecp5",
            "dropbear",
            lanes=32,
            macs=16,
            gate_units=8,
            beat=16,
            tables="direct",
            wave_front=True,
            bits=8,
            weight_bits=4,
        ),
        _shape(
            "nam16", "a neural amplifier, 48,000 samples a second", "ecp5", lanes=32, macs=4, gate_units=4
        ),
        _shape("nam16_space", "a neural amplifier, in space", "ecp5", "nam16", **_IN_SPACE),
        _shape("deepbench256", "DeepBench's small LSTM", "ultrascale"),
    )
}
"""The networks that ``rtlstm bench`` knows, by name."""


def find_shapes(names: list[str] | None) -> list[Shape]:
    """Return the named networks, or all. Raises ConfigurationError if there is none of a name."""
    for name in names or ():
        if name not in SHAPES:
            raise ConfigurationError(f"a benchmark network must be one of {', '.join(SHAPES)}, not {name!r}")
    return [SHAPES[name] for name in dict.fromkeys(names)] if names else list(SHAPES.values())
