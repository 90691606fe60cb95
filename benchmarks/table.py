"""The benchmarks that compare systems side by side, by name."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from benchmarks import harness
from benchmarks.harness import OURS, TUNED, System
from results import timings
from results.timings import SAME_MALLOC
from tasks.language.agreement_data import LANGUAGES, max_length

_NOTES = """
All systems compute in float32 with two threads. "style" marks a stand-in for code that
is not a package, see benchmarks/systems/. `train.py` makes glibc's malloc keep large
buffers: "same malloc" gives other libraries this setting, "malloc as it is" removes it
here. PyTorch compiles nothing; "compilation, s" is this project's time.
"""


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A comparison of systems.

    Attributes:
        description: the sizes, and how the systems differ.
        systems: the measured systems, this project's first.
        rounds: default number of rounds over all systems.
        steps: default number of steps in a block.
    """

    description: str
    systems: Sequence[System]
    rounds: int = 6
    steps: int = 5

    def run(self, name: str, arguments: Sequence[str]) -> None:
        """Measures, prints the table and writes the record.

        Where the table has a column for it, the faster of two matrix products is
        measured, too, and the share of its rate that each system reaches.
        """
        parser = harness.parser(
            self.description + _NOTES, name, rounds=self.rounds, steps=self.steps
        )
        args, products = parser.parse_args(arguments), []
        if "share" in timings.BENCHMARKS[name].columns.values():
            products = [
                System(f"XLA product {size}", "matmul", size, {})
                for size in ("2048,256,1024", "1024,1024,1024")
            ]
        measured = harness.measure([*products, *self.systems], args)
        rates = [measured.pop(p.name)["rate"] for p in products if p.name in measured]
        fields = {}
        if rates:
            fields["product_gflop_a_second"] = max(rates)
            self._add_shares(measured, max(rates))
        harness.report(name, args, measured, **fields)

    def _add_shares(self, measured: dict[str, dict[str, Any]], limit: float) -> None:
        """Adds the share of a rate in GFLOP/s to systems whose `gflop` is known.

        A translator of another library counts as many as the last one of this project
        in its group.
        """
        translators: dict[str | None, float | None] = {}  # gflop by group
        for system in self.systems:
            values = measured.get(system.name, {})
            if "source" in system.spec:
                group = system.spec.get("group")
                translators[group] = values.setdefault("gflop", translators.get(group))
            if gflop := values.get("gflop"):
                reached = gflop / values["median_ms"] * 1e3
                values["share"] = round(reached / limit, 3)


def _config(name: str, overrides: str, units: int = 1, **more: Any) -> dict:
    """Specification of a config; `overrides` are separated by spaces."""
    spec = {"config": f"configs/{name}", "overrides": overrides.split()}
    return spec | {"units": units} | more


_TRANSFORMER = {
    **{"d_model": 256, "heads": 4, "layers": 3, "d_ff": 1024},
    **{"vocab_size": 8000, "share_embeddings": False},
    **{"dropout": 0.1, "smoothing": 0.1},
    **{"batch_size": 64, "source": 32, "target": 32},
}
_BASE = {
    **{"d_model": 512, "heads": 8, "layers": 6, "d_ff": 2048},
    **{"vocab_size": 37000, "share_embeddings": True},
    **{"dropout": 0.1, "smoothing": 0.1},
    **{"batch_size": 32, "source": 64, "target": 64},
}
_SEARCH = {"beam": 4, "alpha": 0.6}
_SEARCHED = """
Random weights, 64 sources of 32 tokens, beam size 4, length penalty 0.6. The end token
is suppressed, so that every hypothesis has 32 tokens.
"""

_RECURRENT = {
    **{"embedding": 256, "hidden": 512, "layers": 1},
    **{"vocab_size": 8000, "share_embeddings": False},
    **{"dropout": 0.2, "smoothing": 0.0},  # neither paper has any smoothing
    **{"batch_size": 64, "source": 32, "target": 32},
}
_BAHDANAU = _RECURRENT | {"group": "bahdanau", "cell": "gru", "score_hidden": 512}
_LUONG = _RECURRENT | {"group": "luong", "cell": "lstm", "score_hidden": 512}
_OUR_LUONG = {"model": "luong", "bidirectional": True}
_OURS = {  # specifications by name of the system
    f"{OURS}, Bahdanau": _BAHDANAU
    | {"model": "bahdanau", "score": "additive", "maxout": 256},
    f"{OURS}, Bahdanau as JoeyNMT has it": _BAHDANAU | _OUR_LUONG | {"score": "concat"},
    f"{OURS}, Luong": _LUONG | _OUR_LUONG | {"score": "general"},
}
_JOEY = {
    "JoeyNMT, Bahdanau": _BAHDANAU | {"score": "concat"},
    "JoeyNMT, Luong": _LUONG | {"score": "general"},
}


def _recurrent(mode: str, more: dict) -> list[System]:
    """The recurrent translators, each with both malloc settings."""
    return [
        system
        for module, specs in (("ours", _OURS), ("joey", _JOEY))
        for name, spec in specs.items()
        for system in harness.mallocs(name, module, mode, spec | more)
    ]


_NTM = """
    data.min_size=20 data.max_size=20 data.buckets=1 model.controller=lstm
    model.hidden=100 model.slots=128 model.width=20 model.shifts=3 optimizer.name=adam
"""
_MEMORY_NETWORK = """
    data.tasks=(2,) data.batch_size=32 data.memory=50 model.hops=3 model.width=20
    model.encoding=position model.tying=adjacent optimizer.name=sgd optimizer.clip=40.0
"""
_LSTMN_WORDS = max_length("agreement", 4)


def _ntm(batch_size: int) -> list[System]:
    """The Neural Turing Machines of a batch size."""
    overrides = f"data.batch_size={batch_size} {_NTM}"
    if batch_size == 1:
        overrides += "parallel=jit"  # nothing to split
    sizes = {"length": 20, "bits": 8, "controller": 100, "slots": 128, "width": 20}
    return harness.against(
        "pytorch-ntm style",
        "pytorch_ntm",
        _config("ntm_copy.py", overrides, batch_size),
        sizes | {"batch_size": batch_size},
        suffix=f", batch {batch_size}",
    )


BENCHMARKS = {
    "transformer_step": Benchmark(
        """Training-step time of the Transformer, against other libraries.

Width 256, 4 heads, 3 + 3 layers, feed-forward 1024, vocabulary 8000 + 8000 untied,
batch size 64, 32 source and 32 target tokens, label smoothing 0.1, dropout 0.1, Adam.
Tokens are random, without padding, but every system masks padding.

Each library applies dropout at its default places: this project as in the paper;
Flax's WMT example, PyTorch and JoeyNMT also to the attention weights and inside the
feed-forward blocks. PyTorch is post-norm as published, the others are pre-norm. The
machine's rate of matrix products is measured with XLA: the faster of two sizes.

trax 1.4.1, no longer maintained, is not measured: it needs TensorFlow and older
versions of numpy and jax than this project (`numpy.float_` is the first missing name).
""",
        [
            *harness.mallocs(OURS, "ours", "step", _TRANSFORMER),
            *harness.mallocs("Flax WMT style", "flax_wmt", "step", _TRANSFORMER),
            *harness.mallocs("torch.nn.Transformer", "pytorch", "step", _TRANSFORMER),
            *harness.mallocs("JoeyNMT", "joey", "step", _TRANSFORMER),
        ],
    ),
    "decoding": Benchmark(
        f"""Beam-search time of the Transformer, against other libraries.

The model of `transformer_step`. {_SEARCHED.lstrip()}""",
        [
            *harness.mallocs(OURS, "ours", "decode", _TRANSFORMER | _SEARCH),
            System("Flax WMT style", "flax_wmt", "decode", _TRANSFORMER | _SEARCH),
            System("JoeyNMT", "joey", "decode", _TRANSFORMER | _SEARCH),
        ],
        rounds=5,
        steps=2,
    ),
    "transformer_base": Benchmark(
        """Training-step time and memory of Transformer-base, against PyTorch.

The base model of Vaswani et al. (2017), table 3: width 512, 8 heads, 6 + 6 layers,
feed-forward 2048, one vocabulary of 37,000 shared by source, target and output (63M
parameters). Batch size 32, 64 source and 64 target tokens, dropout and label smoothing
0.1, Adam. PyTorch's model is `torch.nn.Transformer` with tied embeddings, post-norm as
published; this project's is pre-norm, as in `configs/transformer_nmt.py`. Memory is the
peak resident set of the process, compilation included.
""",
        harness.against("torch.nn.Transformer", "pytorch", _BASE, _BASE, mode="step"),
        rounds=4,
        steps=3,
    ),
    "recurrent_step": Benchmark(
        """Training-step time of the recurrent translators, against JoeyNMT.

Embeddings of 256, states of 512, one layer on each side, vocabulary 8000 + 8000 untied,
batch size 64, 32 source and 32 target tokens, dropout 0.2, Adam. Tokens are random,
without padding, but every system masks padding.

JoeyNMT has one recurrent model, Luong's decoder with input feeding; its "bahdanau" is
the additive score and, here, GRUs. Its encoder is always bidirectional, unlike Luong's.
This project has

*   Bahdanau et al. as published, with l = n / 2 maxout units;
*   "Bahdanau as JoeyNMT has it", JoeyNMT's model: Luong's decoder with the additive
    score and GRUs;
*   Luong et al.: LSTMs, the general score, and a bidirectional encoder as in JoeyNMT.
    The layer that combines the last states of both directions takes h and c here (17.4M
    parameters), but only h in JoeyNMT (15.8M). The difference is less than 1 % of the
    matrix products, which are counted as equal.
""",
        _recurrent("step", {}),
    ),
    "recurrent_decoding": Benchmark(
        f"""Beam-search time of the recurrent translators, against JoeyNMT.

The models of `recurrent_step`. {_SEARCHED.lstrip()}""",
        [x for x in _recurrent("decode", _SEARCH) if SAME_MALLOC not in x.name],
        rounds=5,
        steps=2,
    ),
    "ntm_step": Benchmark(
        """Training-step time of the Neural Turing Machine, against pytorch-ntm.

The copy task: 20 vectors of 8 bits, the delimiter, 20 steps without input. The
controller is an LSTM of width 100; the memory is 128 x 20, with one read and one write
head of three shifts; RMSprop. The batch size is 1, with which pytorch-ntm trains, or
32. This project uses Adam, and splits a batch of 32 over two devices, one per core.
""",
        [*_ntm(1), *_ntm(32)],
        steps=10,
    ),
    "lstmn_step": Benchmark(
        """Training-step time of the LSTMN, against a plain PyTorch loop over the tape.

A language model with the widths of Cheng et al. (2016): embeddings of 150, one layer of
300, on 32 generated sentences of up to 48 words; Adam. The other system is a list of
states that is stacked at each step, as straightforward code does; there is no published
one to run.
""",
        harness.against(
            "PyTorch loop",
            "pytorch_lstmn",
            _config(
                "lstmn_language.py",
                f"""data.size=4 data.batch_size=32 model.embedding=150 model.hidden=300
                model.score_hidden=300 model.memory={_LSTMN_WORDS} model.layers=1
                model.score=additive model.dropout=0.0 optimizer.name=adam
                optimizer.clip=1.0""",
            ),
            {"length": _LSTMN_WORDS, "batch_size": 32, "embedding": 150, "hidden": 300}
            | {"vocab_size": LANGUAGES["agreement"].size},
        ),
    ),
    "memory_network_step": Benchmark(
        """Training-step time of memory networks on bAbI, against MemN2N-pytorch.

Task 2, whose stories fill the memory of 50 sentences. Sukhbaatar et al. (2015): width
20, three hops, position encoding, batches of 32 questions. MemN2N-pytorch trains one
model at a time. This project trains ten models of the task side by side, as in the
paper, with one array per parameter for all ten; "one model" trains only one.
""",
        [
            *harness.against(
                "MemN2N-pytorch style",
                "pytorch_memory_network",
                _config(
                    "memory_network_qa.py",
                    f"{_MEMORY_NETWORK} data.repeats=10",
                    units=320,
                    prepares=True,
                ),
                {"batch_size": 32, "hops": 3, "memory": 50, "width": 20}
                | {"words": 7}  # of a sentence of task 2, with the time index
                | {"vocab_size": 84},  # of task 2: words, nil and 50 time indices
            ),
            System(
                f"{OURS}, one model",
                "ours",
                "generated",
                _config("memory_network_qa.py", _MEMORY_NETWORK, 32, prepares=True)
                | TUNED,
            ),
        ],
        steps=20,
    ),
    "pointer_step": Benchmark(
        """Training-step time of the pointer network, against shirgur's PointerNet.

Tours of 10 points, batch size 128; one unidirectional LSTM layer on each side, states
and scores of width 256, embeddings of 128, Adam. PointerNet has no end token, so it
points 10 times and this project 11 times. It feeds back its own choices; this project
feeds the true ones.
""",
        harness.against(
            "PointerNet style",
            "pytorch_pointer",
            _config(
                "pointer_tsp.py",
                """data.batch_size=128 data.min_size=10 data.max_size=10 data.buckets=1
                model.hidden=256 model.score_hidden=256 model.embedding=128
                model.encoder=recurrent model.cell=lstm model.score=additive
                model.glimpses=0 optimizer.name=adam""",
            ),
            {"batch_size": 128, "size": 10, "hidden": 256, "embedding": 128},
        ),
        steps=15,
    ),
    "caption_step": Benchmark(
        """Training-step time of a captioner, against sgrvinod's tutorial.

The decoder of Show, Attend and Tell on given maps of 14 x 14 positions: batch size 32,
captions of 20 words, a vocabulary of 5000 words, states and attention of 512, Adam. The
tutorial's maps have 512 channels; this project's have 112, which a learned layer
projects to 512. The tutorial's scores have a ReLU and its gate is as wide as the map;
in the paper and here, the scores have a tanh and the gate is a scalar.
""",
        harness.against(
            "tutorial style",
            "pytorch_caption",
            _config(
                "captioning.py:frozen",
                """data.batch_size=32 data.vocab_size=5000 model.channels=(512,)
                model.embedding=512 model.hidden=512 model.score_hidden=512
                model.cell=lstm model.score=additive model.alignment=global
                model.dropout=0.5 loss.coverage=1.0 optimizer.name=adam
                optimizer.clip=5.0""",
                **{"batch_size": 32, "target": 20, "vocab_size": 5000},
            ),
            {"batch_size": 32, "target": 20, "vocab_size": 5000, "side": 14}
            | dict.fromkeys(("depth", "embedding", "hidden", "score_hidden"), 512),
            mode="captions",
        ),
        steps=8,
    ),
    "sagan_step": Benchmark(
        """Training-step time of SAGAN, both networks, against heykeetae's port.

Images of 64 pixels, batch size 16, 64 channels at the largest map, strided
convolutions, attention without pooling over maps of 16 and 32 in the generator and of 8
and 4 in the discriminator. The port generates images twice per step, once for each
network, and backpropagates the discriminator's loss into the generator without using
the result; this project generates them once. This project has a projection for classes
(one class here) and spectral norms in every layer, attention included; the port has
none in attention and in the last layer of each network.
""",
        harness.against(
            "heykeetae style",
            "pytorch_sagan",
            _config(
                "sagan.py:dcgan",
                """data.source=corners data.batch_size=16 latent_size=128 model.size=64
                loss=hinge model.channels=64 model.key_reduction=8
                model.value_reduction=1 model.pool=false model.form=embedded_gaussian
                model.spectral=true generator.name=adam discriminator.name=adam
                attention.generator=(16,32) attention.discriminator=(8,4)""",
            ),
            {"batch_size": 16, "noise": 128, "channels": 64},
        ),
        steps=8,
    ),
    "ram_step": Benchmark(
        """Training-step time of RAM, against kevinzakka's port.

128 images of 28 x 28 pixels, 6 glimpses of 8 x 8 pixels at one scale; layers of 128 and
256 in the glimpse network, states of 256, a hidden layer of 128 in the locator; Adam.
The port has one more vector of biases in the core.
""",
        harness.against(
            "kevinzakka style",
            "pytorch_ram",
            _config(
                "ram_digits.py",
                """data.source=drawn data.side=28 data.clutter=0 data.objects=1
                data.batch_size=128 model.glimpses=6 model.size=8 model.scales=1
                model.glimpse_hidden=128 model.glimpse_width=256 model.hidden=256
                model.locator_hidden=128 model.std=0.05 model.policy=learned
                loss.reward=0.01 optimizer.name=adam optimizer.clip=0.0""",
                prepares=True,
            ),
            {"batch_size": 128, "side": 28, "classes": 10, "glimpses": 6, "size": 8}
            | {"inner": 128, "width": 256, "hidden": 256, "std": 0.05},
        ),
        steps=15,
    ),
    "environment_steps": Benchmark(
        """Steps of environments per second, against a Python loop over minigrid.

This project runs 32 environments for 20 steps in a compiled function, FourRooms of the
package xminigrid. The other system is a single environment in one thread of Python,
`MiniGrid-FourRooms-v0` of the package minigrid, for 640 steps. In both, actions are
uniform (of six in xminigrid, of seven in minigrid), the agent sees 7 x 7 cells through
the walls, and a new episode begins when one ends, after at most 100 steps.
""",
        harness.against(
            "minigrid",
            "minigrid_loop",
            _config(
                "icm_rooms.py",
                """data.environment=MiniGrid-FourRooms data.television=none
                data.batch_size=32 data.steps=20 model.memory=none""",
            ),
            {"count": 640},
            mode="rollout",
        ),
        steps=20,
    ),
}
