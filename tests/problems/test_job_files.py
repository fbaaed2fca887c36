from __future__ import annotations

import contextlib
import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakrl import PeakError
from peakrl.errors import ProblemError, StorageError
from peakrl.problems import Job
from peakrl.problems.scheduling import read_jobs, uniform
from peakrl.problems.scheduling.jobs import named_jobs


def write(folder, content):
    path = folder / "jobs.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_file_is_read_into_named_jobs(tmp_path):
    path = write(tmp_path, "name,processing,due,deadline,weight\nsaw,3,5,9,2\ndrill,2-4,6,9,0.5\n")
    assert read_jobs(path) == (Job(3, 5, 9, 2, "saw"), Job(uniform(2, 4), 6, 9, 0.5, "drill"))


def test_weight_and_name_may_be_left_out_as_columns_and_as_cells(tmp_path):
    expected = named_jobs([Job(3, 5, 9), Job(4, 6, 12)])
    assert read_jobs(write(tmp_path, "processing,due,deadline\n3,5,9\n4,6,12\n")) == expected
    assert read_jobs(write(tmp_path, "processing,due,deadline,weight,name\n3,5,9,,\n4,6,12,,\n")) == expected


def test_a_spreadsheets_byte_order_mark_spaces_capitals_and_blank_lines_do_not_matter(tmp_path):
    text = "\ufeffProcessing, Due ,DEADLINE\r\n\r\n 3 ,5, 9\r\n,,\r\n2 \u2013 4,6,9\r\n\r\n"
    assert read_jobs(write(tmp_path, text)) == named_jobs([Job(3, 5, 9), Job(uniform(2, 4), 6, 9)])


BAD_FILES = [
    ("", ["empty", "processing, due, deadline"]),
    ("processing,due,deadline\n", ["no jobs"]),
    ("processing,due\n3,5\n", ["row 1", "'deadline'", "missing"]),
    ("processing,due,deadline,wieght\n3,5,9,1\n", ["row 1", "'wieght'", "weight"]),
    ("processing,due,deadline,due\n3,5,9,1\n", ["row 1", "'due'", "twice"]),
    ("processing,due,deadline\n3,5,9\n0,5,9\n", ["row 3", "'processing'", "0"]),
    ("processing,due,deadline\n2.5,5,9\n", ["row 2", "'processing'", "'2.5'", "2-4"]),
    ("processing,due,deadline\n4-2,5,9\n", ["row 2", "'processing'", "uniform(4, 2)"]),
    ("processing,due,deadline\n1-999999999,5,9\n", ["row 2", "'processing'", "coarser"]),
    ("processing,due,deadline\n3,soon,9\n", ["row 2", "'due'", "'soon'"]),
    ("processing,due,deadline\n3,,9\n", ["row 2", "'due'", "empty"]),
    ("processing,due,deadline\n3,5,2\n", ["row 2", "'deadline'", "deadline 2", "3"]),
    ("processing,due,deadline\n3,5,9\n3,5\n", ["row 3", "2 cells", "3 columns"]),
    ("processing,due,deadline,weight\n3,5,9,-1\n", ["row 2", "'weight'", "-1"]),
    ("name,processing,due,deadline\na,3,5,9\nb,3,5,9\na,3,5,9\n", ["1 and 3", "'a'"]),
    ('processing,due,deadline\n"3,5,9\n', ["row 2"]),
    ("processing,due,deadline\n" + "9" * 5000 + ",5,9\n", ["row 2", "'processing'", "..."]),
]


def test_a_bad_file_is_refused_with_file_row_and_column_named(tmp_path):
    for text, words in BAD_FILES:
        path = write(tmp_path, text)
        with pytest.raises(ProblemError) as caught:
            read_jobs(path)
        message = str(caught.value)
        assert all(word in message for word in [str(path), *words]), message
        assert len(message) < 500


def test_a_file_that_is_missing_or_a_folder_or_not_text_is_refused_by_name(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path, write(tmp_path, b"processing,due,deadline\n\xff\xfe,1,2\n")):
        with pytest.raises(StorageError, match=path.name):
            read_jobs(path)


def test_a_null_byte_in_a_path_is_a_storage_error():
    with pytest.raises(StorageError):
        read_jobs("jobs\0.csv")


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=8)


@given(st.data())
def test_what_is_written_as_csv_is_read_back(tmp_path_factory, data):
    names = data.draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    jobs = []
    for name in names:
        low = data.draw(st.integers(1, 50))
        high = data.draw(st.integers(low, 60))
        deadline = data.draw(st.integers(low, 500))
        due, weight = data.draw(st.integers(1, 500)), data.draw(st.floats(0.01, 100))
        jobs.append(
            (f"{low}-{high}", due, deadline, weight, name, Job(uniform(low, high), due, deadline, weight, name))
        )
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["processing", "due", "deadline", "weight", "name"])
    writer.writerows(row[:-1] for row in jobs)
    assert read_jobs(write(tmp_path_factory.mktemp("csv"), text.getvalue())) == tuple(row[-1] for row in jobs)


@given(st.one_of(st.binary(max_size=200), st.text("processing,due,deadline\n\r\"0123456789-;' \t", max_size=200)))
def test_any_bytes_at_all_give_jobs_or_a_peak_error(tmp_path_factory, content):
    head = b"processing,due,deadline\n" if isinstance(content, str) else b""
    path = write(tmp_path_factory.mktemp("csv"), head + (content.encode() if isinstance(content, str) else content))
    with contextlib.suppress(PeakError):
        assert read_jobs(path)
