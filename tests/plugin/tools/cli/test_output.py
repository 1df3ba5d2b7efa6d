"""Tables for people, documents for tools."""

import dataclasses

from claimd.tools.cli import output


def test_columns_are_as_wide_as_their_widest_cell(capsys):
    output.print_rows([["A", "B"], ["long", "1"], ["x", ""]])
    assert capsys.readouterr().out == "A     B\nlong  1\nx\n"


def test_what_is_not_known_is_a_dash():
    assert [output.cell(value) for value in (None, "", 0, False)] == ["-", "-", "0", "False"]


def test_objects_without_what_is_not_there():
    @dataclasses.dataclass
    class Inner:
        number: int | None = None
        hidden: int = dataclasses.field(default=1, init=False)

    @dataclasses.dataclass
    class Outer:
        items: tuple[Inner, ...] = ()
        zero: int = 0

    assert output.plain(Outer()) == {"zero": 0}
    assert output.plain(Outer(items=(Inner(2), Inner()))) == {
        "items": [{"number": 2}, {}],
        "zero": 0,
    }


def test_documents(capsys):
    output.print_document({"b": 1, "a": ["ü"]}, "yaml")
    assert capsys.readouterr().out == "b: 1\na:\n- ü\n"
    output.print_document({"b": 1}, "json")
    assert capsys.readouterr().out == '{\n  "b": 1\n}\n'
