"""What a build's formats were chosen from, to quantise a network again as ``generate`` does."""

from typing import Annotated

import numpy as np
from pydantic import Field

from rtlstm.gen.quantise.calibration import keeps_cell_state
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise_with
from rtlstm.gen.quantise.ranges import Calibrated
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.sim.reference import FloatState
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.record import Record

Layers = tuple[tuple[float, ...], ...]
State = tuple[Layers, Layers]


def as_numbers(state: FloatState | None) -> State | None:
    """Return a state, ``(units,)`` per layer, in plain numbers."""
    if state is None:
        return None
    h, c = (tuple(tuple(layer.tolist()) for layer in part) for part in state)
    return h, c


class FormatRequest(Record):
    """The user's settings, and what the calibration data said."""

    settings: QuantizationSettings
    calibrated: Calibrated | None = None
    """None without calibration data."""
    initial_state: State | None = None
    """h and c of each layer in which the model begins, if that is not zeros and there are no such data."""
    headroom: Annotated[int, Field(ge=0)] | None = None
    """Headroom of a loadable device, in bits; None for a fixed program."""

    def searches(self, network: Network) -> bool:
        """Whether the range of the network's c was searched: the calibration data themselves decided it."""
        keeps_c = any(map(keeps_cell_state, network.pseudo_layers))
        return self.calibrated is not None and self.settings.cell_range is None and keeps_c

    def quantise(self, network: Network) -> QuantizedNetwork:
        """Quantise as ``generate`` does with these settings and the same calibration data.

        The settings state the range of c where ``generate`` would search it.

        Raises
        ------
        ConfigurationError
            If the formats asked for cannot be built.
        """
        hardware = None if self.headroom is None else TargetHardware(headroom=self.headroom)
        begin = self.initial_state
        arrays = None if begin is None else [[np.array(layer) for layer in part] for part in begin]
        choices = choose_formats(
            network,
            self.settings,
            self.calibrated,
            hardware,
            initial_state=None if arrays is None else (arrays[0], arrays[1]),
        )
        return quantise_with(network, self.settings, choices, hardware)
