// The C interface's CUDA part: checks arguments, chooses a kernel and its sizes, queues it.
#include "../dot_interact.h"
#include "kernels.cuh"
#include "plain.cuh"

namespace dot_interact {
namespace device {
namespace {

constexpr int64_t kMostFeatures = 128;  // in tiles: 8 tile rows
constexpr int64_t kMostDim = 1024;
constexpr int kFragmentBytes = 32;      // of a row, of all kinds of tiles
constexpr int kTileColumns = 16;

// Warps that a multiprocessor should hold, so that some load while others compute. Chunks are made
// narrower for it, down to a DRAM burst's worth of a row. Warps with many tiles gain less from
// others than they lose with narrow chunks (measured on an H200).
int WantedWarps(int max_tiles) { return max_tiles == 8 ? 8 : 12; }
constexpr int kNarrowChunkBytes = 128;
constexpr int kSystemSharedBytes = 1024;  // that each block costs beside its own

constexpr int kPlainThreads = 256;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t Pairs(const dot_interact_shape& shape) {
  return shape.features * (shape.features - 1) / 2;
}

int64_t Width(const dot_interact_shape& shape) { return RoundUp(shape.head + Pairs(shape), 8); }

int64_t Size(const dot_interact_shape& shape) {
  return shape.dtype == DOT_INTERACT_FLOAT32 ? 4 : 2;
}

bool Overflows(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product);
}

// All sizes in range, and no offset in bytes beyond 64 bits.
bool IsValid(const dot_interact_shape* shape) {
  if (shape == nullptr) return false;
  const dot_interact_shape& s = *shape;
  if (s.dtype != DOT_INTERACT_FLOAT32 && s.dtype != DOT_INTERACT_FLOAT16 &&
      s.dtype != DOT_INTERACT_BFLOAT16) {
    return false;
  }
  if (s.batch < 0 || s.features < 1 || s.dim < 0 || (s.head != 0 && s.head != s.dim)) return false;
  if (s.features > INT32_MAX || s.dim > INT64_MAX / 16 || Overflows(s.features, 16 * s.dim)) {
    return false;
  }
  if (s.first_stride < s.dim || s.rest_stride < (s.features - 1) * s.dim) return false;
  if (s.first_stride > INT64_MAX / 16 || s.rest_stride > INT64_MAX / 16) return false;
  return !Overflows(s.batch, 4 * s.first_stride) && !Overflows(s.batch, 4 * s.rest_stride) &&
         !Overflows(s.batch, 4 * Width(s)) && !Overflows(s.batch, 4 * s.features * (s.dim + 1));
}

// The most bytes that can be moved at once when all of these are multiples of it.
template <class... Values>
int PieceBytes(Values... values) {
  const uint64_t bits = (... | static_cast<uint64_t>(values));
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
}

uint64_t Bits(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

bool HasTensorCores(int32_t dtype, int32_t flags, int compute_capability) {
  switch (dtype) {
    case DOT_INTERACT_FLOAT16:
      return compute_capability >= 70;
    case DOT_INTERACT_BFLOAT16:
      return compute_capability >= 80;
    default:
      return compute_capability >= 80 && (flags & DOT_INTERACT_NO_TF32) == 0;
  }
}

// ---- Sizes of a launch --------------------------------------------------------------------------

struct Plan {
  bool tiled = false;  // false: the plain kernel; the rest is unused
  int max_tiles = 0;
  int warps = 0;  // of a block
  int chunk = 0;
  int chunks = 0;
  int pitch = 0;
  int stage_bytes = 0;
  int symmetric_pitch = 0;
  int upstream_copies = 0;
  int64_t shared_bytes = 0;
};

bool FitsTiles(const dot_interact_shape& shape, int32_t flags) {
  return (flags & DOT_INTERACT_PLAIN) == 0 && shape.features <= kMostFeatures && shape.dim >= 1 &&
         shape.dim <= kMostDim;
}

int ForwardMaxTiles(int64_t features) { return features <= 32 ? 2 : features <= 64 ? 4 : 8; }

int BackwardMaxTiles(int64_t features) {
  return features <= 16 ? 1 : ForwardMaxTiles(features);
}

int ForwardWarps(int max_tiles) {
  return max_tiles == 2 ? kForwardWarps<2> : max_tiles == 4 ? kForwardWarps<4> : kForwardWarps<8>;
}

int BackwardWarps(int max_tiles) {
  return max_tiles == 1   ? kBackwardWarps<1>
         : max_tiles == 2 ? kBackwardWarps<2>
         : max_tiles == 4 ? kBackwardWarps<4>
                          : kBackwardWarps<8>;
}

// The widest chunk that leaves room for the wanted warps; else the widest of those with the most
// warps; else (`tiled` false) nothing fits. `measure(plan)` sets the sizes that follow from a
// chunk.
template <class Measure>
Plan WidestChunk(const dot_interact_shape& shape, const DeviceLimits& limits, int max_tiles,
                 int warps, int multiple, const Measure& measure) {
  Plan best;
  int64_t best_warps = 0;
  for (int chunks = 1;; ++chunks) {
    Plan plan;
    plan.tiled = true;
    plan.max_tiles = max_tiles;
    plan.warps = warps;
    const int64_t even = (shape.dim + chunks - 1) / chunks;
    const int burst = kNarrowChunkBytes / static_cast<int>(Size(shape));
    plan.chunk = static_cast<int>(RoundUp(even, chunks > 1 && even >= burst ? burst : multiple));
    plan.chunks = static_cast<int>((shape.dim + plan.chunk - 1) / plan.chunk);
    const bool is_narrow = plan.chunk * Size(shape) < kNarrowChunkBytes;
    if (chunks > 1 && is_narrow && best.tiled) break;
    measure(plan);
    if (plan.shared_bytes <= limits.shared_bytes_per_block) {
      const int64_t blocks = limits.shared_bytes_per_multiprocessor /
                             (plan.shared_bytes + kSystemSharedBytes);
      const int64_t resident_warps = (blocks < 1 ? 1 : blocks) * warps;
      if (resident_warps > best_warps) {
        best = plan;
        best_warps = resident_warps;
      }
      if (resident_warps >= WantedWarps(max_tiles)) break;
    }
    if (plan.chunk == multiple) break;
  }
  return best;
}

Plan PlanForward(const dot_interact_shape& shape, int32_t flags, const DeviceLimits& limits) {
  if (!FitsTiles(shape, flags)) return Plan();
  const int size = static_cast<int>(Size(shape));
  const int features = static_cast<int>(shape.features);
  const int max_tiles = ForwardMaxTiles(shape.features);
  const int warps = ForwardWarps(max_tiles);
  return WidestChunk(shape, limits, max_tiles, warps, kFragmentBytes / size, [&](Plan& plan) {
    // An odd number of 16 bytes: 8 rows under each other lie in different banks.
    plan.pitch = plan.chunk * size + 16;
    plan.stage_bytes = features * plan.pitch;
    plan.shared_bytes = 2 * plan.stage_bytes + Width(shape) * size;
  });
}

Plan PlanBackward(const dot_interact_shape& shape, int32_t flags, const DeviceLimits& limits) {
  if (!FitsTiles(shape, flags)) return Plan();
  const int size = static_cast<int>(Size(shape));
  const int max_tiles = BackwardMaxTiles(shape.features);
  const int warps = BackwardWarps(max_tiles);
  const int rows = static_cast<int>(RoundUp(shape.features, 16));
  const auto widest = [&](int upstream_copies) {
    return WidestChunk(shape, limits, max_tiles, warps, kTileColumns, [&](Plan& plan) {
      // float32 is read in columns: 8 words more than a multiple of 16 keeps 4 rows apart.
      plan.pitch = plan.chunk * size + (size == 4 ? 32 : 16);
      plan.stage_bytes = rows * plan.pitch;
      plan.symmetric_pitch = rows * size + 16;
      plan.upstream_copies = upstream_copies;
      plan.shared_bytes = 2 * plan.stage_bytes + rows * plan.symmetric_pitch +
                          upstream_copies * Width(shape) * size;
    });
  };
  // To wait for the upstream row costs less than warps without columns; to read it from global
  // memory, four rows of S at a time, costs more.
  Plan plan = widest(2);
  if (!plan.tiled || plan.chunk < kTileColumns * warps) {
    const Plan waiting = widest(1);
    if (waiting.chunk > plan.chunk) plan = waiting;
  }
  return plan.tiled ? plan : widest(0);
}

TileSizes Sizes(const dot_interact_shape& shape, const Plan& plan) {
  TileSizes sizes = {};
  sizes.batch = shape.batch;
  sizes.features = static_cast<int>(shape.features);
  sizes.dim = static_cast<int>(shape.dim);
  sizes.head = static_cast<int>(shape.head);
  sizes.width = static_cast<int>(Width(shape));
  sizes.chunk = plan.chunk;
  sizes.chunks = plan.chunks;
  sizes.pitch = plan.pitch;
  sizes.stage_bytes = plan.stage_bytes;
  return sizes;
}

template <class Byte, class Pointer>
Matrix<Byte> MatrixOf(const dot_interact_shape& shape, Pointer first, Pointer rest) {
  const int64_t size = Size(shape);
  Matrix<Byte> matrix = {};
  matrix.first = static_cast<Byte*>(first);
  matrix.rest = static_cast<Byte*>(rest);
  matrix.first_stride = shape.first_stride * size;
  matrix.rest_stride = shape.rest_stride * size;
  matrix.row_bytes = static_cast<int>(shape.dim * size);
  matrix.piece = PieceBytes(Bits(first), matrix.first_stride, matrix.row_bytes);
  if (shape.features > 1) {
    const int rest_piece = PieceBytes(Bits(rest), matrix.rest_stride);
    if (rest_piece < matrix.piece) matrix.piece = rest_piece;
  }
  return matrix;
}

template <class Byte, class Pointer>
DenseRows<Byte> DenseRowsOf(Pointer data, int64_t bytes) {
  DenseRows<Byte> rows = {};
  rows.data = static_cast<Byte*>(data);
  rows.bytes = static_cast<int>(bytes);
  rows.piece = PieceBytes(Bits(data), bytes);
  return rows;
}

// ---- Kernels ------------------------------------------------------------------------------------

template <class Parameters>
using Kernel = void (*)(Parameters);

template <class T, bool tensor_cores>
Kernel<ForwardParameters> Tiled(const ForwardParameters&, int max_tiles) {
  return max_tiles == 2   ? ForwardKernel<T, tensor_cores, 2>
         : max_tiles == 4 ? ForwardKernel<T, tensor_cores, 4>
                          : ForwardKernel<T, tensor_cores, 8>;
}

template <class T, bool tensor_cores>
Kernel<BackwardParameters> Tiled(const BackwardParameters&, int max_tiles) {
  return max_tiles == 1   ? BackwardKernel<T, tensor_cores, 1>
         : max_tiles == 2 ? BackwardKernel<T, tensor_cores, 2>
         : max_tiles == 4 ? BackwardKernel<T, tensor_cores, 4>
                          : BackwardKernel<T, tensor_cores, 8>;
}

// *launched: false where not even one block is resident (the plain kernel's case).
template <class Parameters>
int LaunchTiled(const dot_interact_shape& shape, int32_t flags, const DeviceLimits& limits,
                const Plan& plan, const Parameters& parameters, void* stream, bool* launched) {
  const bool tensor_cores = HasTensorCores(shape.dtype, flags, limits.compute_capability);
  const int tiles = plan.max_tiles;
  const Kernel<Parameters> kernel =
      shape.dtype == DOT_INTERACT_FLOAT16 ? Tiled<half, true>(parameters, tiles)
      : shape.dtype == DOT_INTERACT_BFLOAT16
          ? (tensor_cores ? Tiled<bf16, true>(parameters, tiles)
                          : Tiled<bf16, false>(parameters, tiles))
          : (tensor_cores ? Tiled<float, true>(parameters, tiles)
                          : Tiled<float, false>(parameters, tiles));
  const int threads = 32 * plan.warps;
  // Always the most: another thread may be about to launch the same kernel with other sizes.
  int error = AllowSharedBytes(kernel, limits.shared_bytes_per_block);
  int blocks = 0;
  if (error == 0) error = BlocksPerMultiprocessor(kernel, threads, plan.shared_bytes, &blocks);
  *launched = error == 0 && blocks > 0;
  if (!*launched) return error;
  const int64_t resident = static_cast<int64_t>(limits.multiprocessors) * blocks;
  const int64_t grid = shape.batch < resident ? shape.batch : resident;
  return Launch(kernel, static_cast<unsigned>(grid), static_cast<unsigned>(threads),
                plan.shared_bytes, stream, parameters);
}

PlainParameters PlainOf(const dot_interact_shape& shape, const void* first, const void* rest,
                        const void* row) {
  PlainParameters parameters = {};
  parameters.batch = shape.batch;
  parameters.features = shape.features;
  parameters.dim = shape.dim;
  parameters.head = shape.head;
  parameters.width = Width(shape);
  parameters.first_stride = shape.first_stride;
  parameters.rest_stride = shape.rest_stride;
  parameters.first = first;
  parameters.rest = rest;
  parameters.row = row;
  return parameters;
}

int LaunchPlain(Kernel<PlainParameters> kernel, int64_t numbers, const DeviceLimits& limits,
                const PlainParameters& parameters, void* stream) {
  int blocks = 0;
  const int error = BlocksPerMultiprocessor(kernel, kPlainThreads, 0, &blocks);
  if (error != 0) return error;
  const int64_t resident = static_cast<int64_t>(limits.multiprocessors) * (blocks < 1 ? 1 : blocks);
  const int64_t wanted = (numbers + kPlainThreads - 1) / kPlainThreads;
  const int64_t grid = wanted < resident ? wanted : resident;
  return Launch(kernel, static_cast<unsigned>(grid), static_cast<unsigned>(kPlainThreads), 0,
                stream, parameters);
}

}  // namespace
}  // namespace device
}  // namespace dot_interact

using namespace dot_interact::device;  // NOLINT: this file is that namespace's C face

extern "C" {

int dot_interact_cuda_forward(const dot_interact_shape* shape, const void* first, const void* rest,
                              const void* head, void* output, int32_t flags, void* stream) {
  if (!IsValid(shape)) return DOT_INTERACT_BAD_ARGUMENT;
  const int64_t width = Width(*shape);
  if (shape->batch == 0 || width == 0) return 0;
  const bool reads = shape->dim > 0;
  if ((reads && first == nullptr) || (reads && shape->features > 1 && rest == nullptr) ||
      (shape->head > 0 && head == nullptr) || output == nullptr) {
    return DOT_INTERACT_BAD_ARGUMENT;
  }
  const DeviceLimits limits = Limits();
  if (limits.error != 0) return limits.error;

  const Plan plan = PlanForward(*shape, flags, limits);
  if (plan.tiled) {
    using Bytes = const unsigned char;
    ForwardParameters parameters = {};
    parameters.sizes = Sizes(*shape, plan);
    parameters.input = MatrixOf<Bytes>(*shape, first, rest);
    parameters.head = DenseRowsOf<Bytes>(head, shape->head * Size(*shape));
    parameters.output = DenseRowsOf<unsigned char>(output, width * Size(*shape));
    bool launched = false;
    const int error = LaunchTiled(*shape, flags, limits, plan, parameters, stream, &launched);
    if (launched || error != 0) return error;
  }
  PlainParameters parameters = PlainOf(*shape, first, rest, head);
  parameters.output = output;
  return LaunchPlain(shape->dtype == DOT_INTERACT_FLOAT32   ? PlainForwardKernel<float>
                     : shape->dtype == DOT_INTERACT_FLOAT16 ? PlainForwardKernel<half>
                                                            : PlainForwardKernel<bf16>,
                     shape->batch * width, limits, parameters, stream);
}

int dot_interact_cuda_backward(const dot_interact_shape* shape, const void* first,
                               const void* rest, const void* upstream, void* first_gradient,
                               void* rest_gradient, void* head_gradient, int32_t flags,
                               void* stream) {
  if (!IsValid(shape)) return DOT_INTERACT_BAD_ARGUMENT;
  const int64_t width = Width(*shape);
  if (shape->batch == 0 || shape->dim == 0) return 0;
  const bool has_rest = shape->features > 1;
  if (first == nullptr || first_gradient == nullptr || (width > 0 && upstream == nullptr) ||
      (has_rest && (rest == nullptr || rest_gradient == nullptr))) {
    return DOT_INTERACT_BAD_ARGUMENT;
  }
  if (shape->head == 0) head_gradient = nullptr;
  const DeviceLimits limits = Limits();
  if (limits.error != 0) return limits.error;

  const Plan plan = PlanBackward(*shape, flags, limits);
  // Read where they lie, the upstream rows must be aligned.
  if (plan.tiled && (plan.upstream_copies > 0 || PieceBytes(Bits(upstream)) == 16)) {
    using Bytes = const unsigned char;
    BackwardParameters parameters = {};
    parameters.sizes = Sizes(*shape, plan);
    parameters.input = MatrixOf<Bytes>(*shape, first, rest);
    parameters.upstream = DenseRowsOf<Bytes>(upstream, width * Size(*shape));
    parameters.gradient = MatrixOf<unsigned char>(*shape, first_gradient, rest_gradient);
    parameters.head_gradient =
        DenseRowsOf<unsigned char>(head_gradient, shape->head * Size(*shape));
    parameters.symmetric_pitch = plan.symmetric_pitch;
    parameters.upstream_copies = plan.upstream_copies;
    bool launched = false;
    const int error = LaunchTiled(*shape, flags, limits, plan, parameters, stream, &launched);
    if (launched || error != 0) return error;
  }
  PlainParameters parameters = PlainOf(*shape, first, rest, upstream);
  parameters.first_gradient = first_gradient;
  parameters.rest_gradient = rest_gradient;
  parameters.head_gradient = head_gradient;
  return LaunchPlain(shape->dtype == DOT_INTERACT_FLOAT32   ? PlainBackwardKernel<float>
                     : shape->dtype == DOT_INTERACT_FLOAT16 ? PlainBackwardKernel<half>
                                                            : PlainBackwardKernel<bf16>,
                     shape->batch * (shape->features * shape->dim + shape->head), limits,
                     parameters, stream);
}

const char* dot_interact_cuda_error(int error) {
  switch (error) {
    case 0:
      return "success";
    case DOT_INTERACT_BAD_ARGUMENT:
      return "a size or dtype out of range, or a null pointer to data";
    case DOT_INTERACT_OUT_OF_MEMORY:
      return "no memory for a sample's scratch";
    default:
      return error > 0 ? ErrorText(error) : "unknown error";
  }
}

const char* dot_interact_cuda_kernel(const dot_interact_shape* shape, int32_t flags) {
  if (!IsValid(shape)) return "none: bad argument";
  const DeviceLimits limits = Limits();
  if (limits.error != 0) return ErrorText(limits.error);
  static constexpr const char* kNames[3][2][2] = {
      {{"f32 FMA", "f32 FMA, backward plain"},
       {"tf32 tensor cores", "tf32 tensor cores, backward plain"}},
      {{"f16 FMA", "f16 FMA, backward plain"},
       {"f16 tensor cores", "f16 tensor cores, backward plain"}},
      {{"bf16 FMA", "bf16 FMA, backward plain"},
       {"bf16 tensor cores", "bf16 tensor cores, backward plain"}},
  };
  if (!PlanForward(*shape, flags, limits).tiled) return "plain";
  return kNames[shape->dtype][HasTensorCores(shape->dtype, flags, limits.compute_capability)]
               [!PlanBackward(*shape, flags, limits).tiled];
}

}  // extern "C"
