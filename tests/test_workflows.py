"""The workflows of CI and publishing: what they run is there, and only a tag's last job may publish."""

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT

pytestmark = pytest.mark.rtl
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SHELL = {"mkdir", "mv"}


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def targets() -> set[str]:
    """The targets that ``make`` has, of its own database."""
    done = subprocess.run(["make", "-pnq", "help"], cwd=ROOT, capture_output=True, text=True)
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", done.stdout, re.MULTILINE))


def missing(command: str) -> str:
    """Return what a command needs that is not there; empty if all is."""
    words = command.split()
    if words[0] == "make":
        return "" if words[1] in targets() else f"make has no target {words[1]}"
    if words[0] == "python":
        return "" if (ROOT / words[1]).is_file() else f"there is no {words[1]}"
    return "" if words[0] in SHELL else f"{words[0]} is not known"


def test_there_are_two() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "publish.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_is_run_is_there(path: Path) -> None:
    workflow = load(path)
    # YAML reads the word "on" as true.
    assert workflow[True] and workflow["permissions"] == {"contents": "read"}
    commands = [line for step in steps(workflow) for line in step.get("run", "").splitlines()]
    assert commands and [found for line in commands if (found := missing(line))] == []
    # Others' actions have a version, and each step either runs one or a command.
    for step in steps(workflow):
        assert ("run" in step) != ("uses" in step)
        assert "uses" not in step or re.fullmatch(r"[\w./-]+@(v\d+|release/v\d+)", step["uses"])
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())


def test_what_is_not_there_is_found() -> None:
    assert missing("make nothing PYTHON=python") == "make has no target nothing"
    assert missing("python packaging/nothing.py") == "there is no packaging/nothing.py"
    assert missing("curl somewhere") == "curl is not known"


def test_every_python_of_the_matrix_is_admitted() -> None:
    pythons = load(WORKFLOWS[0])["jobs"]["test"]["strategy"]["matrix"]["python"]
    least = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert least is not None
    versions = [tuple(map(int, each.split("."))) for each in pythons]
    assert min(versions) == tuple(map(int, least.groups())) and len(versions) >= 3


def test_only_the_last_job_may_publish_and_only_by_a_tag() -> None:
    workflow = load(WORKFLOWS[1])
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    jobs = workflow["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and jobs["publish"]["needs"] == "wheels"
    assert "permissions" not in jobs["wheels"]
    # A folder for each project of the matrix, with its wheel.
    moves = "\n".join(step.get("run", "") for step in steps(workflow))
    moved = dict(re.findall(r"^mv build/wheels/(\S+)-\*\.whl build/publish/(\S+)$", moves, re.MULTILINE))
    projects = jobs["publish"]["strategy"]["matrix"]["project"]
    assert moved == {each.replace("-", "_"): each for each in projects} and len(moved) == 2
    assert jobs["publish"]["environment"] == "${{ matrix.project }}"


def test_a_tag_is_the_version_with_its_day() -> None:
    spec = importlib.util.spec_from_file_location("check_tag", ROOT / "packaging" / "check_tag.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    project = '[project]\nversion = "1.2.0"\n'
    assert module.check_tag("v1.2.0", project, "# Changelog\n\n## [1.2.0] - 2026-12-01\n") == ""
    assert "must be v1.2.0" in module.check_tag("v1.2.1", project, "## [1.2.0] - 2026-12-01\n")
    assert "the day of the release" in module.check_tag("v1.2.0", project, "## [1.2.0] - unreleased\n")
