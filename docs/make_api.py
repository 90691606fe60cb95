"""Writes docs/api/: one Markdown page for each public name of attention/, and an index.

    python docs/make_api.py

The pages are made from the source text (signatures, Google-style docstrings); nothing
is imported, so that they are the same with every version of Python.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/api"
NOTICE = "<!-- Written by docs/make_api.py; edit the docstring instead. -->\n"
SHAPE = re.compile(r"(?<![\w`])(\[[^]`]*[A-Z.][^]`]*\])")  # [..., Q, K], not [0, 1]
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):\n((?:    .*\n|\n)*)", re.M)
TITLES = {"Args": "Arguments"}


def modules() -> dict[str, ast.Module]:
    """Returns the syntax trees of the public modules of attention/, by name."""
    paths = sorted((ROOT / "attention").glob("[a-z]*.py"))
    return {path.stem: ast.parse(path.read_text("utf-8")) for path in paths}


def definitions(tree: ast.Module) -> dict[str, tuple[ast.stmt, str]]:
    """Returns the public definitions of a module with their docstrings, by name.

    The docstring of an assignment is the string literal after it.
    """
    named: dict[str, tuple[ast.stmt, str]] = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            named[node.name] = node, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            doc = after.value if isinstance(after, ast.Expr) else None
            text = doc.value if isinstance(doc, ast.Constant) else ""
            named[ast.unparse(target)] = node, str(text)
    return {name: named[name] for name in named if not name.startswith("_")}


def code(node: ast.stmt, lines: list[str]) -> str:
    """Returns the source of a definition without docstrings and function bodies."""
    if isinstance(node, ast.FunctionDef):
        end = node.body[0].lineno - 1
        return "\n".join(lines[node.lineno - 1 : end]).removesuffix(":")
    if isinstance(node, ast.ClassDef):
        members = [member for member in node.body if not isinstance(member, ast.Expr)]
        body = [code(member, lines) for member in members]
        return "\n".join([lines[node.lineno - 1], *body])
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


def linked(text: str, names: set[str]) -> str:
    """Marks array shapes as code, and links `name` to the page of a public name."""
    parts = re.split(r"(`[^`]*`)", text)
    for i, part in enumerate(parts):
        if i % 2 and part.strip("`") in names:
            parts[i] = f"[{part}]({part.strip('`')}.md)"
        elif not i % 2:
            parts[i] = SHAPE.sub(r"`\1`", part)
    return "".join(parts)


def entries(block: str) -> list[tuple[str, str]]:
    """Splits "name: text" entries of a section, whose other lines are indented."""
    items = re.split(r"\n(?=\S)", re.sub(r"^    ", "", block, flags=re.M).strip())
    pairs = (item.split(":", 1) for item in items)
    return [(name, re.sub(r"\s+", " ", text).strip()) for name, text in pairs]


def page(name: str, module: str, node: ast.stmt, doc: str, names: set[str]) -> str:
    """Returns the page of a public name."""
    lines = (ROOT / "attention" / f"{module}.py").read_text("utf-8").splitlines()
    arguments = {arg.arg for arg in ast.walk(node) if isinstance(arg, ast.arg)}
    names = names - arguments - {name}
    body = SECTION.sub("", doc + "\n")
    gap = "\n" * (1 + isinstance(node, ast.ClassDef))  # as `make format` has it
    text = [
        NOTICE,
        f"# {name}\n",
        f"```py\nfrom attention_jax import {name}\n{gap}{code(node, lines)}\n```\n",
        f"{linked(body.strip(), names)}\n",
    ]
    if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
        keys = [ast.literal_eval(key) for key in node.value.keys if key]
        values = [ast.unparse(value) for value in node.value.values]
        rows = [
            f'- `"{key}"`: [`{value}`]({value}.md)'
            for key, value in zip(keys, values, strict=True)
        ]
        text.append("\n".join(rows) + "\n")
    for title, block in SECTION.findall(doc + "\n"):
        text.append(f"## {TITLES.get(title, title)}\n")
        if title == "Returns":
            text.append(linked(re.sub(r"\s+", " ", block).strip(), names) + "\n")
        else:
            rows = [
                f"- `{item}`: {linked(info, names)}" for item, info in entries(block)
            ]
            text.append("\n".join(rows) + "\n")
    source = f"attention/{module}.py"
    text.append(f"Source: [{source}](../../{source}). Back to the [index](index.md).\n")
    return "\n".join(text)


def pages() -> dict[str, str]:
    """Returns the text of every page of docs/api/, by file name."""
    trees = modules()
    public = {module: definitions(tree) for module, tree in trees.items()}
    names = {name for named in public.values() for name in named}
    package = ast.parse((ROOT / "attention/__init__.py").read_text("utf-8"))
    intro = linked(ast.get_docstring(package) or "", names)
    index = [NOTICE, "# API reference\n", f"{intro}\n"]
    written = {}
    for module, named in public.items():
        doc = ast.get_docstring(trees[module]) or ""
        index.append(f"## {module}\n\n{linked(doc, names)}\n")
        rows = ["| name | description |", "| --- | --- |"]
        for name, (node, doc) in named.items():
            first = doc.partition("\n")[0].replace("|", r"\|")
            rows.append(f"| [`{name}`]({name}.md) | {linked(first, names)} |")
            written[f"{name}.md"] = page(name, module, node, doc, names)
        index.append("\n".join(rows) + "\n")
    return written | {"index.md": "\n".join(index)}


def main() -> None:
    """Replaces the pages of docs/api/."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
