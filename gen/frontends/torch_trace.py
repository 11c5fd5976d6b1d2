"""Traces a module's forward into a graph, and small helpers on that graph."""

import math
import operator
from typing import Any

from rtlstm.spec.errors import ModelError

__all__ = ["ancestors", "trace"]


def trace(torch: Any, module: Any) -> Any:
    """Trace with every recurrent module, packing and padding as one node each."""
    from torch import fx
    from torch.nn.utils import rnn

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            if isinstance(m, torch.nn.RNNBase | torch.nn.RNNCellBase):
                return True
            return bool(super().is_leaf_module(m, module_qualified_name))

    try:
        graph = Tracer(autowrap_modules=(math, rnn)).trace(module)
    except Exception as error:  # tracing runs the user's code, which may raise anything
        line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ModelError(
            f"the module's forward cannot be traced ({line}); export it with torch.onnx.export, or save its "
            "state_dict()"
        ) from None
    _join_items(graph)
    return graph


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
