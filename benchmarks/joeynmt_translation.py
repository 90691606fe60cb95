"""Translation quality of JoeyNMT's Transformer, trained for a limited time.

    python -m benchmarks.joeynmt_translation --minutes=13

Trains the Transformer of JoeyNMT 2.3 with JoeyNMT's trainer. The sizes, the training
split and the sentencepiece vocabulary are the same as in `configs/transformer_nmt.py`.
The time limit excludes the validations, which select the best parameters. JoeyNMT's
beam search translates the test split; BLEU and chrF are sacreBLEU's on the detokenised
text, as in `eval.py`.
"""

import json
import subprocess
from pathlib import Path

from benchmarks import harness
from benchmarks.corpus import write_corpus
from benchmarks.environment import ROOT, peers_python
from configs import transformer_nmt


def main() -> None:
    """Trains, evaluates and writes results/joeynmt_transformer.json."""
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--minutes", type=float, default=13, help="duration of the training"
    )
    parser.add_argument("--validations", type=int, default=6)
    parser.add_argument(
        "--tokens", type=int, default=1024, help="tokens per batch, padding included"
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
    config = transformer_nmt.get_config()
    data = "train_min_words", "made_up_names"
    for name in data:
        if (value := getattr(args, name)) is not None:
            config.data[name] = value
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
    flags = "minutes validations tokens learning_rate warmup dropout beam alpha seed"
    spec |= {name: getattr(args, name) for name in flags.split()}
    trained = {name: config.data[name] for name in data}
    subprocess.run(
        [
            peers_python(),
            "-m",
            "benchmarks.systems.joey",
            "translate",
            json.dumps(spec),
        ],
        cwd=ROOT,
        env=harness.process_environment(),
        preexec_fn=harness.use_cores,
        check=True,
    )
    run = json.loads((folder / "run.json").read_text())
    environment = harness.environment()
    record = {
        "name": "joeynmt_transformer",
        "system": f"JoeyNMT {run['versions']['joeynmt']}",
        "config": "transformer_nmt",
        "overrides": [],
        "settings": spec | trained | {"folder": folder.name},
        "seed": args.seed,
        "metrics": evaluate(folder, config.data.target_language),
        "minutes": args.minutes,
        **run,
        "commands": [environment.pop("command")],
        **environment,
    }
    print(json.dumps(record["metrics"], indent=2))
    if args.write:
        harness.write(record["name"], record)


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
    return result | {"sentences": len(references)}


if __name__ == "__main__":
    main()
