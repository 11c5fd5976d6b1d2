"""Rebuilds torch.nn modules from TorchScript ones, whose options are only in their code."""

from typing import Any

from rtlstm.gen.frontends.weight_parts import parts_refusal
from rtlstm.spec.errors import ModelError

__all__ = ["LEAVES", "SEQUENCES", "rebuild", "script_kind"]

SEQUENCES = {"aten::lstm": "LSTM", "aten::gru": "GRU", "aten::rnn_tanh": "RNN", "aten::rnn_relu": "RNN"}
_CELLS = ("GRUCell", "LSTMCell", "RNNCell")
LEAVES = frozenset(
    {*SEQUENCES.values(), *_CELLS, "BatchNorm1d", "Conv1d", "Dropout", "Embedding", "Identity", "Linear"}
)
"""The modules that :func:`rebuild` makes."""


def script_kind(module: Any) -> str:
    """The class that a TorchScript module was made from."""
    return str(getattr(module, "original_name", type(module).__name__))


def rebuild(module: Any, graph: Any, where: str) -> Any:
    """Make the torch.nn module of a TorchScript one of :data:`LEAVES`, in inference mode.

    ``graph`` is the inlined one of the method that is called.

    Raises
    ------
    ModelError
        If its code is not that of torch.nn's class.
    """
    from torch import nn

    kind, state = script_kind(module), module.state_dict()
    for name in state:
        found = parts_refusal(name, state)
        if found is not None:
            raise ModelError(f"{where} {found[1]}")
    if kind in SEQUENCES.values():
        made = _sequence(graph, kind, state, where)
    elif kind in _CELLS:
        rows = state["weight_ih"].shape
        options = {"nonlinearity": "relu"} if _find(graph, ("aten::rnn_relu_cell",)) else {}
        made = getattr(nn, kind)(rows[1], state["weight_hh"].shape[1], "bias_ih" in state, **options)
    elif kind == "Linear":
        made = nn.Linear(state["weight"].shape[1], state["weight"].shape[0], "bias" in state)
    elif kind == "Embedding":
        made = nn.Embedding(*state["weight"].shape)
    elif kind == "Conv1d":
        made = _conv1d(graph, state, where)
    elif kind == "BatchNorm1d":
        eps = _argument(_only(graph, ("aten::batch_norm",), where), 7, where)
        made = nn.BatchNorm1d(len(state["running_mean"]), eps, affine="weight" in state)
    else:
        return getattr(nn, kind)()
    made.load_state_dict(state)
    return made.double().eval()


def _sequence(graph: Any, kind: str, state: dict[str, Any], where: str) -> Any:
    from torch import nn

    node = _only(graph, tuple(SEQUENCES), where)
    first, inner = state["weight_ih_l0"], state["weight_hh_l0"]
    projection = inner.shape[1] if "weight_hr_l0" in state else 0
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    options: dict[str, Any] = {"proj_size": projection} if projection else {}
    if kind == "RNN":
        options["nonlinearity"] = node.kind().removeprefix("aten::rnn_")
    return getattr(nn, kind)(
        first.shape[1],
        first.shape[0] // gates,
        num_layers=sum(name.startswith("weight_ih_") and not name.endswith("_reverse") for name in state),
        bias="bias_ih_l0" in state,
        batch_first=_argument(node, len(list(node.inputs())) - 1, where),
        bidirectional="weight_ih_l0_reverse" in state,
        **options,
    )


def _conv1d(graph: Any, state: dict[str, Any], where: str) -> Any:
    from torch import nn

    node = _only(graph, ("aten::conv1d", "aten::_convolution"), where)
    if _find(graph, ("aten::pad", "aten::reflection_pad1d", "aten::replication_pad1d")):
        raise ModelError(f"{where} must pad with zeros")
    argument_numbers = (3, 4, 5, 6 if node.kind() == "aten::conv1d" else 8)
    stride, padding, dilation, groups = (_argument(node, at, where) for at in argument_numbers)
    outputs, inputs, size = state["weight"].shape
    return nn.Conv1d(inputs * groups, outputs, size, stride, padding, dilation, groups, bias="bias" in state)


def _find(graph: Any, kinds: tuple[str, ...]) -> list[Any]:
    """Nodes of these kinds, in inner blocks too."""
    found = []
    for node in graph.nodes():
        if node.kind() in kinds:
            found.append(node)
        for block in node.blocks():
            found += _find(block, kinds)
    return found


def _only(graph: Any, kinds: tuple[str, ...], where: str) -> Any:
    found = _find(graph, kinds)
    if len(found) != 1:
        raise ModelError(f"{where} must have one {kinds[0]} in its code, but has {len(found)}")
    return found[0]


def _argument(node: Any, index: int, where: str) -> Any:
    """A constant argument of a node."""
    value = list(node.inputs())[index]
    if value.node().kind() == "prim::ListConstruct":
        parts = list(value.node().inputs())
        return tuple(part.toIValue() for part in parts)
    found = value.toIValue()
    if found is None:
        raise ModelError(f"{where}: argument {index} of {node.kind()} must be a constant")
    return tuple(found) if isinstance(found, list) else found
