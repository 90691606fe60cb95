"""A process that runs a system and answers the harness, in any environment.

python -m benchmarks.systems.worker MODULE MODE SPEC
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable


def main() -> None:
    """Serves the steps of a module's `build`, if it returns a step.

    If the specification has `tune_memory`, Python restarts first, with the malloc
    settings of `train.py`.
    """
    module, mode, text = sys.argv[1:]
    spec = json.loads(text)
    if spec.get("tune_memory"):
        from training import runtime

        runtime.tune_memory(True)
    system = importlib.import_module(f"benchmarks.systems.{module}").build(mode, spec)
    if system:
        serve(*system)


def serve(step: Callable[[], float], info: dict, warmup: int = 2) -> None:
    """Reads numbers of steps from standard input, runs them, and answers in JSON.

    Args:
        step: runs one step of the benchmark, waits for the result, and returns the
            number of units (tokens, sentences, GFLOP, ...).
        info: facts about the system (versions, parameters, ...), answered first.
        warmup: number of steps before the first answer, not measured.
    """
    # Answers have a separate channel: the libraries' own output goes to stderr.
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for _ in range(warmup):
        step()
    print(json.dumps(info), file=channel)
    for line in sys.stdin:
        seconds, units = [], []
        for _ in range(int(line)):
            start = time.perf_counter()
            units.append(float(step()))
            seconds.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # from KB
        answer = {"seconds": seconds, "units": units, "peak_mb": peak}
        print(json.dumps(answer), file=channel)


if __name__ == "__main__":
    main()
