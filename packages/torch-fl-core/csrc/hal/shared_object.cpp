#include "csrc/hal/shared_object.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "csrc/hal/library.h"

namespace flagos::hal {
namespace {

constexpr const char* kAdvice =
    " Reinstall the package that brings this backend. Details: python -m torch_fl.doctor";

// The ELF machine this core was built for; EM_NONE where it is not in the list (the loader then decides).
constexpr int kMachine =
#if defined(__x86_64__)
    EM_X86_64;
#elif defined(__aarch64__)
    EM_AARCH64;
#elif defined(__riscv)
    EM_RISCV;
#elif defined(__powerpc64__)
    EM_PPC64;
#elif defined(__s390x__)
    EM_S390;
#else
    EM_NONE;
#endif

const char* machineName(int machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_386:
      return "32-bit x86";
    case EM_AARCH64:
      return "AArch64";
    case EM_ARM:
      return "32-bit ARM";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "PowerPC64";
    case EM_S390:
      return "s390x";
    default:
      return nullptr;
  }
}

std::string machineText(int machine) {
  const char* name = machineName(machine);
  return name ? name : "machine number " + std::to_string(machine);
}

class File {
 public:
  explicit File(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int fd;
};

// The bytes that a file must have by its ELF header: up to the end of the last segment that is loaded.
uint64_t sizeOf(const File& file, const Elf64_Ehdr& header) {
  uint64_t end = header.e_phoff + uint64_t{header.e_phentsize} * header.e_phnum;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment = {};
    const uint64_t at = header.e_phoff + uint64_t{header.e_phentsize} * static_cast<uint64_t>(i);
    if (::pread(file.fd, &segment, sizeof(segment), static_cast<off_t>(at)) != sizeof(segment)) break;
    if (segment.p_type == PT_LOAD && segment.p_offset + segment.p_filesz > end)
      end = segment.p_offset + segment.p_filesz;
  }
  return end;
}

std::string errnoText(int code) { return std::strerror(code); }

}  // namespace

SharedObject::SharedObject(const std::string& backend, const std::string& path, bool private_copy)
    : backend_(backend), path_(path) {
  checkFile();
  std::string name = path_;
  if (private_copy) {
    copyToMemory();
    name = "/proc/self/fd/" + std::to_string(copy_fd_);
  } else if (name.find('/') == std::string::npos) {
    name = "./" + name;  // checkFile looked in the working directory; the loader would search its own path
  }
  handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_) return;
  const char* reason = ::dlerror();
  const std::string why = reason ? reason : "no reason given";
  if (copy_fd_ >= 0) ::close(copy_fd_);
  // The loader's words for a library that this one needs; a HAL library should open its SDK at run time
  // instead.
  const bool dependency = why.find("cannot open shared object file") != std::string::npos;
  throw LoadError(dependency ? LoadError::Kind::NotFound : LoadError::Kind::NotALibrary,
                  "flagos: backend '" + backend_ + "': '" + path_ + "' cannot be loaded: " + why + "." +
                      (dependency ? " Install the library that is missing or put it on the loader path."
                                    " Details: python -m torch_fl.doctor"
                                  : kAdvice));
}

SharedObject::~SharedObject() {
  if (kept_) return;
  if (handle_) ::dlclose(handle_);
  if (copy_fd_ >= 0) ::close(copy_fd_);
}

flagos_hal_query_fn SharedObject::queryFunction() const {
  void* symbol = ::dlsym(handle_, FLAGOS_HAL_QUERY_SYMBOL);
  if (!symbol) {
    throw LoadError(LoadError::Kind::NoEntryPoint,
                    "flagos: backend '" + backend_ + "': '" + path_ +
                        "' does not export " FLAGOS_HAL_QUERY_SYMBOL
                        ", so it is not a HAL library, or was linked without that export."
                        " `nm -D --defined-only` on it must list the symbol." +
                        kAdvice);
  }
  flagos_hal_query_fn function;
  static_assert(sizeof(function) == sizeof(symbol), "POSIX: a function's address fits a data pointer");
  std::memcpy(&function, &symbol, sizeof(function));
  return function;
}

void SharedObject::checkFile() const {
  const std::string start = "flagos: backend '" + backend_ + "': ";
  if (path_.empty()) {
    throw LoadError(LoadError::Kind::NotFound, start + "no path of a HAL library was given." + kAdvice);
  }
  File file(path_);
  if (file.fd < 0) {
    const int code = errno;
    const bool absent = code == ENOENT || code == ENOTDIR;
    throw LoadError(
        LoadError::Kind::NotFound,
        start +
            (absent ? "there is no HAL library at '" + path_ + "'."
                    : "the HAL library '" + path_ + "' cannot be read: " + errnoText(code) + ".") +
            kAdvice);
  }
  struct stat info = {};
  const bool stated = ::fstat(file.fd, &info) == 0;
  if (stated && !S_ISREG(info.st_mode)) {
    throw LoadError(LoadError::Kind::NotALibrary, start + "'" + path_ + "' is not a file." + kAdvice);
  }
  // The loader's own words for a wrong file differ by version and language, so the header is looked at first.
  Elf64_Ehdr header = {};
  ssize_t got;
  do {
    got = ::pread(file.fd, &header, sizeof(header), 0);
  } while (got < 0 && errno == EINTR);
  const auto refuse = [&](const std::string& what) {
    throw LoadError(LoadError::Kind::NotALibrary, start + "'" + path_ + "' " + what + "." + kAdvice);
  };
  if (got == 0) refuse("is empty");
  if (got < SELFMAG || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    refuse("is not an ELF shared library (its first bytes are not \\x7fELF)");
  }
  if (got < static_cast<ssize_t>(sizeof(header))) refuse("is cut off: it ends within the ELF header");
  if (header.e_type != ET_DYN) refuse("is an ELF file but not a shared library");
  if (kMachine != EM_NONE && header.e_machine != kMachine) {
    refuse("is built for " + machineText(header.e_machine) + ", this process is " + machineText(kMachine));
  }
  // The loader maps what the header tells without looking at the file's size, and the process dies with
  // SIGBUS where that is less.
  const uint64_t wanted = sizeOf(file, header);
  if (stated && wanted > static_cast<uint64_t>(info.st_size)) {
    refuse("is cut off: it has " + std::to_string(info.st_size) + " bytes of at least " +
           std::to_string(wanted));
  }
}

void SharedObject::copyToMemory() {
  const auto refuse = [&](const char* step, int code) {
    if (copy_fd_ >= 0) ::close(copy_fd_);
    copy_fd_ = -1;
    throw LoadError(LoadError::Kind::NotALibrary, "flagos: backend '" + backend_ + "': a private copy of '" +
                                                      path_ + "' cannot be made: " + step + ": " +
                                                      errnoText(code) + ".");
  };
  File file(path_);
  if (file.fd < 0) refuse("open", errno);
  copy_fd_ = ::memfd_create(backend_.c_str(), MFD_CLOEXEC);
  if (copy_fd_ < 0) refuse("memfd_create", errno);
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.fd, buffer, sizeof(buffer));
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      refuse("read", errno);
    }
    for (ssize_t done = 0; done < got;) {
      const ssize_t put = ::write(copy_fd_, buffer + done, static_cast<size_t>(got - done));
      if (put < 0) {
        if (errno == EINTR) continue;
        refuse("write", errno);
      }
      done += put;
    }
  }
}

}  // namespace flagos::hal
