// Checks of the interface's arguments, and the numbers that launches are made of. Host only.
#ifndef EMBEDDING_BAG_CUDA_ARGUMENTS_CUH_
#define EMBEDDING_BAG_CUDA_ARGUMENTS_CUH_

#include <algorithm>

#include "../embedding_bag.h"
#include "ids.cuh"

namespace embedding_bag {
namespace device {
namespace {

constexpr int64_t kMaxRows = UINT32_MAX;   // the number after the last row is a key too
constexpr int64_t kMaxPairs = UINT32_MAX;  // ids, and bags, of all uses
constexpr int64_t kMaxDim = 1 << 24;       // times kMaxColumns: the vectors of a sample in 32 bits

int64_t SizeOf(int32_t dtype) { return dtype == EMBEDDING_BAG_FLOAT32 ? 4 : 2; }

bool IsFloat(int32_t dtype) {
  return dtype == EMBEDDING_BAG_FLOAT32 || dtype == EMBEDDING_BAG_FLOAT16 ||
         dtype == EMBEDDING_BAG_BFLOAT16;
}

bool Overflows(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product);
}

// Rows and dim in range: no offset in bytes is beyond 64 bits.
bool IsValid(const embedding_bag_table* table) {
  if (table == nullptr || !IsFloat(table->dtype)) return false;
  return table->rows >= 0 && table->rows <= kMaxRows && table->dim > 0 && table->dim <= kMaxDim;
}

int64_t IdsPerSample(const embedding_bag_ids& ids) {
  int64_t sum = 0;
  for (int64_t i = 0; i < ids.num_columns; ++i) sum += ids.columns[i].hotness;
  return sum;
}

bool HaveValidColumns(const embedding_bag_ids& ids, const embedding_bag_table& table) {
  if (ids.num_columns < 1 || ids.columns == nullptr) return false;
  if (ids.splits != nullptr && ids.num_columns != 1) return false;
  int64_t ids_per_sample = 0;
  for (int64_t i = 0; i < ids.num_columns; ++i) {
    const embedding_bag_column& column = ids.columns[i];
    if (column.num_rows < 0 || column.row_offset < 0 || column.num_rows > table.rows ||
        column.row_offset > table.rows - column.num_rows) {
      return false;
    }
    if (ids.splits != nullptr) continue;
    if (column.hotness < 0 || column.hotness > INT32_MAX) return false;
    ids_per_sample += column.hotness;
    if (ids_per_sample > INT32_MAX) return false;
  }
  return true;
}

bool AreValid(const embedding_bag_ids* ids, const embedding_bag_table& table) {
  if (ids == nullptr || (ids->id_bytes != 4 && ids->id_bytes != 8)) return false;
  if (ids->num_ids < 0 || ids->num_samples < 0) return false;
  if (ids->num_ids > INT64_MAX / 8 || (ids->num_ids > 0 && ids->ids == nullptr)) return false;
  if (!HaveValidColumns(*ids, table)) return false;
  if (ids->splits == nullptr) {
    int64_t num_ids;
    if (__builtin_mul_overflow(ids->num_samples, IdsPerSample(*ids), &num_ids)) return false;
    if (num_ids != ids->num_ids) return false;
  }
  if (Overflows(ids->num_samples, ids->num_columns)) return false;
  return !Overflows(ids->num_samples * ids->num_columns, 4 * table.dim);
}

// All ids and bags of the uses.
struct Totals {
  bool are_valid;
  int64_t num_ids;
  int64_t num_bags;
  bool weighted;  // some use has weights or means
};

Totals TotalsOf(const embedding_bag_table* table, const embedding_bag_use* uses,
                int64_t num_uses) {
  Totals totals = {};
  if (!IsValid(table) || num_uses < 0 || num_uses > INT32_MAX) return totals;
  if (num_uses > 0 && uses == nullptr) return totals;
  for (int64_t i = 0; i < num_uses; ++i) {
    const embedding_bag_ids& ids = uses[i].ids;
    if (!AreValid(&ids, *table)) return totals;
    const int64_t num_bags = ids.num_samples * ids.num_columns;
    if (ids.num_ids > kMaxPairs - totals.num_ids) return totals;
    if (num_bags > kMaxPairs - totals.num_bags) return totals;
    totals.num_ids += ids.num_ids;
    totals.num_bags += num_bags;
    totals.weighted |= ids.weights != nullptr;
    for (int64_t j = 0; j < ids.num_columns; ++j) totals.weighted |= ids.columns[j].mean != 0;
  }
  totals.are_valid = true;
  return totals;
}

bool HaveGradients(const embedding_bag_use* uses, int64_t num_uses) {
  return std::all_of(uses, uses + num_uses, [](const embedding_bag_use& use) {
    return use.ids.num_ids == 0 || use.gradient != nullptr;
  });
}

bool IsValid(const embedding_bag_optimizer* optimizer, bool has_rows) {
  if (optimizer == nullptr || optimizer->all_rows || optimizer->epsilon_in_root) return false;
  int num_slots = 0;
  switch (optimizer->kind) {
    case EMBEDDING_BAG_SGD:
      break;
    case EMBEDDING_BAG_ADAGRAD:
    case EMBEDDING_BAG_ROW_WISE_ADAGRAD:
      num_slots = 1;
      break;
    case EMBEDDING_BAG_LAZY_ADAM:
    case EMBEDDING_BAG_ADAM:
      num_slots = 2;
      break;
    default:
      return false;
  }
  for (int i = 0; i < num_slots; ++i) {
    if (has_rows && optimizer->slots[i] == nullptr) return false;
  }
  return true;
}

// Whether each bag has one id or none.
bool HaveAtMostOneId(const embedding_bag_ids& ids) {
  return ids.splits == nullptr &&
         std::all_of(ids.columns, ids.columns + ids.num_columns,
                     [](const embedding_bag_column& column) { return column.hotness <= 1; });
}

Ids OnDevice(const embedding_bag_ids& ids) {
  Ids on_device = {};
  on_device.ids = ids.ids;
  on_device.splits = ids.splits;
  on_device.weights = ids.weights;
  on_device.num_ids = ids.num_ids;
  on_device.num_samples = ids.num_samples;
  on_device.ids_per_sample = ids.splits == nullptr ? IdsPerSample(ids) : 0;
  on_device.num_columns = ids.num_columns;
  on_device.id_bytes = ids.id_bytes;
  on_device.mean = ids.columns[0].mean;
  return on_device;
}

// Columns [first, first + kMaxColumns) as far as there are some. *next_id: position within a sample
// of the first column's first id; afterwards, of the one after the last.
Columns ColumnsFrom(const embedding_bag_ids& ids, int64_t first, int64_t* next_id) {
  Columns columns = {};
  columns.first = first;
  columns.count = static_cast<int32_t>(std::min<int64_t>(kMaxColumns, ids.num_columns - first));
  for (int i = 0; i < columns.count; ++i) {
    const embedding_bag_column& from = ids.columns[first + i];
    Column& to = columns.column[i];
    to.row_offset = static_cast<uint32_t>(from.row_offset);
    to.num_rows = static_cast<uint32_t>(from.num_rows);
    to.factor = 1.0f;
    if (ids.splits != nullptr) continue;
    to.first = static_cast<uint32_t>(*next_id);
    to.hotness = static_cast<uint32_t>(from.hotness);
    if (from.mean != 0 && from.hotness > 0) to.factor = 1.0f / static_cast<float>(from.hotness);
    *next_id += from.hotness;
  }
  return columns;
}

// ---- Vectors ------------------------------------------------------------------------------------

struct Rows {
  const void* data;
  int64_t size;  // of a number
};

// Whether `count` numbers of each of these can move in whole pieces.
template <class... AllRows>
bool CanMove(int64_t count, int64_t dim, const AllRows&... rows) {
  const auto is_aligned = [&](const Rows& r) {
    return reinterpret_cast<uintptr_t>(r.data) % std::min<int64_t>(16, count * r.size) == 0;
  };
  return dim % count == 0 && (... && is_aligned(rows));
}

// Lanes of a group: enough for the vectors of a row, a power of two.
int LanesFor(int64_t vectors) {
  int lanes = 1;
  while (lanes < kWarp && lanes < vectors) lanes *= 2;
  return lanes;
}

}  // namespace
}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_ARGUMENTS_CUH_
