"""Mutation testing by mutmut: lists changes of a module that its tests do not notice.

    python tests/tools/mutants.py [MODULE | MUTANT] ... [--sample=N] [OPTION] ...

A module is mutated in a temporary copy of the working tree. Each mutant runs those
tests of its test modules (`TESTS`) that call the mutated function, in a process forked
after the imports, because importing JAX takes longer than most tests. The mutants that
survive are printed as diffs; some are equivalent to the original code. A MUTANT is one
of the names that are printed, such as attention.masks.x_padding_mask__mutmut_1. Without
MODULE and MUTANT, all modules of `TESTS` are mutated, which takes hours.

--sample runs at most N mutants of each module, drawn with a fixed seed; an OPTION is
one of `mutmut run`, such as --max-children=N. The last line is the fraction of mutants
that are noticed: those that fail a test or run into the time limit.

mutmut does not mutate decorated functions, such as those of `attention/scores.py`. In
the copy, decorators are therefore replaced by assignments, which mean the same. It
runs a function that is called at import, such as `score_function`, with few tests:
check its survivors by hand.
"""

import argparse
import ast
import collections
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Test modules of each module, without "test_".
TESTS = {
    "attention/alignments.py": "alignments",
    "attention/core.py": "core alignments",
    "attention/declaration.py": "scores layers",
    "attention/feedforward.py": "feedforward",
    "attention/kernels.py": "kernels",
    "attention/masks.py": "masks",
    "attention/memory.py": "memory",
    "attention/positions.py": "positions",
    "attention/relative.py": "relative",
    "attention/scores.py": "scores",
    "attention/spatial.py": "spatial",
    "generation/beam.py": "generation",
    "generation/constraints.py": "generation",
    "generation/images.py": "adversarial",
    "generation/rollout.py": "generation",
    "generation/sampling.py": "generation search",
    "generation/search.py": "search",
    "tasks/captioning/metrics.py": "metrics_captions",
    "tasks/images/metrics.py": "metrics",
    "tasks/pointing/metrics.py": "metrics_pointing",
    "tasks/common/text_metrics.py": "metrics_text metrics_captions",
    "tasks/common/losses.py": "losses",
    "training/adversarial.py": "adversarial",
    "training/checkpoints.py": "checkpoints",
    "base/manifest.py": "checkpoints faults",
    "training/reinforce.py": "reinforce",
}
# Imported before the first fork. None of them starts threads of XLA, which a forked
# process would lack.
PRELOADED = (
    "jax.numpy flax.linen ml_collections optax orbax.checkpoint pytest sacrebleu scipy"
)
SETTINGS = """[mutmut]
source_paths={package}
only_mutate={module}
also_copy={others}
process_isolation=forkserver
forkserver_warmup=import
preload_modules_file=preloaded.txt
pytest_add_cli_args_test_selection={tests}
track_dependencies=false
timeout_multiplier=3
timeout_constant=10
"""
# Prints the names of the mutants of a module.
LIST = """
import pathlib, sys
from mutmut.mutation.file_mutation import mutate_file_contents
source = pathlib.Path(sys.argv[1]).read_text()
print(*mutate_file_contents(sys.argv[1], source).mutant_names)
"""
# Appended to tests/conftest.py. mutmut runs a mutant with the tests that called the
# function before; a test for which it was compiled already would not be among them.
CONFTEST = """

@pytest.fixture(autouse=True)
def _uncached(request):
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        jax.clear_caches()
        for value in vars(request.module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
"""
NOTICED = ("killed", "timeout")


def copy_tree(folder: Path) -> None:
    """Copies the files of the working tree that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def without_decorators(source: str) -> str:
    """Replaces the decorators of functions by assignments `f = decorator(f)`."""
    lines = source.splitlines(keepends=True)
    after = collections.defaultdict(list)  # lines to insert, by line number
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef):
            continue
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if not decorators or decorators in (["classmethod"], ["staticmethod"]):
            continue  # mutmut mutates these
        value = node.name
        for decorator in reversed(decorators):
            value = f"{decorator}({value})"
        after[node.end_lineno].insert(
            0, f"{' ' * node.col_offset}{node.name} = {value}\n"
        )
        for number in range(node.decorator_list[0].lineno, node.lineno):
            lines[number - 1] = ""
    return "".join(
        "".join([line, *after[number]]) for number, line in enumerate(lines, 1)
    )


def mutate(
    module: str, mutants: list[str], sample: int | None, options: list[str]
) -> collections.Counter:
    """Prints the surviving mutants of a module, and the number of each result.

    Args:
        module: path of the module.
        mutants: names of its mutants that are run; empty for all.
        sample: maximum number of mutants; None for all.
        options: options of `mutmut run`.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        copy_tree(folder)
        (folder / module).write_text(without_decorators((folder / module).read_text()))
        with (folder / "tests" / "conftest.py").open("a") as conftest:
            conftest.write(CONFTEST)
        package = Path(module).parts[0]
        others = sorted(path.name for path in folder.iterdir() if path.name != package)
        names = [f"**/test_{name}.py" for name in TESTS[module].split()]
        tests = [
            str(path.relative_to(folder))
            for name in names
            for path in (folder / "tests").glob(name)
        ]
        settings = SETTINGS.format(
            package=package,
            module=module,
            others="\n    ".join(["", *others]),
            tests="\n    ".join(["", *tests]),
        )
        (folder / "setup.cfg").write_text(settings)
        (folder / "preloaded.txt").write_text("\n".join(PRELOADED.split()))

        def python(*arguments: str) -> str:
            command = [sys.executable, *arguments]
            process = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE)
            if process.returncode:
                raise SystemExit(process.stdout.decode())
            return process.stdout.decode()

        if not mutants:
            prefix = module.removesuffix(".py").replace("/", ".")
            names = python("-c", LIST, module).split()
            mutants = [f"{prefix}.{name}" for name in names]
        if sample is not None and sample < len(mutants):
            mutants = random.Random(0).sample(mutants, sample)
        python("-m", "mutmut", "run", *options, *mutants)
        lines = python("-m", "mutmut", "results", "--all=true").splitlines()
        results = dict(line.strip().split(": ") for line in lines)
        counts = collections.Counter(results[mutant] for mutant in mutants)
        for mutant in sorted(mutants):
            if results[mutant] != "killed":
                print(python("-m", "mutmut", "show", mutant), flush=True)
        texts = (f"{result}: {count}" for result, count in sorted(counts.items()))
        print(module, *texts, f"total: {counts.total()}", flush=True)
        return counts


def main(arguments: list[str]) -> None:
    """Mutates what the arguments name; prints the fraction that is noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="MODULE | MUTANT")
    parser.add_argument("--sample", type=int, help="maximum number for a module")
    given, options = parser.parse_known_args(arguments)
    modules = collections.defaultdict(list)
    for name in given.names:
        module = name
        if "__mutmut_" in name:
            module = name.rpartition(".")[0].replace(".", "/") + ".py"
        modules[module] += [name] * (module != name)
    for module in modules:
        if module not in TESTS:
            raise SystemExit(f"{module} has no tests in tests/tools/mutants.py")
    counts: collections.Counter = collections.Counter()
    for module, mutants in (modules or dict.fromkeys(TESTS, [])).items():
        counts += mutate(module, mutants, given.sample, options)
    noticed = sum(counts[result] for result in NOTICED)
    percent = 100 * noticed / max(counts.total(), 1)
    print(
        f"{noticed} of {counts.total()} mutants are noticed ({percent:.1f} %); those "
        "that are equivalent to the code count as not noticed"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
