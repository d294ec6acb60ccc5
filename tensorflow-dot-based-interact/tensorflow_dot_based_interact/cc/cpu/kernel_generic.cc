// The kernel on vectors of 4 numbers, which the compiler turns into SSE2, NEON or what there is.
#include <string.h>

#include "kernel.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define DOT_INTERACT_KERNEL kGeneric
#define DOT_INTERACT_ISA generic

namespace dot_interact {
namespace generic {

constexpr char kName[] = "generic";
constexpr int kLanes = 4;
constexpr int kBlockRows = 2;
constexpr int kTileColumns = 2;

typedef float Vec __attribute__((vector_size(16)));
typedef uint32_t Bits __attribute__((vector_size(16)));
typedef int32_t Mask __attribute__((vector_size(16)));
typedef uint16_t Packed __attribute__((vector_size(8)));  // 4 numbers of 16 bits

template <class To, class From>
static inline To Reinterpret(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

static inline Vec Zero() { return Vec{}; }
static inline Vec Broadcast(const float* p) { return Vec{*p, *p, *p, *p}; }
static inline Vec Add(Vec a, Vec b) { return a + b; }
static inline Vec MultiplyAdd(Vec a, Vec b, Vec sum) { return a * b + sum; }

// Fewer than 4. No call, for which the registers of sums would go through memory.
template <class Number>
static inline void CopyFew(Number* to, const Number* from, int64_t count) {
  if (count & 2) {
    memcpy(to, from, 2 * sizeof(Number));
    to += 2;
    from += 2;
  }
  if (count & 1) *to = *from;
}

static inline Vec Load(const float* p) {
  Vec v;
  memcpy(&v, p, sizeof(v));
  return v;
}
static inline Vec Load(const float* p, int64_t count) {
  float numbers[kLanes] = {};
  CopyFew(numbers, p, count);
  return Load(numbers);
}
static inline void Store(float* p, Vec v) { memcpy(p, &v, sizeof(v)); }
static inline void Store(float* p, Vec v, int64_t count) {
  float numbers[kLanes];
  Store(numbers, v);
  CopyFew(p, numbers, count);
}

static inline Packed Load(const uint16_t* p) {
  Packed v;
  memcpy(&v, p, sizeof(v));
  return v;
}
static inline Packed Load(const uint16_t* p, int64_t count) {
  uint16_t numbers[kLanes] = {};
  CopyFew(numbers, p, count);
  return Load(numbers);
}
static inline void Store(uint16_t* p, Packed v) { memcpy(p, &v, sizeof(v)); }
static inline void Store(uint16_t* p, Packed v, int64_t count) {
  uint16_t numbers[kLanes];
  Store(numbers, v);
  CopyFew(p, numbers, count);
}

#if defined(__x86_64__)
static inline void Stream(float* p, Vec v) { _mm_stream_ps(p, v); }
static inline void Stream(uint16_t* p, Packed v) {
  _mm_stream_si64(reinterpret_cast<long long*>(p), Reinterpret<long long>(v));
}
static inline void StreamFence() { _mm_sfence(); }
#else
static inline void Stream(float* p, Vec v) { Store(p, v); }
static inline void Stream(uint16_t* p, Packed v) { Store(p, v); }
static inline void StreamFence() {}
#endif

static inline Bits Select(Mask mask, Bits yes, Bits no) {
  const Bits chosen = Reinterpret<Bits>(mask);
  return (yes & chosen) | (no & ~chosen);
}

// Exponents are moved as integers, and subnormal halves are made through 0.5 + x: a thread that
// flushes subnormal float32 numbers to zero, as TensorFlow's do, still reads them.
static inline Vec FromHalf(Packed v) {
  const Bits half = __builtin_convertvector(v, Bits);
  const Bits magnitude = half & 0x7fff;
  const Bits normal = (magnitude << 13) + (112u << 23);
  const Bits infinite = normal + (112u << 23);
  const Vec offset = {0.5f, 0.5f, 0.5f, 0.5f};
  const Bits subnormal = Reinterpret<Bits>(Reinterpret<Vec>(magnitude | (126u << 23)) - offset);
  Bits number = Select(magnitude >= 0x7c00, infinite, normal);
  number = Select(magnitude < 0x400, subnormal, number);
  return Reinterpret<Vec>(number | ((half & 0x8000) << 16));
}

static inline Packed ToHalf(Vec v) {
  const Bits bits = Reinterpret<Bits>(v);
  const Bits magnitude = bits & 0x7fffffff;
  const Bits odd = (magnitude >> 13) & 1;
  const Bits normal = (magnitude - (112u << 23) + 0xfff + odd) >> 13;
  // Adding 0.5 rounds to multiples of 2^-24, the distance of subnormal halves.
  const Vec offset = {0.5f, 0.5f, 0.5f, 0.5f};
  const Bits subnormal = Reinterpret<Bits>(Reinterpret<Vec>(magnitude) + offset) - (126u << 23);
  const Bits nan = ((magnitude >> 13) & 0x3ff) | 0x7e00;
  Bits half = Select(magnitude < (113u << 23), subnormal, normal);
  half = Select(magnitude >= (143u << 23), Bits{} + 0x7c00, half);  // from 2^16 on: infinite
  half = Select(magnitude > (255u << 23), nan, half);
  return __builtin_convertvector(half | ((bits >> 16) & 0x8000), Packed);
}

static inline Vec FromBfloat(Packed v) {
  return Reinterpret<Vec>(__builtin_convertvector(v, Bits) << 16);
}

// A NaN needs no care: made of 16-bit numbers or by the processor, its lower half is zero.
static inline Packed ToBfloat(Vec v) {
  const Bits bits = Reinterpret<Bits>(v);
  return __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, Packed);
}

template <int i0, int i1, int i2, int i3>
static inline Vec Shuffle(Vec a, Vec b) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, i0, i1, i2, i3);
#else
  return __builtin_shuffle(a, b, Mask{i0, i1, i2, i3});
#endif
}

// targets[r][c] = the sum over the lanes of sums[r][c].
static inline void StoreSums(const Vec (&sums)[kBlockRows][4],
                             float* const (&targets)[kBlockRows]) {
  for (int r = 0; r < kBlockRows; r++) {
    const Vec(&s)[4] = sums[r];
    const Vec ab = Shuffle<0, 4, 1, 5>(s[0], s[1]) + Shuffle<2, 6, 3, 7>(s[0], s[1]);
    const Vec cd = Shuffle<0, 4, 1, 5>(s[2], s[3]) + Shuffle<2, 6, 3, 7>(s[2], s[3]);
    Store(targets[r], Shuffle<0, 1, 4, 5>(ab, cd) + Shuffle<2, 3, 6, 7>(ab, cd));
  }
}

}  // namespace generic
}  // namespace dot_interact

#include "kernel.inc"
