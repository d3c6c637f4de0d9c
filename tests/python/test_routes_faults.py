"""Faults of route tables: the text and the line of each."""

from __future__ import annotations

import pytest

from tests.python.routes_support import Read, faults_of

# Blocks of a table (after its first line, schema = 1) and its faults: "! <line>: <text>", "!+ " goes on.
TABLES = """\
shema = 1
! 2: shema: unknown key. Did you mean 'schema'? Known: schema, extends, default, evidence, ops.

default = "cpu"
ops = 3
! 3: ops: expected tables [ops.<name>], not an integer

default = 3
! 2: default: expected a source or a list of candidates, not an integer

default = []
! 2: default: has no candidate; leave the entry out for the default

evidence = 3
! 2: evidence: expected a table, not an integer

[evidence]
torch = 2.13
! 3: evidence.torch: expected a text in quotes, not a float

[ops.mmm]
source = 'cpu'
reason = 'r'
! 2: ops.mmm: unknown operator 'mmm'. Did you mean 'mm'?

[ops."mean.dimm"]
source = "cpu"
reason = "r"
! 2: ops."mean.dimm": operator 'mean' has no overload 'mean.dimm'. Did you mean 'mean.dim' or 'mean'?
!+ It has: mean, mean.dim.

[ops."softmax.int"]
source = "cpu"
reason = "r"
! 2: ops."softmax.int": 'softmax.int' cannot be routed: PyTorch makes it of other operators before the
!+ device is asked; route those

[ops."prisms::add"]
source = "cpu"
reason = "r"
! 2: ops."prisms::add": 'prisms::add' has an unknown namespace 'prisms'. Did you mean 'prims'?

[ops."a b"]
source = "cpu"
reason = "r"
! 2: ops."a b": 'a b' is no operator name: <name>, <name>.<overload>, <namespace>::<name>.<overload>

[ops."bmm*"]
source = "cpu"
reason = "r"
! 2: ops."bmm*": the pattern 'bmm*' matches no operator that can be routed

[ops."tv::*"]
source = "cpu"
reason = "r"
! 2: ops."tv::*": the pattern 'tv::*' matches no operator: nothing named tv:: is registered; import
!+ its library before, or name its operators one by one

[ops.mm]
source = "cpu"
reason = "r"
[ops."aten::mm"]
source = "cpu"
reason = "r"
! 5: ops."aten::mm": 'aten::mm' and 'mm' are the same operator; keep one entry

[ops.mean.dim]
source = 'cpu'
! 2: ops.mean.dim: a name with a dot stands in quotes: [ops."mean.dim"]

[ops]
mm = 'cpu'
! 3: ops.mm: expected a table with source, candidates, reason, until, not a string

[ops.mm]
reason = "r"
! 2: ops.mm: has neither source nor candidates

[ops]
#
mm = {source = 'cpu'}
! 4: ops.mm: has no reason: say what goes wrong otherwise, where and when it was seen

[ops.mm]
source = 'cpu'
reason = ' '
! 4: ops.mm.reason: expected a text that says why

[ops.mm]
reason = "r"
source = 'cpu'
until = 12
! 5: ops.mm.until: expected a text such as "issue 12"

[ops.mm]
reason = "r"
source = 'cpu'
candidates = ['cpu']
! 5: ops.mm.candidates: give either source or candidates

[ops.mm]
reason = "r"
source = ['cpu']
! 4: ops.mm.source: expected a source, not a list

[ops.mm]
reason = "r"
candidates = 'cpu'
! 4: ops.mm.candidates: expected a list, not a string

[ops.mm]
reason = "r"
candidates = [1]
! 4: ops.mm.candidates[0]: expected a source or a table {source, when, on_error}, not an integer

[ops.mm]
reason = "r"
source = 'cpu'
reasn = 'x'
! 5: ops.mm.reasn: unknown key. Did you mean 'reason'? Known: source, candidates, reason, until.

[ops.mm]
reason = "r"
source = 'cpu'
on_error = 'next'
! 5: ops.mm.on_error: belongs to a candidate: candidates = [{source = …, on_error = …}]

[ops.mm]
reason = "r"
source = 'cpu'
when = {rank = 1}
! 5: ops.mm.when: belongs to a candidate: candidates = [{source = …, when = …}]

[ops.mm]
reason = "r"
source = 'cup'
! 4: ops.mm.source: unknown source 'cup'. Did you mean 'cpu'? Sources: native, boxed, gems, gems_cpp,
!+ triton, tileops, cpu.

[ops.mm]
reason = "r"
candidates = [{when = {rank = 2}}]
! 4: ops.mm.candidates[0]: has no source

[ops.mm]
reason = "r"
candidates = [{source = 'cpu', onerror = 'next'}]
! 4: ops.mm.candidates[0].onerror: unknown key. Did you mean 'on_error'? Known: source, when,
!+ on_error.

[ops.mm]
reason = "r"
candidates = [{source = 'gems', on_error = 'skip'}]
! 4: ops.mm.candidates[0].on_error: expected "raise" or "next", not 'skip'

[ops.mm]
reason = "r"
candidates = ['cpu',
 'gems']
! 5: ops.mm.candidates[1]: 'gems' is never reached: 'cpu' stands before it without condition

[ops.mm]
reason = "r"
candidates = ['gems', 'gems']
! 4: ops.mm.candidates[1]: 'gems' is never reached: 'gems' stands before it without condition
"""

# Blocks of conditions and their fault.
CONDITIONS = """\
3
! : expected a table of conditions, not an integer (3)

{}
! : expected a table of conditions, not an empty table

{dtyp = 'float16'}
! .dtyp: unknown condition. Did you mean 'dtype'? Known: dtype, rank, min_rank, max_rank, min_numel,
!+ max_numel, contiguous, layout, zero_size, devices, last_dim, args.

{dtype = 'flot16'}
! .dtype: 'flot16' is no dtype. Did you mean 'float16' or 'bfloat16'?

{dtype = ['half']}
! .dtype: 'half' is no dtype. Did you mean 'float16'?

{dtype = []}
! .dtype: is empty

{rank = true}
! .rank: expected an integer of at least 0, not a truth value (True)

{max_rank = -1}
! .max_rank: expected an integer of at least 0, not an integer (-1)

{min_rank = 3, max_rank = 2}
! .min_rank: never holds: it is more than max_rank 2

{min_numel = 3, max_numel = 2}
! .min_numel: never holds: it is more than max_numel 2

{rank = 3, max_rank = 2}
! .rank: give either rank, or min_rank and max_rank

{contiguous = 'yes'}
! .contiguous: expected true or false, not a string ('yes')

{zero_size = 1}
! .zero_size: expected true or false, not an integer (1)

{layout = 'sparse'}
! .layout: 'sparse' is no layout that can be routed. Allowed: strided.

{devices = [-1]}
! .devices: expected indices of devices within the backend, not a list ([-1])

{last_dim = 8}
! .last_dim: expected a table with min, max, multiple_of

{last_dim = {mn = 8}}
! .last_dim.mn: unknown bound. Did you mean 'min'? Known: min, max, multiple_of.

{last_dim = {multiple_of = 0}}
! .last_dim.multiple_of: expected an integer of at least 1, not an integer (0)

{last_dim = {min = 8, max = 4}}
! .last_dim.min: never holds: it is more than max 4

{args = {}}
! .args: expected a table of argument names with their values

{args = {keepdm = false}}
! .args.keepdm: aten::mean.dim has no argument 'keepdm'. Did you mean 'keepdim'? It has: self, dim,
!+ keepdim, dtype.

{args = {self = 1}}
! .args.self: the argument is Tensor; conditions compare with numbers, truths and texts

{args = {keepdim = 1}}
! .args.keepdim: the argument is a truth value, and 1 is none

{args = {dim = []}}
! .args.dim: is empty

{args = {dim = [[1]]}}
! .args.dim: expected a truth value, a number, a text or a list, not a list ([1])

{args = {dim = {len = 1}}}
! .args.dim: has an unknown bound. Did you mean 'min_len' or 'max_len'? Known: min, max, min_len,
!+ max_len.

{args = {dim = {min = 'a'}}}
! .args.dim: expected a number as bound, not a string ('a')

{args = {keepdim = {min_len = 1}}}
! .args.keepdim: min_len bounds a list, but the argument is bool

{args = {dim = {min_len = 2, max_len = 1}}}
! .args.dim.min_len: never holds: it is more than max_len 1
"""


def cases(blocks: str) -> list[tuple[str, list[str]]]:
    """Return the text and the faults of each block."""
    found = []
    for block in blocks.strip().split("\n\n"):
        text, *faults = block.replace("\n!+ ", " ").split("\n! ")
        found.append((text, faults))
    return found


@pytest.mark.parametrize(("text", "faults"), cases(TABLES))
def test_fault_of_a_table(text: str, faults: list[str], read: Read) -> None:
    assert faults_of(read, text) == [f"t.toml:{fault}" for fault in faults]


@pytest.mark.parametrize(("when", "faults"), cases(CONDITIONS))
def test_fault_of_a_condition(when: str, faults: list[str], read: Read) -> None:
    text = f"[ops.'mean.dim']\nreason = 'r'\n\ncandidates = [\n  {{source = 'gems', when = {when}}},\n]"
    assert faults_of(read, text) == [
        f't.toml:6: ops."mean.dim".candidates[0].when{fault}' for fault in faults
    ]


def test_none_is_a_condition_on_an_optional_argument(read: Read) -> None:
    table = read(
        '[ops.sdpa]\nreason = "r"\ncandidates = [{source = "gems", when = {args = {attn_mask = "none"}}}]'
    )
    assert dict(table.routes["aten::sdpa"].candidates[0].when) == {"args": {"attn_mask": "none"}}
    (fault,) = faults_of(
        read, '[ops.sdpa]\nreason = "r"\ncandidates = [{source = "gems", when = {args = {attn_mask = 1}}}]'
    )
    assert fault.endswith('conditions compare with numbers, truths and texts, or with "none"')


def test_argument_must_be_one_of_every_operator_of_a_pattern(read: Read) -> None:
    (fault,) = faults_of(
        read,
        '[ops."mean*"]\nreason = "r"\ncandidates = [{source = "gems", when = {args = {keepdim = true}}}]',
    )
    assert "aten::mean has no argument 'keepdim'" in fault
