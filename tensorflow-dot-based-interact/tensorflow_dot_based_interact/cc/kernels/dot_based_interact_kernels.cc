// The TensorFlow side of the kernels: sizes, checks, outputs, threads or stream.
#include <atomic>
#include <limits>
#include <string>
#include <type_traits>

#include "../dot_interact.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/tensor.h"
#ifdef WITH_CUDA
#include "tensorflow/core/platform/tensor_float_32_utils.h"
#include "xla/stream_executor/stream.h"
#endif

namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::Internal;
using tensorflow::errors::InvalidArgument;
using tensorflow::errors::ResourceExhausted;

template <typename T>
constexpr int32_t kDtype = -1;
template <>
constexpr int32_t kDtype<float> = DOT_INTERACT_FLOAT32;
template <>
constexpr int32_t kDtype<Eigen::half> = DOT_INTERACT_FLOAT16;
template <>
constexpr int32_t kDtype<Eigen::bfloat16> = DOT_INTERACT_BFLOAT16;

struct Cpu {};
struct Gpu {};

enum class Layout { kJoined, kSeparate, kPairs };

// What both directions have in common: the layout, the checks of the two inputs, their sizes.
class Interaction : public OpKernel {
 public:
  explicit Interaction(OpKernelConstruction* construction) : OpKernel(construction) {
    std::string layout;
    OP_REQUIRES_OK(construction, construction->GetAttr("layout", &layout));
    layout_ = layout == "separate" ? Layout::kSeparate
              : layout == "pairs"  ? Layout::kPairs
                                   : Layout::kJoined;
  }

 protected:
  Status ReadShape(const Tensor& input, const Tensor& bottom, int32_t dtype,
                   dot_interact_shape* shape) const {
    const TensorShape& of_input = input.shape();
    const TensorShape& of_bottom = bottom.shape();
    if (of_input.dims() != 3) {
      return InvalidArgument("DotBasedInteract: input must be [batch, features, dim], got ",
                             of_input.DebugString());
    }
    const int rank = of_bottom.dims();
    if (rank != 2 && !(rank == 3 && of_bottom.dim_size(1) == 1)) {
      return InvalidArgument(
          "DotBasedInteract: bottom_mlp_output must be [batch, dim] or [batch, 1, dim], got ",
          of_bottom.DebugString());
    }
    if (of_bottom.dim_size(0) != of_input.dim_size(0)) {
      return InvalidArgument("DotBasedInteract: input has the batch ", of_input.DebugString(),
                             ", bottom_mlp_output another: ", of_bottom.DebugString());
    }
    const int64_t dim = of_input.dim_size(2);
    const int64_t head = layout_ == Layout::kPairs ? 0 : dim;
    if (of_bottom.dim_size(rank - 1) != head) {
      return InvalidArgument("DotBasedInteract: bottom_mlp_output's last dimension must be ",
                             layout_ == Layout::kPairs ? "0 with layout 'pairs'"
                                                       : "that of input",
                             ", got input ", of_input.DebugString(), " and bottom_mlp_output ",
                             of_bottom.DebugString());
    }
    const int64_t rows = of_input.dim_size(1);
    if (rows == 0 && layout_ != Layout::kSeparate) {
      return InvalidArgument("DotBasedInteract: input needs at least one feature, got ",
                             of_input.DebugString());
    }
    shape->batch = of_input.dim_size(0);
    shape->dim = dim;
    shape->head = head;
    shape->dtype = dtype;
    shape->rest_stride = rows * dim;
    shape->features = layout_ == Layout::kSeparate ? rows + 1 : rows;
    shape->first_stride = layout_ == Layout::kSeparate ? dim : rows * dim;
    // features^2 must not overflow, and neither must the numbers of the output.
    if (shape->features > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("DotBasedInteract: input has too many features: ",
                             of_input.DebugString());
    }
    return tensorflow::OkStatus();
  }

  Status CheckUpstream(const Tensor& upstream, const dot_interact_shape& shape) const {
    TensorShape expected;
    TF_RETURN_IF_ERROR(OutputShape(shape, &expected));
    if (upstream.shape() != expected) {
      return InvalidArgument("DotBasedInteractGrad: upstream must be ", expected.DebugString(),
                             ", got ", upstream.shape().DebugString());
    }
    return tensorflow::OkStatus();
  }

  static Status OutputShape(const dot_interact_shape& shape, TensorShape* output) {
    return TensorShape::BuildTensorShape(
        {shape.batch, dot_interact_width(shape.head, shape.features)}, output);
  }

  Layout layout_;
};

// A tensor's numbers. Not through flat(), which ends the process where memory that a user handed to
// TensorFlow is not aligned; the kernels do not mind.
template <typename T>
const T* Numbers(const Tensor& tensor) {
  return static_cast<const T*>(tensor.data());
}

template <typename T>
T* Numbers(Tensor* tensor) {
  return static_cast<T*>(tensor->data());
}

// Where the features of `input` and `bottom` begin; the same for their gradients.
template <typename T>
void Parts(Layout layout, const dot_interact_shape& shape, T* input, T* bottom, T** first,
           T** rest) {
  *first = layout == Layout::kSeparate ? bottom : input;
  *rest = layout == Layout::kSeparate ? input : input + shape.dim;
}

Status AsStatus(int error) {
  if (error == 0) return tensorflow::OkStatus();
  if (error == DOT_INTERACT_OUT_OF_MEMORY) {
    return ResourceExhausted("DotBasedInteract: no memory for the scratch of a sample");
  }
  if (error < 0) return Internal("DotBasedInteract: the kernel refused its arguments (", error, ")");
#ifdef WITH_CUDA
  return Internal("DotBasedInteract: ", dot_interact_cuda_error(error));
#else
  return Internal("DotBasedInteract: error ", error);
#endif
}

// Runs `work(begin, end)` over the samples on TensorFlow's threads; the first error of a part.
template <typename Work>
Status OverSamples(OpKernelContext* context, const dot_interact_shape& shape, const Work& work) {
  // Cycles of a sample, from the float32 kernel: 16 multiply-adds a cycle and 16 bytes a cycle.
  const int64_t cycles = 100 + shape.features * shape.dim * (shape.features + 8) / 16;
  std::atomic<int> error{0};
  context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(
      shape.batch, cycles, [&](int64_t begin, int64_t end) {
        const int found = work(begin, end);
        int none = 0;
        if (found != 0) error.compare_exchange_strong(none, found);
      });
  return AsStatus(error);
}

#ifdef WITH_CUDA
void* StreamOf(OpKernelContext* context) {
  return context->op_device_context()->stream()->platform_specific_handle().stream;
}

int32_t Flags() { return tensorflow::tensor_float_32_execution_enabled() ? 0 : DOT_INTERACT_NO_TF32; }
#endif

template <typename Device, typename T>
class Forward : public Interaction {
 public:
  using Interaction::Interaction;

  void Compute(OpKernelContext* context) override {
    const Tensor& input = context->input(0);
    const Tensor& bottom = context->input(1);
    dot_interact_shape shape;
    OP_REQUIRES_OK(context, ReadShape(input, bottom, kDtype<T>, &shape));
    TensorShape output_shape;
    OP_REQUIRES_OK(context, OutputShape(shape, &output_shape));
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, output_shape, &output));
    if (output->NumElements() == 0) return;
    T* result = Numbers<T>(output);
    const T *first, *rest;
    const T* head = Numbers<T>(bottom);
    Parts(layout_, shape, Numbers<T>(input), head, &first, &rest);
    Status status;
    if constexpr (std::is_same_v<Device, Cpu>) {
      status = OverSamples(context, shape, [&](int64_t begin, int64_t end) {
        return dot_interact_cpu_forward(&shape, first, rest, head, result, begin, end);
      });
    } else {
#ifdef WITH_CUDA
      status = AsStatus(dot_interact_cuda_forward(&shape, first, rest, head, result, Flags(),
                                                  StreamOf(context)));
#endif
    }
    OP_REQUIRES_OK(context, status);
  }
};

template <typename Device, typename T>
class Backward : public Interaction {
 public:
  using Interaction::Interaction;

  void Compute(OpKernelContext* context) override {
    const Tensor& input = context->input(0);
    const Tensor& bottom = context->input(1);
    const Tensor& upstream = context->input(2);
    dot_interact_shape shape;
    OP_REQUIRES_OK(context, ReadShape(input, bottom, kDtype<T>, &shape));
    OP_REQUIRES_OK(context, CheckUpstream(upstream, shape));
    Tensor *input_gradient, *bottom_gradient;
    OP_REQUIRES_OK(context, context->allocate_output(0, input.shape(), &input_gradient));
    OP_REQUIRES_OK(context, context->allocate_output(1, bottom.shape(), &bottom_gradient));
    if (shape.batch == 0 || shape.dim == 0) return;
    const T *first, *rest;
    Parts(layout_, shape, Numbers<T>(input), Numbers<T>(bottom), &first, &rest);
    T *first_gradient, *rest_gradient;
    T* of_bottom = Numbers<T>(bottom_gradient);
    Parts(layout_, shape, Numbers<T>(input_gradient), of_bottom, &first_gradient, &rest_gradient);
    // With 'separate' the head and the first feature are one tensor: their gradients add up.
    T* head_gradient = layout_ == Layout::kSeparate ? nullptr : of_bottom;
    const T* gradient = Numbers<T>(upstream);
    Status status;
    if constexpr (std::is_same_v<Device, Cpu>) {
      status = OverSamples(context, shape, [&](int64_t begin, int64_t end) {
        return dot_interact_cpu_backward(&shape, first, rest, gradient, first_gradient,
                                         rest_gradient, head_gradient, begin, end);
      });
    } else {
#ifdef WITH_CUDA
      status = AsStatus(dot_interact_cuda_backward(&shape, first, rest, gradient, first_gradient,
                                                   rest_gradient, head_gradient, Flags(),
                                                   StreamOf(context)));
#endif
    }
    OP_REQUIRES_OK(context, status);
  }
};

#define REGISTER(DEVICE, NAME, T)                                                            \
  REGISTER_KERNEL_BUILDER(                                                                   \
      Name("DotBasedInteract").Device(tensorflow::DEVICE).TypeConstraint<T>("T"),            \
      Forward<NAME, T>);                                                                     \
  REGISTER_KERNEL_BUILDER(                                                                   \
      Name("DotBasedInteractGrad").Device(tensorflow::DEVICE).TypeConstraint<T>("T"),        \
      Backward<NAME, T>)

REGISTER(DEVICE_CPU, Cpu, float);
REGISTER(DEVICE_CPU, Cpu, Eigen::half);
REGISTER(DEVICE_CPU, Cpu, Eigen::bfloat16);
#ifdef WITH_CUDA
REGISTER(DEVICE_GPU, Gpu, float);
REGISTER(DEVICE_GPU, Gpu, Eigen::half);
REGISTER(DEVICE_GPU, Gpu, Eigen::bfloat16);
#endif

}  // namespace
