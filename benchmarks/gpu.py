"""Training steps on one GPU: this project's, and those of the models in PyTorch.

    python -m benchmarks gpu
    python -m benchmarks gpu --only sagan_step --no-write

The computations of the benchmarks of the same names, on the first GPU. Both libraries
compute float32 products as TF32, JAX's default there; PyTorch compiles nothing.
`.bench-venv`, or the interpreter BENCH_PYTHON, needs a PyTorch for CUDA. Writes the
record.
"""

import dataclasses
import subprocess
from collections.abc import Sequence

from benchmarks import harness
from benchmarks.table import BENCHMARKS

_TIMED = (
    "transformer_step transformer_base ntm_step lstmn_step memory_network_step "
    "pointer_step caption_step sagan_step"
).split()


def main(arguments: Sequence[str]) -> None:
    """Measures the steps and writes the record."""
    parser = harness.parser(__doc__, "gpu", rounds=4, steps=20)
    args = parser.parse_args(arguments)
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    device = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    chosen, args.only = args.only or _TIMED, None
    rows = {}
    for name in chosen:
        # The settings of malloc concern the buffers of a CPU.
        systems = [
            dataclasses.replace(system, spec=system.spec | {"tune_memory": False})
            for system in BENCHMARKS[name].systems
            if system.module == "ours"
            and system.spec.get("tune_memory")
            or system.module.startswith("pytorch")
            and not system.spec.get("tune_memory")
        ]
        measured = harness.measure(systems, args, platform="cuda")
        for system in systems:
            group = system.spec.get("group")
            rates = [
                measured[peer.name]["rate"]
                for peer in systems
                if peer.peer and peer.spec.get("group") == group
            ]
            row = measured[system.name]
            if not system.peer:
                row["factor"] = round(row["rate"] / max(rates), 2)
            rows[f"{name}: {system.name}"] = row
            print(f"{name}: {system.name}: {row['median_ms']} ms", flush=True)
    columns = {"ms/step": "median_ms", "times PyTorch's rate": "factor"}
    columns |= {"compilation s": "compile_s", "parameters": "parameters"}
    harness.report("gpu", args, rows, columns, device=device.splitlines()[0].strip())
