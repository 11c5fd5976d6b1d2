"""PyTorch modules whose classes TorchScript compiles: import it within a test, or by ``Lazy``."""

from typing import List, Tuple  # noqa: UP035 - TorchScript's compiler wants it

import torch
from torch import nn

I, H = 3, 4  # noqa: E741


class Loop(nn.Module):
    """A cell in a loop over the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x):
        h = torch.zeros(1, 4)
        for t in range(x.shape[0]):
            h = self.cell(x[t], h)
        return h


class Whole(nn.Module):
    """Every kind of module that has options of its own."""

    def __init__(self, kind, **options):
        super().__init__()
        both = 2 * (options.get("proj_size") or H)
        self.norm = nn.BatchNorm1d(I, eps=0.1)
        self.rnn = getattr(nn, kind)(I, H, num_layers=2, batch_first=True, bidirectional=True, **options)
        self.conv = nn.Conv1d(both, both, 1)
        self.leaky, self.drop, self.linear = nn.LeakyReLU(0.3), nn.Dropout(), nn.Linear(both, 2)
        nn.init.uniform_(self.norm.running_mean)

    def forward(self, x):
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        y, _ = self.rnn(x)
        y = self.leaky(self.conv(y.permute(0, 2, 1))).permute(0, 2, 1)
        return torch.sigmoid(self.linear(self.drop(y))) * 2 - 1


class Listed(nn.Module):
    """What a list gives that is made of the last step and its hyperbolic tangent."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(I, H, batch_first=True)

    def forward(self, x):
        last = self.rnn(x)[0][:, -1]
        return torch.cat(self.change([last], torch.tanh(last)), -1)


class Appended(Listed):
    """A list that grows, also by what was made of it before."""

    def change(self, parts: List[torch.Tensor], other: torch.Tensor):  # noqa: UP006
        parts.append(other)
        parts.append(torch.cat(parts, -1))
        return parts


class Changed(Listed):
    """A list that is changed in all ways whose results are known."""

    def change(self, parts: List[torch.Tensor], other: torch.Tensor):  # noqa: UP006
        parts.extend([other, other])
        parts.insert(0, 2 * other)
        parts[1] = parts.pop() + parts[1]
        parts += [-other]
        parts.reverse()
        return parts


class Filled(Listed):
    """A list that a loop fills."""

    def change(self, parts: List[torch.Tensor], other: torch.Tensor):  # noqa: UP006
        for _ in range(2):
            parts.append(other)
        return parts


class Unknown(Listed):
    """A list of which a run alone tells how many elements it has."""

    def change(self, parts: List[torch.Tensor], other: torch.Tensor):  # noqa: UP006
        found = list(other.split(2))
        found.append(other)
        return found


class LayerNorms(nn.Module):
    """Layer norms around an LSTM."""

    def __init__(self):
        super().__init__()
        self.first, self.lstm = nn.LayerNorm(I), nn.LSTM(I, H, batch_first=True)
        self.norm, self.linear = nn.LayerNorm(H, eps=0.01), nn.Linear(H, 2)
        self.last = nn.LayerNorm(2, elementwise_affine=False)

    def forward(self, x):
        y, _ = self.lstm(self.first(x))
        return self.last(self.linear(torch.relu(self.norm(y))))


class RmsNorms(nn.Module):
    """RMS norms around a GRU."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(I, H), nn.RMSNorm(H)
        self.gru, self.last = (
            nn.GRU(H, 4, batch_first=True),
            nn.RMSNorm([4], eps=1e-3, elementwise_affine=False),
        )

    def forward(self, x):
        y, _ = self.gru(self.norm(self.linear(x)))
        return self.last(y)


class Ends(nn.Module):
    """The last step alone, and final states beside a slice of the features."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LSTM(I, H, batch_first=True), nn.GRU(I, H, 2, bidirectional=True)
        self.linear = nn.Linear(H, 2)

    def forward(self, x):
        return self.linear(self.first(x)[0][:, -1, :])


class BothEnds(Ends):
    def forward(self, x):
        y, h = self.second(x.transpose(0, 1))
        return self.linear(torch.cat([h[-2:][0][:, 1:3], y[0, :, 4:][:, ::2]], 1))


class Inner(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell, self.head = getattr(nn, kind)(I, H), nn.Linear(H, 1)

    def forward(self, x: torch.Tensor, state: torch.Tensor):
        h = self.cell(x, state) if len(state) else self.cell(x)
        return torch.relu(self.head(h)), h


class Outer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first, self.second = Inner(kind), Inner(kind)

    def forward(self, x: torch.Tensor, state: torch.Tensor, rate: int):
        if rate == 16000:
            y, state = self.first(x.exp(), state)
        else:
            y, state = self.second(x, state)
        return y, state


class Writes(nn.Module):
    """Its state is restored by code, which overwrites a file."""

    def __init__(self, path):
        super().__init__()
        self.path, self.kept = path, torch.zeros(1, dtype=torch.uint8)

    def forward(self, x):
        return x

    @torch.jit.export
    def __getstate__(self):
        return (self.path, self.training)

    @torch.jit.export
    def __setstate__(self, state: Tuple[str, bool]):  # noqa: UP006
        self.path, self.training = state[0], state[1]
        self.kept = torch.from_file(state[0], True, 4, dtype=torch.uint8).fill_(88)


class Trap(nn.Module):
    """An LSTM beside it."""

    def __init__(self, path):
        super().__init__()
        self.rnn, self.writes = nn.LSTM(I, H), Writes(path)

    def forward(self, x):
        return self.writes(self.rnn(x)[0])


class Defaults(nn.Module):
    """Every kind of default that torch.jit.save writes."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.Sequential(nn.LSTM(I, H))

    def forward(
        self,
        x,
        a: float = -float("inf"),
        b: int = -2,
        c: str = "a\tb\u00e9",
        d: Tuple[int, float] = (1, 2.0),  # noqa: UP006
        e: bool = True,
        f: torch.device = torch.device("cpu"),  # noqa: B008
    ):
        return self.rnn(x)[0]


class Packing(nn.Module):
    """Packed sequences of several lengths, in any order."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(I, H, batch_first=True), nn.Linear(H, 2)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.head(y)


class LastValid(Packing):
    """The last valid step of each sequence."""

    def forward(self, x, lengths):
        y, _ = self.rnn(x)
        return self.head(y[torch.arange(y.size(0)), lengths - 1])


class PackedLastValid(Packing):
    """The same of packed sequences."""

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.head(y[torch.arange(y.size(0)), lengths - 1])


class PartOfZeros(nn.Module):
    """A step that writes a part of its state into zeros, and adds them."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(I, H)

    def forward(self, x, h):
        h, part = self.cell(x, h), torch.zeros(1, 4)
        part[:, 1:] = 2 * h[:, 1:]
        return h + part, h
