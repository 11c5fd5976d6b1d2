"""PyTorch modules that several tests build: import it within a test, or by ``Lazy``."""

from collections.abc import Callable
from typing import Any

from torch import nn


class Net(nn.Module):
    """Named parts, and what ``call`` computes with them and the input."""

    def __init__(self, call: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.call = call

    def forward(self, x: Any) -> Any:
        return self.call(self, x)


def headed(lstm: nn.Module, outputs: int) -> Net:
    """A recurrent module ``lstm`` and a dense layer ``head`` on each step."""
    return Net(lambda net, x: net.head(net.lstm(x)[0]), lstm=lstm, head=nn.Linear(lstm.hidden_size, outputs))
