"""Modules for torch.jit.script, whose loops its exporter to ONNX writes as Loop nodes."""

import torch
from torch import nn

from support.torch_forms import in_form

__all__ = ["SCRIPTED", "export"]


class Parts(nn.Module):
    """Steps on axis 0 unless ``axis`` says 1."""

    axis = 0

    def __init__(self) -> None:
        super().__init__()
        self.z, self.new, self.out = nn.Linear(3, 5), nn.Linear(3, 5), nn.Linear(5, 2)


class BatchFirst(Parts):
    axis = 1

    def forward(self, x):
        h, ys = torch.zeros(x.size(0), 5), []
        for t in range(x.size(1)):
            z = torch.sigmoid(self.z(x[:, t]))
            h = (1 - z) * h + z * self.new(x[:, t])
            ys.append(self.out(h))
        return torch.stack(ys, 1)


class FromBehind(Parts):
    """The axis of steps counts from behind."""

    axis = 1

    def forward(self, x):
        h, ys = torch.zeros(x.size(0), 5), []
        for t in range(x.size(1)):
            h = torch.tanh(self.new(x.select(-2, t)) + 0.5 * h)
            ys.append(self.out(h))
        return torch.stack(ys, 1)


class TwoTensors(Parts):
    """The steps of two tensors, of a list of steps and of its length, joined with torch.cat."""

    def forward(self, x):
        h, ys = torch.zeros(x.size(1), 5), []
        z, new = torch.sigmoid(self.z(x)), self.new(x)
        steps = new.unbind(0)
        for t in range(len(steps)):
            h = (1 - z[t]) * h + z[t] * steps[t]
            ys.append(self.out(h).unsqueeze(0))
        return torch.cat(ys, 0)


class LastStep(Parts):
    def forward(self, x):
        h = torch.zeros(x.size(1), 5)
        for t in range(x.size(0)):
            z = torch.sigmoid(self.z(x[t]))
            h = (1 - z) * h + z * torch.tanh(self.new(x[t]))
        return self.out(h)


class LastOfList(Parts):
    def forward(self, x):
        h, ys = torch.zeros(x.size(1), 5), []
        for t in range(x.size(0)):
            h = torch.tanh(self.new(x[t]) + 0.5 * h)
            ys.append(self.out(h))
        return ys[-1]


class Numbered(Parts):
    """It reads the number of the step."""

    def forward(self, x):
        h, ys = torch.zeros(x.size(1), 5), []
        for t in range(x.size(0)):
            h = torch.tanh(self.new(x[t]) + 0.5 * h + 0.1 * t)
            ys.append(self.out(h))
        return torch.stack(ys)


class TwoLoops(Parts):
    """A loop of torch.nn's LSTMCell, one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 3)

    def forward(self, x):
        h, c = torch.zeros(x.size(1), 3), torch.zeros(x.size(1), 3)
        hs, ys = [], []
        for t in range(x.size(0)):
            h, c = self.cell(x[t], (h, c))
            hs.append(h)
        x = torch.stack(hs)
        u = torch.zeros(x.size(1), 5)
        for t in range(x.size(0)):
            u = torch.relu(self.z(x[t]) + 0.5 * u)
            ys.append(u)
        return self.out(torch.stack(ys))


class Swapped(Parts):
    """A state whose new value is the old one of another, and which begins in ones."""

    def forward(self, x):
        h, before, ys = torch.zeros(x.size(1), 5), torch.ones(x.size(1), 5), []
        for t in range(x.size(0)):
            new = torch.tanh(self.new(x[t]) - 0.5 * before)
            before = h
            h = new
            ys.append(self.out(h))
        return torch.stack(ys)


class Three(Parts):
    """States of several formulas, which begin in zeros for as many sequences as x has."""

    def forward(self, x):
        a, b, c, ys = torch.zeros(x.size(1), 5), torch.zeros(x.size(1), 5), torch.zeros(x.size(1), 5), []
        for t in range(x.size(0)):
            new = torch.tanh(self.new(x[t]) + 0.3 * c)
            other = torch.sigmoid(new + 0.5 * b - a)
            c = 0.7 * c + b * new
            a, b = new, other
            ys.append(self.out(c + b))
        return torch.stack(ys)


class Cells(Parts):
    """Cells of torch.nn."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.gru = nn.LSTMCell(3, 5), nn.GRUCell(3, 5)
        self.deep = nn.ModuleList([nn.LSTMCell(3, 5), nn.LSTMCell(5, 5)])


class Numbers(Cells):
    """A while loop, the first step without a state, and a dictionary of states."""

    axis = 1

    def forward(self, x):
        sequences, steps, _ = x.shape
        states, t = {"h": torch.zeros(sequences, 5)}, 0
        ys = []
        while t < steps:
            states["h"] = self.gru(x[:, t]) if t == 0 else self.gru(x[:, t], states["h"])
            ys.append(states["h"])
            t += 1
        return torch.stack(ys, 1)


class BothWays(Cells):
    """Steps of several lists, one of them from the end, and two cells."""

    def forward(self, x):
        h, c, u = torch.zeros(x.size(1), 5), torch.zeros(x.size(1), 5), torch.zeros(x.size(1), 5)
        hs, us = [], []
        for _, step in enumerate(x.split(1)):
            h, c = self.cell(step.squeeze(0), (h, c))
            hs.append(h)
        for t in range(x.size(0) - 1, -1, -1):
            u = self.gru(x[t], u)
            us.append(u)
        us.reverse()
        return torch.cat([torch.stack(hs), torch.stack(us)], -1)


class Deep(Cells):
    """Cells of a ModuleList, whose states are in lists, and steps of two lists."""

    axis = 1

    def forward(self, x):
        hs = [torch.zeros(x.size(0), 5), torch.zeros(x.size(0), 5)]
        cs = [torch.zeros(x.size(0), 5), torch.zeros(x.size(0), 5)]
        ys = []
        for step, other in zip(x.unbind(1), self.z(x).unbind(1)):  # noqa: B905 - TorchScript has no strict
            for at, cell in enumerate(self.deep):
                hs[at], cs[at] = cell(step, (hs[at].detach(), cs[at]))
                step = hs[at]
            ys.append(step + other)
        return torch.stack(ys, 1)


class Late(Cells):
    """Refused: a step that differs from the others by its number."""

    def forward(self, x):
        h = torch.zeros(x.size(1), 5)
        for t in range(x.size(0)):
            h = self.gru(x[t], h) if t < 10 else h
        return h


class Delayed(Cells):
    """Refused: it reads the first step twice."""

    def forward(self, x):
        h = torch.zeros(x.size(1), 5)
        for t in range(x.size(0)):
            h = self.gru(x[max(t - 1, 0)], h)
        return h


class Filling(Cells):
    """It writes into a tensor."""

    def forward(self, x):
        h, y = torch.zeros(x.size(1), 5), torch.zeros(x.size(0), x.size(1), 5)
        for t in range(x.size(0)):
            h = self.gru(x[t], h)
            y[t] = h
        return y


class Beside(Cells):
    """Refused: it leaves one element as it is."""

    def forward(self, x):
        h, y = torch.zeros(x.size(1), 5), torch.zeros(x.size(0) + 1, x.size(1), 5)
        for t in range(x.size(0)):
            h = self.gru(x[t], h)
            y[t + 1] = h
        return y


class States(Cells):
    """Refused: it gives c of every step; its h is copied from step to step."""

    def forward(self, x):
        h, c, cs = torch.zeros(x.size(1), 5), torch.zeros(x.size(1), 5), []
        for step in x:
            h, c = self.cell(step, (h.detach(), c))
            cs.append(c)
        return torch.stack(cs)


class Cleared(Cells):
    """Refused: it clears the state where x says so."""

    def forward(self, x):
        h = torch.zeros(x.size(1), 5)
        for step in x:
            h = self.gru(step, h * (step[:, :1] > 0).float())
        return h


class Kept(Cells):
    """Refused: it keeps the state where x says so."""

    def forward(self, x):
        h = torch.zeros(x.size(1), 5)
        for step in x:
            mask = (step[:, :1] > 0).float()
            h = mask * self.gru(step, h) + (1 - mask) * h
        return h


class Stopped(Parts):
    """Refused: a loop that ends by itself."""

    def forward(self, x):
        h, ys = torch.zeros(x.size(1), 5), []
        for t in range(x.size(0)):
            h = torch.tanh(self.new(x[t]) + 0.5 * h)
            ys.append(h)
            if bool(h.max() > 5.0):
                break
        return torch.stack(ys)


class Shorter(Parts):
    """Refused: not all steps."""

    def forward(self, x):
        h, ys = torch.zeros(x.size(1), 5), []
        for t in range(x.size(0) - 1):
            h = torch.tanh(self.new(x[t]) + 0.5 * h)
            ys.append(h)
        return torch.stack(ys)


class Joined(Parts):
    """Refused: the steps' results side by side as features."""

    def forward(self, x):
        h, ys = torch.zeros(x.size(1), 5), []
        for t in range(x.size(0)):
            h = torch.tanh(self.new(x[t]) + 0.5 * h)
            ys.append(h)
        return torch.cat(ys, 1)


class Ahead(Parts):
    """Refused: it reads the step after."""

    def forward(self, x):
        h, ys = torch.zeros(x.size(1), 5), []
        for t in range(x.size(0)):
            h = torch.tanh(self.new(x[t]) + 0.5 * h + self.z(x[x.size(0) - 1 - t]))
            ys.append(h)
        return torch.stack(ys)


class Table(Parts):
    """Refused: it reads a row of a constant in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.rand(20, 5))

    def forward(self, x):
        h, ys = torch.zeros(x.size(1), 5), []
        for t in range(x.size(0)):
            h = torch.tanh(self.new(x[t]) + 0.5 * h + self.rows[t])
            ys.append(h)
        return torch.stack(ys)


class Features(Parts):
    """Refused: it goes over features."""

    def forward(self, x):
        h, ys = torch.zeros(x.size(0), 2), []
        for t in range(x.size(2)):
            h = torch.tanh(x[:, :, t][:, :2] + 0.5 * h)
            ys.append(h)
        return torch.stack(ys)


SCRIPTED = {
    each.__name__: each
    for each in (
        *(BatchFirst, FromBehind, TwoTensors, LastStep, LastOfList, Numbered, TwoLoops, Swapped, Three),
        *(Stopped, Shorter, Joined, Ahead, Table, Features),
    )
}


def export(name, folder):
    """Write a scripted module; return its path, the module and the axis of its steps."""
    torch.manual_seed(3)
    kind, x = SCRIPTED[name], torch.zeros(2, 4, 3)
    module = in_form("script", kind().eval(), (x,), folder, saved=False)
    axes = {"x": {0: "a", 1: "b"}}
    path = in_form("onnx", module, (x,), folder, opset_version=17, input_names=["x"], dynamic_axes=axes)
    return path, module, kind.axis
