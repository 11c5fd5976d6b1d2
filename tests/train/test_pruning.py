"""Pruning by words of the array: what goes, what it saves, and that it stays gone."""

import numpy as np
import pytest
from support.lazy import torch, train

import rtlstm
from rtlstm.spec.errors import ConfigurationError

LANES, MACS, I, H = 16, 2, 8, 16  # noqa: E741
ARRAY = {"lanes": LANES, "macs": MACS}


@pytest.fixture
def q():
    torch.manual_seed(0)
    return train.prepare(torch.nn.LSTM(I, H), weight_bits=8, data_bits=8)


def zero_words(rows, groups):
    """How many words of each group are zero: ``rows`` gate by gate, in groups of whole units."""
    by_unit = rows.reshape(4, H, -1).swapaxes(0, 1).reshape(groups, LANES, -1, MACS)
    return (by_unit == 0).all(axis=(1, 3)).sum(axis=1)


def test_each_group_loses_its_share_and_the_smallest_words(q):
    groups = 4 * H // LANES
    before = q.cycles(**ARRAY)
    weights = q.weights.layers[0]["w_ih"].detach().clone().numpy()
    pruned = q.prune(0.5, **ARRAY)
    layer = q.quantised().layers[0]
    np.testing.assert_array_equal(zero_words(layer.w_ih, groups), [I // MACS // 2] * groups)
    np.testing.assert_array_equal(zero_words(layer.w_hh, groups), [H // MACS // 2] * groups)
    assert pruned.words == before.words == before.kept == groups * (I + H) // MACS
    assert pruned.kept == before.kept // 2
    assert pruned.cycles.array_cycles < before.cycles.array_cycles
    by_unit = weights.reshape(4, H, -1).swapaxes(0, 1).reshape(groups, LANES, -1, MACS)
    norms = np.square(by_unit).sum(axis=(1, 3))
    gone = (layer.w_ih.reshape(4, H, -1).swapaxes(0, 1).reshape(by_unit.shape) == 0).all(axis=(1, 3))
    for group in range(1, groups):
        assert norms[group][gone[group]].max() < norms[group][~gone[group]].min()


def test_weights_of_small_inputs_go_first():
    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(20, 6, I))
    x[:, :, ::4] *= 0.01
    x[:, :, 1::4] *= 0.01
    q = train.prepare(torch.nn.LSTM(I, H), calibration=x, weight_bits=8, data_bits=8)
    with torch.no_grad():
        q.weights.layers[0]["w_ih"][:, ::4] *= 2.0
    q.prune(0.5, **ARRAY)
    gone = (q.quantised().layers[0].w_ih == 0).all(axis=0)
    # The first group keeps its last word: here that of large inputs.
    np.testing.assert_array_equal(np.flatnonzero(gone), [0, 1, 4, 5])


def test_words_of_the_whole_network_go_by_what_they_change(q):
    """With one unit that the loss does not see, its words go first, and both products count together."""
    x = torch.randn(6, 5, I)
    with torch.no_grad():
        q.weights.layers[0]["w_hh"][:, 4:8] = 0.0  # Units 4 to 7 of group 1 act on nothing but themselves.
    y, _ = q(x)
    y[:, :, [unit for unit in range(H) if not 4 <= unit < 8]].square().sum().backward()
    pruned = q.prune(0.5, among="network", **ARRAY)
    assert pruned.kept <= pruned.words // 2
    layer, groups = q.quantised().layers[0], 4 * H // LANES
    gone = [zero_words(layer.w_ih, groups), zero_words(layer.w_hh, groups)]
    # A group keeps one word.
    assert (gone[0][1], gone[1][1]) == (I // MACS - 1, H // MACS - 1)
    assert sum(gone).sum() == pruned.words // 2 and len(set(gone[0])) > 1


def test_without_gradients_words_of_the_whole_network_cannot_go(q):
    with pytest.raises(ConfigurationError, match="train some updates before words go"):
        q.prune(0.5, among="network", **ARRAY)
    with pytest.raises(ConfigurationError, match="'group' or 'network', not 'layer'"):
        q.prune(0.5, among="layer", **ARRAY)


def test_limits_are_chosen_anew_for_weights_that_were_trained_in_float(q):
    with torch.no_grad():
        q.weights.layers[0]["w_ih"] *= 4.0
    saturated = q.rows[0](q.weights()[0])["w_in"]
    q.fit_limits()
    fitted, wanted = q.rows[0](q.weights()[0])["w_in"], q.weights.layers[0]["w_ih"]
    assert (fitted - wanted).square().sum() < 0.01 * (saturated - wanted).square().sum()


@pytest.mark.parametrize("normalised", [False, True])
def test_what_has_gone_does_not_come_back(normalised):
    torch.manual_seed(0)
    q = train.prepare(torch.nn.LSTM(I, H), weight_bits=8, data_bits=8, weight_normalisation=normalised)
    q.prune(0.25, **ARRAY)
    first = q.quantised().layers[0].w_ih == 0
    optimizer = torch.optim.SGD(q.parameters(), 10.0)
    q(torch.randn(5, 4, I))[0].square().sum().backward()
    optimizer.step()
    again = q.quantised().layers[0].w_ih == 0
    assert (again >= (first & (zero_rows(first)))).all()
    later = q.prune(0.5, **ARRAY)
    assert later.kept == later.words // 2


def zero_rows(mask):
    """Where whole words are zero."""
    by_unit = mask.reshape(4, H, -1).swapaxes(0, 1).reshape(-1, LANES, I // MACS, MACS)
    whole = np.broadcast_to(by_unit.all(axis=(1, 3), keepdims=True), by_unit.shape)
    return whole.reshape(H, 4, -1).swapaxes(0, 1).reshape(mask.shape)


@pytest.mark.slow
@pytest.mark.rtl
def test_a_build_skips_the_words_and_takes_the_cycles_that_were_shown(q, tmp_path):
    pruned = q.prune(0.5, **ARRAY)
    build = rtlstm.compile(q, folder=tmp_path / "build", skip_zeros=True, **ARRAY)
    assert build.report().cycles == pruned.cycles
    result = build.simulate(steps=12)
    assert result.output_different == result.state_different == result.cycles_different == 0


def test_checkpoints_keep_what_is_pruned(q):
    q.prune(0.5, **ARRAY)
    torch.manual_seed(0)
    again = train.prepare(torch.nn.LSTM(I, H), weight_bits=8, data_bits=8)
    again.load_state_dict(q.state_dict())
    assert again.cycles(**ARRAY) == q.cycles(**ARRAY)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_bad_shares_are_said(q, share):
    with pytest.raises(ConfigurationError, match="0 or more and below 1"):
        q.prune(share, **ARRAY)
