"""The documentation site: `make docs`. Its source folder is the repository, so that every page
stays where it is.
"""

import sys
from pathlib import Path
from shutil import rmtree
from typing import Any

import laggard

sys.path.insert(0, str(Path(__file__).parent))
import method_pages
import reference
import tutorials

project = "laggard"
author = project_copyright = "the laggard developers"
version = release = laggard.__version__
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "notebooks/*.ipynb"]
exclude_patterns = [".*", "laggard", "results", "build", "notebooks/.*"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "rendering",
]

nb_execution_mode = "off"  # notebooks are shown as they are stored; the tests run them
nb_render_markdown_format = "myst"  # the default draws no tables
myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 3
autodoc_member_order = "bysource"
napoleon_use_ivar = True
python_use_unqualified_type_names = True
html_theme = "furo"
html_title = f"laggard {release}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["start"]  # index.html, which leads to docs/index.html


def setup(app: Any) -> None:
    """Write the pages of methods, and fill in those of the reference as they are read."""
    methods = Path(__file__).with_name("methods")
    app.connect("builder-inited", lambda app: method_pages.write_pages(methods))
    app.connect("build-finished", lambda app, error: rmtree(methods))
    app.connect("source-read", fill_page)


def fill_page(app: Any, name: str, source: list[str]) -> None:
    """Fill in what is made from the code, in place."""
    source[0] = reference.fill(source[0])
    if name == "docs/methods":
        source[0] = method_pages.link_names(source[0])
    if name == root_doc:
        source[0] = source[0].replace("<!-- methods -->", method_pages.trees())
        source[0] = source[0].replace("<!-- tutorials -->", tutorials.gallery())
