"""Runs every timing question in turn: `make bench` (half an hour, on a quiet machine).

The time-limited training run of another library is `benchmarks.joeynmt_translation`.
"""

import subprocess
import sys

QUESTIONS = (
    *("transformer_step", "decoding", "tokens", "transformer_base"),
    *("recurrent_step", "recurrent_decoding", "ntm_step", "pointer_step"),
    *("caption_step", "sagan_step"),
)


def main() -> None:
    """Runs the questions with this command's arguments; fails if one has failed."""
    failed = [q for q in QUESTIONS if _run(q)]
    if failed:
        sys.exit(f"error: failed: {', '.join(failed)}")


def _run(question: str) -> int:
    command = [sys.executable, "-m", f"benchmarks.{question}", *sys.argv[1:]]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    main()
