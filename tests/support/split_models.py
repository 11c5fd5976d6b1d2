"""Models of which the core computes a part: what stands in front of it, behind it, or goes past it."""

import torch
from torch import nn
from torch.nn.utils import rnn


class Audio(nn.Module):
    """Spectra (N, F, T) to classes: Conv2d in front, and a mean over the steps behind."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gru = nn.Conv2d(1, 2, 3, padding=1), nn.GRU(2 * 6, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        """Return probabilities."""
        y = torch.relu(self.conv(x.unsqueeze(1))).permute(0, 3, 1, 2).flatten(2)
        y, _ = self.gru(y)
        return torch.softmax(self.head(torch.logsumexp(y, 1)), -1)


class Attention(nn.Module):
    """Tokens to scores: an embedding in front, attention over time behind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(11, 4), nn.LSTM(4, 6, batch_first=True)
        self.score, self.head = nn.Linear(6, 1), nn.Linear(6, 2)

    def forward(self, tokens):
        """Return scores."""
        y, _ = self.lstm(self.embedding(tokens))
        return self.head((torch.softmax(self.score(y), 1) * y).sum(1))


class Translation(nn.Module):
    """An encoder whose final states begin a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.head = nn.LSTM(4, 5), nn.LSTM(3, 5), nn.Linear(5, 2)

    def forward(self, source, target):
        """Return the decoder's results."""
        _, state = self.encoder(source)
        return self.head(self.decoder(target, state)[0])


class Tagger(nn.Module):
    """Tokens of several lengths to tags."""

    def __init__(self, kind: str = "LSTM", **options: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.rnn = getattr(nn, kind)(4, 5, batch_first=True, **options)
        self.head = nn.Linear(5 * (1 + self.rnn.bidirectional), 3)

    def forward(self, tokens, lengths):
        """Return scores, which are the bias in padding, and the final h."""
        x = rnn.pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        y, state = self.rnn(x)
        y, _ = rnn.pad_packed_sequence(y, batch_first=True)
        return self.head(y), state[0] if self.rnn.mode == "LSTM" else state


class Last(nn.Module):
    """Tokens of several lengths to scores of the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(11, 4), nn.LSTM(4, 6), nn.Linear(6, 2)

    def forward(self, tokens, lengths):
        """Return scores."""
        x = rnn.pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, (h, _) = self.lstm(x)
        return torch.log_softmax(self.head(h[-1]), -1)


class Regression(nn.Module):
    """Sequences, and features of each that go past the core."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.lstm, self.head = nn.Linear(4, 5), nn.LSTM(5, 6, batch_first=True), nn.Linear(9, 1)

    def forward(self, x, features):
        """Return one number for each sequence, and the final c."""
        _, (h, c) = self.lstm(torch.tanh(self.first(x)))
        return {"result": self.head(torch.cat([h[-1], features], 1)).squeeze(-1), "c": c}


class Decisions(nn.Module):
    """Python decides behind the core, so that forward cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        """Return a row for each sequence."""
        y, _ = self.lstm(x - x.mean())
        rows = [row[-1] if row.sum() > 0 else row.mean(0) for row in y]
        return torch.stack([self.head(row) for row in rows])


class Asks(nn.Module):
    """Asks for the kind of a value, which a trace answers otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5)

    def forward(self, x):
        """Return the final h."""
        _, state = self.lstm(x)
        return state[0] if isinstance(state, tuple) else state


class Loop(nn.Module):
    """Calls a cell in a loop, behind a part without a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4))
        self.rnn = nn.ModuleDict({"gru": nn.GRU(4, 4, batch_first=True)})
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x):
        """Return the last h and c."""
        y, _ = self.rnn["gru"](self.body(x))
        state = None
        for step in range(y.shape[1]):
            state = self.cell(y[:, step], state)
        return state


class Stepped(nn.Module):
    """Steps of a cell in a loop, from a state that is given or not, and something behind it."""

    def __init__(self, what: nn.Module, front: nn.Module | None = None) -> None:
        super().__init__()
        self.front, self.cell, self.what = front or nn.Identity(), nn.LSTMCell(4, 6), what

    def forward(self, x, h=None):
        """Return results of every step, and the last c."""
        x, rows = self.front(x), []
        h = x.new_zeros(x.shape[0], 6) if h is None else h
        c = x.new_zeros(x.shape[0], 6)
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
            rows.append(h)
        return self.what(torch.stack(rows, 1)), c


class Results(nn.Module):
    """The results of a model without its states."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x):
        """Return results of every step."""
        return self.model(x)[0]


class Minimal(nn.Module):
    """A cell of its own in a loop: its results are summed up over the steps, and the last one is given."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(6, 6), nn.Linear(4, 6)

    def forward(self, x):
        """Return results of every step, and the last h."""
        h, rows = torch.zeros(x.shape[0], 6), []
        for step in range(x.shape[1]):
            z = torch.sigmoid(self.gate(h))
            h = z * h + (1 - z) * torch.tanh(self.value(x[:, step]))
            rows.append(h)
        return torch.cumsum(torch.stack(rows, 1), 1), h


class Steered(Loop):
    """Python decides whether its loop runs."""

    def forward(self, x):
        """Return the last h and c."""
        return x if x.sum() > 1e9 else super().forward(x)


class Behind(nn.Module):
    """An LSTM, and something behind it."""

    def __init__(self, what: nn.Module) -> None:
        super().__init__()
        self.lstm, self.what = nn.LSTM(4, 6, batch_first=True), what

    def forward(self, x):
        """Return results of every step."""
        return self.what(self.lstm(x)[0])


class Twice(nn.Module):
    """A result of the LSTM is read by a layer behind it, and beside that."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 6), nn.Linear(6, 6)

    def forward(self, x):
        """Return results of every step."""
        y, _ = self.lstm(x)
        return torch.cumsum(self.head(y), 0) * torch.cumsum(y, 0)


class Unknown(nn.Module):
    """An operator that no reader knows."""

    def forward(self, x):
        """Return the same shape."""
        return torch.cumsum(x, 1)


def behind(what: str) -> nn.Module:
    """A model with an unknown operator, or a LayerNorm, behind an LSTM."""
    return Behind({"unknown": Unknown(), "norm": nn.LayerNorm(6)}[what])
