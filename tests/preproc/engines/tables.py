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
