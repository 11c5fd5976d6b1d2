"""Where the project's files stand."""

from pathlib import Path

__all__ = ["DOCS", "EXAMPLES", "ROOT", "TESTS"]

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
