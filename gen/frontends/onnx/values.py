"""The names by which operators of other packages know a node and its results."""

from rtlstm.gen.frontends.step import Step as OnnxNode
from rtlstm.gen.frontends.step import Value

__all__ = ["OnnxNode", "Value"]
