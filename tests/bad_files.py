"""Files of the bad inputs: configs, corpora, captions, images and untrained runs.

`write` makes them in the folder in which the commands of `bad_inputs.txt` run.
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

from training import configuration
from training.checkpoints import Checkpoints
from training.task import create

RUNS = (
    "captioning ff_attention kernel_regression ntm_copy ntm_ngrams ntm_recall "
    "ntm_repeat_copy ntm_sort pointer_delaunay pointer_hull pointer_sorting "
    "pointer_tsp sagan seq2seq_nmt transformer_nmt"
).split()


def changed(name, *lines):
    """Returns a config file that changes the smoke variant of a config."""
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"from configs import {name}\n\n\ndef get_config(variant):\n"
        f"    config = {name}.get_config('smoke')\n{body}    return config\n"
    )


def function(*lines, before=""):
    """Returns a config file whose function has these lines."""
    body = "".join(f"    {line}\n" for line in lines)
    head = f"from ml_collections import ConfigDict\n{before}\n\n"
    return f"{head}def get_config(variant):\n{body}"


# Configs without a field or a group, and with a value of another type.
MISSING = {
    "no_task.py": ("ff_attention", "task"),
    "no_mesh.py": ("ff_attention", "mesh"),
    "no_model.py": ("ff_attention", "model"),
    "no_optimizer.py": ("ff_attention", "optimizer"),
    "no_data.py": ("ff_attention", "data"),
    "no_evaluation.py": ("ff_attention", "evaluation"),
    "no_checkpoints.py": ("ff_attention", "checkpoints"),
    "no_architecture.py": ("ff_attention", "architecture"),
    "no_checkpoint.py": ("ff_attention", "evaluation.checkpoint"),
    "no_average.py": ("ff_attention", "evaluation.average"),
    "no_seed.py": ("ff_attention", "seed"),
    "no_length.py": ("ff_attention", "data.length"),
    "no_protocol.py": ("ff_attention", "data.protocol"),
    "no_schedule.py": ("ff_attention", "optimizer.schedule"),
    "no_clip.py": ("ff_attention", "optimizer.clip"),
    "no_b1.py": ("ff_attention", "optimizer.b1"),
    "no_warmup.py": ("ff_attention", "optimizer.warmup"),
    "no_kind.py": ("pointer_sorting", "data.kind"),
    "no_constrain.py": ("pointer_sorting", "evaluation.constrain"),
    "no_files.py": ("transformer_nmt", "data.files"),
    "no_corpus.py": ("transformer_nmt", "data.corpus"),
    "no_language.py": ("transformer_nmt", "data.target_language"),
    "no_loss.py": ("transformer_nmt", "loss"),
    "no_smoothing.py": ("transformer_nmt", "loss.smoothing"),
    "no_d_model.py": ("transformer_nmt", "model.d_model"),
    "no_max_length.py": ("transformer_nmt", "model.max_length"),
    "no_accumulate.py": ("transformer_nmt", "optimizer.accumulate"),
    "no_attention.py": ("sagan", "attention"),
    "no_discriminator.py": ("sagan", "discriminator"),
    "no_generator.py": ("sagan", "generator"),
    "no_folder.py": ("sagan", "data.folder"),
    "no_size.py": ("sagan", "model.size"),
    "no_source.py": ("captioning", "data.source"),
    "no_groups.py": ("captioning", "data.groups"),
    "no_encoder.py": ("captioning", "model.encoder"),
    "no_beam.py": ("captioning", "evaluation.beam"),
    "no_kernel.py": ("kernel_regression", "model.kernel"),
}
WRONG = {
    "files_number.py": ("transformer_nmt", "data.files.train = 3"),
    "folder_number.py": ("sagan", "data.folder = 3"),
    "model_number.py": ("ff_attention", "model = 7"),
    "data_text.py": ("ff_attention", "data = 'adding'"),
    "optimizer_text.py": ("ff_attention", "optimizer = 'adam'"),
    "evaluation_none.py": ("ff_attention", "evaluation = None"),
    "mesh_tuple.py": ("ff_attention", "mesh = (1, 1)"),
    "length_text.py": ("ff_attention", "data.length = '23'"),
    "length_none.py": ("ff_attention", "data.length = None"),
    "lengths_number.py": ("ff_attention", "evaluation.lengths = 29"),
    "lengths_text.py": ("ff_attention", "evaluation.lengths = ('29',)"),
    "seed_bool.py": ("ff_attention", "seed = True"),
    "hidden_float.py": ("ff_attention", "model.hidden = 11.0"),
    "pooling_number.py": ("ff_attention", "model.pooling = 3"),
    "pooling_list.py": ("ff_attention", "model.pooling = ('mean',)"),
    "parallel_number.py": ("ff_attention", "parallel = 8"),
    "optimizer_name.py": ("ff_attention", "optimizer.name = None"),
    "schedule_list.py": ("ff_attention", "optimizer.schedule = ('constant',)"),
    "kind_number.py": ("pointer_sorting", "data.kind = 3"),
    "corpus_none.py": ("transformer_nmt", "data.corpus = None"),
    "language_none.py": ("transformer_nmt", "data.target_language = None"),
    "extra_text.py": ("transformer_nmt", "data.extra_corpora = 'numbers'"),
    "files_text.py": ("transformer_nmt", "data.files = 'corpus/train'"),
    "checkpoint_number.py": ("ff_attention", "evaluation.checkpoint = ('last',)"),
    "groups_text.py": ("captioning", "data.groups = 'animal-'"),
    "task_text.py": ("ff_attention", "task = 'tasks.adding.task:Adding'"),
    "task_instance.py": ("ff_attention", "task = config.task(config)"),
    "task_function.py": ("ff_attention", "task = print"),
    "architecture_text.py": ("ff_attention", "architecture = 'Transformer'"),
    "architecture_task.py": ("ff_attention", "architecture = config.task"),
    "architecture_instance.py": (
        "ff_attention",
        "architecture = config.architecture()",
    ),
}

CONFIGS = {
    "syntax.py": "def get_config(variant:\n    return 3\n",
    "indent.py": "def get_config(variant):\nreturn 3\n",
    "tabs.py": "def get_config(variant):\n    x = 1\n\treturn x\n",
    "unclosed.py": "names = ['a\n",
    "binary.py": b"\x7fELF\x02\x01\x01\0\0\0",
    "latin1.py": "name = 'Zürich'\n".encode("latin-1"),
    "utf16.py": "x = 1\n".encode("utf-16"),
    "name.py": "import math\n\nwidth = wdith\n",
    "absent_module.py": "import absent_module\n",
    "division.py": function("return 1 / 0"),
    "attribute.py": changed("ff_attention", "config.model.hiden += 1"),
    "typed.py": changed("ff_attention", "config.model.hidden = 'wide'"),
    "key.py": changed("ff_attention", "config.model.hidden = {}['hidden']"),
    "absent_file.py": changed("ff_attention", "open('nowhere.txt')"),
    "recursion.py": function("return get_config(variant)"),
    "exit.py": "import sys\n\nsys.exit('no accelerator')\n",
    "lines.py": "raise ValueError('first line\\nsecond line')\n",
    "assertion.py": function("assert variant == 'x'"),
    "no_function.py": "config = {}\n",
    "no_parameter.py": "def get_config():\n    return {}\n",
    "not_callable.py": "get_config = {'seed': 3}\n",
    "empty.py": "",
    "none.py": function("config = ConfigDict()"),
    "dict.py": function("return {'seed': 3}"),
    "text.py": function("return 'smoke'"),
    "bare.py": function("return ConfigDict()"),
    "variants.py": function(
        "if variant not in VARIANTS:",
        "    raise ValueError(f'{variant} is not small or large')",
        before="VARIANTS = {'small': 1, 'large': 2}\n",
    ),
    "set.py": changed("ff_attention", "config.names = {'a'}"),
    "array.py": changed("ff_attention", "import numpy", "config.x = numpy.arange(3)"),
    "path.py": changed(
        "ff_attention", "import pathlib", "config.x = pathlib.Path('x')"
    ),
    "bytes.py": changed("ff_attention", "config.name = b'x'"),
    "list.py": changed("ff_attention", "config.model.extra = [1, {2}]"),
    "own_task.py": "class Mine:\n    pass\n\n\n"
    + changed("ff_attention", "with config.ignore_type():", "    config.task = Mine"),
    "own_model.py": "from flax import linen as nn\n\n\nclass Mine(nn.Module):\n"
    "    pass\n\n\n" + changed("ff_attention", "config.architecture = Mine"),
    "local_task.py": changed(
        "ff_attention", "class Mine(config.task):", "    pass", "config.task = Mine"
    ),
    "extra_field.py": changed("ff_attention", "config.model.depth = 3"),
    "nested_field.py": changed("ff_attention", "config.model.layers = {'depth': 3}"),
    "infinite.py": changed("ff_attention", "config.model.rate = float('inf')"),
    "huge.py": changed("ff_attention", "config.data.rows = 10**400"),
    "discriminator.py": changed("sagan", "config.discriminator_architecture = int"),
    **{
        f"{name}.py": changed(
            "ff_attention",
            "from configs import _optimizer",
            f"config.optimizer = _optimizer.{call}",
        )
        for name, call in {
            "sgd": "sgd(1.0, momentum=1.0)",
            "rmsprop": "rmsprop(1e-4, centered=1)",
            "adafactor": "adafactor(0.01, decay_rate=0.0)",
            "adadelta": "adadelta(rho=-0.5)",
            "adamw": "adamw(0.1, weight_decay=float('nan'))",
            "decay": "sgd(1.0, schedule='step_decay', decay_begin=5, decay_every=0, "
            "decay_factor=0.5)",
            "growth": "sgd(1.0, schedule='exponential_decay', decay_begin=5, "
            "decay_every=1, decay_factor=2.0)",
            "noam": "adam(1.0, schedule='noam', warmup=100)",
            "argument": "sgd(rate=1.0)",
        }.items()
    },
    **{name: changed(base, f"del config.{x}") for name, (base, x) in MISSING.items()},
    **{
        name: changed(base, "with config.ignore_type():", f"    config.{line}")
        for name, (base, line) in WRONG.items()
    },
}
SENTENCES = [(f"number {n} is here", f"Zahl {n} ist hier") for n in range(40)]
ENGLISH, GERMAN = (
    "".join(f"{text}\n" for text in x) for x in zip(*SENTENCES, strict=True)
)
PACKED = gzip.compress(ENGLISH.encode(), mtime=0)
ZEROS = gzip.compress(b"\0" * 2**22, mtime=0)
# Source and target, by the prefix of the files.
CORPORA = {
    "good": (ENGLISH, GERMAN),
    "empty": ("", ""),
    "half_empty": (ENGLISH, ""),
    "blank": ("\n" * 40, "\n" * 40),
    "spaces": ("  \n\t\n", " \n \n"),
    "longer": (ENGLISH, f"{GERMAN}noch eine\n"),
    "shorter": (f"{ENGLISH}one more\n", GERMAN),
    "gaps": ("only here\n\n" * 20, "\nnur hier\n" * 20),
    "cr": (ENGLISH.replace("\n", "\r"), GERMAN.replace("\n", "\r")),
    "latin1": (ENGLISH, GERMAN.replace("Zahl 3", "Zähler").encode("latin-1")),
    "utf16": (ENGLISH.encode("utf-16"), GERMAN.encode("utf-16")),
    "binary": (ENGLISH, bytes(range(256)) * 4),
    "nul": (ENGLISH.replace("number 3", "number\0 3"), GERMAN),
    "one": ("a first line\n", "eine erste Zeile\n"),
    "two": ("a first line\na second line\n", "eine erste\neine zweite Zeile\n"),
    "same": ("the same line\n" * 40, "dieselbe Zeile\n" * 40),
    "long": ("word " * 60 + "\n" + ENGLISH, "Wort " * 60 + "\n" + GERMAN),
}
ARCHIVES = {
    "damaged": (PACKED[:60], PACKED[:60]),
    "unpacked": (ENGLISH, GERMAN),
    "flipped": (PACKED[:40] + bytes([PACKED[40] ^ 255]) + PACKED[41:], PACKED),
    "zeros": (ZEROS, ZEROS),
}


def coco(**fields):
    """Returns captions of one image in the format of MS-COCO."""
    images = [{"id": 1, "file_name": "red.png"}]
    annotations = [{"image_id": 1, "caption": "a red square"}]
    return json.dumps({"images": images, "annotations": annotations} | fields)


def named(name, number=1):
    """Returns captions of an image with a name and an id."""
    annotations = [{"image_id": number, "caption": "a square"}]
    return coco(images=[{"id": number, "file_name": name}], annotations=annotations)


def karpathy(*without, **fields):
    """Returns captions of one image in Karpathy's format, without some fields."""
    sentences = [{"raw": "a red square"}]
    image = {"filename": "red.png", "split": "train", "sentences": sentences} | fields
    return json.dumps({"images": [{k: image[k] for k in image if k not in without}]})


CAPTIONS = {
    "good.json": coco(),
    "empty.json": "",
    "truncated.json": coco()[:60],
    "text.json": "a red square\n",
    "comma.json": '{"images": [],}',
    "number.json": "3",
    "null.json": "null",
    "list.json": "[1, 2]",
    "string.json": '"images"',
    "object.json": "{}",
    "latin1.json": '{"images": "Zürich"}'.encode("latin-1"),
    "utf16.json": coco().encode("utf-16"),
    "deep.json": "[" * 100_000,
    "nan_id.json": named("red.png", float("nan")),
    "inf_id.json": named("red.png", float("inf")),
    "no_annotations.json": json.dumps({"images": [{"id": 1, "file_name": "red.png"}]}),
    "images_number.json": coco(images=3),
    "images_object.json": coco(images={"1": "red.png"}),
    "images_empty.json": coco(images=[], annotations=[]),
    "images_texts.json": coco(images=["red.png"]),
    "images_null.json": coco(images=None),
    "no_id.json": coco(images=[{"file_name": "red.png"}]),
    "no_file_name.json": coco(images=[{"id": 1}]),
    "file_name_number.json": named(3),
    "file_name_null.json": named(None),
    "id_list.json": named("red.png", [1]),
    "twice.json": coco(images=[{"id": 1, "file_name": "red.png"}] * 2),
    "other_image.json": coco(annotations=[{"image_id": 2, "caption": "a square"}]),
    "no_image_id.json": coco(annotations=[{"caption": "a square"}]),
    "no_caption.json": coco(annotations=[{"image_id": 1}]),
    "caption_number.json": coco(annotations=[{"image_id": 1, "caption": 3}]),
    "caption_null.json": coco(annotations=[{"image_id": 1, "caption": None}]),
    "caption_list.json": coco(annotations=[{"image_id": 1, "caption": ["a"]}]),
    "caption_blank.json": coco(annotations=[{"image_id": 1, "caption": " . "}]),
    "annotations_text.json": coco(annotations="a square"),
    "without_captions.json": coco(annotations=[]),
    "absolute.json": named("/etc/hostname"),
    "parent.json": named("../outside.png"),
    "inner_parent.json": named("inner/../../outside.png"),
    "link.json": named("link.png"),
    "nul_name.json": named("red\0.png"),
    "absent.json": named("blue.png"),
    "no_name.json": named(""),
    "folder_name.json": named("inner"),
    "long_name.json": named("x" * 300),
    "no_split.json": karpathy("split"),
    "split_list.json": karpathy(split=["train"]),
    "only_test.json": karpathy(split="test"),
    "no_filename.json": karpathy("filename"),
    "filename_number.json": karpathy(filename=7),
    "sentences_text.json": karpathy(sentences="a red square"),
    "no_sentences.json": karpathy(sentences=[]),
    "no_raw.json": karpathy(sentences=[{"tokens": ["a"]}]),
    "raw_number.json": karpathy(sentences=[{"raw": 3}]),
    "filepath.json": karpathy(filepath="/etc", filename="hostname"),
    "filepath_parent.json": karpathy(filepath="..", filename="outside.png"),
    "filepath_number.json": karpathy(filepath=3),
    "imgid_nan.json": karpathy(imgid=float("nan")),
}


def image(kind="PNG"):
    """Returns the bytes of an image in a format of Pillow."""
    content = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(content, kind)
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


IMAGES = {
    "red.png": image(),
    "inner/red.png": image(),
    "truncated.png": image()[:60],
    "header.png": image()[:8],
    "postscript.png": "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
    "text.png": "a red square\n",
    "empty.png": "",
    "large.png": large_image(),
    "tiff.png": image("TIFF"),
    "svg.png": "<svg xmlns='http://www.w3.org/2000/svg'/>",
    "pdf.png": "%PDF-1.4\n",
    "checksum.png": image()[:40] + b"\xff\xff" + image()[42:],
}
CLASSES = {
    "flat/red.png": image(),
    "no_images/cats/notes.txt": "",
    "empty_class/cats/red.png": image(),
    "empty_class/dogs/.keep": "",
    "text/cats/red.png": image(),
    "text/dogs/red.png": "not an image",
    "postscript/cats/red.png": IMAGES["postscript.png"],
    "large/cats/red.png": IMAGES["large.png"],
    "hidden/.cats/red.png": image(),
    "twice/caf\u00e9/red.png": image(),
    "twice/cafe\u0301/red.png": image(),
}
STORIES = {
    "number.txt": "1 Mary went home.\n3 Where is Mary?\thome\t1\n",
    "no_number.txt": "Mary went home.\n",
    "no_tab.txt": "1 Mary went home.\n2 Where is Mary? home 1\n",
    "no_answer.txt": "1 Mary went home.\n2 Where is Mary?\n",
    "support.txt": "1 Mary went home.\n2 Where is Mary?\thome\t3\n",
    "first.txt": "1 Where is Mary?\thome\t1\n",
    "story.txt": "1 Mary went home.\n2 Where is Mary?\thome\t1\n",
    "one_question.txt": (
        "1 Mary went home.\n2 Where is Mary?\thome\t1\n1 John moved.\n2 John sat.\n"
    ),
    "latin1.txt": "1 Zoë went home.\n".encode("latin-1"),
    "cr.txt": "1 Mary went home.\r2 Where is Mary?\thome\t1\r",
    "arabic.txt": "1 ذهبت مريم إلى البيت.\n2 أين مريم؟\n",
}
LINES = {
    "latin1.txt": "Zürich\n".encode("latin-1"),
    "second_latin1.txt": "0.1 0.2\nZürich\n".encode("latin-1"),
    "second.txt": "0.1 0.2 0.3 0.4\n0.3 x\n",
    "README.md": "# Notes\n",
}


def snli(**fields):
    """Returns a line in the format of SNLI."""
    pair = {"gold_label": "neutral", "sentence1": "A man.", "sentence2": "He sings."}
    return json.dumps(pair | fields) + "\n"


PAIRS = {
    "truncated.jsonl": snli() + snli()[:40] + "\n",
    "no_sentence2.jsonl": '{"gold_label": "neutral", "sentence1": "A man."}\n',
    "number.jsonl": snli(sentence1=3),
    "empty_label.jsonl": snli(gold_label=""),
    "empty_sentence.jsonl": snli(sentence1=" "),
    "half_character.jsonl": snli(sentence1="\ud800"),
    "deep.jsonl": '{"a": ' * 100_000 + "\n",
    "undecided.jsonl": snli(gold_label="-"),
    "one_label.jsonl": snli() * 20,
    "empty_label.tsv": "\tA film.\n",
    "empty_text.tsv": "good\t \n",
    "no_tab.tsv": "good A film.\n",
    "latin1.tsv": "good\tZoë\n".encode("latin-1"),
    "empty.tsv": "",
    "cr.tsv": "good\tA film.\rbad\tA film.\r",
}


# Changes of `config.json` in copies of the run of ff_attention.
EDITS = {
    "edited_number": lambda config: config["data"].update(length=3),
    "edited_text": lambda config: config["data"].update(length="long"),
    "edited_class": lambda config: config.update(task="os:system"),
    "edited_model": lambda config: config.update(
        architecture="models.transformer:Transformer"
    ),
    "edited_size": lambda config: config["model"].update(hidden=1_000_000),
    "edited_missing": lambda config: config["data"].pop("length"),
}


def replace_by_file(folder):
    """Puts an empty file in the place of a folder."""
    shutil.rmtree(folder)
    folder.touch()


# Faults of copies of the run of ff_attention.
DAMAGED_RUNS = {
    "truncated": lambda run: faults.truncate(
        run / "checkpoints/1/default/manifest.ocdbt", None
    ),
    "incomplete": lambda run: faults.delete(
        run / "checkpoints/1/default/manifest.ocdbt", None
    ),
    "no_config": lambda run: faults.delete(run / "config.json", None),
    "no_folder": lambda run: replace_by_file(run / "checkpoints"),
    "no_file": lambda run: faults.replace_by_folder(run / "config.json", None),
    "broken_config": lambda run: (run / "config.json").write_text('{"seed": '),
}


def write(folder):
    """Writes all files and runs into a folder."""
    pairs = {
        f"{name}.{x}": t
        for name, ts in CORPORA.items()
        for x, t in zip(("en", "de"), ts, strict=True)
    }
    pairs |= {
        f"{name}.{x}.gz": t
        for name, ts in ARCHIVES.items()
        for x, t in zip(("en", "de"), ts, strict=True)
    }
    groups = {
        "bad": CONFIGS,
        "text": pairs | {"source.en": ENGLISH, "folder.en/x": "", "folder.de/x": ""},
        "captions": CAPTIONS | {"outside.png": image()},
        "images": IMAGES,
        "classes": CLASSES,
        "stories": STORIES,
        "pairs": PAIRS,
        ".": LINES,
    }
    for group, files in groups.items():
        for name, content in files.items():
            path = folder / group / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
    (folder / "outside.png").write_bytes(image())
    (folder / "images/link.png").symlink_to("../outside.png")
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    for name in RUNS:
        write_run(folder, name)
    for name, edit in EDITS.items():
        shutil.copytree(folder / "runs/ff_attention", folder / "runs" / name)
        path = folder / "runs" / name / "config.json"
        config = json.loads(path.read_text())
        edit(config)
        path.write_text(json.dumps(config))
    shutil.copytree(folder / "runs/ff_attention", folder / "runs/unsaved")
    shutil.rmtree(folder / "runs/unsaved/checkpoints")
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
