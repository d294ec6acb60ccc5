// The kernel on vectors of 16 numbers: -mavx512f -mavx512bw -mavx512dq -mavx512vl.
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || \
    !defined(__AVX512VL__)
#error "kernel_avx512.cc needs -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

// g++ 12 warns of its own header wherever an intrinsic is inlined (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <immintrin.h>

#include "kernel.h"

#define DOT_INTERACT_KERNEL kAvx512
#define DOT_INTERACT_ISA avx512

namespace dot_interact {
namespace avx512 {

constexpr char kName[] = "avx512";
constexpr int kLanes = 16;
constexpr int kBlockRows = 4;    // 4 x 4 sums, 4 + 4 rows: 24 of 32 registers
constexpr int kTileColumns = 4;  // 6 x 4 sums, 4 columns, a weight: 29 of 32 registers

using Vec = __m512;
using Packed = __m256i;  // 16 numbers of 16 bits

static inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1);
}

static inline Vec Zero() { return _mm512_setzero_ps(); }
static inline Vec Broadcast(const float* p) { return _mm512_set1_ps(*p); }
static inline Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
static inline Vec MultiplyAdd(Vec a, Vec b, Vec sum) { return _mm512_fmadd_ps(a, b, sum); }

static inline Vec Load(const float* p) { return _mm512_loadu_ps(p); }
static inline Vec Load(const float* p, int64_t count) {
  return _mm512_maskz_loadu_ps(FirstLanes(count), p);
}
static inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
static inline void Store(float* p, Vec v, int64_t count) {
  _mm512_mask_storeu_ps(p, FirstLanes(count), v);
}
static inline void Stream(float* p, Vec v) { _mm512_stream_ps(p, v); }

static inline Packed Load(const uint16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
static inline Packed Load(const uint16_t* p, int64_t count) {
  return _mm256_maskz_loadu_epi16(FirstLanes(count), p);
}
static inline void Store(uint16_t* p, Packed v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}
static inline void Store(uint16_t* p, Packed v, int64_t count) {
  _mm256_mask_storeu_epi16(p, FirstLanes(count), v);
}
static inline void Stream(uint16_t* p, Packed v) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), v);
}
static inline void StreamFence() { _mm_sfence(); }

static inline Vec FromHalf(Packed v) { return _mm512_cvtph_ps(v); }
static inline Packed ToHalf(Vec v) {
  return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline Vec FromBfloat(Packed v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
// A NaN needs no care: made of 16-bit numbers or by the processor, its lower half is zero. Not
// vcvtneps2bf16: it takes subnormal numbers for zeros, and few processors have it.
static inline Packed ToBfloat(Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_add_epi32(bits, half), 16));
}

// Within each 128-bit part: the part's sums of a, b, c and d side by side.
static inline Vec SumParts(Vec a, Vec b, Vec c, Vec d) {
  const Vec ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const Vec cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d ab_pairs = _mm512_castps_pd(ab), cd_pairs = _mm512_castps_pd(cd);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab_pairs, cd_pairs)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(ab_pairs, cd_pairs)));
}

// targets[r][c] = the sum over the lanes of sums[r][c].
static inline void StoreSums(const Vec (&sums)[4][4], float* const (&targets)[4]) {
  const Vec row0 = SumParts(sums[0][0], sums[0][1], sums[0][2], sums[0][3]);
  const Vec row1 = SumParts(sums[1][0], sums[1][1], sums[1][2], sums[1][3]);
  const Vec row2 = SumParts(sums[2][0], sums[2][1], sums[2][2], sums[2][3]);
  const Vec row3 = SumParts(sums[3][0], sums[3][1], sums[3][2], sums[3][3]);
  const Vec rows01 = _mm512_add_ps(_mm512_shuffle_f32x4(row0, row1, 0x44),
                                   _mm512_shuffle_f32x4(row0, row1, 0xee));
  const Vec rows23 = _mm512_add_ps(_mm512_shuffle_f32x4(row2, row3, 0x44),
                                   _mm512_shuffle_f32x4(row2, row3, 0xee));
  const Vec rows = _mm512_add_ps(_mm512_shuffle_f32x4(rows01, rows23, 0x88),
                                 _mm512_shuffle_f32x4(rows01, rows23, 0xdd));
  _mm_storeu_ps(targets[0], _mm512_castps512_ps128(rows));
  _mm_storeu_ps(targets[1], _mm512_extractf32x4_ps(rows, 1));
  _mm_storeu_ps(targets[2], _mm512_extractf32x4_ps(rows, 2));
  _mm_storeu_ps(targets[3], _mm512_extractf32x4_ps(rows, 3));
}

}  // namespace avx512
}  // namespace dot_interact

#include "kernel.inc"
