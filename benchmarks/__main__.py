"""Runs a benchmark, or every one in turn, which takes half an hour on an idle machine.

    python -m benchmarks transformer_step --no-write
    make bench

Does not run `benchmarks.joeynmt_translation`, which trains another library's model.
"""

import importlib
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.table import BENCHMARKS

NAMES = *BENCHMARKS, "tokens", "overheads", "fast_forms", "sweep_trials"


def main(arguments: Sequence[str]) -> None:
    """Runs the benchmark that the first argument names, or all of them."""
    if arguments and not arguments[0].startswith("-"):
        name, *rest = arguments
        if name not in NAMES:
            sys.exit(f"error: no benchmark {name}: choose from {', '.join(NAMES)}")
        if name in BENCHMARKS:
            return BENCHMARKS[name].run(name, rest)
        return importlib.import_module(f"benchmarks.{name}").main(rest)
    command = [sys.executable, "-m", "benchmarks"]
    failed = [x for x in NAMES if subprocess.run([*command, x, *arguments]).returncode]
    if failed:
        sys.exit(f"error: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
