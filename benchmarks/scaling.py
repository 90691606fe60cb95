"""Expected efficiency of Transformer-big on many chips, from its compiled step.

    python -m benchmarks.scaling

The step of `configs/transformer_nmt.py:big` is compiled for a mesh of eight devices,
with abstract arrays: nothing is computed. XLA counts the floating-point operations of
a device, and `training.sharding_table` the bytes of its collective operations. With
the published rates of a chip they give the time of a step on n chips:

    computation    = operations / FLOPS
    communication  = (n - 1) / n * (2 * all-reduce + all-gather + reduce-scatter) / ICI
    efficiency     = computation / (computation + communication)   without overlap
                   = computation / max(computation, communication) with full overlap

In a ring, each byte of a sum is sent twice, each byte of a gathered or scattered array
once. With `fsdp`, gradients are summed by a reduce-scatter on a TPU; XLA's CPU compiler
writes an all-reduce, which counts as a reduce-scatter here. A computation below the
peak rate takes longer and hides more communication; latency, stragglers and links
that do not reach their peak are left out.

Writes the table into docs/scaling.md, and one of the bytes of a device: those that a
run prints at its start.

    python -m benchmarks.scaling --only=state  # compiles nothing
"""

import argparse
import os
import re
from pathlib import Path
from typing import NamedTuple

DEVICES = 8
# XLA reads the number of its CPU devices once.
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from ml_collections import ConfigDict  # noqa: E402

from base.storage import markdown_table  # noqa: E402
from benchmarks.systems.ours import stand_in  # noqa: E402
from configs import transformer_nmt  # noqa: E402
from training import parallel, sharding, sharding_table  # noqa: E402

PAGE = Path(__file__).parent.parent / "docs/scaling.md"
CHIPS = (8, 4096)  # in between, the efficiency changes little
LENGTH = 32  # tokens of a source, and of a target
ALONE = {"data": 1, "fsdp": 1, "tensor": 1}
MESHES = {axis: ALONE | {axis: DEVICES} for axis in ("data", "fsdp")}
STATES = {"one device": ALONE}
STATES |= {f"`{axis}`, 8 devices": ALONE | {axis: DEVICES} for axis in ALONE}


# TPU v5p, https://cloud.google.com/tpu/docs/v5p: 459 TFLOPS, 4,800 Gbit/s.
FLOPS = 459e12  # operations per second in bfloat16
ICI = 4800e9 / 8  # bytes per second to other chips, over all links of a chip


class Step(NamedTuple):
    """Work of a device in a step.

    Attributes:
        operations: floating-point operations.
        reduced: bytes of arrays that are summed over devices.
        gathered: bytes of arrays that are collected from devices.
        scatters: True if the sums are scattered: each device has its part of a sum.
    """

    operations: float
    reduced: int
    gathered: int
    scatters: bool

    def computation(self) -> float:
        """Returns the seconds of the computation."""
        return self.operations / FLOPS

    def communication(self, chips: int) -> float:
        """Returns the seconds of the communication on a number of chips."""
        sent = (1 if self.scatters else 2) * self.reduced + self.gathered
        return (chips - 1) / chips * sent / ICI

    def efficiency(self, chips: int) -> tuple[float, float]:
        """Returns the efficiency without overlap and with full overlap."""
        computed, sent = self.computation(), self.communication(chips)
        return computed / (computed + sent), computed / max(computed, sent)


def compile_step(mesh: str, rows: int, config: ConfigDict) -> Step:
    """Compiles the step for a mesh of `MESHES` and `rows` pairs for each device."""
    layout = parallel.Layout(ConfigDict(MESHES[mesh]), "jit")
    objective, rng = config.task(config, stand_in(config)).objective, jax.random.key(0)
    like = layout.abstract(objective.init, rng, sharding.rules_of(config))
    batch = {
        name: jax.ShapeDtypeStruct(
            (rows * DEVICES, LENGTH), np.int32, sharding=layout.batch_sharding
        )
        for name in ("source", "target")
    }
    program = layout.jitted(objective.step, like).lower(like, batch, rng).compile()
    counted = sharding_table.collectives(program.as_text())
    sums = sum(counted.get(x, (0, 0))[1] for x in ("all-reduce", "reduce-scatter"))
    gathered = counted.get("all-gather", (0, 0))[1]
    return Step(program.cost_analysis()["flops"], sums, gathered, mesh == "fsdp")


ROWS = (98, 12)  # sentence pairs of a chip: the paper's batch on 8 chips, on 64


def table() -> str:
    """Returns the table of the page: a row for each mesh and batch of a chip."""
    config = transformer_nmt.get_config("big")
    config.model.dtype = "bfloat16"
    titles = ["mesh", "tokens per chip", "summed", "gathered", "computation"]
    titles += ["communication", *(f"{n:,} chips" for n in CHIPS)]
    rows = []
    for mesh in MESHES:
        for pairs in ROWS:
            step = compile_step(mesh, pairs, config)
            cells = [f"`{mesh}`", f"{2 * LENGTH * pairs:,}"]
            cells += [f"{n / 1e6:,.0f} MB" for n in (step.reduced, step.gathered)]
            times = step.computation(), step.communication(CHIPS[-1])
            cells += [f"{1000 * x:.2f} ms" for x in times]
            for chips in CHIPS:
                low, high = step.efficiency(chips)
                cells.append(f"{low:.0%} to {high:.0%}")
            rows.append(cells)
    return markdown_table(titles, rows)


def state_table(config: ConfigDict) -> str:
    """Returns a table of parameters and moments: a row for each mesh."""
    objective, rng = config.task(config, stand_in(config)).objective, jax.random.key(0)
    state, rules = jax.eval_shape(objective.init, rng), sharding.rules_of(config)
    rows = []
    for name, mesh in STATES.items():
        *_, total = sharding_table.table(state, rules, mesh)
        _, arrays, size, unit = total.split()  # as a run prints it
        rows.append([name, arrays, f"{size} {unit}"])
    return markdown_table(["mesh", "arrays", "per device"], rows)


def write(page: Path, name: str, content: str) -> None:
    """Writes a table between the marks NAME:begin and NAME:end of a page."""
    block = rf"(?<=<!-- {name}:begin -->\n).*(?=<!-- {name}:end -->)"
    text = page.read_text("utf-8")
    text = re.sub(block, lambda _: f"\n{content}\n\n", text, flags=re.DOTALL)
    page.write_text(text, "utf-8")
    print(content)


def main() -> None:
    """Writes the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["state", "scaling"], help="write one table")
    arguments = parser.parse_args()
    if arguments.only != "scaling":
        write(PAGE, "state", state_table(transformer_nmt.get_config("big")))
    if arguments.only != "state":
        write(PAGE, "scaling", table())


if __name__ == "__main__":
    main()
