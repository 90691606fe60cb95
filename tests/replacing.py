"""Saves step 3 twice in each process of a job; process 1 is late at the second save.

python tests/replacing.py FOLDER
"""

import sys
import time

import jax
import numpy as np
from absl import flags
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from training.checkpoints import Checkpoints
from training.cluster import hosts

hosts.define_flags()
_, workdir = flags.FLAGS(sys.argv, known_only=True)[:2]
hosts.join()
everywhere = NamedSharding(Mesh(np.array(jax.devices()), "x"), PartitionSpec())


def save(checkpoints, value):
    array = jax.make_array_from_callback(
        (5,), everywhere, lambda index: np.full(5, value)[index]
    )
    checkpoints.save(3, {"step": array})
    checkpoints.wait()


with Checkpoints(workdir, keep=3) as saved:
    save(saved, 7)
    if jax.process_index() == 1:
        time.sleep(4)
    save(saved, 11)
    assert not saved.damage(3)
    print(saved._manager.restore(3)["step"].sum())
