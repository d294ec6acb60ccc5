// The workspace of an update: where its parts lie. Host only.
#ifndef EMBEDDING_BAG_CUDA_WORKSPACE_CUH_
#define EMBEDDING_BAG_CUDA_WORKSPACE_CUH_

#include <type_traits>

#include "arguments.cuh"
#include "reduce.cuh"
#include "sort.cuh"

namespace embedding_bag {
namespace device {
namespace {

struct Workspace {
  uint32_t* keys[2];
  void* payloads[2];
  Count* tiles;
  Sorted* sorted;
  UseOnDevice* uses;
  Partials partials;
  void* scratch;  // of the sort
  size_t scratch_bytes;
  int64_t bytes;  // of all
  int error;      // of the sort's query of its scratch: a cudaError_t
};

// Bits of the largest key, which is the number of rows.
int BitsOfKeys(const embedding_bag_table& table) {
  int bits = 1;
  while (table.rows >> bits != 0) ++bits;
  return bits;
}

// Calls visit with a null pointer to the payload's type.
template <class Visit>
int WithPayload(bool weighted, const Visit& visit) {
  if (weighted) return visit(static_cast<WeightedBag*>(nullptr));
  return visit(static_cast<BagNumber*>(nullptr));
}

int64_t TilesOf(int64_t num_pairs) { return (num_pairs + kTile - 1) / kTile; }

// The parts in `memory`, at any address. The number of bytes is enough for any address.
Workspace LayOut(const embedding_bag_table& table, const Totals& totals, int64_t num_uses,
                 void* memory) {
  constexpr uint64_t kAlignment = 256;
  Workspace workspace = {};
  const uint64_t begin = reinterpret_cast<uintptr_t>(memory);
  uint64_t end = begin;
  const auto take = [&](int64_t count, int64_t size) {
    const uint64_t address = (end + kAlignment - 1) / kAlignment * kAlignment;
    end = address + static_cast<uint64_t>(count * size);
    return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  };
  const int64_t pairs = totals.num_ids;
  const int64_t payload_bytes = totals.weighted ? sizeof(WeightedBag) : sizeof(BagNumber);
  const int64_t stretches = (pairs + kStretch - 1) / kStretch;
  for (uint32_t*& keys : workspace.keys) keys = static_cast<uint32_t*>(take(pairs, 4));
  for (void*& payloads : workspace.payloads) payloads = take(pairs, payload_bytes);
  workspace.tiles = static_cast<Count*>(take(TilesOf(pairs), sizeof(Count)));
  workspace.sorted = static_cast<Sorted*>(take(1, sizeof(Sorted)));
  workspace.uses = static_cast<UseOnDevice*>(take(num_uses, sizeof(UseOnDevice)));
  workspace.partials.sums = static_cast<float*>(take(2 * stretches * table.dim, sizeof(float)));
  workspace.partials.numbers = static_cast<uint32_t*>(take(stretches, 4));
  if (pairs > 0) {
    int sorted;
    workspace.error = WithPayload(totals.weighted, [&](auto* payload) {
      using Payload = std::remove_pointer_t<decltype(payload)>;
      Payload* const none[2] = {nullptr, nullptr};
      return SortPairs<Payload>(nullptr, &workspace.scratch_bytes, workspace.keys, none,
                                static_cast<uint32_t>(pairs), BitsOfKeys(table), &sorted, nullptr);
    });
  }
  workspace.scratch = take(1, static_cast<int64_t>(workspace.scratch_bytes));
  workspace.bytes = static_cast<int64_t>(end - begin + kAlignment - 1);
  return workspace;
}

}  // namespace
}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_WORKSPACE_CUH_
