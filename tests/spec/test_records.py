"""Network, program and manifest: JSON round trips, validation, layout."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.random_builds import random_case, random_network

from rtlstm import BuildError, CellBuilder, ConfigurationError, Custom, Dense, Lstm, Manifest, Network
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import SIGMOID
from rtlstm.spec.family import FAMILIES
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.registers import Register


def lstm(inputs: int = 3, units: int = 2, **changes: object) -> Lstm:
    fields = {
        "w_ih": np.ones((4 * units, inputs)),
        "w_hh": np.ones((4 * units, units)),
        "bias": np.ones(4 * units),
    }
    return Lstm(**(fields | changes))


@pytest.mark.parametrize("seed", range(5))
def test_network_json_round_trip(seed: int) -> None:
    network = random_network(np.random.default_rng(seed))
    again = Network.model_validate_json(network.model_dump_json())
    assert again.model_dump() == network.model_dump()
    for first, second in zip(network.layers, again.layers, strict=True):
        if isinstance(first, Lstm):
            np.testing.assert_array_equal(first.w_ih, second.w_ih)


@pytest.mark.parametrize("seed", range(10))
def test_manifest_round_trip(seed: int, tmp_path: Path) -> None:
    manifest = random_case(seed).manifest
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    assert Manifest.load(tmp_path) == manifest


TWO = (lstm(), Dense(weight=np.ones((2, 3)), bias=np.ones(2)))


@pytest.mark.parametrize(
    ("record", "fields", "message"),
    [
        (lstm, {"w_ih": np.ones((7, 3))}, "w_ih must be"),
        (lstm, {"w_hh": np.ones((8, 3))}, "w_hh must have shape"),
        (lstm, {"bias": np.ones(7)}, "bias must have shape"),
        (lstm, {"w_ih": np.full((8, 3), np.inf)}, "24 of 24 are NaN or infinite"),
        (lstm, {"extra": 1}, "Extra inputs"),
        (Network, {"layers": ()}, "must have a layer"),
        (Network, {"layers": TWO}, "reads 3 values"),
        (Parameters, {"lanes": 6}, "`lanes` must be a multiple of 4 .* not 6; try 8"),
        (Parameters, {"lanes": 0}, "lanes"),
        (Parameters, {"macs": 0}, "macs"),
        (Parameters, {"macs": 6, "beat_in": 4}, r"`beat_in` \(4\) must divide `macs` \(6\)"),
        (Parameters, {"streams": 0}, "streams"),
        (
            Parameters,
            {"lanes": 8, "lut_lanes": 8},
            r"`lut_lanes` must be less than `lanes` \(8\), not 8; .* try `multipliers=1`",
        ),
        (
            Parameters,
            {"macs": 2, "lut_macs": 2, "lut_lanes": 1},
            "`lut_lanes` must be 0 .* not 1; .* `multipliers=1`",
        ),
    ],
)
def test_bad_records_are_refused(record: Callable[..., object], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        record(**fields)


def test_families_choose_the_pipeline() -> None:
    for name, family in FAMILIES.items():
        assert family.name == name
        assert Parameters.for_family(name).pipeline == family.pipeline
    ecp5 = FAMILIES.named("ecp5").pipeline
    assert Parameters.for_family("ecp5", tables="direct").pipeline == ecp5.replace(narrow=2)
    assert Parameters.for_family("ecp5", lut_macs=1).pipeline == ecp5.replace(multiplier=3)
    assert Parameters.for_family("ecp5", 9, lut_macs=1).pipeline == ecp5.replace(multiplier=3)
    assert Parameters.for_family("ecp5", 8, lut_macs=1).pipeline == ecp5
    # Lanes without a multiplier of LUTs take as long as those with one.
    for bits in (8, 9):
        mixed = Parameters.for_family("ecp5", bits, lut_lanes=1)
        assert mixed.pipeline == Parameters.for_family("ecp5", bits, lut_macs=1).pipeline
        assert mixed.pipeline_name == "default"
    assert Parameters.for_family("ice40", tables="direct").pipeline == FAMILIES.named("ice40").pipeline


@pytest.mark.parametrize("seed", range(20))
def test_program_layout_has_no_overlap(seed: int) -> None:
    """Weights, shifts and partial sums of different operations occupy different rows."""
    program = random_case(seed).manifest.program
    # The operations that go ahead use the rows of the others again.
    ops = program.ops[: program.prefetch]
    again = {(op.weights, op.shifts) for op in program.ops[program.prefetch :]}
    assert again <= {(op.weights, op.shifts) for op in ops}
    weights = [(op.weights, op.groups * op.columns) for op in ops]
    count = [sum(op.drain_beats for _ in range(op.groups - 1)) + op.last_drain_beats for op in ops]
    shifts = [(op.shifts, drain_beats) for op, drain_beats in zip(ops, count, strict=True)]
    for rows, total in ((weights, program.weight_rows), (shifts, program.shift_rows)):
        used = sorted(rows)
        assert used[0][0] == 0
        for (first, size), (following, _) in pairwise(used):
            assert first + size == following
        assert sum(used[-1]) == total


def _change(manifest: Manifest, **changes: object) -> str:
    return json.dumps(json.loads(manifest.to_json()) | changes)


def test_bad_manifests_are_refused(tmp_path: Path) -> None:
    manifest = random_case(3).manifest
    path = tmp_path / "manifest.json"
    with pytest.raises(BuildError, match="has no manifest.json"):
        Manifest.load(tmp_path)
    for text, message in (
        ("{", "cannot be read as JSON"),
        ("[]", "schema version None"),
        (_change(manifest, schema_version=6), "schema version 6, but this rtlstm reads version 1"),
        (_change(manifest, name="1x"), "name"),
        (_change(manifest, name="other"), "was changed after it was generated"),
    ):
        path.write_text(text)
        with pytest.raises(BuildError, match=message):
            Manifest.load(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(BuildError, match=r"manifest.json cannot be read: it is a folder, not a file; the"):
        Manifest.load(tmp_path)


def test_a_cell_that_does_not_read_h_needs_no_recurrent_weights():
    """Rows stand gate by gate: row ``k * units + u`` is gate k of unit u."""
    cell = CellBuilder()
    share, new = cell.apply(SIGMOID, cell.gate(0)), cell.gate(1) * cell.parameter(0)
    built = cell.build("filter", cell.keep(cell.state() + share * (new - cell.state())))
    w_ih = np.zeros((2 * 3, 1))
    w_ih[1 * 3 + 2] = 1.0  # gate 1 of unit 2
    given = {"cell": built, "w_ih": w_ih, "bias": np.zeros(6), "parameters": np.array([[1.0], [1.0], [0.5]])}
    layer = Custom(w_hh=None, **given)
    assert layer.w_hh.shape == (6, 3) and not layer.w_hh.any()
    y = run_float(Network(layers=(layer,)), np.ones((1, 1, 1))).y[0, 0]
    np.testing.assert_allclose(y, [0.0, 0.0, 0.25])
    with pytest.raises(ConfigurationError, match="w_hh"):
        Custom(**given)
    with pytest.raises(ConfigurationError, match=r"parameters must .*\(3, 1\)"):
        Custom(w_hh=None, **{**given, "parameters": np.ones((1, 3))})


def test_build_is_the_beginning_of_the_hash_as_one_number():
    manifest = random_case(2).manifest
    assert f"{manifest.constants[Register.BUILD]:08x}" == manifest.device_hash[:8]
