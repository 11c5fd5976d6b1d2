"""The site: Sphinx over the pages that tests/test_docs.py runs, and the notebooks, which run here.

``make docs`` builds it in build/site.

The source folder is the repository's root, so that the links between docs/, README.md and the examples' pages
are the same on a repository host and here. Nothing is fetched, by the build or by a reader's browser.
"""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy.typing
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+\.(?:md|ipynb))\)")
NOTE = re.compile(r"\[([^\]]+)\]\((?:\.\./)*((?:notes|newsfragments)/\w+\.md)[^)]*\)")

project = "rtlstm"
root_doc = "docs/index"
# Two hyphens begin an option: they stay two hyphens.
smartquotes = False
include_patterns = ["*.md", "docs/**.md", "examples/**.md", "examples/**.ipynb"]
exclude_patterns = [".*", "build"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

# A notebook is kept without outputs: the site shows those of its own run, in a folder that is removed.
# An error in a cell is a warning with its traceback, and so an error of `make docs`, behind the other pages.
# Warnings of the cells are errors where tests/examples/test_notebook.py runs them.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_show_tb = True
nb_execution_timeout = 300
nb_output_stderr = "remove"  # progress, and what libraries say at their first use
nb_merge_streams = True

autodoc_mock_imports = ["torch"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_use_rtype = False  # a line under "Returns" is a sentence, not a type

highlight_language = "none"  # diagrams stand in blocks without a language

html_theme = "furo"
html_title = "rtlstm"
html_math_renderer = "mathml"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_extra_path = ["site/extra"]
html_static_path = ["site/static"]
html_css_files = ["pages.css"]


def sections() -> dict[str, dict[str, str]]:
    """Return the navigation, which is docs/index.md's: the pages under each heading, and how it names them.

    A page stands where it is linked first. Links to headings do not count.
    """
    found: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    index = ROOT / f"{root_doc}.md"
    for section in re.split(r"^## ", index.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        pages = found.setdefault(heading, {})
        for name, link in LINK.findall(text):
            page = (index.parent / link).resolve().relative_to(ROOT).with_suffix("").as_posix()
            if page not in seen:
                pages[page] = name
                seen.add(page)
    return found


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the navigation to docs/index.md, where a repository host would show it as code."""
    if page == root_doc:
        for heading, pages in sections().items():
            entries = "\n".join(f"{name} </{target}>" for target, name in pages.items())
            source[0] += f"\n```{{toctree}}\n:caption: {heading}\n:hidden:\n\n{entries}\n```\n"


def name_notes(app: Sphinx, page: str, source: list[str]) -> None:
    """Name what is in the repository and not on the site, where the page has a link."""
    source[0] = NOTE.sub(r"\1 (`\2`)", source[0])


def write_math(display: bool) -> Callable[[HTML5Translator, nodes.math | nodes.math_block], None]:
    """Return a writer of formulas as MathML, which browsers draw without a script."""

    def write(self: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
        self.body.append(tex2mathml(node.astext(), as_block=display))
        raise nodes.SkipNode

    return write


def setup(app: Sphinx) -> None:
    """Connect the above to Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("source-read", name_notes)
    app.add_html_math_renderer("mathml", (write_math(False), None), (write_math(True), None))
    # Neither a notebook's kernel nor its client tells of every start.
    os.environ["JUPYTER_PATH"] = str(ROOT / "docs" / "site" / "jupyter")
    logging.getLogger("traitlets").setLevel(logging.WARNING)
    # rtlstm is not imported yet: its signatures show this name instead of the long union behind it.
    numpy.typing.ArrayLike = TypeVar("ArrayLike")
