// The ids of a batch on the device, and the columns of a launch.
#ifndef EMBEDDING_BAG_CUDA_IDS_CUH_
#define EMBEDDING_BAG_CUDA_IDS_CUH_

#include "vectors.cuh"

namespace embedding_bag {
namespace device {

// A kernel's parameters hold 4 KB: more columns take several launches.
constexpr int kMaxColumns = 128;

struct Column {
  uint32_t row_offset;
  uint32_t num_rows;
  uint32_t first;    // position of the column's first id within a sample's
  uint32_t hotness;
  float factor;      // 1, or 1 / hotness of a mean
};

struct Ids {
  const void* ids;
  const int64_t* splits;  // or null
  const float* weights;   // or null
  int64_t num_ids;
  int64_t num_samples;
  int64_t ids_per_sample;  // without splits
  int64_t num_columns;
  int32_t id_bytes;
  int32_t mean;            // with splits
};

// Some of the columns: [first, first + count).
struct Columns {
  int64_t first;
  int32_t count;
  Column column[kMaxColumns];
};

// Copies the columns to shared memory, where lanes may read different ones at once.
EB_DEVICE void LoadColumns(Column* shared, const Columns& columns) {
  for (int i = ThreadIndex(); i < columns.count; i += BlockSize()) shared[i] = columns.column[i];
  SyncBlock();
}

// The ids from a position on, whose loads are all under way at once; those from `end` on are -1.
template <int count>
EB_DEVICE void LoadIds(const Ids& ids, int64_t position, int64_t end, int64_t (&id)[count]) {
  if (ids.id_bytes == 4) {
    const int32_t* from = static_cast<const int32_t*>(ids.ids) + position;
    EB_UNROLL
    for (int i = 0; i < count; ++i) id[i] = position + i < end ? from[i] : -1;
  } else {
    const int64_t* from = static_cast<const int64_t*>(ids.ids) + position;
    EB_UNROLL
    for (int i = 0; i < count; ++i) id[i] = position + i < end ? from[i] : -1;
  }
}

// The row of an id, or -1: it is not in [0, num_rows). A negative id is a large number without a
// sign.
EB_DEVICE int64_t RowOf(int64_t id, const Column& column) {
  return static_cast<uint64_t>(id) < column.num_rows ? id + column.row_offset : -1;
}

// Positions [begin, end) of the ids of a bag, and the factor of their sum.
struct Bag {
  int64_t begin;
  int64_t end;
  float factor;
};

// The ids of sample `sample` and column `column`. Splits that are not ascending, or that pass the
// ids, do not lead out of them.
EB_DEVICE Bag BagOf(const Ids& ids, int64_t sample, const Column& column) {
  if (ids.splits == nullptr) {
    const int64_t begin = sample * ids.ids_per_sample + column.first;
    return {begin, begin + column.hotness, column.factor};
  }
  const int64_t begin = ids.splits[sample] < 0 ? 0 : ids.splits[sample];
  const int64_t next = ids.splits[sample + 1];
  const int64_t end = next < ids.num_ids ? next : ids.num_ids;
  const int64_t count = end - begin;
  return {begin, end, ids.mean != 0 && count > 0 ? 1.0f / static_cast<float>(count) : 1.0f};
}

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_IDS_CUH_
