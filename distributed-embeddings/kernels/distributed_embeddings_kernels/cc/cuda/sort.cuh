// The stable radix sort of the toolkit (CUB); a test build replaces it by one on a CPU.
#ifndef EMBEDDING_BAG_CUDA_SORT_CUH_
#define EMBEDDING_BAG_CUDA_SORT_CUH_

#ifdef EMBEDDING_BAG_EMULATE
#include "emulated_sort.h"
#else

// Names of our own: other libraries of the process, TensorFlow first, have another CUB.
#define CUB_WRAPPED_NAMESPACE embedding_bag_cub
#include <cub/device/device_radix_sort.cuh>

#include "primitives.cuh"

namespace embedding_bag {
namespace device {

// Sorts `count` pairs by the low `num_bits` bits of their keys. On entry keys[0] and values[0] hold
// the pairs; *sorted says which of the two buffers holds them afterwards. With null `scratch` only
// *scratch_bytes is set. A cudaError_t.
template <class Value>
int SortPairs(void* scratch, size_t* scratch_bytes, uint32_t* const (&keys)[2],
              Value* const (&values)[2], uint32_t count, int num_bits, int* sorted, void* stream) {
  namespace cub = embedding_bag_cub::cub;
  cub::DoubleBuffer<uint32_t> key_buffers(keys[0], keys[1]);
  cub::DoubleBuffer<Value> value_buffers(values[0], values[1]);
  const cudaError_t error =
      cub::DeviceRadixSort::SortPairs(scratch, *scratch_bytes, key_buffers, value_buffers, count, 0,
                                      num_bits, static_cast<cudaStream_t>(stream));
  *sorted = key_buffers.selector;
  return Taken(error);
}

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_EMULATE
#endif  // EMBEDDING_BAG_CUDA_SORT_CUH_
