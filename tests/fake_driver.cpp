// A CUDA driver on host memory, as far as the guard allocator calls one. Streams do everything at once; while
// `fake_capturing` is 1 the stream 7 records instead of doing, and `fake_replay` does what was recorded.

#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <vector>

#include <sys/types.h>

namespace {
struct Fill {
  unsigned long long to;
  unsigned short value;
  size_t count;
};
std::map<unsigned long long, size_t> memory;
std::vector<Fill> recorded;
size_t used = 0;
int context = 0;

void write(const Fill& f) {
  for (size_t i = 0; i < f.count; i++) std::memcpy(reinterpret_cast<char*>(f.to) + 2 * i, &f.value, 2);
}
}  // namespace

extern "C" {
size_t fake_total = 512u << 20;  // bytes
int fake_capturing = 0, fake_syncs = 0, fake_lost = 0;

int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDevicePrimaryCtxRetain(void** found, int) { return *found = &context, 0; }
int cuCtxGetCurrent(void** found) { return *found = nullptr, 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuStreamCreate(void** stream, unsigned) { return *stream = &context, 0; }
int cuStreamSynchronize(void*) { return fake_lost; }
int cuCtxSynchronize() { return fake_syncs++, fake_lost; }
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }
int cuGetErrorString(int, const char** text) { return *text = "the fake is lost", 0; }
int cuStreamIsCapturing(void* stream, int* status) {
  return *status = fake_capturing && stream == reinterpret_cast<void*>(7), 0;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = fake_total - used, *total = fake_total, 0; }
int cuMemAlloc_v2(unsigned long long* found, size_t bytes) {
  if (bytes > fake_total - used) return 2;
  *found = reinterpret_cast<unsigned long long>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  memory[*found] = bytes;
  used += bytes;
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  used -= memory.at(address);
  memory.erase(address);
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
int cuMemsetD16Async(unsigned long long to, unsigned short value, size_t count, void* stream) {
  if (fake_capturing && stream == reinterpret_cast<void*>(7)) return recorded.push_back({to, value, count}), 0;
  return write({to, value, count}), fake_lost;
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return 0;
}

size_t fake_used() { return used; }
void fake_replay() {
  for (const Fill& f : recorded) write(f);
}
// An allocation whose exception becomes text, as torch makes a RuntimeError of it.
void* fake_malloc(void* (*allocate)(ssize_t, int, void*), ssize_t size, int device, void* stream, char* text) {
  try {
    return allocate(size, device, stream);
  } catch (const std::exception& error) {
    std::strncpy(text, error.what(), 399);
    return nullptr;
  }
}
}
