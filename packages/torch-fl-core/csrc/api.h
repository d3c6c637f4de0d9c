// What libtorch_fl.so shows to the bindings (_C) and to the C++ benchmarks. Everything else in it is hidden,
// so that two libraries with equal C++ names can live in one process. Knows nothing of torch: csrc/hal uses
// it as well.
#pragma once

#if defined(_WIN32)
#define FLAGOS_API __declspec(dllexport)
#define FLAGOS_HOT
#else
#define FLAGOS_API __attribute__((visibility("default")))
// Code that runs at each call of an operator lies together: after a kernel's launch little of it is still in the
// caches.
#define FLAGOS_HOT __attribute__((hot))
#endif
