"""A program in words: every operation's, of steps with a skip and of whole sequences."""

from support.small_builds import rand

from rtlstm.cli.inspect import describe_program, program_notes
from rtlstm.gen.quantise.quantiser import quantise
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Bidirectional, Dense, Layer, Lstm, Network
from rtlstm.spec.parameters import Parameters


def lstm(reverse: bool = False) -> Lstm:
    return Lstm(name="l", w_ih=rand(16, 3), w_hh=rand(16, 4), bias=rand(16), reverse=reverse)


def built(*layers: Layer, **sizes: int) -> Manifest:
    quantised = quantise(Network(layers=layers))
    return Manifest.of("x", quantised, Parameters(lanes=4, macs=2, **sizes))


def test_dense_layer_with_a_skip():
    """The second dense layer reads the first one's results and, around it, the LSTM's."""
    first = Dense(name="a", weight=rand(5, 4), bias=rand(5))
    second = Dense(name="b", weight=rand(2, 5), bias=rand(2), input_relu=True, skip=rand(2, 4))
    manifest = built(lstm(), first, second)
    found = [(op.layer, op.multiplies, op.then) for op in describe_program(manifest)[2:5]]
    assert found == [
        ("2 a", "results of layer 1", "adds biases: outputs"),
        ("3 b_skip", "results of layer 1", "adds biases, keeps the sums"),
        ("4 b", "ReLU of results of layer 2", "adds the kept sums: outputs, sent"),
    ]
    assert [op.cycles for op in describe_program(manifest)[:2]] == [8, 8]
    assert "groups of 4 rows x words of 2 columns" in program_notes(manifest)[0]
    assert "goes on with 5 to 6, which take the place of 0 to 1" in program_notes(manifest)[1]


def test_whole_sequences():
    manifest = built(Bidirectional(forward=lstm(), backward=lstm(True)), max_steps=4)
    found = [(op.when, op.multiplies, op.then) for op in describe_program(manifest)]
    assert found == 2 * [
        ("every step", "own h", "adds biases, keeps the sums"),
        ("every step", "its pass's input", "adds the kept sums: new h and c, stored"),
    ]
    assert len(program_notes(manifest)) == 1
