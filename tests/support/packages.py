"""Packages that are installed in a test's folder."""

from pathlib import Path


def install(folder: Path, name: str, points: str, version: str = "1.0") -> None:
    """Make a folder that is on the path hold a package with these entry points, as ``entry_points.txt``."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)
