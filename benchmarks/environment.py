"""The interpreter that the other libraries run under.

    python -m benchmarks.environment

makes `.bench-venv` from `benchmarks/requirements.txt` where it is missing or out of
date. The environment variable BENCH_PYTHON names another interpreter to use instead.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "benchmarks" / "requirements.txt"


def peers_python() -> str:
    """Returns the peers' interpreter, and makes its environment first if need be."""
    if os.environ.get("BENCH_PYTHON"):
        return os.environ["BENCH_PYTHON"]
    folder = ROOT / ".bench-venv"
    python = folder / "bin" / "python"
    installed = folder / "requirements.txt"  # written last: a copy of what is in there
    wanted = REQUIREMENTS.read_text()
    if not installed.exists() or installed.read_text() != wanted:
        print(f"making {folder.name} from {REQUIREMENTS.relative_to(ROOT)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        command = [python, "-m", "pip", "install", "-q", "-r", REQUIREMENTS]
        subprocess.run(command, check=True)
        installed.write_text(wanted)
    return str(python)


if __name__ == "__main__":
    print(peers_python())
