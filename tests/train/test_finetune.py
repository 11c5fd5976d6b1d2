"""Training on a network's own float outputs, in Python and from the command line."""

import copy
import importlib
import json

import numpy as np
import pytest
from support import nam_files
from support.lazy import nets, nn, torch, train
from support.quick import quick
from typer.testing import CliRunner

import rtlstm
from rtlstm.cli.main import app
from rtlstm.sim.reference import run_float
from rtlstm.spec.adders import count_digits
from rtlstm.spec.errors import ConfigurationError, InputError


@pytest.fixture
def model():
    torch.manual_seed(0)
    net = nets.Net(
        lambda net, x: torch.tanh(net.head(net.lstm(x)[0])), lstm=nn.LSTM(4, 12), head=nn.Linear(12, 2)
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter *= 2.0
    return net


@pytest.fixture
def data():
    return np.cumsum(np.random.default_rng(0).normal(size=(40, 120, 4)), axis=0) * 0.2


REQUEST = {"updates": 120, "sequences": 24, "steps": 20}


def test_three_bits_come_closer_to_the_float_network(model, data):
    seen = []
    result = train.finetune(
        model,
        data,
        request=train.FinetuneRequest(**REQUEST),
        weight_bits=3,
        data_bits=8,
        progress=lambda what, done, total: seen.append((what, done, total)),
    )
    report = result.report
    assert report.helped and not report.diverged
    assert report.trained.rms < 0.85 * report.rounded.rms
    # Training begins as ``generate`` rounds, so that changes cancel, and not with the nearest weights.
    assert report.first == report.rounded
    plain = rtlstm.gen.quantise.quantiser.quantise(
        result.module.network, rtlstm.QuantizationSettings(weight_bits=3, data_bits=8), data
    )
    for ours, theirs in zip(plain.layers, result.module.rounded_only().layers, strict=True):
        np.testing.assert_equal(vars(ours), vars(theirs))
    quick = train.FinetuneRequest(updates=1)
    nearest = train.finetune(model, data, request=quick, weight_bits=3, data_bits=8, quick=True).report
    assert report.trained.rms < 0.5 * nearest.rounded.rms and report.steps == 24 * 40
    assert seen[-1] == ("train", report.updates, 120)


def test_training_gives_the_same_again(model, data):
    request = train.FinetuneRequest(**REQUEST | {"updates": 12})
    one, other = (
        train.finetune(model, data, request=request, weight_bits=3, data_bits=8, quick=True) for _ in range(2)
    )
    assert one.report == other.report and one.report.updates == 12
    states = one.module.state_dict(), other.module.state_dict()
    assert all(
        torch.equal(a, b) for a, b in zip(*(s.values() for s in states), strict=True) if torch.is_tensor(a)
    )


def test_ranges_are_trained_at_their_own_rate(model, data):
    request = train.FinetuneRequest(**REQUEST | {"updates": 20, "range_rate": 0.2, "rate": 1e-3})
    options = {"weight_bits": {"lstm": 2, "head": 4}, "data_bits": 6, "weight_normalisation": True}
    result = train.finetune(model, data, request=request, train_ranges=True, **options)
    assert result.report.trained.rms < result.report.first.rms
    q = result.module
    # Further than at the rate of the weights: they began in the middle of powers of two.
    moved = q.ranges.log_ranges.detach() % 1.0 - 0.5
    assert float(moved.abs().max()) > 20 * request.rate
    assert q.quantised().numerics.weight_bits == 4


def test_a_network_of_both_directions_learns_from_whole_sequences(data):
    torch.manual_seed(1)
    model = nn.LSTM(4, 6, bidirectional=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2.0
    lengths = np.random.default_rng(1).integers(5, 40, data.shape[1], endpoint=True)
    result = train.finetune(
        model,
        data,
        lengths=lengths,
        request=train.FinetuneRequest(**REQUEST | {"updates": 40}),
        weight_bits=3,
        data_bits=8,
    )
    assert result.report.trained.rms < result.report.rounded.rms


def test_few_sequences_are_held_out_whole(model, data):
    """One of three; its steps follow none that training saw."""
    request = train.FinetuneRequest(**(REQUEST | {"updates": 4}))
    report = train.finetune(model, data[:, :3], request=request, weight_bits=3, data_bits=8).report
    assert report.steps == 40


def test_pieces_go_on_in_the_state_that_the_network_reached():
    """And float ones where a sequence ends; every piece has its turn."""
    module = importlib.import_module("rtlstm.train.finetune")
    sequence = torch.tensor([0, 1, 2, 0, 1, 0])
    numbers = torch.arange(6.0)
    pieces = module._Pieces(
        numbers[None, :, None], torch.ones(1, 6, 1, dtype=torch.bool), ([numbers[:, None]], []), [], sequence
    )
    assert pieces.following().tolist() == [3, 4, -1, 5, -1, -1]
    walk, met, before = module._Walk(pieces, 2, np.random.default_rng(0)), set(), []
    for _ in range(40):
        batch = walk.next()
        now, (h, _) = batch.x[0, :, 0], batch.state
        met |= set(now.tolist())
        for number, begun, old in zip(now.tolist(), h[0][:, 0].tolist(), before, strict=False):
            goes_on = pieces.following()[int(old)] == number
            assert begun == (100.0 + old if goes_on else number)
            assert goes_on or number < 3
        before = now.tolist()
        walk.go_on(([(100.0 + now)[:, None].requires_grad_()], []), None)
        assert not walk.next().state[0][0].requires_grad
    assert met == set(range(6))


def test_columns_are_fixed_one_after_the_other(model, data):
    """Without training between them, the integers are those of ``generate``; what was fixed stays."""
    q = train.prepare(model, calibration=data, weight_bits=3, data_bits=8)
    weights = copy.deepcopy(q.weights.state_dict())
    q.begin_cancelling()
    q.weights.load_state_dict(weights)
    rows = q.rows[0]
    q.fix(0.5)
    masks, values = zip(*(rows.fixed[name] for name in ("w_in", "w_rec")), strict=True)
    assert sum(int(mask[0].sum()) for mask in masks) == 8
    half = rows(q.weights()[0])["w_rec"].detach()
    assert torch.equal(half[masks[1]], values[1][masks[1]])
    assert not torch.equal(half, rows(q.weights()[0], whole=True)["w_rec"])
    # Gradients reach what is not fixed, and only that.
    q(torch.from_numpy(data).float()).sum().backward()
    gradient = q.weights.layers[0]["w_hh"].grad
    assert (gradient[masks[1]] == 0).all() and (gradient[~masks[1]] != 0).any()
    other = copy.deepcopy(q)
    q.fix(1.0)
    q.settle()
    assert rows.fixed is None
    for ours, theirs in zip(q.quantised().layers, q.rounded_only().layers, strict=True):
        np.testing.assert_equal(vars(ours), vars(theirs))
    with torch.no_grad():
        for parameter in other.weights.parameters():
            parameter += 0.3
    other.fix(1.0)
    other.settle()
    end = other.rows[0](other.weights()[0])["w_rec"].detach()
    assert torch.equal(end[masks[1]], values[1][masks[1]])
    assert not torch.equal(end, rows(q.weights()[0])["w_rec"])


def test_the_gap_to_new_sequences_is_told(model):
    """Two short sequences of noise are learned by heart; many teach what all have in common."""
    rng = np.random.default_rng(3)
    request = train.FinetuneRequest(updates=80, sequences=16, steps=12)
    options = {"weight_bits": 3, "data_bits": 8}
    with pytest.warns(rtlstm.NoteWarning, match="give more sequences") as told:
        few = train.finetune(model, rng.normal(size=(12, 2, 4)), request=request, **options).report
    assert few.warning in [str(each.message) for each in told]
    assert few.trained_on[1].rms < 0.7 * few.trained_on[0].rms
    many = train.finetune(model, rng.normal(size=(12, 150, 4)), request=request, **options).report
    assert not many.warning


def test_the_network_is_the_better_one(model, data):
    """Whatever training does: at such a rate nothing is learned."""
    request = train.FinetuneRequest(**REQUEST | {"updates": 20, "rate": 1.0})
    result = train.finetune(model, data, request=request, weight_bits=4, data_bits=8)
    assert not result.report.helped
    assert result.report.trained == result.report.first == result.report.rounded
    for ours, theirs in zip(result.network.layers, result.module.rounded_only().layers, strict=True):
        np.testing.assert_equal(vars(ours), vars(theirs))
    request = train.FinetuneRequest(**REQUEST | {"updates": 40})
    helped = train.finetune(model, data, request=request, weight_bits=4, data_bits=8)
    assert helped.report.helped
    for ours, theirs in zip(helped.network.layers, helped.module.quantised().layers, strict=True):
        np.testing.assert_equal(vars(ours), vars(theirs))


def test_one_long_sequence_is_split_in_time(model, data):
    long = data[:, :12].reshape(-1, 4)
    request = train.FinetuneRequest(**(REQUEST | {"updates": 20}))
    assert train.finetune(model, long, request=request, weight_bits=3, data_bits=8).report.steps == 96


def test_too_few_data_are_said(model):
    with pytest.raises(InputError, match="2 sequences or more"):
        train.finetune(model, np.zeros((6, 1, 4)), weight_bits=3)
    with pytest.raises(InputError, match="one of 3 steps"):
        train.finetune(model, np.zeros((60, 1, 4)), lengths=[3], weight_bits=3)


def test_pruning_while_training(model, data):
    array = {"lanes": 16, "macs": 2}
    request = train.FinetuneRequest(**REQUEST | {"updates": 60}, prune=0.5)
    seen = []
    result = train.finetune(
        model,
        data,
        request=request,
        array=array,
        weight_bits=6,
        data_bits=8,
        progress=lambda what, done, total: seen.append(what),
    )
    pruned = result.module.cycles(**array)
    assert pruned.kept <= 0.55 * pruned.words
    stages = result.report.stages
    assert (stages[0].share, stages[0].kept) == (0.0, pruned.words)
    assert (stages[-1].kept, stages[-1].array_cycles) == (pruned.kept, pruned.cycles.array_cycles)
    cycles = [stage.array_cycles for stage in stages]
    assert cycles == sorted(cycles, reverse=True)
    assert f"train, 50% pruned, {cycles[-1]} array cycles" in seen


@pytest.mark.slow
def test_most_updates_may_be_in_float_and_pieces_mixed(model, data):
    array = {"lanes": 16, "macs": 2}
    asked = {"prune": 0.4, "prune_among": "network", "in_float": 0.8, "mixed": 0.5}

    def run():
        request = train.FinetuneRequest(**REQUEST | asked)
        return train.finetune(model, data, request=request, array=array, weight_bits=6, data_bits=8)

    result = run()
    stages = result.report.stages
    assert stages[-1].kept <= 0.65 * stages[0].kept
    assert stages[-1].interval_cycles < stages[0].interval_cycles
    assert result.module.rounding
    # It has learned: as many words that go at once, without training, cost more.
    untrained = train.FinetuneRequest(**REQUEST | asked | {"rate": 1e-9})
    worse = train.finetune(model, data, request=untrained, array=array, weight_bits=6, data_bits=8)
    assert result.report.trained.rms < 0.9 * worse.report.trained.rms
    assert run().report == result.report


def test_words_go_in_stages_most_of_them_early():
    schedule = train.FinetuneRequest(updates=800, prune=0.5).pruning_schedule()
    assert list(schedule) == [50, 100, 150, 200, 250, 300, 350, 400]
    shares = np.array([0.0, *schedule.values()])
    assert shares[-1] == 0.5
    gone = np.diff(shares)
    assert (gone > 0).all()
    assert (np.diff(gone) < 0).all()
    assert train.FinetuneRequest(updates=1, prune=0.5).pruning_schedule() == {1: 0.5}
    assert train.FinetuneRequest(updates=800).pruning_schedule() == {}


def diverge(monkeypatch, at):
    """Make the gradients of one update NaN."""
    real, calls = nn.utils.clip_grad_norm_, []

    def clip(parameters, limit):
        parameters = list(parameters)
        calls.append(limit)
        if len(calls) == at:
            parameters[0].grad.fill_(float("nan"))
        return real(parameters, limit)

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", clip)


def test_what_diverges_keeps_the_best_weights(model, data, monkeypatch):
    request = train.FinetuneRequest(**REQUEST | {"updates": 40})
    diverge(monkeypatch, 38)
    result = train.finetune(model, data, request=request, weight_bits=3, data_bits=8)
    assert result.report.diverged and result.report.updates == 38
    assert result.report.trained.rms < result.report.first.rms
    result.module.check_finite()


def test_what_diverges_before_it_is_pruned_is_said(model, data, monkeypatch):
    request = train.FinetuneRequest(**REQUEST, prune=0.5)
    diverge(monkeypatch, 5)
    with pytest.raises(ConfigurationError, match="smaller learning rate"):
        train.finetune(
            model, data, request=request, array={"lanes": 16, "macs": 2}, weight_bits=6, data_bits=8
        )


def run(*arguments):
    """Call ``rtlstm generate`` on the state dict."""
    given = ["generate", *arguments, "--dense", "head:tanh"]
    return CliRunner().invoke(app, [str(argument) for argument in given])


def save(folder, model, data):
    torch.save(model.state_dict(), folder / "model.pt")
    np.save(folder / "x.npy", data)
    return folder / "model.pt", folder / "x.npy"


@pytest.mark.slow
def test_the_command_builds_what_it_trained(model, data, tmp_path):
    file, x = save(tmp_path, model, data)
    folder = tmp_path / "build"
    options = ["--weight-bits", 3, "--data-bits", 8, "--lanes", 8, "--macs", 2, "--finetune-updates", 120]
    done = run(file, "-o", folder, "--finetune", x, *options, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["finetuned"]["helped"]
    assert found["finetuned"]["trained"]["rms"] < found["finetuned"]["rounded"]["rms"]
    build = rtlstm.Build(folder)
    assert "trained" in build.report().notes[0] and build.report().trained
    assert "largest error against the trained weights in float" in (folder / "report.html").read_text()
    assert "error against the trained weights in float" in repr(build._facts())
    y, _ = build.run(data[:, 96:])
    rms = np.sqrt(np.mean((y - model(torch.from_numpy(data[:, 96:]).float()).detach().numpy()) ** 2))
    assert rms == pytest.approx(found["finetuned"]["trained"]["rms"], rel=1e-3)


@pytest.mark.usefixtures("without_verilog")
def test_spatial_builds_get_weights_of_few_digits(model, data, tmp_path):
    """Of what was trained, that with the fewest adders is built whose error is about the least."""
    file, x = save(tmp_path, model, data)
    folder = tmp_path / "build"
    options = ["--array", "spatial", "--weight-bits", 4, "--data-bits", 8, "--finetune-updates", 40]
    done = run(file, "-o", folder, "--finetune", x, *options, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    trials = found["finetuned"]["digits"]
    assert [trial["digit_price"] for trial in trials] == [0.0, 0.15, 0.3, 0.6]
    (built,) = (trial for trial in trials if trial["built"])
    assert built["adders"] == found["report"]["spatial"]["adders"]
    good = [trial for trial in trials if trial["rms"] <= 1.02 * min(each["rms"] for each in trials)]
    assert built in good and built["adders"] == min(trial["adders"] for trial in good)
    assert found["finetuned"]["helped"] and found["finetuned"]["trained"]["rms"] == built["rms"]


def test_a_price_of_digits_leaves_fewer(model, data):
    """At a high price, nearly all weights are single digits; those of h have their columns' inputs."""
    request = train.FinetuneRequest(**REQUEST | {"updates": 30})
    digits, errors = [], []
    for price in (0.0, 0.3, 4.0):
        asked = request.replace(digit_price=price)
        result = train.finetune(model, data, request=asked, weight_bits=5, data_bits=8)
        layer = result.module.quantised().layers[0]
        digits.append(int(count_digits(layer.w_hh).sum()))
        errors.append(result.report.trained.rms)
    assert digits[0] > digits[1] > digits[2] and errors[1] < errors[2]


@pytest.mark.slow
def test_the_command_keeps_the_rounded_weights_if_training_does_not_help(model, data, tmp_path):
    file, x = save(tmp_path, model, data)
    folder = tmp_path / "build"
    options = ["--finetune-updates", 1, "--lanes", 4, "--macs", 2]
    done = run(file, "-o", folder, "--finetune", x, *options)
    assert done.exit_code == 0, done.output
    assert "rounded only" in done.output
    report = rtlstm.Build(folder).report()
    helped = any("trained in this arithmetic" in note for note in report.notes)
    assert ("Training did not help" in done.output) != helped == report.trained
    assert ("error against the trained weights in float" in done.output) == helped


@pytest.mark.parametrize(
    "more, message",
    [
        (["--calibrate", "x.npy"], "leave out --calibrate"),
        (["--loadable"], "leave out --loadable"),
        (["--finetune-prune", 0.5], "--skip-zeros"),
    ],
)
def test_the_command_refuses_what_does_not_go_together(model, data, tmp_path, more, message):
    file, x = save(tmp_path, model, data)
    more = [x if option == "x.npy" else option for option in more]
    done = run(file, "-o", tmp_path / "build", "--finetune", x, *more)
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


@pytest.mark.usefixtures("without_verilog")
@pytest.mark.parametrize("sequences", quick([1, 6], 6))
def test_amplifiers_are_trained_from_their_own_state(tmp_path, sequences):
    file = nam_files.save(tmp_path, nam_files.content()[0])
    result = rtlstm.read_model(file)
    x = np.random.default_rng(0).uniform(-1, 1, (60, sequences, 1))
    request = train.FinetuneRequest(updates=2, steps=10)
    found = train.finetune(file, x, request=request, weight_bits=3, data_bits=8)
    held, state = (slice(None), slice(-1, None)), result.initial_state_of(1)
    if sequences == 1:
        # Steps that are cut off a sequence begin in the state that the float network has there.
        reached, held = run_float(result.network, x[:48], state), (slice(48, None), slice(None))
        state = reached.h, reached.c
    y, _ = rtlstm.compile(found.module, folder=tmp_path / "build").run(x[held], state=state)
    error = y - run_float(result.network, x[held], state).y
    assert found.report.trained.rms == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)
    assert (tmp_path / "build" / "state.npz").exists()


def test_options_of_training_without_data_are_refused(model, data, tmp_path):
    file, _ = save(tmp_path, model, data)
    done = run(file, "-o", tmp_path / "build", "--finetune-updates", 5)
    assert done.exit_code != 0
    assert "give it data" in " ".join(done.output.split())


def test_requests_are_checked():
    with pytest.raises(ConfigurationError, match="updates"):
        train.FinetuneRequest(updates=0)
