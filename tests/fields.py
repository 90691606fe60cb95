"""Fields of small translators: sizes are distinct primes, dropout is off."""

from translators import VOCAB

EMBEDDING, HIDDEN, UNITS, SCORE = 13, 11, 17, 19
COMMON = dict(
    vocab_size=VOCAB,
    embedding=EMBEDDING,
    hidden=HIDDEN,
    dropout=0.0,
    init_scheme="standard",
    share_embeddings=True,
)
BAHDANAU = COMMON | dict(
    cell="gru",
    encoder_layers=1,
    maxout=UNITS,
    readout_state="previous",
    score="additive",
    alignment="global",
    score_hidden=SCORE,
    max_length=29,
    window=2,
    temperature=1.0,
)
LUONG = COMMON | dict(
    cell="lstm",
    layers=2,
    bidirectional=False,
    reverse_source=True,
    input_feeding=True,
    score="general",
    alignment="global",
    score_hidden=SCORE,
    max_length=29,
    window=1,
    temperature=1.0,
)
SUTSKEVER = COMMON | dict(
    cell="lstm",
    layers=2,
    reverse_source=True,
    summary="state",
    feed=("initial_state",),
    maxout=0,
)
TRANSFORMER = dict(
    vocab_size=VOCAB,
    d_model=12,
    heads=3,
    encoder_layers=2,
    decoder_layers=3,
    d_ff=17,
    dropout=0.0,
    norm="post",
    positions="sinusoidal",
    max_distance=2,
    max_length=13,
    encoder_score="scaled_dot",
    decoder_score="scaled_dot",
    cross_score="scaled_dot",
    cross_alignment="global",
    score_hidden=5,
    window=2,
    temperature=1.0,
    share_embeddings=True,
    dtype="float32",
)
