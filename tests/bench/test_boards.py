"""``rtlstm bench --boards``: boards beside the processor."""

import json
from pathlib import Path

import pytest

from rtlstm.bench import soak as boards
from rtlstm.bench.records import CpuTime
from rtlstm.bench.soak import NetworkBoards, Software, _alike_at_tcp, _with_software, run_boards
from rtlstm.boards.catalogue import find_board
from rtlstm.boards.wire import LINK_COSTS, link_timing, predict_wire
from rtlstm.gen.builds.on_board import BoardBuild, BoardOffer, mark_cheapest
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest


def offer(manifest: Manifest, board: str) -> BoardOffer:
    there = find_board(board)
    links = [predict_wire(manifest, link_timing(there, link, 100)) for link in there.links]
    numbers = dict.fromkeys(BoardBuild.model_fields, 1) | {"changed": {}, "links": links}
    return BoardOffer(board=board, title="", device="", price="", build=BoardBuild(**numbers))


def test_when_the_board_wins_and_when_it_loses(pristine: Path):
    offers = offer(Manifest.load(pristine), "colorlight-i5"), offer(Manifest.load(pristine), "ulx3s-85f")
    cpu = (
        CpuTime(engine="onnxruntime", p50_us=70.0),
        CpuTime(engine="c++ int8", mean_us=20.0, kernel="avx2"),
    )
    verdict = NetworkBoards(name="tiny", boards=offers, cpu=cpu).verdict
    assert verdict.startswith(
        "tiny: here onnxruntime 70 us, c++ int8 20 us; the fastest boards: in the core "
    )
    pins = verdict[verdict.index("at the pins colorlight-i5 on ethernet,") : verdict.index("at the host ")]
    assert "wins against onnxruntime, wins against c++ int8" in pins
    assert "(loses to onnxruntime, loses to c++ int8)." in verdict
    slow = (CpuTime(engine="onnxruntime", p50_us=1e6),)
    assert "loses" not in NetworkBoards(name="tiny", boards=offers, cpu=slow).verdict
    assert "nothing to compare" in NetworkBoards(name="tiny", boards=(), cpu=cpu).verdict
    # A board with fewer bits than asked for is none of the fastest.
    fewer = offers[0].replace(build=offers[0].build.replace(changed={"weight_bits": 6}))
    verdict = NetworkBoards(name="tiny", boards=(fewer, offers[1]), cpu=cpu).verdict
    assert "in the core ulx3s-85f," in verdict and "colorlight" not in verdict
    assert "nothing to compare" in NetworkBoards(name="tiny", boards=(fewer,), cpu=cpu).verdict


def test_the_cheapest_is_chosen_with_what_was_measured(pristine: Path):
    """Two boards of one class: the link whose software is faster here decides."""
    manifest = Manifest.load(pristine)
    offers = mark_cheapest([offer(manifest, "colorlight-i5"), offer(manifest, "tang-nano-20k")])
    assert [each.cheapest for each in offers] == [True, False]
    slow = {
        link: Software(link=link, alone_us=1e5 if link == "ethernet" else 1.0, batch_us=1.0)
        for link in LINK_COSTS
    }
    found = mark_cheapest([_with_software(each, slow) for each in offers])
    assert [each.cheapest for each in found] == [False, True]


def test_software_at_a_tcp_socket_is_the_larger():
    given = {"serial": (2.0, 0.5), "ethernet": (9.0, 9.0), "spi": (1.0, 0.75)}
    measured = [Software(link=link, alone_us=a, batch_us=b) for link, (a, b) in given.items()]
    found = {link: (each.alone_us, each.batch_us) for link, each in _alike_at_tcp(measured).items()}
    assert found == {"serial": (2.0, 0.75), "ethernet": (9.0, 9.0), "spi": (2.0, 0.75)}


def test_refused(cli, tmp_path: Path):
    cli("bench", "--boards", "--link").refused("--boards is a measurement of its own")
    cli("bench", "--boards", "--workers", 2).refused("leave out --estimates, --board, --boards")
    with pytest.raises(ConfigurationError, match="must be one of .*toptag"):
        run_boards(["nothing"], tmp_path)


@pytest.mark.slow
@pytest.mark.rtl
def test_all_of_it(cli, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(
        boards, "usable_boards", lambda: [find_board("ulx3s-12f"), find_board("colorlight-i5")]
    )
    saved = tmp_path / "boards.json"
    done = cli("bench", "traffic20", "--boards", "--quick", "-o", tmp_path / "builds", "--save", saved)
    assert done.code == 0, done.err
    found = json.loads(saved.read_text())
    assert {each["link"] for each in found["software"]} == set(LINK_COSTS)
    assert all(0 < each["batch_us"] < each["alone_us"] for each in found["software"])
    (network,) = found["networks"]
    assert [time["engine"] for time in network["cpu"]] == ["c++ int8", "onnxruntime"]
    measured = {each["link"]: each["alone_us"] for each in found["software"]}
    for each in network["boards"]:
        for link in each["build"]["links"]:
            assert link["software_us"] == measured[link["link"]]
    assert network["verdict"] in done.out and "A step on boards" in done.out
