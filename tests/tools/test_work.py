"""Spreading work: in this process, on the workers of a scheduler, and when these are lost."""

import os
import signal
import sys

import cloudpickle
import pytest

from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.tools import work
from rtlstm.tools.work import open_workers

ITEMS = list(range(40))
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def add(shared: list[int], item: int) -> tuple[int, int]:
    return sum(shared) + item, os.getpid()


def fail(shared: list[int], item: int) -> int:
    raise ToolError(f"item {item} fails")


@pytest.fixture(scope="module")
def cluster():
    """Two workers of a scheduler, which the tests reach by its address."""
    distributed = work._import_distributed()
    with work._local_cluster(distributed, 2) as found:
        yield found


def test_this_process_does_all_in_order():
    with open_workers(1) as workers:
        found = list(workers.run(add, [1, 2], ITEMS))
    assert found == [(index, (3 + index, os.getpid())) for index in ITEMS]


def test_killed_worker_loses_nothing(cluster):
    killed = None
    with open_workers(scheduler=cluster.scheduler_address) as workers:
        found = {}
        for index, (total, process) in workers.run(add, [1, 2], ITEMS):
            assert process != os.getpid()
            found[index] = total
            if killed is None:
                killed = process
                os.kill(process, signal.SIGKILL)
        assert found == {index: 3 + index for index in ITEMS}
        # What all items share is there again, too, and errors arrive as they are.
        assert sorted(total for _, (total, _) in workers.run(add, [1, 2], ITEMS[:4])) == [3, 4, 5, 6]
        with pytest.raises(ToolError, match="item 0 fails"):
            list(workers.run(fail, [], [0]))


def test_workers_of_another_version_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(work, "version", lambda name: "99")
    with (
        pytest.raises(ToolError, match=r"must have rtlstm 99, but has \d"),
        open_workers(scheduler=cluster.scheduler_address),
    ):
        pass


def test_what_cannot_be_opened(monkeypatch):
    monkeypatch.setattr(work, "_CONNECT_SECONDS", 0.5)
    with pytest.raises(ConfigurationError, match="at least 1 worker, not 0"), open_workers(0):
        pass
    with (
        pytest.raises(ToolError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9 \("),
        open_workers(scheduler="tcp://127.0.0.1:9"),
    ):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ToolError, match=r"pip install 'rtlstm\[explore\]', or use 1 worker"), open_workers(2):
        pass


def test_workers_of_this_machine_take_work_from_their_command_alone():
    """They listen on a port that any process of the machine reaches."""
    distributed = work._import_distributed()
    with open_workers(2) as workers:
        address = workers._client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        strangers = {"tls": distributed.Security.temporary(), "tcp": None}
        for protocol, keys in strangers.items():
            place = address.replace("tls", protocol, 1)
            with pytest.raises(OSError, match=r".*"), distributed.Client(place, security=keys, timeout=2):
                pass
        assert len(list(workers.run(add, [1], ITEMS[:2]))) == 2


def test_workers_that_do_not_start(monkeypatch):
    started = work._local_cluster
    monkeypatch.setattr(
        work, "_local_cluster", lambda distributed, workers, keys: started(distributed, 0, keys)
    )
    monkeypatch.setattr(work, "_START_SECONDS", 0.2)
    with pytest.raises(ToolError, match=r"2 workers did not start within 0.2 seconds"), open_workers(2):
        pass


@pytest.mark.slow
def test_lost_scheduler_is_told(monkeypatch):
    monkeypatch.setattr(work, "_CONNECT_SECONDS", 1)
    with (
        work._local_cluster(work._import_distributed(), 1) as cluster,
        open_workers(scheduler=cluster.scheduler_address) as workers,
        pytest.raises(ToolError, match=r"the connection to the workers of \S+ was lost"),
    ):
        for _ in workers.run(add, [1], ITEMS):
            cluster.close()
