"""Runs every benchmark in turn; takes half an hour on an idle machine.

    make bench

Does not run `benchmarks.joeynmt_translation`, which trains another library's model.
"""

import subprocess
import sys

BENCHMARKS = (
    "transformer_step",
    "decoding",
    "tokens",
    "transformer_base",
    "recurrent_step",
    "recurrent_decoding",
    "ntm_step",
    "lstmn_step",
    "memory_network_step",
    "pointer_step",
    "caption_step",
    "sagan_step",
    "overheads",
    "sweep_trials",
)


def main() -> None:
    """Runs the benchmarks with this command's arguments; fails if one fails."""
    failed = [name for name in BENCHMARKS if _run(name)]
    if failed:
        sys.exit(f"error: failed: {', '.join(failed)}")


def _run(name: str) -> int:
    command = [sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    main()
