#include "warp_instructions.h"

#include <string.h>

#include "memory.h"

namespace dot_interact {
namespace emulator {
namespace {

constexpr int kNewest = 100000;

float AsFloat(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

uint32_t AsBits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

uint16_t Element(uint32_t pair, int index) {  // of two 16-bit numbers in a register, low first
  return static_cast<uint16_t>(pair >> (16 * index));
}

// ---- ldmatrix -----------------------------------------------------------------------------------

// The 8 rows of a matrix are read at once where they lie in different groups of 4 of the 32 banks,
// or are the same.
void CountBankConflicts(void* const* arguments, int matrix) {
  unsigned rows_of_group[8] = {};
  unsigned most = 0;
  for (int i = 0; i < 8; ++i) {
    const void* row = static_cast<const MatrixLoad*>(arguments[8 * matrix + i])->row;
    bool is_new = true;
    for (int j = 0; j < i && is_new; ++j) {
      is_new = static_cast<const MatrixLoad*>(arguments[8 * matrix + j])->row != row;
    }
    unsigned& rows = rows_of_group[reinterpret_cast<uintptr_t>(row) / 16 % 8];
    if (is_new && ++rows > most) most = rows;
  }
  Traffic& traffic = CurrentTraffic();
  ++traffic.matrix_loads;
  traffic.matrix_load_conflicts += most - 1;
}

template <bool transposed>
void ExecuteLoad(void* const* arguments) {
  const char* name = transposed ? kLoadMatricesTransposed.name : kLoadMatrices.name;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const void* row = static_cast<const MatrixLoad*>(arguments[lane])->row;
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
      Fault("%s: lane %u's row is at %p, no multiple of 16", name, lane, row);
    }
    const unsigned char* begin = static_cast<const unsigned char*>(row);
    if (begin < SharedMemory() || begin + 16 > SharedMemory() + SharedBytes()) {
      Fault("%s: lane %u's row is at shared byte %lld of %lld", name, lane,
            static_cast<long long>(begin - SharedMemory()),
            static_cast<long long>(SharedBytes()));
    }
  }
  unsigned warp_begin = here.thread / kLanes * kLanes;
  for (int matrix = 0; matrix < 4; ++matrix) {
    CountBankConflicts(arguments, matrix);
    uint16_t values[8][8];
    for (int row = 0; row < 8; ++row) {
      const void* source = static_cast<const MatrixLoad*>(arguments[8 * matrix + row])->row;
      memcpy(values[row], source, 16);
      for (int column = 0; column < 8; ++column) {
        unsigned lane = transposed ? 4 * column + row / 2 : 4 * row + column / 2;
        const unsigned char* address = static_cast<const unsigned char*>(source) + 2 * column;
        if (ReadsGarbage(warp_begin + lane, address, name)) values[row][column] = 0xffff;
      }
    }
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      unsigned major = lane / 4;
      unsigned minor = lane % 4 * 2;
      uint32_t low = transposed ? values[minor][major] : values[major][minor];
      uint32_t high = transposed ? values[minor + 1][major] : values[major][minor + 1];
      static_cast<MatrixLoad*>(arguments[lane])->registers[matrix] = low | high << 16;
    }
  }
}

// ---- mma ----------------------------------------------------------------------------------------

const MatrixProduct& ProductOf(void* const* arguments, unsigned lane) {
  return *static_cast<const MatrixProduct*>(arguments[lane]);
}

// c += A B with A [16, depth] by rows and B [depth, 8]; lane, register -> row, column of C.
template <int depth>
void MultiplyInto(const float (&a)[16][depth], const float (&b)[depth][8],
                  void* const* arguments) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    float* c = ProductOf(arguments, lane).c;
    unsigned group = lane >> 2;
    unsigned thread_in_group = lane % 4;
    for (int i = 0; i < 4; ++i) {
      unsigned row = i < 2 ? group : group + 8;
      unsigned column = thread_in_group * 2 + (i & 1);
      float sum = c[i];
      for (int k = 0; k < depth; ++k) sum += a[row][k] * b[k][column];
      c[i] = sum;
    }
  }
}

// m16n8k16. On 7.5 it stands for two m16n8k8 (a0, a1, b0) and (a2, a3, b1), whose fragments are
// the two halves of the same layout.
template <float (*to_float)(uint16_t)>
void Execute16816(void* const* arguments) {
  float a[16][16], b[16][8];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const MatrixProduct& product = ProductOf(arguments, lane);
    unsigned group = lane >> 2;
    unsigned thread_in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {
      unsigned row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      unsigned column = thread_in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
      a[row][column] = to_float(Element(product.a[i / 2], i % 2));
    }
    for (int i = 0; i < 4; ++i) {
      unsigned row = thread_in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);
      b[row][group] = to_float(Element(product.b[i / 2], i % 2));
    }
  }
  MultiplyInto(a, b, arguments);
}

// Hardware ignores the low 13 bits, which truncates where the kernels promise to round.
float Tf32Operand(uint32_t bits, unsigned lane, const char* name) {
  constexpr uint32_t kIgnored = 0x1fff;
  const float x = AsFloat(bits);
  // cvt.rna makes NaN 0x7fffffff; garbage is NaN too.
  if ((bits & kIgnored) != 0 && x == x) {
    Fault("MmaTf32: lane %u's %s 0x%08x is not rounded to TF32", lane, name, bits);
  }
  return x;
}

// m16n8k8 in TF32.
void Execute1688Tf32(void* const* arguments) {
  float a[16][8], b[8][8];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const MatrixProduct& product = ProductOf(arguments, lane);
    unsigned group = lane >> 2;
    unsigned thread_in_group = lane % 4;
    for (int i = 0; i < 4; ++i) {
      unsigned row = i == 0 || i == 2 ? group : group + 8;
      unsigned column = i < 2 ? thread_in_group : thread_in_group + 4;
      a[row][column] = Tf32Operand(product.a[i], lane, "a");
    }
    b[thread_in_group][group] = Tf32Operand(product.b[0], lane, "b");
    b[thread_in_group + 4][group] = Tf32Operand(product.b[1], lane, "b");
  }
  MultiplyInto(a, b, arguments);
}

// m8n8k4: lanes 4 q ... 4 q + 3 and 16 more compute product q, for q = 0 ... 3.
template <bool b_by_rows>
void Execute884(void* const* arguments) {
  for (unsigned quad_pair = 0; quad_pair < 4; ++quad_pair) {
    float a[8][4], b[4][8];
    unsigned lanes[8];
    for (unsigned i = 0; i < 8; ++i) lanes[i] = 4 * quad_pair + i % 4 + (i < 4 ? 0 : 16);
    for (unsigned lane : lanes) {
      const MatrixProduct& product = ProductOf(arguments, lane);
      unsigned outer = lane % 4 + (lane < 16 ? 0 : 4);
      for (int i = 0; i < 4; ++i) {
        a[outer][i] = HalfToFloat(Element(product.a[i / 2], i % 2));
        float value = HalfToFloat(Element(product.b[i / 2], i % 2));
        if (b_by_rows) {
          b[lane % 4][lane < 16 ? i : i + 4] = value;
        } else {
          b[i][outer] = value;
        }
      }
    }
    for (unsigned lane : lanes) {
      float* c = ProductOf(arguments, lane).c;
      for (unsigned i = 0; i < 8; ++i) {
        unsigned row = (lane & 1) + (i & 2) + (lane < 16 ? 0 : 4);
        unsigned column = (i & 4) + (lane & 2) + (i & 1);
        float sum = c[i];
        for (int k = 0; k < 4; ++k) sum += a[row][k] * b[k][column];
        c[i] = sum;
      }
    }
  }
}

void ExecuteWarpBarrier(void* const*) { AdvanceWarpEpoch(here.thread / kLanes); }

}  // namespace

const WarpInstruction kWarpBarrier = {"SyncWarp", 0, kNewest, false, ExecuteWarpBarrier};
const WarpInstruction kLoadMatrices = {"LoadMatrices", 750, kNewest, true, ExecuteLoad<false>};
const WarpInstruction kLoadMatricesTransposed = {"LoadMatricesTransposed", 750, kNewest, true,
                                                 ExecuteLoad<true>};
const WarpInstruction kMmaF16 = {"MmaF16", 750, kNewest, true, Execute16816<HalfToFloat>};
const WarpInstruction kMmaBf16 = {"MmaBf16", 800, kNewest, true, Execute16816<Bfloat16ToFloat>};
const WarpInstruction kMmaTf32 = {"MmaTf32", 800, kNewest, true, Execute1688Tf32};
// Later parts have m8n8k4 too, but not as fast as the others: a kernel that uses it there errs.
const WarpInstruction kMmaVolta = {"MmaVolta", 700, 749, true, Execute884<false>};
const WarpInstruction kMmaVoltaRow = {"MmaVoltaRow", 700, 749, true, Execute884<true>};

// ---- Formats ------------------------------------------------------------------------------------

float HalfToFloat(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t exponent = bits >> 10 & 0x1f;
  uint32_t fraction = bits & 0x3ff;
  if (exponent == 31) return AsFloat(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return AsFloat(sign | (exponent + 112) << 23 | fraction << 13);
  float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

uint16_t FloatToHalf(float x) {
  uint32_t bits = AsBits(x);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7fff;  // NaN, as cvt.rn.f16.f32 makes it
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65,520 and up round to infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14 the spacing is 2^-24 everywhere: adding 0.5 lets float32 round to it.
    float shifted = AsFloat(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(AsBits(shifted) - AsBits(0.5f));
  }
  uint32_t odd = magnitude >> 13 & 1;
  return sign | static_cast<uint16_t>((magnitude - (112u << 23) + 0xfff + odd) >> 13);
}

float Bfloat16ToFloat(uint16_t bits) { return AsFloat(static_cast<uint32_t>(bits) << 16); }

uint16_t FloatToBfloat16(float x) {
  uint32_t bits = AsBits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint32_t FloatToTf32(uint32_t bits) {
  if ((bits & 0x7f800000) == 0x7f800000) {
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : bits;
  }
  return (bits + 0x1000) & ~0x1fffu;
}

}  // namespace emulator
}  // namespace dot_interact
