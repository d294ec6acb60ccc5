// 16 x 16 tiles of X X^T and of S X, by tensor cores (7.5 on), Volta's tensor cores, or plain FMA.
//
// All kinds of tiles have the same members, so that the kernels know none of them by name. A warp
// holds a tile as 8 numbers a lane; number i is at
//   row    Row() + kRowStep * (i >> 1 & 1)
//   column Column() + (i & 1) + 8 * (i >> 2)
// so that numbers i and i + 1 (i even) are neighbours in a row.
//
// Forward, a tile += Rows Columns^T: both are 16 rows x kForwardDepth numbers of X. Rows past the
// last are loaded as the last one, and only reach rows and columns of X X^T that nobody reads.
// Backward, a tile += Left Right: Left is 16 x kBackwardDepth of S, Right is kBackwardDepth rows x
// 16 columns of X. All loads are from shared memory, from rows `pitch` bytes apart.
#ifndef DOT_INTERACT_CUDA_TILES_CUH_
#define DOT_INTERACT_CUDA_TILES_CUH_

#include "copies.cuh"

namespace dot_interact {
namespace device {

template <class T>
struct IsFloat32 {
  static constexpr bool kValue = sizeof(T) == 4;
};

template <class A, class B>
struct IsSame {
  static constexpr bool kValue = false;
};
template <class A>
struct IsSame<A, A> {
  static constexpr bool kValue = true;
};

// mma.m16n8k16 (float16, bfloat16) and mma.m16n8k8 (TF32): a fragment is 16 rows x 32 bytes,
// whatever the dtype. The left operand's registers (a0, a1, a2, a3) of 16 rows hold at once the
// right operands (a0, a2) and (a1, a3) of the same rows as columns: X X^T loads a tile's rows once.
template <class T>
struct TensorCoreTiles {
  static constexpr int kForwardDepth = 32 / sizeof(T);
  static constexpr int kBackwardDepth = 32 / sizeof(T);
  static constexpr bool kRowsAreColumns = true;
  static constexpr bool kKeepLeft = true;  // S of 32 rows fits the registers
  static constexpr int kRowStep = 8;

  struct Accumulator {
    float half_tile[2][4] = {};
    DI_DEVICE float& operator[](int i) { return half_tile[i >> 2][i & 3]; }
  };
  struct Rows {
    uint32_t word[4];
  };
  using Columns = Rows;
  using Left = Rows;
  using Right = Rows;

  static DI_DEVICE int Row() { return Lane() / 4; }
  static DI_DEVICE int Column() { return Lane() % 4 * 2; }

  // What the tensor cores make of a number.
  static DI_DEVICE T Rounded(T x) {
    if constexpr (IsFloat32<T>::kValue) {
      uint32_t word = RoundToTf32(*reinterpret_cast<const uint32_t*>(&x));
      return *reinterpret_cast<const T*>(&word);
    } else {
      return x;
    }
  }

  static DI_DEVICE void Load(Rows& rows, const unsigned char* x, int row, int last, int pitch) {
    row += Lane() % 16;
    LoadMatrices(rows.word, x + (row < last ? row : last) * pitch + Lane() / 16 * 16);
    RoundWords(rows);
  }

  static DI_DEVICE void Multiply(Accumulator& tile, const Rows& rows, const Columns& columns) {
    Mma(tile.half_tile[0], rows.word, columns.word[0], columns.word[2]);
    Mma(tile.half_tile[1], rows.word, columns.word[1], columns.word[3]);
  }

  static DI_DEVICE void LoadLeft(Left& left, const unsigned char* tile, int pitch) {
    LoadMatrices(left.word, tile + Lane() % 16 * pitch + Lane() / 16 * 16);  // rounded already
  }

  static DI_DEVICE void LoadRight(Right& right, const unsigned char* tile, int pitch) {
    if constexpr (IsFloat32<T>::kValue) {
      const unsigned char* number = tile + Lane() % 4 * pitch + Lane() / 4 * 4;
      DI_UNROLL
      for (int i = 0; i < 4; ++i) {
        right.word[i] =
            *reinterpret_cast<const uint32_t*>(number + i % 2 * 4 * pitch + i / 2 * 32);
      }
      RoundWords(right);
    } else {
      LoadMatricesTransposed(right.word, tile + Lane() % 16 * pitch + Lane() / 16 * 16);
    }
  }

  static DI_DEVICE void MultiplyLeft(Accumulator& tile, const Left& left, const Right& right) {
    Mma(tile.half_tile[0], left.word, right.word[0], right.word[1]);
    Mma(tile.half_tile[1], left.word, right.word[2], right.word[3]);
  }

 private:
  static DI_DEVICE void RoundWords(Rows& rows) {
    if constexpr (IsFloat32<T>::kValue) {
      DI_UNROLL
      for (int i = 0; i < 4; ++i) rows.word[i] = RoundToTf32(rows.word[i]);
    }
  }

  static DI_DEVICE void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (IsFloat32<T>::kValue) {
      MmaTf32(c, a, b0, b1);
    } else if constexpr (IsSame<T, bf16>::kValue) {
      MmaBf16(c, a, b0, b1);
    } else {
      MmaF16(c, a, b0, b1);
    }
  }
};

// Volta's mma.m8n8k4: each quad pair multiplies 8 x 8 numbers of its own. Quad pair q takes the
// rows with bit 2 equal to q & 1 and the columns with bit 2 equal to q >> 1, so that the 8 lanes
// that load at a time read 8 different rows, or 4 rows twice: no bank conflicts.
template <class T>
struct VoltaTiles {
  static constexpr int kForwardDepth = 8;
  static constexpr int kBackwardDepth = 8;
  static constexpr bool kRowsAreColumns = false;
  static constexpr bool kKeepLeft = true;
  static constexpr int kRowStep = 2;

  struct Accumulator {
    float number[8] = {};
    DI_DEVICE float& operator[](int i) { return number[i]; }
  };
  struct Rows {
    Words4 words;
  };
  struct Columns {
    Words4 words;
  };
  using Left = Rows;
  struct Right {
    uint32_t word[2][2];
  };

  static DI_DEVICE int Row() { return Lane() % 2 + (Lane() & 4) + Lane() / 16 * 8; }
  static DI_DEVICE int Column() { return (Lane() & 2) + QuadPairColumn(); }
  static DI_DEVICE T Rounded(T x) { return x; }

  static DI_DEVICE void Load(Rows& rows, const unsigned char* x, int row, int last, int pitch) {
    row += Lane() % 8 + Lane() / 16 * 8;
    rows.words = *reinterpret_cast<const Words4*>(x + (row < last ? row : last) * pitch);
  }

  static DI_DEVICE void Load(Columns& columns, const unsigned char* x, int row, int last,
                             int pitch) {
    row += Lane() % 4 + QuadPairColumn() + Lane() / 16 * 8;
    columns.words = *reinterpret_cast<const Words4*>(x + (row < last ? row : last) * pitch);
  }

  static DI_DEVICE void Multiply(Accumulator& tile, const Rows& rows, const Columns& columns) {
    const uint32_t(&a)[4] = rows.words.word;
    const uint32_t(&b)[4] = columns.words.word;
    MmaVolta(tile.number, a[0], a[1], b[0], b[1]);
    MmaVolta(tile.number, a[2], a[3], b[2], b[3]);
  }

  static DI_DEVICE void LoadLeft(Left& left, const unsigned char* tile, int pitch) {
    Load(left, tile, 0, 15, pitch);
  }

  static DI_DEVICE void LoadRight(Right& right, const unsigned char* tile, int pitch) {
    const int column = QuadPairColumn() + Lane() / 16 * 8;
    DI_UNROLL
    for (int k = 0; k < 2; ++k) {
      const unsigned char* row = tile + (4 * k + Lane() % 4) * pitch;
      const Pair<uint32_t> words = reinterpret_cast<const Pair<uint32_t>*>(row)[column / 4];
      right.word[k][0] = words.left;
      right.word[k][1] = words.right;
    }
  }

  static DI_DEVICE void MultiplyLeft(Accumulator& tile, const Left& left, const Right& right) {
    const uint32_t(&a)[4] = left.words.word;
    MmaVoltaRow(tile.number, a[0], a[1], right.word[0][0], right.word[0][1]);
    MmaVoltaRow(tile.number, a[2], a[3], right.word[1][0], right.word[1][1]);
  }

 private:
  static DI_DEVICE int QuadPairColumn() { return Lane() / 8 % 2 * 4; }
};

// FMA in float32, numbers converted as they are loaded: full precision, and bfloat16 before 8.0.
template <class T>
struct FmaTiles {
  static constexpr int kForwardDepth = 4;
  static constexpr int kBackwardDepth = 4;
  static constexpr bool kRowsAreColumns = false;
  static constexpr bool kKeepLeft = false;
  static constexpr int kRowStep = 8;

  struct Accumulator {
    float number[8] = {};
    DI_DEVICE float& operator[](int i) { return number[i]; }
  };
  struct Rows {
    float number[2][4];
  };
  struct Columns {
    float number[4][4];  // column, depth
  };
  using Left = Rows;
  struct Right {
    float number[4][4];  // depth, column
  };

  static DI_DEVICE int Row() { return Lane() / 4; }
  static DI_DEVICE int Column() { return Lane() % 4 * 2; }
  static DI_DEVICE T Rounded(T x) { return x; }

  static DI_DEVICE void Load(Rows& rows, const unsigned char* x, int row, int last, int pitch) {
    DI_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int own = row + Row() + 8 * r;
      LoadFour(rows.number[r], x + (own < last ? own : last) * pitch);
    }
  }

  static DI_DEVICE void Load(Columns& columns, const unsigned char* x, int row, int last,
                             int pitch) {
    DI_UNROLL
    for (int c = 0; c < 4; ++c) {
      const int own = row + Column() + c % 2 + c / 2 * 8;
      LoadFour(columns.number[c], x + (own < last ? own : last) * pitch);
    }
  }

  static DI_DEVICE void Multiply(Accumulator& tile, const Rows& rows, const Columns& columns) {
    DI_UNROLL
    for (int k = 0; k < 4; ++k) {
      DI_UNROLL
      for (int i = 0; i < 8; ++i) {
        tile.number[i] += rows.number[i >> 1 & 1][k] * columns.number[ColumnOf(i)][k];
      }
    }
  }

  static DI_DEVICE void LoadLeft(Left& left, const unsigned char* tile, int pitch) {
    Load(left, tile, 0, 15, pitch);
  }

  static DI_DEVICE void LoadRight(Right& right, const unsigned char* tile, int pitch) {
    DI_UNROLL
    for (int k = 0; k < 4; ++k) {
      const Pair<T>* row = reinterpret_cast<const Pair<T>*>(tile + k * pitch) + Lane() % 4;
      DI_UNROLL
      for (int c = 0; c < 2; ++c) {
        const Pair<T> pair = row[4 * c];
        right.number[k][2 * c] = ToFloat(pair.left);
        right.number[k][2 * c + 1] = ToFloat(pair.right);
      }
    }
  }

  static DI_DEVICE void MultiplyLeft(Accumulator& tile, const Left& left, const Right& right) {
    DI_UNROLL
    for (int k = 0; k < 4; ++k) {
      DI_UNROLL
      for (int i = 0; i < 8; ++i) {
        tile.number[i] += left.number[i >> 1 & 1][k] * right.number[k][ColumnOf(i)];
      }
    }
  }

 private:
  static DI_DEVICE constexpr int ColumnOf(int i) { return (i & 1) + (i >> 2) * 2; }

  static DI_DEVICE void LoadFour(float (&number)[4], const unsigned char* address) {
    const Four<T> four = *reinterpret_cast<const Four<T>*>(address);
    DI_UNROLL
    for (int k = 0; k < 4; ++k) number[k] = ToFloat(four.number[k]);
  }
};

// The tiles of a kernel that asks for tensor cores, or for none. The host asks for tensor cores
// only where the part has them for the dtype (launch.cu, `HasTensorCores`).
template <class T, bool tensor_cores>
struct TilesOf {
  using Type = FmaTiles<T>;
};
#if DI_ARCH >= 800
template <class T>
struct TilesOf<T, true> {
  using Type = TensorCoreTiles<T>;
};
#elif DI_ARCH >= 750
template <>
struct TilesOf<half, true> {
  using Type = TensorCoreTiles<half>;
};
#elif DI_ARCH >= 700
template <>
struct TilesOf<half, true> {
  using Type = VoltaTiles<half>;
};
#endif

// Whether a kernel has a body in this build: the others would only cost build time and size.
template <class T, bool tensor_cores>
DI_DEVICE constexpr bool IsBuilt() {
#if DI_ARCH >= 800
  return tensor_cores || IsFloat32<T>::kValue;
#else
  return tensor_cores == IsSame<T, half>::kValue;
#endif
}

}  // namespace device
}  // namespace dot_interact

#endif  // DOT_INTERACT_CUDA_TILES_CUH_
