"""Lines of strict JSON -> Parquet with DuckDB's parser.

The result counts only if every line is certainly good by the rules of `review_lines.py` and
`metadata_lines.py`; otherwise `line_files.stage_lines` parses the file line by line.
"""

from pathlib import Path

import duckdb

from dataloading.table_input.duckdb_files import quoted, read_ndjson, read_ndjson_objects
from preproc.amazon_books.lines import metadata_lines, review_lines
from preproc.amazon_books.lines.line_files import MAX_LINE_BYTES
from preproc.arguments import MachineOptions
from preproc.engines.duckdb_session import PreparationSession

_ROW_GROUP_ROWS = 1 << 16
# Where DuckDB may have accepted invalid JSON: a comma after the last element, any case of NaN and
# Infinity. It also matches text that looks like these.
_LENIENT = r",\s*[}\]]|[:,\[]\s*-?(?i:nan|inf|infinity)\s*[,}\]]"
_FETCHED_LINES = 1 << 10
_SEARCHED_BYTES = 4 << 20


class JsonReader(PreparationSession):
    """Fast reader of plain files, in any order of the rows; a context manager.

    Args:
        options: limits of the whole process.
        scratch: folder for what does not fit into memory.
    """

    def __init__(self, options: MachineOptions, scratch: Path):
        super().__init__(
            options, scratch, preserve_insertion_order=False, python_enable_replacements=False
        )

    def stage_reviews(self, source: Path, target: Path) -> bool:
        """Writes the review lines of a plain file as a Parquet file (user, item, time).

        Returns:
            False if a line may be bad; the content of `target` is undefined then.
        """
        user, item, time = review_lines.USER, review_lines.ITEM, review_lines.TIME
        # As JSON: converted by DuckDB, numbers would pass for text and fractions for integers.
        return self._stage(
            f"""
            SELECT CASE WHEN {_is_text(user)} AND {_is_text(item)}
                AND regexp_full_match({time}::VARCHAR, '-?[0-9]+')
                THEN {user} ->> '$' ELSE error('a bad line') END AS user,
                {item} ->> '$' AS item, {time}::VARCHAR::BIGINT AS time
            FROM {_json_lines(source, {user: "JSON", item: "JSON", time: "JSON"})}
            """,
            source,
            target,
        )

    def stage_metadata(self, source: Path, target: Path) -> bool:
        """Does the same with metadata lines (item, item_0: the category)."""
        item, categories = metadata_lines.ITEM, metadata_lines.CATEGORIES
        return self._stage(
            f"""
            SELECT CASE WHEN {_is_text(item)} AND {_is_names(categories)}
                THEN {item} ->> '$' ELSE error('a bad line') END AS item,
                nullif({categories} ->> '$[#-1][#-1]', '') AS item_0
            FROM {_json_lines(source, {item: "JSON", categories: "JSON"})}
            """,
            source,
            target,
        )

    def _stage(self, query: str, source: Path, target: Path) -> bool:
        if _has_odd_space(source):
            return False
        try:
            self.connection.execute(
                f"COPY ({query}) TO {quoted(target)} "
                f"(FORMAT parquet, ROW_GROUP_SIZE {_ROW_GROUP_ROWS})"
            )
        # UnicodeDecodeError: DuckDB's message quotes a line and cuts a character in half.
        except (duckdb.InvalidInputException, duckdb.ConversionException, UnicodeDecodeError):
            return False
        return self._is_strict(source)

    def _is_strict(self, source: Path) -> bool:
        """Returns whether lines that DuckDB accepted are strict JSON."""
        options = f"compression='uncompressed', maximum_object_size={MAX_LINE_BYTES}"
        suspects = self.connection.execute(
            f"SELECT json::VARCHAR FROM {read_ndjson_objects(source, options)} "
            f"WHERE regexp_matches(json::VARCHAR, {quoted(_LENIENT)})"
        )
        while lines := suspects.fetchmany(_FETCHED_LINES):
            for (line,) in lines:
                try:
                    review_lines.json_object(line, ())
                except ValueError:
                    return False
        return True


def _has_odd_space(source: Path) -> bool:
    """Returns whether a file has a vertical tab or a form feed.

    DuckDB ignores them around a line. JSON allows them nowhere, not even in text.
    """
    with open(source, "rb") as file:
        while block := file.read(_SEARCHED_BYTES):
            if b"\v" in block or b"\f" in block:
                return True
    return False


def _json_lines(path: Path, columns: dict[str, str]) -> str:
    """A table of the fields of a plain file's lines; NULL where one is not there."""
    types = ", ".join(f"{name}: '{type_name}'" for name, type_name in columns.items())
    return read_ndjson(
        path,
        "auto_detect=false, records=true, compression='uncompressed', "
        f"columns={{{types}}}, maximum_object_size={MAX_LINE_BYTES}",
    )


def _is_text(column: str) -> str:
    """A condition: the JSON value is text with something in it."""
    return f"""(starts_with({column}::VARCHAR, '"') AND {column}::VARCHAR <> '""')"""


def _is_names(column: str) -> str:
    """A condition: the JSON value is missing, or a list of lists of text. It may also fail for
    text with a null in it."""
    text = f"{column}::VARCHAR"
    types = (
        f"json_structure({column})::VARCHAR IN ('[[\"VARCHAR\"]]', '[[\"NULL\"]]', '[\"NULL\"]')"
    )
    no_null = f"NOT contains({text}, '[null') AND NOT contains({text}, ',null')"
    return f"({column} IS NULL OR ({types} AND {no_null}))"
