"""Every command has one result: people read nothing that its JSON object does not hold."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import implementations
from support.implementations import ESTIMATE, implementation
from support.small_builds import INPUTS, NARROW, OUTPUTS, TINY, network

import rtlstm.bench.benchmark as benchmark
import rtlstm.bench.estimates as estimates
import rtlstm.bench.hardware as stac
import rtlstm.bench.soak as link
import rtlstm.bench.soak as soaks
import rtlstm.boards.bitstream as loader
import rtlstm.gen.builds.compare as compare
import rtlstm.gen.builds.implement as implement
import rtlstm.gen.builds.on_board as on_board
import rtlstm.gen.frontends as frontends
import rtlstm.sim.port_server as port_server
import rtlstm.sim.simulated_board as board_port
import rtlstm.zoo.check as check
from rtlstm import BuildReport, Manifest, Parameters
from rtlstm.cli.commands import COMMANDS
from rtlstm.cli.console import Console
from rtlstm.cli.results import Field, Result, Table, Text, Values, View, write_value
from rtlstm.gen.builds.generate import generate_build
from rtlstm.sim.link_port import EthernetPort

pytestmark = pytest.mark.usefixtures("without_verilog")

Patch = pytest.MonkeyPatch
Case = Callable[["Places", Patch], tuple[object, ...]]


@dataclass(frozen=True)
class Places:
    """What the commands are given: a model, a build, and a folder for what they write."""

    model: Path
    pristine: Path
    folder: Path

    @property
    def build(self) -> Path:
        """A build that a command may write into."""
        return Path(shutil.copytree(self.pristine, self.folder / "build"))

    @property
    def zynq(self) -> Path:
        """A build for a Zynq board."""
        folder = self.folder / "zynq"
        parameters = Parameters(lanes=4, macs=1, bus="axilite", family="xilinx")
        generate_build(network(), folder, parameters=parameters, settings=NARROW, name="model")
        return folder

    @property
    def measured(self) -> Path:
        """A loadable build that was placed and routed, as its report says."""
        folder = self.folder / "measured"
        capacities = {"headroom": 2}
        generate_build(network(), folder, parameters=TINY, settings=NARROW, capacities=capacities)
        report = BuildReport.load(folder).with_implementation(implementation(folder, 100, 150))
        (folder / "report.json").write_text(report.to_json())
        return folder


def _generate(at: Places, patch: Patch) -> tuple[object, ...]:
    return "generate", at.model, "-o", at.folder / "made", "--lanes", 8, "--macs", 2, "--gate-units", 2


def _generate_to_fit(at: Places, patch: Patch) -> tuple[object, ...]:
    bits = ("--weight-bits", 4, "--data-bits", 8)
    return "generate", at.model, "-o", at.folder / "fits", "--fit", "ulx3s-12f", *bits


def _inspect_refused(at: Places, patch: Patch) -> tuple[object, ...]:
    report = frontends.inspect_model(at.model).replace(refusal="fc cannot be read")
    patch.setattr(frontends, "inspect_model", lambda *_: report)
    return "inspect", at.model


def _inspect_damaged(at: Places, patch: Patch) -> tuple[object, ...]:
    folder = at.build
    (folder / "weights.bin").write_bytes(b"nothing")
    return "inspect", folder


def _simulate(at: Places, patch: Patch, different: int = 0) -> tuple[object, ...]:
    said = "y[1, 1, 1] is 3, not 2" if different else ""
    found = implementations.comparison(output_different=different, first_difference=said)
    patch.setattr(compare, "compare", lambda *_: (found, np.zeros((5, 2, 2))))
    return "simulate", at.pristine, "--output", at.folder / "y.npy"


def _implement(at: Places, patch: Patch, *clocks: float, **more: Any) -> tuple[object, ...]:
    found = implementation(at.pristine, *clocks, **more)
    patch.setattr(implement, "implement", lambda *_, **__: found)
    return "implement", at.pristine, "--device", "lfe5u-25f"


def _bitstream(at: Places, patch: Patch, met: bool = True) -> tuple[object, ...]:
    folder = at.build
    found = implementations.bitstream(build_hash=Manifest.load(folder).build_hash, met=met)
    (folder / "boards" / found.board).mkdir(parents=True)
    patch.setattr(on_board, "make_bitstream", lambda *_, **__: found)
    return "bitstream", folder, "--board", "ulx3s-12f", "--clock", 63


def _bitstream_for_vivado(at: Places, patch: Patch) -> tuple[object, ...]:
    return "bitstream", at.zynq, "--board", "pynq-z2", "--clock", 60


def _program(at: Places, patch: Patch) -> tuple[object, ...]:
    found = implementations.bitstream(build_hash=Manifest.load(at.pristine).build_hash, met=True)
    target = on_board.find_board("ulx3s-12f")
    patch.setattr(on_board, "load_bitstream", lambda *_: (found, target, at.folder / "top.bit"))
    patch.setattr(loader, "load_board", lambda *_: None)
    return "program", at.pristine


def _run(at: Places, patch: Patch) -> tuple[object, ...]:
    # Time goes on by a quarter of a second whenever anybody looks.
    ticks: Iterator[float] = iter(np.arange(0, 1000, 0.25).tolist() * 2)
    patch.setattr("rtlstm.cli.run.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    np.save(at.folder / "x.npy", np.random.default_rng(0).normal(size=(700, 3, INPUTS)))
    where = ("--output", at.folder / "y.npy", "--state-output", at.folder / "s.npz")
    return "run", at.pristine, "--backend", "golden", "--input", at.folder / "x.npy", *where


def _explore(at: Places, patch: Patch) -> tuple[object, ...]:
    np.save(at.folder / "x.npy", np.random.default_rng(0).normal(size=(20, INPUTS)))
    given = ("--calibrate", at.folder / "x.npy", "-o", at.folder / "study", "--dense", "fc:sigmoid")
    searched = ("--devices", "up5k", "--weight-bits", "6,8", "--data-bits", 8, "--gate-bits", 8)
    array = ("--lanes", 4, "--macs", 1, "--workers", 1)
    return "explore", at.model, *given, *searched, *array, "--limit", "latency<=1000us"


def _accuracy(at: Places, patch: Patch) -> tuple[object, ...]:
    # The third feature saturates.
    np.save(at.folder / "x.npy", np.random.default_rng(0).normal(size=(9, 3, INPUTS)) * [1.0, 1.0, 8.0])
    np.save(at.folder / "y.npy", np.random.default_rng(0).normal(size=(3, OUTPUTS)))
    where = ("--labels", at.folder / "y.npy", "-o", at.folder / "page.html")
    return "accuracy", at.pristine, "--input", at.folder / "x.npy", *where


def _accuracy_with_the_model(at: Places, patch: Patch) -> tuple[object, ...]:
    folder = at.build
    np.save(at.folder / "x.npy", np.random.default_rng(0).normal(size=(300, INPUTS)))
    np.save(at.folder / "y.npy", np.zeros(300, dtype=np.int64))
    given = ("--input", at.folder / "x.npy", "--labels", at.folder / "y.npy")
    return "accuracy", folder, *given, "--model", at.model, "--dense", "fc"


class _Server:
    path, port, udp_port = Path("/dev/pts/7"), 5000, None

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> None: ...


def _board(at: Places, patch: Patch) -> tuple[object, ...]:
    # Its base is replaced only after it has been imported.
    assert issubclass(EthernetPort, board_port.BoardPort)
    patch.setattr(on_board.OnBoard, "simulate", lambda *_: SimpleNamespace(cycle=1234))
    patch.setattr(board_port, "BoardPort", lambda native: native)
    patch.setattr(port_server, "PortServer", _Server)
    return "board", at.pristine, "--board", "ulx3s-12f", "--tcp", 5000


def _bench(at: Places, patch: Patch) -> tuple[object, ...]:
    machine = benchmark.describe_machine()
    patch.setattr(benchmark, "describe_machine", lambda: machine)

    def start(what: str, **given: Any) -> Iterator[dict[str, Any]]:
        for name in given["names"]:
            time = {"engine": given["engine"], "p50_us": 12.3456, "p99_us": 1234.5, "steps": 10}
            yield {"shape": name, "time": time}

    patch.setattr(benchmark, "start", start)
    return "bench", "traffic20", "--quick", "--no-rtl", "-o", at.folder


def _bench_estimates(at: Places, patch: Patch) -> tuple[object, ...]:
    factors = estimates.fpga_family("ecp5").need_estimates()
    found = estimates.EstimateResult(
        name="traffic20",
        device="lfe5u-85f",
        lanes=20,
        macs=1,
        luts=1100,
        estimated_luts=1210,
        lut_error=10.0,
        ffs=2000,
        estimated_ffs=1900,
        ff_error=-5.0,
        multipliers=20,
        estimated_multipliers=20,
        block_rams=3,
        estimated_block_rams=4,
        parts=dict.fromkeys(factors.luts, 50.0),
        registers=dict.fromkeys(factors.ffs, 50.0),
    )
    patch.setattr(estimates, "measure_estimates", lambda *_: iter([found]))
    return "bench", "--estimates"


def _soak() -> soaks.Soak:
    return soaks.Soak(
        device="golden model",
        steps=10_000,
        rate=0.01,
        faults={"lost": 1234, "bit": 99},
        wrong=0,
        executed=9999,
        requests=11_000,
        repeated=1000,
        responses_again=5,
        damaged=7,
        dropped=8,
        resumed=2,
        reopened=1,
        port_seconds=12.34,
        wall_seconds=5.6,
    )


def _bench_profile(at: Places, patch: Patch) -> tuple[object, ...]:
    patch.setattr(stac, "_errors", lambda _: (0.0123, 0.0456))
    return "bench", "--profile", "stac", "stac_a", "-o", at.folder


def _bench_link(at: Places, patch: Patch) -> tuple[object, ...]:
    found = link.Efficiency(
        name="256 inputs of 8 bits",
        payload_bytes=256,
        steps=100,
        payload_share=0.9412,
        steps_per_second=1102.9,
        limit_per_second=1110.0,
        port_use=0.9936,
        latency_seconds=0.002,
        processor_us_per_step=412.0,
    )
    patch.setattr(link, "measure_efficiency", lambda _: iter([found]))
    patch.setattr(soaks, "soak", lambda *_, **__: _soak())
    return "bench", "--link", "--quick"


def _bench_board(at: Places, patch: Patch) -> tuple[object, ...]:
    patch.setattr(soaks, "soak_board", lambda *_, **__: _soak().replace(executed=10_000))
    return "bench", "--link", "--board", "ulx3s-85f"


def _zoo(at: Places, patch: Patch, **changes: object) -> tuple[object, ...]:
    _simulate(at, patch)
    found = check.ZooResult(
        version="1",
        model="gait-phase",
        package="a==1",
        device="lfe5u-25f-8",
        weight_bits=8,
        data_bits=8,
        lanes=16,
        macs=2,
        metric="error, rad",
        in_float=0.134,
        built=0.135,
        metric_holds=True,
        rms_error=1e-4,
        largest_error=0.003,
        sequence_steps=None,
        latency_cycles=1258,
        interval_cycles=382,
        clock_mhz=170.5,
        latency_us=7.4,
        luts=11202,
        multipliers=28,
        block_rams=37,
        comparison=compare.compare()[0],
    )
    patch.setattr(check, "check_model", lambda *_, **__: found.replace(**changes))
    return "zoo", "gait-phase", "--history", at.folder / "history.csv"


NO_DEVICE = dict.fromkeys(("device", "clock_mhz", "latency_us", "luts", "multipliers", "block_rams"))


CASES: dict[str, Case] = {
    "generate": _generate,
    "generate, sizes chosen": _generate_to_fit,
    "inspect a model": lambda at, _: ("inspect", at.model, "--dense", "fc:sigmoid"),
    "inspect a model that is refused": _inspect_refused,
    "inspect a build": lambda at, _: ("inspect", at.pristine),
    "inspect a loadable build, measured": lambda at, _: ("inspect", at.measured),
    "inspect a damaged build": _inspect_damaged,
    "simulate": _simulate,
    "simulate, different": lambda at, patch: _simulate(at, patch, 3),
    "implement": lambda at, patch: _implement(at, patch, 100, 300, asked=213),
    "implement, estimated": lambda at, patch: _implement(at, patch, 100, estimate=ESTIMATE),
    "implement, synthesis only": lambda at, patch: _implement(at, patch),
    "bitstream": _bitstream,
    "bitstream, clock missed": lambda at, patch: _bitstream(at, patch, False),
    "bitstream, for Vivado": _bitstream_for_vivado,
    "program": _program,
    "run": _run,
    "explore": _explore,
    "accuracy": _accuracy,
    "accuracy, with the model": _accuracy_with_the_model,
    "board": _board,
    "devices": lambda *_: ("devices",),
    "boards": lambda *_: ("boards",),
    "zoo": lambda *_: ("zoo",),
    "zoo NAME": _zoo,
    "zoo NAME, failed": lambda at, patch: _zoo(at, patch, metric_holds=False, sequence_steps=30, **NO_DEVICE),
    "bench": _bench,
    "bench --estimates": _bench_estimates,
    "bench --link": _bench_link,
    "bench --profile": _bench_profile,
    "bench --link --board": _bench_board,
}

MADE_ONCE = {"generate", "generate, sizes chosen", "explore"}
"""A second run would take as long as the first and find another folder there, or go on with a study."""


def test_every_command_is_here() -> None:
    assert {name.replace(",", "").split()[0] for name in CASES} == set(COMMANDS)


@pytest.mark.parametrize("name", CASES)
def test_people_read_the_json_object(cli, model, pristine, tmp_path, monkeypatch, name: str) -> None:
    """What is printed is what the views make of the JSON object alone, to the letter."""
    consoles: list[Console] = []
    views: list[View] = []
    show = Console.show

    def watched(console: Console, view: View = (), **fields: Any) -> None:
        consoles.append(console)
        views.append(view)
        show(console, view, **fields)

    monkeypatch.setattr(Console, "show", watched)
    arguments = CASES[name](Places(model, pristine, tmp_path), monkeypatch)
    done = cli(*arguments)
    assert done.code in (0, 1, 2) and len(set(map(id, consoles))) == 1, done.err
    found = json.loads(consoles[0].result.as_json())
    whole = Result(found)
    assert done.out == "".join(f"{text}\n" for view in views for text in whole.texts(view)) != ""
    if name not in MADE_ONCE:
        printed = cli(*arguments, "--json").json
        assert {"next", "notes"} <= printed.keys()
        assert {key: value for key, value in printed.items() if key not in ("next", "notes")} == found


def test_a_view_reads_json_only() -> None:
    """Values are read as JSON gives them back, and what is not there cannot be shown."""
    result = Result()
    result.add({"shape": (3, 2), "rows": {1: ["one"]}})
    shape, rows = Text(lambda found: found["shape"]), Text(lambda found: found["rows"]["1"][0])
    assert list(result.texts((shape, rows))) == ["[3, 2]", "one"]
    with pytest.raises(KeyError, match="secret"):
        list(result.texts((Text("{secret}"),)))
    with pytest.raises(TypeError, match="JSON serializable"):
        result.add({"path": Path("x")})
    result.add({"nan": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        result.as_json()


def test_nothing_is_left_out_or_empty() -> None:
    """Lines, tables and rows of names and values are left out where there is nothing, cells are empty."""
    names = (Field("a", "{a:,}"), Field("b", lambda each: each["b"], right=True))
    result = Result({"rows": [{"a": 1234, "b": None}, {"a": 5, "b": 6789}], "none": []})
    (table,) = result.texts((Text(lambda _: None), Table("T", lambda found: found["rows"], *names)))
    assert [line.split() for line in table.splitlines()[1:]][2:] == [["1,234"], ["5", "6,789"]]
    assert not list(result.texts((Table("T", lambda found: found["none"], *names),)))
    (values,) = result.texts((Values("V", *names, holder=lambda found: found["rows"][0]),))
    assert [line.split() for line in values.splitlines()] == [["V"], ["a", "1,234"]]
    assert not list(result.texts((Values("V", *names, holder=lambda _: None),)))


def test_fields_of_mappings_and_records() -> None:
    place = Places(Path("m"), Path("p"), Path("f"))
    assert write_value("{folder} of {model}", place) == "f of m"
    assert write_value("{at.folder} of {of[model]}", {"at": place, "of": {"model": 3}}) == "f of 3"
    # Commas are for whole numbers; a truth value is none.
    assert [write_value(lambda each: each, value) for value in (12345, 1234.5, True)] == [
        "12,345",
        "1234.5",
        "True",
    ]
