"""PyTorch modules that several tests build: import it within a test, or by ``Lazy``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Net(nn.Module):
    """Named parts, and what ``call`` computes with them and the input."""

    def __init__(self, call: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.call = call

    def forward(self, x: Any) -> Any:
        return self.call(self, x)


class LengthsNet(Net):
    """The same with a second input."""

    def forward(self, x: Any, lengths: Any) -> Any:
        return self.call(self, x, lengths)


class PairNet(Net):
    """The same with another input of any kind."""

    def forward(self, x: Any, other: Any) -> Any:
        return self.call(self, x, other)


class StateNet(Net):
    """The same with a state as further inputs."""

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        return self.call(self, x, h, c)


class RevIN(nn.Module):
    """Takes a sequence's mean and spread away, and gives them back to what is forecast."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: Any, back: bool = False) -> Any:
        if back:
            return x / self.gain * self.spread + self.mean
        self.mean = x.mean(1, keepdim=True)
        self.spread = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        return (x - self.mean) / self.spread * self.gain


class Forecaster(nn.Module):
    """Two GRUs of different inputs between both, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.revin, self.slow, self.fast = RevIN(3), nn.Linear(3, 4), nn.Linear(3, 2)
        self.long, self.short = nn.GRU(4, 5, batch_first=True), nn.GRU(2, 6, batch_first=True)
        self.head = nn.Sequential(nn.Linear(11, 4), nn.Tanh(), nn.Linear(4, 3))

    def inner(self, z: Any) -> Any:
        results = self.long(self.slow(z))[0], self.short(torch.tanh(self.fast(z)))[0]
        return self.head(torch.cat(results, -1))

    def forward(self, x: Any) -> Any:
        return self.revin(self.inner(self.revin(x)), True)


class Recurrent(nn.Module):
    """A recurrent module and a head on the last step, on every step or on the final states."""

    def __init__(
        self, kind: str, head: str, *, inputs: int = 5, units: int = 6, outputs: int = 2, **options: Any
    ) -> None:
        super().__init__()
        self.rnn = getattr(nn, kind)(inputs, units, **options)
        self.fc = nn.Linear((options.get("proj_size") or units) * (1 + self.rnn.bidirectional), outputs)
        self.head = head

    def forward(self, x: Any) -> Any:
        y, final = self.rnn(x)
        if self.head == "last":
            y = y[:, -1] if self.rnn.batch_first else y[-1]
        elif self.head == "final":
            h = final[0] if isinstance(final, tuple) else final
            y = torch.cat([h[-2], h[-1]], 1) if self.rnn.bidirectional else h[-1]
        return self.fc(y)


def headed(lstm: nn.Module, outputs: int) -> Net:
    """A recurrent module ``lstm`` and a dense layer ``head`` on each step."""
    return Net(lambda net, x: net.head(net.lstm(x)[0]), lstm=lstm, head=nn.Linear(lstm.hidden_size, outputs))


def chain(*unnamed: nn.Module, **parts: nn.Module) -> Net:
    """Modules one after the other; of recurrent ones the outputs go on."""

    def call(net: Net, x: Any) -> Any:
        for part in net.children():
            x = part(x)
            x = x[0] if isinstance(x, tuple) else x
        return x

    return Net(call, **{f"part{at}": part for at, part in enumerate(unnamed)}, **parts)
