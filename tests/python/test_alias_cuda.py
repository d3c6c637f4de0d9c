"""`cuda` as another name of flagos: what it reaches, under torch.compile too, and that nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = Callable[..., Any]

_START = """
import warnings
import torch, torch_fl

def types(*tensors):
    return sorted({str(tensor.device) for tensor in tensors})
"""


def test_every_way_to_say_cuda_makes_flagos_tensors(evaluate: Program) -> None:
    answer = evaluate(
        _START
        + """
with torch_fl.compat.alias_cuda():
    generator = torch.Generator("cuda").manual_seed(3)
    made = [
        torch.zeros(2, device="cuda"), torch.tensor([1, 2], device=torch.device("cuda", 0)), torch.ones(2).cuda(),
        torch.ones(2).to("cuda:0"), torch.ones(2).to(device="cuda", dtype=torch.float16), torch.arange(3, device="cuda"),
        torch.rand(2, device="cuda", generator=generator), torch.empty_like(torch.ones(2), device="cuda"),
        torch.ones(1).new_zeros(2, device="cuda"), torch.nn.Linear(2, 2).cuda().weight, torch.eye(2, device="cuda"),
        torch.nn.Linear(2, 2, device="cuda").weight, torch.nn.Linear(2, 2).to("cuda").weight,
        torch.tril_indices(2, 2, device="cuda"), torch.linspace(0, 1, 3, device="cuda"), torch.ones(2).to(torch.ones(1).cuda()),
    ]
    with torch.inference_mode():
        made += [torch.ones(2, device="cuda"), torch.ones(2).cuda(), torch.ones(2).to("cuda"), torch.randn(2, device="cuda")]
    with torch.device("cuda"):
        made += [torch.ones(2)]
    torch.set_default_device("cuda")
    made += [torch.ones(2)]
    torch.set_default_device(None)
    x = torch.ones(2, device="cuda")
    same = [x.cuda() is x, x.to("cuda") is x, x.to(torch.device("cuda:0")) is x, x.cuda(1).device.index]
    answer = [types(*made), same, str(torch.device("cuda:1")), str(torch.device(type="cuda", index=1)), str(torch.device("cpu"))]
    answer += [x.is_cuda, torch.version.cuda, types(torch.ones(2, device="cpu"))]
"""
    )
    assert answer == [
        ["flagos:0"],
        [True, True, True, 1],
        "flagos:1",
        "flagos:1",
        "cpu",
        False,
        None,
        ["cpu"],
    ]


def test_functions_of_torch_cuda_are_those_of_flagos(evaluate: Program) -> None:
    answer = evaluate(
        _START
        + """
with torch_fl.compat.alias_cuda():
    answer = [torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.get_device_name(0)]
    with torch.cuda.device(1):
        answer += [torch.cuda.current_device(), types(torch.ones(1, device="cuda"))]
    stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        answer += [torch.cuda.current_stream() == stream]
        event.record()
    torch.cuda.synchronize()
    torch.cuda.manual_seed(5)
    x = torch.rand(3, device="cuda")
    torch.cuda.manual_seed_all(5)
    answer += [torch.equal(x, torch.rand(3, device="cuda")), event.query(), torch.cuda.memory_allocated() > 0]
    answer += [torch.cuda.memory.memory_allocated("cuda:0") > 0, torch.cuda.max_memory_reserved() > 0]
    for lacking in (torch.cuda.utilization, torch.cuda.memory.memory_cached):
        try:
            lacking()
        except NotImplementedError as error:
            answer += [str(error)]
"""
    )
    assert answer[:10] == [True, 2, "flagos reference device", 1, ["flagos:1"], True, True, True, True, True]
    assert answer[10] is True
    assert answer[11].startswith("torch.cuda.utilization has no counterpart on flagos: ")
    assert answer[12].startswith("torch.cuda.memory_cached has no counterpart on flagos: ")


def test_autocast_scaler_and_checkpoints_know_the_name(evaluate: Program) -> None:
    answer = evaluate(
        _START
        + """
import io
with torch_fl.compat.alias_cuda():
    x = torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        answer = [str((x @ x).dtype), torch.is_autocast_enabled("cuda"), str(torch.get_autocast_gpu_dtype())]
    answer += [torch.is_autocast_enabled(), torch.amp.GradScaler()._device, torch.amp.GradScaler("cuda").is_enabled()]

    class Doubled(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            return grad * 2

    with torch.autocast("cuda"):
        answer += [str(Doubled.apply(x).dtype)]
    saved = io.BytesIO()
    torch.save({"x": torch.ones(2)}, saved)
    saved.seek(0)
    answer += types(torch.load(saved, map_location="cuda:1")["x"])
"""
    )
    assert answer == [
        "torch.bfloat16", True, "torch.bfloat16", False, "flagos", True, "torch.float16", "flagos:1"
    ]  # fmt: skip


def test_it_works_under_compile_and_inside_the_graph(evaluate: Program) -> None:
    answer = evaluate(
        _START
        + """
warnings.simplefilter("ignore")

def step(x):
    if torch.cuda.is_available():
        x = x.cuda()
    y = torch.ones(3, device="cuda") + x.to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        z = (y[None] @ y[:, None]).float()
    return torch.arange(3, device=torch.device("cuda")) + z

with torch_fl.compat.alias_cuda():
    answer = []
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(step, backend=backend, fullgraph=True)
        for x in (torch.ones(3), torch.ones(3, device="flagos"), torch.ones(3, device="cuda", requires_grad=True)):
            y = compiled(x)
            answer += [types(y), y.tolist()]
"""
    )
    assert answer == [["flagos:0"], [[12.0, 13.0, 14.0]]] * 6


def test_undoing_leaves_nothing(evaluate: Program) -> None:
    answer = evaluate(
        _START
        + """
def refused():
    try:
        return str(torch.zeros(2, device="cuda").device)
    except AssertionError as error:
        return str(error)

def state():
    names = [name for name in dir(torch.cuda) if not name.startswith("__")]
    values = [getattr(torch.cuda, name) for name in names] + [vars(torch.Tensor).get("cuda"), torch.device.__new__]
    values += [torch.get_autocast_gpu_dtype, torch.amp.custom_fwd, torch.autocast.__init__, torch.cuda._utils._get_device_index]
    return values

before = [refused(), state()]
outer = torch_fl.compat.alias_cuda()
inner = torch_fl.compat.alias_cuda()
inner.undo()
inner.undo()
within = refused()
outer.undo()
after = state()
try:
    with torch_fl.compat.alias_cuda():
        raise ValueError
except ValueError:
    pass
answer = [within, before[0], refused(), all(a is b or a == b for a, b in zip(before[1], after)), len(after) == len(before[1])]
answer += [str(torch.device("cuda")), torch.cuda.is_available(), str(torch_fl.report()).count("cuda means flagos")]
"""
    )
    told = "Torch not compiled with CUDA enabled"
    assert answer[0] == "flagos:0"
    assert answer[1] == answer[2]
    assert told in answer[1] or "NVIDIA" in answer[1]
    assert answer[3:] == [True, True, "cuda", False, 0]


def test_the_environment_asks_for_it_without_an_import_of_ours(evaluate: Program) -> None:
    answer = evaluate(
        """
import torch
model = torch.nn.Linear(2, 2).cuda()
loss = model(torch.ones(3, 2, device="cuda")).sum()
loss.backward()
import torch_fl
answer = [torch.cuda.is_available(), model.weight.grad.device.type, str(torch_fl.report()).count("cuda means flagos")]
""",
        FLAGOS_ALIAS_CUDA="1",
    )
    assert answer == [True, "flagos", 1]


def test_where_torch_has_cuda_devices_it_is_refused(evaluate: Program) -> None:
    answer = evaluate(
        _START
        + """
torch.cuda.device_count = lambda: 2
try:
    torch_fl.compat.alias_cuda()
except RuntimeError as error:
    answer = [str(error), str(torch.device("cuda"))]
"""
    )
    assert "torch has 2 CUDA device(s) of its own here" in answer[0]
    assert "CUDA_VISIBLE_DEVICES=" in answer[0]
    assert answer[1] == "cuda"
