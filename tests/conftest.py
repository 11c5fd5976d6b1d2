"""What all tests share: no lines of progress, and what was found out beside passing, printed at the end."""

import gc
import os

import pytest

# Fixtures of the command line and of builds, for every folder.
pytest_plugins = ["support.commands", "support.kinds", "support.pictures"]

# How long a phase takes, and so whether it is told, depends on the machine. Commands inherit it.
os.environ["RTLSTM_PROGRESS"] = "none"


def pytest_collection_finish() -> None:
    """Take what collection made from the garbage collector, which would look at all of it again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how often each rare case was met: a row for each case, a column for each build."""
    met: dict[str, dict[str, int]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            # A report of the call has the properties; those of setup and teardown would repeat them.
            if getattr(report, "when", None) == "call":
                met |= dict(value for name, value in report.user_properties if name == "rare cases")
    cases = sorted({case for counts in met.values() for case in counts})
    if not cases:
        return
    width = max(map(len, cases))
    terminalreporter.section("rare cases that simulated cores were given")
    terminalreporter.write_line(" " * width + "".join(f"{name:>10}" for name in sorted(met)))
    for case in cases:
        counts = (met[name].get(case, "") for name in sorted(met))
        terminalreporter.write_line(f"{case:{width}}" + "".join(f"{count:>10}" for count in counts))
