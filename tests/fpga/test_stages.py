"""What place and route tells while it runs, read from nextpnr's log."""

import pytest

from rtlstm.fpga.place_route import _Stages

ROUTER1 = """Info: Packing constants..
Info: Running main analytical placer, max placement attempts per cell = 7,000.
Info: HeAP Placer Time: 1.20s
Info: Running simulated annealing placer for refinement.
Info: Routing..
Info: Setting up routing queue.
Info: Routing 5460 arcs.
Info:            |   (re-)routed arcs  |   delta    | remaining|       time spent     |
Info:    IterCnt |  w/ripup   wo/ripup |  w/r  wo/r |      arcs| batch(sec) total(sec)|
Info:       1000 |      410        589 |  410   589 |      4973|       4.66       4.66|
Info:       2000 |      924       1075 |  514   486 |      4685|       0.66       5.32|
Info: Routing complete.
Info: Critical path report for clock 'clk' (posedge -> posedge):
"""
ROUTER2 = """Info: Packing constants..
Info: Running Static placer...
Info: Running router2...
Info:     iter=1 wires=50 overused=3 overuse=4 archfail=0
Info: Program finished normally.
"""


def _told(log: str, size: int) -> list[tuple[str, int, int]]:
    """Give the log in parts of so many characters; return what was told, each once."""
    told: list[tuple[str, int, int]] = []
    stages = _Stages("seed 1", lambda *phase: None if phase in told else told.append(phase))
    for first in range(0, len(log), size):
        stages.watch(log[first : first + size])
    stages.end()
    return told


@pytest.mark.parametrize("size", [1, 29, 300, 9999])
def test_every_stage_begins_and_ends(size: int):
    told = _told(ROUTER1, size)
    names = ["packing", "placement", "refinement", "routing arcs", "timing analysis"]
    ends = [what.removeprefix("seed 1: ") for what, done, total in told if done == total]
    assert ends == names


def test_router1_tells_its_arcs():
    routed = [phase[1:] for phase in _told(ROUTER1, 1) if phase[0] == "seed 1: routing arcs"]
    assert routed == [(0, 1), (0, 5460), (487, 5460), (775, 5460), (5460, 5460)]


def test_router2_has_no_number_of_arcs():
    assert _told(ROUTER2, 1) == [
        ("seed 1: packing", 0, 1),
        ("seed 1: packing", 1, 1),
        ("seed 1: placement", 0, 1),
        ("seed 1: placement", 1, 1),
        ("seed 1: routing arcs", 0, 1),
        ("seed 1: routing arcs", 1, 1),
        ("seed 1: timing analysis", 0, 1),
        ("seed 1: timing analysis", 1, 1),
    ]
