"""Networks that were trained in the hardware's arithmetic: their integers are taken as they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rtlstm.gen.frontends.reading import InitialState, ModelReport
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.plan import FormatChoices, QuantizationSettings, RowChoices
from rtlstm.gen.quantise.quantiser import quantise_with
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork


@dataclass(frozen=True)
class TrainedNetwork:
    """A network whose numbers are multiples of the steps that its formats give them."""

    network: Network
    settings: QuantizationSettings
    choices: FormatChoices
    rows: RowChoices
    calibration: Calibration | None = None
    source: ModelReport | None = None
    """The front end's report of the model, if there is one."""
    hardware: TargetHardware | None = None
    """That of an existing device, if the network was trained for one."""
    device: Path | None = None
    """The device's build folder."""
    initial_state: InitialState | None = None
    """The state in which the model begins, if that is not zero."""

    def quantised(self) -> QuantizedNetwork:
        """Return its integers: nothing is rounded."""
        return quantise_with(self.network, self.settings, self.choices, self.hardware, self.rows)


@runtime_checkable
class TrainedModel(Protocol):
    """What was prepared for training, as :func:`rtlstm.compile` takes it."""

    def trained_network(self) -> TrainedNetwork:
        """Return the network as it is now."""
