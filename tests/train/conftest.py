"""Fixtures of the tests of training."""

import pytest
from support.lazy import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """These networks are small, and tests run side by side: threads would wait for each other."""
    torch.set_num_threads(1)
