"""Training-step time of SAGAN, both networks, against heykeetae's port.

    python -m benchmarks.sagan_step

Images of 64 pixels, batch size 16, 64 channels at the largest map, strided
convolutions, attention without pooling over maps of 16 and 32 in the generator and of 8
and 4 in the discriminator, float32, two threads. The port is not a package; its
stand-in is `benchmarks/systems/pytorch_sagan.py`. It generates images twice per step,
once for each network, and backpropagates the discriminator's loss into the generator
without using the result; this project generates them once. This project has a
projection for classes (one class here) and spectral norms in every layer, attention
included; the port has none in attention and in the last layer of each network.

This project runs `configs/sagan.py:dcgan`, whose compilation time is the column
"compilation s"; PyTorch compiles nothing. `train.py` makes glibc's malloc keep large
buffers: "same malloc" gives PyTorch this setting, "malloc as it is" removes it here.
"""

from benchmarks import harness

BATCH_SIZE, CHANNELS, NOISE = 16, 64, 128
PEER = "heykeetae style"
OUR_SPEC = {
    "config": "configs/sagan.py:dcgan",
    "overrides": [
        "data.source=corners",
        f"data.batch_size={BATCH_SIZE}",
        f"latent_size={NOISE}",
        "model.size=64",
        "loss=hinge",
        f"model.channels={CHANNELS}",
        "model.key_reduction=8",
        "model.value_reduction=1",
        "model.pool=false",
        "model.form=embedded_gaussian",
        "model.spectral=true",
        "generator.name=adam",
        "discriminator.name=adam",
        "attention.generator=(16, 32)",
        "attention.discriminator=(8, 4)",
    ],
    "units": 1,
}
PEER_SPEC = {"batch_size": BATCH_SIZE, "noise": NOISE, "channels": CHANNELS}
SYSTEMS = harness.against(PEER, "pytorch_sagan", OUR_SPEC, PEER_SPEC)


def main() -> None:
    """Measures, prints the table and writes the record."""
    args = harness.parser(__doc__, rounds=6, steps=8).parse_args()
    harness.report_training("sagan_step", args, SYSTEMS, rate="steps/s")


if __name__ == "__main__":
    main()
