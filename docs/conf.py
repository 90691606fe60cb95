"""Sphinx: the pages of docs/ and the reference of the code; see `make docs`."""

import doctest
import itertools
import json
import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.addnodes import desc_annotation, download_reference, pending_xref
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from explorer import page as explorer_page  # noqa: E402
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
html_math_renderer = "mathml"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["live.js"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "py:obj"
autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "special-members": "__call__",
}
autodoc_inherit_docstrings = False
add_module_names = False
napoleon_use_ivar = True
autodoc_typehints = "none"  # the docstrings have shapes


class Explorer(SphinxDirective):
    """A live figure: the explorer with the packed example docs/live/NAME.zlib.

    More arguments are choices of the reader, such as query=3. In pages that are also
    read elsewhere, it is the comment `<!-- explorer: NAME query=3 -->`.
    """

    required_arguments, optional_arguments = 1, 9

    def run(self):
        """Returns a frame with the page that `write_live` writes."""
        name, *choices = self.arguments
        if not Path(self.env.srcdir, f"live/{name}.zlib").exists():
            raise self.error(f"docs/live has no example {name}")
        address = f"{'../' * self.env.docname.count('/')}live/{name}.html"
        address += "#" + "&amp;".join(choices) if choices else ""
        html = (
            f'<figure class="live"><iframe src="{address}" loading="lazy" '
            f'title="attention of {name}"></iframe><figcaption>A live figure; '
            f'<a href="{address}">open it in a page of its own</a>.'
            "</figcaption></figure>"
        )
        return [nodes.raw("", html, format="html")]


def write_math(self, node):
    """Writes an equation as MathML, which browsers set without a script."""
    is_block = isinstance(node, nodes.math_block)
    try:
        html = tex2mathml(node.astext().replace(r"\dots", r"\ldots"), as_block=is_block)
    except MathError as error:
        logging.getLogger(__name__).warning(str(error), location=node)
        raise nodes.SkipNode from error
    # docutils sets the index of an accented letter underneath it, not as a subscript.
    part, accent = r"\s*(<(m\w+)>.*?</\{}>)\s*", r"(<mo [^>]*>.</mo>)\s*"
    pattern = f"<munderover>{part.format(2)}{part.format(4)}{accent}</munderover>"
    accented = r'<msub><mover accent="true">\1\5</mover>\3</msub>'
    html = re.sub(pattern, accented, html, flags=re.DOTALL)
    self.body.append(f'<div class="math">{html}</div>' if is_block else html)
    raise nodes.SkipNode


def write_live(app):
    """Writes the page of each packed example, which is not committed."""
    folder = Path(app.outdir, "live")
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(Path(app.srcdir, "live").glob("*.zlib")):
        html = explorer_page.html_of(path.read_bytes())
        (folder / f"{path.stem}.html").write_text(html, "utf-8")


def write_notebooks(app):
    """Writes each tutorial as a notebook, which is not committed."""
    for path in sorted(Path(app.srcdir, "tutorials").glob("[!i]*.md")):
        content = {
            "cells": list(cells(path.read_text("utf-8"))),
            "metadata": {"language_info": {"name": "python"}},
            "nbformat": 4,
            "nbformat_minor": 4,
        }
        target = Path(app.outdir, "tutorials", f"{path.stem}.ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content, indent=1), "utf-8")


def cells(text):
    """Yields the cells of a notebook: texts, and code with its output."""
    parts = re.split(r"^```(pycon|sh)\n(.*?)^```$", text, flags=re.M | re.S)
    for words, kind, code in itertools.zip_longest(
        parts[::3], parts[1::3], parts[2::3]
    ):
        words = re.sub(r"\]\((?!https?:)[^)]*\)", "]", words)  # links within the site
        yield {"cell_type": "markdown", "metadata": {}, "source": words.strip()}
        if kind == "sh":
            yield code_cell("".join(f"!{line}" for line in code.splitlines(True)))
        lines = []
        for example in doctest.DocTestParser().get_examples(code or ""):
            lines.append(example.source)
            if example.want:
                yield code_cell("".join(lines), example.want)
                lines = []
        if lines:
            yield code_cell("".join(lines))


def code_cell(source, output=""):
    """Returns a cell of code, and what it prints."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": output}]
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "source": source.rstrip("\n"),
        "outputs": outputs if output else [],
    }


def prepare(app, page, source):
    """Puts the pages that an index page links to into the navigation.

    These are pages of its folder, and the index pages of the folders in it. Links to
    the Markdown files outside of docs/ download them.
    """
    source[0] = re.sub(
        r"<!-- explorer: ([^>]+) -->", r"```{explorer} \1\n```", source[0]
    )
    source[0] = re.sub(r"\]\((?=\.\./[A-Z]+\.md)", "](path:", source[0])
    source[0] = re.sub(r"^\|.*$", keep_together, source[0], flags=re.MULTILINE)
    folder, _, name = page.rpartition("/")
    if folder == "tutorials" and name != "index":
        link = f'<a href="{name}.ipynb" download>This page as a notebook</a>'
        source[0] += f"\n```{{raw}} html\n<p>{link}, for a clone.</p>\n```\n"
    if name == "index":
        links = re.findall(r"\]\(((?:[\w-]+/)?index|[\w-]+)\.md\)", source[0])
        lines = "\n".join(dict.fromkeys(links))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n"


def keep_together(row):
    """Returns a table's row, a match, that breaks no line in 1 ± 2 or in [3, 4]."""
    text = re.sub(r"(?<=\d) ± (?=\d)", "\u00a0±\u00a0", row[0])
    return re.sub(r"(\[-?[\d.]+,) (-?[\d.]+\])", "\\1\u00a0\\2", text)


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


def leave_out_values(app, tree):
    """Leaves out the values of module constants, which `convert` may list."""
    for node in [*tree.findall(desc_annotation)]:
        if node.astext().startswith(" = "):
            node.parent.remove(node)


def leave_out_docstrings(app, tree):
    """Leaves out the docstrings of functions that a page includes by name."""
    for node in tree.findall(nodes.literal_block):
        if node.get("source", "").endswith(".py"):
            code = re.sub(r'\n *""".*?"""\n', "\n", node.astext(), flags=re.DOTALL)
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
    text = re.sub(r"(?<=\w`)(?=[s^])", r"\\ ", text)  # as in `x`s and `x`^2

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


def skip(app, kind, name, value, is_skipped, options):
    """Leaves out fields of named tuples, `dtype`, and `setup` of Flax modules."""
    is_field = name == "dtype" or type(value).__name__ == "_tuplegetter"
    return True if is_field or name == "setup" else None


def shorten(app, kind, name, value, options, signature, returned):
    """Leaves out the arguments that every Flax module has."""
    if signature is None:  # a module or a constant
        return None
    signature = re.sub(r"(, )?parent=<[^>]*>, name=None", "", signature)
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", signature), returned


def setup(app):
    """Connects the functions."""
    app.add_directive("explorer", Explorer)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("builder-inited", write_live)
    app.connect("builder-inited", write_notebooks)
    app.connect("builder-inited", write_configs)
    app.connect("source-read", prepare)
    app.connect("doctree-read", link_functions)
    app.connect("doctree-read", leave_out_docstrings)
    app.connect("doctree-read", leave_out_values)
    app.connect("autodoc-process-docstring", convert, priority=400)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-skip-member", skip)
