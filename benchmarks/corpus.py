"""Writes a config's corpus as text files, for other libraries."""

from pathlib import Path

from tasks.common.splits import SPLITS
from tasks.common.vocabulary import Vocabulary, train_vocabulary
from tasks.translation import parallel_text


def write_corpus(config, folder: Path) -> Vocabulary:
    """Writes a translation config's splits and vocabulary; returns the vocabulary.

    The files are SPLIT.source and SPLIT.target with one sentence per line,
    sentencepiece.model, and vocabulary.txt with one piece per line, without special
    pieces.
    """
    corpus = parallel_text.load(config.data)
    print(corpus)
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        for side, texts in zip(
            ("source", "target"), zip(*getattr(corpus, split), strict=True), strict=True
        ):
            lines = [" ".join(text.split()) + "\n" for text in texts]
            (folder / f"{split}.{side}").write_text("".join(lines), encoding="utf-8")
    vocabulary = train_vocabulary(
        (text for pair in corpus.train for text in pair),
        config.data.vocab_size,
        folder / "sentencepiece.model",
    )
    pieces = vocabulary.pieces(range(4, vocabulary.size))
    (folder / "vocabulary.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return vocabulary
