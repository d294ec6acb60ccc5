"""Files of tables, and the rows that an engine reads."""


def rows(engine, table):
    """Returns the rows without `__part` and `__row`, whose order is checked."""
    result = engine.fetch(table)
    assert result["__row"].to_pylist() == list(range(result.num_rows))
    assert result["__part"].to_pylist() == sorted(result["__part"].to_pylist())
    columns = [result[name].to_pylist() for name in table.columns[2:]]
    return list(zip(*columns, strict=True))


def write(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def numbered(num_rows, start=0):
    return b"".join(b"%d,%d\n" % (i, i % 7) for i in range(start, start + num_rows))


def row_numbers(batches):
    """Work that reports first and last row of each run of a part, which is whole and in order."""
    part, first, last = None, None, None
    for batch in batches:
        columns = (batch["__part"].to_pylist(), batch["__row"].to_pylist())
        for new_part, row in zip(*columns, strict=True):
            if new_part != part:
                if part is not None:
                    yield f"{part} {first} {last}"
                part, first = new_part, row
            else:
                assert row == last + 1
            last = row
    if part is not None:
        yield f"{part} {first} {last}"


def check_row_numbers(reports, num_rows):
    """Checks that each part was in one run, and all rows in some."""
    runs = sorted(tuple(map(int, report.split())) for report in reports)
    assert [part for part, *_ in runs] == list(range(len(runs)))
    stops = [-1, *(last for *_, last in runs)]
    assert [first for _, first, _ in runs] == [stop + 1 for stop in stops[:-1]]
    assert stops[-1] == num_rows - 1
    return len(runs)
