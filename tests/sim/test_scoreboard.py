"""The scoreboard of cocotb tests: what a right core gives passes, what is wrong is named."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from support.random_builds import Case, random_case
from support.wave_builds import wave_case

from rtlstm.sim.golden import Golden
from rtlstm.sim.scoreboard import Scoreboard
from rtlstm.sim.simulated_ports import pack_beats
from rtlstm.spec.packing import pack
from rtlstm.spec.program.schedule import step_cycles
from rtlstm.spec.registers import Command, Register


@dataclass
class Player:
    """A core that gives what the golden model gives, in the predicted cycle, until it is told otherwise."""

    case: Case
    board: Scoreboard = field(init=False)
    cycle: int = 0

    def __post_init__(self) -> None:
        self.board = Scoreboard(self.case.manifest)

    def write(self, register: Register, *words: int) -> None:
        for word in words:
            self.cycle += 1
            self.board.wrote(register, word, self.cycle)

    def load(self) -> None:
        image = pack(self.case.network, self.case.manifest)
        for region, banks in image.regions.items():
            for bank, words in enumerate(banks):
                self.write(Register.SELECT, region << 28 | bank)
                self.write(Register.ROW, 0)
                self.write(Register.DATA, *words.reshape(-1).tolist())
        for stream in range(self.case.manifest.parameters.streams):
            self.write(Register.STREAM, stream)
            self.write(Register.COMMAND, Command.RESET)
        self.cycle += 100

    def send(self, step: int, suppressed: bool = False) -> None:
        ports, x = self.board.ports, self.case.x[step]
        words = np.zeros(ports.beats_in * ports.beat_in, dtype=np.int64)
        words[: ports.inputs] = x & ((1 << ports.data_bits) - 1)
        for beat in pack_beats(words.reshape(-1, ports.beat_in), ports.data_bits):
            self.board.input_beat(int(beat, 16), int(self.case.streams[step]), suppressed, False, self.cycle)
            self.cycle += 1

    def answer(
        self,
        word: int = 0,
        delay: int = 0,
        stream: int = 0,
        last: bool = True,
        held: int = 0,
        padding: int = 0,
    ) -> None:
        """Give the due step's output, with what is wrong of it."""
        ports, step = self.board.ports, self.board.due[0]
        words = np.zeros(ports.beats_out * ports.beat_out, dtype=np.int64)
        words[: ports.outputs] = step.y & ((1 << ports.y_bits) - 1)
        words[ports.outputs - 1] ^= word
        words[ports.outputs :] = padding
        beats = pack_beats(words.reshape(-1, ports.beat_out), ports.y_bits)
        begin = max(step.cycle, self.cycle + len(beats)) - len(beats) + 1 + delay
        for number, beat in enumerate(beats):
            ends = number == len(beats) - 1
            at = begin + number
            self.board.output_beat(int(beat, 16), step.stream ^ stream, ends and last, at, at + held)
        self.cycle = begin + len(beats) + held


@pytest.fixture
def player() -> Player:
    return Player(random_case(118, sizes=(1, 2, 3, 5, 7)))


def test_right_core_passes(player: Player) -> None:
    player.load()
    for step in range(len(player.case.x)):
        player.send(step)
        player.answer()
    board = player.board
    assert (board.steps, board.cycles) == (len(player.case.x), len(player.case.x))
    assert board.words == board.steps * player.case.manifest.program.outputs and not board.due
    case, golden = player.case, Golden(player.case.network)
    for stream in range(case.manifest.parameters.streams):
        found = [y.tolist() for to, y in board.outputs if to == stream]
        assert found == golden.run(case.x[case.streams == stream][:, None]).y[:, 0].tolist()


WRONG: list[tuple[Callable[[Player], None], str]] = [
    (lambda player: player.answer(word=1), r"y of step 0, word \d+ must be -?\d+, not -?\d+"),
    (
        lambda player: player.answer(delay=3),
        r"step 0 must offer its last output beat \d+ cycles after its input",
    ),
    (lambda player: player.answer(last=False), r"step 0, beat \d+: y_last must be 1, not 0"),
    (lambda player: player.answer(padding=1), r"step 0: words of y past the last output must be 0"),
    (lambda player: player.answer(stream=1), r"step 0, beat 0: y_stream must be \d, not \d"),
    (
        lambda player: player.write(Register.COMMAND, 1),
        r"DATA or COMMAND was accessed in cycle \d+ while outputs",
    ),
    (
        lambda player: [player.answer(), player.board.output_beat(0, 0, True, 9, 9)],
        r"no step's output is due",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_wrong_core_is_named(player: Player, wrong: Callable[[Player], None], message: str) -> None:
    player.load()
    player.send(0)
    with pytest.raises(AssertionError, match=message):
        wrong(player)


def test_step_without_weights_is_named(player: Player) -> None:
    with pytest.raises(AssertionError, match=re.escape("step 0 was accepted before weights and tables")):
        player.send(0)


def test_cycles_are_compared_again_once_the_core_was_idle(player: Player) -> None:
    player.load()
    player.send(0)
    player.answer(held=5)
    board = player.board
    held = board.cycles
    player.send(1)
    player.answer(delay=2)
    assert board.cycles == held, "an output was held back: cycles are not known"
    player.cycle += 10_000
    player.send(2)
    player.answer()
    assert board.cycles == held + 1


def test_a_core_that_computes_without_outputs_is_not_idle(player: Player) -> None:
    player.load()
    player.send(0)
    player.answer(held=5)
    interval = player.case.manifest.cycles.step_interval_cycles
    for _ in range(4):
        player.cycle += interval
        player.send(1, suppressed=True)
    player.send(2)
    assert player.board.due[0].cycle == -1, "it may still compute the step before"


def test_reset_begins_every_stream_anew(player: Player) -> None:
    player.load()
    player.send(0)
    first = player.board.due[0].y.tolist()
    player.answer()
    player.send(0)
    player.board.reset()
    assert not player.board.due
    player.send(0)
    assert player.board.due[0].y.tolist() == first


def test_scoreboard_knows_a_steps_cycle_when_it_ends() -> None:
    player = Player(wave_case(3, (1, 2, 3), 6, whole=True))
    player.load()
    manifest, begins = player.case.manifest, player.cycle
    cycles = step_cycles(manifest.program, manifest.parameters, [0] * 7, set())
    for step, (accepted, _) in enumerate(cycles):
        player.cycle = begins + accepted
        player.send(step)
    beats = player.board.ports.beats_out
    for _, offered in cycles[:-1]:
        player.cycle = begins + offered - beats
        player.answer()
    assert player.board.cycles == 6
    player.cycle = begins + cycles[-1][1] - beats
    with pytest.raises(AssertionError, match=r"must offer its last output beat \d+ cycles after"):
        player.answer(delay=1)
