// ldmatrix and mma.sync on a CPU, written from the PTX ISA (sections "ldmatrix" and "Matrix
// Fragments for mma.m8n8k4, m16n8k8, m16n8k16").
#ifndef DOT_INTERACT_EMULATOR_WARP_INSTRUCTIONS_H_
#define DOT_INTERACT_EMULATOR_WARP_INSTRUCTIONS_H_

#include <stdint.h>

#include "scheduler.h"

namespace dot_interact {
namespace emulator {

float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float x);       // to the nearest, ties to even
float Bfloat16ToFloat(uint16_t bits);
uint16_t FloatToBfloat16(float x);   // to the nearest, ties to even
uint32_t FloatToTf32(uint32_t bits);  // cvt.rna: ties away from zero; the low 13 bits become 0

// One lane's operands.
struct MatrixLoad {
  const void* row;
  uint32_t* registers;  // 4
};
struct MatrixProduct {
  float* c;           // 4, or 8 of m8n8k4
  const uint32_t* a;  // 4, or 2 of m8n8k4
  uint32_t b[2];
};

extern const WarpInstruction kWarpBarrier;
extern const WarpInstruction kLoadMatrices;             // MatrixLoad
extern const WarpInstruction kLoadMatricesTransposed;   // MatrixLoad
extern const WarpInstruction kMmaF16;                   // MatrixProduct, as are the following
extern const WarpInstruction kMmaBf16;
extern const WarpInstruction kMmaTf32;
extern const WarpInstruction kMmaVolta;
extern const WarpInstruction kMmaVoltaRow;

}  // namespace emulator
}  // namespace dot_interact

#endif  // DOT_INTERACT_EMULATOR_WARP_INSTRUCTIONS_H_
