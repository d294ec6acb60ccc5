// Sums of the gradients of equal rows, and what becomes of them: an update or a list.
//
// A group of lanes (1 to 32, the power of two that has one for each vector of a row) takes a piece
// of the sorted pairs at a time. If the piece is a row's whole run, the group finishes the row;
// otherwise it leaves a partial sum in the workspace, and a second launch adds those of a row in
// their order and finishes it. Both launches are this one kernel, with another source of sums.
//
// A row that occurs once, float32, dim 128, SGD: 512 bytes of gradient and of weights are read, 512
// written, all by 16 bytes; the weights are under way before the gradient has come. The bounds of a
// piece, its row and its first bags are loaded while the group sums the pieces before: read in
// turn, each would wait for the one before it.
#ifndef EMBEDDING_BAG_CUDA_REDUCE_CUH_
#define EMBEDDING_BAG_CUDA_REDUCE_CUH_

#include "expand.cuh"
#include "optimizers.cuh"
#include "runs.cuh"

namespace embedding_bag {
namespace device {

// Loads of each thread under way at once. Few groups add partial sums, some of them thousands.
constexpr int kSumsAhead = 2;
constexpr int kPartialsAhead = 8;

// A piece lies in one stretch. Partial sum 2 s is that of the piece in stretch s whose row began
// before; 2 s + 1 that of the piece whose row begins in it and goes on in the next one.
struct Partials {
  float* sums;        // [2 * stretches, dim]
  uint32_t* numbers;  // [stretches] of the row that goes on beyond a stretch; or null
};

struct Item {
  uint32_t row;
  uint32_t number;  // of the row, among those that occur
  uint32_t begin;
  uint32_t end;
  int64_t partial;  // where its sum goes; -1: it is the row's whole sum
};

// Bags of some pairs and the factors of their gradients.
struct Payloads {
  uint32_t bag[kSumsAhead];
  float factor[kSumsAhead];
};

// ---- Sources ------------------------------------------------------------------------------------

// Pieces of the sorted pairs: sums of gradients [bags, dim] of dtype G.
template <class G>
struct PieceSource {
  static constexpr int kMaxBlocks = 4;

  const Sorted* sorted;
  const UseOnDevice* uses;
  const void* gradient;  // of the only use; null: there are several
  int64_t dim;
  Partials partials;
  uint32_t num_pairs;
  uint32_t no_row;
  int32_t num_uses;
  int32_t weighted;

  EB_DEVICE uint32_t NumItems() const { return sorted->num_pieces; }

  // What is loaded first of a piece; then, by its bounds, what its sum begins with.
  struct Bounds {
    uint32_t begin;
    uint32_t end;  // begin: there is no such piece
  };
  struct Ahead {
    Bounds bounds;
    uint32_t row;
    Payloads payloads;
  };

  EB_DEVICE Bounds LoadBounds(uint64_t index) const {
    const uint32_t* pieces = Global(sorted->pieces);
    Bounds bounds = {num_pairs, num_pairs};
    if (index < sorted->num_pieces) bounds.begin = pieces[index];
    if (index + 1 < sorted->num_pieces) bounds.end = pieces[index + 1];
    return bounds;
  }

  EB_DEVICE Ahead LoadAhead(const Bounds& bounds) const {
    Ahead ahead = {bounds, no_row, LoadPayloads(bounds.begin, bounds.end)};
    if (bounds.begin < bounds.end) ahead.row = Global(sorted->keys)[bounds.begin];
    return ahead;
  }

  // False: nothing is to be done.
  EB_DEVICE bool Find(const Ahead& ahead, uint64_t index, bool writes, Item* item) const {
    if (ahead.row == no_row) return false;
    item->row = ahead.row;
    item->begin = ahead.bounds.begin;
    item->end = ahead.bounds.end;
    item->number = sorted->numbers == nullptr ? 0 : Global(sorted->numbers)[index];
    // Inside a stretch, a piece begins and ends where its row does.
    const uint32_t* keys = Global(sorted->keys);
    const bool begins = item->begin % kStretch != 0 || BeginsRow(keys, item->begin);
    const bool ends = item->end % kStretch != 0 || item->end == num_pairs ||
                      keys[item->end] != item->row;
    const uint32_t stretch = item->begin / kStretch;
    item->partial = begins && ends ? -1 : 2 * static_cast<int64_t>(stretch) + begins;
    if (begins && !ends && writes && partials.numbers != nullptr) {
      partials.numbers[stretch] = item->number;
    }
    return true;
  }

  // Of the pairs from `pair` on; those from `end` on have the factor 0.
  EB_DEVICE Payloads LoadPayloads(uint64_t pair, uint32_t end) const {
    WeightedBag payload[kSumsAhead] = {};
    if (weighted) {
      const WeightedBag* from = static_cast<const WeightedBag*>(Global(sorted->payloads)) + pair;
      EB_UNROLL
      for (int i = 0; i < kSumsAhead; ++i) {
        if (pair + i < end) payload[i] = from[i];
      }
    } else {
      const BagNumber* from = static_cast<const BagNumber*>(Global(sorted->payloads)) + pair;
      EB_UNROLL
      for (int i = 0; i < kSumsAhead; ++i) {
        if (pair + i < end) payload[i] = {from[i], BitsOfFloat(1.0f)};
      }
    }
    Payloads payloads;
    EB_UNROLL
    for (int i = 0; i < kSumsAhead; ++i) {
      payloads.bag[i] = payload[i].bag;
      payloads.factor[i] = FloatOfBits(payload[i].factor_bits);
    }
    return payloads;
  }

  EB_DEVICE const G* GradientOf(uint32_t bag) const {
    const int64_t use = LastNotAbove<int64_t>(num_uses, bag,
                                              [&](int64_t i) { return uses[i].first_bag; });
    return static_cast<const G*>(uses[use].gradient) + (bag - uses[use].first_bag) * dim;
  }

  template <int count>
  EB_DEVICE void Sum(const Ahead& ahead, const Item& item, int32_t number,
                     float (&sum)[count]) const {
    EB_UNROLL
    for (int i = 0; i < count; ++i) sum[i] = 0.0f;
    Payloads payloads = ahead.payloads;
    for (uint64_t pair = item.begin; pair < item.end; pair += kSumsAhead) {
      const G* from[kSumsAhead];
      EB_UNROLL
      for (int i = 0; i < kSumsAhead; ++i) {
        from[i] = static_cast<const G*>(gradient) + payloads.bag[i] * dim;
        if (gradient == nullptr) from[i] = GradientOf(payloads.bag[i]);
      }
      Vector<G, count> vector[kSumsAhead] = {};
      EB_UNROLL
      for (int i = 0; i < kSumsAhead; ++i) {
        if (pair + i < item.end) vector[i] = Load<G, count>(Global(from[i]) + number);
      }
      // The next bags are known when these gradients have come.
      const Payloads next = LoadPayloads(pair + kSumsAhead, item.end);
      EB_UNROLL
      for (int i = 0; i < kSumsAhead; ++i) AddTo<G, count>(sum, payloads.factor[i], vector[i]);
      payloads = next;
    }
  }
};

// Rows of several pieces: an item is a stretch, in which such a row may begin.
struct PartialSource {
  static constexpr int kMaxBlocks = 2;

  const Sorted* sorted;
  int64_t dim;
  Partials partials;
  uint32_t num_pairs;
  uint32_t no_row;

  EB_DEVICE uint32_t NumItems() const { return num_pairs / kStretch; }

  // Few stretches have anything to do: nothing is loaded before their turn.
  struct Bounds {};
  struct Ahead {};
  EB_DEVICE Bounds LoadBounds(uint64_t) const { return {}; }
  EB_DEVICE Ahead LoadAhead(const Bounds&) const { return {}; }

  EB_DEVICE bool Find(const Ahead&, uint64_t index, bool, Item* item) const {
    if (index >= NumItems()) return false;
    const uint32_t* keys = Global(sorted->keys);
    const uint32_t stretch = static_cast<uint32_t>(index);
    const uint32_t first = stretch * kStretch;
    const uint32_t last = first + kStretch - 1;
    if (last + 1 == num_pairs) return false;
    const uint32_t next_row = keys[last + 1];
    const uint32_t first_row = keys[first];
    item->row = keys[last];
    if (item->row == no_row || next_row != item->row) return false;
    if (first_row == item->row && !BeginsRow(keys, first)) return false;  // began before
    item->number = partials.numbers == nullptr ? 0 : partials.numbers[stretch];
    item->partial = -1;
    item->begin = stretch;
    item->end = EndOfRun(keys, stretch + 1);
    return true;
  }

  // The end of the stretches, from `first` on, that begin with the row of `first`. Most runs end
  // soon: the search doubles its range from 1 on.
  EB_DEVICE uint32_t EndOfRun(const uint32_t* keys, uint64_t first) const {
    const uint64_t left = (num_pairs - 1) / kStretch + 1 - first;
    const auto row_of = [&](uint64_t i) { return keys[(first + i) * kStretch]; };
    const uint32_t row = row_of(0);
    uint64_t range = 1;
    while (range < left && row_of(range) == row) range *= 2;
    const uint64_t last = LastNotAbove<uint64_t>(range < left ? range : left, row, row_of);
    return static_cast<uint32_t>(first + last + 1);
  }

  template <int count>
  EB_DEVICE void Sum(const Ahead&, const Item& item, int32_t number, float (&sum)[count]) const {
    EB_UNROLL
    for (int i = 0; i < count; ++i) sum[i] = 0.0f;
    for (uint64_t stretch = item.begin; stretch < item.end; stretch += kPartialsAhead) {
      Vector<float, count> vector[kPartialsAhead];
      EB_UNROLL
      for (int i = 0; i < kPartialsAhead; ++i) {
        if (stretch + i >= item.end) continue;
        const uint64_t partial = 2 * (stretch + i) + (stretch + i == item.begin);
        vector[i] = Load<float, count>(partials.sums + partial * dim + number);
      }
      EB_UNROLL
      for (int i = 0; i < kPartialsAhead; ++i) {
        if (stretch + i < item.end) AddTo<float, count>(sum, 1.0f, vector[i]);
      }
    }
  }
};

// ---- Sinks --------------------------------------------------------------------------------------

constexpr int32_t kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2;  // dtypes, as in the interface

// The optimizer is one, and this another: rows that occur, ascending, and their gradients. Their
// dtype is chosen when the kernel runs: a branch per vector instead of three times the kernels.
struct RowList {
  struct Nothing {};

  int64_t* rows;
  void* gradients;  // [num_rows, dim]
  int32_t dtype;
  int64_t dim;

  static constexpr int kMaxBlocks = 4;
  static constexpr bool kNeedsSquares = false;

  EB_DEVICE float GradientFactor() const { return 1.0f; }
  EB_DEVICE float AddSquares(int64_t, float) const { return 0.0f; }

  template <int count>
  EB_DEVICE Nothing LoadRow(int64_t, int32_t) const { return {}; }

  template <int count>
  EB_DEVICE void FinishRow(int64_t row, uint32_t row_number, int32_t number, const Nothing&,
                           const float (&sum)[count], float) const {
    if (number == 0) rows[row_number] = row;
    const int64_t offset = row_number * dim + number;
    switch (dtype) {
      case kFloat32:
        return StoreFloats<float, count>(static_cast<float*>(gradients) + offset, sum);
      case kFloat16:
        return StoreFloats<half, count>(static_cast<half*>(gradients) + offset, sum);
      default:
        return StoreFloats<bf16, count>(static_cast<bf16*>(gradients) + offset, sum);
    }
  }
};

// ---- The kernel ---------------------------------------------------------------------------------

template <class Source, class Sink>
struct ReduceParameters {
  Source source;
  Sink sink;
  float* partial_sums;
  int64_t dim;
  int32_t vectors;  // of a row
  int32_t lanes;    // of a group
};

// Sum of `squares` over the lanes of a group; its first lane hands it to the sink, and all get what
// the sink returns. All lanes of a warp take part.
template <class Sink>
EB_DEVICE float AddSquares(const Sink& sink, float squares, bool is_whole, uint32_t row,
                           int32_t lanes) {
  for (int mask = 1; mask < lanes; mask *= 2) squares += ShuffleXor(squares, mask);
  const int lane = ThreadIndex() % kWarp;
  const int first = lane / lanes * lanes;
  float result = 0.0f;
  if (is_whole && lane == first) result = sink.AddSquares(row, squares);
  return ShuffleFrom(result, first);
}

// All lanes of a warp come here together.
template <int count, class Source, class Sink>
EB_DEVICE void Reduce(const ReduceParameters<Source, Sink>& p, const typename Source::Ahead& ahead,
                      const Item& item, bool is_active) {
  const bool is_whole = is_active && item.partial < 0;
  const int32_t lane = ThreadIndex() % p.lanes;
  float sum[count];
  float squares = 0.0f, result = 0.0f;
  // Twice where a row's numbers depend on the squares of all. A lane with one vector keeps its sum.
  for (int pass = Sink::kNeedsSquares ? 0 : 1; pass < 2; ++pass) {
    const bool has_sum = pass == 1 && Sink::kNeedsSquares && is_whole && p.vectors <= p.lanes;
    const int32_t end = pass == 0 ? (is_whole ? p.vectors : 0) : (is_active ? p.vectors : 0);
    for (int32_t vector = lane; vector < end; vector += p.lanes) {
      const int32_t number = vector * count;
      decltype(p.sink.template LoadRow<count>(0, 0)) before = {};
      if (pass == 1 && is_whole) before = p.sink.template LoadRow<count>(item.row, number);
      if (!has_sum) p.source.template Sum<count>(ahead, item, number, sum);
      if (pass == 0) {
        const float factor = p.sink.GradientFactor();
        EB_UNROLL
        for (int i = 0; i < count; ++i) squares += (factor * sum[i]) * (factor * sum[i]);
      } else if (is_whole) {
        p.sink.template FinishRow<count>(item.row, item.number, number, before, sum, result);
      } else {
        StoreFloats<float, count>(p.partial_sums + item.partial * p.dim + number, sum);
      }
    }
    if (pass == 0) result = AddSquares(p.sink, squares, is_whole, item.row, p.lanes);
  }
}

// Blocks that registers leave room for on a multiprocessor.
template <class Source, class Sink>
constexpr int kReduceBlocks =
    Source::kMaxBlocks < Sink::kMaxBlocks ? Source::kMaxBlocks : Sink::kMaxBlocks;

template <class Source, class Sink, int count>
EB_KERNEL void EB_LAUNCH_BOUNDS(kThreads, (kReduceBlocks<Source, Sink>))
    ReduceKernel(ReduceParameters<Source, Sink> p) {
  const uint32_t num_items = p.source.NumItems();
  const uint64_t thread = static_cast<uint64_t>(BlockIndex()) * BlockSize() + ThreadIndex();
  const uint64_t groups = static_cast<uint64_t>(GridSize()) * BlockSize() / p.lanes;
  const uint64_t place = thread % kWarp / p.lanes;  // of the group, in its warp
  uint64_t first = thread / kWarp * (kWarp / p.lanes);
  auto next_ahead = p.source.LoadAhead(p.source.LoadBounds(first + place));
  auto bounds = p.source.LoadBounds(first + place + groups);
  // The lanes of a warp leave the loop together.
  for (; first < num_items; first += groups) {
    const uint64_t index = first + place;
    const auto ahead = next_ahead;
    next_ahead = p.source.LoadAhead(bounds);
    bounds = p.source.LoadBounds(index + 2 * groups);
    Item item = {};
    const bool is_active = p.source.Find(ahead, index, thread % p.lanes == 0, &item);
    Reduce<count>(p, ahead, item, is_active);
  }
}

// ---- Rows that do not occur ---------------------------------------------------------------------

template <class T>
struct OtherRowsParameters {
  Optimizer<T, kAdam> optimizer;
  const Sorted* sorted;
  int64_t num_pairs;
  int64_t rows;
  int32_t vectors;
  int32_t lanes;
};

// Adam moves all rows of the table; these by a gradient of 0.
template <class T, int count>
EB_KERNEL void EB_LAUNCH_BOUNDS(kThreads, 4) OtherRowsKernel(OtherRowsParameters<T> p) {
  const int64_t thread = static_cast<int64_t>(BlockIndex()) * BlockSize() + ThreadIndex();
  const int64_t groups = static_cast<int64_t>(GridSize()) * BlockSize() / p.lanes;
  for (int64_t row = thread / p.lanes; row < p.rows; row += groups) {
    if (p.num_pairs > 0) {
      const uint32_t* keys = Global(p.sorted->keys);
      if (keys[LastNotAbove(p.num_pairs, row, [&](int64_t i) { return keys[i]; })] == row) continue;
    }
    for (int32_t vector = thread % p.lanes; vector < p.vectors; vector += p.lanes) {
      const auto before = p.optimizer.template LoadRow<count>(row, vector * count);
      const float gradient[count] = {};
      p.optimizer.template FinishRow<count>(row, 0, vector * count, before, gradient, 0.0f);
    }
  }
}

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_REDUCE_CUH_
