// The Python module torch_fl._C. Loading it registers guard, hooks, allocators and operators with torch, by
// the initialisers of libtorch_fl; it opens no backend.

#include "csrc/bindings/bindings.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "Bindings of torch-fl's runtime; torch.flagos and torch_fl are the interface for people.";
  flagos::bindDevices(m);
  flagos::bindStream(m);
  flagos::bindGenerator(m);
  flagos::bindMemory(m);
  flagos::bindHal(m);
  flagos::bindOps(m);
  flagos::bindRoutes(m);
  flagos::bindCompat(m);
}
