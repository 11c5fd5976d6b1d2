"""What ``rtlstm accuracy`` promises, and what following it gives on other data."""

from dataclasses import replace

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.small_builds import network as small_network

from rtlstm.bench.accuracy import halves, main, measure_advice
from rtlstm.bench.cases import CASES, Case
from rtlstm.gen.frontends.reading import ModelReport, ReadResult
from rtlstm.spec.network import Network
from rtlstm.zoo.entry import Metric, Subject

TYPICAL = 30


def drawn(network: Network, sequences: int) -> Subject:
    """Sequences that wander, or a single one."""
    rng = np.random.default_rng(5)
    steps = 20 if sequences > 1 else 1200
    x = rng.normal(size=(steps, sequences, network.inputs))
    for step in range(1, steps):
        x[step] += 0.9 * x[step - 1]
    report = ModelReport.model_construct(batch_first=False)
    model = ReadResult.model_construct(network=network, report=report, embeddings=(), initial_state=None)
    lengths = rng.integers(5, steps, sequences) if sequences > 1 else None
    return Subject(model, x, TYPICAL if sequences > 1 else 480, lambda y, begin: 0.0, lengths)


def test_halves_have_other_data() -> None:
    for sequences in (1, 90):
        subject = drawn(small_network(), sequences)
        one, other = halves(subject)
        count = 12 if sequences == 1 else 30
        assert one.x.shape[1] == other.x.shape[1] == count
        first = subject.x[480:510, 0] if sequences == 1 else subject.x[:, TYPICAL]
        kept = slice(one.lengths[0])
        np.testing.assert_array_equal(one.x[kept, 0], first[kept])
        assert one.state is None


def test_halves_begin_in_the_states_that_are_given() -> None:
    begin = (np.arange(90.0)[:, None] * np.ones(4),)
    one, other = halves(replace(drawn(small_network(), 90), state=(begin, begin)))
    assert one.state is not None and other.state is not None
    for part in (0, 1):
        np.testing.assert_array_equal(one.state[part][0][:, 0], np.arange(TYPICAL, 90, 2))
        np.testing.assert_array_equal(other.state[part][0][:, 0], np.arange(TYPICAL + 1, 90, 2))


@pytest.mark.parametrize("name, sequences, widths", [("lstm", 430, (4, 8)), ("gru", 430, (8, 8))])
def test_what_is_promised_holds_on_other_data(name: str, sequences: int, widths: tuple[int, int]) -> None:
    network = small_network() if name == "lstm" else CELL_NETWORKS["gru"]
    case = Case(name, "drawn", Metric("none", 0.0), lambda _: drawn(network, sequences))
    found = measure_advice(case, case.load(None), *widths)
    assert found.advice is not None and found.advice.rms_error < 0.95 * found.now
    assert abs(found.ratio - 1) < 0.1 and found.uncertainty is not None and found.uncertainty < 0.05


def test_rows_are_printed(capsys, monkeypatch) -> None:
    case = Case("tiny", "drawn", Metric("none", 0.0), lambda _: drawn(small_network(), 50))
    monkeypatch.setitem(CASES, "tiny", case)
    main(["tiny", "--widths", "6/8"])
    _, row = capsys.readouterr().out.splitlines()
    fields = row.split(" | ")
    assert fields[0] == "tiny 6/8" and len(fields) == 9


@pytest.mark.slow
def test_advice_of_published_networks_holds() -> None:
    """Networks with many data."""
    for name in ("digits", "flashvad"):
        case = CASES[name]
        subject = case.load(None)
        for widths in ((4, 8), (8, 8)):
            assert abs(measure_advice(case, subject, *widths).ratio - 1) < 0.1
