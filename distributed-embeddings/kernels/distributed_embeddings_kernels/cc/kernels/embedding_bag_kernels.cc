// The TensorFlow side of the kernels: inputs, checks, outputs, threads or stream.
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <string>
#include <type_traits>
#include <vector>

#include "../embedding_bag.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#ifdef WITH_CUDA
#include "xla/stream_executor/stream.h"
#endif

namespace {

using tensorflow::core::RefCountPtr;
using tensorflow::DataType;
using tensorflow::OkStatus;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::Var;
using tensorflow::errors::Internal;
using tensorflow::errors::InvalidArgument;
using tensorflow::errors::ResourceExhausted;

struct Cpu {};
struct Gpu {};

int32_t DtypeOf(DataType type) {
  switch (type) {
    case tensorflow::DT_HALF:
      return EMBEDDING_BAG_FLOAT16;
    case tensorflow::DT_BFLOAT16:
      return EMBEDDING_BAG_BFLOAT16;
    default:
      return EMBEDDING_BAG_FLOAT32;
  }
}

// ---- devices ------------------------------------------------------------------------------------

struct Threads {
  explicit Threads(OpKernelContext* context)
      : workers(context->device()->tensorflow_cpu_worker_threads()),
        interface{Run, this, workers->num_threads} {}

  // Each thread takes the next task when it has finished one.
  static void Run(void* pool, int64_t num_tasks, void (*task)(void* argument, int64_t number),
                  void* argument) {
    constexpr int64_t kCyclesOfThread = int64_t{1} << 30;  // so that each gets a part
    const auto* workers = static_cast<Threads*>(pool)->workers;
    std::atomic<int64_t> next{0};
    workers->workers->ParallelFor(
        std::min<int64_t>(workers->num_threads, num_tasks), kCyclesOfThread, [&](int64_t, int64_t) {
          for (int64_t number; (number = next++) < num_tasks;) task(argument, number);
        });
  }

  const tensorflow::DeviceBase::CpuWorkerThreads* workers;
  embedding_bag_threads interface;
};

#ifdef WITH_CUDA
void* StreamOf(OpKernelContext* context) {
  return context->op_device_context()->stream()->platform_specific_handle().stream;
}
#endif

Status AsStatus(int error) {
  switch (error) {
    case 0:
      return OkStatus();
    case EMBEDDING_BAG_BAD_ARGUMENT:
      return InvalidArgument(
          "EmbeddingBag: sizes do not fit: ids must be [samples, sum of hotness]; splits must "
          "ascend from 0 to the number of ids; row_offsets and num_rows must lie in the table; a "
          "table has up to 2^32 rows, a step up to 2^32 ids");
    case EMBEDDING_BAG_OUT_OF_MEMORY:
      return ResourceExhausted("EmbeddingBag: no memory for the ids of a task");
    case EMBEDDING_BAG_BAD_ID:
      return InvalidArgument("EmbeddingBag: an id is not in [0, rows of its table)");
  }
#ifdef WITH_CUDA
  return Internal("EmbeddingBag: ", embedding_bag_cuda_error(error));
#else
  return Internal("EmbeddingBag: error ", error);
#endif
}

// ---- inputs -------------------------------------------------------------------------------------

Status ReadColumns(OpKernelConstruction* construction, std::vector<embedding_bag_column>* columns) {
  std::vector<int64_t> hotness, row_offsets, num_rows;
  std::vector<bool> mean;
  TF_RETURN_IF_ERROR(construction->GetAttr("hotness", &hotness));
  TF_RETURN_IF_ERROR(construction->GetAttr("row_offsets", &row_offsets));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_rows", &num_rows));
  TF_RETURN_IF_ERROR(construction->GetAttr("mean", &mean));
  if (row_offsets.size() != hotness.size() || num_rows.size() != hotness.size() ||
      mean.size() != hotness.size()) {
    return InvalidArgument(
        "EmbeddingBag: hotness, row_offsets, num_rows and mean must have one value per column");
  }
  for (size_t i = 0; i < hotness.size(); ++i) {
    columns->push_back({hotness[i], row_offsets[i], num_rows[i], mean[i]});
  }
  return OkStatus();
}

Status ReadIds(const Tensor& ids, const Tensor& splits, const Tensor& weights, bool ragged,
               const embedding_bag_column* columns, int64_t num_columns, embedding_bag_ids* result) {
  const int64_t num_ids = ids.NumElements();
  if (ids.dims() != (ragged ? 1 : 2)) {
    return InvalidArgument("EmbeddingBag: ids must be ", ragged ? "[ids]" : "[samples, ids]",
                           ", got ", ids.shape().DebugString());
  }
  if (ragged && (splits.dims() != 1 || splits.NumElements() == 0)) {
    return InvalidArgument("EmbeddingBag: splits must be [samples + 1], got ",
                           splits.shape().DebugString());
  }
  if (weights.NumElements() != 0 && weights.NumElements() != num_ids) {
    return InvalidArgument("EmbeddingBag: weights must be one per id, ",
                           ids.shape().DebugString(), ", got ", weights.shape().DebugString());
  }
  result->ids = ids.data();
  result->id_bytes = ids.dtype() == tensorflow::DT_INT32 ? 4 : 8;
  result->num_ids = num_ids;
  result->num_samples = ragged ? splits.NumElements() - 1 : ids.dim_size(0);
  result->splits = ragged ? static_cast<const int64_t*>(splits.data()) : nullptr;
  result->weights =
      weights.NumElements() != 0 ? static_cast<const float*>(weights.data()) : nullptr;
  result->columns = columns;
  result->num_columns = num_columns;
  return OkStatus();
}

Status ReadTable(const Tensor& table, embedding_bag_table* result) {
  if (table.dims() != 2 || table.dim_size(1) == 0) {
    return InvalidArgument("EmbeddingBag: a table must be [rows, dim], got ",
                           table.shape().DebugString());
  }
  *result = {const_cast<void*>(static_cast<const void*>(table.data())), table.dim_size(0),
             table.dim_size(1), DtypeOf(table.dtype())};
  return OkStatus();
}

// ---- lookup -------------------------------------------------------------------------------------

template <typename Device>
class Lookup : public OpKernel {
 public:
  explicit Lookup(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("ragged", &ragged_));
    OP_REQUIRES_OK(construction, ReadColumns(construction, &columns_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Var> variable;
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
    tensorflow::tf_shared_lock lock(*variable->mu());
    embedding_bag_table table;
    OP_REQUIRES_OK(context, ReadTable(*variable->tensor(), &table));
    embedding_bag_ids ids;
    OP_REQUIRES_OK(context, ReadIds(context->input(1), context->input(2), context->input(3),
                                    ragged_, columns_.data(), columns_.size(), &ids));
    TensorShape shape;
    OP_REQUIRES_OK(context, TensorShape::BuildTensorShape(
                                {ids.num_samples, ids.num_columns * table.dim}, &shape));
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &output));
    if (output->NumElements() == 0) return;
    const int32_t dtype = DtypeOf(output->dtype());
    if constexpr (std::is_same_v<Device, Cpu>) {
      Threads threads(context);
      int64_t bad_id = 0;
      const int error = embedding_bag_cpu_forward(&table, &ids, dtype, output->data(),
                                                  &threads.interface, &bad_id);
      OP_REQUIRES_OK(context,
                     error == EMBEDDING_BAG_BAD_ID ? BadId(ids, bad_id) : AsStatus(error));
    } else {
#ifdef WITH_CUDA
      OP_REQUIRES_OK(context, AsStatus(embedding_bag_cuda_forward(
                                  &table, &ids, dtype, output->data(), StreamOf(context))));
#endif
    }
  }

 private:
  static Status BadId(const embedding_bag_ids& ids, int64_t position) {
    const int64_t id = ids.id_bytes == 4 ? static_cast<const int32_t*>(ids.ids)[position]
                                         : static_cast<const int64_t*>(ids.ids)[position];
    int64_t column = 0;
    if (ids.splits == nullptr) {
      int64_t left = position % (ids.num_ids / ids.num_samples);
      for (; left >= ids.columns[column].hotness; ++column) left -= ids.columns[column].hotness;
    }
    return InvalidArgument("EmbeddingBag: an id is not in [0, rows of its table): id ", id,
                           " at position ", position, ", in a table of ",
                           ids.columns[column].num_rows, " rows");
  }

  bool ragged_;
  std::vector<embedding_bag_column> columns_;
};

// ---- gradient and update ------------------------------------------------------------------------

class Uses : public OpKernel {
 public:
  explicit Uses(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("ragged", &ragged_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_columns", &num_columns_));
    OP_REQUIRES_OK(construction, ReadColumns(construction, &columns_));
    int64_t count = 0;
    for (const int64_t columns : num_columns_) count += columns;
    OP_REQUIRES(construction,
                count == static_cast<int64_t>(columns_.size()) &&
                    ragged_.size() == num_columns_.size(),
                InvalidArgument("EmbeddingBag: num_columns and ragged must have one value per use, "
                                "and the columns must be those of all uses"));
  }

 protected:
  Status ReadUses(OpKernelContext* context, int64_t dim, std::vector<embedding_bag_use>* uses) {
    OpInputList ids, splits, weights, gradients;
    TF_RETURN_IF_ERROR(context->input_list("ids", &ids));
    TF_RETURN_IF_ERROR(context->input_list("splits", &splits));
    TF_RETURN_IF_ERROR(context->input_list("weights", &weights));
    TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
    const embedding_bag_column* columns = columns_.data();
    for (int u = 0; u < ids.size(); ++u) {
      embedding_bag_use use;
      TF_RETURN_IF_ERROR(ReadIds(ids[u], splits[u], weights[u], ragged_[u], columns,
                                 num_columns_[u], &use.ids));
      columns += num_columns_[u];
      if (gradients[u].NumElements() != use.ids.num_samples * use.ids.num_columns * dim) {
        return InvalidArgument("EmbeddingBag: a gradient must be [samples, columns * dim] = [",
                               use.ids.num_samples, ", ", use.ids.num_columns * dim, "], got ",
                               gradients[u].shape().DebugString());
      }
      use.gradient = gradients[u].data();
      uses->push_back(use);
    }
    gradient_dtype_ = DtypeOf(gradients[0].dtype());
    return OkStatus();
  }

  static Status AllocateWorkspace(OpKernelContext* context, int64_t bytes, Tensor* workspace) {
    if (bytes < 0) return AsStatus(EMBEDDING_BAG_BAD_ARGUMENT);
    return context->allocate_temp(tensorflow::DT_INT8, TensorShape({bytes}), workspace);
  }

  int32_t gradient_dtype_ = 0;

 private:
  std::vector<bool> ragged_;
  std::vector<int32_t> num_columns_;
  std::vector<embedding_bag_column> columns_;
};

// How gradients and updates run: in all calls, `uses` are those of the first.
template <typename Device>
class Engine;

template <>
class Engine<Cpu> {
 public:
  Engine(OpKernelContext* context, const embedding_bag_table& table,
         const std::vector<embedding_bag_use>& uses, int32_t gradient_dtype)
      : threads_(context), table_(table), uses_(uses), gradient_dtype_(gradient_dtype) {}

  int64_t WorkspaceBytes() const {
    return embedding_bag_cpu_workspace(uses_.data(), uses_.size(), &threads_.interface);
  }
  int CountRows(void* workspace, int64_t* num_rows) const {
    return embedding_bag_cpu_count_rows(&table_, uses_.data(), uses_.size(), gradient_dtype_,
                                        workspace, &threads_.interface, num_rows);
  }
  int Sum(void* workspace, int32_t sum_dtype, int64_t* rows, void* sums) const {
    return embedding_bag_cpu_gradient(&table_, uses_.data(), uses_.size(), gradient_dtype_,
                                      sum_dtype, workspace, &threads_.interface, rows, sums);
  }
  int Update(void* workspace, embedding_bag_optimizer optimizer, const float* scalars) const {
    optimizer.gradient_factor = scalars[0];
    optimizer.rate = scalars[1];
    optimizer.kept = scalars[2];
    optimizer.epsilon = scalars[3];
    optimizer.beta1 = scalars[4];
    optimizer.beta2 = scalars[5];
    return embedding_bag_cpu_update(&table_, uses_.data(), uses_.size(), gradient_dtype_,
                                    &optimizer, workspace, &threads_.interface);
  }
  static int Copy(OpKernelContext*, void* to, const void* from, int64_t bytes) {
    memcpy(to, from, bytes);
    return 0;
  }

 private:
  Threads threads_;
  const embedding_bag_table& table_;
  const std::vector<embedding_bag_use>& uses_;
  int32_t gradient_dtype_;
};

#ifdef WITH_CUDA
template <>
class Engine<Gpu> {
 public:
  Engine(OpKernelContext* context, const embedding_bag_table& table,
         const std::vector<embedding_bag_use>& uses, int32_t gradient_dtype)
      : context_(context), table_(table), uses_(uses), gradient_dtype_(gradient_dtype) {}

  int64_t WorkspaceBytes() const {
    return embedding_bag_cuda_workspace(&table_, uses_.data(), uses_.size());
  }
  // The size of an output is known on the host: this waits for the sort.
  int CountRows(void* workspace, int64_t* num_rows) const {
    Tensor count;
    if (!context_->allocate_temp(tensorflow::DT_INT64, TensorShape({1}), &count).ok()) {
      return EMBEDDING_BAG_OUT_OF_MEMORY;
    }
    void* const stream = StreamOf(context_);
    int64_t* const on_device = static_cast<int64_t*>(count.data());
    int error = embedding_bag_cuda_count_rows(&table_, uses_.data(), uses_.size(), workspace,
                                              stream, on_device);
    if (error == 0) error = embedding_bag_cuda_copy(num_rows, on_device, sizeof(int64_t), stream);
    return error != 0 ? error : embedding_bag_cuda_wait(stream);
  }
  int Sum(void* workspace, int32_t sum_dtype, int64_t* rows, void* sums) const {
    return embedding_bag_cuda_gradient(&table_, uses_.data(), uses_.size(), gradient_dtype_,
                                       sum_dtype, workspace, StreamOf(context_), rows, sums);
  }
  int Update(void* workspace, const embedding_bag_optimizer& optimizer,
             const float* scalars) const {
    return embedding_bag_cuda_update(&table_, uses_.data(), uses_.size(), gradient_dtype_,
                                     &optimizer, scalars, workspace, StreamOf(context_));
  }
  static int Copy(OpKernelContext* context, void* to, const void* from, int64_t bytes) {
    return embedding_bag_cuda_copy(to, from, bytes, StreamOf(context));
  }

 private:
  OpKernelContext* context_;
  const embedding_bag_table& table_;
  const std::vector<embedding_bag_use>& uses_;
  int32_t gradient_dtype_;
};
#endif

template <typename Device>
class Gradient : public Uses {
 public:
  explicit Gradient(OpKernelConstruction* construction) : Uses(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("table_shape", &shape_));
    OP_REQUIRES(construction, shape_.dims() == 2,
                InvalidArgument("EmbeddingBag: table_shape must be [rows, dim]"));
  }

  void Compute(OpKernelContext* context) override {
    const embedding_bag_table table{nullptr, shape_.dim_size(0), shape_.dim_size(1),
                                    EMBEDDING_BAG_FLOAT32};
    std::vector<embedding_bag_use> uses;
    OP_REQUIRES_OK(context, ReadUses(context, table.dim, &uses));
    const Engine<Device> engine(context, table, uses, gradient_dtype_);
    Tensor workspace;
    OP_REQUIRES_OK(context, AllocateWorkspace(context, engine.WorkspaceBytes(), &workspace));
    int64_t num_rows = 0;
    OP_REQUIRES_OK(context, AsStatus(engine.CountRows(workspace.data(), &num_rows)));
    Tensor *rows, *sums;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({num_rows}), &rows));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({num_rows, table.dim}), &sums));
    if (num_rows == 0) return;
    OP_REQUIRES_OK(context, AsStatus(engine.Sum(workspace.data(), DtypeOf(sums->dtype()),
                                                static_cast<int64_t*>(rows->data()),
                                                sums->data())));
  }

 private:
  TensorShape shape_;
};

// Makes a variable's buffer its own, as TensorFlow's scatter operations do: tensors that were read
// from it keep their values.
template <typename Device>
Status OwnBuffer(OpKernelContext* context, Var* variable) {
  if (variable->copy_on_read_mode.load()) return OkStatus();
  Tensor* tensor = variable->tensor();
  if (!tensor->RefCountIsOne()) {
    Tensor copy;
    TF_RETURN_IF_ERROR(context->allocate_temp(tensor->dtype(), tensor->shape(), &copy));
    TF_RETURN_IF_ERROR(AsStatus(
        Engine<Device>::Copy(context, copy.data(), tensor->data(), tensor->TotalBytes())));
    *tensor = copy;
  }
  variable->copy_on_read_mode.store(true);
  return OkStatus();
}

template <typename Device>
class Update : public Uses {
 public:
  explicit Update(OpKernelConstruction* construction) : Uses(construction) {
    std::string optimizer;
    OP_REQUIRES_OK(construction, construction->GetAttr("optimizer", &optimizer));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_slots", &num_slots_));
    kind_ = optimizer == "adagrad"           ? EMBEDDING_BAG_ADAGRAD
            : optimizer == "rowwise_adagrad" ? EMBEDDING_BAG_ROW_WISE_ADAGRAD
            : optimizer == "lazy_adam"       ? EMBEDDING_BAG_LAZY_ADAM
            : optimizer == "adam"            ? EMBEDDING_BAG_ADAM
            : optimizer == "momentum"        ? EMBEDDING_BAG_MOMENTUM
            : optimizer == "nesterov"        ? EMBEDDING_BAG_NESTEROV
            : optimizer == "rmsprop"         ? EMBEDDING_BAG_RMSPROP
                                             : EMBEDDING_BAG_SGD;
    OP_REQUIRES_OK(construction, construction->GetAttr("all_rows", &all_rows_));
    OP_REQUIRES_OK(construction, construction->GetAttr("epsilon_in_root", &epsilon_in_root_));
    const bool is_adam = kind_ == EMBEDDING_BAG_LAZY_ADAM || kind_ == EMBEDDING_BAG_ADAM;
    const int expected = kind_ == EMBEDDING_BAG_SGD ? 0 : is_adam ? 2 : 1;
    const bool has_momentum = kind_ == EMBEDDING_BAG_RMSPROP && num_slots_ == 2;
    OP_REQUIRES(construction, num_slots_ == expected || has_momentum,
                InvalidArgument("EmbeddingBag: ", optimizer, " has ", expected, " slots, got ",
                                num_slots_));
  }

  void Compute(OpKernelContext* context) override {
    RefCountPtr<Var> variable, slots[2];
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
    for (int i = 0; i < num_slots_; ++i) {
      OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 1 + i), &slots[i]));
    }
    tensorflow::mutex_lock lock(*variable->mu());
    OP_REQUIRES_OK(context, OwnBuffer<Device>(context, variable.get()));
    embedding_bag_table table;
    OP_REQUIRES_OK(context, ReadTable(*variable->tensor(), &table));
    const Tensor& scalars = context->input(1 + num_slots_);
    OP_REQUIRES(context, scalars.NumElements() == 6,
                InvalidArgument("EmbeddingBag: scalars must be [6], got ",
                                scalars.shape().DebugString()));
    embedding_bag_optimizer optimizer = {};
    optimizer.kind = kind_;
    optimizer.all_rows = all_rows_;
    optimizer.epsilon_in_root = epsilon_in_root_;
    for (int i = 0; i < num_slots_; ++i) {
      OP_REQUIRES_OK(context, ReadSlot(context, slots[i].get(), table, &optimizer.slots[i]));
    }
    std::vector<embedding_bag_use> uses;
    OP_REQUIRES_OK(context, ReadUses(context, table.dim, &uses));
    const Engine<Device> engine(context, table, uses, gradient_dtype_);
    Tensor workspace;
    OP_REQUIRES_OK(context, AllocateWorkspace(context, engine.WorkspaceBytes(), &workspace));
    OP_REQUIRES_OK(context, AsStatus(engine.Update(workspace.data(), optimizer,
                                                   static_cast<const float*>(scalars.data()))));
  }

 private:
  Status ReadSlot(OpKernelContext* context, Var* slot, const embedding_bag_table& table,
                  float** numbers) {
    tensorflow::mutex_lock lock(*slot->mu());
    TF_RETURN_IF_ERROR(OwnBuffer<Device>(context, slot));
    const Tensor& tensor = *slot->tensor();
    const bool by_row = kind_ == EMBEDDING_BAG_ROW_WISE_ADAGRAD;
    const int64_t expected = by_row ? table.rows : table.rows * table.dim;
    if (tensor.dtype() != tensorflow::DT_FLOAT || tensor.NumElements() != expected) {
      return InvalidArgument("EmbeddingBag: a slot must be float32 ",
                             by_row ? "[rows]" : "[rows, dim]", " of the table, got ",
                             tensor.shape().DebugString());
    }
    *numbers = static_cast<float*>(tensor.data());
    return OkStatus();
  }

  int32_t kind_;
  int32_t num_slots_;
  bool all_rows_;
  bool epsilon_in_root_;
};

// ---- new tables ---------------------------------------------------------------------------------

// Asks Linux for huge pages, before the memory is first written: in small pages, most rows that are
// looked up cost a walk of the page table. Where the system has none, nothing changes.
void AdviseHugePages(char* begin, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const uintptr_t start = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = (start + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (start + bytes) / kHugePage * kHugePage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

template <typename Number>
class Fill : public OpKernel {
 public:
  explicit Fill(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape_, &output));
    Number* const numbers = static_cast<Number*>(output->data());
    const Number value = *static_cast<const Number*>(context->input(0).data());
    AdviseHugePages(reinterpret_cast<char*>(numbers), output->TotalBytes());
    constexpr int64_t kCyclesOfNumber = 1;
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(
        output->NumElements(), kCyclesOfNumber,
        [=](int64_t begin, int64_t end) { std::fill(numbers + begin, numbers + end, value); });
  }

 private:
  TensorShape shape_;
};

#define REGISTER(DEVICE, NAME)                                                                    \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("ResourceEmbeddingBag").Device(tensorflow::DEVICE).HostMemory("table"), Lookup<NAME>); \
  REGISTER_KERNEL_BUILDER(Name("EmbeddingBagGradient").Device(tensorflow::DEVICE),                \
                          Gradient<NAME>);                                                        \
  REGISTER_KERNEL_BUILDER(Name("ResourceEmbeddingBagUpdate")                                      \
                              .Device(tensorflow::DEVICE)                                         \
                              .HostMemory("table")                                                \
                              .HostMemory("slots"),                                               \
                          Update<NAME>)

REGISTER(DEVICE_CPU, Cpu);
#define REGISTER_FILL(T)                                                                     \
  REGISTER_KERNEL_BUILDER(                                                                   \
      Name("EmbeddingBagFill").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), Fill<T>)
REGISTER_FILL(float);
REGISTER_FILL(Eigen::half);
REGISTER_FILL(Eigen::bfloat16);
#ifdef WITH_CUDA
REGISTER(DEVICE_GPU, Gpu);
#endif

}  // namespace
