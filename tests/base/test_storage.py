"""Tables as text: every cell is read back as it was written."""

import csv

import numpy as np
import pytest

from base import storage
from base.errors import UserError


def tables():
    """Tables of random cells; the first row is the header."""
    rng, characters = (
        np.random.default_rng(0),
        list("\"\t\n\r \\'a,é#\u2028\x85") + [""],
    )
    for _ in range(200):
        width, count = rng.integers(1, 4), rng.integers(0, 5)
        rows = [
            ["".join(rng.choice(characters, 3)) for _ in range(width)]
            for _ in range(count)
        ]
        yield [[f"column {n}" for n in range(width)], *rows]


def test_a_table_is_read_back_cell_by_cell(tmp_path):
    for header, *rows in tables():
        path = storage.write_tsv(tmp_path / "a.tsv", header, rows)
        assert storage.read_tsv(path) == [header, *rows]
        with path.open(encoding="utf-8", newline="") as file:
            assert list(csv.reader(file, delimiter="\t")) == [header, *rows]


def test_pandas_reads_a_table_cell_by_cell(tmp_path):
    pandas = pytest.importorskip("pandas")
    for header, *rows in tables():
        path = storage.write_tsv(tmp_path / "a.tsv", header, rows)
        table = pandas.read_csv(path, sep="\t", keep_default_na=False)
        assert [list(table.columns), *table.values.tolist()] == [header, *rows]


@pytest.mark.parametrize("name", ["nowhere", "a\0b"])
def test_a_path_that_no_file_can_have_is_one_of_a_missing_file(name, tmp_path):
    with pytest.raises(FileNotFoundError):
        storage.read_regular(tmp_path / name)


def test_only_cells_that_need_it_are_quoted():
    row = ["it's 3, 5", "", 7, ' "a"', "b\tc"]
    assert storage.tsv_row(row) == 'it\'s 3, 5\t\t7\t" ""a"""\t"b\tc"'


def test_a_folder_that_was_made_and_left_empty_is_removed_with_its_parents(tmp_path):
    for path in (tmp_path / "a" / "b", tmp_path / ("x" * 300)):
        with pytest.raises(UserError), storage.without_empty(path):
            storage.make_folder(path, "--workdir")
            raise UserError("faulty data")
    assert not [*tmp_path.iterdir()]
    with storage.without_empty(tmp_path):  # it was there before
        pass
    with storage.without_empty(tmp_path / "c"):
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "file").touch()
    assert (tmp_path / "c" / "file").exists()
