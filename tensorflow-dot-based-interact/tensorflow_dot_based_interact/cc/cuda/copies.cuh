// Copies between global and shared memory: all threads of a block, in pieces of 16, 4 or 2 bytes.
#ifndef DOT_INTERACT_CUDA_COPIES_CUH_
#define DOT_INTERACT_CUDA_COPIES_CUH_

#include "primitives.cuh"

#ifndef DI_UNROLL_BY  // only a wish
#define DI_UNROLL_BY(count)
#endif

namespace dot_interact {
namespace device {

// x_i of a sample n: row 0 at first + n * first_stride, row i at rest + n * rest_stride +
// (i - 1) * row_bytes. Strides in bytes.
template <class Byte>
struct Matrix {
  Byte* first;
  Byte* rest;
  int64_t first_stride;
  int64_t rest_stride;
  int row_bytes;
  int piece;  // bytes that all its rows allow to move at once: 16, 4 or 2
};

// The same for dense rows [batch, bytes].
template <class Byte>
struct DenseRows {
  Byte* data;
  int bytes;
  int piece;
};

// ---- What moves at once -------------------------------------------------------------------------

struct alignas(16) Words4 {
  uint32_t word[4];
};

// Neighbours in a row, stored at once.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T left, right;
};

template <class T>
struct alignas(4 * sizeof(T)) Four {
  T number[4];
};

template <int bytes>
struct PieceOf;
template <>
struct PieceOf<16> {
  using Type = Words4;
};
template <>
struct PieceOf<4> {
  using Type = uint32_t;
};
template <>
struct PieceOf<2> {
  using Type = uint16_t;
};

template <int bytes>
DI_DEVICE void StorePiece(void* to, const void* from) {
  using Piece = typename PieceOf<bytes>::Type;
  *static_cast<Piece*>(to) = *static_cast<const Piece*>(from);
}

template <int bytes>
DI_DEVICE void LoadPiece(void* shared, const void* global) {
  if constexpr (bytes == 16) {
    CopyAsync16(shared, global);
  } else if constexpr (bytes == 4) {
    CopyAsync4(shared, global);
  } else {
    StorePiece<bytes>(shared, global);
  }
}

// One thread's way through rows of pieces, `threads` pieces at a time, between shared memory (rows
// `pitch` bytes apart) and global memory (row_bytes apart). Divides only when the width changes.
struct Walk {
  unsigned pieces = 0;  // of a row
  unsigned piece, piece_step;
  unsigned shared, shared_step, shared_wrap;  // bytes; wrap: one row down and `pieces` back
  unsigned global, global_step, global_wrap;
  int count;
};

template <int bytes, int threads>
DI_DEVICE void SetWalk(Walk& walk, int rows, unsigned width_bytes, unsigned pitch,
                       unsigned row_bytes) {
  const unsigned pieces = width_bytes / bytes;
  if (walk.pieces == pieces) return;
  const unsigned thread = ThreadIndex();
  const unsigned row = thread / pieces;
  const unsigned row_step = threads / pieces;
  walk.pieces = pieces;
  walk.piece = thread - row * pieces;
  walk.piece_step = threads - row_step * pieces;
  walk.shared = row * pitch + walk.piece * bytes;
  walk.global = row * row_bytes + walk.piece * bytes;
  walk.shared_step = row_step * pitch + walk.piece_step * bytes;
  walk.global_step = row_step * row_bytes + walk.piece_step * bytes;
  walk.shared_wrap = pitch - width_bytes;
  walk.global_wrap = row_bytes - width_bytes;
  walk.count = (rows * pieces + threads - 1 - thread) / threads;
}

// Calls visit(offset in shared memory, offset in global memory) for each of the thread's pieces.
template <class Visit>
DI_DEVICE void Follow(const Walk& walk, const Visit& visit) {
  unsigned piece = walk.piece;
  unsigned shared = walk.shared;
  unsigned global = walk.global;
  DI_UNROLL_BY(4)
  for (int i = 0; i < walk.count; ++i) {
    visit(shared, global);
    piece += walk.piece_step;
    shared += walk.shared_step;
    global += walk.global_step;
    if (piece >= walk.pieces) {
      piece -= walk.pieces;
      shared += walk.shared_wrap;
      global += walk.global_wrap;
    }
  }
}

// A chunk of a matrix: `width_bytes` of each row from `offset` on.
struct Chunk {
  int features;
  int pitch;
  int64_t sample;
  int offset;
  int width_bytes;
};

// Queues a chunk's loads.
template <int bytes, int threads>
DI_DEVICE void LoadRows(Walk& walk, unsigned char* stage, const Chunk& chunk,
                        const Matrix<const unsigned char>& matrix) {
  const unsigned char* first = matrix.first + chunk.sample * matrix.first_stride + chunk.offset;
  const unsigned char* rest = matrix.rest + chunk.sample * matrix.rest_stride + chunk.offset;
  DI_UNROLL_BY(1)
  for (int i = ThreadIndex() * bytes; i < chunk.width_bytes; i += threads * bytes) {
    LoadPiece<bytes>(stage + i, first + i);
  }
  SetWalk<bytes, threads>(walk, chunk.features - 1, chunk.width_bytes, chunk.pitch,
                          matrix.row_bytes);
  Follow(walk, [&](unsigned shared, unsigned global) {
    LoadPiece<bytes>(stage + chunk.pitch + shared, rest + global);
  });
}

template <int bytes, int threads>
DI_DEVICE void StoreRows(Walk& walk, const unsigned char* stage, const Chunk& chunk,
                         const Matrix<unsigned char>& matrix) {
  unsigned char* first = matrix.first + chunk.sample * matrix.first_stride + chunk.offset;
  unsigned char* rest = matrix.rest + chunk.sample * matrix.rest_stride + chunk.offset;
  DI_UNROLL_BY(1)
  for (int i = ThreadIndex() * bytes; i < chunk.width_bytes; i += threads * bytes) {
    StorePiece<bytes>(first + i, stage + i);
  }
  SetWalk<bytes, threads>(walk, chunk.features - 1, chunk.width_bytes, chunk.pitch,
                          matrix.row_bytes);
  Follow(walk, [&](unsigned shared, unsigned global) {
    StorePiece<bytes>(rest + global, stage + chunk.pitch + shared);
  });
}

template <int bytes, int threads>
DI_DEVICE void LoadDense(unsigned char* shared, const unsigned char* global, int size_bytes) {
  DI_UNROLL_BY(2)
  for (int i = ThreadIndex() * bytes; i < size_bytes; i += threads * bytes) {
    LoadPiece<bytes>(shared + i, global + i);
  }
}

template <int bytes, int threads>
DI_DEVICE void StoreDense(unsigned char* to, const unsigned char* from, int size_bytes) {
  DI_UNROLL_BY(2)
  for (int i = ThreadIndex() * bytes; i < size_bytes; i += threads * bytes) {
    StorePiece<bytes>(to + i, from + i);
  }
}

// A copy's piece is known when it runs, its code when it is compiled.
#define DI_BY_PIECE(size, function, threads, ...) \
  do {                                            \
    if ((size) == 16) {                           \
      function<16, threads>(__VA_ARGS__);         \
    } else if ((size) == 4) {                     \
      function<4, threads>(__VA_ARGS__);          \
    } else {                                      \
      function<2, threads>(__VA_ARGS__);          \
    }                                             \
  } while (false)

DI_DEVICE void Zero(unsigned char* shared, int size_bytes, int threads) {  // multiples of 16
  DI_UNROLL_BY(1)
  for (int i = ThreadIndex() * 16; i < size_bytes; i += threads * 16) {
    *reinterpret_cast<Words4*>(shared + i) = Words4{};
  }
}

}  // namespace device
}  // namespace dot_interact

#endif  // DOT_INTERACT_CUDA_COPIES_CUH_
