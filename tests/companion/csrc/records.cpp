#include "records.h"

#include <cstdio>
#include <map>
#include <mutex>

namespace standin {
namespace {

constexpr size_t kMostWork = 100000;  // so that a long test does not fill the memory

struct Records {
  std::mutex mutex;  // guards the rest
  std::vector<std::string> faults;
  std::vector<Work> work;
  std::map<std::string, int64_t, std::less<>> counts;
};

Records& records() noexcept {
  static auto* const instance = new Records;  // never destroyed: memory is freed during exit, too
  return *instance;
}

thread_local int depth = 0;

}  // namespace

void fault(const std::string& text) noexcept {
  std::fprintf(stderr, "standin: %s\n", text.c_str());
  Records& all = records();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.faults.push_back(text);
}

std::vector<std::string> faults() {
  Records& all = records();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.faults;
}

void recordWork(std::string what, c10::Stream stream, c10::DeviceIndex current) {
  Records& all = records();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.work.size() >= kMostWork) return;
  all.work.push_back({std::move(what), stream.device_index(), stream.id(), current, depth});
}

std::vector<Work> workLog() {
  Records& all = records();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.work;
}

void count(const char* what) noexcept {
  Records& all = records();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.counts.find(std::string_view(what));
  if (found != all.counts.end()) {
    ++found->second;
  } else {
    all.counts.emplace(what, 1);
  }
}

std::vector<std::pair<std::string, int64_t>> counts() {
  Records& all = records();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return {all.counts.begin(), all.counts.end()};
}

void clearRecords() {
  Records& all = records();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.faults.clear();
  all.work.clear();
  all.counts.clear();
}

int kernelDepth() noexcept { return depth; }
KernelScope::KernelScope() noexcept { ++depth; }
KernelScope::~KernelScope() { --depth; }

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace standin
