// What the caller of a kernel hands it, and the kernels there are: one per instruction set.
//
// Each kernel_*.cc is compiled with flags that not every processor understands. So this header
// holds no function: an inline function shared between the files would be linked once, perhaps the
// copy with the wrong instructions.
#ifndef DOT_INTERACT_CPU_KERNEL_H_
#define DOT_INTERACT_CPU_KERNEL_H_

#include <stdint.h>

#include "../dot_interact.h"

namespace dot_interact {

// Scratch for one sample. Null where the tensors themselves serve.
struct Scratch {
  float* rows;    // [features, pitch], zeros beyond dim: 16-bit features, or dim not whole vectors
  float* pairs;   // [width]: an output row or upstream row of a 16-bit dtype
  int64_t pitch;  // a multiple of every kernel's lanes
};

struct Forward {
  dot_interact_shape shape;
  int64_t width;
  const void* first;
  const void* rest;
  const void* head;
  void* output;
  int64_t begin;
  int64_t end;
  Scratch scratch;
};

struct Backward {
  dot_interact_shape shape;
  int64_t width;
  const void* first;
  const void* rest;
  const void* upstream;
  void* first_gradient;
  void* rest_gradient;
  void* head_gradient;
  int64_t begin;
  int64_t end;
  Scratch scratch;
  bool stream;  // gradient rows go past the caches: they must lie on 64-byte boundaries
};

struct Kernel {
  const char* name;
  int64_t lanes;  // float32 numbers of a vector
  void (*forward)(const Forward&);
  void (*backward)(const Backward&);
};

extern const Kernel kGeneric;
#if defined(__x86_64__)
extern const Kernel kAvx2;
extern const Kernel kAvx512;
#endif

}  // namespace dot_interact

#endif  // DOT_INTERACT_CPU_KERNEL_H_
