"""Which cases of a kind are quick: the others run in ``make test-all`` alone."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick(cases: Iterable[Any], *few: Any) -> list[Any]:
    """Return cases as parameters of a test; all but these few are marked ``slow``.

    A tuple has the values of several parameters.
    """
    found = list(cases)
    assert few and all(case in found for case in few), f"{few} must be some of {found}"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=() if case in few else pytest.mark.slow
        )
        for case in found
    ]
