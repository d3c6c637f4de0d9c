"""What torch.cuda has and torch.flagos lacks, each name with its reason; asking for one tells it."""

from __future__ import annotations

GRAPHS = "graph capture: not offered yet, nor by torch.accelerator.Graph"
CUDA_ONLY = "a part of CUDA itself, which other chips do not have"
NOT_TOLD = "the HAL has no function that tells it, and nothing is invented"
POOLS = "private pools belong to graph capture, which is not offered yet"
FIXED = "the two allocators are core's own: caching and direct"
ELSEWHERE = "a module of torch.cuda's own making, not of the device"

MISSING = {
    "CUDAGraph": GRAPHS,
    "CUDAPluggableAllocator": FIXED,
    "CudaError": CUDA_ONLY,
    "DeferredCudaCallError": "calls are not deferred until the first use: each works before it, or causes it",
    "GreenContext": CUDA_ONLY,
    "MemPool": POOLS,
    "change_current_allocator": FIXED,
    "check_error": CUDA_ONLY,
    "clock_rate": NOT_TOLD,
    "cudaStatus": CUDA_ONLY,
    "cudart": CUDA_ONLY,
    "current_blas_handle": CUDA_ONLY,
    "current_solver_handle": CUDA_ONLY,
    "get_gencode_flags": "flags of nvcc",
    "get_sync_debug_mode": "needs a hook in every synchronising operator, which the sources do not have",
    "graph": GRAPHS,
    "graph_pool_handle": GRAPHS,
    "graphs": GRAPHS,
    "has_magma": "a library of CUDA builds",
    "is_tf32_supported": NOT_TOLD,
    "jiterator": "compiles CUDA sources",
    "list_gpu_processes": NOT_TOLD,
    "make_graphed_callables": GRAPHS,
    "max_memory_cached": "deprecated by PyTorch: max_memory_reserved",
    "memory_cached": "deprecated by PyTorch: memory_reserved",
    "memory_usage": NOT_TOLD,
    "nccl": ELSEWHERE,
    "nvtx": ELSEWHERE,
    "power_draw": NOT_TOLD,
    "profiler": ELSEWHERE,
    "reset_max_memory_allocated": "deprecated by PyTorch: reset_peak_memory_stats",
    "reset_max_memory_cached": "deprecated by PyTorch: reset_peak_memory_stats",
    "set_sync_debug_mode": "needs a hook in every synchronising operator, which the sources do not have",
    "sparse": ELSEWHERE,
    "temperature": NOT_TOLD,
    "tunable": ELSEWHERE,
    "use_mem_pool": POOLS,
    "utilization": NOT_TOLD,
}
"""Every name of torch.cuda.__all__ that is not here."""
