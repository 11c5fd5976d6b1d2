"""Device families are found by name, wherever they come from."""

from collections.abc import Iterator

import pytest

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import FAMILIES, Family, Pipeline
from rtlstm.spec.parameters import Parameters


class Deep(Family):
    name = "deep"
    pipeline = Pipeline(operand=4, multiplier=3, tree_levels=1)


@pytest.fixture
def deep() -> Iterator[Family]:
    added = Deep()
    FAMILIES.add("deep", added)
    yield added
    FAMILIES.remove("deep")


def test_added_family_is_found(deep: Family):
    assert FAMILIES.named("deep") is deep
    assert Parameters.for_family("deep", lanes=8).pipeline == Deep.pipeline


def test_every_family_is_found_by_its_own_name():
    assert {"ecp5", "generic", "gowin", "ice40", "intel", "nexus", "xilinx"} <= set(FAMILIES)
    for name, family in FAMILIES.items():
        assert family.name == name


@pytest.mark.parametrize("use", [FAMILIES.named, Parameters.for_family, lambda name: Parameters(family=name)])
def test_unknown_family_is_refused_with_those_there_are(use):
    with pytest.raises(
        ConfigurationError,
        match="family must be one of ecp5, generic, gowin, ice40, intel, nexus, xilinx, not 'ecp6'",
    ):
        use("ecp6")


def test_a_family_without_a_pipeline_is_none():
    class Nameless(Family):
        name = "nameless"

    with pytest.raises(TypeError, match="pipeline"):
        Nameless()
