// The C interface's CUDA part: checks arguments, chooses kernels and their sizes, queues them.
#include <algorithm>
#include <type_traits>

#include "../embedding_bag.h"
#include "arguments.cuh"
#include "expand.cuh"
#include "forward.cuh"
#include "reduce.cuh"
#include "runs.cuh"
#include "sort.cuh"
#include "workspace.cuh"

namespace embedding_bag {
namespace device {
namespace {

// Blocks of a launch on each multiprocessor: those that fit, and as many that wait, so that an even
// share of the work is not what the slowest multiprocessor gets.
constexpr int64_t kBlocksPerMultiprocessor = 16;
static_assert(kFloat32 == EMBEDDING_BAG_FLOAT32 && kFloat16 == EMBEDDING_BAG_FLOAT16 &&
              kBfloat16 == EMBEDDING_BAG_BFLOAT16);

constexpr int64_t kSharedBytesOfColumns = kMaxColumns * sizeof(Column);
constexpr int64_t kSharedBytesOfCounts = kThreads * sizeof(Count);

// Queues a kernel on a stream, on the blocks that its work needs and the device has use for.
class Stream {
 public:
  explicit Stream(void* stream) : stream_(stream) { error_ = Multiprocessors(&multiprocessors_); }

  void* get() const { return stream_; }

  template <class Parameters>
  int Queue(void (*kernel)(Parameters), int64_t threads, int64_t shared_bytes,
            const Parameters& parameters) const {
    if (error_ != 0) return error_;
    const int64_t needed = (threads - 1) / kThreads + 1;
    const int64_t blocks = std::min(needed, kBlocksPerMultiprocessor * multiprocessors_);
    return Launch(kernel, static_cast<unsigned>(blocks), kThreads, shared_bytes, stream_,
                  parameters);
  }

 private:
  void* stream_;
  int multiprocessors_ = 0;
  int error_ = 0;
};

// Calls visit with a null pointer to the dtype.
template <class Visit>
int WithDtype(int32_t dtype, const Visit& visit) {
  switch (dtype) {
    case EMBEDDING_BAG_FLOAT32:
      return visit(static_cast<float*>(nullptr));
    case EMBEDDING_BAG_FLOAT16:
      return visit(static_cast<half*>(nullptr));
    default:
      return visit(static_cast<bf16*>(nullptr));
  }
}

// Calls visit with 8, 4 or 1 (as a type): the numbers of a vector of an update; 8 only where all
// are of 16 bits. can_move(n): whether vectors of n numbers are aligned.
template <class CanMoveNumbers, class Visit>
int WithVectors(bool have_16_bits, const CanMoveNumbers& can_move, const Visit& visit) {
  if (have_16_bits && can_move(8)) return visit(std::integral_constant<int, 8>());
  if (can_move(4)) return visit(std::integral_constant<int, 4>());
  return visit(std::integral_constant<int, 1>());
}

// Calls visit with the kernels' kind of an optimizer (as a type).
template <class Visit>
int WithKind(int32_t kind, const Visit& visit) {
  switch (kind) {
    case EMBEDDING_BAG_SGD:
      return visit(std::integral_constant<int, kSgd>());
    case EMBEDDING_BAG_ADAGRAD:
      return visit(std::integral_constant<int, kAdagrad>());
    case EMBEDDING_BAG_ROW_WISE_ADAGRAD:
      return visit(std::integral_constant<int, kRowWiseAdagrad>());
    default:
      return visit(std::integral_constant<int, kAdam>());
  }
}

// ---- Forward ------------------------------------------------------------------------------------

// In launches of kMaxColumns columns and of kMaxVectors vectors, or of one sample.
// kRows: loads of rows under way at once.
template <class T, class Output, int count, int kRows>
int QueueForward(const embedding_bag_ids& ids, ForwardParameters p, const Stream& stream) {
  const int64_t vectors = p.dim / count;
  p.vectors = DivisorOf(static_cast<uint32_t>(vectors));
  int64_t next_id = 0;
  for (int64_t first = 0; first < ids.num_columns; first += kMaxColumns) {
    p.columns = ColumnsFrom(ids, first, &next_id);
    p.num_columns = DivisorOf(static_cast<uint32_t>(p.columns.count));
    const int64_t vectors_of_sample = p.columns.count * vectors;
    const int64_t samples_of_launch = std::max<int64_t>(1, kMaxVectors / vectors_of_sample);
    for (p.first_sample = 0; p.first_sample < ids.num_samples;
         p.first_sample += samples_of_launch) {
      const int64_t samples = std::min(samples_of_launch, ids.num_samples - p.first_sample);
      p.items = static_cast<uint32_t>(samples * vectors_of_sample);
      const int error = stream.Queue(ForwardKernel<T, Output, count, kRows>, p.items,
                                     kSharedBytesOfColumns, p);
      if (error != 0) return error;
    }
  }
  return 0;
}

template <class T, class Output>
int QueueForward(const embedding_bag_ids& ids, const ForwardParameters& p, const Stream& stream) {
  constexpr int kWidest = 16 / sizeof(T);
  const Rows table = {p.values, sizeof(T)}, output = {p.output, sizeof(Output)};
  if (CanMove(kWidest, p.dim, table, output)) {
    if (HaveAtMostOneId(ids)) return QueueForward<T, Output, kWidest, 1>(ids, p, stream);
    return QueueForward<T, Output, kWidest, kRowsAhead>(ids, p, stream);
  }
  if (kWidest > 4 && CanMove(4, p.dim, table, output)) {
    return QueueForward<T, Output, 4, kRowsAhead>(ids, p, stream);
  }
  return QueueForward<T, Output, 1, kRowsAhead>(ids, p, stream);
}

// ---- Update -------------------------------------------------------------------------------------

// The pairs of one use from pair `first_id` on; its bags are numbered from `first_bag` on.
int QueueExpand(const embedding_bag_table& table, const embedding_bag_use& use, bool weighted,
                const Workspace& workspace, int64_t first_id, int64_t first_bag,
                UseOnDevice* use_on_device, const Stream& stream) {
  ExpandParameters p = {};
  p.ids = OnDevice(use.ids);
  p.first_id = first_id;
  p.first_bag = first_bag;
  p.no_row = static_cast<uint32_t>(table.rows);
  p.keys = workspace.keys[0];
  p.payloads = workspace.payloads[0];
  p.use = use_on_device;
  p.gradient = use.gradient;
  int64_t next_id = 0;
  for (int64_t first = 0; first < use.ids.num_columns; first += kMaxColumns) {
    const int64_t first_of_columns = next_id;
    p.columns = ColumnsFrom(use.ids, first, &next_id);
    p.items = use.ids.num_ids;
    if (use.ids.splits == nullptr) {
      const int64_t ids_of_columns = next_id - first_of_columns;
      if (ids_of_columns == 0) continue;
      p.ids_of_columns = DivisorOf(static_cast<uint32_t>(ids_of_columns));
      p.items = use.ids.num_samples * ids_of_columns;
    }
    const int error = WithPayload(weighted, [&](auto* payload) {
      using Payload = std::remove_pointer_t<decltype(payload)>;
      return stream.Queue(ExpandKernel<Payload>, p.items, kSharedBytesOfColumns, p);
    });
    if (error != 0) return error;
  }
  return 0;
}

int QueueExpand(const embedding_bag_table& table, const embedding_bag_use* uses, int64_t num_uses,
                const Totals& totals, const Workspace& workspace, const Stream& stream) {
  int64_t first_id = 0, first_bag = 0;
  UseOnDevice* use_on_device = workspace.uses;
  for (int64_t i = 0; i < num_uses; ++i) {
    if (uses[i].ids.num_ids > 0) {
      const int error = QueueExpand(table, uses[i], totals.weighted, workspace, first_id,
                                    first_bag, use_on_device++, stream);
      if (error != 0) return error;
    }
    first_id += uses[i].ids.num_ids;
    first_bag += uses[i].ids.num_samples * uses[i].ids.num_columns;
  }
  return 0;
}

// Pairs, sorted, and their pieces; `with_numbers`: also the numbers of their rows.
int QueueSort(const embedding_bag_table& table, const embedding_bag_use* uses, int64_t num_uses,
              const Totals& totals, const Workspace& workspace, bool with_numbers,
              int64_t* num_rows, const Stream& stream) {
  RunsParameters p = {};
  p.num_pairs = static_cast<uint32_t>(totals.num_ids);
  p.num_tiles = static_cast<uint32_t>(TilesOf(totals.num_ids));
  p.no_row = static_cast<uint32_t>(table.rows);
  p.tiles = workspace.tiles;
  p.sorted = workspace.sorted;
  p.num_rows = num_rows;
  if (totals.num_ids == 0) return stream.Queue(AddRunsKernel, 1, kSharedBytesOfCounts, p);

  int error = QueueExpand(table, uses, num_uses, totals, workspace, stream);
  if (error != 0) return error;
  int sorted = 0;
  error = WithPayload(totals.weighted, [&](auto* payload) {
    using Payload = std::remove_pointer_t<decltype(payload)>;
    Payload* const payloads[2] = {static_cast<Payload*>(workspace.payloads[0]),
                                  static_cast<Payload*>(workspace.payloads[1])};
    size_t scratch_bytes = workspace.scratch_bytes;
    return SortPairs<Payload>(workspace.scratch, &scratch_bytes, workspace.keys, payloads,
                              p.num_pairs, BitsOfKeys(table), &sorted, stream.get());
  });
  if (error != 0) return error;
  p.keys = workspace.keys[sorted];
  p.payloads = workspace.payloads[sorted];
  // What the sort has left is free.
  p.pieces = workspace.keys[1 - sorted];
  if (with_numbers) p.numbers = static_cast<uint32_t*>(workspace.payloads[1 - sorted]);
  const int64_t threads = static_cast<int64_t>(p.num_tiles) * kThreads;
  error = stream.Queue(CountRunsKernel, threads, kSharedBytesOfCounts, p);
  if (error == 0) error = stream.Queue(AddRunsKernel, 1, kSharedBytesOfCounts, p);
  if (error == 0) error = stream.Queue(WriteRunsKernel, threads, kSharedBytesOfCounts, p);
  return error;
}

// Whole runs to the sink, then those of several pieces.
template <class G, int count, class Sink>
int QueueReduce(const embedding_bag_table& table, const embedding_bag_use* uses, int64_t num_uses,
                const Totals& totals, const Workspace& workspace, bool with_numbers,
                const Sink& sink, const Stream& stream) {
  PieceSource<G> pieces = {};
  pieces.sorted = workspace.sorted;
  pieces.uses = workspace.uses;
  for (int64_t i = 0; i < num_uses; ++i) {
    if (uses[i].ids.num_ids == 0) continue;
    ++pieces.num_uses;
    pieces.gradient = i == 0 ? uses[i].gradient : nullptr;
  }
  pieces.dim = table.dim;
  pieces.partials = workspace.partials;
  if (!with_numbers) pieces.partials.numbers = nullptr;
  pieces.num_pairs = static_cast<uint32_t>(totals.num_ids);
  pieces.no_row = static_cast<uint32_t>(table.rows);
  pieces.weighted = totals.weighted;

  ReduceParameters<PieceSource<G>, Sink> p = {};
  p.source = pieces;
  p.sink = sink;
  p.partial_sums = workspace.partials.sums;
  p.dim = table.dim;
  p.vectors = static_cast<int32_t>(table.dim / count);
  p.lanes = LanesFor(p.vectors);
  const int error = stream.Queue(ReduceKernel<PieceSource<G>, Sink, count>,
                                 totals.num_ids * p.lanes, 0, p);
  const int64_t full_stretches = totals.num_ids / kStretch;
  if (error != 0 || full_stretches == 0) return error;

  constexpr int kFloats = std::min(count, 4);
  ReduceParameters<PartialSource, Sink> rest = {};
  rest.source = {workspace.sorted, table.dim, pieces.partials, pieces.num_pairs, pieces.no_row};
  rest.sink = sink;
  rest.dim = p.dim;
  rest.vectors = static_cast<int32_t>(table.dim / kFloats);
  rest.lanes = LanesFor(rest.vectors);
  return stream.Queue(ReduceKernel<PartialSource, Sink, kFloats>, full_stretches * rest.lanes, 0,
                      rest);
}

// Whether the gradients of all uses can move by `count` numbers.
bool CanMoveGradients(int64_t count, int64_t dim, int32_t dtype, const embedding_bag_use* uses,
                      int64_t num_uses) {
  return std::all_of(uses, uses + num_uses, [&](const embedding_bag_use& use) {
    return CanMove(count, dim, Rows{use.gradient, SizeOf(dtype)});
  });
}

template <class T, int count>
int QueueOtherRows(const embedding_bag_table& table, const Totals& totals,
                   const Workspace& workspace, const Optimizer<T, kAdam>& optimizer,
                   const Stream& stream) {
  OtherRowsParameters<T> p = {};
  p.optimizer = optimizer;
  p.sorted = workspace.sorted;
  p.num_pairs = totals.num_ids;
  p.rows = table.rows;
  p.vectors = static_cast<int32_t>(table.dim / count);
  p.lanes = LanesFor(p.vectors);
  return stream.Queue(OtherRowsKernel<T, count>, table.rows * p.lanes, 0, p);
}

// Pairs are sorted; moves the rows that occur, and with Adam the others.
template <class T, int count>
int QueueUpdate(const embedding_bag_table& table, const embedding_bag_use* uses, int64_t num_uses,
                int32_t gradient_dtype, const embedding_bag_optimizer& optimizer,
                const float* scalars, const Totals& totals, const Workspace& workspace,
                const Stream& stream) {
  return WithKind(optimizer.kind, [&](auto kind) {
    const Optimizer<T, kind> sink = {static_cast<T*>(table.values),
                                     {optimizer.slots[0], optimizer.slots[1]},
                                     reinterpret_cast<const Scalars*>(scalars),
                                     table.dim};
    int error = 0;
    if (totals.num_ids > 0) {
      error = WithDtype(gradient_dtype, [&](auto* gradient) {
        using G = std::remove_pointer_t<decltype(gradient)>;
        constexpr bool kHave16Bits = sizeof(T) == 2 && sizeof(G) == 2;
        constexpr int kCount = kHave16Bits ? count : std::min(count, 4);
        return QueueReduce<G, kCount>(table, uses, num_uses, totals, workspace,
                                     /*with_numbers=*/false, sink, stream);
      });
    }
    if constexpr (kind == kAdam) {
      if (error == 0 && optimizer.kind == EMBEDDING_BAG_ADAM) {
        return QueueOtherRows<T, std::min(count, 4)>(table, totals, workspace, sink, stream);
      }
    }
    return error;
  });
}

}  // namespace
}  // namespace device
}  // namespace embedding_bag

// ---- The interface ------------------------------------------------------------------------------

using namespace embedding_bag::device;

extern "C" {

int embedding_bag_cuda_forward(const embedding_bag_table* table, const embedding_bag_ids* ids,
                               int32_t output_dtype, void* output, void* stream) {
  if (!IsValid(table) || !AreValid(ids, *table) || !IsFloat(output_dtype)) {
    return EMBEDDING_BAG_BAD_ARGUMENT;
  }
  if (ids->num_samples == 0) return 0;
  if (output == nullptr || (table->rows > 0 && table->values == nullptr)) {
    return EMBEDDING_BAG_BAD_ARGUMENT;
  }
  ForwardParameters p = {};
  p.ids = OnDevice(*ids);
  p.values = table->values;
  p.output = output;
  p.dim = table->dim;
  const Stream queue(stream);
  return WithDtype(output_dtype, [&](auto* to) {
    using Output = std::remove_pointer_t<decltype(to)>;
    return WithDtype(table->dtype, [&](auto* from) {
      return QueueForward<std::remove_pointer_t<decltype(from)>, Output>(*ids, p, queue);
    });
  });
}

int64_t embedding_bag_cuda_workspace(const embedding_bag_table* table,
                                     const embedding_bag_use* uses, int64_t num_uses) {
  const Totals totals = TotalsOf(table, uses, num_uses);
  if (!totals.are_valid) return -1;
  const Workspace workspace = LayOut(*table, totals, num_uses, nullptr);
  return workspace.error == 0 ? workspace.bytes : -1;
}

int embedding_bag_cuda_update(const embedding_bag_table* table, const embedding_bag_use* uses,
                              int64_t num_uses, int32_t gradient_dtype,
                              const embedding_bag_optimizer* optimizer, const float* scalars,
                              void* workspace, void* stream) {
  const Totals totals = TotalsOf(table, uses, num_uses);
  if (!totals.are_valid || !HaveGradients(uses, num_uses) || !IsFloat(gradient_dtype) ||
      !IsValid(optimizer, table->rows > 0) || scalars == nullptr || workspace == nullptr ||
      (table->rows > 0 && table->values == nullptr)) {
    return EMBEDDING_BAG_BAD_ARGUMENT;
  }
  if (table->rows == 0) return 0;
  const Stream queue(stream);
  const Workspace parts = LayOut(*table, totals, num_uses, workspace);
  if (parts.error != 0) return parts.error;
  if (totals.num_ids > 0) {
    const int error = QueueSort(*table, uses, num_uses, totals, parts, /*with_numbers=*/false,
                                nullptr, queue);
    if (error != 0) return error;
  }
  // The one number of a row that row-wise Adagrad has is no vector.
  const bool has_row_slot = optimizer->kind == EMBEDDING_BAG_ROW_WISE_ADAGRAD;
  const auto can_move = [&](int64_t count) {
    return CanMoveGradients(count, table->dim, gradient_dtype, uses, num_uses) &&
           CanMove(count, table->dim, Rows{table->values, SizeOf(table->dtype)},
                   Rows{has_row_slot ? nullptr : optimizer->slots[0], 4},
                   Rows{optimizer->slots[1], 4});
  };
  const bool have_16_bits = SizeOf(table->dtype) == 2 && SizeOf(gradient_dtype) == 2;
  return WithVectors(have_16_bits, can_move, [&](auto count) {
    return WithDtype(table->dtype, [&](auto* values) {
      using T = std::remove_pointer_t<decltype(values)>;
      return QueueUpdate<T, count>(*table, uses, num_uses, gradient_dtype, *optimizer, scalars,
                                   totals, parts, queue);
    });
  });
}

int embedding_bag_cuda_count_rows(const embedding_bag_table* table, const embedding_bag_use* uses,
                                  int64_t num_uses, void* workspace, void* stream,
                                  int64_t* num_rows) {
  const Totals totals = TotalsOf(table, uses, num_uses);
  if (!totals.are_valid || workspace == nullptr || num_rows == nullptr) {
    return EMBEDDING_BAG_BAD_ARGUMENT;
  }
  const Workspace parts = LayOut(*table, totals, num_uses, workspace);
  if (parts.error != 0) return parts.error;
  return QueueSort(*table, uses, num_uses, totals, parts, /*with_numbers=*/true, num_rows,
                   Stream(stream));
}

int embedding_bag_cuda_gradient(const embedding_bag_table* table, const embedding_bag_use* uses,
                                int64_t num_uses, int32_t gradient_dtype, int32_t sum_dtype,
                                void* workspace, void* stream, int64_t* rows, void* sums) {
  const Totals totals = TotalsOf(table, uses, num_uses);
  if (!totals.are_valid || !HaveGradients(uses, num_uses) || !IsFloat(gradient_dtype) ||
      !IsFloat(sum_dtype) || workspace == nullptr) {
    return EMBEDDING_BAG_BAD_ARGUMENT;
  }
  if (totals.num_ids == 0) return 0;
  if (rows == nullptr || sums == nullptr) return EMBEDDING_BAG_BAD_ARGUMENT;
  const Workspace parts = LayOut(*table, totals, num_uses, workspace);
  if (parts.error != 0) return parts.error;
  const auto can_move = [&](int64_t count) {
    return CanMoveGradients(count, table->dim, gradient_dtype, uses, num_uses) &&
           CanMove(count, table->dim, Rows{sums, SizeOf(sum_dtype)});
  };
  return WithVectors(SizeOf(gradient_dtype) == 2, can_move, [&](auto count) {
    return WithDtype(gradient_dtype, [&](auto* dtype) {
      using G = std::remove_pointer_t<decltype(dtype)>;
      constexpr int kCount = sizeof(G) == 2 ? count : std::min<int>(count, 4);
      const RowList sink = {rows, sums, sum_dtype, table->dim};
      return QueueReduce<G, kCount>(*table, uses, num_uses, totals, parts, /*with_numbers=*/true,
                                    sink, Stream(stream));
    });
  });
}

int embedding_bag_cuda_copy(void* to, const void* from, int64_t bytes, void* stream) {
  return Copy(to, from, bytes, stream);
}

int embedding_bag_cuda_wait(void* stream) { return Wait(stream); }

const char* embedding_bag_cuda_error(int error) {
  switch (error) {
    case 0:
      return "success";
    case EMBEDDING_BAG_BAD_ARGUMENT:
      return "a size, dtype or kind out of range, or a null pointer to data";
    case EMBEDDING_BAG_OUT_OF_MEMORY:
      return "out of memory";
    case EMBEDDING_BAG_BAD_ID:
      return "an id out of range";
    default:
      return error > 0 ? ErrorText(error) : "unknown error";
  }
}

}  // extern "C"
