"""Does what docs/extending.md says, section by section.

A block's first line names its file. A recipe's files are written beside an installed package that has
the entry points of its ``pyproject.toml``; ``diff`` blocks are applied to a copy of the package, which
then stands in front of the installed one. ``prove.py`` must end well.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.packages import install
from support.paths import DOCS, FOLDERS, ROOT
from support.quick import quick

pytestmark = pytest.mark.rtl

FENCE = re.compile(r"^```(\w+)\n(?:#|//) (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MOST_FILES = 2
PROOFS = ("prove.py", "bench.v")


@dataclass(frozen=True)
class Recipe:
    title: str
    files: tuple[str, ...]
    """What the page says is written or edited."""
    blocks: tuple[tuple[str, str, str], ...]
    """Language, file and text of each block."""


def read_page(text: str) -> dict[str, Recipe]:
    found = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        said = re.search(r"^Files: (.*)$", body, re.MULTILINE)
        files = re.findall(r"`([^`]+)`", said[1]) if said else []
        found[title] = Recipe(title, tuple(files), tuple(match.groups() for match in FENCE.finditer(body)))
    return found


PAGE = (DOCS / "extending.md").read_text()
SECTIONS = read_page(PAGE)
RECIPES = {title: recipe for title, recipe in SECTIONS.items() if recipe.files}


def edit(path: Path, text: str) -> None:
    """Apply a diff without line numbers: what a hunk begins with must stand in the file exactly once."""
    for hunk in re.split(r"^@@\n", text, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
        assert {sign for sign, _ in lines} <= {" ", "+", "-", "\n"}, hunk
        before, after = ("".join(rest or "\n" for sign, rest in lines if sign != drop) for drop in "+-")
        old = path.read_text()
        assert old.count(before) == 1, f"{path.name} has {old.count(before)} times\n{before}"
        path.write_text(old.replace(before, after))


def write(recipe: Recipe, folder: Path) -> list[str]:
    """Write what a recipe writes and edit what it edits; return the files that it touches."""
    touched = []
    for language, name, text in recipe.blocks:
        path = folder / name
        if language == "diff":
            if not (folder / FOLDERS[0]).exists():
                copy_package(folder)
            edit(path, text)
        else:
            assert not path.exists(), f"{name} is there already"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if name == "pyproject.toml":
            points = text.replace('[project.entry-points."', "[").replace('"]', "]").replace('"', "")
            install(folder, "plug-in", points)
        if name not in PROOFS:
            touched.append(name)
    return list(dict.fromkeys(touched))


def copy_package(folder: Path) -> None:
    """A checkout's folders, which ``import rtlstm`` finds in front of the installed ones."""
    skipped = shutil.ignore_patterns("__pycache__")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    shutil.copytree(DOCS, folder / DOCS.name)
    (folder / "pyproject.toml").write_text("")


def run_proof(folder: Path) -> subprocess.CompletedProcess[str]:
    # In front of what this process reads: the installed package may be of another tree, which others write.
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "prove.py"], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("title", RECIPES)
def test_recipe_has_the_files_that_it_says(title: str, tmp_path: Path) -> None:
    """At most two, and its changes fit the package."""
    recipe = RECIPES[title]
    assert write(recipe, tmp_path) == list(recipe.files)
    assert len([name for name in recipe.files if not name.startswith("docs/")]) <= MOST_FILES
    for path in tmp_path.glob("*.py"):
        compile(path.read_text(), path.name, "exec")


@pytest.mark.parametrize("title", quick(RECIPES, "An activation function"))
def test_recipe_does_what_it_says(title: str, tmp_path: Path) -> None:
    """One recipe that is a plug-in is quick; those that change the package are slow."""
    (tmp_path / "proof.py").write_text(SECTIONS["Plug-ins"].blocks[0][2])
    write(RECIPES[title], tmp_path)
    done = run_proof(tmp_path)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"


@pytest.mark.slow
def test_without_its_files_a_recipe_fails(tmp_path: Path) -> None:
    """The proof needs the plug-in: it is not the package that knows the function already."""
    recipe = RECIPES["An activation function"]
    (tmp_path / "proof.py").write_text(SECTIONS["Plug-ins"].blocks[0][2])
    (tmp_path / "prove.py").write_text({name: text for _, name, text in recipe.blocks}["prove.py"])
    done = run_proof(tmp_path)
    assert done.returncode != 0 and "activation must be one of identity, relu" in done.stderr
    assert "not 'log_sigmoid'" in done.stderr


def test_the_table_lists_every_recipe_with_its_count() -> None:
    rows = re.findall(r"^\| \[(.*?)\]\(#(.*?)\) \| (\d) \|", PAGE, re.MULTILINE)
    listed = {anchor: int(count) for _, anchor, count in rows}
    anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-"): title for title in RECIPES}
    assert listed == {anchor: len(RECIPES[title].files) for anchor, title in anchors.items()}


def test_a_hunk_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("a = 1\nb = 2\n")
    edit(path, " a = 1\n-b = 2\n+b = 3\n")
    assert path.read_text() == "a = 1\nb = 3\n"
    with pytest.raises(AssertionError, match="has 0 times"):
        edit(path, "-b = 2\n+b = 3\n")
