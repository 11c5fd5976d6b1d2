"""Traces a module's forward into a graph, and small helpers on that graph."""

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rtlstm.spec.errors import ModelError

__all__ = ["ancestors", "input_rank", "loop_refusal", "rank_without_recurrent", "trace"]


def trace(torch: Any, module: Any) -> Any:
    """Trace with every recurrent module, packing and padding as one node each."""
    from torch import fx
    from torch.nn.utils import rnn

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            if isinstance(m, torch.nn.RNNBase | torch.nn.RNNCellBase):
                return True
            return bool(super().is_leaf_module(m, module_qualified_name))

    cell = next((name for name, part in module.named_modules() if isinstance(part, torch.nn.RNNCellBase)), "")
    try:
        graph = Tracer(autowrap_modules=(math, rnn)).trace(module)
    except Exception as error:  # Tracing runs the user's code, which may raise any error.
        line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        if cell and "Proxy" in line:
            raise ModelError(loop_refusal(cell)) from None
        raise ModelError(
            f"the module's forward cannot be traced ({line}); export it with torch.onnx.export, or save its "
            "state_dict()"
        ) from None
    _join_items(graph)
    return graph


def loop_refusal(cell: str) -> str:
    """Return the advice for a cell that the module calls in a loop over the steps."""
    return (
        f"the cell {cell!r} is called in a loop over the steps, but the core itself goes from step to step; "
        f"save the module's state_dict() and name its parts (`lstm={cell!r}`, and the layers "
        "behind it with `dense`), or use nn.LSTM, nn.GRU or nn.RNN, or a module "
        "whose forward computes one step"
    )


def _join_items(graph: Any) -> None:
    """Make one node of every tuple item, however often the code wrote ``result[0]``."""
    first: dict[tuple[Any, int], Any] = {}
    for node in list(graph.nodes):
        if node.target is operator.getitem and isinstance(node.args[1], int):
            same = first.setdefault((node.args[0], node.args[1]), node)
            if same is not node:
                node.replace_all_uses_with(same)
                graph.erase_node(node)


def ancestors(nodes: list[Any]) -> set[Any]:
    """The nodes and all that they depend on."""
    found: set[Any] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return found


def rank_without_recurrent(nodes: Iterable[Any], names: Callable[[Any], str]) -> int:
    """How many axes the input of a module without recurrent layers has; ``names`` names operations.

    A convolution reads (sequences, features, steps). Without any, a module computes each sample from itself
    alone, and reads (samples, features), unless it names a third axis.
    """
    for node in nodes:
        name = names(node)
        sizes = node.meta.get("sizes", []) if node.op == "placeholder" else []
        numbers = [item for item in _flat((node.args[1:], node.kwargs.values())) if isinstance(item, int)]
        thrice = name in ("permute", "transpose") and not {2, -3}.isdisjoint(numbers)
        if len(sizes) == 3 or name in ("conv1d", "pad") or thrice:
            return 3
    return 2


def _flat(values: Any) -> Iterator[Any]:
    """Every item of nested tuples and lists."""
    for value in values:
        if isinstance(value, list | tuple) or hasattr(value, "mapping"):
            yield from _flat(value)
        else:
            yield value


def input_rank(node: Any, rank: int, names: Callable[[Any], str]) -> int:
    """How many axes the model's input has, if what a node gives has ``rank``; ``names`` names operations.

    It looks through embeddings and operators that insert or remove axes, as a decoder's step has them.
    """
    while node.all_input_nodes:
        name = names(node)
        if name in ("unsqueeze", "embedding"):
            rank -= 1
        elif name == "select" or (name == "squeeze" and len(node.args) + len(node.kwargs) > 1):
            rank += 1
        elif name == "getitem":
            key = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
            rank += sum(isinstance(item, int) for item in key) - sum(item is None for item in key)
        elif name == "reshape":
            given = node.args[1:] or tuple(node.kwargs.values())
            shape = given[0] if isinstance(given[0], list | tuple) else given
            rank -= sum(isinstance(item, int) and item == 1 for item in shape)
        node = node.all_input_nodes[0]
    return max(rank, 1)
