"""Memory and speed of training in the records of speech recognisers."""

import jax
from smoke import run

from results import make
from results.families import TABLES
from training import configuration
from training.task import create


def test_the_memory_of_a_step_is_above_that_of_its_arguments():
    workdir = run("las_digits")
    task = create(configuration.load(workdir), workdir, training=True)
    state = jax.eval_shape(task.objective.init, jax.random.key(0))
    batch = task.train_data()[0]
    arguments = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((state, batch)))
    assert (
        arguments / 1e6
        < make.work(workdir, compiles=True)["step_mb"]
        < 100 * arguments / 1e6
    )


def test_audio_per_second_is_that_of_all_rows_of_a_batch():
    config = configuration.load(run("las_digits"))
    rows = [
        {"audio_seconds": 3.0, "steps_per_second": speed} for speed in (0.5, 2.0, 7.0)
    ]
    others = [{"steps_per_second": 99.0}, {"wer": 3.0}]
    size = config.data.batch_size
    assert make._audio_per_second(config, rows + others) == 6.0 * size
    assert make._audio_per_second(config, others) is None


def test_only_tables_with_the_column_measure_memory():
    (speech,) = (x for x in TABLES["speech"].runs if x.name == "las_flat")
    assert make._shows(speech, "step_mb")
    others = [x for x in TABLES["translation"].runs if x not in TABLES["speech"].runs]
    assert not any(make._shows(x, "step_mb") for x in others)
