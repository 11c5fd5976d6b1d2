"""Where the project's files stand."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
FOLDERS = (
    "rtlstm",
    "spec",
    "tools",
    "hdl",
    "sim",
    "host",
    "fpga",
    "boards",
    "gen",
    "train",
    "explore",
    "zoo",
    "cli",
    "bench",
)
"""The folders of the package, the package's own first. ``bench`` is not in the wheel."""
