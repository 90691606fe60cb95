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

import json
import re
import subprocess
from pathlib import Path

from benchmarks import harness
from benchmarks.corpus import write_corpus
from configs import transformer_nmt
from results.records import FOLDER, ROOT, read
from tasks.common.text_metrics import bleu_interval, translation_scores

_FILE = "translation.jsonl"  # of the records
_OURS = "transformer_nmt_sinusoidal_equal"  # record of our run
_RUN = ROOT / "runs" / "joeynmt_transformer"
_TOKENS = (512, 1024, 2048, 4096)  # per batch to try, padding included
_SETTINGS = {
    "learning_rate": 1e-3,  # at its peak
    "warmup": 200,
    "dropout": 0.1,
    "beam": 5,
    "alpha": 1.0,
    "seed": 0,
}
# Of a trial. One output token: it is judged by its perplexity, and decoding is slow.
_TRIAL = {"minutes": 4, "target_tokens": 0, "validations": 1, "max_output": 1}


def main() -> None:
    """Trains, evaluates and writes the record."""
    config = transformer_nmt.get_config("sinusoidal")
    (ours,) = (run for run in read(FOLDER / _FILE) if run["name"] == _OURS)
    cores = int(re.fullmatch(r"CPU, (\d+) cores?", ours["device"])[1])
    write_corpus(config, _RUN)
    spec = {
        "folder": str(_RUN),
        "layers": config.model.encoder_layers,
        "smoothing": config.loss.smoothing,
        "max_length": config.data.max_length,
    }
    model = "d_model", "heads", "d_ff", "share_embeddings"
    spec |= {name: config.model[name] for name in model} | _SETTINGS
    trials = {}
    for tokens in _TOKENS:
        run = _train("trial", spec | _TRIAL | {"tokens": tokens}, cores)
        trials[tokens] = run["perplexity"]
        print(f"batches of {tokens} tokens: perplexity {run['perplexity']}")
    spec |= {
        "minutes": ours["minutes"],
        "target_tokens": ours["tokens"],
        "validations": 3,
        "tokens": min(trials, key=trials.__getitem__),
    }
    run = _train("translate", spec, cores)
    environment = harness.environment(cores)
    data = {name: config.data[name] for name in ("train_min_words", "made_up_names")}
    record = {
        "name": "joeynmt_transformer",
        "system": f"JoeyNMT {run['versions']['joeynmt']}",
        "config": "transformer_nmt:sinusoidal",
        "overrides": [],
        "settings": spec | data | {"folder": _RUN.name},
        "seed": spec["seed"],
        "metrics": evaluate(_RUN, config.data.target_language),
        "trials": trials,  # validation perplexity by tokens per batch
        **run,
        "commands": [environment.pop("command")],
        **environment,
    }
    print(json.dumps(record["metrics"], indent=2))
    harness.write(_FILE, record)


def _train(mode: str, spec: dict, cores: int) -> dict:
    """Trains in a process of JoeyNMT's environment; returns what it reports."""
    subprocess.run(
        harness.worker_command("joey", mode, spec),
        cwd=ROOT,
        env=harness.process_environment(cores),
        preexec_fn=lambda: harness.use_cores(cores),
        check=True,
    )
    return json.loads((_RUN / "run.json").read_text())


def evaluate(folder: Path, language: str) -> dict:
    """Returns BLEU and chrF of the test split's hypotheses, with signatures."""
    hypotheses, references = (
        (folder / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        for name in ("test.hypotheses", "test.target")
    )
    scores, signatures = translation_scores(hypotheses, references, language=language)
    result: dict[str, float | str] = {"sentences": len(references)}
    for name, score in scores.items():
        result |= {name: round(score, 2), f"{name}_signature": signatures[name]}
    return result | bleu_interval(hypotheses, references, language=language)


if __name__ == "__main__":
    main()
