"""Fields of small translators: sizes are distinct primes, dropout is off.

The other fields have the defaults of the models, those of their papers.
"""

from translators import VOCAB

from models.bahdanau import Bahdanau
from models.captioner import ShowAndTell, ShowAttendTell
from models.listener import ListenAttendSpell
from models.luong import Luong
from models.seq2seq import Seq2Seq
from models.transformer import Transformer

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
    maxout=UNITS,
    score_hidden=SCORE,
    max_length=29,
    window=2,
)
LUONG = COMMON | dict(
    layers=2,
    score_hidden=SCORE,
    max_length=29,
    window=1,
)
SUTSKEVER = COMMON | dict(
    layers=2,
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
    max_distance=2,
    max_length=13,
    score_hidden=5,
    window=2,
    share_embeddings=True,
)
CHO = SUTSKEVER | dict(
    cell="gru",
    layers=1,
    reverse_source=False,
    summary="tanh",
    first_state="layer",
    fed_steps="all",
    maxout=UNITS,
)
VINYALS = dict(
    vocab_size=VOCAB,
    embedding=EMBEDDING,
    hidden=HIDDEN,
    dropout=0.0,
    init_scheme="standard",
    channels=(7,),
)
XU = VINYALS | dict(
    score_hidden=SCORE, max_length=29, window=2, selector=True, soft_prob=0.0
)
CHAN = dict(
    vocab_size=VOCAB,
    embedding=EMBEDDING,
    hidden=HIDDEN,
    listener=3,
    listener_layers=3,
    halvings=2,
    score_hidden=SCORE,
    filter_width=3,
    init_scheme="standard",
)
LOCATION_AWARE = dict(score="location_aware")
# Models by name: as in their papers, and with other fields.
CASES = {
    "bahdanau": (Bahdanau, BAHDANAU),
    "bahdanau, other": (
        Bahdanau,
        BAHDANAU
        | dict(cell="lstm", encoder_layers=2, readout_state="new", alignment="local_p"),
    ),
    "bahdanau, local-m": (Bahdanau, BAHDANAU | dict(alignment="local_m")),
    "bahdanau, location-aware": (Bahdanau, BAHDANAU | LOCATION_AWARE),
    "luong": (Luong, LUONG),
    "luong, other": (
        Luong,
        LUONG
        | dict(cell="gru", bidirectional=True, reverse_source=False)
        | dict(input_feeding=False, score="concat", alignment="local_p"),
    ),
    "luong, deep": (
        Luong,
        LUONG | dict(cell="rnn", decoder_layers=3, residual="dense"),
    ),
    "luong, location-aware": (Luong, LUONG | LOCATION_AWARE),
    "sutskever": (Seq2Seq, SUTSKEVER),
    "cho": (Seq2Seq, CHO),
    "transformer": (Transformer, TRANSFORMER),
    "xu": (ShowAttendTell, XU),
    "xu, cnn": (ShowAttendTell, XU | dict(encoder="cnn", channels=(8, 7))),
    "xu, location-aware": (ShowAttendTell, XU | LOCATION_AWARE),
    "vinyals": (ShowAndTell, VINYALS),
    "vinyals, cnn": (ShowAndTell, VINYALS | dict(encoder="cnn", channels=(8, 7))),
    "chan": (ListenAttendSpell, CHAN),
    "chan, location-aware": (ListenAttendSpell, CHAN | LOCATION_AWARE | dict(layers=1)),
}
