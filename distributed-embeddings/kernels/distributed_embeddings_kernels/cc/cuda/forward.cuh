// The lookup: one thread for each vector of the output.
//
// Neighbouring threads take neighbouring vectors, so that the threads of an output row read each
// of its table rows together, in as few transactions as there are. Nothing is computed that memory
// would wait for: a row of 512 bytes costs a warp some 30 instructions, and a multiprocessor of an
// H100 gets 13 bytes a cycle. What counts is the number of loads under way: kRowsAhead for each
// thread, after the loads of as many ids. Where bags have one id, one, and as many threads as fit.
#ifndef EMBEDDING_BAG_CUDA_FORWARD_CUH_
#define EMBEDDING_BAG_CUDA_FORWARD_CUH_

#include "ids.cuh"

namespace embedding_bag {
namespace device {

struct ForwardParameters {
  Ids ids;
  const void* values;
  void* output;
  int64_t dim;
  // Of this launch: samples from first_sample on, and their vectors in all columns.
  int64_t first_sample;
  uint32_t items;       // samples * columns * vectors
  Divisor vectors;      // of a row
  Divisor num_columns;  // of this launch
  Columns columns;
};

constexpr int kRowsAhead = 4;

// sum += factor * row for the next kRows ids of a bag, whose loads are all under way at once.
// values: of row 0, where the vector lies.
template <int kRows, class T, int count>
EB_DEVICE void AddRows(const ForwardParameters& p, const Column& column, const T* values,
                       int64_t position, int64_t end, float (&sum)[count]) {
  int64_t row[kRows];
  LoadIds(p.ids, position, end, row);
  Vector<T, count> vector[kRows];
  float factor[kRows];
  EB_UNROLL
  for (int i = 0; i < kRows; ++i) {
    row[i] = RowOf(row[i], column);
    factor[i] = row[i] < 0 ? 0.0f : 1.0f;
    vector[i] = {};
    if (row[i] >= 0) vector[i] = Load<T, count>(values + row[i] * p.dim);
  }
  if (p.ids.weights != nullptr) {
    EB_UNROLL
    for (int i = 0; i < kRows; ++i) {
      if (row[i] >= 0) factor[i] = p.ids.weights[position + i];
    }
  }
  EB_UNROLL
  for (int i = 0; i < kRows; ++i) AddTo<T, count>(sum, factor[i], vector[i]);
}

// Blocks that registers must leave room for on a multiprocessor.
template <int count, int kRows>
constexpr int kForwardBlocks = kRows > 1 ? (count < 8 ? 4 : 3)
                                         : AtMost(kMostBlocks, count < 8 ? 8 : 6);

// T: of the table. count: numbers of a vector. kRows: loads of rows under way at once.
template <class T, class Output, int count, int kRows>
EB_KERNEL void EB_LAUNCH_BOUNDS(kThreads, (kForwardBlocks<count, kRows>))
    ForwardKernel(ForwardParameters p) {
  EB_SHARED(shared);
  Column* columns = reinterpret_cast<Column*>(shared);
  LoadColumns(columns, p.columns);
  const uint64_t step = static_cast<uint64_t>(GridSize()) * BlockSize();
  for (uint64_t item = static_cast<uint64_t>(BlockIndex()) * BlockSize() + ThreadIndex();
       item < p.items; item += step) {
    const uint32_t row = Quotient(static_cast<uint32_t>(item), p.vectors);
    const int64_t number = (item - static_cast<uint64_t>(row) * p.vectors.divisor) * count;
    const uint32_t row_sample = Quotient(row, p.num_columns);
    const uint32_t row_column = row - row_sample * p.num_columns.divisor;
    const Column column = columns[row_column];
    const int64_t sample = p.first_sample + row_sample;
    const Bag bag = BagOf(p.ids, sample, column);

    const T* values = static_cast<const T*>(p.values) + number;
    float sum[count] = {};
    for (int64_t position = bag.begin; position < bag.end; position += kRows) {
      AddRows<kRows, T, count>(p, column, values, position, bag.end, sum);
    }
    EB_UNROLL
    for (int i = 0; i < count; ++i) sum[i] *= bag.factor;
    const int64_t output = sample * p.ids.num_columns + p.columns.first + row_column;
    StoreFloats<Output, count>(static_cast<Output*>(p.output) + output * p.dim + number, sum);
  }
}

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_FORWARD_CUH_
