// What the caller of a kernel passes to it, and the kernels: one per instruction set.
//
// Each kernel_*.cc is compiled with flags that not every processor understands. So this header
// has no function: an inline function shared between the files would be linked once, perhaps the
// copy with the wrong instructions.
#ifndef EMBEDDING_BAG_CPU_KERNEL_H_
#define EMBEDDING_BAG_CPU_KERNEL_H_

#include <stdint.h>

#include "../embedding_bag.h"

namespace embedding_bag {

// Bags whose ids are rows of the table, and in range.
struct Bags {
  embedding_bag_table table;
  int64_t num_bags;
  const int64_t* rows;     // the bags' rows, one bag after the other
  int64_t num_rows;
  int64_t hotness;         // ids per bag, without splits
  const int64_t* splits;   // [num_bags + 1] or null; bag i has rows[splits[i] - splits[0]] ...
  const float* weights;    // [num_rows] or null
  bool mean;
  void* output;            // bag i at output + i * stride numbers
  int64_t stride;
  int32_t output_dtype;
  bool streams;  // writes past the caches: float32, each row of the output at a multiple of 64 bytes
};

// A row and the number of a gradient: of its bag, or of its id.
struct Pair {
  uint32_t number;
  uint32_t row;
};

// Where the gradients of pairs are.
struct Gradients {
  int32_t dtype;
  float factor;
  const void* dense;           // gradient `number` at dense + number * dim, or null:
  const void* const* sources;  // at sources[number],
  const float* factors;        // times factors[number]
};

// Pairs [begin, end), sorted by row, of which the runs (pairs of one row) that start there are
// processed; a run may end after `end`, before num_pairs.
struct Runs {
  const Pair* pairs;
  int64_t num_pairs;
  int64_t begin;
  int64_t end;
  Gradients gradients;
};

struct Kernel {
  const char* name;
  void (*forward)(const Bags&);
  // scratch: [2 * dim] float32.
  void (*update)(const embedding_bag_table&, const embedding_bag_optimizer&, const Runs&,
                 float* scratch);
  // With all_rows: rows [begin, end) that no pair names.
  void (*update_idle)(const embedding_bag_table&, const embedding_bag_optimizer&, int64_t begin,
                      int64_t end, float* scratch);
  // Writes the runs' rows and sums as rows first, first + 1, ... of the outputs.
  void (*sum)(const Runs&, int64_t dim, int64_t first, int64_t* rows, int32_t sum_dtype,
              void* sums, float* scratch);
};

extern const Kernel kGeneric;
#if defined(__x86_64__)
extern const Kernel kAvx2;
extern const Kernel kAvx512;
#endif

}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CPU_KERNEL_H_
