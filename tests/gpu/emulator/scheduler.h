// Threads of a CUDA block as fibers on one CPU thread.
//
// A kernel runs block by block; within a block a fiber runs until it comes to a barrier or ends,
// and the last one to come lets the others go on. Which fiber runs next follows from the schedule's
// seed. What a GPU would leave undefined (a barrier that some lanes never reach, a misaligned row)
// ends the launch with a fault, whose text `FaultText` holds.
//
// For one host thread at a time.
#ifndef DOT_INTERACT_EMULATOR_SCHEDULER_H_
#define DOT_INTERACT_EMULATOR_SCHEDULER_H_

#include <stdint.h>

#include <functional>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#ifndef DI_ARCH
#error "compile with -DDI_ARCH=700, 750 or 800"
#endif

namespace dot_interact {
namespace emulator {

constexpr unsigned kLanes = 32;
// What a launch that ended with a fault returns; the number of cudaErrorLaunchFailure.
constexpr int kLaunchFailure = 719;
constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue

// The device that the kernels believe to be on. Sizes in bytes.
struct Device {
  int multiprocessors = 1;
  // Blocks of one multiprocessor at the same time: 1, so that a launch has fewer blocks than
  // samples already with a batch of 2 and the loop over samples turns.
  int resident_blocks = 1;
  int64_t shared_per_block = 0;
  int64_t shared_per_multiprocessor = 0;
};

struct Schedule {
  // 0: threads and blocks in ascending order, copies arrive as late as they may. Otherwise the
  // order is drawn from the seed; with an odd one copies arrive at once.
  uint64_t seed = 0;
  bool CopiesArriveAtOnce() const { return seed & 1; }
};

Device& CurrentDevice();
// How many blocks of that size share a multiprocessor; 0 if not even one fits.
int ResidentBlocks(int threads, int64_t shared_bytes);
Schedule& CurrentSchedule();
// The stream that the caller of the library names: a launch on another is a fault.
const void*& CurrentStream();

// The place of the running thread; valid within a kernel.
struct Position {
  unsigned thread = 0;
  unsigned block = 0;
  unsigned block_size = 0;
  unsigned grid_size = 0;
};
extern Position here;
// True while a kernel runs (and not the host code around it).
bool InKernel();

// An instruction that all 32 lanes of a warp execute together.
struct WarpInstruction {
  const char* name;
  int first_architecture;  // of those that have it, as in DI_ARCH
  int last_architecture;
  bool needs_full_warp;
  void (*execute)(void* const* arguments);  // one pointer a lane
};

// Returns when all lanes of the warp have come to `instruction` and it is executed.
void ExecuteTogether(const WarpInstruction& instruction, void* arguments);
// Returns when all threads of the block have come.
void BlockBarrier();

// Order in time, for the race check: of two accesses the earlier one is known to come first if they
// are of the same thread, if a block barrier lies between them, or, within a warp, a warp barrier.
uint32_t BlockEpoch();
uint32_t WarpEpoch(unsigned warp);
void AdvanceWarpEpoch(unsigned warp);

// Runs `kernel` for every thread of every block. Returns 0, kInvalidValue (sizes that no GPU takes)
// or kLaunchFailure.
int RunGrid(const std::function<void()>& kernel, unsigned grid, unsigned block,
            int64_t shared_bytes, const void* stream);

// Ends the launch from within a kernel; the text names the block and the thread.
[[noreturn]] void Fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
const char* FaultText();
void ClearFault();

}  // namespace emulator
}  // namespace dot_interact

#endif  // DOT_INTERACT_EMULATOR_SCHEDULER_H_
