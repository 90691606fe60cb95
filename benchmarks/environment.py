"""The Python interpreter that runs the other libraries.

    python -m benchmarks.environment

creates `.bench-venv` from `benchmarks/requirements.txt` if it is missing or out of
date. The environment variable BENCH_PYTHON selects another interpreter instead.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "benchmarks" / "requirements.txt"


def peers_python() -> str:
    """Returns the other libraries' interpreter; creates its environment if needed."""
    if os.environ.get("BENCH_PYTHON"):
        return os.environ["BENCH_PYTHON"]
    folder = ROOT / ".bench-venv"
    python = folder / "bin" / "python"
    installed = folder / "requirements.txt"  # written last: the requirements installed
    wanted = REQUIREMENTS.read_text()
    if not installed.exists() or installed.read_text() != wanted:
        print(
            f"creating {folder.name} from {REQUIREMENTS.relative_to(ROOT)}", flush=True
        )
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        command = [python, "-m", "pip", "install", "-q", "-r", REQUIREMENTS]
        subprocess.run(command, check=True)
        installed.write_text(wanted)
    return str(python)


if __name__ == "__main__":
    print(peers_python())
