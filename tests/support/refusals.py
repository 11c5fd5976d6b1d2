"""Models that are refused."""

import re
from typing import Any

import pytest

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.spec.errors import ModelError


def refused(source: Any, words: str, options: ReadOptions | None = None) -> str:
    """Assert that a model is refused, in words that this regular expression finds; return the message."""
    with pytest.raises(ModelError, match=words) as caught:
        read_model(source, options)
    return str(caught.value)


def named_begins(source: Any) -> list[str]:
    """Return the names that the refusal of a wrong ``begin`` lists; each of them is one."""
    options = ReadOptions(begin="none")
    words = "`begin` must name a tensor on the way .* but 'none' is none; there are "
    told = refused(source, words, options).rpartition("; there are ")[2]
    names = re.split("; | and ", told)[0].split(", ")
    others = []
    for name in names:
        try:
            read_model(source, ReadOptions(begin=name))
        except ModelError as error:  # The core cannot compute what is behind it.
            others.append(str(error))
    assert not any("`begin`" in text for text in others), others
    return names
