"""Texts that become numbers, literals and JSON: in one place, and never a traceback."""

import pytest

from base.errors import UserError, parse_json, parse_literal, parse_number, parse_whole
from tasks.common import user_files, vocabulary
from training import checkpoints, configuration, encoding
from training.log import read_rows

DIGITS = "7" * 5003
DEEP = "[" * 701 + "]" * 701  # which json reads, but recursive functions do not
DEEPER = '{"a": ' * 100_003 + "1" + "}" * 100_003


@pytest.mark.parametrize("text", [DIGITS, "-" + DIGITS, "1_000", "", "x", "1" * 301])
@pytest.mark.parametrize("kind", [int, float])
def test_another_text_is_no_number(text, kind):
    with pytest.raises(ValueError) as error:
        parse_number(text, kind)
    assert len(str(error.value)) < 200
    assert parse_number("1" * 300, kind) == kind("1" * 300)
    float(parse_number("9" * 300, kind))  # no OverflowError


@pytest.mark.parametrize("text", [DIGITS, "-1", "+1", " 1", "1.0", "", "0x1", "1e3"])
def test_a_whole_number_is_digits(text):
    with pytest.raises(ValueError):
        parse_whole(text)
    assert parse_whole("0017") == 17


@pytest.mark.parametrize(
    "text", [DIGITS, f'{{"a": [{DIGITS}]}}', DEEP, DEEPER, "", "{", "nan"]
)
def test_another_text_is_no_json(text):
    with pytest.raises(ValueError):
        parse_json(text)
    assert parse_json(b'{"a": [1, 2.5, "x", null]}') == {"a": [1, 2.5, "x", None]}


@pytest.mark.parametrize(
    "text",
    [
        f"({DIGITS},)",
        f"(0x{'f' * 5003},)",
        f"({'1+' * 5003}1,)",
        f"({'-' * 100_003}1,)",
        f"({'not ' * 5003}1,)",
        "(" * 5003,
        "[" * 150 + "]" * 150,
        "1+1",
        "9**9**9",
        "f()",
        "{[]: 1}",
        "(1,\0)",
        "",
    ],
)
def test_an_expression_is_no_literal(text):
    with pytest.raises(ValueError):
        parse_literal(text)
    assert parse_literal("(1, 'a', (2.5,), None)") == (1, "a", (2.5,), None)


@pytest.mark.parametrize("content", [DIGITS, DEEP, DEEPER])
def test_a_json_file_of_a_run_is_damaged_in_one_line(content, tmp_path):
    """Whatever it is: each file is read by the function that reads it in a run."""
    folder = tmp_path / "assets"
    files = [tmp_path / "config.json"]
    for path in (*files, folder / user_files.ASSET):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "metrics.jsonl").write_text(f"{content}\n{content}\n")
    reads = [
        lambda: encoding.read_json(tmp_path),
        lambda: configuration.load(tmp_path),
        lambda: read_rows(tmp_path / "metrics.jsonl"),
    ]
    for read in reads:
        with pytest.raises(UserError) as error:
            read()
        assert str(error.value).startswith(str(tmp_path))
        assert "\n" not in str(error.value) and len(str(error.value)) < 500
    assert vocabulary._parse(content.encode()) == {}
    assert user_files.left_out(folder, training=False) is None
    assert user_files._read(tmp_path / "config.json") == {}


def test_a_checkpoint_of_many_digits_is_unknown(tmp_path, monkeypatch):
    saved = checkpoints.Checkpoints(tmp_path)
    monkeypatch.setattr(saved, "steps", lambda: [3, 7])
    for which in (DIGITS, "٧" * 5003, "-3", "3.0"):
        with pytest.raises(UserError, match=f"^{tmp_path} has no checkpoint ") as error:
            saved.find(which)
        assert len(str(error.value)) < 300
    assert saved.find("007") == 7
