// The dot interaction of DLRM (Naumov et al., 2019, section 2.1.3) on plain pointers.
//
// For each sample, with features x_0 ... x_{F-1} of D numbers each:
//
//   output = [head (D numbers, or none), x_1.x_0, x_2.x_0, x_2.x_1, x_3.x_0, ..., zeros]
//
// the strictly lower triangle of X X^T row by row, filled with zeros to a multiple of 8 numbers.
// Products are summed in float32 whatever the dtype.
//
// No framework is needed: the CPU part is plain C++, the CUDA part needs nvcc alone.
#ifndef DOT_INTERACT_H_
#define DOT_INTERACT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DOT_INTERACT_FLOAT32 = 0, DOT_INTERACT_FLOAT16 = 1, DOT_INTERACT_BFLOAT16 = 2 };

// Sizes in numbers, not bytes. x_0 lies apart from x_1 ... x_{F-1}, so that the bottom MLP's output
// need not be copied beside the embeddings first:
//
//   sample n: x_0 = first + n * first_stride,  x_i = rest + n * rest_stride + (i - 1) * dim
//
// A tensor [batch, F, D] that holds all of them: first = t, rest = t + D, both strides F * D.
typedef struct {
  int64_t batch;         // samples, >= 0
  int64_t features;      // F >= 1; with 1 there is no pair and `rest` is never read
  int64_t dim;           // D >= 0
  int64_t head;          // width of the copied head: dim or 0
  int64_t first_stride;  // >= dim
  int64_t rest_stride;   // >= (features - 1) * dim
  int32_t dtype;         // of all tensors
} dot_interact_shape;

// Errors: 0 is success, negative numbers are the ones below, positive ones are cudaError_t.
enum {
  DOT_INTERACT_BAD_ARGUMENT = -1,   // a size or dtype out of range, or a null pointer to data
  DOT_INTERACT_OUT_OF_MEMORY = -2,  // no memory for a sample's scratch
};

// Numbers of an output row: head + F (F - 1) / 2, rounded up to a multiple of 8.
int64_t dot_interact_width(int64_t head, int64_t features);

// ---- CPU ----------------------------------------------------------------------------------------
// Samples [begin, end), on the calling thread; different ranges may run at the same time.
//
// forward:  head [batch, head] dense (null with head == 0) -> output [batch, width].
// backward: upstream [batch, width] -> the gradients of first and rest, with the strides of first
//   and rest, and head_gradient [batch, head]. With a null head_gradient the head's gradient is
//   added to that of first (x_0 and the head are the same tensor, head == dim).
int dot_interact_cpu_forward(const dot_interact_shape* shape, const void* first, const void* rest,
                             const void* head, void* output, int64_t begin, int64_t end);
int dot_interact_cpu_backward(const dot_interact_shape* shape, const void* first, const void* rest,
                              const void* upstream, void* first_gradient, void* rest_gradient,
                              void* head_gradient, int64_t begin, int64_t end);

// The instruction set in use: "avx512", "avx2" or "generic", the best that the processor has.
const char* dot_interact_cpu_isa(void);
// Chooses it (for tests and measurements); null: the best again. Error: this processor lacks it.
int dot_interact_cpu_use_isa(const char* isa);

// ---- CUDA ---------------------------------------------------------------------------------------
// The same on device pointers, queued on `stream` (a cudaStream_t, null: the default stream) of the
// current device; returns once queued. Every launch's own error is returned.
enum {
  DOT_INTERACT_NO_TF32 = 1,  // float32: full precision instead of TF32 tensor cores
  DOT_INTERACT_PLAIN = 2,    // the kernel without tiles that takes all sizes (for tests)
};
int dot_interact_cuda_forward(const dot_interact_shape* shape, const void* first, const void* rest,
                              const void* head, void* output, int32_t flags, void* stream);
int dot_interact_cuda_backward(const dot_interact_shape* shape, const void* first,
                               const void* rest, const void* upstream, void* first_gradient,
                               void* rest_gradient, void* head_gradient, int32_t flags,
                               void* stream);
// What an error number means; never null.
const char* dot_interact_cuda_error(int error);
// Which kernel these sizes take on the current device: "f16 tensor cores", "plain", ...
const char* dot_interact_cuda_kernel(const dot_interact_shape* shape, int32_t flags);

#ifdef __cplusplus
}
#endif

#endif  // DOT_INTERACT_H_
