"""Spreads independent work: over this process, over processes of this machine, or over a cluster.

>>> with open_workers(workers=2) as workers:
...     for index, result in workers.run(function, shared, items):
...         ...

Dask's ``distributed`` (the extra ``explore``) runs the processes and replaces those that are lost. What a
lost one was doing is done again by another, so that nothing is lost with it. Results come in the order in
which they are ready; whoever needs the same outcome for any number of workers sorts them by their index.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.metadata import version
from multiprocessing import resource_tracker
from typing import Any, Protocol, TypeVar

from rtlstm.spec.errors import ConfigurationError, ToolError

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")

_CONNECT_SECONDS = 10
"""How long a scheduler may take to answer."""
_START_SECONDS = 60
"""How long the processes of this machine may take to start."""
_SILENT = logging.CRITICAL + 1
"""What Dask and asyncio log where work is interrupted is no news."""
_NO_WORKERS = "no worker of the scheduler {} answers; start some with: dask worker {}"


class Workers(Protocol):
    """Something that does work, item by item."""

    @property
    def description(self) -> str:
        """What it is, for people."""

    def run(
        self, function: Callable[[Shared, Item], Result], shared: Shared, items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Yield each item's index and ``function(shared, item)``, as they become ready.

        The workers can import ``function``, which may run more than once for an item. ``shared`` is what all
        items need; it is sent to a process once. Raises ToolError if the scheduler is lost, or an item ended
        several workers, or what ``function`` raises; other items are given up then.
        """


@contextmanager
def open_workers(workers: int | None = None, scheduler: str | None = None) -> Iterator[Workers]:
    """Open workers, and close them at the end.

    ``workers`` is the number of processes of this machine; 1 is this process itself, which needs no other
    package; None stands for as many as there are processors for this process. ``scheduler`` is the address of
    a running Dask scheduler, such as ``tcp://host:8786``, whose workers are used instead. Raises
    ConfigurationError if the number of workers is less than 1, or a scheduler is given, too. Raises ToolError
    if ``distributed`` is not installed, the scheduler does not answer, has no workers, or its workers have no
    rtlstm of this version, or the processes of this machine do not start.
    """
    if workers is not None and scheduler is not None:
        raise ConfigurationError(
            "`workers` are processes of this machine, and `scheduler` has its own; give one of them"
        )
    workers = _processors() if workers is None else workers
    if workers < 1:
        raise ConfigurationError(f"there must be at least 1 worker, not {workers}")
    if scheduler is None and workers == 1:
        yield _ThisProcess()
        return
    distributed = _import_distributed()
    if scheduler is not None:
        with _client(distributed, scheduler) as client:
            _check_workers(client, scheduler)
            yield _Cluster(distributed, client, f"the workers of {scheduler}")
        return
    # Without keys that only this command knows, any process of this machine could give them work.
    keys = distributed.Security.temporary()
    with _local_cluster(distributed, workers, keys) as cluster, distributed.Client(cluster) as client:
        try:
            client.wait_for_workers(workers, timeout=_START_SECONDS)
        except TimeoutError:
            raise ToolError(
                f"{workers} workers did not start within {_START_SECONDS:g} seconds; try fewer workers"
            ) from None
        yield _Cluster(distributed, client, f"{workers} workers")


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _ThisProcess:
    """One worker: this process."""

    description = "1 worker"

    def run(
        self, function: Callable[[Shared, Item], Result], shared: Shared, items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        for index, item in enumerate(items):
            yield index, function(shared, item)


class _Cluster:
    """Workers of a Dask scheduler."""

    def __init__(self, distributed: Any, client: Any, description: str) -> None:
        self.description = description
        self._distributed, self._client = distributed, client
        self._sent: tuple[object, Any] | None = None

    def run(
        self, function: Callable[[Shared, Item], Result], shared: Shared, items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        from cloudpickle import dumps

        sent = self._send(shared)
        # Each call is work of its own: equal arguments have no common result that might be forgotten.
        numbers = {
            self._client.submit(_call, dumps((function, item)), sent, pure=False): index
            for index, item in enumerate(items)
        }
        try:
            for future in self._distributed.as_completed(numbers):
                yield numbers[future], self._result(future)
        finally:
            with suppress(Exception):
                self._client.cancel(list(numbers))

    def _send(self, shared: object) -> Any:
        """Return a future of ``shared``.

        It is the result of a task, which holds it pickled, and not data that were scattered: those would be
        lost with their worker.
        """
        if self._sent is None or self._sent[0] is not shared:
            from cloudpickle import dumps

            self._sent = shared, self._client.submit(_load, dumps(shared), pure=False)
        return self._sent[1]

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except self._distributed.KilledWorker:
            raise ToolError(
                "a part of the work ended every worker that took it, perhaps for want of memory; try fewer "
                "workers"
            ) from None
        except (self._distributed.CancelledError, self._distributed.comm.CommClosedError):
            raise ToolError(
                f"the connection to {self.description} was lost; start them and the command again: what was "
                "finished is kept"
            ) from None


def _load(pickled: bytes) -> Any:
    """Unpickle what a task needs: as its work, so that what is not importable here is its error."""
    from cloudpickle import loads

    try:
        return loads(pickled)
    except ImportError as error:
        raise ToolError(f"a worker lacks a module of the work ({error}); install it there") from None


def _call(pickled: bytes, shared: Any) -> Any:
    function, item = _load(pickled)
    return function(shared, item)


def _import_distributed() -> Any:
    try:
        import cryptography  # noqa: F401 - of which Dask makes keys
        import distributed
    except ImportError as error:
        raise ToolError(
            f"several workers need the packages 'distributed' and 'cryptography' ({error}); install it with: "
            "pip install 'rtlstm[explore]', or use 1 worker"
        ) from None
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def dask_setup(worker: object) -> None:
    """Have a worker leave Ctrl-C to the process that started it; Dask calls this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _local_cluster(distributed: Any, workers: int, keys: Any = None) -> Iterator[Any]:
    """Start processes of this machine, one thread each, which listen to those with the TLS ``keys`` alone."""
    # A process leaves Ctrl-C to this one from its start on, because the thread that starts it does. The
    # tracker would let interrupts through again where it is started.
    resource_tracker.ensure_running()
    with _silent("asyncio"), ThreadPoolExecutor(1, initializer=_block_interrupts) as starter:
        starting = starter.submit(
            distributed.LocalCluster,
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            memory_limit=0,
            security=keys,
            preload=[__name__],
            silence_logs=_SILENT,
        )
        try:
            cluster = starting.result()
        except KeyboardInterrupt:
            # Dask cannot end what has not started.
            starting.add_done_callback(_close)
            raise
    with _silent("asyncio"), cluster:
        yield cluster


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep a logger from telling of what was interrupted."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(_SILENT)
    try:
        yield
    finally:
        logger.setLevel(level)


def _close(started: Future[Any]) -> None:
    with suppress(Exception):
        started.result().close()


def _block_interrupts() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


@contextmanager
def _client(distributed: Any, scheduler: str) -> Iterator[Any]:
    try:
        client = distributed.Client(scheduler, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ToolError(
            f"no Dask scheduler answers at {scheduler} ({type(error).__name__}); start one with "
            "'dask scheduler', and give the address that it prints"
        ) from None
    with client:
        yield client


def _check_workers(client: Any, scheduler: str) -> None:
    """Refuse a scheduler without workers, or with workers of another rtlstm."""
    try:
        client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
    except TimeoutError:
        raise ToolError(_NO_WORKERS.format(scheduler, scheduler)) from None
    mine = version("rtlstm")
    for address, found in client.run(_version_there).items():
        if found != mine:
            raise ToolError(
                f"the worker {address} must have rtlstm {mine}, but has {found or 'none'}; install the same "
                "there"
            )


def _version_there() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rtlstm")
    except PackageNotFoundError:
        return None
