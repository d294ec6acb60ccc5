"""CSV and JSON files with their rows, for all engines: name -> (content, rows)."""

CSV = {
    "header_only": (b"a,b\n", []),
    "byte_order_mark": (b"\xef\xbb\xbfa,b\n1,2\n", [("1", "2")]),
    "quoted_name_after_mark": (b'\xef\xbb\xbf"a",b\n1,2\n', [("1", "2")]),
    "both": (b"a,b\r\n1,2\r\n3,4\r\n", [("1", "2"), ("3", "4")]),
    "carriage_returns": (b"a,b\r1,2\r3,4\r", [("1", "2"), ("3", "4")]),
    "mixed_line_ends": (b'a,b\n1,2\r\n3,"4"\n5,6\r\n', [("1", "2"), ("3", "4"), ("5", "6")]),
    "no_last_line_end": (b"a,b\n1,2", [("1", "2")]),
    "line_break_in_field": (b'a,b\n"x\ny",2\n3,4\n', [("x\ny", "2"), ("3", "4")]),
    "other_line_end_in_field": (b'a,b\n"x\r\ny\rz",2\n3,4\n', [("x\r\ny\rz", "2"), ("3", "4")]),
    "delimiter_in_field": (b'a,b\n"1,5",2\n', [("1,5", "2")]),
    "line_break_in_name": (b'"a\n",b\r\n1,2\r\n3,4\r\n', [("1", "2"), ("3", "4")]),
    "mark_and_break_in_name": (b'\xef\xbb\xbf"a\n",b\r\n1,2\r\n', [("1", "2")]),
    "doubled_quotes": (b'a,b\n"x ""y"" z",2\n', [('x "y" z', "2")]),
    "quote_inside": (b'a,b\nx"y,2\n', [('x"y', "2")]),
    "missing": (b'a,b\n,2\n1,\n"",""\n', [(None, "2"), ("1", None), ("", "")]),
    "empty_lines_of_both": (b"a,b\r\n1,2\r\n\r\n\r\n", [("1", "2")]),
    "blank_lines": (b"a,b\n1,2\n  \n3,4\n\t \n\n \n", [("1", "2"), ("3", "4")]),
    "blank_lines_of_tabs": (b"a\tb\n\t\n1\t\n \n\t\n\t\t\n", [("1", None)]),
    "spaces": (b"a,b\n 1 , 2 \n", [(" 1 ", " 2 ")]),
    "semicolons": (b"a;b\n1,5;2\n", [("1,5", "2")]),
    "one_column": (b'a\n1\n\n""\n  \n2\n\n', [("1",), ("",), ("2",)]),
    "unnamed_column": (b",a\n0,x\n1,y\n", [("x",), ("y",)]),
    "names": (
        b'"it\'s ""x""","p.q r",Part,row,file_index\n1,2,3,4,5\n',
        [("1", "2", "3", "4", "5")],
    ),
    "trailing_delimiter": (b"a,b\n1,2,\n", [("1", "2")]),
    "utf8": ("ä,b\né,日本\n".encode(), [("é", "日本")]),
}

JSON = {
    "values": (
        b'{"a": 1, "b": "x \\"y\\" \\u00e9"}\n{"b": null, "c": true}\r\n\n{"a": 2.5}\n',
        ("a", "b", "c"),
        [("1", 'x "y" é', None), (None, None, "true"), ("2.5", None, None)],
    ),
    "nested": (
        b'\xef\xbb\xbf{"l": [1, "x"], "o": {"k": 1}, "p/q~r.s": 0}\n{"l": []}',
        ("l", "o", "p/q~r.s"),
        [('[1,"x"]', '{"k":1}', "0"), ("[]", None, None)],
    ),
    "blank_lines": (b'{"a": 1}\n  \n\t\r\n\n', ("a",), [("1",)]),
    "empty": (b"", (), []),
}

# name -> (content, line, rule) of the first bad line
BAD_CSV = {
    "few_fields": (b"a,b\n1,2\n\n3\n4,5\n", 4, "expected 2 fields (a, b) between ',', got 1: '3'"),
    "after_blanks": (b"a,b\n \n1,2\n\t\n3\n", 5, "expected 2 fields (a, b) between ',', got 1"),
    "many_fields": (b"a,b\n1,2\n3,4,5\n", 3, "expected 2 fields (a, b) between ',', got 3"),
    "after_line_break": (b'a,b\n"x\ny",2\n3\n', 4, "got 1: '3'"),
    "after_quotes": (b'a,b\n1,2\n"x"y,2\n', 3, "expected quotation marks around a whole field"),
    "open_quote": (b'a,b\n1,2\n"x,2\n3,4\n', 3, "expected quotation marks around a whole field"),
    "latin1": (b"a,b\n1,2\n\xe9,3\n", 3, "expected UTF-8 text"),
}
BAD_JSON = {
    "cut": (b'{"a": 1}\n\n{"a": \n', 3, "expected a JSON object, got '{\"a\": '"),
    "after_blank_lines": (b'{"a": 1}\n \n[1]\n', 3, "expected a JSON object, got '[1]'"),
}
