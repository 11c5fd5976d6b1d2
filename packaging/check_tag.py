"""Compares a tag with the project: ``python packaging/check_tag.py v1.2.3``.

The version of ``pyproject.toml`` must be the tag's, and ``CHANGELOG.md`` must have it with a date.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check_tag(tag: str, project: str, changes: str) -> str:
    """Return why a tag must not be published; empty if it may be."""
    version = tomllib.loads(project)["project"]["version"]
    if tag != f"v{version}":
        return f"the tag must be v{version}, the version of pyproject.toml, not {tag}"
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        return f"CHANGELOG.md must have a heading '## [{version}] - YYYY-MM-DD', with the day of the release"
    return ""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} TAG")
    sys.exit(
        check_tag(sys.argv[1], *((ROOT / name).read_text() for name in ("pyproject.toml", "CHANGELOG.md")))
        or None
    )
