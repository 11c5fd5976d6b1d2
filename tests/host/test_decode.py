"""Greedy decoding: what is decided of a step is the next step's token."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.example_file import load_example
from support.no_logic import logic_for, no_logic
from support.quick import quick
from support.small_builds import normal_lstm

import rtlstm
from rtlstm import Accelerator, ConfigurationError, DeviceError, InputError, Parameters, QuantizationSettings
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends import read_if_needed
from rtlstm.host.embeddings import Embedding
from rtlstm.spec.network import Dense, Network

ROWS, WIDTH, UNITS = 9, 4, 6
SETTINGS = QuantizationSettings(weight_bits=8, data_bits=10)


def make(
    folder: Path, rows: int = ROWS, outputs: int = ROWS, decide: str | None = "argmax", **more: Any
) -> Path:
    """A decoder with a table of so many rows."""
    rng = np.random.default_rng(3)
    head = Dense(name="fc", weight=rng.normal(size=(outputs, UNITS)) * 2, bias=rng.normal(size=outputs) * 0.1)
    network = Network(name="decoder", layers=(normal_lstm(rng, WIDTH, UNITS), head))
    tables = (Embedding(name="words", table=rng.normal(size=(rows, WIDTH)) * 2),) if rows else ()
    parameters = Parameters(lanes=4, macs=2, streams=2, decide=decide)
    with no_logic():
        model = read_if_needed(network).replace(embeddings=tables)
        generate_build(model, folder, parameters=parameters, settings=SETTINGS)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("decode") / "build")


STATE = tuple(np.random.default_rng(1).uniform(-0.5, 0.5, (1, 5, UNITS)) for _ in "hc")
FIRST = np.array([0, 3, 8, 1, 2])


def expected(folder: Path, steps: int) -> np.ndarray:
    """Step by step, ``(T, N)``."""
    found = []
    with Accelerator.open(folder) as accelerator, accelerator.stream() as stream:
        for number, token in enumerate(FIRST):
            stream.state = tuple(part[:, number] for part in STATE)
            row = []
            for _ in range(steps):
                token = int(stream.step(token))
                row.append(token)
            found.append(row)
    return np.array(found).T


def test_each_decision_is_the_next_token(folder: Path, tmp_path: Path) -> None:
    """More sequences than streams; a build without a decision, or with the three best, gives the same."""
    wanted = expected(folder, 12)
    assert len(np.unique(wanted)) > 2
    plain = make(tmp_path / "plain", decide=None)
    for build in (folder, plain, make(tmp_path / "best", decide="top3")):
        with Accelerator.open(build) as accelerator:
            tokens, (h, c) = accelerator.decode(FIRST, 12, state=STATE)
            assert tokens.dtype == np.int64 and np.array_equal(tokens, wanted)
            assert h.shape == c.shape == (1, 5, UNITS)
            one, (h_one, _) = accelerator.decode(3, 12, state=tuple(part[:, 1] for part in STATE))
            assert np.array_equal(one, wanted[:, 1]) and np.array_equal(h_one, h[:, 1])
            # The state after the last step goes on.
            first, state = accelerator.decode(FIRST, 5, state=STATE)
            rest, _ = accelerator.decode(first[-1], 7, state=state)
            assert np.array_equal(np.concatenate([first, rest]), wanted)
            zero, _ = accelerator.decode(3, 4)
            with accelerator.stream() as stream:
                again, token = [], 3
                for _ in range(4):
                    y = stream.step(token)
                    token = int(y if build == folder else y.argmax() if build == plain else y["number"][0])
                    again.append(token)
            assert zero.tolist() == again


def test_sequences_stop(folder: Path) -> None:
    wanted = expected(folder, 12)
    stop = int(wanted[4, 0])
    ends = [list(column).index(stop) if stop in column else 12 for column in wanted.T]
    with Accelerator.open(folder) as accelerator:
        tokens, _ = accelerator.decode(FIRST, 12, stop=stop, state=STATE)
        steps = accelerator.device.register(rtlstm.spec.registers.Register.STEPS)
    assert len(tokens) == min(12, max(ends) + 1) and min(ends) < max(ends)
    for column, found, end in zip(wanted.T, tokens.T, ends, strict=True):
        assert (
            np.array_equal(found[: end + 1], column[: end + 1][: len(tokens)]) and (found[end:] == stop).all()
        )
    assert steps == sum(min(end + 1, 12) for end in ends)


def test_what_decode_needs(folder: Path, tmp_path: Path) -> None:
    with Accelerator.open(folder) as accelerator:
        for wrong, words in (
            ({"first": 9}, "first must hold tokens from 0 to 8, .*'words', but first is 9"),
            ({"first": 0.5}, r"first must hold tokens as integers, which the model looks up in 'words', not"),
            ({"first": [[1]]}, r"a token, or one of each sequence \(N,\), not of shape \(1, 1\)"),
            ({"steps": 0}, "steps must be 1 or more, not 0"),
            ({"steps": 2.0}, "steps must be an integer, not 2.0"),
            ({"stop": 9}, "stop must be 0 or more, at most 8, not 9"),
            ({"stop": True}, "stop must be an integer, not True"),
            ({"state": 3}, "state must be a pair"),
        ):
            with pytest.raises(InputError, match=words):
                accelerator.decode(**{"first": 0, "steps": 2} | wrong)
        streams = [accelerator.stream() for _ in range(2)]
        with pytest.raises(DeviceError, match="no stream is free"):
            accelerator.decode(0, 2)
        streams[0].close()
        assert accelerator.decode(0, 2)[0].shape == (2,)
    for more, words in (
        ({"rows": 0}, "looks up in 0 tables; choose the next input yourself"),
        ({"rows": 8}, "numbers of its 9 outputs in one table, but 'decoder' has a table of 8 rows"),
    ):
        with Accelerator.open(make(tmp_path / "other", **more)) as other:
            with pytest.raises(ConfigurationError, match=words):
                other.decode(0, 2)
            with other.stream() as stream:
                assert stream.step(np.zeros(WIDTH)).shape == ()


@pytest.mark.rtl
@pytest.mark.parametrize("backend", quick(["golden", "verilator"], "golden"))
def test_an_encoder_and_a_decoder_on_one_core(backend: str, tmp_path: Path) -> None:
    """Both are in one device, and the decoder's streams go on where the encoder's end."""
    rng = np.random.default_rng(4)
    table = Embedding(name="letters", table=rng.normal(size=(5, 3)))
    encoder = Network(name="encoder", layers=(normal_lstm(rng, 3, UNITS),))
    folders = tmp_path / "encoder", tmp_path / "decoder"
    parameters = Parameters(lanes=4, macs=2, streams=5, decide="argmax")
    room = {"inputs": 4, "weight_rows": 256, "shift_rows": 64, "bias_rows": 64, "partial_rows": 64}
    room |= {"vector_words": 64, "cell_rows": 32, "networks": 2}
    options: dict[str, Any] = {"parameters": parameters, "settings": SETTINGS, "capacities": room}
    with logic_for(backend):
        generate_build(read_if_needed(encoder).replace(embeddings=(table,)), folders[0], **options)
    rng = np.random.default_rng(3)
    head = Dense(name="fc", weight=rng.normal(size=(ROWS, UNITS)) * 2, bias=np.zeros(ROWS))
    decoder = Network(name="decoder", layers=(normal_lstm(rng, WIDTH, UNITS), head))
    words = Embedding(name="words", table=rng.normal(size=(ROWS, WIDTH)) * 2)
    generate_build(read_if_needed(decoder).replace(embeddings=(words,)), folders[1], device=folders[0])
    letters = rng.integers(0, 5, (7, 5))
    with Accelerator.open(folders[0], backend) as reader:
        writer = reader.load(folders[1], network=1)
        streams = [reader.stream() for _ in FIRST]
        for stream, each in zip(streams, letters.T, strict=True):
            stream.steps(each)
        for wrong in (streams[:4], [*streams[:4], streams[0]], [*streams[:4], 3], 3):
            with pytest.raises(InputError, match="after must be another stream for each of 5 sequences"):
                writer.decode(FIRST, 8, after=wrong)
        with pytest.raises(InputError, match="1 sequences, without `state`, not 4"):
            writer.decode(3, 8, after=4)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="but network 0 of 'encoder' has a table of 5 rows"):
            reader.decode(0, 8)
        assert "build: network 1 of encoder" in repr(writer)
        with pytest.raises(InputError, match="and a state"):
            writer.decode(FIRST, 8, after=streams, state=streams[0].state)
        tokens, ends = writer.decode(FIRST, 8, after=streams)
        assert not writer.open_streams and not reader.open_streams
        again = reader.stream()
        again.steps(letters[:, 1])
        assert np.array_equal(writer.decode(3, 8, after=again)[0], tokens[:, 1])
        # The same by way of the host.
        _, state = reader.run(letters, outputs="none")
        wanted, states = writer.decode(FIRST, 8, state=state)
    assert np.array_equal(tokens, wanted) and np.array_equal(ends, states)
    assert len(np.unique(tokens)) > 2


@pytest.mark.slow
def test_the_example_reverses_words() -> None:
    """As the float network does with its own decisions."""
    example = load_example("encoder_decoder")
    with no_logic(), pytest.warns(rtlstm.NoteWarning):
        assert example.main("golden") > 0.9
