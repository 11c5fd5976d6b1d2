"""Networks trained in the hardware's arithmetic, with their accuracy in float, rounded only, and trained.

    python examples/training/tasks.py adding digits            # seconds
    python examples/training/tasks.py keywords                 # minutes
    python examples/training/tasks.py silero gait gait_labelled    # minutes; data are fetched with pip
    python examples/training/tasks.py uzmorph arabic               # minutes; the same

Each task prints one table, on data that training never saw, with its seed and its time. ``adding``,
``digits``, ``keywords`` and ``gait_labelled`` train with labels, in a loop of their own, and so does
``uzmorph``, with the probabilities of its float network's tags. The others are published models and learn
what their float networks give, without labels; ``silero_pruned`` loses half of its weights, too. Needs
``rtlstm[torch]``; ``digits`` scikit-learn, those of silero ``rtlstm[onnx]`` and onnxruntime, those of the
gait ``rtlstm[keras]``. The speech for ``keywords``, and to train those of silero on, is made by espeak-ng.
"""

import argparse
import copy
import itertools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import RtlstmError
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.train import FinetuneRequest, Prepared, finetune, prepare
from rtlstm.train.module import Steps

sys.path.insert(0, str(Path(__file__).parents[1]))

__all__ = [
    "TASKS",
    "Row",
    "adding",
    "arabic",
    "digits",
    "gait",
    "keywords",
    "silero",
    "silero_pruned",
    "uzmorph",
]

SEED = 0
PARTS, SCENES, STEPS = 30, 20, 500
"""Speech to train silero VAD on: parts, of each the scenes, of each the steps of 32 ms."""
INPUT_RANGE = 8.0
"""Where the input of silero VAD's LSTM saturates: the few values beyond it matter less than a finer step."""
FLIPS = "decisions changed, %"
PRUNED_ARRAY = {"lanes": 4, "macs": 1}
"""Words of the four gates of one unit, for one input."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Row:
    """A task's figures at one width of the weights."""

    task: str
    metric: str
    weight_bits: int
    in_float: float
    rounded: float
    """Rounded only, as ``rtlstm generate`` does it."""
    trained: float
    seconds: float
    """Of training the rounded network."""
    cycles: tuple[int, int] | None = None
    """Of a step, before and after pruning."""
    array_cycles: tuple[int, int] | None = None
    """Those of the array between input and output."""


class EveryStep(nn.Module):
    """LSTM layers with a linear layer on every step."""

    def __init__(self, inputs: int, units: int, layers: int, outputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, units, num_layers=layers)
        self.head = nn.Linear(units, outputs)

    def forward(self, x: Any) -> Any:
        """Return ``(T, N, outputs)`` for ``(T, N, inputs)``."""
        return self.head(self.lstm(x)[0])


class LastStep(nn.Module):
    """An LSTM with a linear layer on its last step."""

    def __init__(self, inputs: int, units: int, outputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, units)
        self.head = nn.Linear(units, outputs)

    def forward(self, x: Any) -> Any:
        """Return ``(N, outputs)`` for ``(T, N, inputs)``."""
        return self.head(self.lstm(x)[0][-1])


class Streams(nn.Module):
    """A prepared network that goes on with the state of the call before."""

    def __init__(self, network: Prepared) -> None:
        super().__init__()
        self.network = network
        self.state: Any = None

    def forward(self, x: Any) -> Any:
        """Return ``(T, N, outputs)`` for ``(T, N, inputs)``."""
        y, state = self.network(x, self.state)
        self.state = tuple(each.detach() for each in state) if isinstance(state, tuple) else state.detach()
        return y


def fit(
    module: nn.Module,
    draw: Callable[[], tuple[Any, Any]],
    loss: Callable[..., Any],
    updates: int,
    rate: float,
    progress: Progress | None = None,
    judge: Callable[[], float] | None = None,
) -> None:
    """An ordinary training loop: it knows nothing of rounding.

    With ``judge``, ten states of the second half are judged, and the best one is kept.
    """
    best, kept = -math.inf, None
    optimizer = torch.optim.Adam(module.parameters(), rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates, 0.02 * rate)
    for done in range(1, updates + 1):
        x, wanted = draw()
        optimizer.zero_grad()
        loss(module(x), wanted).backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        decay.step()
        if progress:
            progress("train", done, updates)
        if judge and 2 * done > updates and done % max(1, updates // 20) == 0 and (found := judge()) > best:
            best, kept = found, copy.deepcopy(module.state_dict())
    if kept is not None:
        module.load_state_dict(kept)


def labelled(
    task: str,
    metric: str,
    model: nn.Module,
    typical: Any,
    draw: Callable[[], tuple[Any, Any]],
    loss: Callable[..., Any],
    score: Callable[[Any], float],
    updates: tuple[int, int],
    widths: tuple[int, ...],
    rate: float = 0.002,
    progress: Progress | None = None,
    **numbers: Any,
) -> list[Row]:
    """Train a model in float, then with weights of each width, with the same labels."""
    fit(model, draw, loss, updates[0], 0.01, progress)
    with torch.no_grad():
        in_float = score(model)
    rows = []
    for weight_bits in widths:
        q = prepare(model, calibration=typical, weight_bits=weight_bits, **numbers)
        rows.append(narrowed(task, metric, in_float, q, draw, loss, score, updates[1], rate, progress))
    return rows


def narrowed(
    task: str,
    metric: str,
    in_float: float,
    q: Prepared,
    draw: Callable[[], tuple[Any, Any]],
    loss: Callable[..., Any],
    score: Callable[[Any], float],
    updates: int,
    rate: float,
    progress: Progress | None,
    judge: Callable[[Callable[[Any], Any]], float] | None = None,
) -> Row:
    """Train a prepared network; ``score`` and ``judge`` take the golden model as a function."""
    plain = q.rounded_only()
    begin = time.perf_counter()
    judged = None if judge is None else partial(_judge, judge, q)
    fit(q, draw, loss, updates, rate, progress, judged)
    seconds = time.perf_counter() - begin
    rounded, trained = (score(_golden(each, q.form.steps)) for each in (plain, q.quantised()))
    return Row(task, metric, q.settings.weight_bits, in_float, rounded, trained, seconds)


def _judge(judge: Callable[[Callable[[Any], Any]], float], q: Prepared) -> float:
    return judge(_golden(q.quantised(), q.form.steps))


def _golden(network: QuantizedNetwork, steps: Steps) -> Callable[[Any], Any]:
    """The golden model as a function from inputs to outputs of all steps, or of the last one."""

    def run(x: Any) -> Any:
        y = Golden(network).run(network.numerics.quantise_input(x.double().numpy())).y
        return torch.from_numpy(network.shapes[-1].output.to_floats(y if steps == "all" else y[-1]))

    return run


def adding(weight_bits: int = 4, progress: Progress | None = None) -> list[Row]:
    """The adding problem (Hochreiter and Schmidhuber 1997): the sum of the two marked of 20 numbers."""
    torch.manual_seed(SEED)
    draws = torch.Generator().manual_seed(SEED)

    def draw(count: int = 64, steps: int = 20) -> tuple[Any, Any]:
        values = torch.rand(steps, count, generator=draws)
        marks = torch.zeros(steps, count)
        for half in (slice(0, steps // 2), slice(steps // 2, steps)):
            at = torch.randint(half.start, half.stop, (count,), generator=draws)
            marks[at, torch.arange(count)] = 1.0
        return torch.stack([values, marks], dim=2), (values * marks).sum(dim=0)[:, None]

    typical, (x, wanted) = draw(128)[0], draw(2000)

    def score(model: Any) -> float:
        return 100.0 * float(((model(x) - wanted).abs() < 0.1).double().mean())

    metric = "sums within 0.1, %"
    model = LastStep(2, 24, 1)
    return labelled(
        "adding problem", metric, model, typical, draw, nn.functional.mse_loss, score, (900, 500),
        (weight_bits,), data_bits=8, hidden_bits=8, output_bits=12,
    )  # fmt: skip


def digits(weight_bits: int = 4, progress: Progress | None = None) -> list[Row]:
    """Handwritten digits of 8 x 8 pixels (scikit-learn), row by row; every fifth is held out."""
    from sklearn.datasets import load_digits

    torch.manual_seed(SEED)
    draws = torch.Generator().manual_seed(SEED)
    data = load_digits()
    images = torch.from_numpy(data.images / 16.0).float().transpose(0, 1)
    labels = torch.from_numpy(data.target)
    held_out = torch.arange(len(labels)) % 5 == 4
    x, wanted = images[:, held_out], labels[held_out]
    mine, theirs = images[:, ~held_out], labels[~held_out]

    def draw() -> tuple[Any, Any]:
        at = torch.randint(0, len(theirs), (128,), generator=draws)
        return mine[:, at], theirs[at]

    def score(model: Any) -> float:
        return 100.0 * float((model(x).argmax(dim=1) == wanted).double().mean())

    model = LastStep(8, 32, 10)
    return labelled(
        "digits, row by row", "recognised, %", model, mine, draw, nn.functional.cross_entropy, score,
        (500, 300), (weight_bits,), data_bits=8, hidden_bits=8, output_bits=8,
    )  # fmt: skip


def keywords(weight_bits: int | None = None, progress: Progress | None = None) -> list[Row]:
    """Ten words made by espeak-ng, in accents and voices that training never heard: synthetic speech."""
    from keywords import BANDS, HELD_OUT, KEYWORDS, TRAINED, make_keywords

    torch.manual_seed(SEED)
    draws = torch.Generator().manual_seed(SEED)
    heard = make_keywords(3000, TRAINED, SEED, progress)
    held_out = make_keywords(1000, HELD_OUT, SEED + 1, progress)
    spoken, words = torch.from_numpy(heard.x).float(), torch.from_numpy(heard.words)
    x, wanted = torch.from_numpy(held_out.x).float(), torch.from_numpy(held_out.words)

    def draw() -> tuple[Any, Any]:
        at = torch.randint(0, len(words), (64,), generator=draws)
        return spoken[:, at], words[at]

    def loss(y: Any, mine: Any) -> Any:
        return nn.functional.cross_entropy(y.mean(dim=0), mine)

    def score(model: Any) -> float:
        return 100.0 * float((model(x).mean(dim=0).argmax(dim=1) == wanted).double().mean())

    return labelled(
        "spoken keywords, synthetic", "recognised, %", EveryStep(BANDS, 64, 2, len(KEYWORDS)),
        spoken[:, :500], draw, loss, score, (1000, 500),
        (4, 2) if weight_bits is None else (weight_bits,), rate=0.004, progress=progress,
        data_bits=8, hidden_bits=8, output_bits=8,
    )  # fmt: skip


def taught(
    task: str,
    metric: str,
    network: Network,
    data: Any,
    score: Callable[[Callable[[Any], Any]], float],
    in_float: float,
    request: FinetuneRequest,
    progress: Progress | None,
    array: dict[str, int] | None = None,
    lengths: Any = None,
    **numbers: Any,
) -> Row:
    """Train a network on what its float network gives; ``score`` takes the golden model as a function."""
    settings = QuantizationSettings(**numbers)
    plain = quantise(network, settings, data, lengths)
    begin = time.perf_counter()
    found = finetune(
        network, data, lengths=lengths, request=request, array=array, progress=progress, **numbers
    )
    seconds = time.perf_counter() - begin

    def run(integers: QuantizedNetwork) -> Callable[[Any], Any]:
        def outputs(x: Any) -> Any:
            y = Golden(integers).run(integers.numerics.quantise_input(x)).y
            return integers.shapes[-1].output.to_floats(y)

        return outputs

    trained = score(run(found.module.quantised()))
    row = Row(task, metric, settings.weight_bits, in_float, score(run(plain)), trained, seconds)
    if not found.report.stages:
        return row
    first, last = found.report.stages[0], found.report.stages[-1]
    return replace(
        row,
        cycles=(first.interval_cycles, last.interval_cycles),
        array_cycles=(first.array_cycles, last.array_cycles),
    )


@dataclass(frozen=True)
class Speech:
    """silero VAD with made speech to train on, and real speech that only judges."""

    network: Network
    data: Any
    """What the network reads of the made speech: steps, sequences, features."""
    held_out: Any
    decided: Any
    """What the float network decides in each step of the real speech."""

    def flips(self, run: Callable[[Any], Any]) -> float:
        """Return how many decisions on the real speech differ from the float network's, in percent."""
        return 100.0 * float(np.mean((run(self.held_out)[:, 0, 0] > 0.5) != self.decided))


@cache
def speech(progress: Progress | None) -> Speech:
    """Fetch network and real speech, and make the speech to train on; it is the same for all tasks."""
    from synthetic_speech import RATE, SCENE, make_speech

    from rtlstm.gen.frontends import read_model
    from rtlstm.zoo.silero import fetch_silero, read_speech, run_float_model

    files = fetch_silero(progress)
    model = read_model(files.model)
    tap = model.report.input
    real = run_float_model(files.model, read_speech(files.speech), tap)
    parts = []
    for part in range(PARTS):
        made = make_speech(SCENES * SCENE / RATE, SEED + part)
        parts.append(run_float_model(files.model, made, tap).features.reshape(SCENES, STEPS, -1))
        if progress:
            progress("make speech", part + 1, PARTS)
    data = np.concatenate(parts).swapaxes(0, 1).astype(np.float64)
    return Speech(model.network, data, real.features[:, None].astype(np.float64), real.probability > 0.5)


def silero(weight_bits: int = 4, progress: Progress | None = None) -> list[Row]:
    """Decisions of silero VAD on 60 s of real speech that differ from the float network's."""
    given = speech(progress)
    request = FinetuneRequest(updates=1000, stop_after=20, seed=SEED)
    row = taught(
        "silero VAD", FLIPS, given.network, given.data, given.flips, 0.0, request, progress,
        weight_bits=weight_bits, data_bits=8, hidden_bits=8, output_bits=8, input_range=INPUT_RANGE,
    )  # fmt: skip
    return [row]


def silero_pruned(weight_bits: int = 8, progress: Progress | None = None) -> list[Row]:
    """The same with half of the words of weights of a small array: so a step takes half of the cycles."""
    given = speech(progress)
    request = FinetuneRequest(
        updates=24000, rate=1e-3, sequences=40, steps=50, in_float=0.9, mixed=0.6, prune=0.5,
        prune_among="network", stop_after=20, seed=SEED,
    )  # fmt: skip
    row = taught(
        "silero VAD, half of the words pruned", FLIPS, given.network, given.data, given.flips, 0.0, request,
        progress, array=PRUNED_ARRAY, weight_bits=weight_bits, data_bits=8, hidden_bits=8, output_bits=8,
        input_range=INPUT_RANGE,
    )  # fmt: skip
    return [row]


def gait(weight_bits: int | None = None, progress: Progress | None = None) -> list[Row]:
    """Phase of a walker's gait (ao_compensation_model): its error on the last fifth of the recording."""
    from rtlstm.zoo.gait import differences, load_gait, phase, read_gait

    path, x, truth = load_gait()
    model = read_gait(path).network
    cut = int(0.8 * len(x))
    held_out, real = x[cut:], truth[cut:]
    name = "mean error of the phase, rad"

    def error(run: Callable[[Any], Any]) -> float:
        return float(differences(phase(run(held_out[:, None])[:, 0]), real).mean())

    in_float = error(lambda given: run_float(model, given).y)
    request = FinetuneRequest(updates=800, rate=2e-3, steps=128, sequences=24, hidden=0.2, seed=SEED)
    pieces = cut // 1000
    data = x[: 1000 * pieces].reshape(pieces, 1000, -1).swapaxes(0, 1)
    rows = []
    for bits in (8, 4, 3, 2) if weight_bits is None else (weight_bits,):
        row = taught(
            "gait phase", name, model, data, error, in_float, request, progress,
            weight_bits=bits, data_bits=8, hidden_bits=8, output_bits=12,
        )  # fmt: skip
        rows.append(row)
    return rows


def gait_labelled(weight_bits: int = 2, progress: Progress | None = None) -> list[Row]:
    """The same, trained with the true phases of the rest of the recording, in float and rounded."""
    from rtlstm.zoo.gait import differences, load_gait, phase, read_gait

    path, x, truth = load_gait()
    model, cut = read_gait(path).network, int(0.8 * len(x))
    typical = x[: 1000 * (cut // 1000)].reshape(-1, 1000, x.shape[1]).swapaxes(0, 1)
    held_out = torch.from_numpy(x[cut:, None])
    samples, wanted = (
        torch.from_numpy(values).float() for values in (x, np.stack([np.sin(truth), np.cos(truth)], axis=1))
    )

    def draws() -> Callable[[], tuple[Any, Any]]:
        """Walk through the recording at 24 places side by side, 128 steps at a time."""
        begins = np.random.default_rng(SEED).integers(0, cut, 24)
        pieces = (np.add.outer(np.arange(128) + first, begins) % cut for first in itertools.count(step=128))

        def draw() -> tuple[Any, Any]:
            at = next(pieces)
            return samples[at], wanted[at]

        return draw

    def loss(y: Any, mine: Any) -> Any:
        size = y.square().sum(dim=-1).clamp_min(1e-3).sqrt()
        apart = 1.0 - (y * mine).sum(dim=-1) / size  # One minus the cosine of the error.
        return apart.mean() + 0.1 * (y - mine).square().mean()

    name = "mean error of the phase, rad"

    def score(run: Callable[[Any], Any]) -> float:
        y = run(held_out)[:, 0].double().numpy()
        return float(differences(phase(y), truth[cut:]).mean())

    def trained(rounding: bool) -> tuple[Prepared, float]:
        q = prepare(
            model, calibration=typical, weight_bits=weight_bits, data_bits=8, hidden_bits=8, output_bits=12
        )
        q.rounding = rounding
        begin = time.perf_counter()
        fit(Streams(q), draws(), loss, 300, 3e-3, progress)
        return q, time.perf_counter() - begin

    trained_in_float, _ = trained(rounding=False)
    with torch.no_grad():
        in_float = score(lambda x: trained_in_float(x.float())[0])
    q, seconds = trained(rounding=True)
    rounded, found = (score(_golden(each, "all")) for each in (q.rounded_only(), q.quantised()))
    return [Row("gait phase, with labels", name, weight_bits, in_float, rounded, found, seconds)]


def uzmorph(weight_bits: int = 4, progress: Progress | None = None) -> list[Row]:
    """Tags of the letters of Uzbek words (uzmorph-nn), whose stems training never saw."""
    from taggers import read_uzbek, same_letters

    metric, letters = "letters with the float network's tag, %", read_uzbek(60000, 1000, SEED)
    return [tags("Uzbek tags", metric, letters, same_letters, weight_bits, 12, 1500, progress)]


def arabic(weight_bits: int = 4, progress: Progress | None = None) -> list[Row]:
    """Segments of Arabic words (arabic-morph-segmenter) that training never saw."""
    from taggers import read_arabic, same_words

    letters = read_arabic(6000, 1000, SEED)
    wanted = letters.float_tags()
    x, lengths = letters.inputs(letters.words.trained)

    def agreement(run: Callable[[Any], Any]) -> float:
        return same_words(letters.tags(run), wanted)

    request = FinetuneRequest(updates=300, sequences=128, stop_after=20, seed=SEED)
    row = taught(
        "Arabic segments", "words with the float network's segments, %", letters.network, x, agreement, 100.0,
        request, progress, lengths=lengths, weight_bits=weight_bits, data_bits=8, hidden_bits=8,
        output_bits=8,
    )  # fmt: skip
    return [row]


def tags(
    task: str,
    metric: str,
    letters: Any,
    agreement: Callable[[Any, Any], float],
    weight_bits: int,
    data_bits: int,
    updates: int,
    progress: Progress | None = None,
) -> Row:
    """Train a tagger to find the tags of its float network as likely as that does.

    At most 1,500 of the words that are not held out choose the state that is kept; the others train.
    """
    from taggers import divergence

    torch.manual_seed(SEED)
    draws = np.random.default_rng(SEED)
    training, choosing = letters.split(min(1500, len(letters.words.trained) // 12))
    x, lengths = training.inputs(training.words.trained[:1000])
    q = prepare(
        letters.network,
        calibration=x,
        calibration_lengths=lengths,
        weight_bits=weight_bits,
        data_bits=data_bits,
    )

    def scored(some: Any) -> Callable[[Callable[[Any], Any]], float]:
        wanted = some.float_tags()
        return lambda run: agreement(some.tags(lambda x: run(torch.from_numpy(x)).numpy()), wanted)

    def draw() -> tuple[Any, Any]:
        return training.lesson(64, draws)

    score, judge = scored(letters), scored(choosing)
    return narrowed(task, metric, 100.0, q, draw, divergence, score, updates, 1e-3, progress, judge)


TASKS: dict[str, Callable[..., list[Row]]] = {
    "adding": adding,
    "digits": digits,
    "silero": silero,
    "silero_pruned": silero_pruned,
    "gait": gait,
    "gait_labelled": gait_labelled,
    "uzmorph": uzmorph,
    "arabic": arabic,
    "keywords": keywords,
}


def show(rows: list[Row], console: Console) -> None:
    """Print a table."""
    table = Table(title=f"{rows[0].task}: {rows[0].metric} (seed {SEED}, one thread)")
    for name in ("weight bits", "float", "rounded only", "trained", "seconds"):
        table.add_column(name, justify="right")
    pruned = any(row.cycles for row in rows)
    if pruned:
        table.add_column("cycles of a step", justify="right")
        table.add_column("input to output", justify="right")
    for row in rows:
        figures = (row.in_float, row.rounded, row.trained)
        cells = [str(row.weight_bits), *(f"{figure:.4g}" for figure in figures), f"{row.seconds:.0f}"]
        cells += [
            f"{before:,} to {after:,}" for before, after in filter(None, (row.cycles, row.array_cycles))
        ]
        table.add_row(*cells)
    console.print(table)


def main(arguments: list[str] | None = None) -> int:
    """Run the tasks that are named."""
    parser = argparse.ArgumentParser(description="Train example networks in the hardware's arithmetic.")
    parser.add_argument("task", nargs="+", choices=sorted(TASKS))
    parser.add_argument("--weight-bits", type=int, help="of the weights; each task has its own default")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console, told = Console(), Console(stderr=True)

    def progress(what: str, done: int, total: int) -> None:
        if done == total or done % 50 == 0:
            told.print(f"{what}: {done} of {total}", highlight=False)

    options = {} if given.weight_bits is None else {"weight_bits": given.weight_bits}
    try:
        for task in given.task:
            show(TASKS[task](progress=progress, **options), console)
    except RtlstmError as error:
        told.print(f"error: {error}", highlight=False)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
