"""The page of the front: what it says, and that all of it can be seen."""

import re

import numpy as np
import pytest

from rtlstm.explore.page import render_page

pytest.importorskip("bokeh")

POINT = {
    "number": 1,
    "device": "up5k",
    "numbers": "8/8/8/12 direct",
    "array": "4 x 1",
    "cycles": 9,
    "latency_us": 0.5,
    "fmax_mhz": 30.0,
    "luts": 900,
    "multipliers": 4,
    "block_rams": 3,
    "share": 20.0,
    "energy_nj": None,
    "error": 0.004,
    "measure": 0.9,
    "proof": "",
    "command": "rtlstm generate tiny.safetensors",
}
FOUND = {
    "goal": "latency",
    "limits": ["luts<=1,000", "share<=50%"],
    "tried": 1200,
    "size": 8000,
    "too_large": 3,
    "impossible": 0,
    "within": 7,
    "metric": "accuracy",
    "metric_meaning": "share of right decisions",
    "larger_is_better": True,
    "float_metric": 0.95,
}


def test_control_characters_are_escaped() -> None:
    page = render_page("a\x1b\x00", [POINT], "accuracy", FOUND | {"metric": "b\x1b"})
    assert "<h1>a\\x1b\\x00</h1>" in page and "Color is the metric, b\\x1b:" in page
    assert "\x1b" not in page and "\x00" not in page


def seen(color: np.ndarray) -> np.ndarray:
    """The same color as the page's filter for dark screens shows it."""
    rotation = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
    return np.clip(rotation @ (0.92 - 0.84 * color), 0, 1)


def luminance(color: np.ndarray) -> float:
    """WCAG's relative luminance."""
    linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_all_values_of_the_metric_are_seen_on_light_and_dark_screens():
    page = render_page("tiny", [POINT], "accuracy", FOUND)
    palette = re.search(r'"palette":\[(.*?)\]', page)[1]
    colors = [
        np.array([int(text[i : i + 2], 16) for i in (0, 2, 4)]) / 255
        for text in re.findall(r"#(\w{6})", palette)
    ]
    assert len(colors) > 100 and "invert(0.92) hue-rotate(180deg)" in page
    white = np.ones(3)
    for show in (np.asarray, seen):
        for color in colors:
            bright, dark = sorted((luminance(show(white)), luminance(show(color))), reverse=True)
            # What WCAG asks of graphics.
            assert (bright + 0.05) / (dark + 0.05) >= 3


def test_it_says_what_was_searched_for():
    page = render_page("<tiny>", [POINT], "accuracy", FOUND)
    assert "<h1>&lt;tiny&gt;</h1>" in page
    assert "Searched by latency; limits: luts&lt;=1,000, share&lt;=50%. 1,200 of 8,000 choices tried" in page
    assert "7 meet the limits" in page
    assert "accuracy: share of right decisions; larger is better; the float network has 0.95" in page


def test_the_legend_stands_beside_the_points_and_has_no_color_of_the_metric():
    page = render_page("tiny", [POINT, POINT | {"device": "lfe5u-25f-8"}], "accuracy")
    assert re.search(r'"below":\[[^\]]*"name":"Legend"', page) and page.count("#707070") >= 2
