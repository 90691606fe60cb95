"""How fast is a step of both networks of SAGAN, against heykeetae's port?

    python -m benchmarks.sagan_step

Images of 64 pixels, 16 of them a batch, networks of 64 channels in the widest map,
strided convolutions, attention without pooling over maps of 16 and 32 in the generator
and of 8 and 4 in the discriminator, float32, two threads. The port is no package:
`benchmarks/systems/pytorch_sagan.py` says what stands for it. It makes images twice
in a step, for each network, and sends the discriminator's gradient through the
generator for nothing; this project makes them once. This project has a projection for
classes (of one here), and spectral norms in every layer, attention's among them; the
port has none there and in the last one of each network.

This project's is `configs/sagan.py`, whose compilation is in "compile s"; PyTorch
compiles nothing. `train.py` sets glibc's malloc to keep large buffers; the row "same
malloc" says what that brings to PyTorch, "malloc as it is" what it brings here.
"""

from benchmarks import harness

ROWS, CHANNELS, NOISE = 16, 64, 128
PEER = "heykeetae style"
OUR_SPEC = {
    "config": "configs/sagan.py",
    "overrides": [
        "data.source=corners",
        f"data.batch_size={ROWS}",
        f"latent_size={NOISE}",
        "model.size=64",
        "model.blocks=strided",
        f"model.channels={CHANNELS}",
        "model.key_reduction=8",
        "model.value_reduction=1",
        "model.pool=false",
        "attention.generator=(16, 32)",
        "attention.discriminator=(8, 4)",
    ],
    "units": 1,
}
PEER_SPEC = {"rows": ROWS, "noise": NOISE, "channels": CHANNELS}
SYSTEMS = harness.against(PEER, "pytorch_sagan", OUR_SPEC, PEER_SPEC)


def main() -> None:
    """Measures, prints the table and writes results/bench_sagan_step.json."""
    args = harness.parser(__doc__, rounds=6, steps=8).parse_args()
    harness.report_training("sagan_step", args, SYSTEMS, rate="steps/s")


if __name__ == "__main__":
    main()
