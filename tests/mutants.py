"""Mutation testing by mutmut: lists changes of a module that its tests do not notice.

    python tests/mutants.py MODULE ... [--max-children=N]

A module is mutated in a temporary copy of the working tree. Each mutant runs those
tests of its test modules (`TESTS`) that call the mutated function, in a process forked
after the imports, because importing JAX takes longer than most tests. The mutants that
survive are printed as diffs; some are equivalent to the original code. Without MODULE,
all modules of `TESTS` are mutated, which takes hours.

mutmut does not mutate decorated functions, such as those of `attention/scores.py`.
"""

import collections
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Test modules of each module, without "test_".
TESTS = {
    "attention/alignments.py": "alignments",
    "attention/core.py": "core",
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
    "generation/greedy.py": "generation",
    "generation/images.py": "adversarial",
    "generation/rollout.py": "generation",
    "generation/sampling.py": "generation",
    "generation/search.py": "search",
    "metrics/bits.py": "metrics_bits",
    "metrics/captions.py": "metrics_captions captioning",
    "metrics/corners.py": "metrics_corners adversarial",
    "metrics/estimates.py": "metrics_estimates",
    "metrics/frechet.py": "metrics_frechet",
    "metrics/pointing.py": "metrics_pointing",
    "metrics/text.py": "metrics_text metrics_captions",
    "ops/cross_entropy.py": "cross_entropy",
    "training/adversarial.py": "adversarial",
    "training/checkpoints.py": "training resume",
    "training/reinforce.py": "translation_task captioning",
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
timeout_constant=60
"""


def copy_tree(folder: Path) -> None:
    """Copies the files of the working tree that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def mutate(module: str, options: list[str]) -> None:
    """Prints the surviving mutants of a module, and the number of each result."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        copy_tree(folder)
        package = Path(module).parts[0]
        others = sorted(path.name for path in folder.iterdir() if path.name != package)
        tests = [f"tests/test_{name}.py" for name in TESTS[module].split()]
        settings = SETTINGS.format(
            package=package,
            module=module,
            others="\n    ".join(["", *others]),
            tests="\n    ".join(["", *tests]),
        )
        (folder / "setup.cfg").write_text(settings)
        (folder / "preloaded.txt").write_text("\n".join(PRELOADED.split()))

        def mutmut(*arguments: str) -> str:
            command = [sys.executable, "-m", "mutmut", *arguments]
            process = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE)
            if process.returncode:
                raise SystemExit(process.stdout.decode())
            return process.stdout.decode()

        mutmut("run", *options)
        lines = mutmut("results", "--all=true").splitlines()
        results = dict(line.strip().split(": ") for line in lines)
        for mutant, result in results.items():
            if result != "killed":
                print(result, mutmut("show", mutant), flush=True)
        counts = collections.Counter(results.values())
        print(module, *(f"{result}: {n}" for result, n in sorted(counts.items())))


def main(arguments: list[str]) -> None:
    """Mutates the modules named in the arguments; passes options to mutmut."""
    options = [argument for argument in arguments if argument.startswith("-")]
    modules = [argument for argument in arguments if argument not in options]
    for module in modules:
        if module not in TESTS:
            raise SystemExit(f"{module} has no tests in tests/mutants.py")
    for module in modules or TESTS:
        mutate(module, options)


if __name__ == "__main__":
    main(sys.argv[1:])
