"""Limits, what rules all out, the front, and numbers as they are typed."""

import itertools
from typing import Any

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.explored import point
from support.small_builds import network

from rtlstm.explore.metrics import (
    Metric,
    costs,
    figures,
    find_metric,
    pareto_front,
    parse_limit,
    rank,
    ruled_out,
)
from rtlstm.explore.search import find_shapes
from rtlstm.explore.space import Space, find_devices, parse_numbers
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Bidirectional, Network

ERROR = find_metric("error")
KNOWN = figures(ERROR) | figures(find_metric("accuracy")) | figures(Metric("mine:F1_score", max))


@pytest.mark.parametrize(
    "text, value",
    [
        ("latency<=2us", 2.0),
        (" LATENCY <= 2000 ns ", 2.0),
        ("interval<=1e-1ms", 100.0),
        ("clock>=50MHz", 50.0),
        ("share<=80%", 80.0),
        ("energy<=0.05uJ", 50.0),
        ("luts<=5000", 5000.0),
        ("accuracy>=0.9", 0.9),
        ("accuracy >= 85 %", 0.85),
        ("F1_score <= -0.5", -0.5),
    ],
)
def test_limits_are_read(text: str, value: float):
    assert parse_limit(text, KNOWN).bound == pytest.approx(value)


@pytest.mark.parametrize(
    "text, words",
    [
        ("latency<2us", "must be NAME<=NUMBER"),
        ("latency", "must be NAME<=NUMBER"),
        ("latency<=fast", "must be NAME<=NUMBER"),
        ("latency<=1.2.3us", "must be NAME<=NUMBER"),
        ("latency<=2", "must have a unit, one of ns, us, ms, not 'latency<=2'; try latency<=2us"),
        ("latency<=2%", "must have a unit, one of ns, us, ms"),
        ("luts<=5k", "must have no unit, not 'luts<=5k'; try luts<=5000"),
        ("error<=1%", "must have no unit, not 'error<=1%'; try error<=0.01"),
        ("power<=2W", "must be on one of latency, interval, clock"),
        ("latency>=2us", "better if it is smaller, so its limit is <="),
        ("accuracy>=85", "is a share, so its limit must be from 0 to 1, or from 0% to 100%"),
        ("accuracy<=0.9", "better if it is larger, so its limit is >="),
    ],
)
def test_wrong_limits_are_refused(text: str, words: str):
    with pytest.raises(ConfigurationError) as refused:
        parse_limit(text, KNOWN)
    assert words in str(refused.value)


def limits(*texts: str):
    return [parse_limit(text, KNOWN) for text in texts]


POINTS = [point(1.0, 100, 0.1), point(4.0, 20, 0.1), point(4.0, 80, 0.01)]


def test_what_rules_all_out_and_by_how_much():
    assert ruled_out(POINTS, limits("latency<=1us", "luts<=100")) == ()
    (alone,) = ruled_out(POINTS, limits("latency<=0.5us", "luts<=100"))
    assert "latency<=0.5us: no build that was tried has it; the best is 1 us, off by 100 % of it" in alone
    both = ruled_out(POINTS, limits("latency<=1us", "luts<=50"))
    assert both == (
        "latency<=1us: builds that meet the other limits miss it; the best is 4 us, 4 times the limit",
        "luts<=50: builds that meet the other limits miss it; the best is 100, off by 100 % of it",
    )
    assert ruled_out(POINTS, limits("latency<=1us", "luts<=50", "error<=0.01"))
    assert ruled_out(POINTS, limits("error<=0"))[0].endswith("the best is 0.01")


def test_front_is_what_no_other_on_its_device_beats():
    every = [
        point(latency, luts, error, device)
        for latency, luts, error, device in itertools.product(
            (1.0, 2.0, 3.0), (10, 20), (0.1, 0.2), ("a", "b")
        )
        if latency * luts * error > 2.5
    ]
    front = pareto_front(every, ERROR)
    for one in every:
        mine = costs(one, ERROR)
        beaten = any(
            other.choice.device == one.choice.device
            and costs(other, ERROR) != mine
            and all(left <= right for left, right in zip(costs(other, ERROR), mine, strict=True))
            for other in every
        )
        assert (one in front) == (not beaten)
    assert {each.choice.device for each in front} == {"a", "b"}
    # Of equal points one stays.
    assert pareto_front([POINTS[0], POINTS[0]], ERROR) == [POINTS[0]]


def test_goals_rank():
    assert [rank(POINTS, goal, ERROR)[0] for goal in ("latency", "area", "accuracy")] == POINTS
    energies = [each.replace(energy_nj=energy) for each, energy in zip(POINTS, (9.0, 8.0, 7.0), strict=True)]
    assert rank(energies, "energy", ERROR) == energies[::-1]
    # What takes the least energy is not beaten by what is as good in all else.
    frugal = POINTS[0].replace(energy_nj=1.0)
    assert pareto_front([POINTS[0].replace(energy_nj=2.0), frugal], ERROR) == [frugal]


def test_numbers_are_read():
    assert parse_numbers("weight_bits", "4") == (4,)
    assert parse_numbers("weight_bits", "8, 4:6,4") == (4, 5, 6, 8)
    assert parse_numbers("lanes", "4,8") == (4, 8)


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("weight_bits", "4-8", "must be numbers, such as 8 or 4,8,16 or 4:16"),
        ("weight_bits", "8:4", "must be numbers"),
        ("weight_bits", "1:8", "`weight_bits` must be greater than or equal to 2, not 1"),
        ("data_bits", "8:99", "`data_bits` must be less than or equal to 18, not 99"),
        ("lanes", "4:8", "must be multiples of 4"),
        ("hidden_bits", "9:19", "`hidden_bits` must be less than or equal to 18, not 19"),
        ("lane_sums", "2,8", "`lane_sums` must be greater than or equal to 4, not 2"),
    ],
)
def test_wrong_numbers_are_refused(name: str, text: str, words: str):
    with pytest.raises(ConfigurationError) as refused:
        parse_numbers(name, text)
    assert words in str(refused.value)


SPACE = Space(
    device=("up5k", "hx8k"),
    tables=("interpolated", "direct"),
    weight_bits=(4, 8),
    data_bits=(8, 10, 14),
    gate_bits=(8, 12, 16),
    cell_bits=(12,),
    hidden_rounding=("half_up", "odd"),
    lanes=(None, 4),
    macs=(1, 2),
)
# Data of 8, 10 and 14 bits with gates of as many: 3 + 2 + 1, and direct tables of the first two.
SIZE = 2 * 2 * (6 + 5) * 2 * 3
MORE: dict[str, Any] = {"hidden_bits": (None, 9, 16), "lane_sums": (None, 16), "wave_front": (False, True)}
"""With 9 bits of h beside 8 of data two gates and both tables; with 16 one, beside each of data. Kept sums
and a wave-front are three: none, one or the other."""


@pytest.mark.parametrize("more, size", [({}, SIZE), (MORE, 3 * 2 * 2 * 2 * 3 * (6 + 5 + 2 * 2 + 3))])
def test_each_choice_is_there_once_and_can_be_built(more: dict[str, Any], size: int):
    space = SPACE.replace(**more)
    found = [space.choice(indices) for indices in space.all_indices()]
    assert len({each.key for each in found}) == len(found) == space.size == size
    assert all(each.gate_bits >= max(each.data_bits, each.hidden_bits or 0) for each in found)
    assert all(each.settings and each.request for each in found)
    every = itertools.product(*(range(len(values)) for values in space.dimensions.values()))
    names = list(space.dimensions)
    assert {space.choice(dict(zip(names, each, strict=True))).key for each in every} == {
        each.key for each in found
    }


@pytest.mark.parametrize("lanes, macs", [(None, (1,)), ((4,), None), ((4,), (1,))])
def test_given_arrays_are_kept(lanes, macs):
    shapes = quantise(network()).shapes
    numbers: dict[str, Any] = dict.fromkeys(("weight_bits", "data_bits", "gate_bits", "cell_bits"), (8,))
    numbers |= {"tables": ("direct",), "hidden_rounding": ("half_up",)}
    space = Space.of(shapes, lanes=lanes, macs=macs, device=("up5k",), **numbers)
    found = [space.choice(indices) for indices in space.all_indices()]
    assert {each.macs for each in found} == set(macs or space.macs)
    assert {each.lanes for each in found} == set(lanes or space.lanes) and None not in space.lanes


def test_networks_whose_h_has_no_odd_codes_are_refused():
    """Before the search: else half of it would be spent on what cannot be built."""
    assert find_shapes(network(), ("half_up", "odd")) == find_shapes(network())
    with pytest.raises(ConfigurationError, match="odd.* needs LSTM layers without peepholes"):
        find_shapes(CELL_NETWORKS["gru"], ("half_up", "odd"))


def test_networks_without_a_wave_front_are_refused():
    first, last = network().layers
    both = Bidirectional(forward=first, backward=first.replace(reverse=True))
    dense = last.replace(weight=np.ones((first.inputs, 2)), bias=np.zeros(first.inputs))
    for layers, words in (
        ((both,), "`wave_front` is for steps"),
        ((dense, first), "a recurrent layer first"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            find_shapes(Network(layers=layers), max_steps=8, wave_front=True)
    assert find_shapes(network(), wave_front=True) == find_shapes(network())


def test_devices_have_estimates():
    assert find_devices("up5k,lfe5u-25f-8,up5k") == ("up5k", "lfe5u-25f-8")
    with pytest.raises(ConfigurationError, match="near names"):
        find_devices("lfe5u-26f")
    with pytest.raises(ConfigurationError, match="needs estimates"):
        find_devices("5cseba6")
    assert find_devices("up5k,xc7a35t", 200) == ("up5k", "xc7a35t")


def test_limit_on_the_metric_by_that_word():
    metric = find_metric("accuracy")
    assert parse_limit("metric>=90%", figures(metric)).figure == figures(metric)["accuracy"]


def test_metrics_have_names():
    with pytest.raises(ConfigurationError, match="because latency is a figure already; rename"):
        figures(Metric("mine:latency", max))
    with pytest.raises(ConfigurationError, match="one of error, max-error, agreement, accuracy"):
        find_metric("f1")
    with pytest.raises(ConfigurationError, match="cannot be imported"):
        find_metric("no_such_module:score")
