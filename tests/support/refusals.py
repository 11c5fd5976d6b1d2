"""Models that are refused."""

from typing import Any

import pytest

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.spec.errors import ModelError


def refused(source: Any, words: str, options: ReadOptions | None = None) -> str:
    """Assert that a model is refused, in words that this regular expression finds; return the message."""
    with pytest.raises(ModelError, match=words) as caught:
        read_model(source, options)
    return str(caught.value)
