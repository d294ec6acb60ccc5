// The contents of the embedding bag's primitives.cuh on a CPU: those of the dot interaction, and
// shuffles.
#ifndef EMBEDDING_BAG_EMULATOR_EMULATED_EMBEDDING_BAG_H_
#define EMBEDDING_BAG_EMULATOR_EMULATED_EMBEDDING_BAG_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "emulated_primitives.h"

#define EB_KERNEL
#define EB_DEVICE inline
#define EB_LAUNCH_BOUNDS(threads, blocks)
#define EB_UNROLL
#define EB_SHARED(name) unsigned char* const name = ::dot_interact::emulator::SharedMemory()

namespace embedding_bag {
namespace device {

using dot_interact::device::bf16;
using dot_interact::device::BlockIndex;
using dot_interact::device::BlockSize;
using dot_interact::device::ErrorText;
using dot_interact::device::FromFloat;
using dot_interact::device::GridSize;
using dot_interact::device::half;
using dot_interact::device::Launch;
using dot_interact::device::SyncBlock;
using dot_interact::device::ThreadIndex;
using dot_interact::device::ToFloat;
namespace emulator = dot_interact::emulator;

inline float FloatOfBits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t BitsOfFloat(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

template <unsigned count>
struct alignas(4 * count) Words {
  uint32_t word[count];
};
template <unsigned count>
void StoreWords(void* to, const uint32_t (&word)[count]) {
  Words<count> words;
  memcpy(&words, word, sizeof words);
  *static_cast<Words<count>*>(to) = words;
}

template <class T>
T* Global(T* pointer) {
  return pointer;
}

struct Shuffled {
  float value;
  unsigned source;
  float result;
};
inline void Shuffle(void* const* lanes) {
  for (unsigned lane = 0; lane < emulator::kLanes; ++lane) {
    Shuffled* shuffled = static_cast<Shuffled*>(lanes[lane]);
    shuffled->result = static_cast<const Shuffled*>(lanes[shuffled->source])->value;
  }
}
inline const emulator::WarpInstruction kShuffleXor = {"ShuffleXor", 0, INT32_MAX, true, Shuffle};
inline const emulator::WarpInstruction kShuffleFrom = {"ShuffleFrom", 0, INT32_MAX, true, Shuffle};

inline float ShuffleXor(float value, int mask) {
  Shuffled shuffled = {value, dot_interact::device::Lane() ^ mask, 0.0f};
  emulator::ExecuteTogether(kShuffleXor, &shuffled);
  return shuffled.result;
}
inline float ShuffleFrom(float value, int source) {
  Shuffled shuffled = {value, static_cast<unsigned>(source), 0.0f};
  emulator::ExecuteTogether(kShuffleFrom, &shuffled);
  return shuffled.result;
}

// ---- Host ---------------------------------------------------------------------------------------

constexpr int64_t kMaxVectors = 2000;  // so that some lookups take several launches

inline int Multiprocessors(int* count) {
  *count = emulator::CurrentDevice().multiprocessors;
  return 0;
}

// Launches have ended when they return.
inline int Copy(void* to, const void* from, int64_t bytes, void*) {
  memcpy(to, from, static_cast<size_t>(bytes));
  return 0;
}
inline int Wait(void*) { return 0; }

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_EMULATOR_EMULATED_EMBEDDING_BAG_H_
