"""Tests that make components and leave them unused."""

import gc
import warnings
from collections.abc import Iterator

import pytest
from amaranth.hdl import UnusedElaboratable


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """Drop the components that a refusal leaves unused here, and not in the midst of another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedElaboratable)
        gc.collect()
