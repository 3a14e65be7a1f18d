// Memory for torch on a GPU in which every buffer lies between guard zones.
//
// The failure this finds: a kernel that writes beside any buffer, whoever allocated it, that reads what nobody wrote,
// or that reads beside a buffer and uses it. The mechanism: torch asks here for all its memory (a pluggable allocator).
// A buffer starts on a page of one arena, the rest of its last page and a whole page on either side hold a pattern, and
// so does the buffer itself until it is written. Nothing is used twice within one run of an adapter: a late write
// meets its guards as they were, and a run that asks for the same sizes gets the same addresses. The price is memory
// (an arena of up to 4 GiB) and one memset a buffer. What this cannot see: a stray write further than a page away, or
// one that stores the pattern, and use after free (a freed buffer keeps its content: with `record_stream` a right
// program may still be using it). A CUDA graph must be replayed in the run that captured it: torch does not say here
// when a graph ends, so the next run has its memory again.
//
// The driver is looked up at run time, so any C++ compiler builds this, with no CUDA headers.

#include <dlfcn.h>
#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

typedef unsigned long long Address;  // CUdeviceptr

const uint64_t PAGE = 4096;          // bytes; keeps the 256-byte alignment that kernels rely on
const uint64_t ARENA = 4ull << 30;   // bytes at most,
const uint64_t SHARE = 8;            // and no more than this part of what is free
const uint64_t LARGE = 64ull << 20;  // bytes; above it a buffer gets memory of its own
const uint64_t SLOTS = 1024;         // buffers with memory of their own; their guards are copied into the arena
const uint64_t ZONES = 3;            // of a buffer: the page before it, its last page, the page behind it
const uint64_t LIMIT = 1ull << 62;   // bytes; sizes beyond it would overflow
// NaN as bfloat16, float16 and float32, -5898331 as int32, a large negative number as int64 and float64, true as bool:
// whoever uses a value from outside a buffer, or one that nobody wrote, gets another result.
const unsigned short PATTERN = 0xFFA5;
const int OUT_OF_MEMORY = 2, RELAXED = 2, NON_BLOCKING = 1;  // from cuda.h
enum Capture { NONE = 0, RECORDS = 1, ELSEWHERE };           // the first two from cuda.h

struct Driver {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*primary)(void**, int);
  int (*get_current)(void**);
  int (*set_current)(void*);
  int (*alloc)(Address*, size_t);
  int (*release)(Address);
  int (*info)(size_t*, size_t*);
  int (*fill)(Address, unsigned short, size_t, void*);
  int (*copy)(Address, Address, size_t, void*);
  int (*stream_create)(void**, unsigned);
  int (*stream_wait)(void*);
  int (*capturing)(void*, int*);
  int (*wait)();
  int (*exchange_mode)(int*);
  int (*error_text)(int, const char**);
};

struct Block {
  Address data;    // where the buffer starts
  uint64_t size;   // bytes asked for
  Address own;     // its own memory; 0 in the arena or once given back
  int64_t slot;    // where its guards are copied to; -1 in the arena
  bool alive, captured, recent;  // captured: a graph may write it again after it is freed; recent: since so_begin

  uint64_t pages() const { return (size + PAGE - 1) / PAGE; }
};

struct State {
  std::mutex mutex;
  std::string path = "libcuda.so.1";
  Driver driver{};
  void* library = nullptr;
  void* context = nullptr;
  void* aside = nullptr;  // a stream that waits for no other and that no capture records
  int device = -1;
  Address arena = 0;
  uint64_t pages = 0, slots = 0, position = 0;  // position: the next free page; a guard always lies before it
  size_t obstacle = 0;                          // the next living block on the way
  std::vector<std::pair<uint64_t, uint64_t>> obstacles;  // pages of those living at so_begin: first, end of its guard
  std::vector<Block> blocks;                             // in order of allocation
  std::unordered_map<Address, size_t> living;
  std::vector<bool> taken;  // slots
  long failures = 0;
};

State& state() {
  static State& only = *new State;  // never destroyed: torch frees until the very end of the process
  return only;
}

void must(int code, const char* doing) {
  if (code == 0) return;
  const char* text = nullptr;
  state().driver.error_text(code, &text);
  throw std::runtime_error("CUDA error: " + std::string(text ? text : "unknown") + " (guard allocator: " + doing + ")");
}

template <typename Function>
void look_up(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(state().library, name));
  if (!function) throw std::runtime_error(std::string("the CUDA driver has no ") + name);
}

void load() {
  State& s = state();
  if (s.library) return;
  s.library = dlopen(s.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!s.library) throw std::runtime_error("no CUDA driver: " + std::string(dlerror()));
  Driver& d = s.driver;
  look_up("cuInit", d.init), look_up("cuDeviceGet", d.device_get), look_up("cuDevicePrimaryCtxRetain", d.primary);
  look_up("cuCtxGetCurrent", d.get_current), look_up("cuCtxSetCurrent", d.set_current);
  look_up("cuMemAlloc_v2", d.alloc), look_up("cuMemFree_v2", d.release), look_up("cuMemGetInfo_v2", d.info);
  look_up("cuMemsetD16Async", d.fill), look_up("cuMemcpyAsync", d.copy), look_up("cuStreamCreate", d.stream_create);
  look_up("cuStreamSynchronize", d.stream_wait), look_up("cuStreamIsCapturing", d.capturing);
  look_up("cuCtxSynchronize", d.wait), look_up("cuThreadExchangeStreamCaptureMode", d.exchange_mode);
  look_up("cuGetErrorString", d.error_text);
  must(d.init(0), "start");
}

// While one lives, the device's context is current in this thread, and a capture does not forbid what is done here.
struct Here {
  void* before = nullptr;
  int mode = RELAXED;

  Here() {
    State& s = state();
    must(s.driver.get_current(&before), "current context");
    if (before != s.context) must(s.driver.set_current(s.context), "set context");
    s.driver.exchange_mode(&mode);
  }
  ~Here() {
    state().driver.exchange_mode(&mode);
    if (before && before != state().context) state().driver.set_current(before);
  }
};

[[noreturn]] void out_of_memory(const std::string& why) {
  state().failures++;
  throw std::runtime_error("CUDA out of memory: " + why);
}

void fill(Address from, uint64_t bytes, void* stream) {
  must(state().driver.fill(from, PATTERN, (bytes + 1) / 2, stream), "fill");
}

void wait_aside() { must(state().driver.stream_wait(state().aside), "wait"); }

Address page(uint64_t number) { return state().arena + number * PAGE; }

// The three pages that hold the guards of a buffer with memory of its own, as they are now.
void copy_guards(const Block& b) {
  const Address from[ZONES] = {b.own, b.data + b.size / PAGE * PAGE, b.data + b.pages() * PAGE};
  for (uint64_t i = 0; i < ZONES; i++)
    must(state().driver.copy(page(b.slot * ZONES + i), from[i], PAGE, state().aside), "copy");
}

// Give back the own memory of freed buffers; their guards stay to be looked at. Returns whether there was any.
bool give_back(bool also_captured) {
  bool any = false;
  for (Block& b : state().blocks) {
    if (b.alive || !b.own || (b.captured && !also_captured)) continue;
    if (!any) must(state().driver.wait(), "wait for the device");
    any = true;
    copy_guards(b);
    wait_aside();
    must(state().driver.release(b.own), "free");
    b.own = 0;
  }
  return any;
}

Address own_memory(uint64_t size, uint64_t bytes, bool capturing) {
  Address found = 0;
  int code = state().driver.alloc(&found, bytes);
  if (code == OUT_OF_MEMORY && !capturing && give_back(false)) code = state().driver.alloc(&found, bytes);
  if (code == 0) return found;
  size_t free = 0, total = 0;
  must(state().driver.info(&free, &total), "free memory");
  if (code != OUT_OF_MEMORY && bytes <= total) must(code, "allocate");
  out_of_memory(std::to_string(size) + " bytes were asked for, " + std::to_string(free) + " are free");
}

void open(int device) {
  State& s = state();
  load();
  if (s.context && device != s.device)
    throw std::runtime_error("guard zones are on one device only: set PYTORCH_NO_CUDA_MEMORY_CACHING=1 to use several");
  if (!s.context) {
    int handle = 0;
    must(s.driver.device_get(&handle, device), "device");
    must(s.driver.primary(&s.context, handle), "context");
    s.device = device;
  }
  if (s.arena) return;
  Here here;
  size_t free = 0, total = 0;
  must(s.driver.info(&free, &total), "free memory");
  s.pages = std::min<uint64_t>(ARENA, free / SHARE) / PAGE;
  s.slots = std::min(SLOTS, s.pages / 64);
  if (!s.aside) must(s.driver.stream_create(&s.aside, NON_BLOCKING), "stream");
  if (s.slots == 0) out_of_memory(std::to_string(free) + " bytes are free, too few for the guarded arena");
  s.arena = own_memory(s.pages * PAGE, s.pages * PAGE, true);
  s.taken.assign(s.slots, false);
  s.position = s.slots * ZONES + 1;
  fill(s.arena, s.pages * PAGE, s.aside);
  wait_aside();
}

// The first page for a buffer of so many pages and the guard behind it, or 0.
uint64_t place(uint64_t pages) {
  State& s = state();
  while (s.obstacle < s.obstacles.size() && s.position + pages + 1 > s.obstacles[s.obstacle].first)
    s.position = s.obstacles[s.obstacle++].second;
  if (s.position + pages + 1 > s.pages) return 0;
  const uint64_t first = s.position;
  s.position += pages + 1;
  return first;
}

// Whether a graph records this stream, or one that it may not be used beside.
Capture capture_of(void* stream) {
  int status = NONE;
  if (state().driver.capturing(stream, &status) != 0) return ELSEWHERE;
  return status == NONE || status == RECORDS ? static_cast<Capture>(status) : ELSEWHERE;
}

// Write the pattern over a new buffer and its guards. While a graph is captured the buffer is also poisoned in every
// replay; its guards are not, so that what a replay wrote there stays.
void poison(const Block& b, void* stream, Capture capture) {
  const Address from = b.own ? b.own : b.data;
  fill(from, b.data + (b.pages() + 1) * PAGE - from, capture == NONE ? stream : state().aside);
  if (capture != NONE) wait_aside();
  if (capture == RECORDS) fill(b.data, b.size, stream);
}

long guarded(long (*action)(void*, long), void* argument, long number) {
  try {
    const std::lock_guard<std::mutex> lock(state().mutex);
    if (!state().arena) return 0;
    Here here;
    return action(argument, number);
  } catch (const std::exception&) {  // the caller is C; torch's next call says what the device says
    return -1;
  }
}

}  // namespace

extern "C" {

struct Row {
  uint64_t data, size, alive, recent;
};

// Another driver than libcuda.so.1; before the first allocation.
void so_driver(const char* path) { state().path = path; }

void* so_malloc(ssize_t size, int device, void* stream) {
  if (size == 0) return nullptr;
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  open(device);
  Here here;
  const Capture capture = capture_of(stream);
  Block b{0, static_cast<uint64_t>(size), 0, -1, true, capture != NONE, true};
  if (b.size > LIMIT) out_of_memory(std::to_string(b.size) + " bytes were asked for");
  const uint64_t first = b.size <= LARGE ? place(b.pages()) : 0;
  if (first) {
    b.data = page(first);
  } else {
    b.slot = std::find(s.taken.begin(), s.taken.end(), false) - s.taken.begin();
    if (b.slot == static_cast<int64_t>(s.slots))
      out_of_memory("the guarded arena is full, and beside it " + std::to_string(s.slots) + " buffers are watched");
    b.own = own_memory(b.size, (b.pages() + 2) * PAGE, b.captured);
    b.data = b.own + PAGE;
    s.taken[b.slot] = true;
  }
  s.living[b.data] = s.blocks.size();
  s.blocks.push_back(b);
  poison(b, stream, capture);
  return reinterpret_cast<void*>(b.data);
}

// Only noted: what a kernel or a graph still does with the memory harms nobody before so_begin.
void so_free(void* data, ssize_t, int, void*) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.living.find(reinterpret_cast<Address>(data));
  if (found == s.living.end()) return;
  s.blocks[found->second].alive = false;
  s.living.erase(found);
}

// A run of an adapter starts: what is free may be used again, from the start of the arena. `repair` when guards may
// have been written since they were last found whole. Returns 0, or -1 when the device does not answer.
long so_begin(int repair) {
  return guarded([](void*, long repair) -> long {
    State& s = state();
    if (repair) must(s.driver.wait(), "wait for the device");
    give_back(true);
    std::vector<Block> kept;
    s.living.clear(), s.obstacles.clear(), s.taken.assign(s.slots, false);
    for (Block b : s.blocks) {
      if (!b.alive) continue;
      b.recent = false;
      if (b.own) s.taken[b.slot] = true;
      if (!b.own) s.obstacles.emplace_back((b.data - s.arena) / PAGE, (b.data - s.arena) / PAGE + b.pages() + 1);
      s.living[b.data] = kept.size();
      kept.push_back(b);
      if (!repair) continue;
      fill(b.data - PAGE, PAGE, s.aside);
      fill(b.data + b.pages() * PAGE, PAGE, s.aside);
      if (const uint64_t used = b.size % PAGE)  // the same bytes of the guard before it, which are whole now
        must(s.driver.copy(b.data + b.size, b.data - PAGE + used, PAGE - used, s.aside), "copy");
    }
    s.blocks.swap(kept);
    std::sort(s.obstacles.begin(), s.obstacles.end());
    s.position = s.slots * ZONES + 1, s.obstacle = 0;
    if (repair) fill(page(s.position - 1), PAGE, s.aside), wait_aside();
    return 0;
  }, nullptr, repair);
}

// The guard zones of every buffer that lives or was allocated since so_begin: the page of the arena that holds it, its
// first byte that is guard, the row of its buffer in so_table, and where the page starts relative to the buffer.
// Returns how many there are, of which up to `capacity` are written, or -1.
long so_zones(int64_t* out, long capacity) {
  return guarded([](void* out, long capacity) -> long {
    State& s = state();
    long count = 0;
    bool copied = false;
    const auto zone = [&](int64_t page, int64_t first, int64_t row, int64_t offset) {
      const int64_t cells[4] = {page, first, row, offset};
      if (count < capacity) std::copy(cells, cells + 4, static_cast<int64_t*>(out) + 4 * count);
      count++;
    };
    for (size_t row = 0; row < s.blocks.size(); row++) {
      const Block& b = s.blocks[row];
      const bool inside = b.slot < 0;
      const int64_t page = PAGE, pages = b.pages(), last = b.size / PAGE, used = b.size % PAGE;
      const int64_t first = inside ? (b.data - s.arena) / PAGE : 0, copy = b.slot * ZONES;
      if (b.own) copy_guards(b), copied = true;
      zone(inside ? first - 1 : copy, 0, row, -page);
      if (used) zone(inside ? first + last : copy + 1, used, row, last * page);
      zone(inside ? first + pages : copy + 2, 0, row, pages * page);
    }
    if (copied) wait_aside();
    return count;
  }, out, capacity);
}

// Every buffer that lives or was allocated since so_begin, in order of allocation; returns as so_zones does.
long so_table(Row* out, long capacity) {
  return guarded([](void* out, long capacity) -> long {
    long count = 0;
    for (const Block& b : state().blocks) {
      if (count < capacity) static_cast<Row*>(out)[count] = Row{b.data, b.size, b.alive, b.recent};
      count++;
    }
    return count;
  }, out, capacity);
}

// After a run: the own memory of freed buffers goes back to the device. Returns 0 or -1.
long so_settle() {
  return guarded([](void*, long) -> long { return give_back(true), 0; }, nullptr, 0);
}

// Where the arena is and how many pages it has, 0 before the first allocation.
long so_arena(uint64_t* address) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  *address = state().arena;
  return state().pages;
}

// How many allocations failed for want of memory.
long so_failures() { return state().failures; }
}
