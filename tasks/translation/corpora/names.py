"""Names of corpora, and the fields of a config that each needs."""

import re
from collections.abc import Mapping

from base.errors import FieldError, UserError
from tasks.translation.corpora.generated import LANGUAGES

CORPORA = ("homeassistant", "libreoffice", "files", "numbers", "reversal")


def check_name(
    field: str, corpus: str, languages: tuple[str, str], files: Mapping[str, str]
) -> None:
    """Checks the name of a corpus, and the fields that it needs; reads no data.

    Args:
        field: field of the config with the name, for errors.
        corpus: name of the corpus.
        languages: source and target language.
        files: files of the corpus `files`, by split.

    Raises:
        UserError: for an unknown corpus, a language that it lacks, equal languages or
            missing names of files.
    """
    source, target = languages
    if corpus not in CORPORA and not re.fullmatch(r"tfds:.+", corpus):
        verb = "is" if field == "data.corpus" else "has"
        raise UserError(
            f"config.{field} {verb} {corpus!r}: must be {', '.join(CORPORA)} or "
            "tfds:NAME"
        )
    if source == target:
        raise UserError(
            f"config.data.source_language is {source!r}: must differ from "
            "config.data.target_language"
        )
    for side, language in (("source", source), ("target", target)):
        name = f"config.data.{side}_language"
        if corpus == "numbers" and language not in LANGUAGES:
            accepted = f"{' or '.join(LANGUAGES)} for the corpus numbers"
            raise FieldError(name, language, accepted)
        if not language:
            raise FieldError(name, language, "a language, such as en")
    if corpus == "files" and not files.get("train"):
        raise UserError(
            "config.data.files.train is missing: must be SOURCE_FILE,TARGET_FILE or "
            f"PREFIX, for files PREFIX.{source} and PREFIX.{target}, optionally with "
            ".gz"
        )
