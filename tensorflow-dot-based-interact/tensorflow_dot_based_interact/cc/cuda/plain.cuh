// The dot interaction without tiles: one thread a number of the result, any size.
//
// For sizes beyond the tiles'; it reads an input F times (from the caches), so it is no match for
// them.
#ifndef DOT_INTERACT_CUDA_PLAIN_CUH_
#define DOT_INTERACT_CUDA_PLAIN_CUH_

#include "primitives.cuh"

namespace dot_interact {
namespace device {

struct PlainParameters {
  int64_t batch, features, dim, head, width;
  int64_t first_stride, rest_stride;  // in numbers
  const void* first;
  const void* rest;
  const void* row;      // forward: the head; backward: the upstream rows
  void* output;         // forward
  void* first_gradient;
  void* rest_gradient;
  void* head_gradient;  // null: to be added to that of first
};

template <class T>
DI_DEVICE const T* PlainRow(const PlainParameters& p, int64_t sample, int64_t row) {
  return row == 0 ? static_cast<const T*>(p.first) + sample * p.first_stride
                  : static_cast<const T*>(p.rest) + sample * p.rest_stride + (row - 1) * p.dim;
}

template <class T>
DI_KERNEL void DI_LAUNCH_BOUNDS(256, 1) PlainForwardKernel(PlainParameters p) {
  const int64_t pairs = p.features * (p.features - 1) / 2;
  const int64_t step = static_cast<int64_t>(GridSize()) * BlockSize();
  for (int64_t index = static_cast<int64_t>(BlockIndex()) * BlockSize() + ThreadIndex();
       index < p.batch * p.width; index += step) {
    const int64_t sample = index / p.width;
    const int64_t place = index % p.width;
    T* output = static_cast<T*>(p.output) + index;
    if (place < p.head) {
      *output = static_cast<const T*>(p.row)[sample * p.head + place];
      continue;
    }
    const int64_t pair = place - p.head;
    if (pair >= pairs) {
      *output = FromFloat<T>(0.0f);
      continue;
    }
    int64_t low = 1, high = p.features;  // the row is in [low, high): its first pair is no later
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (middle * (middle - 1) / 2 <= pair) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const T* left = PlainRow<T>(p, sample, low);
    const T* right = PlainRow<T>(p, sample, pair - low * (low - 1) / 2);
    float sum[4] = {};  // four sums: shorter chains, smaller rounding errors
    for (int64_t k = 0; k < p.dim; k += 4) {
      DI_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (k + i < p.dim) sum[i] += ToFloat(left[k + i]) * ToFloat(right[k + i]);
      }
    }
    *output = FromFloat<T>((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}

template <class T>
DI_KERNEL void DI_LAUNCH_BOUNDS(256, 1) PlainBackwardKernel(PlainParameters p) {
  const int64_t sample_numbers = p.features * p.dim;
  const int64_t head_numbers = p.head_gradient != nullptr ? p.head : 0;
  const int64_t all = sample_numbers + head_numbers;
  const int64_t step = static_cast<int64_t>(GridSize()) * BlockSize();
  for (int64_t index = static_cast<int64_t>(BlockIndex()) * BlockSize() + ThreadIndex();
       index < p.batch * all; index += step) {
    const int64_t sample = index / all;
    const int64_t place = index % all;
    const T* upstream = static_cast<const T*>(p.row) + sample * p.width;
    if (place >= sample_numbers) {
      const int64_t column = place - sample_numbers;
      static_cast<T*>(p.head_gradient)[sample * p.head + column] = upstream[column];
      continue;
    }
    const int64_t row = place / p.dim;
    const int64_t column = place % p.dim;
    const T* pairs = upstream + p.head;
    float sum[2] = {};
    for (int64_t other = 0; other < row; ++other) {
      sum[0] += ToFloat(pairs[row * (row - 1) / 2 + other]) *
                ToFloat(PlainRow<T>(p, sample, other)[column]);
    }
    for (int64_t other = row + 1; other < p.features; ++other) {
      sum[1] += ToFloat(pairs[other * (other - 1) / 2 + row]) *
                ToFloat(PlainRow<T>(p, sample, other)[column]);
    }
    float total = sum[0] + sum[1];
    if (row == 0 && p.head > 0 && p.head_gradient == nullptr) total += ToFloat(upstream[column]);
    T* gradient = row == 0 ? static_cast<T*>(p.first_gradient) + sample * p.first_stride
                           : static_cast<T*>(p.rest_gradient) + sample * p.rest_stride +
                                 (row - 1) * p.dim;
    gradient[column] = FromFloat<T>(total);
  }
}

}  // namespace device
}  // namespace dot_interact

#endif  // DOT_INTERACT_CUDA_PLAIN_CUH_
