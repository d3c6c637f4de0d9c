"""Help for programs and libraries that know nothing of flagos: asked for, never done by an import, and
undone."""

from torch_fl._alias_cuda import alias_cuda

__all__ = ["alias_cuda"]
