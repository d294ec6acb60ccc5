// Neighbouring numbers of a row, loaded and stored at once, and divisions by constants of a launch.
#ifndef EMBEDDING_BAG_CUDA_VECTORS_CUH_
#define EMBEDDING_BAG_CUDA_VECTORS_CUH_

#include "primitives.cuh"

namespace embedding_bag {
namespace device {

constexpr int kThreads = 256;  // of a block
constexpr int kWarp = 32;

// Blocks that a multiprocessor holds at most (CUDA C++ Programming Guide, compute capabilities).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
constexpr int kMostBlocks = 1024 / kThreads;
#elif defined(__CUDA_ARCH__) && (__CUDA_ARCH__ / 10 % 10 > 5 || __CUDA_ARCH__ >= 1200)
constexpr int kMostBlocks = 1536 / kThreads;  // 8.6, 8.7, 8.9, 12.0
#else
constexpr int kMostBlocks = 2048 / kThreads;
#endif

EB_DEVICE constexpr int AtMost(int most, int number) { return number < most ? number : most; }

// ---- Vectors ------------------------------------------------------------------------------------

template <int bytes>
struct alignas(bytes) Piece {
  uint32_t word[bytes / 4];
};
template <>
struct Piece<2> {
  uint16_t word;
};

// `count` numbers in registers, as they are stored: pieces of at most 16 bytes, each of which moves
// at once. Addresses are multiples of a piece.
template <class T, int count>
struct Vector {
  static constexpr int kBytes = count * sizeof(T);
  static constexpr int kPieceBytes = kBytes < 16 ? kBytes : 16;
  static constexpr int kPieces = kBytes / kPieceBytes;
  Piece<kPieceBytes> piece[kPieces];
};

template <class T, int count>
EB_DEVICE Vector<T, count> Load(const T* from) {
  using Pieces = Vector<T, count>;
  Pieces vector;
  EB_UNROLL
  for (int i = 0; i < Pieces::kPieces; ++i) {
    vector.piece[i] = reinterpret_cast<const Piece<Pieces::kPieceBytes>*>(from)[i];
  }
  return vector;
}

template <class T, int count>
EB_DEVICE void LoadFloats(const T* from, float (&to)[count]) {
  const Vector<T, count> vector = Load<T, count>(from);
  T numbers[count];
  memcpy(numbers, &vector, sizeof numbers);
  EB_UNROLL
  for (int i = 0; i < count; ++i) to[i] = ToFloat(numbers[i]);
}

template <class T, int count>
EB_DEVICE void StoreFloats(T* to, const float (&from)[count]) {
  using Pieces = Vector<T, count>;
  T numbers[count];
  EB_UNROLL
  for (int i = 0; i < count; ++i) numbers[i] = FromFloat<T>(from[i]);
  Pieces vector;
  memcpy(&vector, numbers, sizeof numbers);
  auto* pieces = reinterpret_cast<Piece<Pieces::kPieceBytes>*>(to);
  EB_UNROLL
  for (int i = 0; i < Pieces::kPieces; ++i) {
    if constexpr (Pieces::kPieceBytes >= 8) {
      StoreWords(pieces + i, vector.piece[i].word);
    } else {
      pieces[i] = vector.piece[i];
    }
  }
}

// sum += factor * vector
template <class T, int count>
EB_DEVICE void AddTo(float (&sum)[count], float factor, const Vector<T, count>& vector) {
  T numbers[count];
  memcpy(numbers, &vector, sizeof numbers);
  EB_UNROLL
  for (int i = 0; i < count; ++i) sum[i] += factor * ToFloat(numbers[i]);
}

// ---- Divisions ----------------------------------------------------------------------------------

// Division of 32-bit numbers by a divisor that is known when the kernel is launched: the high half
// of a product, instead of some 20 instructions (Granlund and Montgomery, 1994).
struct Divisor {
  uint32_t divisor;
  uint32_t multiplier;
  uint32_t shift;
};

#ifndef __CUDACC_RTC__
inline Divisor DivisorOf(uint32_t divisor) {  // > 0
  uint32_t shift = 0;
  while ((uint64_t{1} << shift) < divisor) ++shift;
  const uint64_t multiplier = ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor)) / divisor;
  return {divisor, static_cast<uint32_t>(multiplier + 1), shift};
}
#endif

EB_DEVICE uint32_t Quotient(uint32_t number, const Divisor& by) {
  const uint64_t high = static_cast<uint64_t>(number) * by.multiplier >> 32;
  return static_cast<uint32_t>((high + number) >> by.shift);
}

}  // namespace device
}  // namespace embedding_bag

#endif  // EMBEDDING_BAG_CUDA_VECTORS_CUH_
