// Opens a vendor's SDK at run time: where to look is data, and a failure tells every place that was tried.
//
//   inline flagos_hal_status openSdk(SdkLibrary* sdk) {
//     return sdk->open({"ACME runtime", {"libacmert.so"},
//                       {SdkLibrary::kLoaderPath, "$ACME_PATH/lib", "/opt/acme/lib", "/opt/acme-*/lib"},
//                       "Install the ACME runtime or set ACME_PATH"});
//   }
#pragma once

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "flagos/hal_support/error.hpp"

namespace flagos {
namespace hal_support __attribute__((visibility("hidden"))) {

  struct SdkSearch {
    const char* what;                 // "ACME runtime"
    std::vector<const char*> names;   // file names, the preferred one first
    std::vector<const char*> places;  // in order: kLoaded, kLoaderPath, or a folder; it may have $VARIABLES
                                      // and * (the last match first)
    const char* advice;               // what a user should do when nothing is found; no full stop
    // Says why an opened library is not the right one ("another vendor's"), or "" if it is; null: every one
    // is.
    std::function<std::string(void* handle, const std::string& path)> refuse = nullptr;
  };

  // A shared library of the vendor. It stays loaded: runtimes have threads and exit handlers of their own.
  class SdkLibrary {
   public:
    static constexpr const char* kLoaded = "@loaded";  // a copy that the process has loaded already
    static constexpr const char* kLoaderPath =
        "@loader";  // the loader's own search (LD_LIBRARY_PATH, ld.so.cache)

    // Opens the first file that can be opened and is not refused. UNAVAILABLE, with every place tried, if
    // there is none. A second call after success does nothing.
    flagos_hal_status open(const SdkSearch& search) {
      if (handle_) return FLAGOS_HAL_STATUS_OK;
      std::string tried;
      for (const char* place : search.places) {
        if (tryPlace(search, place, &tried)) return FLAGOS_HAL_STATUS_OK;
      }
      return fail(FLAGOS_HAL_STATUS_UNAVAILABLE, "the %s was not found. Tried: %s. %s", search.what,
                  tried.c_str(), search.advice);
    }

    // The address of a symbol, or null.
    void* find(const char* symbol) const noexcept { return handle_ ? ::dlsym(handle_, symbol) : nullptr; }

    bool isOpen() const noexcept { return handle_ != nullptr; }
    void* handle() const noexcept { return handle_; }
    // The file it was loaded from, for flagos_hal_info.sdk_path; "" before.
    const char* path() const noexcept { return path_.c_str(); }

   private:
    bool tryPlace(const SdkSearch& search, const std::string& place, std::string* tried) {
      if (place == kLoaded || place == kLoaderPath) {
        for (const char* name : search.names) {
          const bool loaded = place == kLoaded;
          void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | (loaded ? RTLD_NOLOAD : 0));
          if (handle && accept(search, handle, name, tried)) return true;
          if (!handle) note(tried, name, loaded ? "not loaded already" : loaderReason(name));
        }
        return false;
      }
      std::string missing;
      const std::string folder = expand(place, &missing);
      if (!missing.empty()) {
        note(tried, place, missing + " is not set");
        return false;
      }
      const std::vector<std::string> folders = matches(folder);
      if (folders.empty()) note(tried, place, "no such folder");
      for (const std::string& found : folders) {
        for (const char* name : search.names) {
          const std::string file = found + "/" + name;
          if (::access(file.c_str(), F_OK) != 0) {
            note(tried, file, "no such file");
            continue;
          }
          void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
          if (handle && accept(search, handle, file, tried)) return true;
          if (!handle) note(tried, file, loaderReason(""));
        }
      }
      return false;
    }

    bool accept(const SdkSearch& search, void* handle, const std::string& name, std::string* tried) {
      const std::string path = pathOf(handle, name);
      const std::string reason = search.refuse ? search.refuse(handle, path) : "";
      if (!reason.empty()) {
        note(tried, path, reason);
        ::dlclose(handle);
        return false;
      }
      handle_ = handle;
      path_ = path;
      return true;
    }

    static std::string pathOf(void* handle, const std::string& name) {
      link_map* map = nullptr;
      if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
        return map->l_name;
      return name;
    }

    // The loader's reason, unless it is only that the file does not exist.
    static std::string loaderReason(const std::string& name) {
      const char* text = ::dlerror();
      const std::string reason = text ? text : "";
      const bool absent = !name.empty() && reason.rfind(name + ": cannot open shared object file", 0) == 0;
      return absent || reason.empty() ? "not on the loader path" : reason;
    }

    static void note(std::string* tried, const std::string& place, const std::string& reason) {
      *tried += (tried->empty() ? "" : ", ") + place + " (" + reason + ")";
    }

    // Replaces $NAME by its value; the first one that is not set is told in `missing`.
    static std::string expand(const std::string& text, std::string* missing) {
      std::string out;
      for (size_t i = 0; i < text.size();) {
        if (text[i] != '$') {
          out += text[i++];
          continue;
        }
        size_t end = i + 1;
        while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
          ++end;
        const std::string name = text.substr(i + 1, end - i - 1);
        const char* value = std::getenv(name.c_str());
        if (!value || !*value) {
          *missing = name;
          return "";
        }
        out += value;
        i = end;
      }
      return out;
    }

    // The folders that a pattern names, the last in order first: the newest of /opt/sdk-1.2, /opt/sdk-1.3.
    static std::vector<std::string> matches(const std::string& pattern) {
      std::vector<std::string> folders;
      glob_t found = {};
      if (::glob(pattern.c_str(), GLOB_ONLYDIR, nullptr, &found) == 0) {
        for (size_t i = found.gl_pathc; i > 0; --i) folders.emplace_back(found.gl_pathv[i - 1]);
      }
      ::globfree(&found);
      return folders;
    }

    void* handle_ = nullptr;
    std::string path_;
  };

}  // namespace hal_support
}  // namespace flagos
