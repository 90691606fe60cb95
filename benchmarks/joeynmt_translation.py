"""Translation quality of JoeyNMT's Transformer, with as much training as ours.

    python -m benchmarks.joeynmt_translation

Trains the Transformer of JoeyNMT 2.3 with JoeyNMT's trainer. The sizes, the training
split and the sentencepiece vocabulary are the same as in the variant `sinusoidal` of
`configs/transformer_nmt.py`. The training uses as many cores as our run, and ends when
it has taken as many minutes and seen as many target tokens, without padding. The time
excludes the validations, which select the best parameters. The batch size is that with
the lowest validation perplexity after trials of a few minutes. JoeyNMT's beam search
translates the test split; BLEU and chrF are sacreBLEU's on the detokenised text, as in
`eval.py`.
"""

import functools
import json
import re
import subprocess
from pathlib import Path

from benchmarks import harness
from benchmarks.corpus import write_corpus
from benchmarks.environment import ROOT, peers_python
from configs import transformer_nmt
from results.records import FOLDER, read
from tasks.common.text_metrics import bleu_interval

_FILE = "translation.jsonl"  # of the records
_OURS = "transformer_nmt_sinusoidal_equal"  # record of our run


def main() -> None:
    """Trains, evaluates and writes the record."""
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        help="minimum duration of the training; default: that of our run",
    )
    parser.add_argument(
        "--target_tokens",
        type=int,
        help="minimum number of target tokens; default: that of our run",
    )
    parser.add_argument(
        "--trial_minutes", type=float, default=4, help="duration of a trial"
    )
    parser.add_argument("--validations", type=int, default=3)
    parser.add_argument(
        "--tokens",
        type=int,
        nargs="+",
        default=[512, 1024, 2048, 4096],
        help="tokens per batch to try, padding included",
    )
    parser.add_argument(
        "--learning_rate", type=float, default=1e-3, help="peak learning rate"
    )
    parser.add_argument("--warmup", type=int, default=200, help="warm-up steps")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--train_min_words", type=int, help="default: the value in the config"
    )
    parser.add_argument(
        "--made_up_names", type=float, help="default: the value in the config"
    )
    parser.add_argument("--folder", default=ROOT / "runs" / "joeynmt_transformer")
    args = parser.parse_args()

    folder = Path(args.folder).resolve()
    config = transformer_nmt.get_config("sinusoidal")
    (ours,) = (run for run in read(FOLDER / _FILE) if run["name"] == _OURS)
    minutes, target_tokens = (
        ours[name] if given is None else given
        for name, given in (("minutes", args.minutes), ("tokens", args.target_tokens))
    )
    data = "train_min_words", "made_up_names"
    for name in data:
        if (value := getattr(args, name)) is not None:
            config.data[name] = value
    cores = int(re.fullmatch(r"CPU, (\d+) cores?", ours["device"])[1])
    train = functools.partial(_train, folder=folder, cores=cores)
    write_corpus(config, folder)
    model = config.model
    spec = {
        "folder": str(folder),
        "layers": model.encoder_layers,
        "smoothing": config.loss.smoothing,
        "max_length": config.data.max_length,
    }
    spec |= {name: model[name] for name in ("d_model", "heads", "d_ff")}
    spec |= {"share_embeddings": model.share_embeddings}
    flags = "learning_rate warmup dropout beam alpha seed"
    spec |= {name: getattr(args, name) for name in flags.split()}
    trials = {}
    if len(args.tokens) > 1:
        # One output token: a trial is judged by its perplexity, and decoding is slow.
        limits = {"minutes": args.trial_minutes, "target_tokens": 0}
        limits |= {"validations": 1, "max_output": 1}
        for tokens in args.tokens:
            run = train("trial", spec | limits | {"tokens": tokens})
            trials[tokens] = run["perplexity"]
            print(f"batches of {tokens} tokens: perplexity {run['perplexity']}")
    spec |= {
        "minutes": minutes,
        "target_tokens": target_tokens,
        "validations": args.validations,
        "tokens": min(trials, key=trials.get) if trials else args.tokens[0],
    }
    trained = {name: config.data[name] for name in data}
    run = train("translate", spec)
    environment = harness.environment(cores)
    record = {
        "name": "joeynmt_transformer",
        "system": f"JoeyNMT {run['versions']['joeynmt']}",
        "config": "transformer_nmt:sinusoidal",
        "overrides": [],
        "settings": spec | trained | {"folder": folder.name},
        "seed": args.seed,
        "metrics": evaluate(folder, config.data.target_language),
        "trials": trials,  # validation perplexity by tokens per batch
        **run,
        "commands": [environment.pop("command")],
        **environment,
    }
    print(json.dumps(record["metrics"], indent=2))
    if args.write:
        harness.write(_FILE, record)


def _train(mode: str, spec: dict, folder: Path, cores: int) -> dict:
    """Trains in a process of JoeyNMT's environment; returns what it reports."""
    command = [peers_python(), *harness.worker_arguments("joey", mode, spec)]
    subprocess.run(
        command,
        cwd=ROOT,
        env=harness.process_environment(cores),
        preexec_fn=lambda: harness.use_cores(cores),
        check=True,
    )
    return json.loads((folder / "run.json").read_text())


def evaluate(folder: Path, language: str) -> dict:
    """Returns BLEU and chrF of the test split's hypotheses, with signatures."""
    from sacrebleu.metrics import BLEU, CHRF

    hypotheses, references = (
        (folder / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        for name in ("test.hypotheses", "test.target")
    )
    metrics = {"bleu": BLEU(trg_lang=language), "chrf": CHRF()}
    result = {}
    for name, metric in metrics.items():
        result[name] = round(metric.corpus_score(hypotheses, [references]).score, 2)
        result[f"{name}_signature"] = str(metric.get_signature())
    interval = bleu_interval(hypotheses, references, language=language)
    return result | interval | {"sentences": len(references)}


if __name__ == "__main__":
    main()
