// The kernel on vectors of 8 numbers: -mavx2 -mfma -mf16c.
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "kernel_avx2.cc needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>
#include <string.h>

#include "kernel.h"

#define DOT_INTERACT_KERNEL kAvx2
#define DOT_INTERACT_ISA avx2

namespace dot_interact {
namespace avx2 {

constexpr char kName[] = "avx2";
constexpr int kLanes = 8;
constexpr int kBlockRows = 2;    // 2 x 4 sums, 2 + 4 rows: 14 of 16 registers
constexpr int kTileColumns = 2;  // 6 x 2 sums, 2 columns, a weight: 15 of 16 registers

using Vec = __m256;
using Packed = __m128i;  // 8 numbers of 16 bits

static inline __m256i FirstLanes(int64_t count) {
  static const int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - count));
}

static inline Vec Zero() { return _mm256_setzero_ps(); }
static inline Vec Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
static inline Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
static inline Vec MultiplyAdd(Vec a, Vec b, Vec sum) { return _mm256_fmadd_ps(a, b, sum); }

static inline Vec Load(const float* p) { return _mm256_loadu_ps(p); }
static inline Vec Load(const float* p, int64_t count) {
  return _mm256_maskload_ps(p, FirstLanes(count));
}
static inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
static inline void Store(float* p, Vec v, int64_t count) {
  _mm256_maskstore_ps(p, FirstLanes(count), v);
}
static inline void Stream(float* p, Vec v) { _mm256_stream_ps(p, v); }

// Fewer than 8. No call, for which the registers of sums would go through memory.
static inline void CopyFew(uint16_t* to, const uint16_t* from, int64_t count) {
  if (count & 4) {
    memcpy(to, from, 8);
    to += 4;
    from += 4;
  }
  if (count & 2) {
    memcpy(to, from, 4);
    to += 2;
    from += 2;
  }
  if (count & 1) *to = *from;
}

static inline Packed Load(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
static inline Packed Load(const uint16_t* p, int64_t count) {
  uint16_t numbers[8] = {};
  CopyFew(numbers, p, count);
  return Load(numbers);
}
static inline void Store(uint16_t* p, Packed v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
}
static inline void Store(uint16_t* p, Packed v, int64_t count) {
  uint16_t numbers[8];
  Store(numbers, v);
  CopyFew(p, numbers, count);
}
static inline void Stream(uint16_t* p, Packed v) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), v);
}
static inline void StreamFence() { _mm_sfence(); }

static inline Vec FromHalf(Packed v) { return _mm256_cvtph_ps(v); }
static inline Packed ToHalf(Vec v) {
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline Vec FromBfloat(Packed v) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
// A NaN needs no care: made of 16-bit numbers or by the processor, its lower half is zero.
static inline Packed ToBfloat(Vec v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i upper = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}

// Within each 128-bit part: the part's sums of a, b, c and d side by side.
static inline Vec SumParts(Vec a, Vec b, Vec c, Vec d) {
  const Vec ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  const Vec cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
  const __m256d ab_pairs = _mm256_castps_pd(ab), cd_pairs = _mm256_castps_pd(cd);
  return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ab_pairs, cd_pairs)),
                       _mm256_castpd_ps(_mm256_unpackhi_pd(ab_pairs, cd_pairs)));
}

// targets[r][c] = the sum over the lanes of sums[r][c].
static inline void StoreSums(const Vec (&sums)[2][4], float* const (&targets)[2]) {
  const Vec row0 = SumParts(sums[0][0], sums[0][1], sums[0][2], sums[0][3]);
  const Vec row1 = SumParts(sums[1][0], sums[1][1], sums[1][2], sums[1][3]);
  const Vec rows = _mm256_add_ps(_mm256_permute2f128_ps(row0, row1, 0x20),
                                 _mm256_permute2f128_ps(row0, row1, 0x31));
  _mm_storeu_ps(targets[0], _mm256_castps256_ps128(rows));
  _mm_storeu_ps(targets[1], _mm256_extractf128_ps(rows, 1));
}

}  // namespace avx2
}  // namespace dot_interact

#include "kernel.inc"
