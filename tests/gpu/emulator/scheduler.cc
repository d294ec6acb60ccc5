#include "scheduler.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "memory.h"

#if defined(__x86_64__) && !defined(DOT_INTERACT_UCONTEXT)
#define DOT_INTERACT_OWN_SWITCH
#else
#include <ucontext.h>
#endif

namespace dot_interact {
namespace emulator {

Position here;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 << 10;  // redzones make frames larger
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr size_t kPageBytes = 4096;
constexpr unsigned kMaxThreads = 1024;

enum class State { kReady, kAtWarpInstruction, kAtBlockBarrier, kEnded };

#if defined(DOT_INTERACT_OWN_SWITCH)
// swapcontext costs two system calls; a switch needs only the registers that a callee preserves.
struct Context {
  void* stack_pointer = nullptr;
};
extern "C" void DotInteractSwitchStack(void** from, void* to);
asm(R"(
.text
.local DotInteractSwitchStack
.type DotInteractSwitchStack, @function
DotInteractSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size DotInteractSwitchStack, .-DotInteractSwitchStack
)");
void Switch(Context* from, Context* to) {
  DotInteractSwitchStack(&from->stack_pointer, to->stack_pointer);
}
void Prepare(Context* context, unsigned char* stack, void (*entry)()) {
  // At a function's first instruction the stack pointer is 8 beyond a multiple of 16.
  void** top = reinterpret_cast<void**>(stack + kStackBytes) - 2;
  top[0] = reinterpret_cast<void*>(entry);
  top[1] = nullptr;
  context->stack_pointer = top - 6;
  memset(context->stack_pointer, 0, 6 * sizeof(void*));
}
#else
struct Context {
  ucontext_t registers;
};
void Switch(Context* from, Context* to) { swapcontext(&from->registers, &to->registers); }
void Prepare(Context* context, unsigned char* stack, void (*entry)()) {
  getcontext(&context->registers);
  context->registers.uc_stack.ss_sp = stack;
  context->registers.uc_stack.ss_size = kStackBytes;
  context->registers.uc_link = nullptr;
  makecontext(&context->registers, entry, 0);
}
#endif

struct Fiber {
  Context context;
  unsigned char* stack = nullptr;
  State state = State::kEnded;
};

struct Warp {
  unsigned lanes = 0;
  unsigned ended = 0;
  unsigned arrived = 0;
  const WarpInstruction* instruction = nullptr;
  void* arguments[kLanes] = {};
  uint32_t epoch = 0;
};

// One grid at a time.
struct Machine {
  Device device;
  Schedule schedule;
  const void* stream = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Context host;
  const std::function<void()>* kernel = nullptr;
  unsigned num_threads = 0;
  unsigned ended = 0;
  unsigned at_barrier = 0;
  uint32_t block_epoch = 0;
  bool in_kernel = false;
  bool faulted = false;
  std::string fault;
  uint64_t random = 0;
#if defined(__SANITIZE_ADDRESS__)
  const void* host_stack = nullptr;
  size_t host_stack_bytes = 0;
  void* host_fake_stack = nullptr;
#endif
} machine;

void SetFault(const char* format, va_list values) {
  char text[512];
  int length = snprintf(text, sizeof text, "block %u of %u, thread %u of %u: ", here.block,
                        here.grid_size, here.thread, here.block_size);
  vsnprintf(text + length, sizeof text - length, format, values);
  machine.fault = text;
  machine.faulted = true;
}

// For the scheduler itself, which no thread runs.
__attribute__((format(printf, 1, 2))) void SetFault(const char* format, ...) {
  va_list values;
  va_start(values, format);
  SetFault(format, values);
  va_end(values);
}

uint64_t Random() {  // xorshift64
  uint64_t& x = machine.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

void Shuffle(std::vector<unsigned>* order) {
  for (size_t i = order->size(); i > 1; --i) {
    std::swap((*order)[i - 1], (*order)[Random() % i]);
  }
}

void ToHost(bool ending) {
  Fiber& fiber = machine.fibers[here.thread];
  machine.in_kernel = false;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(ending ? nullptr : &fake_stack, machine.host_stack,
                                 machine.host_stack_bytes);
  Switch(&fiber.context, &machine.host);
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#else
  (void)ending;
  Switch(&fiber.context, &machine.host);
#endif
}

void ToFiber(unsigned thread) {
  Fiber& fiber = machine.fibers[thread];
  here.thread = thread;
  machine.in_kernel = true;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&machine.host_fake_stack, fiber.stack, kStackBytes);
  Switch(&machine.host, &fiber.context);
  __sanitizer_finish_switch_fiber(machine.host_fake_stack, nullptr, nullptr);
#else
  Switch(&machine.host, &fiber.context);
#endif
}

const char* WhereLaneIs(unsigned thread) {
  switch (machine.fibers[thread].state) {
    case State::kEnded:
      return "has ended";
    case State::kAtBlockBarrier:
      return "is at SyncBlock";
    case State::kAtWarpInstruction:
      return machine.warps[thread / kLanes].instruction->name;
    default:
      return "is running";
  }
}

void RunThread() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &machine.host_stack, &machine.host_stack_bytes);
#endif
  (*machine.kernel)();
  CheckNoCopiesLeft();
  Warp& warp = machine.warps[here.thread / kLanes];
  if (warp.arrived > 0) {
    Fault("the thread ends while lanes of its warp wait at %s", warp.instruction->name);
  }
  if (machine.at_barrier > 0) Fault("the thread ends while others wait at SyncBlock");
  ++warp.ended;
  ++machine.ended;
  machine.fibers[here.thread].state = State::kEnded;
  ToHost(/*ending=*/true);
  abort();  // an ended fiber is never resumed
}

void MakeFibers(unsigned num_threads) {
  while (machine.fibers.size() < num_threads) {
    // A page that nobody may touch below each stack: overflow is a crash, not damage elsewhere.
    void* pages = mmap(nullptr, kPageBytes + kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
      perror("emulator: mmap");
      abort();
    }
    mprotect(pages, kPageBytes, PROT_NONE);
    Fiber fiber;
    fiber.stack = static_cast<unsigned char*>(pages) + kPageBytes;
    machine.fibers.push_back(fiber);
  }
}

void BeginThreads(unsigned num_threads) {
  machine.num_threads = num_threads;
  machine.ended = 0;
  machine.at_barrier = 0;
  ++machine.block_epoch;
  machine.warps.assign((num_threads + kLanes - 1) / kLanes, Warp());
  for (unsigned thread = 0; thread < num_threads; ++thread) {
    ++machine.warps[thread / kLanes].lanes;
    Fiber& fiber = machine.fibers[thread];
#if defined(__SANITIZE_ADDRESS__)
    // A launch that faulted leaves frames behind.
    __asan_unpoison_memory_region(fiber.stack, kStackBytes);
#endif
    Prepare(&fiber.context, fiber.stack, RunThread);
    fiber.state = State::kReady;
  }
}

void ReportDeadlock() {
  for (unsigned thread = 0; thread < machine.num_threads; ++thread) {
    if (machine.fibers[thread].state != State::kAtWarpInstruction) continue;
    here.thread = thread;
    unsigned first = thread / kLanes * kLanes;
    for (unsigned other = first; other < first + machine.warps[thread / kLanes].lanes; ++other) {
      if (machine.fibers[other].state == State::kAtWarpInstruction) continue;
      SetFault("the lane waits at %s, but lane %u of its warp %s",
               machine.warps[thread / kLanes].instruction->name, other % kLanes,
               WhereLaneIs(other));
      return;
    }
  }
  SetFault("no thread can go on");
}

void RunBlock(unsigned num_threads) {
  BeginThreads(num_threads);
  std::vector<unsigned> order(num_threads);
  std::iota(order.begin(), order.end(), 0u);
  while (machine.ended < num_threads) {
    if (machine.schedule.seed != 0) Shuffle(&order);
    bool progress = false;
    for (unsigned thread : order) {
      if (machine.fibers[thread].state != State::kReady) continue;
      progress = true;
      ToFiber(thread);
      if (machine.faulted) return;
    }
    if (!progress) {
      ReportDeadlock();
      return;
    }
  }
}

void RunBlocks(unsigned grid, unsigned block, int64_t shared_bytes) {
  machine.faulted = false;
  machine.block_epoch = 0;
  machine.random = machine.schedule.seed * 0x9e3779b97f4a7c15u + 1;
  std::vector<unsigned> blocks(grid);
  std::iota(blocks.begin(), blocks.end(), 0u);
  if (machine.schedule.seed != 0) Shuffle(&blocks);
  BeginLaunch();
  for (unsigned index : blocks) {
    here.block = index;
    BeginBlock(shared_bytes);
    RunBlock(block);
    EndBlock();
    if (machine.faulted) return;
  }
}

// Others may go first now and then, so that orders differ between barriers too.
void MaybeLetOthersGo() {
  if (machine.schedule.seed != 0 && (Random() & 1)) ToHost(/*ending=*/false);
}

}  // namespace

Device& CurrentDevice() { return machine.device; }

int ResidentBlocks(int threads, int64_t shared_bytes) {
  constexpr int64_t kReservedBytes = 1024;  // of every block, from 8.0 on
  const Device& device = machine.device;
  if (threads > static_cast<int>(kMaxThreads) || shared_bytes > device.shared_per_block) return 0;
  int64_t fit = device.shared_per_multiprocessor / (shared_bytes + kReservedBytes);
  return static_cast<int>(std::min<int64_t>(std::max<int64_t>(fit, 1), device.resident_blocks));
}

Schedule& CurrentSchedule() { return machine.schedule; }
const void*& CurrentStream() { return machine.stream; }
bool InKernel() { return machine.in_kernel; }
uint32_t BlockEpoch() { return machine.block_epoch; }
uint32_t WarpEpoch(unsigned warp) { return machine.warps[warp].epoch; }
void AdvanceWarpEpoch(unsigned warp) { ++machine.warps[warp].epoch; }
const char* FaultText() { return machine.fault.c_str(); }
void ClearFault() { machine.fault.clear(); }

void ExecuteTogether(const WarpInstruction& instruction, void* arguments) {
  unsigned warp_index = here.thread / kLanes;
  unsigned lane = here.thread % kLanes;
  Warp& warp = machine.warps[warp_index];
  if (DI_ARCH < instruction.first_architecture || DI_ARCH > instruction.last_architecture) {
    Fault("compute capability %d.%d has no %s", DI_ARCH / 100, DI_ARCH / 10 % 10,
          instruction.name);
  }
  if (instruction.needs_full_warp && warp.lanes != kLanes) {
    Fault("%s in a warp of %u lanes", instruction.name, warp.lanes);
  }
  if (warp.ended > 0) Fault("%s after a lane of the warp has ended", instruction.name);
  if (warp.arrived > 0 && warp.instruction != &instruction) {
    Fault("the lane comes to %s while others of its warp wait at %s", instruction.name,
          warp.instruction->name);
  }
  warp.instruction = &instruction;
  warp.arguments[lane] = arguments;
  if (++warp.arrived < warp.lanes) {
    machine.fibers[here.thread].state = State::kAtWarpInstruction;
    ToHost(/*ending=*/false);
    return;
  }
  instruction.execute(warp.arguments);
  warp.arrived = 0;
  for (unsigned other = 0; other < warp.lanes; ++other) {
    machine.fibers[warp_index * kLanes + other].state = State::kReady;
  }
  MaybeLetOthersGo();
}

void BlockBarrier() {
  if (machine.ended > 0) Fault("SyncBlock after a thread of the block has ended");
  if (++machine.at_barrier < machine.num_threads) {
    machine.fibers[here.thread].state = State::kAtBlockBarrier;
    ToHost(/*ending=*/false);
    return;
  }
  machine.at_barrier = 0;
  ++machine.block_epoch;
  for (Warp& warp : machine.warps) ++warp.epoch;
  for (unsigned thread = 0; thread < machine.num_threads; ++thread) {
    machine.fibers[thread].state = State::kReady;
  }
  MaybeLetOthersGo();
}

int RunGrid(const std::function<void()>& kernel, unsigned grid, unsigned block,
            int64_t shared_bytes, const void* stream) {
  if (stream != machine.stream) {
    char text[128];
    snprintf(text, sizeof text, "a launch on stream %p, where the caller's is %p", stream,
             machine.stream);
    machine.fault = text;
    return kLaunchFailure;
  }
  if (grid == 0 || grid > 0x7fffffffu || block == 0 || block > kMaxThreads || shared_bytes < 0 ||
      shared_bytes > machine.device.shared_per_block) {
    return kInvalidValue;
  }
  MakeFibers(block);
  machine.kernel = &kernel;
  here.block_size = block;
  here.grid_size = grid;
  const Traffic before = CurrentTraffic();
  RunBlocks(grid, block, shared_bytes);
  if (!machine.faulted && NeedsSecondPass()) {
    CurrentTraffic() = before;
    RunBlocks(grid, block, shared_bytes);
  }
  EndLaunch();
  return machine.faulted ? kLaunchFailure : 0;
}

void Fault(const char* format, ...) {
  va_list values;
  va_start(values, format);
  SetFault(format, values);
  va_end(values);
  if (machine.in_kernel) ToHost(/*ending=*/true);
  fprintf(stderr, "emulator: %s\n", machine.fault.c_str());
  abort();
}

}  // namespace emulator
}  // namespace dot_interact

extern "C" {

// The device of the launches that follow; sizes in bytes.
void dot_interact_emulator_set_device(int multiprocessors, int resident_blocks,
                                      int64_t shared_per_block,
                                      int64_t shared_per_multiprocessor) {
  dot_interact::emulator::CurrentDevice() = {multiprocessors, resident_blocks, shared_per_block,
                                             shared_per_multiprocessor};
}

void dot_interact_emulator_set_seed(uint64_t seed) {
  dot_interact::emulator::CurrentSchedule().seed = seed;
}

// The stream that the launches which follow must be on.
void dot_interact_emulator_set_stream(const void* stream) {
  dot_interact::emulator::CurrentStream() = stream;
}

// What the last faulted launch did wrong; empty if none since the last call.
const char* dot_interact_emulator_take_fault(void) {
  static std::string taken;
  taken = dot_interact::emulator::FaultText();
  dot_interact::emulator::ClearFault();
  return taken.c_str();
}

}  // extern "C"
