// Memory of the emulated device: a block's shared memory, copies into it that arrive later, and the
// checks of single accesses.
//
// The checks need the kernels compiled with -fsanitize=thread and linked without it: the compiler
// then calls __tsan_read4(address) and the like before every access (compiler_calls.cc).
//
// A fault: accesses outside the tensors or shared memory, down to a single byte; misaligned ones;
// two writes to the same shared bytes without a barrier between; writes to a copy under way.
// Garbage (0xFF, NaN in every dtype): what a read gets that might see a write before or after it,
// or a copy under way, or what nobody wrote. Kernels may read garbage, for rows beyond a tile, but
// no result may depend on it. A write that comes too soon after a read is seen when the read is
// over: the launch is run again then, and the read gets garbage.
#ifndef DOT_INTERACT_EMULATOR_MEMORY_H_
#define DOT_INTERACT_EMULATOR_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

namespace dot_interact {
namespace emulator {

// As a block starts: shared memory of exactly `bytes`, filled with 0xFF (NaN in every dtype).
void BeginBlock(int64_t bytes);
void EndBlock();
// A launch is one pass over all blocks, or two.
void BeginLaunch();
bool NeedsSecondPass();
void EndLaunch();
unsigned char* SharedMemory();
int64_t SharedBytes();

// cp.async of 4 or 16 bytes by the running thread: queued, and done no later than WaitForCopies.
void QueueCopy(void* shared, const void* global, unsigned bytes, const char* name);
void CommitCopies();
// Waits until at most `pending_groups` of the thread's committed groups are under way.
void WaitForCopies(unsigned pending_groups);
// A thread that ends must not leave copies behind.
void CheckNoCopiesLeft();

// The access of one thread as the compiler's calls report it, for what the compiler does not see.
void NoteRead(const void* address, unsigned bytes, bool aligned);
void NoteWrite(void* address, unsigned bytes, bool aligned);
// Of 2 bytes that a warp's instruction reads for `thread`; `name` stands in messages.
bool ReadsGarbage(unsigned thread, const void* address, const char* name);

struct Traffic {
  int64_t global_bytes_read = 0;
  int64_t global_bytes_written = 0;
  int64_t matrix_loads = 0;           // 8 x 8 matrices of ldmatrix
  int64_t matrix_load_conflicts = 0;  // further passes that their banks cost
};
Traffic& CurrentTraffic();

}  // namespace emulator
}  // namespace dot_interact

#endif  // DOT_INTERACT_EMULATOR_MEMORY_H_
