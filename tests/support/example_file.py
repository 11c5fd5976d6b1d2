"""Imports an example, which stands outside of any package."""

import importlib.util
import sys
from types import ModuleType

from support.paths import EXAMPLES


def load_example(name: str) -> ModuleType:
    """The module of ``examples/NAME.py``."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
