// Pieces of the sorted pairs: a piece has one row, and ends where its row or a stretch of kStretch
// pairs ends. So a long run is several pieces, whose bounds follow from the sorted keys alone, and
// sums do not depend on the number of threads.
//
// Three launches find them: tiles of pairs count theirs; one block adds up the counts; tiles write.
#ifndef EMBEDDING_BAG_CUDA_RUNS_CUH_
#define EMBEDDING_BAG_CUDA_RUNS_CUH_

#include "vectors.cuh"

namespace embedding_bag {
namespace device {

constexpr int kStretch = 64;
constexpr int kPairsPerThread = 16;  // 64 bytes of keys: four loads, or two memory sectors
constexpr int kTile = kThreads * kPairsPerThread;

// In the workspace: what the sort and the launches below left for those that follow.
struct Sorted {
  const uint32_t* keys;     // [num_pairs], ascending
  const void* payloads;     // [num_pairs]
  const uint32_t* pieces;   // first pair of each piece
  const uint32_t* numbers;  // of the row of each piece, among the rows that occur
  uint32_t num_pieces;
};

struct Count {
  uint32_t pieces;
  uint32_t rows;
};

struct RunsParameters {
  uint32_t num_pairs;
  uint32_t num_tiles;
  uint32_t no_row;
  const uint32_t* keys;
  const void* payloads;
  Count* tiles;       // [num_tiles]: counts, then those of the tiles before
  uint32_t* pieces;   // [num_pairs]
  uint32_t* numbers;  // [num_pairs], or null where rows need no numbers
  Sorted* sorted;
  int64_t* num_rows;  // or null
};

EB_DEVICE bool BeginsRow(const uint32_t* keys, uint32_t pair) {
  return pair == 0 || keys[pair] != keys[pair - 1];
}

// Sum over the threads of a block before this one, and (*total) over all. shared: [kThreads].
EB_DEVICE Count SumOfThreadsBefore(Count own, Count* shared, Count* total) {
  const unsigned thread = ThreadIndex();
  Count sum = own;
  for (unsigned distance = 1; distance < kThreads; distance *= 2) {
    shared[thread] = sum;
    SyncBlock();
    if (thread >= distance) {
      sum.pieces += shared[thread - distance].pieces;
      sum.rows += shared[thread - distance].rows;
    }
    SyncBlock();
  }
  shared[thread] = sum;
  SyncBlock();
  *total = shared[kThreads - 1];
  SyncBlock();
  return {sum.pieces - own.pieces, sum.rows - own.rows};
}

// The pairs of a thread, [first, first + kPairsPerThread): bits of those that begin a row, a piece.
struct Beginnings {
  uint64_t first;
  uint32_t rows;
  uint32_t pieces;
};

EB_DEVICE Beginnings FindBeginnings(const RunsParameters& p, uint32_t tile) {
  const uint64_t first = static_cast<uint64_t>(tile) * kTile + ThreadIndex() * kPairsPerThread;
  Beginnings beginnings = {first, 0, 0};
  if (first >= p.num_pairs) return beginnings;
  uint32_t key[kPairsPerThread] = {};
  if (first + kPairsPerThread <= p.num_pairs) {
    const auto keys = Load<uint32_t, kPairsPerThread>(p.keys + first);
    memcpy(key, &keys, sizeof key);
  } else {
    EB_UNROLL
    for (int i = 0; i < kPairsPerThread; ++i) {
      if (first + i < p.num_pairs) key[i] = p.keys[first + i];
    }
  }
  uint32_t before = first == 0 ? ~key[0] : p.keys[first - 1];
  EB_UNROLL
  for (int i = 0; i < kPairsPerThread; ++i) {
    if (first + i < p.num_pairs && key[i] != before) beginnings.rows |= 1u << i;
    before = key[i];
  }
  static_assert(kStretch % kPairsPerThread == 0, "a stretch begins with a thread's first pair");
  beginnings.pieces = beginnings.rows | (first % kStretch == 0);
  return beginnings;
}

EB_DEVICE Count CountOf(const Beginnings& beginnings) {
  Count count = {};
  EB_UNROLL
  for (int i = 0; i < kPairsPerThread; ++i) {
    count.pieces += beginnings.pieces >> i & 1;
    count.rows += beginnings.rows >> i & 1;
  }
  return count;
}

// One block for each tile.
EB_KERNEL void EB_LAUNCH_BOUNDS(kThreads, 4) CountRunsKernel(RunsParameters p) {
  EB_SHARED(shared);
  for (uint32_t tile = BlockIndex(); tile < p.num_tiles; tile += GridSize()) {
    Count total;
    SumOfThreadsBefore(CountOf(FindBeginnings(p, tile)), reinterpret_cast<Count*>(shared), &total);
    if (ThreadIndex() == 0) p.tiles[tile] = total;
  }
}

// One block: each thread takes neighbouring tiles.
EB_KERNEL void EB_LAUNCH_BOUNDS(kThreads, 1) AddRunsKernel(RunsParameters p) {
  EB_SHARED(shared);
  const uint64_t first = static_cast<uint64_t>(p.num_tiles) * ThreadIndex() / kThreads;
  const uint64_t last = static_cast<uint64_t>(p.num_tiles) * (ThreadIndex() + 1) / kThreads;
  Count own = {};
  for (uint64_t tile = first; tile < last; ++tile) {
    own.pieces += p.tiles[tile].pieces;
    own.rows += p.tiles[tile].rows;
  }
  Count total;
  Count before = SumOfThreadsBefore(own, reinterpret_cast<Count*>(shared), &total);
  for (uint64_t tile = first; tile < last; ++tile) {
    const Count count = p.tiles[tile];
    p.tiles[tile] = before;
    before.pieces += count.pieces;
    before.rows += count.rows;
  }
  if (ThreadIndex() != 0) return;
  *p.sorted = {p.keys, p.payloads, p.pieces, p.numbers, total.pieces};
  const bool has_no_row = p.num_pairs > 0 && p.keys[p.num_pairs - 1] == p.no_row;
  if (p.num_rows != nullptr) *p.num_rows = static_cast<int64_t>(total.rows) - has_no_row;
}

// One block for each tile.
EB_KERNEL void EB_LAUNCH_BOUNDS(kThreads, 4) WriteRunsKernel(RunsParameters p) {
  EB_SHARED(shared);
  for (uint32_t tile = BlockIndex(); tile < p.num_tiles; tile += GridSize()) {
    Count total;
    const Beginnings beginnings = FindBeginnings(p, tile);
    Count before = SumOfThreadsBefore(CountOf(beginnings), reinterpret_cast<Count*>(shared),
                                      &total);
    before.pieces += p.tiles[tile].pieces;
    before.rows += p.tiles[tile].rows;
    EB_UNROLL
    for (int i = 0; i < kPairsPerThread; ++i) {
      before.rows += beginnings.rows >> i & 1;
      if ((beginnings.pieces >> i & 1) == 0) continue;
      p.pieces[before.pieces] = static_cast<uint32_t>(beginnings.first + i);
      if (p.numbers != nullptr) p.numbers[before.pieces] = before.rows - 1;
      ++before.pieces;
    }
  }
}

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_RUNS_CUH_
