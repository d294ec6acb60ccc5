// The C interface of the CPU: checks, scratch, and the choice of the instruction set.
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "../dot_interact.h"
#include "../../../../op_build/instruction_sets.h"
#include "kernel.h"

namespace dot_interact {
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

// ---- sizes --------------------------------------------------------------------------------------

// a * b and a + b of sizes >= 0; -1 if it passes int64 or a size is -1 already.
int64_t Multiply(int64_t a, int64_t b) {
  int64_t product;
  return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

int64_t Add(int64_t a, int64_t b) {
  int64_t sum;
  return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}

int64_t RoundUp(int64_t a, int64_t multiple) {
  const int64_t sum = Add(a, multiple - 1);
  return sum < 0 ? -1 : sum / multiple * multiple;
}

int64_t SizeOf(int32_t dtype) { return dtype == DOT_INTERACT_FLOAT32 ? 4 : 2; }

// Whether the shape is sound, the range lies in it, and the tensors' size in bytes is an int64.
bool IsSound(const dot_interact_shape* shape, int64_t begin, int64_t end) {
  if (shape == nullptr) return false;
  const dot_interact_shape& s = *shape;
  if (s.batch < 0 || s.features < 1 || s.dim < 0) return false;
  if (s.head != 0 && s.head != s.dim) return false;
  if (s.dtype != DOT_INTERACT_FLOAT32 && s.dtype != DOT_INTERACT_FLOAT16 &&
      s.dtype != DOT_INTERACT_BFLOAT16) {
    return false;
  }
  const int64_t rest = Multiply(s.features - 1, s.dim);
  if (rest < 0 || s.first_stride < s.dim || s.rest_stride < rest) return false;
  const int64_t width = dot_interact_width(s.head, s.features);
  const int64_t sample = Add(Add(s.first_stride, s.rest_stride), width);
  if (Multiply(Multiply(s.batch, sample), SizeOf(s.dtype)) < 0) return false;
  return 0 <= begin && begin <= end && end <= s.batch;
}

bool OnBoundary(const void* p, int64_t stride_bytes) {
  return reinterpret_cast<uintptr_t>(p) % 64 == 0 && stride_bytes % 64 == 0;
}

// Gradients at least as large as this are written past the caches: until someone reads them they
// would be evicted anyhow, and a line written whole need not be read first.
constexpr int64_t kStreamBytes = int64_t{1} << 25;

bool ShouldStream(const dot_interact_shape& shape, const void* first_gradient,
                  const void* rest_gradient) {
  const int64_t size = SizeOf(shape.dtype);
  return shape.batch > kStreamBytes / size / shape.features / (shape.dim + 1) &&
         OnBoundary(first_gradient, shape.first_stride * size) &&
         OnBoundary(rest_gradient, shape.rest_stride * size) &&
         OnBoundary(nullptr, shape.dim * size);
}

// ---- scratch ------------------------------------------------------------------------------------

class ScratchMemory {
 public:
  ScratchMemory() = default;
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  ~ScratchMemory() { free(memory_); }

  // Whether there was memory for what the kernel needs.
  bool Allocate(const dot_interact_shape& shape, int64_t width, int64_t lanes) {
    if (shape.features == 1) return true;  // no pairs
    const bool packed = shape.dtype != DOT_INTERACT_FLOAT32;
    const bool copied = packed || shape.dim % lanes != 0;
    const int64_t pitch = RoundUp(shape.dim, kPitchMultiple);
    const int64_t rows = copied ? Multiply(shape.features, pitch) : 0;
    const int64_t pairs = packed ? RoundUp(width, kPitchMultiple) : 0;
    const int64_t size_bytes = Multiply(Add(rows, pairs), sizeof(float));
    if (size_bytes == 0) return true;
    if (size_bytes < 0 || posix_memalign(&memory_, 64, size_bytes) != 0) return false;
    float* numbers = static_cast<float*>(memory_);
    scratch.pitch = pitch;
    if (copied) scratch.rows = numbers;
    if (packed) scratch.pairs = numbers + rows;
    return true;
  }

  Scratch scratch = {nullptr, nullptr, 0};

 private:
  static constexpr int64_t kPitchMultiple = 16;
  void* memory_ = nullptr;
};

}  // namespace
}  // namespace dot_interact

using namespace dot_interact;

extern "C" {

int64_t dot_interact_width(int64_t head, int64_t features) {
  if (head < 0 || features < 1) return DOT_INTERACT_BAD_ARGUMENT;
  const int64_t pairs = features % 2 == 0 ? Multiply(features / 2, features - 1)
                                          : Multiply(features, features / 2);
  return RoundUp(Add(head, pairs), 8);
}

int dot_interact_cpu_forward(const dot_interact_shape* shape, const void* first, const void* rest,
                             const void* head, void* output, int64_t begin, int64_t end) {
  if (!IsSound(shape, begin, end)) return DOT_INTERACT_BAD_ARGUMENT;
  const int64_t width = dot_interact_width(shape->head, shape->features);
  if (begin == end || width == 0) return 0;
  const bool has_features = shape->features > 1 && shape->dim > 0;
  if (output == nullptr || (has_features && (first == nullptr || rest == nullptr)) ||
      (shape->head > 0 && head == nullptr)) {
    return DOT_INTERACT_BAD_ARGUMENT;
  }
  const Kernel& kernel = KernelInUse();
  ScratchMemory memory;
  if (!memory.Allocate(*shape, width, kernel.lanes)) return DOT_INTERACT_OUT_OF_MEMORY;
  kernel.forward({*shape, width, first, rest, head, output, begin, end, memory.scratch});
  return 0;
}

int dot_interact_cpu_backward(const dot_interact_shape* shape, const void* first, const void* rest,
                              const void* upstream, void* first_gradient, void* rest_gradient,
                              void* head_gradient, int64_t begin, int64_t end) {
  if (!IsSound(shape, begin, end)) return DOT_INTERACT_BAD_ARGUMENT;
  if (begin == end || shape->dim == 0) return 0;
  const int64_t width = dot_interact_width(shape->head, shape->features);
  if (first_gradient == nullptr || (width > 0 && upstream == nullptr)) {
    return DOT_INTERACT_BAD_ARGUMENT;
  }
  if (shape->features > 1 && (first == nullptr || rest == nullptr || rest_gradient == nullptr)) {
    return DOT_INTERACT_BAD_ARGUMENT;
  }
  const Kernel& kernel = KernelInUse();
  ScratchMemory memory;
  if (!memory.Allocate(*shape, width, kernel.lanes)) return DOT_INTERACT_OUT_OF_MEMORY;
  kernel.backward({*shape, width, first, rest, upstream, first_gradient, rest_gradient,
                   head_gradient, begin, end, memory.scratch,
                   ShouldStream(*shape, first_gradient, rest_gradient)});
  return 0;
}

const char* dot_interact_cpu_isa(void) { return KernelInUse().name; }

int dot_interact_cpu_use_isa(const char* isa) {
  const Kernel* kernel = instruction_sets::Find(kChoices, isa);
  if (kernel == nullptr) return DOT_INTERACT_BAD_ARGUMENT;
  kernel_in_use = kernel;
  return 0;
}

}  // extern "C"
