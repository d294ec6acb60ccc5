// The kernel for any processor.
#define EMBEDDING_BAG_KERNEL kGeneric
#define EMBEDDING_BAG_ISA generic
#define EMBEDDING_BAG_TILE 2
#include "kernel.inc"
