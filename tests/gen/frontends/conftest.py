"""What the tests of front ends share."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file that a test writes and reads."""
    return tmp_path / "model.onnx"
