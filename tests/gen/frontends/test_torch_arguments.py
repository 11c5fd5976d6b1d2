"""Arguments of PyTorch's operations: read by position and by name, or refused by name."""

import pytest
from support.lazy import F, nets, nn, torch
from support.refusals import refused
from support.same_network import same, without_names

from rtlstm.gen.frontends import read_model
from rtlstm.gen.frontends.torch.operators import OPERATIONS
from rtlstm.gen.frontends.torch.translate import WITHOUT_EFFECT

I, H, O = 4, 6, 3  # noqa: E741

OTHER_ORDER = {
    "_convolution",
    "_convolution_mode",
    "batch_norm",
    "constant_pad_nd",
    "convolution",
    "embedding",
}
"""Operators of ATen with positions other than those of ``torch.nn.functional``: they are read by name."""
OTHER_MEANING = {
    "arange": ["end"],  # alone, it stands where start does
    "log_softmax": ["x", "dim", "dtype"],
    "select": ["x", "idx"],  # of a list
    "softmax": ["x", "dim", "dtype"],
    "var": ["x", "unbiased"],  # of all elements, which is refused
    "view": ["x", "dtype"],
}
"""Overloads with arguments in other positions than those of the table."""
NOT_READ = {"data", "batch_sizes", "max", "max_values", "min", "min_indices", "out0", "out1"}
"""Arguments of overloads that are refused as a whole, of packed sequences, or that take results."""


def overloads(name):
    """Arguments of ATen's operators of this name that work on tensors: all, and those by position."""
    from torch import _C

    for schema in _C._jit_get_schemas_for_operator(f"aten::{name}"):
        kinds = [str(argument.type) for argument in schema.arguments]
        names = [argument.name for argument in schema.arguments]
        gives = [str(result.type) for result in schema.returns]
        if "out" in names or not any("Tensor" in kind for kind in gives[:1]) or "Dimname" in str(schema):
            continue
        if kinds[:1] in (["Tensor"], ["List[Tensor]"]) or not any("Tensor" in kind for kind in kinds):
            positions = [argument.name for argument in schema.arguments if not argument.kwarg_only]
            yield names, positions


def test_every_argument_of_aten_is_known_in_its_position():
    """Exported programs and TorchScript name arguments as ATen does, live modules give them by position."""
    seen = 0
    for name, operation in OPERATIONS.items():
        known = [each.split("/")[0] for each in operation.parameters.replace("*", "").split()]
        star = "*" in operation.parameters
        for names, positions in overloads(name):
            seen += 1
            found = operation.arguments((), dict.fromkeys(names))
            odd = [each for each in found if each not in (*known, *WITHOUT_EFFECT, *NOT_READ)]
            assert star or all(each.endswith("dtype") for each in odd), (name, odd)
            order = list(operation.arguments((), dict.fromkeys(positions)))
            if name not in OTHER_ORDER and OTHER_MEANING.get(name) != order and not NOT_READ & {*order}:
                order = [each for each in order if each != "out_dtype"]
                assert star or order == known[: len(order)], (name, order, known)
    assert seen > 150


def lstm(tail):
    return nets.Net(lambda m, x: tail(m, m.lstm(x)[0]), lstm=nn.LSTM(I, H), fc=nn.Linear(H, O),
                    norm=nn.BatchNorm1d(H), table=nn.Embedding(7, I)).eval()  # fmt: skip


TOO_MANY = [
    (lambda m, y: torch.relu(y).index_select(2, torch.tensor([0]), 3), "argument 4=3"),
    (lambda m, y: y.transpose(0, 1, 2), "argument 4=2"),
    (lambda m, y: y.sum(-1, True, torch.int32), "dtype=torch.int32"),
    (lambda m, y: y.unsqueeze(0, 1), "argument 3=1"),
    (lambda m, y: y.clamp(-1.0, 1.0, 2.0), "argument 4=2.0"),
    (lambda m, y: y.relu(False, 1), "argument 3=1"),
]


@pytest.mark.parametrize(("tail", "words"), TOO_MANY, ids=[words for _, words in TOO_MANY])
def test_an_argument_by_position_that_is_not_read_is_refused(tail, words):
    refused(lstm(tail), f"{words} is not supported")


ALIKE = {
    "batch norm": (
        lambda m, y: torch.batch_norm(
            y.transpose(1, 2), m.norm.weight, m.norm.bias, m.norm.running_mean, m.norm.running_var,
            False, 0.1, 1e-5, True,
        ),
        lambda m, y: m.norm(y.transpose(1, 2)),
    ),
    "dropout": (lambda m, y: m.fc(torch.dropout(y, 0.5, False)), lambda m, y: m.fc(y)),
    "softmax": (lambda m, y: torch.softmax(m.fc(y), -1), lambda m, y: F.softmax(m.fc(y), -1)),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_torchs_own_functions_have_positions_of_their_own(name):
    torch.manual_seed(0)
    one, other = (lstm(tail) for tail in ALIKE[name])
    for each in (one, other):
        each.norm.running_mean[:] = torch.linspace(-1, 1, H)
    one.load_state_dict(other.state_dict())
    first, second = (without_names(read_model(each).network) for each in (one, other))
    assert same(first, second)


def test_an_embedding_by_torchs_own_function():
    net = nets.Net(lambda m, x: m.lstm(torch.embedding(m.table.weight, x))[0],
                   table=nn.Embedding(7, I), lstm=nn.LSTM(I, H))  # fmt: skip
    assert read_model(net).embeddings[0].table.shape == (7, I)


def test_a_layer_by_torchs_own_function():
    """Parameters one after the other in place of a module."""
    net = nets.Net(
        lambda m, x: torch.lstm(
            x, (torch.zeros(1, 2, H), torch.zeros(1, 2, H)), list(m.lstm.parameters()), True, 1, 0.0, False,
            False, False,
        )[0],
        lstm=nn.LSTM(I, H),
    )  # fmt: skip
    found, wanted = (read_model(each).network for each in (net, net.lstm))
    assert same(without_names(found), without_names(wanted))
