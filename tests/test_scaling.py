"""Tests of the expected efficiency on many chips."""

import json
import os
import subprocess
import sys

import pytest
from product import ROOT

CHECK = """
import json
from benchmarks import scaling
from configs import transformer_nmt
from configs._optimizer import adam

chip = scaling.Chip("a chip", flops=1000.0, ici=10.0)
sums = scaling.Step(operations=6000, reduced=20, gathered=0, scatters=False)
parts = scaling.Step(operations=6000, reduced=20, gathered=40, scatters=True)
config = transformer_nmt.get_config("smoke")
config.optimizer = adam(0.003)
config.optimizer.accumulate = 1
steps = [scaling.compile_step(mesh, 3, config) for mesh in scaling.MESHES]
print(json.dumps({
    "times": [sums.computation(chip), sums.communication(4, chip)],
    "parts": parts.communication(4, chip),
    "efficiency": sums.efficiency(4, chip),
    "steps": [step._asdict() for step in steps],
}))
"""


@pytest.fixture(scope="module")
def result():
    """Output of `CHECK`, in a process of its own: it sets the number of devices."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_the_time_of_a_ring_follows_the_bytes_that_a_chip_sends(result):
    assert result["times"] == pytest.approx([6.0, 3 / 4 * 2 * 20 / 10])
    assert result["parts"] == pytest.approx(3 / 4 * (20 + 40) / 10)
    assert result["efficiency"] == pytest.approx([6 / 9, 1.0])


def test_only_fsdp_gathers_parameters(result):
    data, fsdp = result["steps"]
    assert data["gathered"] == 0 and not data["scatters"]
    assert fsdp["gathered"] > 0 and fsdp["scatters"]
    assert data["reduced"] >= fsdp["gathered"]  # all gradients, as float32
    assert data["operations"] == pytest.approx(fsdp["operations"], rel=0.02)
