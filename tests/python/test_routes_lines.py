"""Lines of keys in TOML documents."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from torch_fl_base.routes.toml_lines import Lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

DOCUMENT = '''\
# [not.a.header]
schema = 1  # = 2
a.b . "c d" = 'x'

[ops."mean.dim"]
candidates = [
  "boxed",  # ["cpu"]
  {source = "gems", when = {dtype = ["a", "]"], "args" = {'keep dim' = false}}},
]
reason = """[ops.no]
no = 1
a "quoted" word\\""""
until = \'\'\'
[ops.no2]\'\'\'
[ ops . 'mm' ]
source="cpu"
[[ops.sum.candidates]]
source = "gems"
[ops.sum.candidates.when]
rank = 2
[[ops.sum.candidates]]
source = "cpu"
[last]
date = 1979-05-27 07:32:00
"\\u00e9" = 1.5e3
nothing = {}
empty = []'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("schema",), 2),
        (("a", "b", "c d"), 3),
        (("ops", "mean.dim"), 5),
        (("ops", "mean.dim", "candidates"), 6),
        (("ops", "mean.dim", "candidates", 0), 7),
        (("ops", "mean.dim", "candidates", 1, "when", "args", "keep dim"), 8),
        (("ops", "mean.dim", "candidates", 1, "when", "missing"), 8),
        (("ops", "mean.dim", "reason"), 10),
        (("ops", "mean.dim", "until"), 13),
        (("ops", "mm"), 15),
        (("ops", "mm", "source"), 16),
        (("ops", "sum"), 17),
        (("ops", "sum", "candidates", 0, "source"), 18),
        (("ops", "sum", "candidates", 0, "when", "rank"), 20),
        (("ops", "sum", "candidates", 1), 21),
        (("ops", "sum", "candidates", 1, "source"), 22),
        (("last", "é"), 25),
        (("last", "empty"), 27),
        (("absent",), None),
        ((), None),
    ],
)
def test_line_of_a_key(path: tuple[str | int, ...], line: int | None) -> None:
    assert Lines(DOCUMENT).of(path) == line


def test_headers_are_found_in_order() -> None:
    assert [header.line for header in Lines(DOCUMENT).headers] == [5, 15, 17, 19, 21, 23]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_of_both_kinds_count_once(end: str) -> None:
    assert Lines(end.join(["a = 1", "", "b = 2"])).of(("b",)) == 3


def test_characters_that_end_a_line_elsewhere_do_not_in_toml() -> None:
    assert Lines('a = "x\u2028y\x85z"\nb = 2').of(("b",)) == 2


def test_every_key_of_a_document_has_a_line() -> None:
    lines = Lines(DOCUMENT)
    for path in all_paths(tomllib.loads(DOCUMENT)):
        assert path in lines.keys, path


def all_paths(value: Any, prefix: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    paths = []
    for key, inner in items:
        path = (*prefix, key)
        paths += [path, *all_paths(inner, path)]
    return paths


def random_value(source: random.Random, depth: int) -> str:
    """Return a value on one line, with what could be taken for something else inside it."""
    plain = [
        "1",
        "-2.5",
        "true",
        "'[x]'",
        '"a = \\"b\\" # c"',
        '"""q"" ""\\""""',
        "'''l''ine'''",
        "1979-05-27",
    ]
    kind = source.randrange(4 if depth else 1)
    if kind == 2:
        return "[" + ", ".join(random_value(source, depth - 1) for _ in range(source.randrange(3))) + "]"
    if kind == 3:
        inner = [f"k{i} = {random_value(source, depth - 1)}" for i in range(source.randrange(3))]
        return "{" + ", ".join(inner) + "}"
    return source.choice(plain)


@pytest.mark.parametrize("seed", range(40))
def test_lines_of_random_documents(seed: int) -> None:
    source = random.Random(seed)
    rows: list[str] = []
    expected: dict[tuple[str | int, ...], int] = {}
    for table in range(source.randrange(1, 5)):
        name = source.choice([f"t{table}", f'"t.{table}"', f"'t {table}'"])
        rows += [""] * source.randrange(3) + ["# comment = [" * source.randrange(2), f"[{name}]"]
        prefix = (next(iter(tomllib.loads(f"{name} = 1"))),)
        expected[prefix] = len(rows)
        for key in range(source.randrange(4)):
            rows.append(f"key{key} = {random_value(source, 2)}" + source.choice(["", "  # ] } \" '"]))
            expected.update({(*prefix, f"key{key}"): len(rows)})
            if source.random() < 0.3:
                rows.append(f'text{key} = """')
                expected.update({(*prefix, f"text{key}"): len(rows)})
                rows += ["[no.header]", 'x = "1"', '"""']
    text = "\n".join(rows)
    document = tomllib.loads(text)
    lines = Lines(text)
    for path, line in expected.items():
        assert lines.of(path) == line, f"{path} in\n{text}"
    assert set(all_paths(document)) <= lines.keys.keys()
