// The machine beneath the kernels: numbers, threads, launches. Everything that only CUDA has is
// here and in sort.cuh: a test build (EMBEDDING_BAG_EMULATE) replaces both by the same names on a
// CPU. Also compiles with NVRTC, without the host part.
#ifndef EMBEDDING_BAG_CUDA_PRIMITIVES_CUH_
#define EMBEDDING_BAG_CUDA_PRIMITIVES_CUH_

#include <stdint.h>
#include <string.h>

#ifdef EMBEDDING_BAG_EMULATE
#include "emulated_embedding_bag.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#define EB_KERNEL __global__
#define EB_DEVICE __device__ __forceinline__
#define EB_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define EB_UNROLL _Pragma("unroll")
// A block's dynamic shared memory: `unsigned char name[]`, 16-byte aligned.
#define EB_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

namespace embedding_bag {
namespace device {

using half = __half;
using bf16 = __nv_bfloat16;

// ---- Numbers ------------------------------------------------------------------------------------

EB_DEVICE float ToFloat(float x) { return x; }
EB_DEVICE float ToFloat(half x) { return __half2float(x); }
EB_DEVICE float ToFloat(bf16 x) { return __bfloat162float(x); }

// Rounds to the nearest, ties to even.
template <class T>
EB_DEVICE T FromFloat(float x);
template <>
EB_DEVICE float FromFloat<float>(float x) { return x; }
template <>
EB_DEVICE half FromFloat<half>(float x) { return __float2half_rn(x); }
template <>
EB_DEVICE bf16 FromFloat<bf16>(float x) { return __float2bfloat16_rn(x); }

EB_DEVICE float FloatOfBits(uint32_t bits) { return __uint_as_float(bits); }
EB_DEVICE uint32_t BitsOfFloat(float x) { return __float_as_uint(x); }

// Stores 16 or 8 bytes at once: the compiler makes single stores of an assignment of uint4, where
// its words are made one by one.
EB_DEVICE void StoreWords(void* to, const uint32_t (&word)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "l"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
}
EB_DEVICE void StoreWords(void* to, const uint32_t (&word)[2]) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};"
               :: "l"(to), "r"(word[0]), "r"(word[1]) : "memory");
}

// Tells the compiler that a pointer which it reads from memory is one to global memory.
template <class T>
EB_DEVICE T* Global(T* pointer) {
  __builtin_assume(__isGlobal(pointer));
  return pointer;
}

// ---- Threads ------------------------------------------------------------------------------------

EB_DEVICE unsigned ThreadIndex() { return threadIdx.x; }
EB_DEVICE unsigned BlockIndex() { return blockIdx.x; }
EB_DEVICE unsigned BlockSize() { return blockDim.x; }
EB_DEVICE unsigned GridSize() { return gridDim.x; }

EB_DEVICE void SyncBlock() { __syncthreads(); }

// The value of lane `lane ^ mask`, or of lane `source`; all lanes of the warp take part.
EB_DEVICE float ShuffleXor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
EB_DEVICE float ShuffleFrom(float value, int source) {
  return __shfl_sync(0xffffffffu, value, source);
}

// ---- Host ---------------------------------------------------------------------------------------
#ifndef __CUDACC_RTC__

// Vectors of the output in a launch of the lookup.
constexpr int64_t kMaxVectors = INT32_MAX;

// Leaves no error of ours behind for the next caller of cudaGetLastError.
inline int Taken(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

// Of the current device. A cudaError_t.
inline int Multiprocessors(int* count) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return Taken(error);
  return Taken(cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device));
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

// Queues a copy on `stream`, within the device or between it and the host. A cudaError_t.
inline int Copy(void* to, const void* from, int64_t bytes, void* stream) {
  return Taken(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                               static_cast<cudaStream_t>(stream)));
}

// Returns when all that is queued on `stream` is done. A cudaError_t.
inline int Wait(void* stream) {
  return Taken(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

// The meaning of a cudaError_t; never null.
inline const char* ErrorText(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

#endif  // __CUDACC_RTC__

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_EMULATE
#endif  // EMBEDDING_BAG_CUDA_PRIMITIVES_CUH_
