"""A network of the exporters' tests: a recurrent module and a dense head."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Net(nn.Module):
    """A recurrent module and a head on the last step, on every step or on the final states."""

    def __init__(self, kind, head, *, inputs=5, units=6, outputs=2, **options):
        super().__init__()
        self.rnn = getattr(nn, kind)(inputs, units, **options)
        self.fc = nn.Linear((options.get("proj_size") or units) * (1 + self.rnn.bidirectional), outputs)
        self.head = head

    def forward(self, x):
        y, final = self.rnn(x)
        if self.head == "last":
            y = y[:, -1] if self.rnn.batch_first else y[-1]
        elif self.head == "final":
            h = final[0] if isinstance(final, tuple) else final
            y = torch.cat([h[-2], h[-1]], 1) if self.rnn.bidirectional else h[-1]
        return self.fc(y)
