"""Device families are found by name, wherever they come from."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from support.packages import install

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


def test_a_shorter_pipeline_has_a_name(deep: Family, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Deep, "shorter", {"short": {"operand": 3, "cell": 4}})
    usual, short = deep.pipelines().items()
    assert usual == ("default", Deep.pipeline)
    # Registers are never added: the default has three of the cell.
    assert short == ("short", Deep.pipeline.replace(operand=3))
    made = Parameters.for_family("deep", pipeline_name="short")
    assert (made.pipeline, made.pipeline_name) == (short[1], "short")
    assert made.replace(pipeline=Pipeline(operand=2)).pipeline_name == "own"


def test_every_pipeline_is_found_by_its_name():
    for name, family in FAMILIES.items():
        for tables, lut_macs, bits in product(("interpolated", "direct"), (0, 1), (4, 8, 12, 18)):
            sizes = {"tables": tables, "lut_macs": lut_macs}
            first, *others = family.pipelines(bits if lut_macs else 0, tables == "direct")
            usual = Parameters.for_family(name, bits, **sizes)
            assert (first, usual.pipeline_name) == ("default", "default")
            for other in others:
                made = Parameters.for_family(name, bits, other, **sizes)
                assert made.pipeline_name == other
                registers = made.pipeline.model_dump(exclude={"adder_terms", "copies"}).items()
                assert all(value <= getattr(usual.pipeline, stage) for stage, value in registers)
                assert made.pipeline.adder_terms >= usual.pipeline.adder_terms
                assert made.pipeline.copies >= usual.pipeline.copies


def test_copies_need_registers_before_the_sum():
    """The drain, which then begins a cycle earlier, must know of a word by then."""
    with pytest.raises(ConfigurationError, match=r"copies \(1\) need operand \(2\) and multiplier \(1\)"):
        Pipeline(operand=2, multiplier=1, copies=1)
    assert Pipeline(operand=2, multiplier=1, copies=2).copies == 2, "copies of lanes are one more"


def test_copies_of_lanes_take_a_cycle_and_those_of_units_none():
    summed = [Parameters(macs=4, pipeline=Pipeline(copies=copies)).summed for copies in range(3)]
    assert summed == [summed[0], summed[0], summed[0] + 1]


def test_every_family_is_found_by_its_own_name():
    assert {"ecp5", "generic", "gowin", "ice40", "intel", "nexus", "ultrascale", "xilinx"} <= set(FAMILIES)
    for name, family in FAMILIES.items():
        assert family.name == name


def test_a_family_has_the_name_that_it_is_offered_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(
        ConfigurationError, match="family 'flat' must have that name, too, but its name is 'deep'"
    ):
        FAMILIES.add("flat", Deep())
    assert "flat" not in FAMILIES
    install(tmp_path, "flats", "[rtlstm.families]\nflat = rtlstm.fpga.families.ecp5:ECP5\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="'flat' of flats 1.0, .* but its name is 'ecp5'; use one"):
        Parameters.for_family("flat")


@pytest.mark.parametrize("use", [FAMILIES.named, Parameters.for_family, lambda name: Parameters(family=name)])
def test_unknown_family_is_refused_with_those_there_are(use):
    with pytest.raises(
        ConfigurationError,
        match="must be one of ecp5, generic, gowin, ice40, intel, nexus, ultrascale, xilinx, not 'ecp6'",
    ):
        use("ecp6")


def test_direct_tables_need_one_stage_to_shift():
    assert [FAMILIES.named("ecp5").pipeline_for(0, direct).narrow for direct in (False, True)] == [3, 2]


def test_slopes_of_luts_have_a_register_inside():
    hard, soft = (Parameters.for_family("ice40", slope_multipliers=kind) for kind in ("dsp", "lut"))
    assert (hard.pipeline.slope, soft.pipeline.slope) == (1, 2)
    assert soft.pipeline_name == "default" and soft.activation == hard.activation + 1
    direct = Parameters.for_family("ice40", slope_multipliers="lut", tables="direct")
    assert direct.pipeline == hard.pipeline


def test_a_family_without_a_pipeline_is_none():
    class Nameless(Family):
        name = "nameless"

    with pytest.raises(TypeError, match="pipeline"):
        Nameless()
