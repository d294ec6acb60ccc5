// The C interface of the CPU: checks, the sorting of ids, and the division of work into tasks.
#include <string.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "../embedding_bag.h"
#include "../../../../../op_build/instruction_sets.h"
#include "kernel.h"

namespace embedding_bag {
namespace {

// ---- instruction sets ---------------------------------------------------------------------------

// The best first.
const instruction_sets::Choice<Kernel> kChoices[] = {
#if defined(__x86_64__)
    {kAvx512, instruction_sets::HasAvx512},
    {kAvx2, instruction_sets::HasAvx2},
#endif
    {kGeneric, instruction_sets::Always},
};

std::atomic<const Kernel*> kernel_in_use{nullptr};

const Kernel& KernelInUse() { return instruction_sets::InUse(&kernel_in_use, kChoices); }

// ---- tasks --------------------------------------------------------------------------------------

// Runs task(number) for all numbers below num_tasks; the first error is returned.
template <typename Task>
int RunTasks(const embedding_bag_threads& threads, int64_t num_tasks, const Task& task) {
  std::atomic<int> error{0};
  auto run = [&](int64_t number) {
    if (error.load(std::memory_order_relaxed) != 0) return;
    int result;
    try {
      result = task(number);
    } catch (const std::bad_alloc&) {
      result = EMBEDDING_BAG_OUT_OF_MEMORY;
    }
    if (result != 0) error = result;
  };
  if (num_tasks == 1 || threads.num_threads == 1) {
    for (int64_t number = 0; number < num_tasks; ++number) run(number);
  } else {
    using Run = decltype(run);
    threads.run(
        threads.pool, num_tasks,
        [](void* argument, int64_t number) { (*static_cast<Run*>(argument))(number); }, &run);
  }
  return error;
}

// Where part `number` of `parts` equal ones of [0, size) begins.
int64_t PartBegin(int64_t size, int64_t number, int64_t parts) {
  return static_cast<int64_t>(static_cast<__int128>(size) * number / parts);
}

// ---- checks -------------------------------------------------------------------------------------

bool IsFloat(int32_t dtype) { return dtype >= EMBEDDING_BAG_FLOAT32 && dtype <= EMBEDDING_BAG_BFLOAT16; }

int64_t SizeOf(int32_t dtype) { return dtype == EMBEDDING_BAG_FLOAT32 ? 4 : 2; }

bool IsTable(const embedding_bag_table& table) {
  return table.rows >= 0 && table.rows <= (int64_t{1} << 32) && table.dim > 0 &&
         table.dim <= std::numeric_limits<int32_t>::max() && IsFloat(table.dtype);
}

bool AreIds(const embedding_bag_ids& ids, const embedding_bag_table& table) {
  if (ids.num_ids < 0 || ids.num_samples < 0 || ids.num_columns < 1 || ids.columns == nullptr ||
      (ids.id_bytes != 4 && ids.id_bytes != 8) || (ids.ids == nullptr && ids.num_ids > 0) ||
      (ids.splits != nullptr && ids.num_columns != 1)) {
    return false;
  }
  __int128 per_sample = 0;
  for (int64_t c = 0; c < ids.num_columns; ++c) {
    const embedding_bag_column& column = ids.columns[c];
    if (column.row_offset < 0 || column.num_rows < 0 || column.hotness < 0 ||
        column.row_offset > table.rows - column.num_rows) {
      return false;
    }
    per_sample += column.hotness;
  }
  return ids.splits != nullptr || per_sample * ids.num_samples == ids.num_ids;
}

bool IsOptimizer(const embedding_bag_optimizer& optimizer) {
  const int32_t kind = optimizer.kind;
  const bool is_adam = kind == EMBEDDING_BAG_ADAM || kind == EMBEDDING_BAG_LAZY_ADAM;
  return kind >= EMBEDDING_BAG_SGD && kind <= EMBEDDING_BAG_RMSPROP &&
         (kind == EMBEDDING_BAG_SGD || optimizer.slots[0] != nullptr) &&
         (!is_adam || optimizer.slots[1] != nullptr);
}

// ---- lookup -------------------------------------------------------------------------------------

constexpr int64_t kMaxTaskIds = 2048;
constexpr int64_t kMinTaskIds = 256;
constexpr int64_t kSamplesAhead = 8;
constexpr int64_t kMinStreamBytes = int64_t{1} << 24;

// Writes the table's rows of `count` ids; false with the index of the first that is out of range.
template <typename Id>
bool ReadRows(const Id* ids, int64_t count, const embedding_bag_column& column, int64_t* rows,
              int64_t* bad) {
  const uint64_t num_rows = column.num_rows;
  bool valid = true;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ids[i];
    valid &= static_cast<uint64_t>(id) < num_rows;
    rows[i] = id + column.row_offset;
  }
  if (!valid) {
    for (*bad = 0; static_cast<uint64_t>(static_cast<int64_t>(ids[*bad])) < num_rows; ++*bad) {
    }
  }
  return valid;
}

bool ReadRows(const embedding_bag_ids& ids, int64_t first, int64_t count,
              const embedding_bag_column& column, int64_t* rows, int64_t* bad) {
  return ids.id_bytes == 4
             ? ReadRows(static_cast<const int32_t*>(ids.ids) + first, count, column, rows, bad)
             : ReadRows(static_cast<const int64_t*>(ids.ids) + first, count, column, rows, bad);
}

// Requests ids of a later sample from memory: those of one column lie too far apart for the
// processor to guess.
void PrefetchIds(const embedding_bag_ids& ids, int64_t first, int64_t count) {
  constexpr int64_t kCacheLine = 64;
  const char* p = static_cast<const char*>(ids.ids) + first * ids.id_bytes;
  for (int64_t i = 0; i < count * ids.id_bytes; i += kCacheLine) __builtin_prefetch(p + i);
  __builtin_prefetch(p + count * ids.id_bytes - 1);
}

// Whether the splits of samples [begin, end] ascend and stay within the ids.
bool AreSplits(const embedding_bag_ids& ids, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (ids.splits[i] < 0 || ids.splits[i] > ids.splits[i + 1] ||
        ids.splits[i + 1] > ids.num_ids) {
      return false;
    }
  }
  return true;
}

struct Lookup {
  const embedding_bag_table& table;
  const embedding_bag_ids& ids;
  int32_t output_dtype;
  char* output;
  int64_t ids_per_sample;  // of fixed ids
  bool streams;
  std::atomic<int64_t>* bad_id;

  // Looks up column `c`, whose ids begin at `start` in those of a sample, for samples [begin, end).
  int Run(int64_t c, int64_t start, int64_t begin, int64_t end) const {
    const embedding_bag_column& column = ids.columns[c];
    if (ids.splits != nullptr && !AreSplits(ids, begin, end)) return EMBEDDING_BAG_BAD_ARGUMENT;
    const int64_t num_bags = end - begin;
    const int64_t first = ids.splits ? ids.splits[begin] : begin * ids_per_sample + start;
    const int64_t count = ids.splits ? ids.splits[end] - first : num_bags * column.hotness;
    const std::unique_ptr<int64_t[]> rows(new int64_t[count]);
    std::unique_ptr<float[]> weights;
    int64_t bad = 0;
    if (ids.splits != nullptr || ids.num_columns == 1) {
      if (!ReadRows(ids, first, count, column, rows.get(), &bad)) return BadId(first + bad);
    } else {
      for (int64_t i = 0; i < num_bags; ++i) {
        const int64_t from = first + i * ids_per_sample, to = i * column.hotness;
        PrefetchIds(ids, from + kSamplesAhead * ids_per_sample, column.hotness);
        if (!ReadRows(ids, from, column.hotness, column, rows.get() + to, &bad)) {
          return BadId(from + bad);
        }
      }
      if (ids.weights != nullptr) {
        weights.reset(new float[count]);
        for (int64_t i = 0; i < num_bags; ++i) {
          memcpy(weights.get() + i * column.hotness, ids.weights + first + i * ids_per_sample,
                 sizeof(float) * column.hotness);
        }
      }
    }
    Bags bags;
    bags.table = table;
    bags.num_bags = num_bags;
    bags.rows = rows.get();
    bags.num_rows = count;
    bags.hotness = column.hotness;
    bags.splits = ids.splits ? ids.splits + begin : nullptr;
    bags.weights = weights ? weights.get() : ids.weights ? ids.weights + first : nullptr;
    bags.mean = column.mean != 0;
    bags.stride = ids.num_columns * table.dim;
    bags.output = output + (begin * ids.num_columns + c) * table.dim * SizeOf(output_dtype);
    bags.output_dtype = output_dtype;
    bags.streams = streams;
    KernelInUse().forward(bags);
    return 0;
  }

  int BadId(int64_t position) const {
    *bad_id = position;
    return EMBEDDING_BAG_BAD_ID;
  }
};

// Whether an output is written past the caches: it is larger than they are, and a processor that
// writes through them reads it first.
bool Streams(const embedding_bag_table& table, const embedding_bag_ids& ids, int32_t output_dtype,
             const void* output) {
  const int64_t row_bytes = table.dim * SizeOf(output_dtype);
  return output_dtype == EMBEDDING_BAG_FLOAT32 && row_bytes % 64 == 0 &&
         reinterpret_cast<uintptr_t>(output) % 64 == 0 &&
         ids.num_samples * ids.num_columns * row_bytes >= kMinStreamBytes;
}

int Forward(const embedding_bag_table& table, const embedding_bag_ids& ids, int32_t output_dtype,
            void* output, const embedding_bag_threads& threads, std::atomic<int64_t>* bad_id) {
  if (!IsTable(table) || !AreIds(ids, table) || !IsFloat(output_dtype) ||
      (table.values == nullptr && table.rows > 0)) {
    return EMBEDDING_BAG_BAD_ARGUMENT;
  }
  if (ids.num_samples == 0) return 0;
  if (output == nullptr) return EMBEDDING_BAG_BAD_ARGUMENT;
  const int64_t ids_per_sample = ids.splits ? 0 : ids.num_ids / ids.num_samples;
  const Lookup lookup{table, ids, output_dtype, static_cast<char*>(output), ids_per_sample,
                      Streams(table, ids, output_dtype, output), bad_id};
  // Tasks of one column follow each other: they read the same table.
  struct Column {
    int64_t start;
    int64_t first_task;
    int64_t num_tasks;
  };
  const std::unique_ptr<Column[]> columns(new Column[ids.num_columns]);
  const int64_t task_ids =
      std::clamp(ids.num_ids / (8 * threads.num_threads), kMinTaskIds, kMaxTaskIds);
  int64_t num_tasks = 0, start = 0;
  for (int64_t c = 0; c < ids.num_columns; ++c) {
    const int64_t hotness = ids.columns[c].hotness;
    const int64_t column_ids = ids.splits ? ids.num_ids : hotness * ids.num_samples;
    const int64_t work = std::max(column_ids, ids.num_samples);  // empty bags are written, too
    columns[c] = {start, num_tasks, std::clamp(work / task_ids, int64_t{1}, ids.num_samples)};
    num_tasks += columns[c].num_tasks;
    start += hotness;
  }
  return RunTasks(threads, num_tasks, [&](int64_t number) {
    const Column* column =
        std::upper_bound(columns.get(), columns.get() + ids.num_columns, number,
                         [](int64_t n, const Column& c) { return n < c.first_task; }) - 1;
    const int64_t part = number - column->first_task;
    return lookup.Run(column - columns.get(), column->start,
                      PartBegin(ids.num_samples, part, column->num_tasks),
                      PartBegin(ids.num_samples, part + 1, column->num_tasks));
  });
}

// ---- sorted ids ---------------------------------------------------------------------------------

constexpr int kMaxDigitBits = 11;
constexpr int64_t kMinChunk = 4096;       // pairs that one task sorts, of those that several share
constexpr int64_t kMinSerial = 1 << 14;   // pairs that one task sorts alone
constexpr int64_t kMaxTasks = 1024;

// Rows of one table, or of tables that overlap, and where the pairs of its ids are.
struct Segment {
  int64_t first_row;
  int64_t end_row;
  int64_t first_pair;
  int64_t end_pair;
};

// The ids of all uses as pairs sorted by row, ids of one row in their order, in a workspace.
class SortedIds {
 public:
  SortedIds(const embedding_bag_use* uses, int64_t num_uses, const embedding_bag_threads& threads)
      : uses_(uses), num_uses_(num_uses), threads_(threads) {
    for (int64_t u = 0; u < num_uses; ++u) {
      const embedding_bag_ids& ids = uses[u].ids;
      num_pairs_ += ids.num_ids;
      num_bags_ += ids.num_samples * ids.num_columns;
      has_factors_ |= ids.weights != nullptr;
      for (int64_t c = 0; c < ids.num_columns; ++c) {
        has_factors_ |= ids.columns[c].mean && (ids.splits || ids.columns[c].hotness > 1);
      }
    }
    is_dense_ = num_uses == 1 && !has_factors_;
    num_chunks_ = std::clamp(num_pairs_ / kMinChunk, int64_t{1}, threads.num_threads);
    num_tasks_ =
        std::clamp(num_pairs_ / 1024, int64_t{1}, std::min(16 * threads.num_threads, kMaxTasks));
  }

  // -1: more pairs or bags than a pair can number.
  int64_t Bytes() const {
    constexpr int64_t kMax = std::numeric_limits<uint32_t>::max();
    if (num_pairs_ > kMax || num_bags_ > kMax) return -1;
    return num_pairs_ * 2 * sizeof(Pair) + num_sources() * sizeof(void*) +
           num_factors() * sizeof(float) + sizeof(int64_t) * (num_tasks_ + 1) +
           sizeof(uint32_t) * (num_chunks_ << kMaxDigitBits);
  }

  void SetWorkspace(void* workspace) {
    char* p = static_cast<char*>(workspace);
    auto take = [&p](int64_t bytes) {
      char* start = p;
      p += bytes;
      return start;
    };
    run_counts_ = reinterpret_cast<int64_t*>(take(sizeof(int64_t) * (num_tasks_ + 1)));
    for (Pair*& pairs : pairs_) {
      pairs = reinterpret_cast<Pair*>(take(sizeof(Pair) * num_pairs_));
    }
    sources_ = reinterpret_cast<const void**>(take(sizeof(void*) * num_sources()));
    factors_ = reinterpret_cast<float*>(take(sizeof(float) * num_factors()));
    counts_ = reinterpret_cast<uint32_t*>(p);
    FindSegments();
    int bits = 0;
    for (const Segment& segment : segments_) bits = std::max(bits, BitsOf(segment));
    num_passes_ = (bits + kMaxDigitBits - 1) / kMaxDigitBits;
  }

  int Sort(const embedding_bag_table& table, int32_t gradient_dtype) {
    const int error = Fill(table, gradient_dtype);
    if (error != 0 || num_passes_ == 0) return error;
    std::vector<const Segment*> small;
    const int64_t share = num_pairs_ / (2 * threads_.num_threads);
    for (const Segment& segment : segments_) {
      if (segment.end_pair - segment.first_pair <= std::max(share, kMinSerial)) {
        small.push_back(&segment);
      } else {
        SortSegment(segment, num_chunks_, threads_, counts_);
      }
    }
    const embedding_bag_threads alone{nullptr, nullptr, 1};
    return RunTasks(threads_, small.size(), [&](int64_t number) {
      const std::unique_ptr<uint32_t[]> counts(new uint32_t[1 << kMaxDigitBits]);
      SortSegment(*small[number], 1, alone, counts.get());
      return 0;
    });
  }

  // Part `number` of num_tasks(), valid after Sort.
  Runs Part(int64_t number, int32_t gradient_dtype, float factor) const {
    Runs runs;
    runs.pairs = sorted();
    runs.num_pairs = num_pairs_;
    runs.begin = PartBegin(num_pairs_, number, num_tasks_);
    runs.end = PartBegin(num_pairs_, number + 1, num_tasks_);
    runs.gradients.dtype = gradient_dtype;
    runs.gradients.factor = factor;
    runs.gradients.dense = is_dense_ ? uses_[0].gradient : nullptr;
    runs.gradients.sources = is_dense_ ? nullptr : sources_;
    runs.gradients.factors = has_factors_ ? factors_ : nullptr;
    return runs;
  }

  const Pair* sorted() const { return pairs_[num_passes_ % 2]; }
  int64_t num_pairs() const { return num_pairs_; }
  int64_t num_tasks() const { return num_tasks_; }
  // [num_tasks() + 1], kept between two calls with one workspace.
  int64_t* run_counts() const { return run_counts_; }

 private:
  int64_t num_sources() const { return is_dense_ ? 0 : has_factors_ ? num_pairs_ : num_bags_; }
  int64_t num_factors() const { return has_factors_ ? num_pairs_ : 0; }

  static int BitsOf(const Segment& segment) {
    const int64_t rows = segment.end_row - segment.first_row;
    return rows > 1 ? 64 - __builtin_clzll(static_cast<uint64_t>(rows - 1)) : 0;
  }

  // Finds the segments, in the order of their rows, and where the pairs of each column begin.
  void FindSegments() {
    struct Part {
      int64_t first_row, end_row, num_ids, number;
    };
    std::vector<Part> parts;  // columns of all uses
    for (int64_t u = 0; u < num_uses_; ++u) {
      const embedding_bag_ids& ids = uses_[u].ids;
      for (int64_t c = 0; c < ids.num_columns; ++c) {
        const embedding_bag_column& column = ids.columns[c];
        const int64_t num_ids = ids.splits ? ids.num_ids : column.hotness * ids.num_samples;
        const int64_t first_row = column.row_offset, number = parts.size();
        parts.push_back({first_row, first_row + column.num_rows, num_ids, number});
      }
    }
    std::vector<Part> by_row(parts);
    std::stable_sort(by_row.begin(), by_row.end(), [](const Part& a, const Part& b) {
      return a.first_row < b.first_row;
    });
    std::vector<int64_t> segment_of(parts.size());
    for (const Part& part : by_row) {
      if (segments_.empty() || part.first_row >= segments_.back().end_row) {
        segments_.push_back({part.first_row, part.end_row, 0, 0});
      }
      segments_.back().end_row = std::max(segments_.back().end_row, part.end_row);
      segments_.back().end_pair += part.num_ids;
      segment_of[part.number] = segments_.size() - 1;
    }
    int64_t first = 0;
    for (Segment& segment : segments_) {
      segment.first_pair = first;
      first = segment.end_pair += first;
    }
    std::vector<int64_t> next(segments_.size());
    for (size_t s = 0; s < next.size(); ++s) next[s] = segments_[s].first_pair;
    for (const Part& part : parts) {
      first_pairs_.push_back(next[segment_of[part.number]]);
      next[segment_of[part.number]] += part.num_ids;
    }
  }

  int Fill(const embedding_bag_table& table, int32_t gradient_dtype) {
    const int64_t row_bytes = table.dim * SizeOf(gradient_dtype);
    const int64_t* first_pairs = first_pairs_.data();
    int64_t first_bag = 0;
    for (int64_t u = 0; u < num_uses_; ++u) {
      const embedding_bag_ids& ids = uses_[u].ids;
      const int64_t parts =
          std::clamp(ids.num_ids / kMinChunk, int64_t{1}, 4 * threads_.num_threads);
      const int64_t num_parts = std::min(parts, std::max(ids.num_samples, int64_t{1}));
      const int error = RunTasks(threads_, num_parts, [&](int64_t part) {
        const int64_t begin = PartBegin(ids.num_samples, part, num_parts);
        const int64_t end = PartBegin(ids.num_samples, part + 1, num_parts);
        return FillSamples(uses_[u], first_pairs, first_bag, begin, end, row_bytes);
      });
      if (error != 0) return error;
      first_pairs += ids.num_columns;
      first_bag += ids.num_samples * ids.num_columns;
    }
    return 0;
  }

  // Pairs of samples [begin, end) of a use whose columns' pairs begin at `first_pairs`, and whose
  // bags at number `first_bag`.
  int FillSamples(const embedding_bag_use& use, const int64_t* first_pairs, int64_t first_bag,
                  int64_t begin, int64_t end, int64_t row_bytes) {
    const embedding_bag_ids& ids = use.ids;
    const char* gradient = static_cast<const char*>(use.gradient);
    if (ids.splits != nullptr && !AreSplits(ids, begin, end)) return EMBEDDING_BAG_BAD_ARGUMENT;
    const bool is_last = end == ids.num_samples;
    if (ids.splits != nullptr && ((begin == 0 && ids.splits[0] != 0) ||
                                  (is_last && ids.splits[end] != ids.num_ids))) {
      return EMBEDDING_BAG_BAD_ARGUMENT;
    }
    const int64_t ids_per_sample =
        ids.splits ? 0 : ids.num_ids / std::max(ids.num_samples, int64_t{1});
    for (int64_t sample = begin; sample < end; ++sample) {
      int64_t from = ids.splits ? ids.splits[sample] : sample * ids_per_sample;
      for (int64_t c = 0; c < ids.num_columns; ++c) {
        const embedding_bag_column& column = ids.columns[c];
        const uint64_t num_rows = column.num_rows;
        const int64_t length = ids.splits ? ids.splits[sample + 1] - from : column.hotness;
        const int64_t bag = sample * ids.num_columns + c;
        const float factor = column.mean && length > 1 ? 1.0f / static_cast<float>(length) : 1.0f;
        int64_t place = first_pairs[c] + (ids.splits ? from : sample * length);
        if (!is_dense_ && !has_factors_) sources_[first_bag + bag] = gradient + bag * row_bytes;
        for (const int64_t last = from + length; from < last; ++from, ++place) {
          const int64_t id = ids.id_bytes == 4 ? static_cast<const int32_t*>(ids.ids)[from]
                                               : static_cast<const int64_t*>(ids.ids)[from];
          if (static_cast<uint64_t>(id) >= num_rows) return EMBEDDING_BAG_BAD_ID;
          const uint32_t row = static_cast<uint32_t>(id + column.row_offset);
          pairs_[0][place] = {static_cast<uint32_t>(has_factors_ ? place : first_bag + bag), row};
          if (has_factors_) {
            sources_[place] = gradient + bag * row_bytes;
            factors_[place] = ids.weights ? factor * ids.weights[from] : factor;
          }
        }
      }
    }
    return 0;
  }

  // Sorts the pairs of a segment in num_passes_ stable passes of a radix sort, by `num_chunks`
  // tasks. The result does not depend on their number. counts: [num_chunks << kMaxDigitBits].
  void SortSegment(const Segment& segment, int64_t num_chunks,
                   const embedding_bag_threads& threads, uint32_t* counts) {
    const int digit_bits = (BitsOf(segment) + num_passes_ - 1) / num_passes_;
    const int64_t num_digits = int64_t{1} << digit_bits;
    const uint32_t mask = static_cast<uint32_t>(num_digits - 1);
    const uint32_t base = static_cast<uint32_t>(segment.first_row);
    const int64_t size = segment.end_pair - segment.first_pair;
    for (int pass = 0; pass < num_passes_; ++pass) {
      const Pair* from = pairs_[pass % 2] + segment.first_pair;
      Pair* to = pairs_[1 - pass % 2] + segment.first_pair;
      const int shift = pass * digit_bits;
      auto digit_of = [=](const Pair& pair) { return ((pair.row - base) >> shift) & mask; };
      RunTasks(threads, num_chunks, [&](int64_t chunk) {
        uint32_t* of_chunk = counts + chunk * num_digits;
        std::fill(of_chunk, of_chunk + num_digits, 0);
        const int64_t end = PartBegin(size, chunk + 1, num_chunks);
        for (int64_t i = PartBegin(size, chunk, num_chunks); i < end; ++i) {
          ++of_chunk[digit_of(from[i])];
        }
        return 0;
      });
      uint32_t total = 0;
      for (int64_t digit = 0; digit < num_digits; ++digit) {
        for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
          uint32_t& count = counts[chunk * num_digits + digit];
          const uint32_t next = total + count;
          count = total;
          total = next;
        }
      }
      RunTasks(threads, num_chunks, [&](int64_t chunk) {
        uint32_t* places = counts + chunk * num_digits;
        const int64_t end = PartBegin(size, chunk + 1, num_chunks);
        for (int64_t i = PartBegin(size, chunk, num_chunks); i < end; ++i) {
          to[places[digit_of(from[i])]++] = from[i];
        }
        return 0;
      });
    }
  }

  const embedding_bag_use* uses_;
  int64_t num_uses_;
  const embedding_bag_threads& threads_;
  bool has_factors_ = false;  // pairs have the numbers of ids, otherwise of bags
  bool is_dense_;             // the gradients of all bags follow each other: no sources
  int64_t num_pairs_ = 0;
  int64_t num_bags_ = 0;
  int64_t num_chunks_;
  int64_t num_tasks_;
  int num_passes_ = 0;
  std::vector<Segment> segments_;
  std::vector<int64_t> first_pairs_;  // of each column of each use
  Pair* pairs_[2] = {};
  const void** sources_ = nullptr;
  float* factors_ = nullptr;
  uint32_t* counts_ = nullptr;
  int64_t* run_counts_ = nullptr;
};

bool AreUses(const embedding_bag_use* uses, int64_t num_uses, const embedding_bag_table& table) {
  if (uses == nullptr || num_uses < 1) return false;
  for (int64_t u = 0; u < num_uses; ++u) {
    const bool has_gradient = uses[u].gradient != nullptr || uses[u].ids.num_ids == 0;
    if (!AreIds(uses[u].ids, table) || !has_gradient) return false;
  }
  return true;
}

// ---- update -------------------------------------------------------------------------------------

constexpr int64_t kIdleRows = 4096;  // rows of a task

// Moves the rows of [begin, end) that no pair names.
void UpdateIdleRows(const embedding_bag_table& table, const embedding_bag_optimizer& optimizer,
                    const SortedIds& ids, int64_t begin, int64_t end) {
  const std::unique_ptr<float[]> scratch(new float[2 * table.dim]);
  const Pair* pairs = ids.sorted();
  const Pair* last = pairs + ids.num_pairs();
  const Pair* pair = std::lower_bound(pairs, last, begin, [](const Pair& p, int64_t row) {
    return static_cast<int64_t>(p.row) < row;
  });
  while (begin < end) {
    const int64_t next = pair < last ? std::min<int64_t>(pair->row, end) : end;
    KernelInUse().update_idle(table, optimizer, begin, next, scratch.get());
    begin = next + 1;
    while (pair < last && static_cast<int64_t>(pair->row) < begin) ++pair;
  }
}

int Update(const embedding_bag_table& table, const SortedIds& ids, int32_t gradient_dtype,
           const embedding_bag_optimizer& optimizer, const embedding_bag_threads& threads) {
  int error = RunTasks(threads, ids.num_tasks(), [&](int64_t number) {
    const std::unique_ptr<float[]> scratch(new float[2 * table.dim]);
    KernelInUse().update(table, optimizer,
                         ids.Part(number, gradient_dtype, optimizer.gradient_factor),
                         scratch.get());
    return 0;
  });
  const bool all_rows = optimizer.all_rows != 0 || optimizer.kind == EMBEDDING_BAG_ADAM;
  if (error != 0 || !all_rows) return error;
  const int64_t num_tasks = (table.rows + kIdleRows - 1) / kIdleRows;
  return RunTasks(threads, num_tasks, [&](int64_t number) {
    const int64_t begin = number * kIdleRows;
    UpdateIdleRows(table, optimizer, ids, begin, std::min(begin + kIdleRows, table.rows));
    return 0;
  });
}

// Counts the runs that start in each part, and puts the sums of those before into run_counts.
int64_t CountRuns(const SortedIds& ids, const embedding_bag_threads& threads) {
  int64_t* counts = ids.run_counts();
  RunTasks(threads, ids.num_tasks(), [&](int64_t number) {
    const Runs runs = ids.Part(number, EMBEDDING_BAG_FLOAT32, 1.0f);
    int64_t count = 0;
    for (int64_t i = runs.begin; i < runs.end; ++i) {
      count += i == 0 || runs.pairs[i].row != runs.pairs[i - 1].row;
    }
    counts[number + 1] = count;
    return 0;
  });
  counts[0] = 0;
  for (int64_t number = 0; number < ids.num_tasks(); ++number) {
    counts[number + 1] += counts[number];
  }
  return counts[ids.num_tasks()];
}

}  // namespace
}  // namespace embedding_bag

using embedding_bag::AreUses;
using embedding_bag::IsFloat;
using embedding_bag::IsTable;
using embedding_bag::SortedIds;

int embedding_bag_cpu_forward(const embedding_bag_table* table, const embedding_bag_ids* ids,
                              int32_t output_dtype, void* output,
                              const embedding_bag_threads* threads, int64_t* bad_id) {
  std::atomic<int64_t> bad{0};
  const int error = embedding_bag::Forward(*table, *ids, output_dtype, output, *threads, &bad);
  if (bad_id != nullptr) *bad_id = bad;
  return error;
}

int64_t embedding_bag_cpu_workspace(const embedding_bag_use* uses, int64_t num_uses,
                                    const embedding_bag_threads* threads) {
  return SortedIds(uses, num_uses, *threads).Bytes();
}

int embedding_bag_cpu_update(const embedding_bag_table* table, const embedding_bag_use* uses,
                             int64_t num_uses, int32_t gradient_dtype,
                             const embedding_bag_optimizer* optimizer, void* workspace,
                             const embedding_bag_threads* threads) {
  if (!IsTable(*table) || !IsFloat(table->dtype) || !IsFloat(gradient_dtype) ||
      !AreUses(uses, num_uses, *table) || !embedding_bag::IsOptimizer(*optimizer) ||
      (table->values == nullptr && table->rows > 0)) {
    return EMBEDDING_BAG_BAD_ARGUMENT;
  }
  SortedIds ids(uses, num_uses, *threads);
  if (ids.Bytes() < 0 || workspace == nullptr) return EMBEDDING_BAG_BAD_ARGUMENT;
  ids.SetWorkspace(workspace);
  const int error = ids.Sort(*table, gradient_dtype);
  if (error != 0) return error;
  return embedding_bag::Update(*table, ids, gradient_dtype, *optimizer, *threads);
}

int embedding_bag_cpu_count_rows(const embedding_bag_table* table, const embedding_bag_use* uses,
                                 int64_t num_uses, int32_t gradient_dtype, void* workspace,
                                 const embedding_bag_threads* threads, int64_t* num_rows) {
  if (!IsTable(*table) || !IsFloat(gradient_dtype) || !AreUses(uses, num_uses, *table)) {
    return EMBEDDING_BAG_BAD_ARGUMENT;
  }
  SortedIds ids(uses, num_uses, *threads);
  if (ids.Bytes() < 0 || workspace == nullptr) return EMBEDDING_BAG_BAD_ARGUMENT;
  ids.SetWorkspace(workspace);
  const int error = ids.Sort(*table, gradient_dtype);
  if (error != 0) return error;
  *num_rows = embedding_bag::CountRuns(ids, *threads);
  return 0;
}

int embedding_bag_cpu_gradient(const embedding_bag_table* table, const embedding_bag_use* uses,
                               int64_t num_uses, int32_t gradient_dtype, int32_t sum_dtype,
                               void* workspace, const embedding_bag_threads* threads,
                               int64_t* rows, void* sums) {
  if (!IsFloat(sum_dtype)) return EMBEDDING_BAG_BAD_ARGUMENT;
  SortedIds ids(uses, num_uses, *threads);
  ids.SetWorkspace(workspace);
  return embedding_bag::RunTasks(*threads, ids.num_tasks(), [&](int64_t number) {
    const std::unique_ptr<float[]> scratch(new float[2 * table->dim]);
    embedding_bag::KernelInUse().sum(ids.Part(number, gradient_dtype, 1.0f), table->dim,
                                     ids.run_counts()[number], rows, sum_dtype, sums,
                                     scratch.get());
    return 0;
  });
}

const char* embedding_bag_cpu_isa(void) { return embedding_bag::KernelInUse().name; }

int embedding_bag_cpu_use_isa(const char* isa) {
  const embedding_bag::Kernel* kernel = instruction_sets::Find(embedding_bag::kChoices, isa);
  if (kernel == nullptr) return EMBEDDING_BAG_BAD_ARGUMENT;
  embedding_bag::kernel_in_use = kernel;
  return 0;
}
