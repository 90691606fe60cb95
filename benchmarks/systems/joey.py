"""JoeyNMT 2.3 (Kreutzer et al. 2019) as installed: models, loss, search, trainer.

Modes: "step" is one training step on random tokens, "decode" beam search of one batch,
"tokens" steps of the trainer on text files, "trial" a training up to a limit of minutes
and of target tokens, "translate" the same, followed by translation of the test split.

Models: "transformer"; "bahdanau" and "luong" select the score and the cell (GRU, LSTM)
of JoeyNMT's one recurrent model. It is Luong's model: the updated state attends, and
the output of a tanh layer over state and context, with the width of the state, is read
out and fed back. The encoder must be bidirectional: with one direction JoeyNMT fails.
"""

import itertools
import json
import logging
import math
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import torch
from joeynmt.batch import Batch
from joeynmt.config import parse_global_args, set_validation_args
from joeynmt.helpers import load_checkpoint
from joeynmt.model import build_model
from joeynmt.prediction import predict, prepare
from joeynmt.search import search
from joeynmt.training import TrainManager
from joeynmt.vocabulary import Vocabulary

SPECIALS = SimpleNamespace(
    unk_token="<unk>",
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
    sep_token=None,
    unk_id=0,
    pad_id=1,
    bos_id=2,
    eos_id=3,
    sep_id=None,
    lang_tags=[],
)


def model_config(spec: dict) -> dict:
    """Returns the `model` section of the configuration."""
    dropout, share = {"dropout": spec["dropout"]}, spec["share_embeddings"]
    stack = {"num_layers": spec["layers"]} | dropout  # recurrent: between layers
    if "group" in spec:
        embeddings = {"embedding_dim": spec["embedding"], "scale": False} | dropout
        stack |= {"type": "recurrent", "rnn_type": spec["cell"]}
        stack |= {"hidden_size": spec["hidden"], "embeddings": embeddings}
        encoder = stack | {"bidirectional": True}
        decoder = stack | {
            "hidden_dropout": spec["dropout"],  # on state and context
            "attention": spec["group"],
            "init_hidden": "bridge",
            "input_feeding": True,
        }
    else:
        embeddings = {"embedding_dim": spec["d_model"], "scale": True} | dropout
        stack |= {"type": "transformer", "num_heads": spec["heads"]}
        stack |= {"hidden_size": spec["d_model"], "embeddings": embeddings}
        stack |= {"ff_size": spec["d_ff"]}
        stack |= {"layer_norm": "pre"}  # needs no long warm-up
        encoder, decoder = stack, dict(stack)
    return {
        "encoder": encoder,
        "decoder": decoder,
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
        "tied_embeddings": share,
        "tied_softmax": share,
    }


def random_model(spec: dict):
    """Returns a model over a vocabulary of numbered words, with its loss."""
    words = [f"w{i}" for i in range(spec["vocab_size"] - 4)]
    vocabularies = [Vocabulary(words, SPECIALS) for _ in range(2)]
    model = build_model(model_config(spec), *vocabularies)
    model.loss_function = ("crossentropy", spec["smoothing"])
    return model


def random_batch(spec: dict, *, with_target: bool) -> Batch:
    """Returns a batch without padding."""
    batch_size = spec["batch_size"]
    source = torch.randint(4, spec["vocab_size"], (batch_size, spec["source"]))
    target = torch.randint(4, spec["vocab_size"], (batch_size, spec["target"] + 1))
    target[:, 0], target[:, -1] = SPECIALS.bos_id, SPECIALS.eos_id
    return Batch(
        src=source,
        src_length=torch.full((batch_size,), spec["source"]),
        src_prompt_mask=None,
        trg=target if with_target else None,
        trg_prompt_mask=None,
        indices=torch.arange(batch_size),
        device=torch.device("cpu"),
        pad_index=SPECIALS.pad_id,
        eos_index=SPECIALS.eos_id,
    )


def trainer_config(spec: dict) -> dict:
    """Returns the configuration of a run on the text files of `spec["folder"]`."""
    folder = Path(spec["folder"])
    side = {
        "level": "bpe",
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": str(folder / "sentencepiece.model")},
        "voc_file": str(folder / "vocabulary.txt"),
        "max_length": spec["max_length"],
    }
    return {
        "name": "transformer",
        "model_dir": str(folder / "model"),
        "use_cuda": False,
        "random_seed": spec["seed"],
        "data": {
            "train": str(folder / "train"),
            "dev": str(folder / "validation"),
            "test": str(folder / "test"),
            "dataset_type": "plain",
            "src": {"lang": "source", **side},
            "trg": {"lang": "target", **side},
        },
        "training": {
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "normalization": "tokens",
            "label_smoothing": spec["smoothing"],
            "learning_rate": spec["learning_rate"],
            "learning_rate_min": 1e-8,
            "learning_rate_warmup": spec["warmup"],
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": 1.0,
            "batch_size": spec["tokens"],
            "batch_type": "token",
            "early_stopping_metric": "bleu",
            "epochs": 10**6,  # the clock ends the run
            "logging_freq": 50,
            "validation_freq": 10**9,  # TimedTrainer validates by the clock
            "print_valid_sents": [],
            "keep_best_ckpts": 1,
        },
        "testing": {
            "batch_size": 64,
            "batch_type": "sentence",
            # In pieces; the longest test reference has 83.
            "max_output_length": spec.get("max_output", 100),
            "beam_size": spec["beam"],
            "beam_alpha": spec["alpha"],
            "eval_metrics": ["bleu", "chrf"],
        },
        "model": model_config(spec),
    }


class TimedTrainer(TrainManager):
    """JoeyNMT's trainer, which validates and stops by minutes and target tokens."""

    def start_clock(self, minutes: float, tokens: int, validations: int, data) -> None:
        """Sets the limits, which must both be reached, and the validation data."""
        self.marks = [i / validations for i in range(1, validations + 1)]
        self.limits, self.data = (60 * minutes, tokens), data
        self.curve, self.perplexity, self.excluded = [], math.inf, 0.0  # seconds
        self.begin = time.perf_counter()

    def _train_step(self, batch):
        seconds = time.perf_counter() - self.begin - self.excluded
        done = seconds, int(self.stats.total_tokens)
        share = min(
            x / max(limit, 1) for x, limit in zip(done, self.limits, strict=True)
        )
        if self.marks and share >= self.marks[0]:
            while self.marks and share >= self.marks[0]:
                self.marks.pop(0)
            self._validate(self.data)
            line = (self.model_dir / "validations.txt").read_text().splitlines()[-1]
            scores = dict(part.split(": ") for part in line.split("\t") if ": " in part)
            point = [round(seconds / 60, 2), round(float(scores["bleu"]), 2)]
            self.curve.append(point)
            self.perplexity = float(scores["ppl"])
            print("minute {}: validation BLEU {}".format(*point), flush=True)
            self.excluded = time.perf_counter() - self.begin - seconds
        if share >= 1:
            self.stats.is_max_update = True  # ends after this batch
        return super()._train_step(batch)


def make_trainer(spec: dict):
    """Returns arguments, trainer and (train, validation, test) data."""
    config = trainer_config(spec)
    shutil.rmtree(config["model_dir"], ignore_errors=True)
    Path(config["model_dir"]).mkdir(parents=True)
    args = parse_global_args(config, rank=0, mode="train")
    model, *data = prepare(args, rank=0, mode="train")
    trainer = TimedTrainer(
        rank=0,
        model=model,
        model_dir=args.model_dir,
        device=args.device,
        autocast=args.autocast,
        seed=args.seed,
        train_args=args.train,
        dev_args=set_validation_args(args.test),
    )
    return args, trainer, data


def train_batches(trainer, data):
    """Yields batches of JoeyNMT's loader, endlessly."""
    args, epoch = trainer.args, 0
    loader = data.make_iter(
        batch_size=args.batch_size,
        batch_type=args.batch_type,
        seed=trainer.seed,
        shuffle=True,
        eos_index=trainer.model.eos_index,
        pad_index=trainer.model.pad_index,
        device=trainer.device,
    )
    while True:
        loader.batch_sampler.set_seed(trainer.seed + epoch)
        yield from loader
        epoch += 1


def padding(trainer, data) -> float:
    """Returns the share of padding in the first 100 batches, both sides together."""
    real = size = 0
    for batch in itertools.islice(train_batches(trainer, data), 100):
        for ids in (batch.src, batch.trg):
            real += (ids != trainer.model.pad_index).sum().item()
            size += ids.numel()
    return round(1 - real / size, 3)


def run(spec: dict, *, translate: bool) -> None:
    """Trains, translates the test split, writes test.hypotheses and run.json."""
    args, trainer, (train, validation, test) = make_trainer(spec)
    limits = spec["minutes"], spec["target_tokens"], spec["validations"]
    trainer.start_clock(*limits, validation)
    trainer.train_and_validate(train, validation)
    model, folder = trainer.model, Path(spec["folder"])
    if translate:
        best = load_checkpoint(args.model_dir / "best.ckpt", args.device)
        model.load_state_dict(best["model_state"])
        given = {"n_gpu": 0, "args": args.test, "autocast": args.autocast}
        hypotheses = predict(model, test, args.device, **given)[2]
        (folder / "test.hypotheses").write_text("\n".join(hypotheses) + "\n")
    record = {
        "curve": trainer.curve,
        "perplexity": trainer.perplexity,
        "minutes": trainer.curve[-1][0],
        "steps": trainer.stats.steps,
        "tokens": int(trainer.stats.total_tokens),
        "best_step": trainer.stats.best_ckpt_iter,
        "parameters": sum(p.numel() for p in model.parameters()),
        "versions": versions(),
    }
    folder.joinpath("run.json").write_text(json.dumps(record))


def versions() -> dict:
    """Returns the versions of the measured packages."""
    return {name: version(name) for name in ("joeynmt", "torch", "sentencepiece")}


def build(mode: str, spec: dict):
    """Returns step, facts and warm-up of the mode; None after "translate"."""
    logging.disable(logging.WARNING)
    if mode in ("trial", "translate"):
        torch.manual_seed(spec["seed"])
        return run(spec, translate=mode == "translate")
    torch.manual_seed(0)
    info = {"versions": versions()}
    if mode == "tokens":
        _, trainer, (data, *_) = make_trainer(spec)
        model, batches = trainer.model, train_batches(trainer, data)

        def step() -> float:
            batch = next(batches)
            trainer._train_step(batch)
            trainer.clip_grad_fun(parameters=model.parameters())
            trainer.optimizer.step()
            trainer.scheduler.step(trainer.stats.steps)
            model.zero_grad()
            trainer.stats.steps += 1
            return batch.ntokens

        trainer.start_clock(1e9, 0, 0, None)
        info["padding"] = padding(trainer, data)
    elif mode == "step":
        model, batch = random_model(spec).train(), random_batch(spec, with_target=True)
        adam = torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.98), eps=1e-9)

        def step() -> float:
            loss, *_ = model(return_type="loss", **vars(batch))
            batch.normalize(loss, "tokens").backward()
            adam.step()
            model.zero_grad()
            loss.item()
            return batch.ntokens

    else:
        model, batch = random_model(spec).eval(), random_batch(spec, with_target=False)

        def step() -> float:
            length = spec["target"]
            out, *_ = search(
                model=model,
                batch=batch,
                max_output_length=length,
                min_output_length=length,
                beam_size=spec["beam"],
                beam_alpha=spec["alpha"],
            )
            assert out.shape == (spec["batch_size"], length)
            return spec["batch_size"]

    info["parameters"] = sum(p.numel() for p in model.parameters())
    return step, info, 1 if mode == "decode" else 2
