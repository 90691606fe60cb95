"""Tests of the expected efficiency on many chips."""

import json

import pytest
import smoke

CHECK = """
import json
import sys
from pathlib import Path
from benchmarks import scaling
from configs import transformer_nmt
from training.optimizers import adam

scaling.FLOPS, scaling.ICI = 1000.0, 10.0
sums = scaling.Step(operations=6000, reduced=20, gathered=0, scatters=False)
parts = scaling.Step(operations=6000, reduced=20, gathered=40, scatters=True)
config = transformer_nmt.get_config("smoke")
config.optimizer = adam(0.003)
config.optimizer.accumulate = 1
steps = [scaling.compile_step(mesh, 3, config) for mesh in scaling.MESHES]
page = Path(sys.argv[1])
page.write_text("a\\n<!-- state:begin -->\\nold\\n<!-- state:end -->\\nb\\n")
scaling.write(page, "state", scaling.state_table(config))
print(json.dumps({
    "page": page.read_text(),
    "times": [sums.computation(), sums.communication(4)],
    "parts": parts.communication(4),
    "efficiency": sums.efficiency(4),
    "steps": [step._asdict() for step in steps],
}))
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Output of `CHECK`, in a process of its own: it sets the number of devices."""
    done = smoke.call("-c", CHECK, tmp_path_factory.mktemp("page") / "page.md")
    assert done.returncode == 0, done.stderr
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


def test_a_page_gets_the_bytes_of_a_device_for_each_mesh(result):
    first, *table, last = result["page"].splitlines()
    assert (first, last) == ("a", "b")
    cells = [line.strip("| ").split(" | ") for line in table if line.startswith("| ")]
    sizes = {name: float(size.split()[0]) for name, _, size in cells[2:]}
    assert sizes["one device"] == sizes["`data`, 8 devices"]
    for axis in ("fsdp", "tensor"):
        assert 1 / 8 <= sizes[f"`{axis}`, 8 devices"] / sizes["one device"] < 1
    assert "old" not in result["page"]
