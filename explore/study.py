"""The search: Optuna's NSGA-II asks, and a journal keeps what it was told, so that it goes on after anything.

A generation is asked as a whole and told in the order in which it was asked. So the choices follow from the
seed alone, for any number of workers, and also if the search was interrupted and goes on. Each result is kept
as soon as it is there.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter

from rtlstm.explore.metrics import Limit, Metric, unbeaten
from rtlstm.explore.space import Choice, Numbers, Outcome, Point, Proof, Space
from rtlstm.spec.errors import BuildError, ToolError

JOURNAL = "study.journal"
GENERATION = 32
"""Choices of a generation."""
_FITTED = 4
"""One choice of so many has the array of ``--fit``: no other with its bits is estimated to be faster."""
_ATTEMPTS = 8
"""How often the search is asked for a choice that it has not suggested before."""
_DRAWS = 1000
"""How many choices are drawn at random after that."""
_LARGEST_EXCESS = 1e3
"""How far from fitting a choice is of which that is not known."""
_OBJECTIVES = 3
"""Latency, share of the device and metric."""
_WORST = 1e12
"""The objectives of what cannot be built."""
_NAME = "explore"
_ABOUT, _OUTCOME, _PROOF, _NUMBERS = "about", "outcome", "proof:", "numbers:"
_OUTCOMES: TypeAdapter[Outcome] = TypeAdapter(Outcome)
_MEASURED: TypeAdapter[Numbers | str] = TypeAdapter(Numbers | str)


def import_optuna() -> Any:
    """Import Optuna, without its log; ToolError says how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise ToolError(
            f"rtlstm explore needs the package 'optuna' ({error}); install it with: "
            "pip install 'rtlstm[explore]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Study:
    """A study in a folder; open it with :meth:`opened`."""

    def __init__(self, optuna: Any, path: Path, space: Space, seed: int) -> None:
        self._optuna, self._path = optuna, path
        self._storage = _load(optuna, path)
        self._study = optuna.load_study(study_name=_NAME, storage=self._storage)
        self._space, self._seed = space, seed
        self._choices: dict[int, Choice] = {}
        self._seen: set[str] = set()
        self._unseen = self._not_seen()
        kinds = optuna.distributions
        self._distributions = {
            name: kinds.CategoricalDistribution(tuple(range(len(values))))
            if name in ("device", "tables", "hidden_rounding", "wave_front")
            else kinds.IntDistribution(0, len(values) - 1)
            for name, values in space.dimensions.items()
        }

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, space: Space, seed: int, about: Mapping[str, str]) -> Iterator[Self]:
        """Open the study of a folder, or begin one.

        ``about`` is what the study is of, a text for each part: the same study must say the same. Raises
        BuildError if the folder holds a build or the study of something else, cannot be written, another
        process works on it, or it is damaged. Raises ToolError if Optuna is not installed.
        """
        optuna = import_optuna()
        with _alone(folder):
            found = cls(optuna, folder / JOURNAL, space, seed)
            there = found._study.user_attrs.get(_ABOUT)
            if there is None:
                found._study.set_user_attr(_ABOUT, dict(about))
                there = about
            with _damage_told(folder / JOURNAL):
                different = [name for name, text in about.items() if there.get(name) != text]
            if different and not found._has_results():
                # It ended before its first result.
                (folder / JOURNAL).unlink()
                found = cls(optuna, folder / JOURNAL, space, seed)
                found._study.set_user_attr(_ABOUT, dict(about))
            elif different:
                raise BuildError(
                    f"{folder} holds a study that differs in: {', '.join(different)}; choose another folder "
                    f"with `folder`, or delete {folder / JOURNAL}"
                )
            yield found

    def _has_results(self) -> bool:
        kept = any(name.startswith((_NUMBERS, _PROOF)) for name in self._study.user_attrs)
        trials = self._study.get_trials(deepcopy=False)
        return kept or any(_OUTCOME in trial.user_attrs for trial in trials)

    def outcomes(self, *, unfinished: bool = False) -> list[Outcome]:
        """Return what is known of each choice that was tried, in the order of the search.

        ``unfinished``: also of those that were kept in a generation that is not finished.

        Raises BuildError if the journal's records have another form.
        """
        with _damage_told(self._path):
            return [
                _OUTCOMES.validate_python(trial.user_attrs[_OUTCOME])
                for trial in self._trials(finished=not unfinished)
                if trial.state.is_finished() or _OUTCOME in trial.user_attrs
            ]

    def ask(self, total: int) -> list[tuple[int, Choice]]:
        """Return numbers and choices of a generation that are not finished; none if ``total`` were asked.

        The last generation is shorter. No choice comes twice: what the search suggests again is asked for
        anew. A space of no more than ``total`` choices is searched as a whole.
        """
        trials = self._trials()
        first = sum(trial.state.is_finished() for trial in trials) // GENERATION * GENERATION
        last = min(first + GENERATION, total, self._space.size)
        if len(trials) < last:
            self._seen |= {self._choice(trial).key for trial in trials}
            fitted = self._fitted(trials[:first])
            for position in range(len(trials), last):
                if self._space.size <= total:
                    self._try(position, next(self._unseen))
                elif position % _FITTED == 0:
                    turn = position // _FITTED
                    few = self._fewest_bits(turn)
                    self._ask(position, few or self._in_turn(turn) | next(fitted, {}))
                else:
                    self._ask(position, self._in_turn(position - position // _FITTED))
            trials = self._trials()
        return [
            (trial.number, self._choice(trial))
            for trial in trials[first:last]
            if not trial.state.is_finished()
        ]

    def _in_turn(self, turn: int) -> dict[str, int]:
        """Return the index of the device whose turn it is: each has a front of its own, and its share."""
        return {"device": turn % len(self._space.device)}

    def _fewest_bits(self, turn: int) -> dict[str, int]:
        """Return the indices of the array of ``--fit`` with the fewest bits, once for each device.

        What does not fit then never does.
        """
        if None not in self._space.lanes or turn >= len(self._space.device):
            return {}
        return {"device": turn, "lanes": self._space.lanes.index(None)} | self._space.fewest_bits

    def _ask(self, position: int, indices: dict[str, int]) -> None:
        """Ask for a choice that was not seen; the search suggests what is not in these indices.

        If it suggests nothing new, the choice is any of the space.
        """
        if any(self._try(position, indices, attempt) for attempt in range(_ATTEMPTS)):
            return
        rng = np.random.default_rng((self._seed, position))
        sizes = {name: len(values) for name, values in self._space.dimensions.items()}
        for _ in range(_DRAWS):
            drawn = {name: int(rng.integers(size)) for name, size in sizes.items()}
            if self._space.choice(drawn).key not in self._seen:
                self._try(position, drawn)
                return
        self._try(position, next(self._unseen))

    def _try(self, position: int, indices: dict[str, int], attempt: int = 0) -> bool:
        """Ask for a choice with these indices; withdraw it and return False if it was seen."""
        # A sampler for each choice: its random numbers do not depend on what was asked in this process.
        seed = (self._seed * 1_000_003 + position * _ATTEMPTS + attempt) % 2**32
        self._study.sampler = self._optuna.samplers.NSGAIISampler(population_size=GENERATION, seed=seed)
        if indices:
            self._study.enqueue_trial(indices)
        trial = self._study.ask(self._distributions)
        key = self._space.choice(trial.params).key
        if key in self._seen:
            self._withdraw(trial)
            return False
        self._seen.add(key)
        return True

    def _withdraw(self, trial: Any) -> None:
        # Optuna's tell would refuse one that still waits.
        self._storage.set_trial_state_values(trial._trial_id, self._optuna.trial.TrialState.FAIL)

    def _choice(self, trial: Any) -> Choice:
        if trial.number not in self._choices:
            self._choices[trial.number] = self._space.choice(trial.params)
        return self._choices[trial.number]

    def _not_seen(self) -> Iterator[dict[str, int]]:
        """Yield the indices of the choices of the space that have not been seen when it comes to them."""
        for indices in self._space.all_indices():
            if self._space.choice(indices).key not in self._seen:
                yield indices

    def _fitted(self, earlier: Sequence[Any]) -> Iterator[dict[str, int]]:
        """Yield indices of the array of ``--fit``, with the other ones of the best choices so far.

        The first generation has the array alone; the search suggests the others.
        """
        if None not in self._space.lanes:
            return
        array = {"lanes": self._space.lanes.index(None)}
        if not earlier:
            while True:
                yield array
        for trial in _best(earlier):
            indices = trial.params | array
            if self._space.choice(indices).key not in self._seen:
                yield indices

    def keep(self, number: int, outcome: Outcome) -> None:
        """Keep the outcome of a choice, whose generation may not be finished."""
        self._keep(self._trial(number), outcome)

    def _keep(self, trial: Any, outcome: Outcome) -> None:
        trial.set_user_attr(_OUTCOME, outcome.model_dump(mode="json"))

    def _trial(self, number: int) -> Any:
        # This sampler suggests nothing when the trial is opened again.
        self._study.sampler = self._optuna.samplers.RandomSampler()
        study = self._storage.get_study_id_from_name(_NAME)
        return self._optuna.Trial(
            self._study, self._storage.get_trial_id_from_study_id_trial_number(study, number)
        )

    def tell(self, number: int, outcome: Outcome, limits: Sequence[Limit], metric: Metric) -> None:
        """Have the search go on from the outcome of a choice, and keep it if it is not kept yet."""
        trial = self._trial(number)
        if _OUTCOME not in trial.user_attrs:
            self._keep(trial, outcome)
        values = [_WORST] * _OBJECTIVES
        # The search prefers what is nearer to fitting.
        excess = 0.0 if isinstance(outcome, Point) else (outcome.share or _LARGEST_EXCESS) - 1
        constraints = {"fits": min(excess, _LARGEST_EXCESS)}
        if isinstance(outcome, Point):
            values = [outcome.latency_us, outcome.share, metric.cost(outcome.errors)]
            constraints |= {limit.text: limit.excess(outcome) for limit in limits}
        # Some are there if a process ended here.
        for name in constraints.keys() - trial.constraints.keys():
            trial.set_constraint(name, constraints[name])
        self._study.tell(number, values)

    def numbers(self) -> dict[str, Numbers | str]:
        """Return what was measured of choices' numbers, by their keys: a text says why there are none.

        Raises BuildError if the journal's records have another form.
        """
        with _damage_told(self._path):
            return {name: _MEASURED.validate_python(value) for name, value in self._named(_NUMBERS)}

    def keep_numbers(self, key: str, found: Numbers | str) -> None:
        """Keep what was measured of numbers."""
        self._study.set_user_attr(_NUMBERS + key, _MEASURED.dump_python(found, mode="json"))

    def _named(self, prefix: str) -> Iterator[tuple[str, Any]]:
        """Yield what was kept under names that begin so, by the rest of the name."""
        for name, value in self._study.user_attrs.items():
            if name.startswith(prefix):
                yield name.removeprefix(prefix), value

    def proofs(self) -> dict[str, Proof]:
        """Return the proofs of points, by the keys of their choices and how they were proven.

        Raises BuildError if the journal's records have another form.
        """
        with _damage_told(self._path):
            return {name: Proof.model_validate(value) for name, value in self._named(_PROOF)}

    def keep_proof(self, key: str, proof: Proof) -> None:
        """Keep a proof."""
        self._study.set_user_attr(_PROOF + key, proof.model_dump(mode="json"))

    def _trials(self, finished: bool = False) -> list[Any]:
        """Return the trials of choices, in order.

        What a process left when it ended is withdrawn: a trial without all parameters, or one that it would
        have withdrawn, because the choice had come before.
        """
        found, seen = [], set()
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state == self._optuna.trial.TrialState.FAIL:
                continue
            with _damage_told(self._path):
                _check_results(trial)
            whole = len(trial.params) == len(self._distributions)
            if whole and (key := self._choice(trial).key) not in seen:
                seen.add(key)
                found.append(trial)
            elif not trial.state.is_finished():
                self._withdraw(trial)
        return [trial for trial in found if trial.state.is_finished()] if finished else found


def _best(trials: Sequence[Any]) -> list[Any]:
    """Return the trials that no other of their device beats, the fastest first and the devices in turn.

    Only those within the limits, if there are any.
    """
    possible = [trial for trial in trials if trial.values[0] < _WORST]
    within = [trial for trial in possible if max(trial.constraints.values()) <= 0]
    fronts = []
    for device in sorted({trial.params["device"] for trial in possible}):
        mine = [trial for trial in within or possible if trial.params["device"] == device]
        front = [mine[index] for index in unbeaten([trial.values for trial in mine])]
        fronts.append(sorted(front, key=lambda trial: trial.values))
    return [trial for turn in zip_longest(*fronts) for trial in turn if trial is not None]


def _check_results(trial: Any) -> None:
    """Raise ValueError if a finished trial has not what was told of it."""
    if not trial.state.is_finished():
        return
    values, constraints = trial.values or (), trial.constraints.values()
    numbers = all(isinstance(each, int | float) for each in (*values, *constraints))
    if len(values) != _OBJECTIVES or not constraints or not numbers:
        raise ValueError(f"trial {trial.number} must have {_OBJECTIVES} numbers as values, and limits")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    if (folder / "manifest.json").exists():
        raise BuildError(f"a study must not go into a build, as {folder} is one; choose another `folder`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise BuildError(
            f"a study cannot be written to {folder}: {error.strerror}; choose another `folder`"
        ) from None
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BuildError(
                f"another process explores in {folder}; wait for it, or choose another folder with `folder`"
            ) from None
        yield


def _load(optuna: Any, path: Path) -> Any:
    """Return the storage of a study, which is made if there is none."""
    with _damage_told(path):
        storage = optuna.storages.JournalStorage(_journal(optuna, path))
        optuna.create_study(
            storage=storage, study_name=_NAME, directions=["minimize"] * _OBJECTIVES, load_if_exists=True
        )
        return storage


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """Turn what a journal of another form raises into a BuildError."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        what = str(error).partition("\n")[0] or type(error).__name__
        raise BuildError(f"the study {path} is damaged ({what}); delete it to begin again") from None


def _journal(optuna: Any, path: Path) -> Any:
    """Return Optuna's journal in a file; a last line that was not written to its end is cut off."""

    # The base class comes from an extra that is imported when it is asked for: for mypy it is Any.
    class Journal(optuna.storages.journal.JournalFileBackend):  # type: ignore[misc]
        """Without a lock, which this process has, and without waiting for the disk at each line."""

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            with path.open("ab") as file:
                file.write("".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode())

    if path.exists():
        whole = path.read_bytes().rpartition(b"\n")
        with path.open("r+b") as file:
            file.truncate(len(whole[0]) + len(whole[1]))
    return Journal(str(path))
