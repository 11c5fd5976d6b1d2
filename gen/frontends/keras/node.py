"""Results of Keras layers while a model is read, and a layer with its inputs."""

from dataclasses import dataclass, replace
from typing import Any

from rtlstm.gen.frontends.flow import Flow
from rtlstm.gen.frontends.keras.archive import KerasLayer
from rtlstm.gen.frontends.reading import ReportBuilder, Role
from rtlstm.spec.errors import ModelError

__all__ = ["KerasNode", "KerasTensor"]


@dataclass(frozen=True, eq=False)
class KerasTensor:
    """What a layer gives."""

    flow: Flow
    source: str = ""
    """The model's input, or the embedding, that it is computed from."""
    last: bool = False
    """Whether the axis of steps is gone."""
    padding: int = 0
    """Zeros in front of the sequence, and the layer that adds them."""
    padded: str = ""
    state: bool = False
    """Its second result is the h of the last step."""
    half: int = 0
    """Values of the first of two results that both are of every step."""
    softmax: str = ""
    """The layer whose softmax the host computes of it."""

    def with_flow(self, flow: Flow) -> "KerasTensor":
        """Other values of the same steps."""
        return replace(self, flow=flow, state=False, half=0, softmax="")

    def check_padding(self, where: str) -> None:
        """Refuse a reader that would take the padding for steps."""
        if self.padding:
            raise ModelError(
                f"{self.padded} pads what {where} reads, but only Conv1D and AveragePooling1D may read "
                "padded steps; pad the model's input instead, or drop the padding"
            )


@dataclass(frozen=True, eq=False)
class KerasNode:
    """A layer at hand, and what the layers give that it reads."""

    layer: KerasLayer
    read: tuple[KerasTensor, ...]
    report: ReportBuilder
    old: bool
    """Whether a Keras before 3 wrote the file."""
    ends: bool
    """Whether the network ends with it."""
    linear: bool = False
    """Whether the network ends within it, before its activation."""

    @property
    def config(self) -> dict[str, Any]:
        """The layer's configuration."""
        return self.layer.config

    @property
    def where(self) -> str:
        """How messages name the layer."""
        return self.layer.where

    @property
    def only(self) -> KerasTensor:
        """What the layer reads."""
        return self.read[0] if self.read else KerasTensor(Flow())

    def becomes(self, role: Role, why: str = "") -> None:
        """Report how the layer is treated."""
        self.report.node(self.layer.name, self.layer.kind, role, why)
