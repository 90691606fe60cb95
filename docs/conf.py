"""Sphinx: the pages of docs/ and the reference of attention/; see `make docs`."""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from training import reference  # noqa: E402

project = "attention-jax"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_templates"]
templates_path = ["_templates"]
html_theme = "furo"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "py:obj"
autodoc_default_options = {"no-value": True}
napoleon_use_ivar = True
autodoc_typehints = "none"  # the docstrings have shapes


def prepare(app, page, source):
    """Puts the pages that an index page links to into the navigation.

    Links to the Markdown files outside of docs/ download them.
    """
    source[0] = re.sub(r"\]\((?=\.\./[A-Z]+\.md)", "](path:", source[0])
    if page.rpartition("/")[2] == "index":
        links = re.findall(r"\]\(((?!\.\.)[\w/-]+)\.md\)", source[0])
        lines = "\n".join(dict.fromkeys(links))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n"


def link_functions(app, tree):
    """Leads links such as [`attend`](../../attention/core.py) to the reference."""
    for node in [*tree.findall(download_reference)]:
        match = re.search(r"/attention/(\w+)\.py$", node["reftarget"])
        name = node.astext()
        if match and name.isidentifier():
            target = f"attention.{match[1]}.{name}"
            link = pending_xref(
                "", refdomain="py", reftype="obj", reftarget=target, refwarn=True
            )
            link += nodes.literal("", name)
            node.replace_self(link)


def leave_out_docstrings(app, tree):
    """Leaves out the docstrings of functions that a page includes by name."""
    for node in tree.findall(nodes.literal_block):
        if node.get("source", "").endswith(".py"):
            code = re.sub(r'\n *"""[^"]+"""\n', "\n", node.astext())
            node.replace_self(nodes.literal_block(code, code, **node.attributes))


def write_configs(app):
    """Writes a page for each config, which is not committed."""
    folder = Path(app.srcdir, "configs")
    folder.mkdir(exist_ok=True)
    for path in sorted(ROOT.glob("configs/[!_]*.py")):
        (folder / f"{path.stem}.md").write_text(reference.page(path), "utf-8")


def convert(app, kind, name, value, options, lines):
    """Converts the Markdown of a docstring: code after a colon, tables, |x|."""
    text = "\n".join(lines).replace("|", r"\|")
    text = re.sub(r":\n\n(?= {4})", "::\n\n", text)

    def table(match):
        rows = re.findall(r"^\\\|(.*)\\\|$", match[0], re.MULTILINE)
        rows = [row.split(r"\|") for row in rows if "---" not in row]
        cells = ["   * -" + "\n     -".join(row) for row in rows]
        return "\n.. list-table::\n   :header-rows: 1\n\n" + "\n".join(cells) + "\n"

    pattern = r"(^\\\|.*\\\|\n?){2,}"
    lines[:] = re.sub(pattern, table, text, flags=re.MULTILINE).split("\n")
    if isinstance(value, dict):
        names = {key: f"{f.__module__}.{f.__name__}" for key, f in value.items()}
        lines += [f'- ``"{key}"``: `{name}`' for key, name in names.items()]


def setup(app):
    """Connects the functions."""
    app.connect("builder-inited", write_configs)
    app.connect("source-read", prepare)
    app.connect("doctree-read", link_functions)
    app.connect("doctree-read", leave_out_docstrings)
    app.connect("autodoc-process-docstring", convert, priority=400)
