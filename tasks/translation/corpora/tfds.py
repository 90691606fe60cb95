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
    for split in SPLITS:
        if split in sources:
            pairs = []
            for n in range(len(sources[split])):
                example = sources[split][n]
                for language in languages:
                    if not isinstance(example.get(language), (bytes, str)):
                        raise UserError(
                            f"tfds:{name} has no text in {language!r}, only "
                            f"{', '.join(sorted(example))}"
                        )
                try:
                    texts = [_text(example[language]) for language in languages]
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"tfds:{name}: example {n} of {split} is not UTF-8: {error}"
                    ) from None
                pair = tuple(map(normal, texts))
                if all(pair):
                    pairs.append(pair)
            rules = {"with an empty side": len(sources[split]) - len(pairs)}
            splits[split] = Selection(pairs, rules)
    return splits


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
