// Ids to pairs of a row and what its gradient takes from it: the input of the sort.
#ifndef EMBEDDING_BAG_CUDA_EXPAND_CUH_
#define EMBEDDING_BAG_CUDA_EXPAND_CUH_

#include "ids.cuh"

namespace embedding_bag {
namespace device {

// The bag of an id, counted through all uses; and, where a use has weights or means, the factor of
// the bag's gradient.
using BagNumber = uint32_t;
struct alignas(8) WeightedBag {
  uint32_t bag;
  uint32_t factor_bits;
};

// A use in the workspace: its gradients are those of the bags from first_bag on.
struct UseOnDevice {
  const void* gradient;
  int64_t first_bag;
};

struct ExpandParameters {
  Ids ids;
  int64_t items;           // of this launch: the ids of its columns
  Divisor ids_of_columns;  // of a sample; without splits
  int64_t first_bag;       // of this use, of all uses
  int64_t first_id;
  uint32_t no_row;         // the key of ids out of range: the number of rows, so that it comes last
  uint32_t* keys;
  void* payloads;
  UseOnDevice* use;
  const void* gradient;
  Columns columns;
};

EB_DEVICE void MakePayload(BagNumber* payload, uint32_t bag, float) { *payload = bag; }
EB_DEVICE void MakePayload(WeightedBag* payload, uint32_t bag, float factor) {
  *payload = {bag, BitsOfFloat(factor)};
}

// The last i in [0, count) with first(i) <= value, or 0; first(i) ascends.
template <class Int, class First>
EB_DEVICE Int LastNotAbove(Int count, Int value, const First& first) {
  Int low = 0, high = count;
  while (high - low > 1) {
    const Int middle = low + (high - low) / 2;
    if (first(middle) <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// One thread for each id.
template <class Payload>
EB_KERNEL void EB_LAUNCH_BOUNDS(kThreads, 4) ExpandKernel(ExpandParameters p) {
  EB_SHARED(shared);
  Column* columns = reinterpret_cast<Column*>(shared);
  LoadColumns(columns, p.columns);
  const int64_t thread = static_cast<int64_t>(BlockIndex()) * BlockSize() + ThreadIndex();
  if (thread == 0) *p.use = {p.gradient, p.first_bag};
  const int64_t step = static_cast<int64_t>(GridSize()) * BlockSize();
  for (int64_t item = thread; item < p.items; item += step) {
    int64_t sample, column = 0, position = item;
    if (p.ids.splits == nullptr) {
      sample = Quotient(static_cast<uint32_t>(item), p.ids_of_columns);
      const int64_t place = item - sample * p.ids_of_columns.divisor + columns[0].first;
      // In 32 bits: the instructions of this search are most of the kernel's.
      column = LastNotAbove(static_cast<uint32_t>(p.columns.count), static_cast<uint32_t>(place),
                            [&](uint32_t i) { return columns[i].first; });
      position = sample * p.ids.ids_per_sample + place;
    } else {
      sample = LastNotAbove(p.ids.num_samples, item, [&](int64_t i) { return p.ids.splits[i]; });
    }
    int64_t id[1];
    LoadIds(p.ids, position, position + 1, id);
    const int64_t row = RowOf(id[0], columns[column]);
    float factor = BagOf(p.ids, sample, columns[column]).factor;
    if (p.ids.weights != nullptr) factor *= p.ids.weights[position];
    const int64_t bag = p.first_bag + sample * p.ids.num_columns + p.columns.first + column;
    const int64_t to = p.first_id + position;
    p.keys[to] = row < 0 ? p.no_row : static_cast<uint32_t>(row);
    MakePayload(static_cast<Payload*>(p.payloads) + to, static_cast<uint32_t>(bag), factor);
  }
}

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_EXPAND_CUH_
