"""Files and words of the bad inputs: configs, data of each kind and untrained runs.

`write` makes the files in the folder in which the commands of `bad_inputs.txt` run.
"""

import gzip
import importlib
import io
import json
import os
import shutil
import struct
import zlib

import faults
import jax
import numpy as np
import photos
from PIL import Image
from smoke import ROOT

from training import configuration, encoding
from training.checkpoints import Checkpoints
from training.task import create

RUNS = (
    "captioning ff_attention kernel_regression lstmn_language ntm_recall pointer_hull "
    "sagan seq2seq_nmt transformer_nmt"
).split()
# First words of commands; {} is the second word.
FILES = "--config.data.source=files --config.data.files"
JOB = "--name=nmt --config=configs/ff_attention.py:smoke"
WORDS = {
    "corpus": "transformer_nmt --config.data.corpus=files "
    "--config.data.files.train={} --config.data.vocab_size=40",
    "captions": f"captioning {FILES}.train.captions=captions/{{}} "
    "--config.data.files.train.images=images "
    "--config.data.files.validation.captions=captions/{} "
    "--config.data.files.validation.images=images --config.optimizer.warmup=5",
    "classes": "sagan --config.data.source=folder --config.data.folder=classes/{}",
    "labelled": f"ram_digits --config.data.clutter=0 {FILES}.train={{}}",
    "stories": f"memory_network_qa {FILES}.train=stories/{{}}",
    "pairs": f"lstmn_sentences {FILES}.train=pairs/{{}}",
    "sweep": "sweep.py --workdir=runs/new --config=configs/{}.py:smoke",
    "slurm": f"launch --target=slurm {JOB}",
    "tpu": f"launch --target=tpu {JOB} --zone=us-central2-b --project=my-project",
    "kubernetes": f"launch --target=kubernetes {JOB}",
    "skypilot": f"launch --target=skypilot {JOB}",
}


def changed(name, *lines):
    """Returns a config file that changes the smoke variant of a config."""
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"from configs import {name}\n\n\ndef get_config(variant):\n"
        f"    config = {name}.get_config('smoke')\n{body}    return config\n"
    )


def retyped(line):
    """Returns a config file that gives a field a value of another type."""
    return changed("ff_attention", "with config.ignore_type():", f"    config.{line}")


CONFIGS = {
    "syntax.py": "def get_config(variant:\n    return 3\n",
    "name.py": "import math\n\nwidth = wdith\n",
    "exit.py": "import sys\n\nsys.exit('no accelerator')\n",
    "lines.py": "raise ValueError('first line\\nsecond line')\n",
    "no_parameter.py": "def get_config():\n    return {}\n",
    "bare.py": "from ml_collections import ConfigDict\n\n\n"
    "def get_config(variant):\n    return ConfigDict()\n",
    "array.py": changed("ff_attention", "import numpy", "config.x = numpy.arange(3)"),
    "no_model.py": changed("ff_attention", "del config.model"),
    "no_b1.py": changed("ff_attention", "del config.optimizer.b1"),
    "data_text.py": retyped("data = 'adding'"),
    "length_text.py": retyped("data.length = '23'"),
    "seed_bool.py": retyped("seed = True"),
    "task_text.py": retyped("task = 'tasks.adding.task:Adding'"),
    "architecture_text.py": retyped("architecture = 'Transformer'"),
    "own_task.py": f"class Mine:\n    pass\n\n\n{retyped('task = Mine')}",
    "own_model.py": "from flax import linen as nn\n\n\nclass Mine(nn.Module):\n"
    "    pass\n\n\n" + changed("ff_attention", "config.architecture = Mine"),
    "extra_field.py": changed("ff_attention", "config.model.depth = 3"),
    "infinite.py": changed("ff_attention", "config.model.rate = float('inf')"),
}
ENGLISH, GERMAN = (
    "".join(f"{line.format(n)}\n" for n in range(40))
    for line in ("number {} is here", "Zahl {} ist hier")
)
PACKED = gzip.compress(ENGLISH.encode(), mtime=0)[:60]
TEXTS = {
    "good.en": ENGLISH,
    "good.de": GERMAN,
    "one.en": "a first line\n",
    "one.de": "eine erste Zeile\n",
    "damaged.en.gz": PACKED,
    "damaged.de.gz": PACKED,
}


def coco(**fields):
    """Returns captions of one image in the format of MS-COCO."""
    images = [{"id": 1, "file_name": "red.png"}]
    annotations = [{"image_id": 1, "caption": "a red square"}]
    return json.dumps({"images": images, "annotations": annotations} | fields)


CAPTIONS = {
    "truncated.json": coco()[:60],
    "deep.json": "[" * 100_000,
    "no_caption.json": coco(annotations=[{"image_id": 1}]),
    "caption_blank.json": coco(annotations=[{"image_id": 1, "caption": " . "}]),
}


def image():
    """Returns the bytes of a PNG file."""
    content = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(content, "PNG")
    return content.getvalue()


def large_image():
    """Returns a PNG file that states 100,000 x 100,000 pixels."""
    size = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    parts = {b"IHDR": size, b"IDAT": zlib.compress(b""), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )


IMAGES = {"red.png": image(), "header.png": image()[:8], "large.png": large_image()}
CLASSES = {
    "no_images/cats/notes.txt": "",
    "text/cats/red.png": image(),
    "text/dogs/red.png": "not an image",
    "large/cats/red.png": large_image(),
    "one.tsv": "text/cats/red.png\tcat\n",
    "one_class.tsv": 3 * "text/cats/red.png\tcat\n",
    "twice/caf\u00e9/red.png": image(),
    "twice/cafe\u0301/red.png": image(),
}
STORIES = {
    "no_tab.txt": "1 Mary went home.\n2 Where is Mary? home 1\n",
}
PAIR = '{"gold_label": "neutral", "sentence1": "A man.", "sentence2": "He sings."}\n'
PAIRS = {
    "truncated.jsonl": f"{PAIR}{PAIR[:40]}\n",
    "one_label.jsonl": PAIR * 20,
    "latin1.tsv": "good\tZoë\n".encode("latin-1"),
}

# Changes of `config.json` in copies of the run of ff_attention.
EDITS = {
    "edited_number": lambda config: config["data"].update(length=3),
    "edited_class": lambda config: config.update(task="os:system"),
}


MANIFEST = "checkpoints/1/default/manifest.ocdbt"
# Faults of copies of the run of ff_attention.
DAMAGED_RUNS = {
    "truncated": lambda run: faults.damage("truncated", run / MANIFEST),
    "incomplete": lambda run: (run / MANIFEST).unlink(),
    "no_config": lambda run: (run / "config.json").unlink(),
    "no_folder": lambda run: (
        shutil.rmtree(run / "checkpoints"),
        (run / "checkpoints").touch(),
    ),
    "no_file": lambda run: faults.damage("folder", run / "config.json"),
    "broken_config": lambda run: (run / "config.json").write_text('{"seed": '),
    "unsaved": lambda run: shutil.rmtree(run / "checkpoints"),
}


def write(folder):
    """Writes all files and runs into a folder."""
    groups = {
        "bad": CONFIGS,
        "text": TEXTS,
        "captions": CAPTIONS,
        "images": IMAGES,
        "classes": CLASSES,
        "stories": STORIES,
        "pairs": PAIRS,
        ".": {"latin1.txt": "Zürich\n".encode("latin-1"), "README.md": "# Notes\n"},
    }
    for group, files in groups.items():
        for name, content in files.items():
            path = folder / group / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
    (folder / "configs").symlink_to(ROOT / "configs")
    os.mkfifo(folder / "pipe")
    for name in RUNS:
        write_run(folder, name)
    for name, edit in EDITS.items():
        shutil.copytree(folder / "runs/ff_attention", folder / "runs" / name)
        config = encoding.read_json(folder / "runs" / name)
        edit(config)
        encoding.write_json(config, folder / "runs" / name)
    for name, fault in DAMAGED_RUNS.items():
        shutil.copytree(folder / "runs/ff_attention", folder / "runs" / name)
        fault(folder / "runs" / name)


def write_run(folder, name):
    """Writes a run of a smoke variant, whose parameters are 0 after one step."""
    config = importlib.import_module(f"configs.{name}").get_config("smoke")
    if name == "captioning":
        (folder / "photos").mkdir()
        config = photos.files(folder / "photos")
    workdir = folder / "runs" / name
    configuration.record(config, workdir)
    task = create(config, workdir, training=True)
    like = jax.eval_shape(task.objective.init, jax.random.key(0))
    state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like)
    with Checkpoints(workdir, keep=1) as checkpoints:
        checkpoints.save(1, state, 0.0)
