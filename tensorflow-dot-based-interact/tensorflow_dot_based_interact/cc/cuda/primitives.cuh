// The machine beneath the kernels: threads, barriers, copies, matrix instructions, launches.
// Everything with PTX or intrinsics is here, and nothing else: a test build (DOT_INTERACT_EMULATE)
// replaces this file by the same names on a CPU. Also compiles with NVRTC, without the host part.
#ifndef DOT_INTERACT_CUDA_PRIMITIVES_CUH_
#define DOT_INTERACT_CUDA_PRIMITIVES_CUH_

#ifdef DOT_INTERACT_EMULATE
#include "emulated_primitives.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#include <stdint.h>

#include <mutex>
#endif

// The compute capability being compiled for, times 100; 0 when nvcc compiles for the host.
#ifdef __CUDA_ARCH__
#define DI_ARCH __CUDA_ARCH__
#else
#define DI_ARCH 0
#endif

#define DI_KERNEL __global__
#define DI_DEVICE __device__ __forceinline__
#define DI_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define DI_UNROLL _Pragma("unroll")
#define DI_PRAGMA(text) _Pragma(#text)
#define DI_UNROLL_BY(count) DI_PRAGMA(unroll count)
// A block's dynamic shared memory: `unsigned char name[]`, 16-byte aligned.
#define DI_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

namespace dot_interact {
namespace device {

#ifdef __CUDACC_RTC__
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int32_t = int;
using int64_t = long long;
#endif

using half = __half;
using bf16 = __nv_bfloat16;

// ---- Numbers ------------------------------------------------------------------------------------

DI_DEVICE float ToFloat(float x) { return x; }
DI_DEVICE float ToFloat(half x) { return __half2float(x); }
DI_DEVICE float ToFloat(bf16 x) { return __bfloat162float(x); }

// Rounds to the nearest, ties to even.
template <class T>
DI_DEVICE T FromFloat(float x);
template <>
DI_DEVICE float FromFloat<float>(float x) { return x; }
template <>
DI_DEVICE half FromFloat<half>(float x) { return __float2half_rn(x); }
template <>
DI_DEVICE bf16 FromFloat<bf16>(float x) { return __float2bfloat16_rn(x); }

// The bits of a float32 rounded to TF32's 10 fraction bits (ties away from zero); from 8.0.
DI_DEVICE uint32_t RoundToTf32(uint32_t x) {
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(x)));
  return rounded;
}

// ---- Threads ------------------------------------------------------------------------------------

DI_DEVICE unsigned ThreadIndex() { return threadIdx.x; }
DI_DEVICE unsigned BlockIndex() { return blockIdx.x; }
DI_DEVICE unsigned BlockSize() { return blockDim.x; }
DI_DEVICE unsigned GridSize() { return gridDim.x; }
DI_DEVICE unsigned Lane() { return threadIdx.x % 32; }
DI_DEVICE unsigned Warp() { return threadIdx.x / 32; }

DI_DEVICE void SyncBlock() { __syncthreads(); }
DI_DEVICE void SyncWarp() { __syncwarp(); }

// ---- Copies from global to shared memory --------------------------------------------------------
// Queued from 8.0 on; below, done at once, and commit and wait do nothing.

DI_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Both addresses are multiples of 16. Goes past L1: nothing is read twice.
DI_DEVICE void CopyAsync16(void* shared, const void* global) {
#if DI_ARCH >= 800
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :: "r"(SharedAddress(shared)), "l"(global) : "memory");
#else
  *static_cast<uint4*>(shared) = __ldg(static_cast<const uint4*>(global));
#endif
}

// Both addresses are multiples of 4.
DI_DEVICE void CopyAsync4(void* shared, const void* global) {
#if DI_ARCH >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
               :: "r"(SharedAddress(shared)), "l"(global) : "memory");
#else
  *static_cast<uint32_t*>(shared) = __ldg(static_cast<const uint32_t*>(global));
#endif
}

// Closes the group of copies that this thread queued since the last commit.
DI_DEVICE void CopyCommit() {
#if DI_ARCH >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the `newest` groups of this thread are still under way. Other threads see
// the copies after a barrier.
template <int newest>
DI_DEVICE void CopyWait() {
#if DI_ARCH >= 800
  asm volatile("cp.async.wait_group %0;" :: "n"(newest) : "memory");
#endif
}

// ---- Matrix fragments (PTX ISA, "Matrix Fragments for mma") -------------------------------------

// ldmatrix.x4, from 7.5: lanes 8 m ... 8 m + 7 name the eight 16-byte rows of matrix m.
DI_DEVICE void LoadMatrices(uint32_t (&r)[4], const void* row_address_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row_address_of_lane)) : "memory");
}

DI_DEVICE void LoadMatricesTransposed(uint32_t (&r)[4], const void* row_address_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row_address_of_lane)) : "memory");
}

// c += A B, m16n8k16, A by rows, B by columns; from 7.5.
DI_DEVICE void MmaF16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if DI_ARCH >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

// The same in bfloat16; from 8.0.
DI_DEVICE void MmaBf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// m16n8k8 in TF32 (operands through RoundToTf32); from 8.0.
DI_DEVICE void MmaTf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four m8n8k4 products in float16, one for each quad pair (lanes 4 q ... 4 q + 3 and 16 more); 7.0.
// A by rows, B by columns.
DI_DEVICE void MmaVolta(float (&c)[8], uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
        "+f"(c[7])
      : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
}

// A by rows, B by rows.
DI_DEVICE void MmaVoltaRow(float (&c)[8], uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
        "+f"(c[7])
      : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
}

// ---- Host ---------------------------------------------------------------------------------------
#ifndef __CUDACC_RTC__

struct DeviceLimits {
  int error;                            // of the queries: a cudaError_t, 0 is success
  int multiprocessors;
  int shared_bytes_per_block;           // with opt-in
  int shared_bytes_per_multiprocessor;
  int compute_capability;               // times 10, of the code that runs here
};

// Leaves no error of ours behind for the next caller of cudaGetLastError.
inline int Taken(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

static __global__ void CompiledFor() {}

static DeviceLimits QueryLimits(int device) {
  DeviceLimits limits = {};
  const auto query = [&](int* value, cudaDeviceAttr attribute) {
    if (limits.error == 0) limits.error = Taken(cudaDeviceGetAttribute(value, attribute, device));
  };
  query(&limits.multiprocessors, cudaDevAttrMultiProcessorCount);
  query(&limits.shared_bytes_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  query(&limits.shared_bytes_per_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  // What runs is the newest code in the file that the part takes: 7.5 code on an 8.9 part has no
  // bfloat16 tensor cores.
  cudaFuncAttributes attributes = {};
  if (limits.error == 0) limits.error = Taken(cudaFuncGetAttributes(&attributes, CompiledFor));
  limits.compute_capability = attributes.ptxVersion;
  return limits;
}

// Of the current device; asked once for each. Not `inline`: two libraries of one process would share
// the cache, and this code may be another than theirs.
static DeviceLimits Limits() {
  constexpr int kCached = 64;
  static std::mutex mutex;
  static DeviceLimits cache[kCached];
  static bool known[kCached];
  int device = 0;
  DeviceLimits limits = {};
  limits.error = Taken(cudaGetDevice(&device));
  if (limits.error != 0) return limits;
  if (device >= kCached) return QueryLimits(device);
  std::lock_guard<std::mutex> lock(mutex);
  if (!known[device]) {
    limits = QueryLimits(device);
    if (limits.error != 0) return limits;
    cache[device] = limits;
    known[device] = true;
  }
  return cache[device];
}

// Lets a kernel take that much dynamic shared memory a block, and asks for the split of L1 and
// shared memory that keeps most blocks resident. A cudaError_t.
template <class Parameters>
int AllowSharedBytes(void (*kernel)(Parameters), int64_t shared_bytes) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return Taken(error);
  return Taken(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
}

// *blocks: how many are resident on a multiprocessor at a time. A cudaError_t.
template <class Parameters>
int BlocksPerMultiprocessor(void (*kernel)(Parameters), int threads, int64_t shared_bytes,
                            int* blocks) {
  return Taken(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads,
                                                             static_cast<size_t>(shared_bytes)));
}

// Queues the kernel on `stream` (a cudaStream_t). The launch's own cudaError_t.
template <class Parameters>
int Launch(void (*kernel)(Parameters), unsigned grid, unsigned block, int64_t shared_bytes,
           void* stream, const Parameters& parameters) {
  void* arguments[] = {const_cast<Parameters*>(&parameters)};
  return Taken(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(grid), dim3(block),
                                arguments, static_cast<size_t>(shared_bytes),
                                static_cast<cudaStream_t>(stream)));
}

// What a cudaError_t means; never null.
inline const char* ErrorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

#endif  // __CUDACC_RTC__

}  // namespace device
}  // namespace dot_interact

#endif  // DOT_INTERACT_EMULATE
#endif  // DOT_INTERACT_CUDA_PRIMITIVES_CUH_
