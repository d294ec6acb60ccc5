// The kernel with AVX2: -mavx2 -mfma -mf16c.
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "kernel_avx2.cc needs -mavx2 -mfma -mf16c"
#endif
#define EMBEDDING_BAG_KERNEL kAvx2
#define EMBEDDING_BAG_ISA avx2
#define EMBEDDING_BAG_TILE 4
#include "kernel.inc"
