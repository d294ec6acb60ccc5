// Small kernels with one mistake each, and the same without it, for tests of the emulator: every
// mistake has to be noticed, and nothing else. Also its number formats, to compare with NumPy's.
#include "emulated_primitives.h"

namespace {

using namespace dot_interact::device;

struct Parameters {
  const float* input;  // 64 numbers
  float* output;       // 64 numbers
  int bug;             // 0: none
};

constexpr unsigned kThreads = 64;

// Reverses 64 numbers by way of shared memory.
enum { kNoSyncBlock = 1, kThreadLeavesBeforeBarrier, kOverrunShared, kOverrunInput, kOverrunOutput,
       kTwoWriters, kWriteInput };
DI_KERNEL void Reverse(Parameters p) {
  DI_SHARED(shared);
  float* numbers = reinterpret_cast<float*>(shared);
  unsigned i = ThreadIndex();
  numbers[i] = p.input[p.bug == kOverrunInput ? i + 1 : i];
  if (p.bug == kThreadLeavesBeforeBarrier && i == 5) return;
  if (p.bug != kNoSyncBlock) SyncBlock();
  if (p.bug == kOverrunShared && i == 0) numbers[kThreads] = 1.0f;
  if (p.bug == kWriteInput) const_cast<float*>(p.input)[i] = 0.0f;
  unsigned place = p.bug == kTwoWriters ? i / 2 : p.bug == kOverrunOutput ? i + 1 : i;
  p.output[place] = numbers[kThreads - 1 - i];
}

// Turns 64 numbers around within each warp, in place.
enum { kNoSyncBeforeRead = 1, kNoSyncBeforeWrite };
DI_KERNEL void RotateInWarp(Parameters p) {
  DI_SHARED(shared);
  float* numbers = reinterpret_cast<float*>(shared) + 32 * Warp();
  numbers[Lane()] = p.input[ThreadIndex()];
  if (p.bug != kNoSyncBeforeRead) SyncWarp();
  float x = numbers[(Lane() + 1) % 32];
  if (p.bug != kNoSyncBeforeWrite) SyncWarp();
  numbers[Lane()] = x;
  p.output[ThreadIndex()] = numbers[Lane()];
}

// Copies 64 numbers by cp.async.
enum { kNoCopyWait = 1, kWaitsForTooFew, kNoCommit, kNoBarrierAfterWait, kMisalignedCopy,
       kWriteUnderWay, kLeavesCopy, kCopyPastShared };
DI_KERNEL void CopyThrough(Parameters p) {
  DI_SHARED(shared);
  float* numbers = reinterpret_cast<float*>(shared);
  unsigned i = ThreadIndex();
  if (i < 16) {
    unsigned shift = p.bug == kMisalignedCopy ? 1 : p.bug == kCopyPastShared ? 4 : 0;
    CopyAsync16(numbers + 4 * i + shift, p.input + 4 * i);
  }
  if (p.bug != kNoCommit) CopyCommit();
  if (p.bug == kWriteUnderWay && i == 0) numbers[0] = 0.0f;
  if (p.bug == kWaitsForTooFew) {
    CopyWait<1>();
  } else if (p.bug != kNoCopyWait && p.bug != kLeavesCopy) {
    CopyWait<0>();
  }
  if (p.bug != kNoBarrierAfterWait) SyncBlock();
  p.output[i] = p.bug == kLeavesCopy ? 0.0f : numbers[kThreads - 1 - i];
  if (p.bug == kNoCopyWait || p.bug == kWaitsForTooFew || p.bug == kNoCommit) {
    CopyCommit();
    CopyWait<0>();
  }
}

// Moves an 8 x 8 matrix of 32 pairs of halves to 32 registers.
enum { kMisalignedRow = 1, kLaneAtOtherInstruction, kLaneMissing, kRowPastShared };
DI_KERNEL void LoadMatrix(Parameters p) {
  DI_SHARED(shared);
  unsigned i = ThreadIndex();
  if (i < 32) {
    reinterpret_cast<float*>(shared)[i] = p.input[i];
    SyncWarp();
    uint32_t words[4];
    unsigned place = i % 8 * 16;
    if (p.bug == kMisalignedRow && i == 3) place += 8;
    if (p.bug == kRowPastShared && i == 3) place = 256;
    if (p.bug == kLaneAtOtherInstruction && i == 3) {
      LoadMatricesTransposed(words, shared + place);
    } else if (p.bug != kLaneMissing || i != 3) {
      LoadMatrices(words, shared + place);
    }
    memcpy(p.output + i, words, sizeof(float));
  } else {
    p.output[i] = 0.0f;
  }
}

// Reads numbers that nobody needs from a place that another thread writes at the same time.
enum { kUsesIt = 1 };
DI_KERNEL void ReadGarbage(Parameters p) {
  DI_SHARED(shared);
  volatile float* numbers = reinterpret_cast<float*>(shared);
  unsigned i = ThreadIndex();
  float garbage = numbers[(i + 1) % kThreads];
  numbers[i] = p.input[i];
  p.output[i] = p.bug == kUsesIt ? p.input[i] + 0.0f * garbage : p.input[i];
}

// A B with A the first 64 numbers as 8 x 8 (and 8 rows of zeros) and B = I, in TF32.
enum { kLeftUnrounded = 1, kRightUnrounded };
DI_KERNEL void MultiplyTf32(Parameters p) {
  if (Warp() > 0) return;
  const unsigned row = Lane() / 4;
  const unsigned depth = Lane() % 4;
  float left[2] = {p.input[8 * row + depth], p.input[8 * row + depth + 4]};
  float right[2] = {depth == row ? 1.0f : 0.0f, depth + 4 == row ? 1.0f : 0.0f};
  uint32_t a[4] = {}, b[2];
  for (int i = 0; i < 2; ++i) {
    memcpy(&a[2 * i], &left[i], sizeof(float));
    memcpy(&b[i], &right[i], sizeof(float));
  }
  if (p.bug == kLeftUnrounded && Lane() == 9) a[2] |= 1;
  if (p.bug == kRightUnrounded && Lane() == 9) b[1] |= 1 << 12;
  float c[4] = {};
  MmaTf32(c, a, b[0], b[1]);
  for (int i = 0; i < 2; ++i) p.output[8 * row + 2 * depth + i] = c[i];
}

struct alignas(8) TwoFloats {
  float x, y;
};

// A number of 8 bytes at an address that is no multiple of 8.
DI_KERNEL void ReadPairs(Parameters p) {
  unsigned i = ThreadIndex();
  const float* from = p.input + (p.bug != 0 && i < 60 ? i / 2 * 2 + 1 : i / 2 * 2);
  TwoFloats pair = *reinterpret_cast<const TwoFloats*>(from);
  p.output[i] = i % 2 == 0 ? pair.x : pair.y;
}

}  // namespace

extern "C" {

// Returns the launch's error number; -1 for a name that is none.
int run_planted(const char* name, const float* input, float* output, int bug) {
  struct {
    const char* name;
    void (*kernel)(Parameters);
  } const kernels[] = {{"Reverse", Reverse},         {"RotateInWarp", RotateInWarp},
                       {"CopyThrough", CopyThrough}, {"LoadMatrix", LoadMatrix},
                       {"ReadGarbage", ReadGarbage}, {"ReadPairs", ReadPairs},
                 {"MultiplyTf32", MultiplyTf32}};
  for (const auto& entry : kernels) {
    if (strcmp(entry.name, name) == 0) {
      return Launch(entry.kernel, 1, kThreads, 256, nullptr, Parameters{input, output, bug});
    }
  }
  return -1;
}

float planted_from_half(uint16_t bits) { return ToFloat(half{bits}); }
float planted_from_bfloat16(uint16_t bits) { return ToFloat(bf16{bits}); }
uint16_t planted_to_half(float x) { return FromFloat<half>(x).bits; }
uint16_t planted_to_bfloat16(float x) { return FromFloat<bf16>(x).bits; }
uint32_t planted_to_tf32(uint32_t bits) { return dot_interact::emulator::FloatToTf32(bits); }

}  // extern "C"
