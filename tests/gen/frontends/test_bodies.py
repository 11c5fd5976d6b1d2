"""Small bodies around a recurrent layer: module, exported program, TorchScript and ONNX are one network.

All bodies of a group are results of one module, which is exported once in each form. Numbers are multiples of
1/16, so that what an exporter folds in float32 is exact.
"""

import io
import warnings

import numpy as np
import pytest
from support.lazy import F, nets, nn, torch
from support.same_network import same, without_names

from rtlstm.gen.frontends.onnx.node_graph import load_onnx
from rtlstm.gen.frontends.onnx.translate import take_branches
from rtlstm.gen.frontends.onnx.translate import translate as translate_onnx
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.gen.frontends.torch import Walk, trace
from rtlstm.gen.frontends.torch.exported import translate_exported
from rtlstm.gen.frontends.torch.script import translate_script
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ModelError

N, T, I, H, O = 2, 5, 4, 6, 3  # noqa: E741


def bodies_net(bodies):
    """The modules that the bodies share; it gives the results of all of them."""
    torch.manual_seed(1)
    many, first = tuple(bodies), {"batch_first": True}

    def call(net, x):
        net.called = {}
        return tuple(body(net, x) for body in many)

    net = nets.Net(
        call,
        lstm=nn.LSTM(I, H, **first), both=nn.GRU(I, H, bidirectional=True, **first),
        deep=nn.LSTM(I, H, 2, **first), rnn=nn.RNN(I, H, **first), next=nn.GRU(H, H, **first),
        cell=nn.LSTMCell(I, H), gru_cell=nn.GRUCell(I, H),
        fc=nn.Linear(H, O), wide=nn.Linear(2 * H, O), same=nn.Linear(H, H),
        conv=nn.Conv1d(H, O, 3, dilation=2), front=nn.Conv1d(I, I, 3, groups=2),
        norm_in=nn.BatchNorm1d(I, eps=1 / 16),
        inner=nn.Linear(I, I), few=nn.Linear(H // 2, O),
        point=nn.Conv1d(H, O, 1), chomp=nn.Conv1d(H, O, 3, padding=2, groups=3),
        norm=nn.BatchNorm1d(H, eps=1 / 64), table=nn.Embedding(7, I), drop=nn.Dropout(),
        layer_norm=nn.LayerNorm(H, eps=1 / 64), pad=nn.ConstantPad1d((4, 0), 0.0), identity=nn.Identity(),
        relu=nn.ReLU(inplace=True), unflatten=nn.Unflatten(2, (2, H)),
        gates=nn.Linear(H, 2 * H), glu=nn.GLU(), fifth=nn.Linear(H, H), one=nn.Linear(H, 1),
        back=nn.Linear(O, H), narrow=nn.Linear(H, I), beside=nn.Linear(H + I, O),
        after=nn.GRU(2 * H + I, H, **first),
    )  # fmt: skip
    for name, shape in {
        "w": (H, O),
        "scale": (H,),
        "mean": (I,),
        "h0": (1, 1, H),
        "blocks": (3, 2, 2),
    }.items():
        net.register_parameter(name, nn.Parameter(torch.rand(shape) - 0.5))
    net.norm.running_mean.uniform_(-1, 1)
    for tensor in [*net.parameters(), net.norm.running_mean]:
        tensor.data = torch.round(tensor.data * 16) / 16 + (tensor.data.abs() < 1 / 32) / 16
    return net.eval()


def of(s, name, x):
    """What a recurrent module makes of the input: called once for all bodies, since exporters take long."""
    if name not in s.called:
        s.called[name] = getattr(s, name)(x)
    return s.called[name]


def y(s, x):
    return of(s, "lstm", x)[0]


def across(s, x):
    """Features before steps, as convolutions have them."""
    return y(s, x).transpose(1, 2)


def groups(s, x):
    """The features as three groups of two."""
    return y(s, x).unflatten(-1, (3, 2))


def pairs(s, x):
    """The features as two groups of three."""
    return y(s, x).unflatten(-1, (2, 3))


def written_norm(x):
    """A layer norm, with the difference computed twice."""
    variance = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1 / 64)


def under_two_names(s, x):
    v = also = s.lstm(x)[0]
    v += 0.5
    v *= 2
    return s.fc(also)


def copied_constant(s, x):
    scale = s.scale.clone()
    scale.mul_(2)
    return s.fc(y(s, x) * scale + s.scale)


def seen_through_a_view(s, x):
    v = s.lstm(x)[0]
    view = v.transpose(1, 2)
    v += 0.5
    return s.fc(view.transpose(1, 2))


def with_an_axis(s, x):
    v = s.lstm(x)[0]
    more = v.unsqueeze(0)
    more += 0.5
    return s.fc(v)


LAYERS = {
    "linear": lambda s, x: s.fc(y(s, x)),
    "functional linear": lambda s, x: F.linear(y(s, x), s.fc.weight, s.fc.bias),
    "linear without bias": lambda s, x: F.linear(y(s, x), s.fc.weight),
    "computed weight": lambda s, x: F.linear(y(s, x), s.fc.weight * 0.5, s.fc.bias),
    "matmul operator": lambda s, x: y(s, x) @ s.w,
    "matmul function": lambda s, x: torch.matmul(y(s, x), s.w) + 0.5,
    "transposed weight": lambda s, x: y(s, x) @ s.fc.weight.T + s.fc.bias,
    "rows": lambda s, x: s.fc(y(s, x).reshape(-1, H)),
    "addmm": lambda s, x: torch.addmm(s.fc.bias, y(s, x).reshape(-1, H), s.w),
    "mm": lambda s, x: torch.mm(y(s, x)[:, -1], s.w),
    "convolution of width 1": lambda s, x: s.point(across(s, x)),
    "causal convolution": lambda s, x: s.conv(F.pad(across(s, x), (4, 0))),
    "padded by a module": lambda s, x: s.conv(s.pad(across(s, x))),
    "functional convolution": lambda s, x: F.conv1d(
        F.pad(across(s, x), (4, 0)), s.conv.weight, s.conv.bias, dilation=2
    ),
    "dropped steps": lambda s, x: s.chomp(across(s, x))[:, :, :-2],
    "dropped steps by ellipsis": lambda s, x: s.chomp(across(s, x))[..., :-2].relu(),
    "batch norm": lambda s, x: s.norm(across(s, x)),
    "layer norm": lambda s, x: s.fc(s.layer_norm(y(s, x)).relu()),
    "functional layer norm": lambda s, x: F.layer_norm(s.fc(y(s, x)), (O,), s.fc.bias, s.fc.bias, 1 / 64),
    "layer norm written out": lambda s, x: s.fc(written_norm(y(s, x))),
    "functional batch norm": lambda s, x: F.batch_norm(
        across(s, x), s.norm.running_mean, s.norm.running_var, s.norm.weight, s.norm.bias, False, 0.1, 1 / 64
    ),
    "layers in front": lambda s, x: s.lstm(
        F.leaky_relu(s.front(F.pad(s.norm_in(x.transpose(1, 2)), (2, 0))), 0.25).transpose(1, 2)
    )[0],
    "two layers": lambda s, x: s.fc(of(s, "deep", x)[0]),
    "linear as a sum of products": lambda s, x: torch.einsum("n t h, h o -> n t o", y(s, x), s.w),
    "linear as a sum of products along an ellipsis": lambda s, x: torch.einsum("...h,ho->...o", y(s, x), s.w),
    "linear in groups": lambda s, x: torch.einsum(
        "ntgi,gio->ntgo", y(s, x).unflatten(-1, (3, 2)).relu(), s.blocks
    ).flatten(2),
    "linear of each group": lambda s, x: s.fc(
        torch.einsum("ntgi,io->ntog", y(s, x).unflatten(-1, (3, 2)), s.blocks[0]).flatten(2)
    ),
    "three groups in another order": lambda s, x: s.fc(
        y(s, x).unflatten(-1, (3, 2)).transpose(2, 3).flatten(2)
    ),
    "two groups in another order": lambda s, x: s.fc(
        y(s, x).unflatten(-1, (2, 3)).transpose(2, 3).flatten(2)
    ),
    "two groups in another order, reshaped": lambda s, x: s.fc(
        y(s, x).unflatten(-1, (2, 3)).transpose(2, 3).reshape(x.shape[0], x.shape[1], -1)
    ),
    "rnn": lambda s, x: s.fc(of(s, "rnn", x)[0]),
    "two recurrent layers": lambda s, x: s.next(torch.tanh(s.same(y(s, x))))[0],
}
ARITHMETIC = {
    "sum with a number": lambda s, x: y(s, x) + 2,
    "reversed difference": lambda s, x: 1 - y(s, x),
    "difference with a number": lambda s, x: torch.sub(y(s, x), 0.25),
    "alpha": lambda s, x: torch.add(y(s, x), s.scale, alpha=2),
    "alpha of a difference": lambda s, x: (lambda v: torch.sub(s.same(v), v, alpha=0.5))(y(s, x)),
    "negated": lambda s, x: -y(s, x),
    "quotient": lambda s, x: y(s, x) / 4,
    "quotient by a parameter": lambda s, x: s.fc(y(s, x) / (s.scale * 0 + 2)),
    "product with a parameter": lambda s, x: s.fc(y(s, x) * s.scale),
    "written over": lambda s, x: s.fc(s.lstm(x)[0].add_(0.5).mul_(2)),
    "written over under two names": under_two_names,
    "copy of a constant written over": copied_constant,
    "seen through a view": seen_through_a_view,
    "residual": lambda s, x: (lambda v: s.same(v) + v)(y(s, x)),
    "sum over the features": lambda s, x: s.same(y(s, x)).sum(-1),
    "last step of the input": lambda s, x: s.narrow(y(s, x)[:, -1]) + x[:, -1],
    "residual around a layer": lambda s, x: (lambda v: s.next(torch.relu(v))[0] * s.scale + v)(y(s, x)),
    "normalised input": lambda s, x: s.lstm((x - s.mean) / 2)[0],
    "scaled input": lambda s, x: s.lstm(x * 0.5 + 1)[0],
    "dense layer in front": lambda s, x: s.next(s.same(y(s, x)).relu())[0],
}
ACTIVATIONS = {
    "of the input": lambda s, x: s.lstm(torch.relu(x))[0],
    "by keyword": lambda s, x: torch.add(input=torch.relu(input=s.lstm(input=x)[0]), other=0.5),
    "scaled": lambda s, x: 1.5 * torch.tanh(y(s, x) * 0.5) - 0.25,
    "two": lambda s, x: s.same(y(s, x)).relu().tanh(),
    "of an output": lambda s, x: y(s, x).clamp(-0.5, 0.75),
    "of dense layers in front": lambda s, x: s.lstm(s.inner(x).sigmoid())[0],
    "relu function": lambda s, x: torch.relu(s.fc(y(s, x))),
    "relu method": lambda s, x: s.fc(y(s, x)).relu(),
    "relu module in place": lambda s, x: s.relu(s.fc(y(s, x))),
    "tanh": lambda s, x: torch.tanh(s.fc(y(s, x))),
    "sigmoid": lambda s, x: s.fc(y(s, x)).sigmoid(),
    "elu": lambda s, x: F.elu(s.fc(y(s, x)), alpha=0.5),
    "leaky relu": lambda s, x: F.leaky_relu(s.fc(y(s, x)), 0.25),
    "softplus": lambda s, x: F.softplus(s.fc(y(s, x)), beta=2.0),
    "hardtanh": lambda s, x: F.hardtanh(s.fc(y(s, x)), -0.5, 0.75),
    "clamp": lambda s, x: torch.clamp(s.fc(y(s, x)), -0.5, 0.75),
    "clamp by keywords": lambda s, x: s.fc(y(s, x)).clamp(min=-1, max=1),
    "clamp from below": lambda s, x: s.fc(y(s, x)).clamp(min=0),
    "relu6": lambda s, x: F.relu6(s.fc(y(s, x))),
    "gelu": lambda s, x: F.gelu(3 * s.fc(y(s, x))),
    "gelu of tanh": lambda s, x: F.gelu(3 * s.fc(y(s, x)), approximate="tanh"),
    "silu, mish and selu": lambda s, x: F.selu(s.next(F.mish(F.silu(y(s, x))))[0]),
    "hard swish": lambda s, x: F.hardswish(3 * s.fc(y(s, x))),
    "silu in parts": lambda s, x: (lambda v: v * torch.sigmoid(v))(3 * s.fc(y(s, x))),
    "gelu in parts": lambda s, x: (lambda v: 0.5 * v * (1 + torch.erf(v / 2**0.5)))(3 * s.fc(y(s, x))),
    "gelu of tanh in parts": lambda s, x: (
        lambda v: v * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (v + 0.044715 * v**3))) / 2
    )(3 * s.fc(y(s, x))),
    "mish in parts": lambda s, x: (lambda v: v * torch.tanh(F.softplus(v)))(3 * s.fc(y(s, x))),
    "hard swish in parts": lambda s, x: (lambda v: v * F.relu6(v + 3) / 6)(3 * s.fc(y(s, x))),
}
MOVES = {
    "transposed": lambda s, x: s.fc(y(s, x)).transpose(0, 1),
    "exchanged from the end": lambda s, x: s.fc(y(s, x)).swapaxes(-2, -1),
    "mT": lambda s, x: s.fc(y(s, x)).mT,
    "permuted": lambda s, x: s.fc(y(s, x).permute(1, 0, 2)),
    "moved": lambda s, x: torch.movedim(s.fc(y(s, x)), 0, 1),
    "moved to the end": lambda s, x: torch.movedim(s.fc(y(s, x)), 0, 2),
    "axis in and out": lambda s, x: s.fc(y(s, x).unsqueeze(1).squeeze(1)),
    "axis by None": lambda s, x: s.fc(y(s, x)[:, None, ..., None].squeeze(-1).squeeze(1)),
    "rows and back": lambda s, x: s.fc(y(s, x).reshape(-1, H)).view(x.size(0), x.shape[1], O),
    "rows and back, one open": lambda s, x: s.fc(y(s, x).flatten(0, 1)).view(x.shape[0], -1, O),
    "rows of a product of sizes": lambda s, x: s.fc(y(s, x).reshape(x.size(0) * x.size(1), H)),
    "last step": lambda s, x: s.fc(y(s, x)[:, -1]),
    "last step with colon": lambda s, x: s.fc(y(s, x)[:, -1, :]),
    "last step by ellipsis": lambda s, x: s.fc(y(s, x)[..., -1, :]),
    "last step selected": lambda s, x: s.fc(y(s, x).select(1, -1)),
    "last step kept": lambda s, x: s.fc(y(s, x)[:, -1:]),
    "last step narrowed": lambda s, x: s.fc(y(s, x).narrow(1, -1, 1)),
    "last step flattened": lambda s, x: s.fc(y(s, x)[:, -1].flatten(1)),
    "first step": lambda s, x: s.fc(y(s, x)[:, 0]),
    "last step of steps first": lambda s, x: s.fc(y(s, x).transpose(0, 1)[-1]),
    "final state": lambda s, x: s.fc(of(s, "lstm", x)[1][0][-1]),
    "final state squeezed": lambda s, x: s.fc(of(s, "lstm", x)[1][0].squeeze(0)),
    "final state of two layers": lambda s, x: s.fc(of(s, "deep", x)[1][0][-1]),
    "first features": lambda s, x: y(s, x)[..., :3] * 2,
    "last features": lambda s, x: torch.relu(y(s, x)[:, :, 2:]),
    "features of a relu": lambda s, x: s.few(torch.relu(y(s, x))[..., ::2]),
    "negated features joined": lambda s, x: torch.cat([y(s, x)[:, :, 2:], -y(s, x)[:, :, :1]], -1),
    "every second feature": lambda s, x: y(s, x)[:, :, ::2].tanh(),
    "features by a list": lambda s, x: y(s, x)[..., [0, 2]].tanh(),
    "features by a tensor": lambda s, x: y(s, x).index_select(2, torch.tensor([1, 3, 5])).tanh(),
    "chunks": lambda s, x: torch.cat(y(s, x).chunk(2, -1)[::-1], -1),
    "equal pieces": lambda s, x: y(s, x).split(3, dim=2)[1].tanh(),
    "pieces": lambda s, x: y(s, x).split([2, 4], -1)[1].tanh(),
    "joined": lambda s, x: (lambda v: torch.cat([v, s.same(v)], dim=-1))(y(s, x)),
    "joined alone": lambda s, x: s.fc(torch.cat([y(s, x)], 1)),
    "both directions": lambda s, x: s.wide(of(s, "both", x)[0]),
    "sum of directions": lambda s, x: s.fc(of(s, "both", x)[0].view(x.size(0), x.size(1), 2, H).sum(2)),
    "mean of directions": lambda s, x: s.fc(s.unflatten(of(s, "both", x)[0]).mean(dim=2)),
    "directions unflattened from the end": lambda s, x: s.fc(
        of(s, "both", x)[0].unflatten(-1, (2, H)).sum(-2)
    ),
    "directions by reversed steps": lambda s, x: s.wide(
        torch.cat([y(s, x), s.rnn(x.flip(1))[0].flip(1)], -1)
    ),
    "reversed steps of a layer": lambda s, x: s.fc(s.rnn(x.flip(-2))[0]).tanh().flip(-2),
    "states of directions by reversed steps": lambda s, x: s.wide(
        torch.cat([y(s, x)[:, -1], s.rnn(torch.flip(x, [1]))[0][:, -1]], -1)
    ),
    "directions added": lambda s, x: (lambda v: s.fc(v[..., :H] + v[..., H:]))(of(s, "both", x)[0]),
    "states of directions": lambda s, x: (lambda h: s.wide(torch.cat([h[0], h[1]], 1)))(of(s, "both", x)[1]),
    "states of directions side by side": lambda s, x: s.wide(
        of(s, "both", x)[1].transpose(0, 1).reshape(-1, 2 * H)
    ),
}
NOTHING = {
    "dropout": lambda s, x: s.fc(s.drop(y(s, x))),
    "functional dropout": lambda s, x: s.fc(F.dropout(y(s, x), 0.5, False)),
    "contiguous": lambda s, x: s.fc(y(s, x).contiguous()),
    "clone": lambda s, x: s.fc(y(s, x).clone()),
    "detach": lambda s, x: s.fc(y(s, x).detach()),
    "float": lambda s, x: s.fc(y(s, x).float()),
    "cast": lambda s, x: s.fc(y(s, x).to(torch.float32)),
    "identity": lambda s, x: s.fc(s.identity(y(s, x))),
    "state of zeros": lambda s, x: s.lstm(x, (torch.zeros(1, x.size(0), H), torch.zeros(1, x.size(0), H)))[0],
    "state of zeros detached": lambda s, x: s.rnn(x, torch.zeros(1, x.size(0), H).requires_grad_().detach())[
        0
    ],
    "state of zeros like": lambda s, x: s.rnn(x, x.new_zeros(1, x.size(0), H))[0],
}
CONSTANTS = {
    "features by a range": lambda s, x: y(s, x).index_select(2, torch.arange(3)).tanh(),
    "features by a range from a number": lambda s, x: y(s, x).index_select(2, torch.arange(1, 4)).tanh(),
    "features by a range in steps": lambda s, x: y(s, x).index_select(2, torch.arange(0, H, 2)).tanh(),
    "features by a named range": lambda s, x: y(s, x).index_select(2, torch.arange(start=2, end=5)).tanh(),
    "range added": lambda s, x: s.fc(y(s, x) + torch.arange(H) * 0.25),
    "numbers repeated": lambda s, x: s.fc(y(s, x) * torch.full((2,), 0.5).repeat(H // 2)),
    "tiled": lambda s, x: s.fc(y(s, x) * torch.tile(torch.ones(2) * 0.5, (H // 2,))),
    "expanded": lambda s, x: s.fc(y(s, x) * s.scale[:1].expand(H)),
    "zeros like a parameter": lambda s, x: s.fc(y(s, x) + torch.zeros_like(s.scale)),
    "ones like a parameter": lambda s, x: s.fc(y(s, x) + torch.ones_like(s.scale)),
    "new ones": lambda s, x: s.fc(y(s, x) + s.scale.new_ones(H)),
    "stacked": lambda s, x: s.fc(y(s, x) + torch.stack([s.scale[0], s.scale[1]]).repeat(3)),
    "square root": lambda s, x: s.fc(y(s, x) * torch.sqrt(s.scale * 0 + 4)),
    "square": lambda s, x: s.fc(y(s, x) * torch.square(s.scale).abs()),
    "reciprocal": lambda s, x: s.fc(y(s, x) * torch.reciprocal(s.scale * 0 + 2)),
    "reversed difference of a function": lambda s, x: torch.rsub(y(s, x), 1.0),
    "row of a table": lambda s, x: s.fc(y(s, x) + s.w.t()[0]),
    "sum of a parameter": lambda s, x: s.fc(y(s, x) * s.w.sum(1)),
    "mean of a parameter": lambda s, x: s.fc(y(s, x) * s.w[:, :2].mean(dim=1, keepdim=False)),
}
REFUSED = {
    "exponential": lambda s, x: torch.exp(s.fc(y(s, x))),
    "softmax in the middle": lambda s, x: s.fc(F.softmax(y(s, x), -1)),
    "third power": lambda s, x: s.fc(y(s, x)) ** 3,
    "product of matrices": lambda s, x: y(s, x) @ y(s, x).transpose(1, 2),
    "softmax of each group": lambda s, x: s.fc(groups(s, x).softmax(-1).flatten(2)),
    "norm of each group": lambda s, x: s.fc(F.layer_norm(groups(s, x), (2,)).flatten(2)),
    "a state for each sequence": lambda s, x: s.rnn(x, torch.cat([s.h0, 2 * s.h0], 1))[0],
    "steps reversed": lambda s, x: s.fc(y(s, x).flip(1)),
    "written over with one more axis": with_an_axis,
    "variance of fewer": lambda s, x: y(s, x) * y(s, x).var(-1, keepdim=True).relu(),
    "product over steps": lambda s, x: y(s, x).prod(1),
    "largest of the input": lambda s, x: torch.cat([y(s, x)[:, -1], x.amax(1)], -1),
    "axes mixed": lambda s, x: s.fc(y(s, x).reshape(T, N, H).transpose(1, 2).reshape(N, T, H)),
    "one step in the middle": lambda s, x: s.fc(y(s, x)[:, 1]),
    "convolution that looks ahead": lambda s, x: s.chomp(across(s, x))[:, :, 2:],
    "batch norm over steps": lambda s, x: F.batch_norm(y(s, x), s.mean.new_zeros(T), s.mean.new_ones(T)),
}
STEPS = {
    "lstm cell": lambda s, x: s.fc(of(s, "cell", x)[0]),
    "gru cell": lambda s, x: s.fc(of(s, "gru_cell", x)).tanh(),
    "layer of one step": lambda s, x: s.fc(s.lstm(x.unsqueeze(1))[0].squeeze(1)),
}
PRODUCTS = {
    "product": lambda s, x: (lambda v: v * s.same(v))(y(s, x)),
    "product of two layers": lambda s, x: s.fc(y(s, x) * of(s, "rnn", x)[0]),
    "product of three": lambda s, x: (lambda v: v * s.same(v) * torch.tanh(v))(y(s, x)),
    "gated linear unit": lambda s, x: s.fc(F.glu(s.gates(y(s, x)))),
    "gated linear unit by a module": lambda s, x: s.fc(s.glu(s.gates(y(s, x)))),
    "gate": lambda s, x: (lambda v: s.fc(s.same(v) * torch.sigmoid(s.fifth(v))))(y(s, x)),
    "gate of one value": lambda s, x: (lambda v: s.fc(v * torch.sigmoid(s.one(v))))(y(s, x)),
    "squeezed gate": lambda s, x: (lambda v: s.fc(v * s.back(s.fc(v).relu()).sigmoid()))(y(s, x)),
    "mask of the input": lambda s, x: x * torch.sigmoid(s.narrow(y(s, x))),
    "square": lambda s, x: s.fc(y(s, x)) ** 2,
    "square as a method": lambda s, x: s.fc(y(s, x).square()),
    "larger": lambda s, x: (lambda v: s.fc(torch.maximum(v, s.same(v))))(y(s, x)),
    "smaller": lambda s, x: (lambda v: s.fc(torch.min(v, s.same(v))))(y(s, x)),
    "larger than a parameter": lambda s, x: s.fc(torch.maximum(y(s, x), s.scale)),
    "smaller than a parameter": lambda s, x: s.fc(torch.minimum(y(s, x), s.scale)),
    "magnitude": lambda s, x: s.fc(y(s, x).abs()),
}
BRANCHES = {
    "two layers side by side": lambda s, x: s.wide(torch.cat([y(s, x), of(s, "rnn", x)[0]], -1)),
    "two layers added": lambda s, x: s.fc(y(s, x) + of(s, "rnn", x)[0]),
    "a longer branch": lambda s, x: s.wide(torch.cat([s.next(y(s, x))[0], of(s, "rnn", x)[0]], -1)),
    "branches behind dense layers": lambda s, x: s.wide(
        torch.cat([s.lstm(s.inner(x).tanh())[0], s.rnn(s.inner(x).sigmoid())[0]], -1)
    ),
    "beside a dense layer": lambda s, x: s.beside(torch.cat([y(s, x), s.inner(x).relu()], -1)),
    "sum of activations": lambda s, x: (lambda v: s.same(v).sigmoid() + s.fifth(v).tanh())(y(s, x)),
    "with a ReLU and without": lambda s, x: (lambda v: s.wide(torch.cat([v, v.relu()], -1)))(y(s, x)),
    "each reads all before it": lambda s, x: (lambda v, r: s.fc(s.after(torch.cat([v, r, x], -1))[0] + r))(
        y(s, x), of(s, "rnn", x)[0]
    ),
    "last steps of two layers": lambda s, x: s.wide(
        torch.cat([y(s, x)[:, -1], of(s, "rnn", x)[0][:, -1]], 1)
    ),
}
OVER_TIME = {
    "mean over steps": lambda s, x: s.fc(y(s, x).mean(1)),
    "mean of both directions over steps": lambda s, x: s.wide(of(s, "both", x)[0].mean(dim=1)),
    "sum over steps": lambda s, x: s.fc(y(s, x).sum(1)),
    "largest over steps": lambda s, x: s.fc(y(s, x).max(1)[0]),
    "largest over steps by name": lambda s, x: s.fc(torch.amax(y(s, x), 1)),
    "smallest over steps": lambda s, x: s.fc(s.same(y(s, x)).tanh().amin(dim=1)),
    "over features before steps": lambda s, x: s.fc(across(s, x).mean(-1)),
    "mean beside the last step": lambda s, x: s.wide(torch.cat([y(s, x).mean(1), y(s, x)[:, -1]], 1)),
}
GROUPED = {
    "linear of each group": lambda s, x: s.fc(
        F.linear(groups(s, x), s.blocks[0], s.scale[:2]).flatten(2).relu()
    ),
    "matmul of each group": lambda s, x: s.fc(torch.matmul(groups(s, x), s.blocks[0]).flatten(2)),
    "groups by their numbers": lambda s, x: s.fc(
        (lambda v: torch.cat([v[:, :, 1], v[..., 0, :], v[:, :, 2]], -1))(groups(s, x))
    ),
    "last groups": lambda s, x: (lambda v: v[:, :, 1:].flatten(2).tanh())(groups(s, x)),
    "groups split": lambda s, x: (lambda v: v[1].flatten(2) * v[0].flatten(2)[..., :1])(
        groups(s, x).split([1, 2], 2)
    ),
    "a feature of each group": lambda s, x: s.few(groups(s, x)[..., 0]),
    "some features of each group": lambda s, x: s.few(groups(s, x)[..., 1:].flatten(2)),
    "sum of each group": lambda s, x: s.few(groups(s, x).sum(-1)),
    "mean over groups": lambda s, x: groups(s, x).mean(2).tanh(),
    "groups less their means": lambda s, x: s.fc(
        (lambda v: v - v.mean(-1, keepdim=True))(groups(s, x)).flatten(2)
    ),
    "gate of each group": lambda s, x: s.fc(
        (lambda v: v * v.sum(-1, keepdim=True).sigmoid())(groups(s, x)).flatten(2)
    ),
    "mean over groups and features": lambda s, x: pairs(s, x).mean((2, 3)),
    "mean of each of two groups": lambda s, x: pairs(s, x).mean(-1).tanh(),
    "two groups less their means": lambda s, x: s.fc(
        (lambda v: v - v.mean(-1, keepdim=True))(pairs(s, x)).flatten(2)
    ),
    "groups less the mean over them": lambda s, x: s.fc(
        (lambda v: v - v.mean(2, keepdim=True))(groups(s, x)).flatten(2)
    ),
    "two groups gated by their sum": lambda s, x: s.fc(
        (lambda v: v * v.sum(2, keepdim=True).sigmoid())(pairs(s, x)).flatten(2)
    ),
    "directions less their means": lambda s, x: s.wide(
        (lambda v: (v - v.mean(-1, keepdim=True)) * v.mean(2, keepdim=True))(
            of(s, "both", x)[0].unflatten(2, (2, H))
        ).flatten(2)
    ),
    "constant of each group": lambda s, x: s.fc((groups(s, x) * s.scale[:3, None]).flatten(2)),
    "constants of each group": lambda s, x: s.fc((groups(s, x) + s.scale.view(3, 2)).flatten(2)),
    "groups mixed": lambda s, x: s.fc(torch.einsum("ntgi,gh->nthi", groups(s, x), s.w[:3]).flatten(2)),
}
COMPARED = {
    "features less their mean": lambda s, x: (lambda v: s.fc(v - v.mean(-1, keepdim=True)))(y(s, x)),
    "features and their sum": lambda s, x: (lambda v: s.same(v.sum(-1, keepdim=True) / 4 + v))(y(s, x)),
    "one feature": lambda s, x: s.fc(y(s, x))[..., 0],
    "implicit sum of products": lambda s, x: torch.einsum("abc,cd", y(s, x), s.w),
    "implicit sum along an ellipsis": lambda s, x: torch.einsum("...c,cd", y(s, x), s.w),
    "chosen by constants": lambda s, x: (lambda v: s.fc(torch.where(s.scale > 0, v, s.same(v))))(y(s, x)),
    "masked by constants": lambda s, x: s.fc(y(s, x).masked_fill(s.scale > 0, 0.25)),
    "relu by where": lambda s, x: (lambda v: s.fc(torch.where(v > 0, v, 0.0)))(y(s, x)),
    "clamp by where": lambda s, x: (lambda v: s.fc(torch.where(v < 0.125, v, 0.125)))(y(s, x)),
    "larger by where": lambda s, x: (lambda v, w: s.fc(torch.where(v <= w, w, v)))(y(s, x), s.same(y(s, x))),
    "chosen by a comparison": lambda s, x: (
        lambda v: s.fc(torch.where(v.abs() > 0.125, v, torch.zeros_like(v)))
    )(y(s, x)),
    "constants by a comparison": lambda s, x: s.fc(torch.where(y(s, x) >= 0.125, 0.5, -0.25)),
    "greater": lambda s, x: s.fc((y(s, x) > 0.125).float()),
    "greater or equal": lambda s, x: s.fc((y(s, x) >= 0.125).float()),
    "less": lambda s, x: (lambda v: s.fc((v < s.same(v)).float()))(y(s, x)),
    "less or equal": lambda s, x: s.fc((y(s, x) <= s.scale).float()),
    "comparisons added": lambda s, x: (lambda v: s.fc((v > 0.125).float() + (s.same(v) > 0.125).float()))(
        y(s, x)
    ),
    "larger of two comparisons": lambda s, x: (
        lambda v: s.fc(torch.maximum(v > 0.125, s.same(v) > 0.125).float())
    )(y(s, x)),
    "clamp by parameters": lambda s, x: s.fc(y(s, x).clamp(-s.scale.abs(), s.scale.abs())),
    "clamp by a result": lambda s, x: (lambda v: s.fc(torch.clamp(v, max=s.same(v))))(y(s, x)),
    "clamp from below by parameters": lambda s, x: s.fc(y(s, x).clamp_min(s.scale)),
    "soft shrink": lambda s, x: s.fc(F.softshrink(y(s, x), 0.125)),
    "hard shrink": lambda s, x: s.fc(F.hardshrink(y(s, x), 0.125)),
    "tanh shrink": lambda s, x: s.fc(F.tanhshrink(y(s, x))),
    "comparisons added as truths": lambda s, x: (
        lambda v: s.fc(((v > -0.125).flip(-1) + (s.same(v) > 0.125)).float())
    )(y(s, x)),
    "larger of two comparisons added": lambda s, x: (
        lambda v: s.fc(((v > 0.0625).max(s.same(v) > 0.125) + (v > -0.125)).float())
    )(y(s, x)),
    "choice of comparisons added": lambda s, x: (
        lambda v: s.fc((torch.where(v > 0.0625, s.same(v) > 0.125, v > -0.125) + (v > 0).clone()).float())
    )(y(s, x)),
    "constants beside one feature": lambda s, x: s.fc((s.one(y(s, x)) + s.scale).tanh()),
    "constants by one comparison": lambda s, x: s.fc(
        torch.where(s.one(y(s, x)) > 0.125, s.scale, 2 * s.scale)
    ),
    "constants of all steps": lambda s, x: s.fc(y(s, x) * torch.full((T, H), 0.5)),
    "features from the end": lambda s, x: s.fc(y(s, x)[..., [5, 4, 3, 2, 1, 0]]),
    "features reversed": lambda s, x: s.fc(y(s, x).flip(-1)),
    "groups reversed": lambda s, x: s.fc(groups(s, x).flip(2).flatten(2)),
    "product added": lambda s, x: (lambda v: s.fc(torch.addcmul(v, v, s.same(v), value=0.5)))(y(s, x)),
    "normalised by a variance": lambda s, x: (
        lambda v: s.fc((v - v.mean(-1, True)) / torch.sqrt(v.var(-1, unbiased=False, keepdim=True) + 1 / 64))
    )(y(s, x)),
    "weight of two factors": lambda s, x: F.linear(y(s, x), s.blocks[:, 0] @ s.w.T[:2]),
    "logarithm of one and an exponential": lambda s, x: torch.log(1 + torch.exp(s.fc(y(s, x)))),
}
WORDS = {
    "embedding": lambda s, x: s.fc(s.lstm(s.table(x))[0]),
    "functional embedding": lambda s, x: s.fc(s.lstm(F.embedding(x, s.table.weight))[0]),
}
IMAGES = {"rows of an image": lambda s, x: s.fc(s.lstm(x.view(-1, T, I))[0])}
GROUPS = {
    "layers": (LAYERS, (N, T, I)),
    "arithmetic": (ARITHMETIC, (N, T, I)),
    "activations": (ACTIVATIONS, (N, T, I)),
    "moves": (MOVES, (N, T, I)),
    "nothing": (NOTHING, (N, T, I)),
    "products": (PRODUCTS, (N, T, I)),
    "groups": (GROUPED, (N, T, I)),
    "compared": (COMPARED, (N, T, I)),
    "branches": (BRANCHES, (N, T, I)),
    "over time": (OVER_TIME, (N, T, I)),
    "constants": (CONSTANTS, (N, T, I)),
    "refused": (REFUSED, (N, T, I)),
    "steps": (STEPS, (N, I)),
    "words": (WORDS, (N, T)),
    "images": (IMAGES, (N, 1, T, I)),
}
"""Bodies with the shape of their input."""


def data_of(group):
    shape = GROUPS[group][1]
    torch.manual_seed(2)
    return torch.arange(N * T).reshape(shape) % 7 if group == "words" else torch.rand(shape)


NOT_IN = {
    "onnx": {
        "mT",
        "gru cell",
        "last step narrowed",
        "directions by reversed steps",
        "reversed steps of a layer",
        "states of directions by reversed steps",
        "seen through a view",
        "written over with one more axis",
        "soft shrink",
        "hard shrink",
    }
}
"""What an exporter cannot write, or writes wrongly: with zeros, a slice [-1:0], Sign or Or, or not at all.

Reversed steps it writes with an axis of directions, where ONNX has `direction`."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The graph of a group in a form, and how it calls the result of each body."""
    made = {}

    def get(group, form):
        if (group, form) not in made:
            bodies, data = GROUPS[group][0], data_of(group)
            with warnings.catch_warnings(action="ignore"):
                chosen = {name: body for name, body in bodies.items() if name not in NOT_IN.get(form, ())}
                graph = translated(form, bodies_net(chosen.values()), data, tmp_path_factory.mktemp("bodies"))
            made[group, form] = graph, dict(zip(chosen, graph.outputs, strict=True))
        return made[group, form]

    return get


def translated(form, module, x, folder):
    options, report = ReadOptions(), ReportBuilder(form)
    if form == "module":
        return Walk(module, trace(module)).translated(options, report)
    if form == "script":
        return translate_script(torch.jit.trace(module, x), options, report)
    if form == "exported":
        torch.export.save(torch.export.export(module, (x,)), folder / "net.pt2")
        file = io.BytesIO((folder / "net.pt2").read_bytes())
        return translate_exported(file, options, report)
    torch.onnx.export(module, (x,), folder / "net.onnx", dynamo=form == "dynamo")
    return translate_onnx(take_branches(load_onnx(folder / "net.onnx"), ())[0])


def network_of(graph, end):
    """The network that ends there, and its dump without the names of layers; None if it is refused."""
    nodes = [graph.nodes[index] for index in sorted(graph.ancestors([end]))]
    try:
        network = read(
            graph.with_nodes(nodes), ReadOptions(output=end, sequence_length=T), ReportBuilder("net")
        )
    except ModelError:
        return None
    return network, without_names(network)


def near(network, x, wanted):
    """Whether a network computes these values at every step, the last or the first, in any order of axes."""
    steps = x[:, 0] if x.ndim == 4 else x if x.ndim == 3 else x[:, None]
    found = run_float(network, np.swapaxes(steps, 0, 1)).y
    for some in (found, found[-1], found[0]):
        values = [np.sort(np.asarray(each, dtype=np.float64).reshape(-1)) for each in (some, wanted)]
        if values[0].shape == values[1].shape and np.allclose(*values, atol=1e-5):
            return True
    return False


def check(sources, group, name, forms):
    bodies, data = GROUPS[group][0], data_of(group)
    found = {}
    for form in forms:
        if name not in NOT_IN.get(form, ()):
            graph, ends = sources(group, form)
            found[form] = network_of(graph, ends[name])
    if name in REFUSED:
        assert not any(found.values()), {form: each is not None for form, each in found.items()}
        return
    assert all(found.values()), {form: each is not None for form, each in found.items()}
    (network, first), *others = found.values()
    for form, (_, other) in zip(list(found)[1:], others, strict=True):
        assert same(first, other), form
    module = bodies_net([bodies[name]])
    with torch.no_grad():
        (wanted,) = module(data)
        read_of = module.table(data) if group == "words" else data
    assert near(network, read_of.numpy(), wanted.numpy())


CASES = [(group, name) for group, (bodies, _) in GROUPS.items() for name in bodies]
NEWER = [
    "linear", "matmul operator", "causal convolution", "alpha", "residual", "normalised input", "elu",
    "clamp from below", "last step", "pieces", "sum of directions", "states of directions", "product",
    "gated linear unit", "larger", "mean over steps",
    "largest over steps by name",
]  # fmt: skip
"""Bodies that PyTorch's newer exporter writes, too: without nn.RNN, which it unrolls."""
EVERY = {name: body for bodies, _ in GROUPS.values() for name, body in bodies.items()}
GROUPS["newer"] = ({name: EVERY[name] for name in NEWER}, (N, T, I))


@pytest.mark.parametrize(("group", "name"), CASES, ids=[name for _, name in CASES])
def test_a_body_is_one_network_in_every_form(sources, group, name):
    check(sources, group, name, ("module", "exported", "script", "onnx"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NEWER)
def test_a_body_is_one_network_by_the_newer_exporter(sources, name):
    check(sources, "newer", name, ("module", "dynamo"))
