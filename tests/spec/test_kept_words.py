"""Words that are zero in a whole row group: which are kept, their order in memory, and what is refused."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loadable_builds import make_device, stacked
from support.pruned_builds import everything, prune, skipping, with_kept
from support.small_builds import NARROW

from rtlstm import BuildError, ConfigurationError, ImageError, Manifest, Parameters
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.hdl.core.program_store import program_store
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import check_image, find_kept, pack, unpack
from rtlstm.spec.program.fields import issue_fields, kept_words
from rtlstm.spec.program.passes import keep

SIZES = Parameters(lanes=8, macs=2, streams=2)


def network() -> QuantizedNetwork:
    """Two LSTM layers and a head of two row groups."""
    return quantise(stacked(5, 7, 6, dense=((9, "identity"),)), NARROW)


def pruned(seed: int = 1) -> tuple[QuantizedNetwork, Manifest, Manifest]:
    """A network with words of zeros, its plain manifest and the one that skips them."""
    found = prune(np.random.default_rng(seed), network(), SIZES)
    plain = Manifest.of("dut", found, SIZES)
    return found, plain, skipping(found, plain)


@st.composite
def masks(draw: st.DrawFn) -> list[list[bool]]:
    columns = draw(st.integers(1, 9))
    return draw(st.lists(st.lists(st.booleans(), min_size=columns, max_size=columns), min_size=1, max_size=6))


@given(masks())
def test_what_is_kept(needed: Sequence[Sequence[bool]]) -> None:
    groups = keep(needed)
    for number, (words, mask) in enumerate(zip(groups, needed, strict=True)):
        wanted = {word for word, needs in enumerate(mask) if needs}
        assert list(words) == sorted(set(words)) and wanted <= set(words)
        more = set(words) - wanted
        # One word of the first group, and one where there would be none.
        assert more <= ({len(mask) - 1} if number == 0 else {0})
        assert not more or number == 0 or not wanted
    assert groups[0][-1] == len(needed[0]) - 1


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_the_table_of_rows(seed: int) -> None:
    """Each row of weights is a word of one product: those of a group in order, the last one marked."""
    _, plain, found = pruned(seed)
    program = found.program
    table = kept_words(program)
    assert len(table) == program.weight_rows < plain.program.weight_rows
    used = np.zeros(len(table), dtype=int)
    for op in program.ops[: program.prefetch]:
        rows = slice(op.weights, op.weights + op.words)
        used[rows] += 1
        mine = table[rows]
        groups, group = [], []
        for word, ends in mine:
            group.append(word)
            if ends:
                groups.append(tuple(group))
                group = []
        assert not group and tuple(groups) == tuple(map(tuple, op.group_words))
    assert (used == 1).all()
    fields = issue_fields(program)
    for index, op in enumerate(program.ops):
        assert fields["first_word"][index] == table[op.weights][0]
        assert fields["single"][index] == int(len(op.group_words[0]) == 1)
        if op.words > 1:
            second = fields["second_word"][index], bool(fields["second_ends"][index])
            assert second == table[op.weights + 1]


def test_kept_words_are_all_that_count() -> None:
    """The image of the kept words alone holds the whole network; it is as long as the program says."""
    found, plain, manifest = pruned()
    assert manifest.program.kept.keys() == find_kept(found, plain).keys() != set()
    back = check_image(pack(found, manifest), manifest)
    for one, other in zip(back.layers, unpack(pack(found, plain), plain).layers, strict=True):
        for name, values in vars(one).items():
            np.testing.assert_array_equal(values, getattr(other, name))
    assert manifest.build_hash != plain.build_hash
    cycles, before = manifest.cycles, plain.cycles
    assert cycles.array_cycles < before.array_cycles and cycles.recurrent_cycles < before.recurrent_cycles
    assert cycles.step_latency_cycles < before.step_latency_cycles


def test_builds_that_skip_nothing_are_what_they_were() -> None:
    _, plain, found = pruned()
    assert all(op.kept is None for op in plain.program.ops)
    fields, more = program_store(plain).issued(), program_store(found).issued()
    assert not fields.skip and more.skip
    added = {"first_word", "second_word", "second_ends", "third_row"}
    assert more.widths.keys() - fields.widths.keys() == added
    # Nothing is found in weights without such words; a table of all words changes no cycle.
    full = network()
    manifest = Manifest.of("dut", full, SIZES)
    assert find_kept(full, manifest) == {}
    assert with_kept(manifest, {}).to_json() == manifest.to_json()
    assert with_kept(manifest, everything(manifest)).cycles == manifest.cycles


def test_weights_that_are_not_zero_are_refused() -> None:
    _, _, manifest = pruned()
    with pytest.raises(
        ImageError,
        match=r"where build 'dut' skips their words, but \d+ of layer 'lstm0' for h are not, the first of "
        r"them of row group \d+ and columns \d+ to \d+; keep these weights at zero when you train, or ",
    ):
        pack(network(), manifest)


def test_a_loadable_program_is_refused() -> None:
    device = make_device(stacked(3, 5), Parameters(lanes=4, macs=2))
    kept = {(0, False): ((1,), *((0, 1),) * 4)}
    with pytest.raises(ConfigurationError, match="a loadable program cannot skip words"):
        with_kept(device.manifest, kept)


@pytest.mark.parametrize(
    "first",
    [(), (0,), (2, 1), (1, 3), (-1, 2), (1, 1, 2)],
    ids=["empty", "without the last", "order", "beyond", "below", "twice"],
)
def test_a_table_that_fits_no_program(first: tuple[int, ...]) -> None:
    plain = pruned()[1]
    with pytest.raises(ConfigurationError, match="the kept words of layer 'lstm0' must be those of 4 groups"):
        with_kept(plain, {(0, False): (first, (0,), (0,), (0,))})


def test_a_changed_table_is_refused(tmp_path: Path) -> None:
    manifest = pruned()[2]
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    assert Manifest.load(tmp_path).program == manifest.program
    fields = json.loads(manifest.to_json())
    op = next(op for op in fields["program"]["ops"] if "kept" in op)
    op["kept"][-1] = [*range(op["columns"])]
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(BuildError, match="was changed after it was generated"):
        Manifest.load(tmp_path)
    del op["kept"]
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(BuildError, match="was changed after it was generated"):
        Manifest.load(tmp_path)
