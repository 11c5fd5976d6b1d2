"""The site of the pages is built without a warning, has them all, and fetches nothing."""

import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from support.paths import ROOT

PATTERNS = ("*.md", "docs/**/*.md", "examples/**/*.md", "examples/**/*.ipynb")
PAGES = sorted(path.relative_to(ROOT) for pattern in PATTERNS for path in ROOT.glob(pattern))
FETCHED = re.compile(
    r"""(?:<(?:script|img|iframe)[^>]*\ssrc=|<link[^>]*\shref=|url\()\s*["']?(?:https?:)?//[^"')>]*"""
)
"""What a browser loads from elsewhere when it opens a page or a style sheet."""


def test_index_links_every_page_once():
    sections = runpy.run_path(str(ROOT / "docs" / "conf.py"))["sections"]()
    assert list(sections)[:: len(sections) - 1] == ["Start here", "Glossary"]
    linked = sorted(page for pages in sections.values() for page in pages)
    assert linked == sorted(str(page.with_suffix("")) for page in PAGES if page != Path("docs/index.md"))


@pytest.mark.parametrize("module", ["rtlstm", "rtlstm.train"])
def test_page_on_python_has_every_public_name(module: str):
    text = (ROOT / "docs" / "api.md").read_text()
    parts = re.split(r"^\.\. currentmodule:: (\S+)$", text, flags=re.MULTILINE)[1:]
    found = [
        name
        for current, part in zip(parts[::2], parts[1::2], strict=True)
        if current == module
        for name in re.findall(r"^\.\. auto(?:function|class|exception):: (\w+)$", part, re.MULTILINE)
    ]
    assert sorted(found) == sorted(set(import_module(module).__all__) - {"__version__"})


@pytest.mark.parametrize(
    "text", ['<script async src="https://a/x.js">', '<link rel="a" href="//b">', "url(http://c/d.woff)"]
)
def test_what_is_fetched_is_found(text: str):
    assert FETCHED.search(text)


@pytest.mark.slow  # CI has `make docs`, too
def test_site_is_built_without_warning_has_every_page_and_fetches_nothing(tmp_path: Path):
    # As `make docs` builds it, but for the notebooks, which tests/examples/test_notebook.py runs.
    program = Path(sys.executable).with_name("sphinx-build")
    command = [program, "-q", "-W", "--keep-going", "-c", ROOT / "docs", "-d", tmp_path / "cache"]
    command += ["-D", "nb_execution_mode=off"]
    site = tmp_path / "site"
    done = subprocess.run([*command, ROOT, site], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        assert re.search(r"<h1>[^<]", (site / page.with_suffix(".html")).read_text()), page
    formulas = re.findall(r"<math.*?</math>", (site / "docs" / "numerics.html").read_text(), re.DOTALL)
    assert len(formulas) > 20 and any("<mfrac>" in each and "block" in each for each in formulas)
    first = re.search(r"url=([^\"]+)", (site / "index.html").read_text())
    assert first and (site / first[1]).is_file()
    files = [path for ending in ("*.html", "*.css") for path in site.rglob(ending)]
    assert {str(path): found for path in files if (found := FETCHED.findall(path.read_text()))} == {}
