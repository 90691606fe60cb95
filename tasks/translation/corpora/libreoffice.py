"""Paragraphs of the LibreOffice help, aligned by page and element id.

Read from Debian packages (MPL-2.0), grouped by page.
"""

import html.parser
import re
from collections.abc import Iterator

from base.errors import UserError
from tasks.common.packages import deb_files, fetch_deb
from tasks.translation.corpora.records import Record, cached


def records(source: str, target: str) -> list[Record]:
    """Reads the paragraphs of two languages.

    Raises:
        UserError: if a package cannot be downloaded or read.
    """
    return cached(f"libreoffice-{source}-{target}", lambda: _read(source, target))


def _read(source: str, target: str) -> Iterator[Record]:
    pages, translations = (_read_help(language) for language in (source, target))
    for page in sorted(pages.keys() & translations.keys()):
        for element, text in pages[page].items():
            if element in translations[page]:
                yield page, text, translations[page][element]


def _read_help(language: str) -> dict[str, dict[str, str]]:
    """Texts of the help in a language, by page and element id."""
    language = {"en": "en-us"}.get(language, language.lower())
    path = fetch_deb(f"libreoffice-help-{language}")
    pages = {}
    pattern = r"/help/[^/]+/(text/.*)\.html$"
    try:
        for name, content in deb_files(path, pattern):
            parser = _HelpPage()
            parser.feed(content.decode())
            pages[re.search(pattern, name)[1]] = parser.texts
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    return pages


class _HelpPage(html.parser.HTMLParser):
    """Collects the paragraphs and headings of a help page by their id."""

    def __init__(self):
        super().__init__()
        self.texts: dict[str, str] = {}
        self._element: str | None = None

    def handle_starttag(self, tag, attributes):
        if re.fullmatch(r"p|h\d", tag):
            fields = dict(attributes)
            element = fields.get("id") or ""
            code = "code" in (fields.get("class") or "")
            text = element.startswith(("par_", "hd_")) and not code
            # A page may contain an element twice: keep the first.
            self._element = element if text and element not in self.texts else None
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag):
        if re.fullmatch(r"p|h\d", tag):
            self._element = None

    def handle_data(self, data):
        if self._element:
            self.texts[self._element] = self.texts.get(self._element, "") + data
