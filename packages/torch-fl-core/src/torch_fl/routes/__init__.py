"""Routes: which source serves an operator, asked and changed at run time. docs/routing.md tells the grammar.

from torch_fl import routes
print(routes.explain("aten::mm", a, b))
with routes.use({"mm": "cpu", "_foreach_*": ["boxed", "cpu"]}):
    ...
"""

from torch_fl.routes._change import load, reload, reset, use
from torch_fl.routes._change import set_routes as set  # noqa: A004  (`routes.set`, beside `routes.use`)
from torch_fl.routes._explain import CandidateState, Explanation, Row, explain, table
from torch_fl.routes._observe import Check, Count, Decline, check, counters, declines, fallback
from torch_fl.routes._sources import register, unregister
from torch_fl.routes._watch import Watch, watch
from torch_fl_base.routes.errors import RouteError
from torch_fl_base.routes.store import Previous

__all__ = [
    "CandidateState",
    "Check",
    "Count",
    "Decline",
    "Explanation",
    "Previous",
    "RouteError",
    "Row",
    "Watch",
    "check",
    "counters",
    "declines",
    "explain",
    "fallback",
    "load",
    "register",
    "reload",
    "reset",
    "set",
    "table",
    "unregister",
    "use",
    "watch",
]
