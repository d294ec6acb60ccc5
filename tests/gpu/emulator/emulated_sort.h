// The contents of the embedding bag's sort.cuh on a CPU: a stable sort that leaves as little behind
// as the toolkit's promises.
#ifndef EMBEDDING_BAG_EMULATOR_EMULATED_SORT_H_
#define EMBEDDING_BAG_EMULATOR_EMULATED_SORT_H_

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "emulated_embedding_bag.h"

namespace embedding_bag {
namespace device {

template <class Value>
int SortPairs(void* scratch, size_t* scratch_bytes, uint32_t* const (&keys)[2],
              Value* const (&values)[2], uint32_t count, int num_bits, int* sorted, void* stream) {
  constexpr int kBitsOfPass = 8;
  const size_t needed_bytes = 1000 + count / 2;
  if (scratch == nullptr) {
    *scratch_bytes = needed_bytes;
    return 0;
  }
  if (*scratch_bytes < needed_bytes || num_bits < 1 || num_bits > 32) {
    return emulator::kInvalidValue;
  }
  if (stream != emulator::CurrentStream()) return emulator::kLaunchFailure;
  // Which buffer has the result depends on the number of passes; the other one has garbage.
  *sorted = (num_bits + kBitsOfPass - 1) / kBitsOfPass % 2;
  const uint32_t mask = 0xffffffffu >> (32 - num_bits);
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t left, uint32_t right) {
    return (keys[0][left] & mask) < (keys[0][right] & mask);
  });
  const std::vector<uint32_t> old_keys(keys[0], keys[0] + count);
  const std::vector<Value> old_values(values[0], values[0] + count);
  for (int buffer = 0; buffer < 2; ++buffer) {
    memset(static_cast<void*>(keys[buffer]), 0xff, count * sizeof(uint32_t));
    memset(static_cast<void*>(values[buffer]), 0xff, count * sizeof(Value));
  }
  memset(scratch, 0xff, needed_bytes);
  for (uint32_t i = 0; i < count; ++i) {
    keys[*sorted][i] = old_keys[order[i]];
    values[*sorted][i] = old_values[order[i]];
  }
  return 0;
}

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_EMULATOR_EMULATED_SORT_H_
