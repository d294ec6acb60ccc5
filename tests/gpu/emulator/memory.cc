#include "memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler.h"

namespace dot_interact {
namespace emulator {
namespace {

constexpr unsigned kGranuleBytes = 2;  // the smallest number that kernels handle
constexpr uint8_t kUnwritten = 0xff;
// What lies this close to shared memory counts as an access to it, beyond its end. AddressSanitizer
// finds such accesses itself, in the bytes next to an allocation.
#if defined(DOT_INTERACT_CHECKED)
constexpr int64_t kMarginBytes = 64 << 10;
#else
constexpr int64_t kMarginBytes = 0;
#endif

// Readers of a granule since the last block barrier.
constexpr uint32_t kNobody = 0xffffffffu;
constexpr uint32_t kSeveralWarps = 0xfffffffeu;
constexpr uint32_t kLanesOfWarp = 0x80000000u;  // plus the warp's number

struct Granule {
  uint32_t writer = kNobody;
  uint32_t write_block_epoch = 0;
  uint32_t write_warp_epoch = 0;
  uint32_t reader = kNobody;
  uint32_t read_block_epoch = 0;
  uint32_t read_warp_epoch = 0;
  uint32_t copier = kNobody;  // the thread whose copy is under way
};

struct Copy {
  unsigned char* shared;
  const unsigned char* global;
  unsigned bytes;
};

struct ThreadCopies {
  std::vector<std::vector<Copy>> committed;
  std::vector<Copy> open;
};

// A tensor with the guard bands around it.
struct Region {
  uintptr_t outer_begin, begin, end, outer_end;
  bool writable;
  std::vector<uint32_t> writers;  // by granule: number of the thread in the grid, plus 1
};

// A write to shared memory with a read before it that no barrier separates from it.
struct LateWrite {
  uint32_t block, thread, block_epoch, warp_epoch;
  bool operator==(const LateWrite& other) const {
    return block == other.block && thread == other.thread && block_epoch == other.block_epoch &&
           warp_epoch == other.warp_epoch;
  }
};

// A granule that holds garbage until the read is over.
struct Spoilt {
  unsigned char* address;
  unsigned char bytes[kGranuleBytes];
};

struct Memory {
  void* allocation = nullptr;
  unsigned char* shared = nullptr;
  uintptr_t shared_begin = 0;
  int64_t shared_bytes = 0;
  std::vector<Granule> granules;
  std::vector<ThreadCopies> copies;
  std::vector<Region> regions;
  Traffic traffic;
  // By granule's number; those of the pass before, which the reads of this one are held against.
  std::unordered_map<int64_t, std::vector<LateWrite>> late_writes, known_late_writes;
  std::vector<Spoilt> spoilt;
  std::string race;
} memory;

// Shared memory or close to it.
bool IsShared(uintptr_t address) {
  return address - (memory.shared_begin - kMarginBytes) <
         static_cast<uintptr_t>(memory.shared_bytes + 2 * kMarginBytes);
}

#if defined(DOT_INTERACT_CHECKED)
// Whether a barrier lies between the access of `earlier` at those epochs and one of `thread` now.
bool Ordered(unsigned thread, uint32_t earlier, uint32_t block_epoch, uint32_t warp_epoch) {
  if (earlier == thread || block_epoch != BlockEpoch()) return true;
  return earlier / kLanes == thread / kLanes && warp_epoch != WarpEpoch(thread / kLanes);
}

void NoteRace(const char* name, unsigned thread, int64_t granule, const char* how, unsigned other) {
  if (!memory.race.empty()) return;
  char text[256];
  snprintf(text, sizeof text, "block %u of %u, %s of shared byte %lld by thread %u %s %u",
           here.block, here.grid_size, name, static_cast<long long>(granule * kGranuleBytes),
           thread, how, other);
  memory.race = text;
}

// Whether the read may see something else on a GPU.
bool IsRacy(unsigned thread, int64_t index, const char* name) {
  const Granule& granule = memory.granules[index];
  if (granule.copier != kNobody) {
    NoteRace(name, thread, index, "before CopyWait for the copy of thread", granule.copier);
    return true;
  }
  if (granule.writer != kNobody && !Ordered(thread, granule.writer, granule.write_block_epoch,
                                            granule.write_warp_epoch)) {
    NoteRace(name, thread, index, "without a barrier after the write of thread", granule.writer);
    return true;
  }
  const auto late = memory.known_late_writes.find(index);
  if (late == memory.known_late_writes.end()) return false;
  for (const LateWrite& write : late->second) {
    if (write.block == here.block && write.block_epoch == BlockEpoch() &&
        (thread / kLanes != write.thread / kLanes ||
         (thread != write.thread && write.warp_epoch == WarpEpoch(thread / kLanes)))) {
      NoteRace(name, thread, index, "without a barrier before the write of thread", write.thread);
      return true;
    }
  }
  return false;
}

void RecordReader(Granule* granule, unsigned thread) {
  unsigned warp = thread / kLanes;
  if (granule->reader == kNobody || granule->read_block_epoch != BlockEpoch()) {
    granule->reader = thread;
  } else if (granule->reader != kSeveralWarps && granule->reader != thread) {
    unsigned other = granule->reader >= kLanesOfWarp ? granule->reader - kLanesOfWarp
                                                     : granule->reader / kLanes;
    if (other != warp) {
      granule->reader = kSeveralWarps;
    } else if (granule->read_warp_epoch != WarpEpoch(warp)) {
      granule->reader = thread;  // a barrier of the warp lies after the reads before
    } else {
      granule->reader = kLanesOfWarp + warp;
    }
  }
  granule->read_block_epoch = BlockEpoch();
  granule->read_warp_epoch = WarpEpoch(warp);
}

// Whether all reads of the granule are known to lie before a write of `thread` now.
bool ReadsAreOver(const Granule& granule, unsigned thread) {
  if (granule.reader == kNobody || granule.read_block_epoch != BlockEpoch()) return true;
  if (granule.reader == thread) return true;
  if (granule.reader == kSeveralWarps) return false;
  unsigned other =
      granule.reader >= kLanesOfWarp ? granule.reader - kLanesOfWarp : granule.reader / kLanes;
  return other == thread / kLanes && granule.read_warp_epoch != WarpEpoch(thread / kLanes);
}

void CheckBounds(int64_t begin, unsigned bytes, const char* name) {
  if (begin >= 0 && begin + bytes <= memory.shared_bytes) return;
  Fault("%s of %u bytes at shared byte %lld of %lld", name, bytes, static_cast<long long>(begin),
        static_cast<long long>(memory.shared_bytes));
}

// What was garbage for the last read of the running thread is as it was again.
void Restore() {
  for (const Spoilt& spoilt : memory.spoilt) memcpy(spoilt.address, spoilt.bytes, kGranuleBytes);
  memory.spoilt.clear();
}

void SharedRead(unsigned thread, uintptr_t address, unsigned bytes, const char* name) {
  int64_t begin = address - memory.shared_begin;
  CheckBounds(begin, bytes, name);
  for (int64_t i = begin / kGranuleBytes; i <= (begin + bytes - 1) / kGranuleBytes; ++i) {
    if (IsRacy(thread, i, name)) {
      Spoilt spoilt;
      spoilt.address = memory.shared + i * kGranuleBytes;
      memcpy(spoilt.bytes, spoilt.address, kGranuleBytes);
      memory.spoilt.push_back(spoilt);
      memset(spoilt.address, kUnwritten, kGranuleBytes);
    }
    RecordReader(&memory.granules[i], thread);
  }
}

void SharedWrite(unsigned thread, uintptr_t address, unsigned bytes, const char* name) {
  int64_t begin = address - memory.shared_begin;
  CheckBounds(begin, bytes, name);
  for (int64_t i = begin / kGranuleBytes; i <= (begin + bytes - 1) / kGranuleBytes; ++i) {
    Granule& granule = memory.granules[i];
    long long offset = i * kGranuleBytes;
    if (granule.copier != kNobody) {
      Fault("%s of shared byte %lld by thread %u while thread %u's copy to it is under way", name,
            offset, thread, granule.copier);
    }
    if (granule.writer != kNobody && !Ordered(thread, granule.writer, granule.write_block_epoch,
                                              granule.write_warp_epoch)) {
      Fault("%s of shared byte %lld by thread %u, and by thread %u without a barrier between", name,
            offset, thread, granule.writer);
    }
    if (!ReadsAreOver(granule, thread)) {
      LateWrite write = {here.block, thread, BlockEpoch(), WarpEpoch(thread / kLanes)};
      std::vector<LateWrite>& known = memory.late_writes[i];
      if (known.empty() || !(known.back() == write)) known.push_back(write);
    }
    granule.writer = thread;
    granule.write_block_epoch = BlockEpoch();
    granule.write_warp_epoch = WarpEpoch(thread / kLanes);
  }
}

// Which registered tensor's surroundings hold the address; null: memory that is not the kernels'.
Region* Find(uintptr_t address) {
  for (Region& region : memory.regions) {
    if (address >= region.outer_begin && address < region.outer_end) return &region;
  }
  return nullptr;
}

void GlobalRead(uintptr_t address, unsigned bytes, const char* name) {
  Region* region = Find(address);
  if (region == nullptr) return;  // parameters, tables, the thread's own stack
  if (address < region->begin || address + bytes > region->end) {
    Fault("%s of %u bytes at byte %lld of a tensor of %lld bytes", name, bytes,
          static_cast<long long>(address - region->begin),
          static_cast<long long>(region->end - region->begin));
  }
  memory.traffic.global_bytes_read += bytes;
}

void GlobalWrite(uintptr_t address, unsigned bytes, const char* name) {
  Region* region = Find(address);
  if (region == nullptr) return;
  if (!region->writable || address < region->begin || address + bytes > region->end) {
    Fault("%s of %u bytes at byte %lld of %s of %lld bytes", name, bytes,
          static_cast<long long>(address - region->begin),
          region->writable ? "a tensor" : "an input",
          static_cast<long long>(region->end - region->begin));
  }
  memory.traffic.global_bytes_written += bytes;
  uint32_t writer = here.block * here.block_size + here.thread + 1;
  uintptr_t begin = address - region->begin;
  for (uintptr_t i = begin / kGranuleBytes; i <= (begin + bytes - 1) / kGranuleBytes; ++i) {
    if (region->writers[i] != 0 && region->writers[i] != writer) {
      uint32_t other = region->writers[i] - 1;
      Fault("%s of byte %llu of an output that block %u's thread %u has already written", name,
            static_cast<unsigned long long>(i * kGranuleBytes), other / here.block_size,
            other % here.block_size);
    }
    region->writers[i] = writer;
  }
}
#endif

void Finish(const Copy& copy) {
#if defined(DOT_INTERACT_CHECKED)
  Restore();
#endif
  memcpy(copy.shared, copy.global, copy.bytes);
#if defined(DOT_INTERACT_CHECKED)
  int64_t begin = reinterpret_cast<uintptr_t>(copy.shared) - memory.shared_begin;
  for (int64_t i = begin / kGranuleBytes; i < (begin + copy.bytes) / kGranuleBytes; ++i) {
    Granule& granule = memory.granules[i];
    granule.copier = kNobody;
    granule.writer = here.thread;
    granule.write_block_epoch = BlockEpoch();
    granule.write_warp_epoch = WarpEpoch(here.thread / kLanes);
  }
#endif
}

}  // namespace

unsigned char* SharedMemory() { return memory.shared; }
int64_t SharedBytes() { return memory.shared_bytes; }
Traffic& CurrentTraffic() { return memory.traffic; }

void BeginLaunch() {
  memory.known_late_writes = std::move(memory.late_writes);
  memory.late_writes.clear();
  for (Region& region : memory.regions) {
    if (region.writable) region.writers.assign((region.end - region.begin) / kGranuleBytes + 1, 0);
  }
}

bool NeedsSecondPass() { return !memory.late_writes.empty(); }

void EndLaunch() { memory.late_writes.clear(); }

void BeginBlock(int64_t bytes) {
  EndBlock();
  // 16-byte aligned, as the start of dynamic shared memory is; a size of 0 gives a valid address.
  size_t allocated = bytes + 2 * kMarginBytes;
  if (posix_memalign(&memory.allocation, 128, allocated > 0 ? allocated : 1) != 0) abort();
  memory.shared = static_cast<unsigned char*>(memory.allocation) + kMarginBytes;
  memory.shared_begin = reinterpret_cast<uintptr_t>(memory.shared);
  memory.shared_bytes = bytes;
  memset(memory.shared, kUnwritten, bytes);
  memory.copies.assign(here.block_size, ThreadCopies());
#if defined(DOT_INTERACT_CHECKED)
  memory.granules.assign(bytes / kGranuleBytes + 1, Granule());
#endif
}

void EndBlock() {
  memory.spoilt.clear();
  free(memory.allocation);
  memory.allocation = nullptr;
  memory.shared = nullptr;
  memory.shared_bytes = 0;
}

void QueueCopy(void* shared, const void* global, unsigned bytes, const char* name) {
  uintptr_t address = reinterpret_cast<uintptr_t>(shared);
  if (address % bytes != 0 || reinterpret_cast<uintptr_t>(global) % bytes != 0) {
    Fault("%s between %p and %p, which are not both multiples of %u", name, global, shared, bytes);
  }
  int64_t offset = address - memory.shared_begin;
  if (offset < 0 || offset + bytes > memory.shared_bytes) {
    Fault("%s to shared byte %lld of %lld", name, static_cast<long long>(offset),
          static_cast<long long>(memory.shared_bytes));
  }
#if defined(DOT_INTERACT_CHECKED)
  Restore();
  GlobalRead(reinterpret_cast<uintptr_t>(global), bytes, name);
  SharedWrite(here.thread, address, bytes, name);
#endif
  if (DI_ARCH < 800) {  // without cp.async a load and a store
    memcpy(shared, global, bytes);
    return;
  }
#if defined(DOT_INTERACT_CHECKED)
  for (int64_t i = offset / kGranuleBytes; i < (offset + bytes) / kGranuleBytes; ++i) {
    memory.granules[i].copier = here.thread;
  }
#endif
  if (CurrentSchedule().CopiesArriveAtOnce()) memcpy(shared, global, bytes);
  memory.copies[here.thread].open.push_back(Copy{static_cast<unsigned char*>(shared),
                                                 static_cast<const unsigned char*>(global), bytes});
}

void CommitCopies() {
  if (DI_ARCH < 800) return;
  ThreadCopies& copies = memory.copies[here.thread];
  copies.committed.push_back(std::move(copies.open));
  copies.open.clear();
}

void WaitForCopies(unsigned pending_groups) {
  std::vector<std::vector<Copy>>& committed = memory.copies[here.thread].committed;
  while (committed.size() > pending_groups) {
    for (const Copy& copy : committed.front()) Finish(copy);
    committed.erase(committed.begin());
  }
}

void CheckNoCopiesLeft() {
  const ThreadCopies& copies = memory.copies[here.thread];
  size_t left = copies.open.size();
  for (const std::vector<Copy>& group : copies.committed) left += group.size();
  if (left > 0) Fault("the thread ends with %zu copies under way that nobody waited for", left);
}

#if defined(DOT_INTERACT_CHECKED)
void NoteRead(const void* address, unsigned bytes, bool aligned) {
  if (!InKernel()) return;
  Restore();
  uintptr_t number = reinterpret_cast<uintptr_t>(address);
  if (aligned && number % bytes != 0) Fault("misaligned read of %u bytes at %p", bytes, address);
  if (IsShared(number)) {
    SharedRead(here.thread, number, bytes, "read");
  } else {
    GlobalRead(number, bytes, "read");
  }
}

void NoteWrite(void* address, unsigned bytes, bool aligned) {
  if (!InKernel()) return;
  Restore();
  uintptr_t number = reinterpret_cast<uintptr_t>(address);
  if (aligned && number % bytes != 0) Fault("misaligned write of %u bytes at %p", bytes, address);
  if (IsShared(number)) {
    SharedWrite(here.thread, number, bytes, "write");
  } else {
    GlobalWrite(number, bytes, "write");
  }
}

bool ReadsGarbage(unsigned thread, const void* address, const char* name) {
  int64_t index = (reinterpret_cast<uintptr_t>(address) - memory.shared_begin) / kGranuleBytes;
  Restore();
  bool racy = IsRacy(thread, index, name);
  RecordReader(&memory.granules[index], thread);
  return racy;
}
#else
void NoteRead(const void*, unsigned, bool) {}
void NoteWrite(void*, unsigned, bool) {}
bool ReadsGarbage(unsigned, const void*, const char*) { return false; }
#endif

}  // namespace emulator
}  // namespace dot_interact

extern "C" {

// A tensor of `bytes` at `begin`, with `guard` bytes on either side that kernels must not touch.
void dot_interact_emulator_add_tensor(void* begin, int64_t bytes, int64_t guard, int writable) {
  uintptr_t address = reinterpret_cast<uintptr_t>(begin);
  dot_interact::emulator::memory.regions.push_back(
      {address - guard, address, address + bytes, address + bytes + guard, writable != 0, {}});
#if defined(__SANITIZE_ADDRESS__)
  unsigned char* first = static_cast<unsigned char*>(begin);
  __asan_poison_memory_region(first - guard, guard);
  __asan_poison_memory_region(first + bytes, guard);
#endif
}

void dot_interact_emulator_forget_tensors(void) {
#if defined(__SANITIZE_ADDRESS__)
  for (const auto& region : dot_interact::emulator::memory.regions) {
    __asan_unpoison_memory_region(reinterpret_cast<void*>(region.outer_begin),
                                  region.outer_end - region.outer_begin);
  }
#endif
  dot_interact::emulator::memory.regions.clear();
}

// The first read, since the last call, that a missing barrier makes a gamble; or empty.
const char* dot_interact_emulator_take_race(void) {
  static std::string taken;
  taken = dot_interact::emulator::memory.race;
  dot_interact::emulator::memory.race.clear();
  return taken.c_str();
}

// {global bytes read, written, 8 x 8 matrices loaded, passes that bank conflicts added}, counted
// since the last call; bytes in the checked build alone.
void dot_interact_emulator_take_traffic(int64_t numbers[4]) {
  dot_interact::emulator::Traffic& traffic = dot_interact::emulator::CurrentTraffic();
  numbers[0] = traffic.global_bytes_read;
  numbers[1] = traffic.global_bytes_written;
  numbers[2] = traffic.matrix_loads;
  numbers[3] = traffic.matrix_load_conflicts;
  traffic = dot_interact::emulator::Traffic();
}

}  // extern "C"
