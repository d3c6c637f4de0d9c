// A shared library file: checked, opened, and closed again unless it is kept.
#pragma once

#include <string>

#include "flagos/hal.h"

namespace flagos::hal {

class SharedObject {
 public:
  // Opens `path` for backend `backend` (named in messages). Throws LoadError: NotFound, NotALibrary. With
  // `private_copy` the file is mapped from an anonymous copy, so that it has globals of its own.
  SharedObject(const std::string& backend, const std::string& path, bool private_copy);
  ~SharedObject();  // closes it, unless keep was called
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  // The library's query function. Throws LoadError: NoEntryPoint.
  flagos_hal_query_fn queryFunction() const;

  // Leaves the library loaded until the process ends: pointers into it may be anywhere.
  void keep() noexcept { kept_ = true; }

 private:
  void checkFile() const;
  void copyToMemory();

  std::string backend_;
  std::string path_;
  void* handle_ = nullptr;
  int copy_fd_ = -1;  // of the private copy; open as long as the library is, so that its name stays its own
  bool kept_ = false;
};

}  // namespace flagos::hal
