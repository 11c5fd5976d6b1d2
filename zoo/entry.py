"""What the zoo knows of a published model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.spec.progress import Progress
from rtlstm.zoo.fetch import Package

__all__ = ["Entry", "Floats", "Integers", "Metric", "Subject"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Metric:
    """The number by which a model's users judge it."""

    name: str
    """With its unit."""
    margin: float
    """By how much a build's may be worse than the float model's."""
    less_is_better: bool = False

    def holds(self, in_float: float, built: float) -> bool:
        """Whether a build is not worse than the float model by more than the margin."""
        worse = built - in_float if self.less_is_better else in_float - built
        return worse <= self.margin


@dataclass(frozen=True)
class Subject:
    """A model that was fetched and read, with its data."""

    model: ReadResult
    x: Floats
    """What the network reads, ``(T, N, I)``."""
    typical: int
    """How much of ``x`` calibrates the formats, from the start: steps of one sequence, or sequences."""
    judge: Callable[[Floats], float]
    """The metric of the network's outputs for ``x``, ``(T, N, O)``."""
    lengths: Integers | None = None
    """Valid steps of each sequence; None for all."""

    @property
    def calibration(self) -> dict[str, Any]:
        """The data that calibrate the formats, as :func:`rtlstm.compile` takes them."""
        if self.lengths is None:
            return {"calibration": self.x[: self.typical], "batch_first": False}
        return {
            "calibration": self.x[:, : self.typical],
            "calibration_lengths": self.lengths[: self.typical],
            "batch_first": False,
        }

    def stretch(self, count: int) -> tuple[Floats, Integers | None]:
        """Return the first so many steps of one sequence, or so many sequences, and their lengths."""
        if self.lengths is None:
            return self.x[:count], None
        return self.x[:, :count], self.lengths[:count]


@dataclass(frozen=True)
class Entry:
    """A published model: where it is from, what it does, and how it is built and judged."""

    name: str
    does: str
    package: Package
    """Where the model is from."""
    licence: str
    network: str
    metric: Metric
    load: Callable[[Progress | None], Subject]
    """Fetch model and data; an optional package that is missing raises a ToolError."""
    stretch: int
    """Steps of one sequence, or sequences, that are simulated."""
    device: str | None
    """The device that it is built for; None if no device with estimates has room for its weights."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other options of :func:`rtlstm.compile`. Without lanes and macs, the array is chosen for the device;
    networks with a reverse direction need them."""
