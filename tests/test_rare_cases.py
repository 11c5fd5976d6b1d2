"""The core meets every rare case that a build has, and answers as golden device and second model do.

Ties, limits and values one unit beyond them; states written, streams reset and weights loaded between steps;
outputs that nobody takes for several steps. The second model counts what was met, over what the core was
given; a case that was not met fails the test. The tables are printed when all tests are done.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.device_pair import pair
from support.rare_cases import BUILDS, play_all

pytestmark = pytest.mark.rtl


@pytest.mark.parametrize("name", BUILDS)
def test_every_rare_case_is_met(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    build = BUILDS[name]
    build.write(tmp_path)
    with pair(tmp_path, "icarus") as both:
        play = play_all(build, both)
    record_property("rare cases", (name, play.met))
    assert both.saturations > 0
    missing = [case for case, count in play.met.items() if not count]
    assert not missing
