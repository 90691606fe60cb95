"""End-to-end memory networks (Sukhbaatar et al. 2015) on the twenty bAbI tasks.

The paper's numbers are mean errors on the published stories, with 1,000 questions per
task for training: the best of ten runs by training error. They are quoted from memory,
as is the paper's 13.3 % for joint training with PE and LS, without RN. The authors'
code with RN, rerun by others, has 13.8 %, and 12.4 % with joint training:
github.com/vinhkhuc/MemN2N-babi-python, bechmarks/README.md.
"""

from results.schema import Table, claims, fields, runs

_ROWS = (  # name, variant, label, the paper's number with 3 hops
    ("bag", ":bag", "bag of words", "25.1 %"),
    ("position", ":no_linear_start", "position encoding (PE)", "20.3 %"),
    ("linear_start", ":no_noise", "PE, linear start (LS)", "16.3 %"),
    ("noise", "", "PE, LS, random noise (RN)", "13.9 %"),
)
_HOPS = "\n".join(
    f"memory_network_{name}_{hops} memory_network_qa{variant} data.repeats=10 "
    f"model.hops={hops} | {label}, {hops} hop{'s' * (hops > 1)} | "
    f"{f'{paper} (unchecked)' if hops == 3 else '–'}"
    for name, variant, label, paper in _ROWS
    for hops in (1, 2, 3)
)
_ABLATED = "memory_network_qa data.repeats=10 model.hops=3"
# In most tasks a statement has at most nine words, and its time is one more.
_LENGTH = "model.position_length=10"
_RUNS = runs(f"""
{_HOPS}
memory_network_printed_3 {_ABLATED} model.position_scale=1.0
    | PE, LS, random noise (RN), 3 hops, PE as printed in the paper | –
memory_network_authors_position_3 {_ABLATED} {_LENGTH}
    | PE, LS, random noise (RN), 3 hops, PE as in the authors' code | –
memory_network_masked_3 {_ABLATED} model.empty_slots=false
    | PE, LS, random noise (RN), 3 hops, no empty slots | –
memory_network_supervised memory_network_qa:supervised data.repeats=10
    | PE, RN, attention trained on the facts, 3 hops
    | 6.7 % (Weston et al. 2015, from memory)
memory_network_joint memory_network_qa:joint
    | PE, LS, RN, 3 hops, joint, one model | 12.4 % (authors' code, rerun by others)
memory_network_layerwise memory_network_qa:layerwise
    | PE, LS, RN, 3 hops, joint, layer-wise, one model | –
memory_network_10k memory_network_qa:10k
    | PE, LS, RN, 3 hops, 10,000 questions, one model
    | 6.6 % (authors' code, rerun by others)
""")
_CLAIMS = """
memory_network_position_3 > memory_network_bag_3
    | position encoding is better than a bag of words | Sukhbaatar et al. 2015, table 1
memory_network_linear_start_3 > memory_network_position_3
    | the linear start helps | Sukhbaatar et al. 2015, table 1
memory_network_noise_3 > memory_network_linear_start_3
    | random noise in the time indices helps | Sukhbaatar et al. 2015, table 1
memory_network_noise_3 > memory_network_noise_2 memory_network_noise_1
    | three hops are better than two and one | Sukhbaatar et al. 2015, table 1
memory_network_supervised > memory_network_noise_3
    | training the attention on the facts helps | Sukhbaatar et al. 2015, table 1
"""
# The authors' code with PE, LS, RN and 3 hops, rerun by others, by task from 1 to 20.
_RERUN = (
    *(0.1, 8.2, 41.8, 4.4, 13.7, 7.9, 20.3, 11.7, 13.6, 9.7),
    *(0.7, 0.0, 0.3, 0.9, 0.0, 0.4, 51.0, 10.5, 81.4, 0.0),
)


def _by_task(metric: str, **fields) -> Table:
    """A table with a column for the error of each task."""
    return Table(
        metrics={f"task {task}": f"{metric}_{task}" for task in range(1, 21)},
        lower=True,
        **fields,
    )


TABLES = {
    "memory_networks": Table(
        metrics=fields("""
        % wrong, best of ten: best | % wrong, mean: error | failed tasks: failed
        % on a fact: hop 1: fact_1 | % on a fact: hop 2: fact_2
        % on a fact: hop 3: fact_3
        """),
        columns=fields("steps/s: steps_per_second"),
        lower=True,
        repeated="error",
        rate="the paper's, lower with a linear start",
        seeds=1,
        claims=claims(_CLAIMS),
        runs=_RUNS,
    ),
    "memory_networks_tasks": _by_task(
        "best",
        runs=_RUNS,
        cited={
            "PE, LS, RN, 3 hops: authors' code, rerun by others": {
                f"best_{task}": error for task, error in enumerate(_RERUN, 1)
            }
        },
    ),
    "memory_networks_means": _by_task("error", runs=_RUNS),
}
