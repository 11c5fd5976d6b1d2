"""The gallery has each example's picture, small and in the reader's ink, and they are drawn anew alike."""

import re
from pathlib import Path

import pytest
from support.example_file import load_example
from support.paths import DOCS, EXAMPLES

PAGE = (DOCS / "zoo.md").read_text().partition("\n## Gallery\n")[2]
SECTIONS = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
PICTURE = re.compile(r"^!\[.+\]\((images/.+\.svg)\)$", re.MULTILINE)
FETCHED = ("speech", "gait", "words")
SLOW = (*FETCHED, "amplifier", "two_layers")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_a_section_has_a_picture_and_a_command(section: str) -> None:
    (picture,) = PICTURE.findall(section)
    assert len(re.findall(r"^```sh\n.+\n```$", section, re.MULTILINE)) == 1
    svg = (DOCS / picture).read_text()
    assert len(svg) < 40_000 and "@media(prefers-color-scheme:dark)" in svg
    assert svg.count("#1f2328") == 1, "only the style states the ink"


def test_every_example_and_every_picture_is_shown() -> None:
    shown = {Path(path).stem for path in PICTURE.findall(PAGE)} - {"accuracy-bits"}
    assert shown == load_example("gallery").PICTURES.keys()
    helpers = {"gallery", "svg_picture"}
    for path in EXAMPLES.iterdir():
        if path.stem not in helpers | {"notebook", "__pycache__"}:
            assert f"examples/{path.name}" in PAGE, path.name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
        for name in (
            "speech",
            "gait",
            "words",
            "amplifier",
            "two_layers",
            "cell",
            "usages",
            "client",
            "litex",
        )
    ],
)
def test_a_picture_is_drawn_again(name: str, tmp_path: Path) -> None:
    gallery = load_example("gallery")
    gallery.main([name, "-o", str(tmp_path)])
    pages = [(folder / f"{name}.svg").read_text() for folder in (tmp_path, gallery.FOLDER)]
    drawn, kept = (re.findall(r"<text [^>]*>([^<]*)</text>", page) for page in pages)
    assert drawn == kept
