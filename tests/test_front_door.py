"""``import rtlstm``: what a notebook does, from a module to a simulated board."""

import re
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.paths import ROOT
from support.small_builds import normal_lstm

import rtlstm
from rtlstm.gen.builds.report_html import render_report

pytestmark = pytest.mark.rtl


def random_network(seed: int = 0, units: int = 5) -> rtlstm.Network:
    lstm = normal_lstm(np.random.default_rng(seed), 3, units, name="lstm")
    return rtlstm.Network(name="tiny", layers=(lstm,))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(20, 2, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def build(x: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> rtlstm.Build:
    folder = tmp_path_factory.mktemp("front") / "tiny"
    return rtlstm.compile(
        random_network(), calibration=x, folder=folder, lanes=4, macs=4, weight_bits=8, data_bits=8
    )


def test_every_public_name_is_there():
    assert set(rtlstm.__all__) <= set(dir(rtlstm))
    for name in rtlstm.__all__:
        assert getattr(rtlstm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Lstn'"):
        rtlstm.Lstn  # noqa: B018


def test_import_loads_nothing_else():
    code = "import sys, rtlstm; print(rtlstm.__version__, 'numpy' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout.split() == [rtlstm.__version__, "False", "False"]


@pytest.mark.parametrize("folder", ["/", ROOT], ids=["elsewhere", "checkout"])
def test_runs_as_a_module(folder: str | Path):
    # In a checkout Python finds the folder rtlstm/ first, and must find the others beside it.
    done = subprocess.run(
        [sys.executable, "-m", "rtlstm", "--version"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"rtlstm {rtlstm.__version__}"


def test_build_runs_and_simulates(build: rtlstm.Build, x: np.ndarray):
    y, (h, c) = build.run(x)
    assert y.shape == (20, 2, 5) and h.shape == c.shape == (1, 2, 5)
    with build.open("icarus", verify=False) as accelerator:
        again, _ = accelerator.run(x[:3, 0])
    np.testing.assert_array_equal(again, y[:3, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build.simulate(simulator="icarus", steps=2, verify=False).steps == 2
    found = build.simulate(x[:3, 0], simulator="icarus", verify=False)
    assert found.passed and found.steps == 3
    swapped, options = x[:3].swapaxes(0, 1), {"simulator": "icarus", "verify": False}
    assert build.simulate(swapped, [3, 2], batch_first=True, **options).steps == 5


@pytest.mark.parametrize(
    "given, seen",
    [(np.float32, np.float32), (np.float16, np.float32), (np.float64, np.float64), (np.int16, np.int64)],
)
def test_outputs_have_the_type_of_the_inputs(build: rtlstm.Build, given: type, seen: type):
    x = np.ones((3, 3), given)
    with build.open() as accelerator, warnings.catch_warnings():
        warnings.simplefilter("ignore", rtlstm.CodesWarning)
        y, (h, c) = accelerator.run(x)
        with accelerator.stream() as stream:
            assert stream.step(x[0]).dtype == stream.steps(x[1:]).dtype == y.dtype == seen
        assert h.dtype == c.dtype == (np.int64 if seen is np.int64 else np.float64)
        exact, _ = accelerator.run(x.astype(np.float64 if seen is not np.int64 else given))
    np.testing.assert_array_equal(y, exact)


def test_build_of_a_folder_is_the_same(build: rtlstm.Build, x: np.ndarray):
    again = rtlstm.Build(build.folder)
    assert again.manifest == build.manifest
    np.testing.assert_array_equal(again.run(x)[0], build.run(x)[0])
    assert build.verilog.read_text().count("endmodule") > 1
    assert build.report().name == build.name == "tiny"


@pytest.mark.usefixtures("drawn")
def test_build_shows_itself(build: rtlstm.Build):
    assert repr(build) == f"<rtlstm.Build tiny: 3 inputs, 5 outputs, in {build.folder}>"
    page = build._repr_html_()
    cycles = build.report().cycles.step_latency_cycles
    assert "4 lanes x 4 multipliers" in page and f"{cycles} cycles" in page
    drawn, report = build.pictures()._repr_html_(), render_report(build.report(), build.manifest)
    assert drawn.startswith('<div class="rtlstm-pictures">') and drawn.endswith("</div>")
    pictures = [re.findall(r"<svg.*?</svg>", text, re.DOTALL) for text in (drawn, report)]
    assert "Outputs over time" in drawn and sorted(pictures[0]) == sorted(pictures[1])


def test_accelerator_shows_itself(build: rtlstm.Build):
    with build.open() as accelerator:
        assert (accelerator.inputs, accelerator.outputs) == (3, 5)
        with accelerator.stream():
            assert "streams: 1 of 1 open, device: GoldenDevice" in repr(accelerator)
        assert "<td>tiny</td>" in accelerator._repr_html_()
    assert repr(accelerator).endswith("device: closed>")


@pytest.mark.slow
def test_options_are_those_of_the_command_line(build: rtlstm.Build, x: np.ndarray, tmp_path: Path):
    model = tmp_path / "tiny.safetensors"
    from safetensors.numpy import save_file

    (layer,) = random_network().layers
    tensors = {"weight_ih_l0": layer.w_ih, "weight_hh_l0": layer.w_hh, "bias_ih_l0": layer.bias}
    tensors["bias_hh_l0"] = np.zeros_like(layer.bias)
    save_file({key: value.astype(np.float32) for key, value in tensors.items()}, model)
    np.save(tmp_path / "x.npy", x)
    command = f"rtlstm generate {model} -o {tmp_path}/cli --calibrate {tmp_path}/x.npy --lanes 4 --macs 4"
    command += " --weight-bits 8 --data-bits 8 --cell-range 4 --bus axi"
    subprocess.run([sys.executable, "-m", *command.split()], check=True, capture_output=True)
    options = {"lanes": 4, "macs": 4, "weight_bits": 8, "data_bits": 8, "cell_range": 4, "bus": "axi"}
    made = rtlstm.compile(str(model), calibration=x, folder=tmp_path / "api", **options)
    for name in ("manifest.json", "weights.bin", "report.json", "rtl/tiny.v"):
        assert (made.folder / name).read_bytes() == (tmp_path / "cli" / name).read_bytes()


@pytest.mark.usefixtures("without_verilog")
def test_build_goes_to_a_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert rtlstm.compile(random_network(), lanes=4, macs=4).folder == Path("build/tiny")
    assert (tmp_path / "build" / "tiny" / "manifest.json").is_file()


@pytest.mark.usefixtures("without_verilog")
def test_a_build_that_was_written_again_is_refused(x: np.ndarray, tmp_path: Path) -> None:
    """Also by one of the same sizes, as two modules of one class are by default."""
    sizes = {"lanes": 4, "macs": 4, "weight_bits": 8, "data_bits": 8}
    first = rtlstm.compile(random_network(), folder=tmp_path / "b", **sizes)
    second = rtlstm.compile(random_network(seed=1), folder=tmp_path / "b", **sizes)
    assert first.manifest == second.manifest
    for call in (first.run, first.simulate):
        with pytest.raises(rtlstm.BuildError, match="must hold the build of this object, but it was written"):
            call(x)
    with pytest.raises(rtlstm.BuildError, match=r"open it again with rtlstm\.Build"):
        first.report()
    with pytest.raises(rtlstm.BuildError, match="must hold the build of this object"):
        rtlstm.compile(random_network(), device=first, folder=tmp_path / "c")
    np.testing.assert_array_equal(rtlstm.Build(first.folder).run(x)[0], second.run(x)[0])
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(rtlstm.BuildError, match="is not a build folder: it does not exist"):
        second.run(x)


@pytest.mark.slow
def test_threads_that_compile_into_one_folder(x: np.ndarray, tmp_path: Path) -> None:
    """Each gets a build of its own network, or hears that the folder was written again."""

    def work(seed: int) -> tuple[int, rtlstm.Build]:
        sizes = {"lanes": 4, "macs": 4, "weight_bits": 8, "data_bits": 8}
        return seed, rtlstm.compile(random_network(seed, units=3 + seed), folder=tmp_path / "b", **sizes)

    with ThreadPoolExecutor(3) as pool:
        made = dict(pool.map(work, range(3)))
    assert {seed: build.outputs for seed, build in made.items()} == {0: 3, 1: 4, 2: 5}
    refused = 0
    for build in made.values():
        try:
            build.run(x)
        except rtlstm.BuildError:
            refused += 1
    assert refused == 2


@pytest.mark.parametrize("folder", ["/proc/none", "file/build"])
def test_a_folder_that_cannot_be_written_is_named(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(rtlstm.BuildError, match=rf"the build cannot be written to .*{folder}: \w.*; name"):
        rtlstm.compile(random_network(), folder=folder, lanes=4, macs=4)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_mistakes_are_named(build: rtlstm.Build, tmp_path: Path):
    network = random_network()
    with pytest.raises(rtlstm.ConfigurationError, match="no option 'weigth_bits'; did you mean weight_bits"):
        rtlstm.compile(network, folder=tmp_path / "b", weigth_bits=8)
    for misspelt, name in (("batchfirst", "batch_first"), ("calibraton", "calibration"), ("fitt", "fit")):
        with pytest.raises(rtlstm.ConfigurationError, match=f"no option '{misspelt}'; did you mean .*{name}"):
            rtlstm.compile(network, **{misspelt: True})
    for word in ("loadable", "capacity"):
        with pytest.raises(rtlstm.ConfigurationError, match=f"no option '{word}'; .* has `capacities={{}}`"):
            rtlstm.compile(network, **{word: True})
    with pytest.raises(rtlstm.InputError, match="calibration must be an array, not a path; load the file"):
        rtlstm.compile(network, calibration="x.npy")
    with pytest.raises(rtlstm.ConfigurationError, match="lstm choose what is read .* read_model"):
        rtlstm.compile(network, folder=tmp_path / "b", lstm="encoder")
    with pytest.raises(rtlstm.ConfigurationError, match="come from the device: leave out `lanes`, `fit`, or"):
        rtlstm.compile(network, folder=tmp_path / "b", lanes=4, fit="up5k", device=build)
    with pytest.raises(rtlstm.ModelError, match="a model must be a path"):
        rtlstm.compile(3)
    with pytest.raises(rtlstm.BuildError, match="manifest.json"):
        rtlstm.Build(tmp_path)
    with pytest.raises(rtlstm.ConfigurationError, match="there is no board 'ulx'"):
        build.bitstream("ulx")
    with pytest.raises(rtlstm.ConfigurationError, match="lfe5u"):
        build.implement("lfe5u-1f")
    with pytest.raises(rtlstm.InputError, match="calibration must hold .* some are masked"):
        rtlstm.compile(network, folder=tmp_path / "b", calibration=np.ma.masked_greater(np.ones((4, 3)), 0))
    with pytest.raises(rtlstm.InputError, match="calibration must be an array of numbers"):
        rtlstm.compile(network, folder=tmp_path / "b", calibration=[[1.0, 2], [3]])
    with pytest.raises(rtlstm.InputError, match=r"not \(4, 3, 9\); if features .*swapaxes\(x, -1, -2\)"):
        rtlstm.compile(network, folder=tmp_path / "b", calibration=np.ones((4, 3, 9)))
    for wrong in ({"capacities": [1]}, {"capacities": {"foo": 1}}, {"fit": 5}, {"name": 5}, {"progress": 5}):
        with pytest.raises(rtlstm.ConfigurationError, match=f"{next(iter(wrong))} must be"):
            rtlstm.compile(network, folder=tmp_path / "b", **wrong)
    for wrong, message in (
        ({"capacities": {"headroom": "x"}}, "capacity headroom must be a whole number, not 'x'"),
        ({"capacities": {"inputs": 2.5}}, r"capacity inputs must be a whole number, not 2\.5"),
        ({"bus": None}, "^`bus` must be a valid string, not None$"),
        ({"bus": "spi"}, "^`bus` must be one of none, axi"),
        ({"family": "z80"}, "^`family` must be one of "),
    ):
        with pytest.raises(rtlstm.ConfigurationError, match=message):
            rtlstm.compile(network, folder=tmp_path / "b", **wrong)
    assert not (tmp_path / "b").exists()
    # What a message names.
    assert rtlstm.compile(network, folder=tmp_path / "b", capacities={}).manifest.capacities


def test_mistakes_with_a_build_are_named(build: rtlstm.Build):
    with pytest.raises(rtlstm.InputError, match="x must be an array of numbers"):
        build.simulate(x=[[1.0, 2.0, 3.0], [4.0]])
    with pytest.raises(rtlstm.InputError, match="lengths must be an array of numbers"):
        build.simulate(x=np.zeros((4, 2, 3)), lengths=[[1], [2, 3]])
    with pytest.raises(rtlstm.ConfigurationError, match="^`device` must be a valid string, not 5$"):
        build.implement(5)
    with pytest.raises(rtlstm.ConfigurationError, match="^`board` must be a valid string, not None$"):
        build.bitstream(None)
    with pytest.raises(
        rtlstm.ConfigurationError, match="^`simulator` must be 'verilator' or 'icarus', not 'golden'$"
    ):
        build.simulate(simulator="golden")


@pytest.mark.slow
def test_zynq_board_gets_its_folder(tmp_path: Path):
    made = rtlstm.compile(
        random_network(), folder=tmp_path / "z", lanes=4, macs=4, family="xilinx", bus="axilite"
    )
    project = made.bitstream("zybo-z7-20")
    assert all((made.folder / "boards" / "zybo-z7-20" / file).is_file() for file in project.files)
    with pytest.raises(rtlstm.ConfigurationError, match="leave out `baud`, `seed` and `insist"):
        made.bitstream("zybo-z7-20", seed=2)


def test_norms_of_an_lstm_are_public():
    norms = rtlstm.LstmNorms(cell=rtlstm.Norm(values=2))
    lstm = rtlstm.Lstm(w_ih=np.ones((8, 3)), w_hh=np.ones((8, 2)), bias=np.zeros(8), norms=norms)
    assert list(lstm.norms.each) == ["cell"]
