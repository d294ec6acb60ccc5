// What primitives.cuh gives the kernels, on a CPU: the same names with the same meaning.
//
// Built with g++ -DDOT_INTERACT_EMULATE -DDI_ARCH=700 (or 750, 800): device pointers are host
// pointers, a launch has run when it returns, streams are names.
#ifndef DOT_INTERACT_EMULATOR_EMULATED_PRIMITIVES_H_
#define DOT_INTERACT_EMULATOR_EMULATED_PRIMITIVES_H_

#include <stdint.h>
#include <string.h>

#include "memory.h"
#include "scheduler.h"
#include "warp_instructions.h"

#define DI_KERNEL
#define DI_DEVICE inline
#define DI_LAUNCH_BOUNDS(threads, blocks)
#define DI_UNROLL
#define DI_SHARED(name) unsigned char* const name = ::dot_interact::emulator::SharedMemory()

namespace dot_interact {
namespace device {

struct half { uint16_t bits; };
struct bf16 { uint16_t bits; };

inline float ToFloat(float x) { return x; }
inline float ToFloat(half x) { return emulator::HalfToFloat(x.bits); }
inline float ToFloat(bf16 x) { return emulator::Bfloat16ToFloat(x.bits); }

template <class T>
T FromFloat(float x);
template <>
inline float FromFloat<float>(float x) { return x; }
template <>
inline half FromFloat<half>(float x) { return half{emulator::FloatToHalf(x)}; }
template <>
inline bf16 FromFloat<bf16>(float x) { return bf16{emulator::FloatToBfloat16(x)}; }

inline uint32_t RoundToTf32(uint32_t x) {
  if (DI_ARCH < 800) emulator::Fault("RoundToTf32 below compute capability 8.0");
  return emulator::FloatToTf32(x);
}

inline unsigned ThreadIndex() { return emulator::here.thread; }
inline unsigned BlockIndex() { return emulator::here.block; }
inline unsigned BlockSize() { return emulator::here.block_size; }
inline unsigned GridSize() { return emulator::here.grid_size; }
inline unsigned Lane() { return emulator::here.thread % 32; }
inline unsigned Warp() { return emulator::here.thread / 32; }

inline void SyncBlock() { emulator::BlockBarrier(); }
inline void SyncWarp() { emulator::ExecuteTogether(emulator::kWarpBarrier, nullptr); }

inline void CopyAsync16(void* shared, const void* global) {
  emulator::QueueCopy(shared, global, 16, "CopyAsync16");
}
inline void CopyAsync4(void* shared, const void* global) {
  emulator::QueueCopy(shared, global, 4, "CopyAsync4");
}
inline void CopyCommit() { emulator::CommitCopies(); }
template <int newest>
void CopyWait() {
  static_assert(newest >= 0, "CopyWait<N>: at most N groups stay under way");
  emulator::WaitForCopies(newest);
}

inline void LoadMatrices(uint32_t (&r)[4], const void* row_address_of_lane) {
  emulator::MatrixLoad load = {row_address_of_lane, r};
  emulator::ExecuteTogether(emulator::kLoadMatrices, &load);
}
inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row_address_of_lane) {
  emulator::MatrixLoad load = {row_address_of_lane, r};
  emulator::ExecuteTogether(emulator::kLoadMatricesTransposed, &load);
}

inline void MmaF16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::MatrixProduct product = {c, a, {b0, b1}};
  emulator::ExecuteTogether(emulator::kMmaF16, &product);
}
inline void MmaBf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::MatrixProduct product = {c, a, {b0, b1}};
  emulator::ExecuteTogether(emulator::kMmaBf16, &product);
}
inline void MmaTf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulator::MatrixProduct product = {c, a, {b0, b1}};
  emulator::ExecuteTogether(emulator::kMmaTf32, &product);
}
inline void MmaVolta(float (&c)[8], uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
  uint32_t a[2] = {a0, a1};
  emulator::MatrixProduct product = {c, a, {b0, b1}};
  emulator::ExecuteTogether(emulator::kMmaVolta, &product);
}
inline void MmaVoltaRow(float (&c)[8], uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
  uint32_t a[2] = {a0, a1};
  emulator::MatrixProduct product = {c, a, {b0, b1}};
  emulator::ExecuteTogether(emulator::kMmaVoltaRow, &product);
}

// ---- Host ---------------------------------------------------------------------------------------

struct DeviceLimits {
  int error;
  int multiprocessors;
  int shared_bytes_per_block;
  int shared_bytes_per_multiprocessor;
  int compute_capability;
};

inline DeviceLimits Limits() {
  const emulator::Device& device = emulator::CurrentDevice();
  return {0, device.multiprocessors, static_cast<int>(device.shared_per_block),
          static_cast<int>(device.shared_per_multiprocessor), DI_ARCH / 10};
}

template <class Parameters>
int AllowSharedBytes(void (*)(Parameters), int64_t shared_bytes) {
  return shared_bytes <= emulator::CurrentDevice().shared_per_block ? 0 : emulator::kInvalidValue;
}

template <class Parameters>
int BlocksPerMultiprocessor(void (*)(Parameters), int threads, int64_t shared_bytes, int* blocks) {
  *blocks = emulator::ResidentBlocks(threads, shared_bytes);
  return 0;
}

template <class Parameters>
int Launch(void (*kernel)(Parameters), unsigned grid, unsigned block, int64_t shared_bytes,
           void* stream, const Parameters& parameters) {
  return emulator::RunGrid([kernel, &parameters] { kernel(parameters); }, grid, block,
                           shared_bytes, stream);
}

inline const char* ErrorText(int error) {
  switch (error) {
    case 0:
      return "no error";
    case emulator::kInvalidValue:
      return "the emulator refuses these launch sizes";
    case emulator::kLaunchFailure:
      return emulator::FaultText();
    default:
      return "unknown error";
  }
}

}  // namespace device
}  // namespace dot_interact

#endif  // DOT_INTERACT_EMULATOR_EMULATED_PRIMITIVES_H_
