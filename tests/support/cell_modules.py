"""Recurrent cells as people write them in PyTorch: ``forward(x, state)`` gives y and the new state."""

import torch
from torch import nn

INPUTS, UNITS, OUTPUTS = 3, 5, 2


class MinGru(nn.Module):
    states, inputs = (UNITS,), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.z, self.new, self.out = (
            nn.Linear(INPUTS, UNITS),
            nn.Linear(INPUTS, UNITS),
            nn.Linear(UNITS, OUTPUTS),
        )

    def forward(self, x, h):
        z = torch.sigmoid(self.z(x))
        h = (1 - z) * h + z * self.new(x)
        return self.out(h), h


class MinLstm(nn.Module):
    states, inputs = (UNITS,), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.f, self.i, self.new = (nn.Linear(INPUTS, UNITS) for _ in range(3))

    def forward(self, x, h):
        f, i = torch.sigmoid(self.f(x)), torch.sigmoid(self.i(x))
        h = f / (f + i) * h + i / (f + i) * self.new(x)
        return h, h


class StateSpace(nn.Module):
    """Diagonal and real; y reads x, too."""

    states, inputs = (UNITS,), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.rand(UNITS) * 3)
        self.b, self.d = nn.Linear(INPUTS, UNITS, bias=False), nn.Linear(INPUTS, OUTPUTS, bias=False)
        self.c = nn.Linear(UNITS, OUTPUTS)

    def forward(self, x, h):
        h = torch.sigmoid(self.a) * h + self.b(x)
        return self.c(h) + self.d(x), h


class Complex(nn.Module):
    """A diagonal state space model of complex numbers, as pairs of real ones."""

    states, inputs = (UNITS, UNITS), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.size = nn.Parameter(torch.rand(UNITS) * 0.5 + 0.4)
        self.turn = nn.Parameter(torch.rand(UNITS) * 3)
        self.b_re, self.b_im = nn.Linear(INPUTS, UNITS), nn.Linear(INPUTS, UNITS)
        self.c_re, self.c_im = nn.Linear(UNITS, OUTPUTS), nn.Linear(UNITS, OUTPUTS)

    def forward(self, x, state):
        re, im = state
        a_re, a_im = self.size * torch.cos(self.turn), self.size * torch.sin(self.turn)
        new_re = a_re * re - a_im * im + self.b_re(x)
        new_im = a_im * re + a_re * im + self.b_im(x)
        return self.c_re(new_re) - self.c_im(new_im), (new_re, new_im)


class IndRnn(nn.Module):
    states, inputs = (UNITS,), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Linear(INPUTS, UNITS), nn.Parameter(torch.rand(UNITS) * 0.9)

    def forward(self, x, h):
        h = torch.relu(self.w(x) + self.u * h)
        return h, h


class Sru(nn.Module):
    """Its highway reads x element by element."""

    states, inputs = (UNITS,), UNITS

    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = nn.Linear(UNITS, 3 * UNITS), nn.Parameter(torch.randn(2, UNITS))

    def forward(self, x, c):
        new, f, r = self.w(x).chunk(3, -1)
        f, r = torch.sigmoid(f + self.v[0] * c), torch.sigmoid(r + self.v[1] * c)
        c = f * c + (1 - f) * new
        return r * c + (1 - r) * x, c


class Coupled(nn.Module):
    """An LSTM whose input gate is 1 - f."""

    states, inputs = (UNITS, UNITS), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.w, self.out = nn.Linear(INPUTS + UNITS, 3 * UNITS), nn.Linear(UNITS, OUTPUTS)

    def forward(self, x, state):
        h, c = state
        f, g, o = self.w(torch.cat([x, h], -1)).chunk(3, -1)
        f = torch.sigmoid(f)
        c = f * c + (1 - f) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return self.out(h), (h, c)


class Spiking(nn.Module):
    """A leaky integrate-and-fire neuron, which loses its threshold when it has fired."""

    states, inputs = (UNITS,), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(INPUTS, UNITS)

    def forward(self, x, charge):
        fired = (charge > 1).float()
        charge = 0.9 * charge + self.w(x) - fired
        return (charge > 1).float(), charge


class Averaged(nn.Module):
    """An exponential moving average in front of an LSTM."""

    states, inputs = (INPUTS, UNITS, UNITS), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.rand(INPUTS))
        self.cell, self.out = nn.LSTMCell(INPUTS, UNITS), nn.Linear(UNITS, OUTPUTS)

    def forward(self, x, state):
        mean, h, c = state
        share = torch.sigmoid(self.a)
        mean = share * mean + (1 - share) * x
        h, c = self.cell(mean, (h, c))
        return self.out(h), (mean, h, c)


class LayerNormLstm(nn.Module):
    """An LSTM with norms of the products with x, of those with h, and of c where h reads it."""

    states, inputs = (UNITS, UNITS), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Parameter(torch.randn(4 * UNITS, INPUTS)), nn.Linear(UNITS, 4 * UNITS)
        self.of_x, self.of_h, self.of_c = (nn.LayerNorm(size) for size in (4 * UNITS, 4 * UNITS, UNITS))
        for norm in (self.of_x, self.of_h, self.of_c):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.3)
        self.out = nn.Linear(UNITS, OUTPUTS)

    def gates(self, x, h):
        return (self.of_x(x @ self.w.t()) + self.of_h(self.u(h))).chunk(4, 1)

    def kept(self, c):
        return c

    def read(self, c):
        return self.of_c(c)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = self.gates(x, h)
        c = self.kept(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g))
        h = torch.sigmoid(o) * torch.tanh(self.read(c))
        return self.out(h), (h, c)


class NormOfSums(LayerNormLstm):
    """One norm of all gates, which come in another order, and none of c."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(INPUTS + UNITS, 4 * UNITS)

    def forward(self, x, state):
        h, c = state
        f, o, g, i = self.of_x(self.both(torch.cat([x, h], 1))).chunk(4, 1)
        c = torch.tanh(g) * torch.sigmoid(i) + c * torch.sigmoid(f)
        h = torch.tanh(c) * torch.sigmoid(o)
        return h, (h, c)


class ResetBefore(nn.Module):
    """A GRU as in its first paper: the candidate's matrix multiplies r * h."""

    states, inputs = (UNITS,), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.z, self.r, self.new = (nn.Linear(INPUTS + UNITS, UNITS) for _ in range(3))

    def forward(self, x, h):
        both = torch.cat([x, h], 1)
        z, r = torch.sigmoid(self.z(both)), torch.sigmoid(self.r(both))
        h = (1 - z) * h + z * torch.tanh(self.new(torch.cat([r * h, x], 1)))
        return h, h


class MinimalGated(ResetBefore):
    """One gate is both."""

    def forward(self, x, h):
        f = torch.sigmoid(self.z(torch.cat([x, h], 1)))
        h = h + f * (torch.tanh(self.new(torch.cat([x, f * h], 1))) - h)
        return h, h


class PeakAndMean(nn.Module):
    """It reads a running mean and a peak of its h: three states of three formulas."""

    states, inputs = (UNITS, UNITS, UNITS), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Linear(INPUTS, UNITS), nn.Linear(3 * UNITS, UNITS)

    def forward(self, x, state):
        h, mean, peak = state
        h = torch.tanh(self.w(x) + self.u(torch.cat([h, mean, peak], -1)))
        mean = 0.9 * mean + 0.1 * h
        peak = torch.maximum(0.9 * peak, h)
        return h, (h, mean, peak)


class Integrating(nn.Module):
    """It reads sums of its h over many steps, which reach far beyond h."""

    states, inputs = (UNITS, UNITS), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u, self.v = (nn.Linear(size, UNITS) for size in (INPUTS, UNITS, UNITS))
        self.v.weight.data /= 64
        self.out = nn.Linear(2 * UNITS, OUTPUTS)

    def forward(self, x, state):
        h, total = state
        h = torch.tanh(self.w(x) + self.u(h) + self.v(total))
        total = 0.9375 * total + 6 * torch.relu(h)
        return self.out(torch.cat([h, total], 1)), (h, total)


class Exponential(nn.Module):
    """xLSTM's cell of scalars, with exponential gates, a normaliser and a stabiliser, as its paper has it."""

    states, inputs = (UNITS, UNITS, UNITS, UNITS), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.w, self.r = nn.Linear(INPUTS, 4 * UNITS), nn.Linear(UNITS, 4 * UNITS, bias=False)
        self.out = nn.Linear(UNITS, OUTPUTS)

    def gates(self, x, h):
        i, f, z, o = (self.w(x) + self.r(h)).chunk(4, -1)
        return i, -nn.functional.softplus(-f), z, o

    def forward(self, x, state):
        h, c, n, m = state
        i, f, z, o = self.gates(x, h)
        most = torch.maximum(f + m, i)
        i, f = torch.exp(i - most), torch.exp(f + m - most)
        c, n = f * c + i * torch.tanh(z), f * n + i
        h = torch.sigmoid(o) * (c / n)
        return self.out(h), (h, c, n, most)


class SLstm(Exponential):
    """The same, which keeps the quotient c / n and the logarithm of n, which begins at -8."""

    states = (UNITS, UNITS, UNITS)

    def forward(self, x, state):
        h, c, n = state
        i, f, z, o = self.gates(x, h)
        new = i - f - (n - 8)
        c = c + torch.sigmoid(new) * (torch.tanh(z) - c)
        n = f + n + nn.functional.softplus(new)
        h = torch.sigmoid(o) * c
        return self.out(h), (h, c, n)


class TimeMix(nn.Module):
    """RWKV's, which reads its mean and the logarithm of the weights before it changes them."""

    states, inputs = (INPUTS, UNITS, UNITS), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.k, self.v, self.g = (nn.Linear(INPUTS, UNITS) for _ in range(3))
        self.w, self.u, self.mix = (
            nn.Parameter(-torch.rand(UNITS)),
            nn.Parameter(torch.rand(UNITS)),
            nn.Parameter(torch.rand(INPUTS)),
        )
        self.out = nn.Linear(UNITS, OUTPUTS)

    def forward(self, x, state):
        before, mean, weight = state
        mixed = self.mix * x + (1 - self.mix) * before
        k, v, g = self.k(mixed), self.v(mixed), torch.sigmoid(self.g(mixed))
        y = mean + torch.sigmoid(self.u + k - weight) * (v - mean)
        new = k - (self.w + weight)
        mean = mean + torch.sigmoid(new) * (v - mean)
        return self.out(g * y), (x, mean, self.w + weight + nn.functional.softplus(new))


class Selective(nn.Module):
    """Mamba's state space model, whose step, B and C are of the input; 4 states of each of 3 channels."""

    states, inputs = ((3, 4),), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.u, self.step = nn.Linear(INPUTS, 3), nn.Linear(3, 3)
        self.b, self.c = nn.Linear(3, 4, bias=False), nn.Linear(3, 4, bias=False)
        self.log_a, self.d = nn.Parameter(torch.rand(3, 4)), nn.Parameter(torch.rand(3))

    def forward(self, x, h):
        u = self.u(x)
        step, a = nn.functional.softplus(self.step(u)), -torch.exp(self.log_a)
        new = step.unsqueeze(-1) * self.b(u).unsqueeze(1) * u.unsqueeze(-1)
        h = torch.exp(step.unsqueeze(-1) * a) * h + new
        return (h @ self.c(u).unsqueeze(-1)).squeeze(-1) + self.d * u, h


class Einsum(Selective):
    """The same, as Mamba's own step has it."""

    def forward(self, x, h):
        u = self.u(x)
        step, a = nn.functional.softplus(self.step(u)), -torch.exp(self.log_a)
        decay = torch.exp(torch.einsum("bd,dn->bdn", step, a))
        h = h * decay + u.unsqueeze(-1) * torch.einsum("bd,bn->bdn", step, self.b(u))
        return torch.einsum("bdn,bn->bd", h, self.c(u)) + self.d * u, h


class MatrixMemory(nn.Module):
    """A memory that is a matrix, with a norm behind, as in mLSTM and gated linear attention."""

    states, inputs = ((4, 3),), INPUTS

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(INPUTS, 3), nn.Linear(INPUTS, 3), nn.Linear(INPUTS, 4)
        self.f, self.o, self.norm = nn.Linear(INPUTS, 1), nn.Linear(INPUTS, 4), nn.LayerNorm(4, eps=0.1)

    def forward(self, x, memory):
        f, outer = torch.sigmoid(self.f(x)), self.v(x).unsqueeze(-1) @ self.k(x).unsqueeze(1)
        memory = f.unsqueeze(-1) * memory + outer
        h = torch.einsum("bij,bj->bi", memory, self.q(x))
        return torch.sigmoid(self.o(x)) * self.norm(h), memory


class MLstm(MatrixMemory):
    """xLSTM's, with its normaliser and stabiliser."""

    states = ((4, 3), 3, 1)

    def __init__(self) -> None:
        super().__init__()
        self.i = nn.Linear(INPUTS, 1)

    def forward(self, x, state):
        memory, n, m = state
        q, k, i, f = self.q(x), self.k(x), self.i(x), -nn.functional.softplus(-self.f(x))
        most = torch.maximum(f + m, i)
        i, f = torch.exp(i - most), torch.exp(f + m - most)
        memory = f.unsqueeze(-1) * memory + i.unsqueeze(-1) * (self.v(x).unsqueeze(-1) * k.unsqueeze(1))
        n = f * n + i * k
        h = (memory @ q.unsqueeze(-1)).squeeze(-1)
        h = h / torch.maximum((n * q).sum(-1, keepdim=True).abs(), torch.exp(-most))
        return torch.sigmoid(self.o(x)) * h, (memory, n, most)


class LogMinGru(MinGru):
    """It computes in logarithms, as the paper's parallel form does, and keeps h itself."""

    def new_h(self, log_keep, log_new, x, h):
        new = self.new(x)
        log_g = torch.where(new >= 0, (torch.relu(new) + 0.5).log(), -nn.functional.softplus(-new))
        return torch.exp(log_keep) * h + torch.exp(log_new + log_g)

    def forward(self, x, h):
        z = self.z(x)
        h = self.new_h(-nn.functional.softplus(z), -nn.functional.softplus(-z), x, h)
        return self.out(h), h


class LogMinLstm(LogMinGru):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(INPUTS, UNITS)

    def forward(self, x, h):
        softplus = nn.functional.softplus
        difference = softplus(-self.f(x)) - softplus(-self.z(x))
        h = self.new_h(-softplus(difference), -softplus(-difference), x, h)
        return h, h


class LogState(LogMinGru):
    """It keeps the logarithm of h, which begins at one."""

    def new_h(self, log_keep, log_new, x, h):
        new = self.new(x)
        log_g = torch.where(new >= 0, (torch.relu(new) + 0.5).log(), -nn.functional.softplus(-new))
        return torch.logaddexp(log_keep + h, log_new + log_g)


class LogSumState(LogMinGru):
    """The same by logsumexp."""

    def new_h(self, log_keep, log_new, x, h):
        return torch.logsumexp(torch.stack([log_keep + h, log_new + self.new(x)]), 0)


class Scan(MinGru):
    """minGRU's parallel form, of all steps of (N, T, F) at once."""

    def forward(self, x):
        z = self.z(x)
        log_new = self.new(x) - nn.functional.softplus(-z)
        kept = torch.cumsum(-nn.functional.softplus(z), 1)
        return self.out(torch.exp(kept + torch.logcumsumexp(log_new - kept, 1)))


class KeptBehind(LayerNormLstm):
    """Its c is kept behind the norm, as PyTorch's example has it."""

    def kept(self, c):
        return self.of_c(c)

    def read(self, c):
        return c


class NormedTwice(LayerNormLstm):
    """Its c is kept behind a norm, and h reads another norm of that."""

    def kept(self, c):
        return self.of_c(c)


class EachGate(LayerNormLstm):
    """A norm of each gate."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList(nn.LayerNorm(UNITS) for _ in range(4))

    def gates(self, x, h):
        i, f, g, o = (x @ self.w.t() + self.u(h)).chunk(4, 1)
        return self.each[0](i), self.each[1](f), self.each[2](g), self.each[3](o)


CELLS = {
    each.__name__: each
    for each in (
        *(MinGru, MinLstm, StateSpace, Complex, IndRnn, Sru, Coupled, Spiking, Averaged),
        *(
            ResetBefore,
            MinimalGated,
            LayerNormLstm,
            NormOfSums,
            KeptBehind,
            PeakAndMean,
            Integrating,
            SLstm,
            TimeMix,
        ),
        *(Selective, Einsum, MatrixMemory, LogMinGru, LogMinLstm),
    )
}


def begin(cell, sequences):
    """States of zeros: one tensor, or several."""
    states = tuple(
        torch.zeros(sequences, *(size if isinstance(size, tuple) else (size,))) for size in cell.states
    )
    return states if len(states) > 1 else states[0]


class InLoop(nn.Module):
    """A cell in a loop over the steps of (N, T, F)."""

    def __init__(self, cell) -> None:
        super().__init__()
        self.step = cell

    def forward(self, x):
        state, results = begin(self.step, x.shape[0]), []
        for t in range(x.shape[1]):
            y, state = self.step(x[:, t], state)
            results.append(y)
        return torch.stack(results, 1)


class Each(InLoop):
    """The same for (T, N, F), which gives the final state, too."""

    def forward(self, x):
        state, results = begin(self.step, x.shape[1]), []
        for step in x:
            y, state = self.step(step, state)
            results.append(y.unsqueeze(0))
        return torch.cat(results), state


class Filled(InLoop):
    """It writes each step's results into a tensor, of which it has another view."""

    def forward(self, x):
        state, y = begin(self.step, x.shape[0]), torch.zeros(x.shape[1], x.shape[0], UNITS)
        seen = y.transpose(0, 1)
        for t in range(x.shape[1]):
            y[t], state = self.step(x[:, t], state)
        return seen


class Last(InLoop):
    """Classes of the last step."""

    def __init__(self, cell) -> None:
        super().__init__(cell)
        self.end = nn.Linear(OUTPUTS, OUTPUTS)

    def forward(self, x):
        state = begin(self.step, x.shape[0])
        for step in x.unbind(1):
            y, state = self.step(step, state)
        return self.end(y)


class Calls(nn.Module):
    """A cell of torch.nn in a loop."""

    def __init__(self, kind) -> None:
        super().__init__()
        self.cell, self.out = getattr(nn, kind)(INPUTS, UNITS), nn.Linear(UNITS, OUTPUTS)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], UNITS)
        results = []
        for t in range(x.shape[1]):
            if isinstance(self.cell, nn.LSTMCell):
                h, c = self.cell(x[:, t], (h, c))
            else:
                h = self.cell(x[:, t], h)
            results.append(self.out(h))
        return torch.stack(results, 1)


def play(cell, x):
    """What a cell gives for steps of x ``(T, N, F)``, as an array."""
    return Each(cell)(torch.as_tensor(x, dtype=torch.float32))[0].detach().numpy()
