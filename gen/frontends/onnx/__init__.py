"""Front end for ONNX. Operators of other packages know a node and its results by these two names."""

from rtlstm.gen.frontends.layers import Step as OnnxNode
from rtlstm.gen.frontends.layers import Value

__all__ = ["OnnxNode", "Value"]
