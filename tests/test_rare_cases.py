"""The core meets every rare case that a build has, and answers as golden device and second model do.

Ties, limits and values one unit beyond them; states written, streams reset and weights loaded between steps;
outputs that nobody takes for several steps. The second model counts what was met, over what the core was
given; a case that was not met fails the test. The tables are printed when all tests are done.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.device_pair import pair
from support.rare_cases import BUILDS, INPUTS, Play

pytestmark = pytest.mark.rtl

STEPS = 200


@pytest.mark.parametrize("name", BUILDS)
def test_every_rare_case_is_met(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    build = BUILDS[name]
    build.write(tmp_path)
    form, count = build.network.numerics.input, build.manifest.parameters.streams
    rng = np.random.default_rng(7)

    def steps(number: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.integers(form.lowest, form.maximum, (number, INPUTS), endpoint=True)
        return rng.integers(0, count, number), x

    with pair(tmp_path, "icarus") as both:
        play = Play(build, both)
        play.meet(seed=3)
        play.exchange(*steps(STEPS))
        play.reset(0)
        play.exchange(*steps(20))
        streams, x = steps(60)
        play.exchange(streams, x, rng.random(60) < 0.5)
        # Each beat of the output is held for a hundred cycles: longer than steps take.
        both.stalls(1, 0.0, 0.99)
        play.exchange(*steps(30))
        both.stalls(1, 0.5, 0.5)
        play.exchange(*steps(30))
        both.stalls(0, 0.0, 0.0)
        play.load(build.retrained)
        play.exchange(*steps(60))
        play.reset(count - 1)
        play.exchange(*steps(5))
    record_property("rare cases", (name, play.met))
    assert both.saturations > 0
    missing = [case for case, count in play.met.items() if not count]
    assert not missing
