// The optimizers: how a row moves by its gradient.
#ifndef EMBEDDING_BAG_CUDA_OPTIMIZERS_CUH_
#define EMBEDDING_BAG_CUDA_OPTIMIZERS_CUH_

#include "vectors.cuh"

namespace embedding_bag {
namespace device {

enum : int { kSgd, kAdagrad, kRowWiseAdagrad, kAdam };  // lazy or not is a matter of the rows

struct Scalars {  // in the order of the interface
  float gradient_factor;
  float rate;
  float kept;
  float epsilon;
  float beta1;
  float beta2;
};

// Some numbers of a row and of its slots, before they move.
template <class T, int count>
struct RowNumbers {
  Vector<T, count> weight;
  Vector<float, count> slots[2];
};

// A table of dtype T and its slots.
template <class T, int kind>
struct Optimizer {
  T* values;
  float* slots[2];
  const Scalars* scalars;  // on the device
  int64_t dim;

  // Adam's numbers of a row take more registers.
  static constexpr int kMaxBlocks = kind == kAdam ? 3 : 4;
  static constexpr bool kNeedsSquares = kind == kRowWiseAdagrad;
  // Slots with a number for each of the table's.
  static constexpr int kSlots = kind == kAdam ? 2 : kind == kAdagrad;

  EB_DEVICE float GradientFactor() const { return scalars->gradient_factor; }

  // Adds the mean square of a row's gradient to its accumulator, which it returns.
  EB_DEVICE float AddSquares(int64_t row, float squares) const {
    return slots[0][row] += squares / static_cast<float>(dim);
  }

  template <int count>
  EB_DEVICE RowNumbers<T, count> LoadRow(int64_t row, int32_t number) const {
    const int64_t offset = row * dim + number;
    RowNumbers<T, count> numbers = {};
    numbers.weight = Load<T, count>(values + offset);
    EB_UNROLL
    for (int i = 0; i < kSlots; ++i) numbers.slots[i] = Load<float, count>(slots[i] + offset);
    return numbers;
  }

  // Moves numbers of a row by their gradient and writes them. accumulator: the row's, of row-wise
  // Adagrad.
  template <int count>
  EB_DEVICE void FinishRow(int64_t row, uint32_t, int32_t number,
                           const RowNumbers<T, count>& before, const float (&gradient)[count],
                           float accumulator) const {
    const Scalars s = *scalars;
    const int64_t offset = row * dim + number;
    T stored[count];
    memcpy(stored, &before.weight, sizeof stored);
    float weight[count], slot[2][count];
    memcpy(slot, before.slots, sizeof slot);
    EB_UNROLL
    for (int i = 0; i < count; ++i) {
      const float g = s.gradient_factor * gradient[i];
      float step = s.rate * g;
      if constexpr (kind == kAdagrad) {
        slot[0][i] += g * g;
        step /= sqrtf(slot[0][i]) + s.epsilon;
      } else if constexpr (kind == kRowWiseAdagrad) {
        step /= sqrtf(accumulator) + s.epsilon;
      } else if constexpr (kind != kSgd) {
        slot[0][i] = s.beta1 * slot[0][i] + (1.0f - s.beta1) * g;
        slot[1][i] = s.beta2 * slot[1][i] + (1.0f - s.beta2) * g * g;
        step = s.rate * slot[0][i] / (sqrtf(slot[1][i]) + s.epsilon);
      }
      weight[i] = s.kept * ToFloat(stored[i]) - step;
    }
    StoreFloats<T, count>(values + offset, weight);
    EB_UNROLL
    for (int i = 0; i < kSlots; ++i) StoreFloats<float, count>(slots[i] + offset, slot[i]);
  }
};

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_OPTIMIZERS_CUH_
