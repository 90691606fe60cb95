"""Files that launch jobs: their syntax, quoting, and runs with fake commands."""

import dataclasses
import io
import os
import random
import re
import shlex
import subprocess
from pathlib import Path

import in_process
import pytest
import yaml
from smoke import ROOT

from base.errors import UserError
from launch.targets import TARGETS, Job, Template, check, render

RUN = "--config=configs/transformer_nmt.py:smoke --workdir=/mnt/shared/nmt --name=nmt"
SWEEP = (
    "--config=configs/luong_nmt.py:short --sweep=configs/sweeps/alignments.py "
    "--workdir=/mnt/shared/nmt --name=nmt --hosts=3"
)
CLOUD = "--zone=us-central2-b --project=my-project --storage=10.0.0.2:/share"
IMAGE = "--image=example.com/attention:1 --storage=claim"
COMMANDS = {
    "tpu.sh": f"--target=tpu {RUN} {CLOUD} --accelerator=v5litepod-16 --spot",
    "tpu_sweep.sh": f"--target=tpu {SWEEP} {CLOUD} --accelerator=v4-8",
    "slurm.sh": f"--target=slurm {RUN} --hosts=2 --accelerator=h100:8 --partition=gpu "
    "-- --config.model.d_model=64 --config.seed=7",
    "slurm_sweep.sh": f"--target=slurm {SWEEP} --accelerator=2",
    "kubernetes.yaml": f"--target=kubernetes {RUN} {IMAGE} --hosts=2 --restarts=5 "
    "--accelerator=nvidia.com/gpu:8 --namespace=research -- --config.seed=7",
    "kubernetes_sweep.yaml": f"--target=kubernetes {SWEEP} {IMAGE} "
    "--accelerator=nvidia.com/gpu:2",
    "skypilot.yaml": f"--target=skypilot {RUN} --hosts=2 --accelerator=H100:8 --spot "
    "--storage=nmt-volume",
}


def launch(*arguments):
    """The result of the command in this process."""
    return in_process.call("launch", *arguments)


@pytest.fixture(scope="module")
def texts():
    """The files that the commands print, by name."""
    results = {name: launch(*shlex.split(text)) for name, text in COMMANDS.items()}
    assert not any(x.status or x.errors for x in results.values()), results
    return {name: result.output for name, result in results.items()}


def scripts(name, text):
    """The bash scripts in a file."""
    if name.endswith(".sh"):
        assert text.startswith("#!")
        return [text]
    nodes = [*yaml.safe_load_all(text)]
    parts = []
    while nodes:
        node = nodes.pop()
        nodes += node.values() if isinstance(node, dict) else ()
        nodes += node if isinstance(node, list) else ()
        parts += [node] if isinstance(node, str) and "\n" in node else []
    return parts


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_is_bash_without_placeholders_and_places_of_this_machine(name, texts):
    text = texts[name]
    for script in scripts(name, text):
        assert subprocess.run(["bash", "-n"], input=script.encode()).returncode == 0
    assert "@@" not in text and "None" not in text.replace("clusterIP: None", "")
    assert not re.search(r"/home|/root|/usr/(?!bin/env bash)|pypi|https?:", text)


def test_slurm_has_a_task_for_each_gpu_and_restarts(texts):
    text = texts["slurm.sh"]
    options = re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)
    assert options == [
        "--job-name=nmt",
        "--partition=gpu",
        "--nodes=2",
        "--ntasks-per-node=8",
        "--gpus-per-node=h100:8",
        "--output=%x.%j.txt",
        "--requeue",
        "--open-mode=append",
        "--signal=TERM@120",
    ]
    before = text[: text.index("set -uo")]  # sbatch reads options before any command
    assert before.count("#SBATCH") == len(options)
    assert "srun --kill-on-bad-exit=1 " in text
    assert "#SBATCH --array=0-2\n" in texts["slurm_sweep.sh"]


def documents(text):
    """The documents of a YAML text by kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_a_jobset_has_what_jax_needs_to_find_its_pods(texts):
    parts = documents(texts["kubernetes.yaml"])
    assert list(parts) == "ServiceAccount Role RoleBinding Service JobSet".split()
    assert {part["metadata"]["namespace"] for part in parts.values()} == {"research"}
    assert {part["metadata"]["name"] for part in parts.values()} == {"nmt"}
    readable = {
        (group, resource)
        for rule in parts["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if {"get", "list"} <= set(rule["verbs"])
    }
    assert readable >= {("", "pods"), ("batch", "jobs")}
    assert parts["RoleBinding"]["subjects"][0]["name"] == "nmt"
    service, jobset = parts["Service"]["spec"], parts["JobSet"]["spec"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]
    assert service["selector"] == {"jobset.sigs.k8s.io/jobset-name": "nmt"}
    # jax takes the name of the JobSet as the subdomain of the coordinator.
    assert jobset["network"] == {"enableDNSHostnames": True, "subdomain": "nmt"}
    (replicated,) = jobset["replicatedJobs"]
    spec = replicated["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 2
    pod = spec["template"]["spec"]
    assert pod["serviceAccountName"] == "nmt" and pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert container["volumeMounts"][0]["mountPath"] == "/mnt/shared"
    claim = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim == "claim"


def test_a_jobset_fails_for_an_error_of_the_user_only(texts):
    jobset = documents(texts["kubernetes.yaml"])["JobSet"]["spec"]
    assert jobset["failurePolicy"]["maxRestarts"] == 5
    assert jobset["failurePolicy"]["rules"] == [
        {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    ]
    spec = jobset["replicatedJobs"][0]["template"]["spec"]
    assert spec["backoffLimit"] == 0  # any other status fails the Job: a restart
    (rule,) = spec["podFailurePolicy"]["rules"]
    codes = {"containerName": "train", "operator": "In", "values": [1]}
    assert rule == {"action": "FailJob", "onExitCodes": codes}
    assert spec["template"]["spec"]["containers"][0]["name"] == "train"


def test_a_sweep_on_kubernetes_has_independent_pods(texts):
    spec = documents(texts["kubernetes_sweep.yaml"])["Job"]["spec"]
    assert spec["completionMode"] == "Indexed" and "backoffLimit" not in spec
    assert spec["completions"] == spec["parallelism"] == 3
    actions = [rule["action"] for rule in spec["podFailurePolicy"]["rules"]]
    assert actions == ["Ignore", "FailIndex"]


def test_skypilot_recovers_from_signals(texts):
    task = yaml.safe_load(texts["skypilot.yaml"])
    assert task["num_nodes"] == 2 and task["name"] == "nmt"
    resources = task["resources"]
    assert resources["accelerators"] == "H100:8" and resources["use_spot"] is True
    assert resources["job_recovery"] == {"recover_on_exit_codes": [130, 143]}
    assert (
        task["volumes"] == {"/mnt/shared": "nmt-volume"} and "file_mounts" not in task
    )


def test_skypilot_mounts_a_bucket_for_one_node_only():
    job = valid_job("skypilot")
    task = yaml.safe_load(render("skypilot", job))
    mounted = {"source": "gs://bucket", "mode": "MOUNT_CACHED"}
    assert task["file_mounts"] == {"/mnt/shared": mounted} and "volumes" not in task
    with pytest.raises(UserError, match="^--storage is 'gs://bucket': must be a vol"):
        check("skypilot", dataclasses.replace(job, hosts=2))
    check("skypilot", dataclasses.replace(job, hosts=2, storage="a-volume"))


# Quoting.

NASTY = [
    "a b",
    "'",
    '"',
    "it's",
    "$(touch x)",
    "`touch x`",
    "$HOME ${HOME} $$ $(HOME) $$(HOME)",
    "; exit 3 #",
    "&& false || true",
    "{{config}} {{name}}",
    "%x %j !! ~ * ? [a] {1..3}",
    "\\",
    "\\'\\\"",
    "é漢😀",
    ": - # @ | > & * !tag %YAML",
    "--",
    "-x=1",
    " leading and trailing ",
    "EOF",
]
LETTERS = "ab '\"`$(){}[]<>|&;:#!?*~\\%@=,.-é漢😀"


def nasty_texts():
    rng = random.Random(3)
    texts = ["".join(rng.choices(LETTERS, k=rng.randint(1, 23))) for _ in range(29)]
    return [*NASTY, *texts]


def nasty_jobs(**fields):
    """Jobs with several texts in every field in which users write freely.

    Their sweeps have started, so that a worker which looks elsewhere would sleep.
    """
    texts = nasty_texts()
    for start in range(0, len(texts), 6):
        part = texts[start : start + 6]
        path = "".join(part).replace("/", "")
        workdir = Path.cwd() / "shared" / path
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / "sweep.json").touch()
        job = Job(
            name="nmt",
            config=f"configs/{path}.py:{path}",
            workdir=str(workdir),
            overrides=(*(f"data.files.train={x}" for x in part), f"x.y={path}"),
            image="image",
            storage="claim",
            accelerator="nvidia.com/gpu:2",
        )
        yield dataclasses.replace(job, **fields)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function program(name, body) that puts a fake command on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))

    def program(name, body=RECORDING):
        path = tmp_path / (name if "/" in name else f"bin/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    program("sleep")
    return program


RECORDING = 'printf "%s\\0" "$(basename "$0")" "$@" END >> "$RECORD"'


def records(sleeps=False):
    """The command lines of the fake commands since the last call, without paths.

    Args:
        sleeps: include those of `sleep`.
    """
    path = Path(os.environ["RECORD"])
    text = path.read_bytes().decode() if path.exists() else ""
    path.unlink(missing_ok=True)
    lines = [part.split("\0")[:-1] for part in text.split("END\0") if part]
    return [words for words in lines if sleeps or words[0] != "sleep"]


def bash(script, *arguments):
    """Runs a script as a file; returns the completed process."""
    Path("script").write_text(script, "utf-8")
    return subprocess.run(
        ["bash", "script", *arguments], capture_output=True, text=True, timeout=60
    )


def expand(text, variables):
    """The rule of Kubernetes for the command of a container."""

    def value(match):
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^()]*)\)", value, text)


ENVIRONMENT = {"HOME": "/wrong", "touch x": "wrong"}


@pytest.mark.parametrize("sweep", [None, "$(sweep) 'a'.py"])
def test_slurm_gets_exactly_the_texts_of_the_user(machine, monkeypatch, sweep):
    machine(".venv/bin/python")
    machine("srun", 'while [ "$1" != bash ]; do shift; done; exec "$@"')
    for job in nasty_jobs(sweep=sweep, accelerator="2", hosts=2):
        for task in ("0", "1") if sweep else (None,):
            if task:
                monkeypatch.setenv("SLURM_ARRAY_TASK_ID", task)
            process = bash(render("slurm", job))
            assert process.returncode == 0, process.stderr
            expected = job.command("python", workers=2)
            if task == "1":
                expected += ["--worker"]
            assert records(sleeps=True) == [expected]


@pytest.mark.parametrize("sweep", [None, "$(sweep) 'a'.py"])
def test_a_tpu_gets_exactly_the_texts_of_the_user(machine, sweep):
    machine("gcloud", 'command=${@: -3:1}\nbash -c "${command#--command=}"')
    machine("flock", f"shift\n{RECORDING}")
    Path("code").mkdir()
    fields = {"accelerator": "v4-8", "zone": "z", "project": "p", "hosts": 2}
    for job in nasty_jobs(sweep=sweep, **fields):
        process = bash(render("tpu", job), "run")
        assert process.returncode == 0, process.stderr
        expected = [job.command(".venv/bin/python")]
        if sweep:
            expected.append([*expected[0], "--worker"])
        assert sorted(records(sleeps=True)) == sorted(["flock", *x] for x in expected)


def test_a_jobset_gets_exactly_the_texts_of_the_user(machine):
    for job in nasty_jobs():
        jobset = documents(render("kubernetes", job))["JobSet"]
        pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        words = [expand(word, ENVIRONMENT) for word in container["command"]]
        assert words == job.command("python")


def test_pods_of_a_sweep_get_exactly_the_texts_of_the_user(machine, monkeypatch):
    machine("python")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    for job in nasty_jobs(sweep="".join(NASTY), hosts=2):
        document = documents(render("kubernetes", job))["Job"]
        (container,) = document["spec"]["template"]["spec"]["containers"]
        *shell, script = container["command"]
        assert shell == ["bash", "-c"]
        for index in "01":
            monkeypatch.setenv("JOB_COMPLETION_INDEX", index)
            assert bash(expand(script, ENVIRONMENT)).returncode == 0
            expected = job.command("python", workers=2) + ["--worker"] * int(index)
            assert records(sleeps=True) == [expected]


def test_skypilot_gets_exactly_the_texts_of_the_user(machine):
    machine(".venv/bin/python")
    for job in nasty_jobs(accelerator="H100:8", storage="gs://bucket"):
        task = yaml.safe_load(render("skypilot", job))
        assert bash(task["run"]).returncode == 0
        assert records() == [job.command("python")]


FIELDS = "name accelerator zone project partition image namespace storage".split()
VALID = {
    "tpu": "accelerator=v4-8 zone=us-central2-b project=my-project",
    "slurm": "accelerator=8 partition=gpu",
    "kubernetes": "accelerator=a/b:1 image=i namespace=n storage=claim",
    "skypilot": "accelerator=H100:8 storage=gs://bucket",
}


def valid_job(target, **changes):
    fields = dict(pair.split("=") for pair in VALID[target].split())
    workdir = "runs/nmt" if target in ("tpu", "slurm") else "/mnt/shared/nmt"
    fields |= {"name": "nmt", "config": "configs/a.py", "workdir": workdir}
    return Job(**fields | changes)


@pytest.mark.parametrize("target", VALID)
@pytest.mark.parametrize("field", FIELDS)
def test_names_with_special_characters_are_refused(target, field):
    job = valid_job(target)
    check(target, job)
    if field != "name" and field not in TARGETS[target]["flags"]:
        return
    special = re.compile(r"[^-.,:/@\w]", re.ASCII)
    texts = [text for text in nasty_texts() if special.search(text)]
    for text in (*texts, "a\nb", "nmt\n", "é", "-", "/"):
        with pytest.raises(UserError, match=f"^--{field} is "):
            check(target, dataclasses.replace(job, **{field: text}))


@pytest.mark.parametrize(
    "text", ["a\nb", "a\rb", "a\0b", "\x1b[1m", "\u2028", "\udcff"]
)
def test_control_characters_are_refused(text):
    given = ["--name=nmt", "--config=configs/a.py", "--workdir=runs/a"]
    for flag in (*given, "--config.model.score=dot"):
        result = launch("--target=slurm", *given, f"{flag}{text}")
        assert result.status == 1 and not result.output
        assert "must be printable text in one line" in result.errors
        assert result.errors.isascii() and result.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "hosts", "sweep", "longest"),
    [
        ("tpu", 1, None, 63),
        ("tpu", 11, "s.py", 63 - len("-10")),
        ("kubernetes", 1, None, 63 - len("-host-0-0-abcde")),
        ("kubernetes", 101, None, 63 - len("-host-0-100-abcde")),
        ("kubernetes", 101, "s.py", 63 - len("-100-abcde")),
        ("skypilot", 1, None, 63),
        ("slurm", 1, None, 64),
    ],
)
def test_names_have_the_lengths_of_the_platform(target, hosts, sweep, longest):
    shared = {"storage": "s:/p", "workdir": "/mnt/shared/a"} if target == "tpu" else {}
    job = valid_job(target, hosts=hosts, sweep=sweep, **shared)
    check(target, dataclasses.replace(job, name="n" * longest))
    with pytest.raises(UserError, match=f"must be at most {longest} "):
        check(target, dataclasses.replace(job, name="n" * (longest + 1)))


def test_a_template_is_filled_once_and_completely():
    template = Template("$x ${x} @@x@@{y}b")
    assert template.substitute(x="@@y", y="$x") == "$x ${x} @@y$xb"
    with pytest.raises(KeyError):
        template.substitute(x="")


# The restart loops, with commands that record what they get.

NEXT_STATUS = f"""{RECORDING}
status=$(head -n1 statuses)
sed -i 1d statuses
exit "$status"
"""


def verbs():
    """The commands that ran: the program and its verb."""
    return [
        " ".join(words[:1] if words[0] != "gcloud" else [words[4]])
        for words in records()
    ]


@pytest.mark.parametrize(
    ("statuses", "restarts", "status", "runs", "requeues"),
    [
        ([0], 20, 0, 1, 0),
        ([1], 20, 1, 1, 0),
        ([75, 0], 20, 0, 2, 0),
        ([139, 75, 0], 20, 0, 3, 0),
        ([70, 0], 20, 0, 2, 0),
        ([75, 75, 75, 75], 2, 202, 3, 0),
        ([134], 0, 201, 1, 0),
        ([70], 0, 201, 1, 0),
        ([75, 143], 20, 143, 2, 1),
        ([130], 20, 130, 1, 1),
    ],
)
def test_slurm_restarts_by_the_exit_status(
    machine, monkeypatch, statuses, restarts, status, runs, requeues
):
    machine(".venv/bin/python", NEXT_STATUS)
    machine("srun", 'shift; exec "$@"')
    machine("scontrol")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    Path("statuses").write_text("".join(f"{x}\n" for x in statuses))
    job = valid_job("slurm", restarts=restarts)
    assert bash(render("slurm", job)).returncode == status
    calls = records()
    assert [words[0] for words in calls] == ["python"] * runs + ["scontrol"] * requeues
    assert calls[-1] == ["scontrol", "requeue", "7"] or not requeues


def test_an_error_of_the_user_on_one_slurm_task_outranks_the_others(machine):
    """srun ends the other tasks and returns the highest status."""
    machine(".venv/bin/python", 'exit "$STATUS"')
    machine(
        "srun",
        "shift; highest=0\nfor STATUS in $STATUSES; do\n  export STATUS\n"
        '  "$@"; status=$?; [ $status -le $highest ] || highest=$status\ndone\n'
        "exit $highest",
    )
    job = valid_job("slurm", restarts=0)
    script = render("slurm", job)
    for statuses, expected in {
        "143 1 143": 1,
        "75 143": 202,
        "139 143": 201,
        "70 143": 201,
        "0 0": 0,
        "75 1 137": 1,
    }.items():
        process = bash(f"export STATUSES='{statuses}'\n{script}")
        assert process.returncode == expected, statuses


def test_a_stopped_slurm_task_saves_before_its_status_is_returned(machine):
    machine(
        ".venv/bin/python",
        "trap 'echo saved >&2; exit 143' TERM\nkill -TERM $PPID $$\nexit 9",
    )
    machine("srun", 'shift; exec "$@"')
    machine("scontrol")
    process = bash("export SLURM_JOB_ID=7\n" + render("slurm", valid_job("slurm")))
    assert process.returncode == 143 and "saved" in process.stderr
    assert records() == [["scontrol", "requeue", "7"]]


def test_runs_of_a_slurm_sweep_do_not_join_a_job(machine, monkeypatch):
    machine(".venv/bin/python", 'echo "${SLURM_STEP_NODELIST-absent}"')
    machine("srun", 'shift; SLURM_STEP_NODELIST=node exec "$@"')
    assert bash(render("slurm", valid_job("slurm"))).stdout == "node\n"
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    job = valid_job("slurm", sweep="s.py")
    assert bash(render("slurm", job)).stdout == "absent\n"


@pytest.mark.parametrize(
    ("statuses", "status", "runs"),
    [
        ([0], 0, 1),
        ([1], 1, 1),
        ([143], 143, 1),
        ([75, 70, 0], 0, 3),
        ([75] * 9, 75, 3),
    ],
)
def test_skypilot_restarts_by_the_exit_status(machine, statuses, status, runs):
    machine(".venv/bin/python", NEXT_STATUS)
    Path("statuses").write_text("".join(f"{x}\n" for x in statuses))
    job = valid_job("skypilot", restarts=2)
    task = yaml.safe_load(render("skypilot", job))
    assert bash(task["run"]).returncode == status
    assert len(records()) == runs


def test_skypilot_tells_jax_the_other_nodes(machine, monkeypatch):
    names = "JAX_COORDINATOR_ADDRESS|JAX_NUM_PROCESSES|JAX_PROCESS_ID"
    machine(".venv/bin/python", f"env | grep -E '^({names})=' | sort; true")
    monkeypatch.setenv("SKYPILOT_NODE_IPS", "10.0.0.5\n10.0.0.6")
    monkeypatch.setenv("SKYPILOT_NUM_NODES", "2")
    monkeypatch.setenv("SKYPILOT_NODE_RANK", "1")
    job = valid_job("skypilot", hosts=2)
    task = yaml.safe_load(render("skypilot", job))
    assert bash(task["run"]).stdout.splitlines() == [
        "JAX_COORDINATOR_ADDRESS=10.0.0.5:8476",
        "JAX_NUM_PROCESSES=2",
        "JAX_PROCESS_ID=1",
    ]


GCLOUD = f"""{RECORDING}
slice=${{5%%:*}}
[ ! -e "$5" ] || slice=${{6%%:*}}
host=$PWD/hosts/$slice
case $4 in
  create) mkdir -p "$host" ;;
  delete) rm -rf "$host" ;;
  describe) cat states ;;
  scp)
    if [ -e "$5" ]; then cp "$5" "$host/${{6#*:}}"; else cp "$host/${{5#*:}}" "$6"; fi
    ;;
  ssh)
    for argument; do
      case $argument in --command=*) command=${{argument#*=}} ;; esac
    done
    cd "$host" && HOME=$host TOP=$OLDPWD bash -c "$command"
    ;;
esac
"""
TRAIN = """
for argument; do
  case $argument in --workdir=*) workdir=${argument#*=} ;; esac
done
mkdir -p "$workdir" && echo "$@" >> "$workdir/log"
status=$(head -n1 "$TOP/statuses")
sed -i 1d "$TOP/statuses"
exit "$status"
"""


@pytest.fixture
def cloud(machine):
    """Fake machines of Google Cloud, and a clone with a program."""
    machine("gcloud", GCLOUD)
    machine("python3", "true")
    machine("flock", 'shift; exec "$@"')
    machine(".venv/bin/python", TRAIN)
    Path("configs").mkdir()
    for path in (Path("configs/a.py"), Path("s.py")):
        path.touch()
    command = "git init -q && git add .venv configs s.py"
    subprocess.run(command, shell=True, check=True)
    author = "-c user.name=Tester -c user.email=tester@example.com"
    subprocess.run(f"git {author} commit -qm Start", shell=True, check=True)
    Path("states").write_text("READY\n")
    return machine


def launch_tpu(statuses, *arguments, **fields):
    Path("statuses").write_text("".join(f"{x}\n" for x in statuses))
    job = valid_job("tpu", **fields)
    return bash(render("tpu", job), *arguments)


def test_a_slice_is_created_used_and_deleted(cloud):
    process = launch_tpu([75, 143, 70, 0])
    assert process.returncode == 0, process.stderr
    calls = records()
    assert [words[4] for words in calls] == (
        "create scp ssh ssh describe ssh describe ssh describe ssh ssh scp delete"
    ).split()
    for words in calls:
        assert words[:4] == ["gcloud", "compute", "tpus", "tpu-vm"]
        assert words[-2:] == ["--project=my-project", "--zone=us-central2-b"]
    assert "--worker=all" in calls[3] and "--worker=0" in calls[-3]
    assert "--version=tpu-ubuntu2204-base" in calls[0]
    log = Path("fetched/nmt/log").read_text().splitlines()
    assert log == ["train.py --config=configs/a.py --workdir=runs/nmt"] * 4
    assert not list(Path("hosts").iterdir())
    assert "may cost money" not in process.stderr


@pytest.mark.parametrize(("statuses", "status"), [([1], 1), ([75] * 9, 75)])
def test_a_failed_run_leaves_the_slice_and_says_so(cloud, statuses, status):
    process = launch_tpu(statuses, restarts=2)
    assert process.returncode == status, process.stderr
    assert process.stderr.splitlines()[-1] == (
        "nmt may cost money: bash script run resumes, bash script delete ends it"
    )
    assert "delete" not in verbs()
    assert launch_tpu([], "delete").returncode == 0
    assert verbs() == ["delete"] and not list(Path("hosts").iterdir())


def test_a_preempted_slice_is_created_again(cloud):
    Path("states").write_text("PREEMPTED\n")
    process = launch_tpu([255, 0], restarts=0)
    assert process.returncode == 0, process.stderr
    assert (
        verbs()
        == (
            "create scp ssh ssh describe delete create scp ssh ssh ssh scp delete"
        ).split()
    )


def test_a_slice_whose_state_is_not_known_is_not_deleted(cloud):
    cloud("gcloud", f"{RECORDING}\nexit 1")  # for example, without a network
    assert launch_tpu([], "run").returncode == 1
    assert verbs() == ["ssh", "describe"]


@pytest.mark.parametrize("step", [[], ["create"]])
@pytest.mark.parametrize(
    "fields", [{"config": "configs/it's.py:smoke"}, {"sweep": "new.py"}]
)
def test_a_file_that_the_hosts_would_not_get_is_refused(cloud, fields, step):
    Path("configs/it's.py").touch()
    Path("new.py").touch()
    process = launch_tpu([], *step, **fields)
    assert process.returncode == 1 and not records()
    path = fields.get("sweep", "configs/it's.py")
    assert process.stderr == (
        f"error: {path} is not in the last commit, which the hosts get\n"
    )


def test_an_unknown_step_is_refused(cloud):
    process = launch_tpu([], "crate")
    assert process.returncode == 1 and not records()
    assert process.stderr.startswith("error: crate is unknown: must be create, ")


def test_a_sweep_has_a_slice_for_each_worker(cloud, tmp_path):
    shared = tmp_path / "shared"
    job = valid_job("tpu", sweep="s.py", hosts=3, workdir=str(shared))
    shared.mkdir()
    (shared / "sweep.json").touch()
    Path("statuses").write_text("0\n" * 3)
    process = bash(render("tpu", job))
    assert process.returncode == 0, process.stderr
    calls = records()
    for verb in ("create", "delete"):
        names = sorted(words[5] for words in calls if words[4] == verb)
        assert names == ["nmt-0", "nmt-1", "nmt-2"]
    log = (shared / "log").read_text().splitlines()
    assert sorted("--worker" in line.split() for line in log) == [False, True, True]
    assert Path("fetched/nmt/sweep.json").exists()


# Output and submission.

SMOKE = {
    "name": "curve",
    "config": str(ROOT / "configs/kernel_regression.py:smoke"),
    "workdir": "runs/curve",
}


def flags(fields):
    return [f"--{name}={value}" for name, value in fields.items()]


def launch_smoke(*arguments, target="slurm", **fields):
    """The result of the command for a smoke run."""
    return launch(f"--target={target}", *flags(SMOKE | fields), *arguments)


def test_a_file_is_written_once(tmp_path):
    out = tmp_path / "job.sh"
    assert launch_smoke(out=out) == (0, "", "")
    text = out.read_text()
    assert launch_smoke() == (0, text, "")
    (tmp_path / "link.sh").symlink_to("nowhere")
    for path, reason in {
        out: " exists: name a new file",
        tmp_path / "link.sh": " exists: name a new file",
        tmp_path / "absent/job.sh": f": {tmp_path}/absent is not a folder",
    }.items():
        assert launch_smoke(out=path) == (1, "", f"error: --out={path}{reason}\n")
    assert out.read_text() == text


def smoke_fields(target):
    """Flags of a smoke run on a target."""
    fields = dataclasses.asdict(valid_job(target))
    names = ("workdir", *TARGETS[target]["required"])
    config = os.path.relpath(SMOKE["config"])
    return {name: fields[name] for name in names} | {"config": config}


@pytest.mark.parametrize("target", TARGETS)
def test_a_missing_program_is_named(tmp_path, monkeypatch, target):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(ROOT)
    fields = smoke_fields(target) | {"out": tmp_path / "new"}
    result = launch_smoke("--submit", "--yes", target=target, **fields)
    program = TARGETS[target]["program"]
    assert result.status == 1 and not (tmp_path / "new").exists()
    assert result.errors.startswith(f"error: --submit: {program} is not installed; ")


@pytest.mark.parametrize(
    ("target", "program", "command"),
    [
        ("slurm", "sbatch", "sbatch ./job"),
        ("kubernetes", "kubectl", "kubectl apply --filename ./job"),
        ("skypilot", "sky", "sky jobs launch --yes ./job"),
    ],
)
def test_a_target_is_submitted_by_its_program(machine, target, program, command):
    machine(program)
    os.symlink(ROOT / "configs", "configs")
    fields = smoke_fields(target) | {"config": "configs/kernel_regression.py:smoke"}
    result = launch_smoke("--submit", target=target, **fields, out="job")
    assert "asks on a terminal, and this is none: give --yes" in result.errors
    assert result.status == 1 and not Path("job").exists()
    result = launch_smoke("--submit", "--yes", target=target, **fields, out="job")
    assert result.status == 0, result.errors
    assert records() == [shlex.split(command)]
    assert Path("job").read_text()


class Terminal:
    """The module io with a standard input that is a terminal."""

    StringIO, BytesIO = io.StringIO, io.BytesIO

    class TextIOWrapper(io.TextIOWrapper):
        def isatty(self):
            return True


@pytest.mark.parametrize(
    ("answer", "status", "submitted"),
    [("yes\n", 7, True), ("maybe\ny\n", 7, True), ("no\n", 0, False), ("", 0, False)],
)
def test_submitting_asks(machine, monkeypatch, answer, status, submitted):
    machine("sbatch", f"{RECORDING}\nexit 7")
    monkeypatch.setattr(in_process, "io", Terminal)
    command = ["--target=slurm", *flags(SMOKE), "--out=job.sh", "--submit"]
    result = in_process.call("launch", *command, stdin=answer.encode())
    assert result.status == status
    assert result.errors.startswith("sbatch ./job.sh\n  nodes of the cluster: 1\n")
    questions = result.errors.count("run it? yes or no: ")
    assert questions == answer.count("\n") or not answer
    assert ("not run; 'job.sh' is written" in result.errors) is not submitted
    assert records() == [["sbatch", "./job.sh"]] * submitted


def test_a_sweep_that_chooses_its_trials_runs_on_one_machine(tmp_path):
    sweep = tmp_path / "sweep.py"
    sweep.write_text(
        "from sweeps.space import Sweep, uniform\n\n\ndef get_sweep():\n"
        "    return Sweep(space={'model.width': uniform(0.1, 1)}, trials=3, "
        "method='tpe')\n"
    )
    result = launch_smoke(sweep=sweep, hosts=2)
    assert result.status == 1
    assert result.errors.startswith("error: --hosts is 2: must be 1, as the method tpe")
    assert launch_smoke(sweep=sweep).status == 0


def test_a_size_that_does_not_fit_this_machine_may_fit_the_hosts():
    config = ROOT / "configs/transformer_nmt.py:smoke"
    result = launch_smoke("--config.data.tokens=100000000", config=config)
    assert result.status == 0
    assert "--config.data.tokens=100000000" in result.output


def test_pmap_runs_on_several_hosts():
    assert launch_smoke("--config.parallel=pmap", hosts=2).status == 0
