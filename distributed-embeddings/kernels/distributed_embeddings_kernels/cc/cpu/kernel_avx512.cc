// The kernel with AVX-512: -mavx512f -mavx512bw -mavx512dq -mavx512vl.
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || \
    !defined(__AVX512VL__)
#error "kernel_avx512.cc needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif
#define EMBEDDING_BAG_KERNEL kAvx512
#define EMBEDDING_BAG_ISA avx512
#define EMBEDDING_BAG_TILE 8
#include "kernel.inc"
