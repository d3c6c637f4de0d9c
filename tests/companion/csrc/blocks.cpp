#include "blocks.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>

namespace standin {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kGuard = 512;  // before and after; keeps the alignment
constexpr unsigned char kGuardByte = 0xA5;
constexpr unsigned char kFresh = 0xFF;  // NaN as any floating-point type, −1 as an integer
constexpr unsigned char kFreed = 0xDD;

size_t roundedUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool isGuard(const unsigned char* first, const unsigned char* last) {
  for (; first != last; ++first) {
    if (*first != kGuardByte) return false;
  }
  return true;
}

bool intact(uintptr_t address, size_t bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(address);
  return isGuard(data - kGuard, data) && isGuard(data + bytes, data + roundedUp(bytes) + kGuard);
}

std::string describe(const void* address, size_t bytes) {
  std::ostringstream text;
  text << address << " (" << bytes << " bytes)";
  return text.str();
}

}  // namespace

void* BlockRegistry::make(size_t bytes, int device) {
  const size_t rounded = roundedUp(bytes);
  void* memory = std::aligned_alloc(kAlignment, rounded + 2 * kGuard);
  if (memory == nullptr) throw std::bad_alloc();
  auto* data = static_cast<unsigned char*>(memory) + kGuard;
  std::memset(data - kGuard, kGuardByte, kGuard);
  std::memset(data, kFresh, bytes);
  std::memset(data + bytes, kGuardByte, rounded - bytes + kGuard);
  live_[reinterpret_cast<uintptr_t>(data)] = {bytes, device};
  return data;
}

std::string BlockRegistry::take(void* address, Block* taken) {
  const auto found = live_.find(reinterpret_cast<uintptr_t>(address));
  if (found == live_.end()) {
    *taken = {0, -1};
    return "memory was freed that is no live block (twice, or not its first byte): " + describe(address, 0);
  }
  *taken = found->second;
  std::string complaint;
  if (!intact(found->first, taken->bytes)) {
    complaint = "something wrote beyond the block " + describe(address, taken->bytes);
  }
  live_.erase(found);
  auto* data = static_cast<unsigned char*>(address);
  std::memset(data, kFreed, taken->bytes);
  std::free(data - kGuard);
  return complaint;
}

const Block* BlockRegistry::find(const void* pointer, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) return nullptr;
  const auto& [start, block] = *--after;
  return address - start <= block.bytes && bytes <= block.bytes - (address - start) ? &block : nullptr;
}

bool BlockRegistry::isStart(const void* pointer) const {
  return live_.count(reinterpret_cast<uintptr_t>(pointer)) != 0;
}

void BlockRegistry::each(const std::function<void(uintptr_t, const Block&, bool)>& visit) const {
  for (const auto& [start, block] : live_) visit(start, block, intact(start, block.bytes));
}

}  // namespace standin
