"""Evaluations, tables, predictions and figure names of all smoke runs, to compare.

    python tests/oracle/oracle.py make [CONFIG ...]    # writes tests/oracle/CONFIG.json
    python tests/oracle/oracle.py check [CONFIG ...]   # compares with them

Text must be equal, numbers to 1e-6. The files hold for one kind of CPU.
"""

import json
import math
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "project")]
sys.path.insert(0, str(FOLDER.parent.parent))

from smoke import ROOT, call  # noqa: E402
from test_configs import CONFIGS, INPUTS  # noqa: E402


def observe(name):
    """Trains, evaluates and predicts; returns what is compared."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder) / "run"
        figures = Path(folder) / "figures"
        figures.mkdir()
        flag = f"--workdir={workdir}"
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        train = call(
            "train.py",
            f"--config=configs/{name}.py:smoke",
            flag,
            "--tune_memory=false",
            env=env,
        )
        assert train.returncode == 0, (name, train.stderr)
        evaluation = call("eval.py", flag, "--tune_memory=false", env=env)
        assert evaluation.returncode == 0, (name, evaluation.stderr)
        stdin = INPUTS.get(name, "one\ntwo\n")
        predict = call("predict.py", flag, f"--figures={figures}", stdin=stdin, env=env)
        loss = []
        for line in (workdir / "metrics.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            for field in list(row):
                if field == "seconds" or "per_second" in field or field == "waiting":
                    del row[field]
            loss.append(row)
        return {
            "metrics": loss,
            "evaluation": json.loads(evaluation.stdout),
            "tables": {
                str(path.relative_to(workdir)): path.read_text("utf-8")
                for path in sorted(workdir.glob("*.tsv"))
            },
            "status": predict.returncode,
            "predictions": predict.stdout.replace(folder, "").splitlines(),
            "errors": predict.stderr.splitlines()[-1:] if predict.returncode else [],
            "figures": sorted(
                str(path.relative_to(folder)) for path in Path(folder).rglob("*.png")
            ),
        }


def differences(old, new, name=""):
    """Yields the paths of values that differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from differences(old.get(key), new.get(key), f"{name}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{name}/{i}")
    elif isinstance(old, float) and isinstance(new, int | float):
        if not math.isclose(old, new, rel_tol=1e-6, abs_tol=1e-6):
            if not (math.isnan(old) and math.isnan(new)):
                yield f"{name}: {old} -> {new}"
    elif old != new:
        yield f"{name}: {str(old)[:300]} -> {str(new)[:300]}"


def main(command, *names):
    """Makes or checks the files of some configs, or of all."""

    def work(name):
        path = FOLDER / f"{name}.json"
        try:
            new = observe(name)
        except (AssertionError, ValueError, OSError) as error:
            print(f"{name}: {str(error)[-1500:]}".replace("\\n", "\n"), flush=True)
            return False
        if command == "make":
            path.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n")
            print(f"{name}: made", flush=True)
            return True
        lines = list(differences(json.loads(path.read_text("utf-8")), new))
        print(f"{name}: {'differs' if lines else 'equal'}", *lines[:20], sep="\n  ")
        sys.stdout.flush()
        return not lines

    with ThreadPoolExecutor(2) as pool:
        return 0 if all(list(pool.map(work, names or CONFIGS))) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
