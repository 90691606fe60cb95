"""Tables as text: every cell is read back as it was written."""

import csv

import numpy as np

from base import storage


def test_a_table_is_read_back_cell_by_cell(tmp_path):
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
        header = [f"column {n}" for n in range(width)]
        path = storage.write_tsv(tmp_path / "a.tsv", header, rows)
        assert storage.read_tsv(path) == [header, *rows]
        with path.open(encoding="utf-8", newline="") as file:
            assert list(csv.reader(file, delimiter="\t")) == [header, *rows]


def test_only_cells_that_need_it_are_quoted():
    row = ["it's 3, 5", "", 7, ' "a"', "b\tc"]
    assert storage.tsv_row(row) == 'it\'s 3, 5\t\t7\t" ""a"""\t"b\tc"'
