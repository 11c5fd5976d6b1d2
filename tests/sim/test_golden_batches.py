"""The golden device computes the streams of an exchange together, with the bits of one after the other."""

from pathlib import Path

import numpy as np
import pytest
from support.no_logic import no_logic
from support.random_sequences import random_dense, random_lstm

from rtlstm import Accelerator, Bidirectional, InputError, Network, Parameters, QuantizationSettings
from rtlstm.gen.builds.generate import generate_build
from rtlstm.sim.golden import Golden, GoldenResult, GoldenState
from rtlstm.sim.golden_device import GoldenDevice
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.registers import Register

STREAMS, INPUTS = 6, 3
COUNTERS = (Register.STEPS, Register.LATENCY, Register.CYCLES, Register.CELL_SATURATIONS)


def make_network(both: bool) -> Network:
    rng = np.random.default_rng(7)
    forward, dense = random_lstm(rng, INPUTS, 4), random_dense(rng, 8 if both else 4, 2)
    if not both:
        return Network(layers=(forward, dense))
    backward = random_lstm(rng, INPUTS, 4, reverse=True)
    return Network(layers=(Bidirectional(forward=forward, backward=backward), dense))


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build that takes whole sequences, or steps."""
    folder = tmp_path_factory.mktemp("build") / "b"
    parameters = Parameters(lanes=4, macs=2, streams=STREAMS, max_steps=20)
    # c is limited now and then.
    settings = QuantizationSettings(cell_range=0.5)
    with no_logic():
        network = make_network(request.param)
        generate_build(network, folder, name="batches", parameters=parameters, settings=settings)
    return folder


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Steps and sequences of each batch that the golden model is given."""
    seen: list[tuple[int, int]] = []
    run = Golden.run

    def watched(self: Golden, x: IntArray, state: GoldenState, lengths: IntArray | None) -> GoldenResult:
        seen.append(x.shape[:2])
        return run(self, x, state, lengths)

    monkeypatch.setattr(Golden, "run", watched)
    return seen


def play(folder: Path, parts: list[tuple[IntArray, IntArray, IntArray | None]]) -> list[object]:
    """Outputs, states and counters of exchanges."""
    with Accelerator.open(folder) as accelerator:
        device = accelerator.device.transport
        y = np.concatenate([device.exchange(streams, x, None, ends) for streams, x, ends in parts])
        states = [accelerator.device.read_state(stream) for stream in range(STREAMS)]
        words = [one.tolist() for h, c in states for one in (*h, *c)]
        return [y.tolist(), words, *(int(device.read(register)[0]) for register in COUNTERS)]


@pytest.mark.parametrize("folder", [True], indirect=True)
def test_whole_sequences(folder: Path, batches: list[tuple[int, int]]) -> None:
    """Streams in any order and more than once; a state goes on to the stream's next sequence."""
    owners = np.array([4, 0, 2, 0, 5, 1, 4, 3])
    lengths = np.array([9, 12, 20, 3, 11, 2, 20, 10])
    streams = np.repeat(owners, lengths)
    x = np.random.default_rng(1).integers(-32768, 32768, (lengths.sum(), INPUTS))
    ends = np.zeros(len(streams), dtype=bool)
    ends[np.cumsum(lengths) - 1] = True
    cuts = np.cumsum(lengths)[:-1]
    alone = play(folder, list(zip(*(np.split(part, cuts) for part in (streams, x, ends)), strict=True)))
    assert batches == [(length, 1) for length in lengths]
    batches.clear()
    together = play(folder, [(streams, x, ends)])
    # No sequence is in a batch more than twice as long; the second ones of streams 0 and 4 come after.
    assert batches == [(20, 4), (9, 1), (2, 1), (20, 1), (3, 1)]
    assert together == alone
    assert together[-1] > 0, "the case must limit c"


@pytest.mark.parametrize("folder", [False], indirect=True)
def test_steps_of_unlike_numbers(folder: Path, batches: list[tuple[int, int]]) -> None:
    """Interleaved steps; each stream has another number of them."""
    rng = np.random.default_rng(2)
    streams = rng.permutation(np.repeat(np.arange(STREAMS), [15, 14, 13, 12, 11, 10]))
    x = rng.integers(-32768, 32768, (len(streams), INPUTS))
    alone = play(folder, [(streams[at : at + 1], x[at : at + 1], None) for at in range(len(streams))])
    assert batches == []
    together = play(folder, [(streams, x, None)])
    assert batches == [(15, STREAMS)]
    # Steps that are sent together wait for each other.
    latency = 2 + COUNTERS.index(Register.LATENCY)
    assert together.pop(latency) > alone.pop(latency) and together == alone
    assert together[-1] > 0, "the case must limit c"


@pytest.mark.parametrize("folder", [True], indirect=True)
def test_no_sequence_is_computed_if_a_stream_is_not_there(folder: Path) -> None:
    with Accelerator.open(folder) as accelerator:
        device = accelerator.device.transport
        assert isinstance(device, GoldenDevice)
        with pytest.raises(InputError, match=r"streams must be within 0 to 5, but streams\[1\] is 6"):
            device.exchange(np.array([0, 6]), np.ones((2, INPUTS), dtype=np.int64), None, np.ones(2, bool))
        assert device.read(Register.STEPS)[0] == 0
