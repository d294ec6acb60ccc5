// Embedding bags on plain pointers: the lookup of several ids per output row, and the update of
// the table by the gradient of the output.
//
//   forward:  output[bag] = factor(bag) * sum of weight(id) * table[row(id)] over the ids of a bag
//   update:   g[row] = sum of factor * weight * gradient[bag] over all ids of the batch; then the
//             optimizer moves each row that occurs once
//
// Sums are float32 whatever the dtypes, and added in the order of the ids: the result does not
// depend on the number of threads. No framework is needed: the CPU part is plain C++17, the CUDA
// part needs nvcc alone.
#ifndef EMBEDDING_BAG_H_
#define EMBEDDING_BAG_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  EMBEDDING_BAG_FLOAT32 = 0,
  EMBEDDING_BAG_FLOAT16 = 1,
  EMBEDDING_BAG_BFLOAT16 = 2,
};

typedef struct {
  void* values;  // [rows, dim], dense
  int64_t rows;  // < 2^32
  int64_t dim;   // > 0
  int32_t dtype;
} embedding_bag_table;

// Consecutive ids of a sample that give one output row.
typedef struct {
  int64_t hotness;     // ids per sample; not used with splits
  int64_t row_offset;  // row of id 0 in the table: several tables may share one variable
  int64_t num_rows;    // ids are in [0, num_rows)
  int32_t mean;        // not 0: divided by the number of ids
} embedding_bag_column;

// The ids of a batch, and the numbers of their bags: sample * num_columns + column.
//
// Fixed (splits null): ids [num_samples, sum of hotness], by sample, then by column.
// Ragged: one column; sample i has the ids [splits[i], splits[i + 1]), and num_ids is splits'
// last number.
typedef struct {
  const void* ids;       // int32 or int64
  int32_t id_bytes;      // 4 or 8
  int64_t num_ids;       // of all samples
  int64_t num_samples;
  const int64_t* splits;  // [num_samples + 1] or null
  const float* weights;   // [num_ids] or null: 1
  const embedding_bag_column* columns;  // on the host, also for CUDA
  int64_t num_columns;
} embedding_bag_ids;

// Optimizers. "kept" is what weight decay leaves of a weight before it moves: 1 without.
enum {
  EMBEDDING_BAG_SGD = 0,       // w = kept w - rate g
  EMBEDDING_BAG_ADAGRAD = 1,   // a += g^2;  w = kept w - rate g / (sqrt(a) + epsilon)
  EMBEDDING_BAG_ROW_WISE_ADAGRAD = 2,  // a_row += mean(g^2), then as Adagrad; slot 0: [rows]
  EMBEDDING_BAG_LAZY_ADAM = 3,  // m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
                                // w = kept w - rate m / (sqrt(v) + epsilon)
  EMBEDDING_BAG_ADAM = 4,      // the same with all_rows
  EMBEDDING_BAG_MOMENTUM = 5,  // m = b1 m - rate g;  w = kept w + m
  EMBEDDING_BAG_NESTEROV = 6,  // m = b1 m - rate g;  w = kept w + b1 m - rate g
  EMBEDDING_BAG_RMSPROP = 7,   // v = b2 v + (1 - b2) g^2;  s = rate g / (sqrt(v) + epsilon);
                               // w = kept w - s; with slot 1: m = b1 m + s;  w = kept w - m
};

typedef struct {
  int32_t kind;
  float* slots[2];     // [rows, dim] float32: Adagrad's a; Adam's m and v; m; RMSprop's v and m
  float gradient_factor;  // on every gradient
  float rate;          // learning rate, with Adam's bias corrections in it
  float kept;
  float epsilon;
  float beta1;
  float beta2;
  int32_t all_rows;         // not 0: every row moves, by g = 0 where none occurs (not CUDA)
  int32_t epsilon_in_root;  // not 0: sqrt(x + epsilon) in place of sqrt(x) + epsilon (not CUDA)
} embedding_bag_optimizer;

// A use of the table in the step: ids, and the gradient of their output [bags, dim].
typedef struct {
  embedding_bag_ids ids;
  const void* gradient;
} embedding_bag_use;

// Errors: 0 is success, negative numbers are the ones below, positive ones are cudaError_t.
enum {
  EMBEDDING_BAG_BAD_ARGUMENT = -1,   // a size, dtype or kind out of range, a null pointer to data
  EMBEDDING_BAG_OUT_OF_MEMORY = -2,
  EMBEDDING_BAG_BAD_ID = -3,         // CPU: an id is not in [0, num_rows) of its column
};

// ---- CPU ----------------------------------------------------------------------------------------
// Runs task(argument, 0) ... task(argument, num_tasks - 1), in any order, on num_threads threads.
typedef struct {
  void (*run)(void* pool, int64_t num_tasks, void (*task)(void* argument, int64_t number),
              void* argument);
  void* pool;
  int64_t num_threads;
} embedding_bag_threads;

// output: [num_samples * num_columns, dim] of output_dtype. With EMBEDDING_BAG_BAD_ID, bad_id (if
// not null) gets the position of an id that is out of range.
int embedding_bag_cpu_forward(const embedding_bag_table* table, const embedding_bag_ids* ids,
                              int32_t output_dtype, void* output,
                              const embedding_bag_threads* threads, int64_t* bad_id);

// Bytes that embedding_bag_cpu_update and embedding_bag_cpu_gradient need as `workspace`, which
// must lie on a boundary of 8 bytes; -1: sizes out of range (2^32 ids or bags).
int64_t embedding_bag_cpu_workspace(const embedding_bag_use* uses, int64_t num_uses,
                                    const embedding_bag_threads* threads);

int embedding_bag_cpu_update(const embedding_bag_table* table, const embedding_bag_use* uses,
                             int64_t num_uses, int32_t gradient_dtype,
                             const embedding_bag_optimizer* optimizer, void* workspace,
                             const embedding_bag_threads* threads);

// The gradient alone, for other optimizers, in two calls: the first sorts the ids in `workspace`
// and counts the rows that occur; the second, with the same arguments and workspace, writes those
// rows, ascending, and their summed gradients [num_rows, dim] in sum_dtype.
int embedding_bag_cpu_count_rows(const embedding_bag_table* table, const embedding_bag_use* uses,
                                 int64_t num_uses, int32_t gradient_dtype, void* workspace,
                                 const embedding_bag_threads* threads, int64_t* num_rows);
int embedding_bag_cpu_gradient(const embedding_bag_table* table, const embedding_bag_use* uses,
                               int64_t num_uses, int32_t gradient_dtype, int32_t sum_dtype,
                               void* workspace, const embedding_bag_threads* threads,
                               int64_t* rows, void* sums);

// The instruction set in use: "avx512", "avx2" or "generic", the best that the processor has.
const char* embedding_bag_cpu_isa(void);
// Chooses it (for tests and measurements); null: the best again. Error: this processor lacks it.
int embedding_bag_cpu_use_isa(const char* isa);

// ---- CUDA ---------------------------------------------------------------------------------------
// The same on device pointers (`columns` and the structures themselves are on the host), queued on
// `stream` (a cudaStream_t, null: the default stream) of the current device. Ids out of range read
// zeros and move no row. Optimizer scalars are read from device memory, so that nothing waits for
// the host: float32 [6] in the order gradient_factor, rate, kept, epsilon, beta1, beta2; those in
// `optimizer` are not read.
int embedding_bag_cuda_forward(const embedding_bag_table* table, const embedding_bag_ids* ids,
                               int32_t output_dtype, void* output, void* stream);
int64_t embedding_bag_cuda_workspace(const embedding_bag_table* table,
                                     const embedding_bag_use* uses, int64_t num_uses);
int embedding_bag_cuda_update(const embedding_bag_table* table, const embedding_bag_use* uses,
                              int64_t num_uses, int32_t gradient_dtype,
                              const embedding_bag_optimizer* optimizer, const float* scalars,
                              void* workspace, void* stream);
// num_rows: device memory, int64 [1], which the caller copies to the host between the two calls.
int embedding_bag_cuda_count_rows(const embedding_bag_table* table, const embedding_bag_use* uses,
                                  int64_t num_uses, void* workspace, void* stream,
                                  int64_t* num_rows);
int embedding_bag_cuda_gradient(const embedding_bag_table* table, const embedding_bag_use* uses,
                                int64_t num_uses, int32_t gradient_dtype, int32_t sum_dtype,
                                void* workspace, void* stream, int64_t* rows, void* sums);
// Queues a copy within the device, or between it and the host.
int embedding_bag_cuda_copy(void* to, const void* from, int64_t bytes, void* stream);
// Returns when all that is queued on `stream` is done.
int embedding_bag_cuda_wait(void* stream);
// What an error number means; never null.
const char* embedding_bag_cuda_error(int error);

#ifdef __cplusplus
}
#endif

#endif  // EMBEDDING_BAG_H_
