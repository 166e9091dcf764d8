"""The committed tables say what the installed botocore says."""

from tests.support.aws_tables import TABLES, rendered


def test_the_tables_are_those_of_botocore() -> None:
    assert TABLES.read_text() == rendered(), "write them again: python -m tests.support.aws_tables"
