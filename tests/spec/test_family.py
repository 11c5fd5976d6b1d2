"""Device families are found by name, wherever they come from."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from rtlstm.spec import family as registry
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import Family, Pipeline, add_family, family_names, find_family, remove_family
from rtlstm.spec.parameters import Parameters


class Deep(Family):
    name = "deep"
    pipeline = Pipeline(operand=4, multiplier=3, tree_levels=1)


@pytest.fixture
def deep() -> Iterator[Family]:
    added = Deep()
    add_family(added)
    yield added
    remove_family("deep")


def test_added_family_is_found(deep: Family):
    assert find_family("deep") is deep and "deep" in family_names()
    assert Parameters.for_family("deep", lanes=8).pipeline == Deep.pipeline


def test_names_are_told_apart(deep: Family):
    with pytest.raises(ConfigurationError, match="name of its own, but there is a family deep already"):
        add_family(Deep())
    with pytest.raises(ConfigurationError, match="only families that add_family has added"):
        remove_family("ecp5")


@pytest.mark.parametrize("use", [find_family, Parameters.for_family, lambda name: Parameters(family=name)])
def test_unknown_family_is_refused_with_those_there_are(use):
    with pytest.raises(ConfigurationError, match=r"must be one of ecp5, generic, .*xilinx, not 'ecp6'"):
        use("ecp6")
    assert "deep" not in family_names()


@pytest.mark.parametrize("value", ["rtlstm.spec.family:Pipeline", "rtlstm.fpga.families.ecp5:Ecp5"])
def test_entry_point_must_give_a_family_of_its_name(value: str, monkeypatch: pytest.MonkeyPatch):
    point = EntryPoint("broken", value, registry.FAMILIES_GROUP)
    monkeypatch.setattr(registry, "_installed", lambda: {"broken": point})
    with pytest.raises(
        ConfigurationError, match="the entry point broken of rtlstm.families must give a Family"
    ):
        find_family("broken")


def test_installation_without_families_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_installed", dict)
    with pytest.raises(ConfigurationError, match="install rtlstm again"):
        find_family("ecp5")
