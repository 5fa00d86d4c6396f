"""Reading YAML that nobody vouches for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.config.yamlfile import LARGEST_FILE, UNKNOWN_TAG, Document, load, path_text, quoted
from reconcile.errors import InvalidFileError


def read(folder: Path, content: str | bytes) -> Document:
    file = folder / "file.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load(file)


def problems(folder: Path, content: str | bytes) -> list[tuple[str, str, int | None]]:
    with pytest.raises(InvalidFileError) as caught:
        read(folder, content)
    return [(problem.path, problem.message, problem.line) for problem in caught.value.problems]


def test_plain_values_come_with_their_lines(tmp_path: Path) -> None:
    """Each value is found by its path, with the line of its key."""
    document = read(tmp_path, "a: 1\nb:\n  - {c: x}\n  - true\n")
    assert document.value == {"a": 1, "b": [{"c": "x"}, True]}
    assert document.lines[("b", 0, "c")] == 3
    assert document.line(("b", 1, "no", "such")) == 4


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    """Editors that write a byte order mark do no harm."""
    assert read(tmp_path, b"\xef\xbb\xbfa: b\n").value == {"a": "b"}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("12:30:00", "12:30:00"),
        ("0x10", "0x10"),
        ("0777", "0777"),
        ("1_000", "1_000"),
        ("-12", -12),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ("no", False),
        ("On", True),
        ("~", None),
        ("", None),
        ("'no'", "no"),
        ("! 12", "12"),
        ("!!str 12", "12"),
        ("!!int 12", 12),
        ("!!float 1", 1),
        ("=", "="),
    ],
)
def test_a_scalar_is_read_as_what_people_mean(tmp_path: Path, written: str, value: Any) -> None:
    """Decimal numbers, truth values and null are told from text; dates and other notations stay text."""
    assert read(tmp_path, f"a: {written}\n").value == {"a": value}


def test_an_alias_stands_for_a_copy(tmp_path: Path) -> None:
    """What an alias repeats is there twice, with the lines of where it was written."""
    document = read(tmp_path, "a: &x\n  k: v\nb: *x\n")
    assert document.value == {"a": {"k": "v"}, "b": {"k": "v"}}
    assert document.lines[("b", "k")] == 2


def test_how_a_value_was_written_is_kept(tmp_path: Path) -> None:
    """A message can show `no` and not False."""
    assert read(tmp_path, "a: no\nb: 'no'\n").written == {("a",): "no"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", [("", "is empty", None)]),
        ("# nothing\n", [("", "is empty", None)]),
        ("- a\n", [("", "must hold keys and values (`key: value`), found a list", 1)]),
        ("text\n", [("", "must hold keys and values (`key: value`), found a single value", 1)]),
        ("a: 1\n---\nb: 1\n", [("", "holds several documents; give each a file of its own", 2)]),
        ("a: 1\nb: 2\na: 3\n", [("a", "stands here again, first in line 1", 3)]),
        ("no: 1\n", [("", 'a key must be text, found no, which YAML reads as false; put quotes round it: "no"', 1)]),
        ("1: 1\n", [("", 'a key must be text, found 1; put quotes round it: "1"', 1)]),
        ("? [a]\n: 1\n", [("", "a key must be text, found a list", 1)]),
        ("? \n: 1\n", [("", "a key must be text, found nothing", 1)]),
        ("b: &b {x: 1}\na:\n  <<: *b\n", [("a", "merging with `<<` is not supported; write the keys out", 3)]),
        (
            "a: !!python/object:os.system x\n",
            [("a", UNKNOWN_TAG, 1)],
        ),
        ("a: !env X\n", [("a", UNKNOWN_TAG, 1)]),
        ("a: !!timestamp 2026-01-01\n", [("a", UNKNOWN_TAG, 1)]),
        ("a: !!set {b}\n", [("a", UNKNOWN_TAG, 1)]),
        ("a: !!int x\n", [("a", "is not what its tag !!int says", 1)]),
        ("a: .inf\n", [("a", ".inf is not a number that can be used", 1)]),
        ("a: .NaN\n", [("a", ".NaN is not a number that can be used", 1)]),
        ("a: 1e999\n", [("a", "is a number that is too large", 1)]),
        (f"a: {'9' * 5000}\n", [("a", "is a whole number of more than 19 digits", 1)]),
        (
            "a: &a [*a]\n",
            [("", "an alias (*...) stands inside of what it names; text that begins with * needs quotes", 1)],
        ),
        ("a: *x\n", [("", "an alias (*...) names no anchor above it; text that begins with * needs quotes", 1)]),
        ('a: "\\0"\n', [("a", "the character U+0000 may not stand in a text", 1)]),
        ("a: b\nc: \x07\n", [("", "the character U+0007 may not stand in the file", 2)]),
        (b"a: b\nc: \xff\n", [("", "is not UTF-8: byte 0xff", 2)]),
        ("a: b\n".encode("utf-16"), [("", "is not UTF-8: byte 0xff", 1)]),
        (b"a: \xed\xa0\x80\n", [("", "is not UTF-8: byte 0xed", 1)]),
        (
            "a: [1, 2\nb: 3\n",
            [
                (
                    "",
                    "is not valid YAML: did not find expected ',' or ']'"
                    " (while parsing a flow sequence that begins in line 1)",
                    2,
                )
            ],
        ),
    ],
)
def test_what_is_wrong_is_told(
    tmp_path: Path, content: str | bytes, expected: list[tuple[str, str, int | None]]
) -> None:
    """Each fault has its place and its line."""
    assert problems(tmp_path, content) == expected


def test_an_escaped_surrogate_is_refused(tmp_path: Path) -> None:
    """Text that could not be written as UTF-8 does not come in by an escape."""
    assert len(problems(tmp_path, 'a: "\\ud800"\n')) == 1


def test_several_problems_are_told_at_once(tmp_path: Path) -> None:
    """A file is edited once for all its faults, in the order of its lines."""
    content = "a: .inf\nb: !x 1\na: 2\n3: c\n"
    assert [line for _, _, line in problems(tmp_path, content)] == [1, 2, 3, 4]


def test_a_key_with_a_password_in_it_is_not_repeated(tmp_path: Path) -> None:
    """A URL that ended up as a key does not show its password."""
    content = "postgresql://u:hunter2@h/d: .inf\n"
    assert problems(tmp_path, content)[0][0] == '["postgresql://***@h/d"]'


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    """A file over the limit is refused by its size."""
    assert problems(tmp_path, b"#" * (LARGEST_FILE + 1)) == [("", "is larger than 1024 KiB", None)]


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    """Half a million brackets end at the sixty-fifth."""
    assert problems(tmp_path, "a: " + "[" * 500_000) == [("", "is nested deeper than 64 levels", 1)]


def test_depth_counts_what_aliases_stand_for(tmp_path: Path) -> None:
    """Nesting cannot be hidden behind anchors."""
    content = f"a: &a {'[' * 40}x{']' * 40}\nb: {'[' * 40}*a{']' * 40}\n"
    assert problems(tmp_path, content) == [("", "is nested deeper than 64 levels", 2)]


def test_a_billion_laughs_are_counted_and_not_expanded(tmp_path: Path) -> None:
    """Aliases count as what they stand for."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 50)]
    assert problems(tmp_path, "\n".join(lines)) == [
        ("", "holds more than 100000 values, aliases counted in full", 5),
    ]


def test_a_flood_of_problems_is_cut(tmp_path: Path) -> None:
    """Nobody reads more than a hundred."""
    assert len(problems(tmp_path, "".join(f"{n}: 1\n" for n in range(5000)))) == 100


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    """A folder in place of a file is told as such."""
    with pytest.raises(InvalidFileError, match="is not a file"):
        load(tmp_path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """A wrong name is told as such."""
    with pytest.raises(InvalidFileError, match="there is no such file"):
        load(tmp_path / "none.yaml")


def test_a_name_that_no_file_can_have_is_told() -> None:
    """A NUL in the name gives a problem and no traceback."""
    with pytest.raises(InvalidFileError, match="there is no such file"):
        load(Path("a\0b"))


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's reason is passed on."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "file.yaml"
    file.write_text("a: b\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InvalidFileError, match="cannot be read: Permission denied"):
        load(file)


def test_paths_are_written_as_people_read_them() -> None:
    """Positions and odd keys stand in brackets."""
    assert path_text(("consumers", 0, "security", "sasl.password")) == 'consumers[0].security["sasl.password"]'


def test_quoted_text_fits_a_terminal() -> None:
    """Long and unprintable text is shortened and escaped."""
    assert quoted("a\nb") == '"a\\nb"'
    assert len(quoted("x" * 1000)) == 62


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Nothing but a document or a refusal comes of any bytes."""
    read_or_refuse(tmp_path_factory.getbasetemp(), content)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"?#%@`,<=~. \n\t0\\ux", max_size=60))
def test_arbitrary_markup_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    """Nothing but a document or a refusal comes of any markup."""
    read_or_refuse(tmp_path_factory.getbasetemp(), content.encode())


def read_or_refuse(folder: Path, content: bytes) -> None:
    told = ""
    try:
        read(folder, content)
        told = "a document"
    except InvalidFileError as error:
        told = str(error)
    assert told.encode()
