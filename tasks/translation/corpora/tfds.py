"""Translation data sets of TensorFlow Datasets."""

from base.errors import UserError
from tasks.common.splits import SPLITS
from tasks.common.text import normal
from tasks.translation.corpora.records import Selection


def read_tfds(name: str, languages: tuple[str, str]) -> dict[str, Selection]:
    """Reads the splits of a data set, without pairs with an empty side.

    Raises:
        UserError: if the data set cannot be opened, or lacks training data or a
            language.
    """
    try:
        import tensorflow_datasets as tfds

        sources = tfds.data_source(name)
    except Exception as error:  # builders raise errors of all kinds
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(
            f"tfds:{name} cannot be opened ({reason}); some data sets, such as wmt*, "
            "need `pip install tensorflow-cpu`; the corpus files needs no package"
        ) from None
    if "train" not in sources:
        raise UserError(f"tfds:{name} has no split train, only {', '.join(sources)}")
    splits = {}
    for split in (x for x in SPLITS if x in sources):
        source = sources[split]
        place = f"tfds:{name}, {split}"
        read = [_pair(source[n], languages, place) for n in range(len(source))]
        pairs = [pair for pair in read if all(pair)]
        rules = {"with an empty side": len(read) - len(pairs)}
        splits[split] = Selection(pairs, rules)
    return splits


def _pair(example: dict, languages: tuple[str, str], place: str) -> tuple[str, ...]:
    texts = []
    for language in languages:
        text = example.get(language)
        if not isinstance(text, (bytes, str)):
            names = ", ".join(sorted(example))
            raise UserError(f"{place} has no text in {language!r}, only {names}")
        try:
            texts.append(normal(text.decode() if isinstance(text, bytes) else text))
        except UnicodeDecodeError as error:
            raise UserError(f"{place} has text that is not UTF-8: {error}") from None
    return tuple(texts)
