"""Modules that take long to import: each is imported when a test first asks for something of it.

Every process of ``make test`` collects all tests, which takes seconds more with torch and Keras at the
top of their files.
"""

from importlib import import_module
from typing import Any


class Lazy:
    """A module that is imported at the first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for these in all that stands in a test file.
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


torch = Lazy("torch")
nn = Lazy("torch.nn")
F = Lazy("torch.nn.functional")
train = Lazy("rtlstm.train")
nets = Lazy("support.torch_nets")
scripted = Lazy("support.scripted_nets")
onnx_files = Lazy("support.onnx_files")
