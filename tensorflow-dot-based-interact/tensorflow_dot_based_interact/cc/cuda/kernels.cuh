// The kernels of the dot interaction: forward and backward in tiles, and plain ones for all sizes.
//
// What bounds them. 27 features of 128 float16 numbers: a forward sample reads 27 * 256 B and the
// head's 256 B (from L2 where the head is x_0), writes 960 B, and needs 351 * 128 * 2 = 0.09 MFLOP
// (0.2 MFLOP with the tiles' unused half): 11 FLOP a byte, where an H100 has 300 for its tensor
// cores and 20 for its FMA units. The backward reads 7.9 KB, writes 6.9 KB, and does twice the
// work: 12 FLOP a byte. So both should take as long as a copy of the same bytes, and everything here
// serves memory: one read of each input, one write of each output, 16 bytes a thread and access,
// loads of the next chunk under way while one is computed.
//
// A block takes whole samples, one after the other, in chunks of columns. Shared memory, 27 x 128
// float16: forward two stages of 27 rows x 272 B and an output row, 16.0 KB with what the last
// tile reads past them; with the system's 1 KB, 13 blocks of one warp share the 228 KB of a 9.0
// multiprocessor, 90 KB of loads under way (3 TB/s x 1 us / 132 is 23 KB). Backward two stages of
// 32 rows, S (32 rows x 80 B) and two upstream rows, 21.4 KB: 10 blocks, 77 KB under way.
#ifndef DOT_INTERACT_CUDA_KERNELS_CUH_
#define DOT_INTERACT_CUDA_KERNELS_CUH_

#include "tiles.cuh"

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

struct TileSizes {
  int64_t batch;
  int features;     // <= 16 * kMaxTiles
  int dim;
  int head;
  int width;        // numbers of an output row
  int chunk;        // columns in shared memory at a time; a multiple of 32 bytes
  int chunks;
  int pitch;        // bytes between rows in shared memory
  int stage_bytes;  // of one of the two chunks in shared memory
};

// Warps of a block. Forward each has the same number of tiles; backward each takes other columns,
// and a sample's longer way through the block is worth two.
template <int max_tiles>
constexpr int kForwardWarps = max_tiles / 2;
template <int max_tiles>
constexpr int kBackwardWarps = max_tiles == 2 ? 2 : 4;

// Blocks that registers must leave room for on a multiprocessor; shared memory allows about as many
// from 8.0 on, and fewer before, where more registers are better.
template <bool tensor_cores, int max_tiles>
constexpr int kForwardBlocks = (tensor_cores && DI_ARCH >= 750 ? 24 : 16) / max_tiles;
template <class T, int max_tiles>
constexpr int kBackwardBlocks = max_tiles == 8   ? 3
                                : max_tiles == 4 ? 4
                                                 : (sizeof(T) == 4 || DI_ARCH < 800 ? 8 : 10);

struct ForwardParameters {
  TileSizes sizes;
  Matrix<const unsigned char> input;
  DenseRows<const unsigned char> head;
  DenseRows<unsigned char> output;
};

struct BackwardParameters {
  TileSizes sizes;
  Matrix<const unsigned char> input;
  DenseRows<const unsigned char> upstream;
  Matrix<unsigned char> gradient;
  DenseRows<unsigned char> head_gradient;  // data null: to be added to row 0
  int symmetric_pitch;                     // bytes between rows of S
  int prefetch_upstream;                   // 1: through shared memory; 0: there is no room
};

// ---- Copies -------------------------------------------------------------------------------------

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

// ---- Work of a block ----------------------------------------------------------------------------

// Chunk after chunk, then the next sample that is this block's.
struct Item {
  int64_t sample;
  int chunk;
};

DI_DEVICE Item Next(const Item& item, int chunks) {
  if (item.chunk + 1 < chunks) return {item.sample, item.chunk + 1};
  return {item.sample + GridSize(), 0};
}

DI_DEVICE int ChunkWidth(const TileSizes& sizes, int chunk) {
  const int left = sizes.dim - chunk * sizes.chunk;
  return left < sizes.chunk ? left : sizes.chunk;
}

template <int warps>
DI_DEVICE void SyncTeam() {
  if constexpr (warps == 1) {
    SyncWarp();
  } else {
    SyncBlock();
  }
}

template <class T>
DI_DEVICE Chunk ChunkOf(const TileSizes& sizes, const Item& item) {
  constexpr int kSize = sizeof(T);
  return {sizes.features, sizes.pitch, item.sample, item.chunk * sizes.chunk * kSize,
          ChunkWidth(sizes, item.chunk) * kSize};
}

// ---- Forward ------------------------------------------------------------------------------------

// Makes the numbers between a sample's last column and the end of the last fragment zero: whatever
// lay there would be multiplied, and 0 * NaN is NaN.
template <class T, int threads>
DI_DEVICE void ClearPastDim(unsigned char* stage, const Chunk& chunk) {
  const int rounded = (chunk.width_bytes + 31) / 32 * 32;
  if (rounded == chunk.width_bytes) return;
  DI_UNROLL_BY(1)
  for (int row = ThreadIndex(); row < chunk.features; row += threads) {
    DI_UNROLL_BY(1)
    for (int i = chunk.width_bytes; i < rounded; i += sizeof(T)) {
      *reinterpret_cast<T*>(stage + row * chunk.pitch + i) = FromFloat<T>(0.0f);
    }
  }
}

// The part of a row of tiles below the diagonal, to its place in the output row.
template <class Tiles, int columns, class T>
DI_DEVICE void StoreTriangle(typename Tiles::Accumulator (&tiles)[columns], int row_tile,
                             T* triangle, int features) {
  DI_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = 16 * row_tile + Tiles::Row() + Tiles::kRowStep * half;
    if (row >= features) continue;
    T* numbers = triangle + row * (row - 1) / 2;
    DI_UNROLL
    for (int n = 0; n < columns; ++n) {
      if (n > row_tile) continue;
      DI_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int column = 16 * n + Tiles::Column() + (i & 1) + 8 * (i >> 1);
        if (column < row) {
          numbers[column] = FromFloat<T>(tiles[n][(i & 1) + 2 * half + 4 * (i >> 1)]);
        }
      }
    }
  }
}

// Warp w makes the tile rows w and, from the other end, tiles - 1 - w: all warps have as many tiles.
template <class T, bool tensor_cores, int kMaxTiles>
DI_KERNEL void DI_LAUNCH_BOUNDS(32 * kForwardWarps<kMaxTiles>,
                                (kForwardBlocks<tensor_cores, kMaxTiles>))
    ForwardKernel(ForwardParameters p) {
  if constexpr (IsBuilt<T, tensor_cores>()) {
    using Tiles = typename TilesOf<T, tensor_cores>::Type;
    using Accumulator = typename Tiles::Accumulator;
    constexpr int kWarps = kForwardWarps<kMaxTiles>;
    constexpr int kThreads = 32 * kWarps;
    constexpr int kDepthBytes = Tiles::kForwardDepth * static_cast<int>(sizeof(T));
    constexpr int kUnroll = 8 / kMaxTiles;

    DI_SHARED(shared);
    const TileSizes& sizes = p.sizes;
    unsigned char* output = shared + 2 * sizes.stage_bytes;
    T* triangle = reinterpret_cast<T*>(output) + sizes.head;

    const int last_row = sizes.features - 1;
    const int tiles = kWarps == 1 ? 2 : (sizes.features + 15) / 16;
    const int warp = kWarps == 1 ? 0 : Warp();
    const int low = warp <= tiles - 1 - warp ? warp : -1;
    const int high = warp < tiles - 1 - warp ? tiles - 1 - warp : -1;

    const int pairs = sizes.features * last_row / 2;
    DI_UNROLL_BY(1)
    for (int i = pairs + ThreadIndex(); i < sizes.width - sizes.head; i += kThreads) {
      triangle[i] = FromFloat<T>(0.0f);
    }

    Walk walk;
    Accumulator low_row[kMaxTiles / 2];
    Accumulator high_row[kMaxTiles];
    Item item = {-1, 0};
    Item next = {BlockIndex(), 0};
    for (int parity = 0;; parity ^= 1) {
      CopyWait<0>();
      SyncTeam<kWarps>();  // the item is here; nobody reads the other stage or the output row
      if (item.sample >= 0 && item.chunk == 0 && sizes.head > 0) {
        DI_BY_PIECE(p.head.piece, LoadDense, kThreads, output,
                    p.head.data + item.sample * p.head.bytes, p.head.bytes);
      }
      CopyCommit();
      if (next.sample < sizes.batch) {
        unsigned char* stage = shared + parity * sizes.stage_bytes;
        const Chunk chunk = ChunkOf<T>(sizes, next);
        DI_BY_PIECE(p.input.piece, LoadRows, kThreads, walk, stage, chunk, p.input);
        ClearPastDim<T, kThreads>(stage, chunk);
      }
      CopyCommit();

      if (item.sample >= 0) {
        if (item.chunk == 0) {
          DI_UNROLL
          for (int n = 0; n < kMaxTiles; ++n) {
            if (n < kMaxTiles / 2) low_row[n] = Accumulator();
            high_row[n] = Accumulator();
          }
        }
        const unsigned char* stage = shared + (parity ^ 1) * sizes.stage_bytes;
        const int width_bytes = ChunkWidth(sizes, item.chunk) * static_cast<int>(sizeof(T));
        DI_UNROLL_BY(kUnroll)
        for (int offset = 0; offset < width_bytes; offset += kDepthBytes) {
          const unsigned char* x = stage + offset;
          typename Tiles::Rows low_rows, high_rows;
          if (low >= 0) Tiles::Load(low_rows, x, 16 * low, last_row, sizes.pitch);
          if (high >= 0) Tiles::Load(high_rows, x, 16 * high, last_row, sizes.pitch);
          DI_UNROLL
          for (int n = 0; n < kMaxTiles; ++n) {
            const bool is_low = n < kMaxTiles / 2 && n <= low;
            const bool is_high = n <= high;
            if (!is_low && !is_high) continue;
            typename Tiles::Columns columns;
            if constexpr (Tiles::kRowsAreColumns && kWarps == 1) {
              columns = n == 0 ? low_rows : high_rows;
            } else {
              Tiles::Load(columns, x, 16 * n, last_row, sizes.pitch);
            }
            if (is_low) Tiles::Multiply(low_row[n % (kMaxTiles / 2)], low_rows, columns);
            if (is_high) Tiles::Multiply(high_row[n], high_rows, columns);
          }
        }

        if (next.chunk == 0) {
          if (low >= 0) StoreTriangle<Tiles>(low_row, low, triangle, sizes.features);
          if (high >= 0) StoreTriangle<Tiles>(high_row, high, triangle, sizes.features);
          CopyWait<1>();  // the head; the next item may still be under way
          SyncTeam<kWarps>();
          DI_BY_PIECE(p.output.piece, StoreDense, kThreads,
                      p.output.data + item.sample * p.output.bytes, output, p.output.bytes);
        }
      }
      if (next.sample >= sizes.batch) break;
      item = next;
      next = Next(item, sizes.chunks);
    }
  }
}

// ---- Backward -----------------------------------------------------------------------------------

// S(i, j) = S(j, i) = the upstream gradient of x_i . x_j; the diagonal stays zero. Four rows at a
// time: their loads are under way together.
template <class Tiles, int warps, class T>
DI_DEVICE void BuildSymmetric(unsigned char* symmetric, int pitch, const T* pairs, int features,
                              int warp) {
  constexpr int kRows = 4;
  const auto number = [&](int row, int column) -> T& {
    return reinterpret_cast<T*>(symmetric + row * pitch)[column];
  };
  for (int row = warp; row < features; row += kRows * warps) {
    for (int column = Lane(); column < row + (kRows - 1) * warps; column += 32) {
      T gradient[kRows];
      DI_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int i = row + r * warps;
        if (column < i && i < features) gradient[r] = pairs[i * (i - 1) / 2 + column];
      }
      DI_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int i = row + r * warps;
        if (column < i && i < features) {
          number(i, column) = number(column, i) = Tiles::Rounded(gradient[r]);
        }
      }
    }
  }
}

// X's gradient is S X. A warp takes 16 columns at a time, and writes the result over X's columns,
// which no other warp reads; rows past the features, and S beside them, are zero and stay zero.
template <class T, bool tensor_cores, int kMaxTiles>
DI_KERNEL void DI_LAUNCH_BOUNDS(32 * kBackwardWarps<kMaxTiles>, (kBackwardBlocks<T, kMaxTiles>))
    BackwardKernel(BackwardParameters p) {
  if constexpr (IsBuilt<T, tensor_cores>()) {
    using Tiles = typename TilesOf<T, tensor_cores>::Type;
    constexpr int kWarps = kBackwardWarps<kMaxTiles>;
    constexpr int kThreads = 32 * kWarps;
    constexpr int kDepth = Tiles::kBackwardDepth;
    constexpr bool kKeepLeft = Tiles::kKeepLeft && kMaxTiles == 2;
    constexpr int kKept = kKeepLeft ? 16 * kMaxTiles / kDepth : 1;
    constexpr int kSize = sizeof(T);

    DI_SHARED(shared);
    const TileSizes& sizes = p.sizes;
    const int tiles = kMaxTiles == 2 ? 2 : (sizes.features + 15) / 16;
    const int warp = Warp();
    unsigned char* symmetric = shared + 2 * sizes.stage_bytes;
    unsigned char* upstream_rows = symmetric + 16 * tiles * p.symmetric_pitch;
    const bool add_head = sizes.head > 0 && p.head_gradient.data == nullptr;

    Zero(symmetric, 16 * tiles * p.symmetric_pitch, kThreads);
    const int used_bytes = sizes.features * sizes.pitch;
    Zero(shared + used_bytes, sizes.stage_bytes - used_bytes, kThreads);
    Zero(shared + sizes.stage_bytes + used_bytes, sizes.stage_bytes - used_bytes, kThreads);

    Walk load_walk, store_walk;
    const T* upstream = nullptr;       // of the item's sample
    const T* next_upstream = nullptr;  // of the next item's
    Item item = {-1, 0};
    Item next = {BlockIndex(), 0};
    for (int parity = 0, row_parity = 0;; parity ^= 1) {
      CopyWait<0>();
      SyncBlock();  // the item is here, the other stage is stored, S is no longer read
      upstream = next_upstream;
      if (next.sample < sizes.batch) {
        if (next.chunk == 0) {
          const unsigned char* row = p.upstream.data + next.sample * p.upstream.bytes;
          if (p.prefetch_upstream) {
            unsigned char* copy = upstream_rows + row_parity * p.upstream.bytes;
            DI_BY_PIECE(p.upstream.piece, LoadDense, kThreads, copy, row, p.upstream.bytes);
            row = copy;
            row_parity ^= 1;
          }
          next_upstream = reinterpret_cast<const T*>(row);
        }
        unsigned char* stage = shared + parity * sizes.stage_bytes;
        const Chunk chunk = ChunkOf<T>(sizes, next);
        DI_BY_PIECE(p.input.piece, LoadRows, kThreads, load_walk, stage, chunk, p.input);
      }
      CopyCommit();

      if (item.sample >= 0) {
        if (item.chunk == 0) {
          BuildSymmetric<Tiles, kWarps>(symmetric, p.symmetric_pitch, upstream + sizes.head,
                                        sizes.features, warp);
          if (p.head_gradient.data != nullptr) {
            DI_BY_PIECE(p.head_gradient.piece, StoreDense, kThreads,
                        p.head_gradient.data + item.sample * p.head_gradient.bytes,
                        reinterpret_cast<const unsigned char*>(upstream), p.head_gradient.bytes);
          }
          SyncBlock();
        }

        const auto load_left = [&](typename Tiles::Left& left, int tile, int k) {
          Tiles::LoadLeft(left, symmetric + 16 * tile * p.symmetric_pitch + k * kSize,
                          p.symmetric_pitch);
        };
        typename Tiles::Left kept[2][kKept];
        if constexpr (kKeepLeft) {
          DI_UNROLL
          for (int k = 0; k < kKept; ++k) {
            load_left(kept[0][k], 0, k * kDepth);
            load_left(kept[1][k], 1, k * kDepth);
          }
        }

        unsigned char* stage = shared + (parity ^ 1) * sizes.stage_bytes;
        const int width = ChunkWidth(sizes, item.chunk);
        for (int column = 16 * warp; column < width; column += 16 * kWarps) {
          unsigned char* columns = stage + column * kSize;
          typename Tiles::Accumulator result[kMaxTiles];
          typename Tiles::Right right;
          if constexpr (kKeepLeft) {
            DI_UNROLL
            for (int k = 0; k < kKept; ++k) {
              Tiles::LoadRight(right, columns + k * kDepth * sizes.pitch, sizes.pitch);
              Tiles::MultiplyLeft(result[0], kept[0][k], right);
              Tiles::MultiplyLeft(result[1], kept[1][k], right);
            }
          } else {
            for (int k = 0; k < sizes.features; k += kDepth) {
              Tiles::LoadRight(right, columns + k * sizes.pitch, sizes.pitch);
              DI_UNROLL
              for (int m = 0; m < kMaxTiles; ++m) {
                if (m >= tiles) continue;
                typename Tiles::Left left;
                load_left(left, m, k);
                Tiles::MultiplyLeft(result[m], left, right);
              }
            }
          }
          if (add_head && Tiles::Row() == 0) {
            const int first_column = item.chunk * sizes.chunk + column + Tiles::Column();
            DI_UNROLL
            for (int i = 0; i < 8; i += 4) {
              const int head_column = first_column + 2 * i;
              if (head_column < sizes.dim) {
                const Pair<T> pair = *reinterpret_cast<const Pair<T>*>(upstream + head_column);
                result[0][i] += ToFloat(pair.left);
                result[0][i + 1] += ToFloat(pair.right);
              }
            }
          }
          SyncWarp();  // all lanes have read these columns
          DI_UNROLL
          for (int m = 0; m < kMaxTiles; ++m) {
            DI_UNROLL
            for (int i = 0; i < 8; i += 2) {
              const int row = 16 * m + Tiles::Row() + Tiles::kRowStep * (i >> 1 & 1);
              if (row < sizes.features) {
                T* numbers = reinterpret_cast<T*>(columns + row * sizes.pitch) + Tiles::Column() +
                             8 * (i >> 2);
                *reinterpret_cast<Pair<T>*>(numbers) = {FromFloat<T>(result[m][i]),
                                                        FromFloat<T>(result[m][i + 1])};
              }
            }
          }
        }

        SyncBlock();
        const Chunk chunk = ChunkOf<T>(sizes, item);
        DI_BY_PIECE(p.gradient.piece, StoreRows, kThreads, store_walk, stage, chunk, p.gradient);
      }
      if (next.sample >= sizes.batch) break;
      item = next;
      next = Next(item, sizes.chunks);
    }
  }
}

// ---- Without tiles ------------------------------------------------------------------------------
// One thread a number of the result. For sizes beyond the tiles'; reads an input F times (from the
// caches), so it is no match for them.

struct PlainParameters {
  int64_t batch, features, dim, head, width;
  int64_t first_stride, rest_stride;  // in numbers
  const void* first;
  const void* rest;
  const void* row;      // forward: the head; backward: the upstream rows
  void* output;         // forward
  void* first_gradient;
  void* rest_gradient;
  void* head_gradient;  // null: to be added to that of first
};

template <class T>
DI_DEVICE const T* PlainRow(const PlainParameters& p, int64_t sample, int64_t row) {
  return row == 0 ? static_cast<const T*>(p.first) + sample * p.first_stride
                  : static_cast<const T*>(p.rest) + sample * p.rest_stride + (row - 1) * p.dim;
}

template <class T>
DI_KERNEL void DI_LAUNCH_BOUNDS(256, 1) PlainForwardKernel(PlainParameters p) {
  const int64_t pairs = p.features * (p.features - 1) / 2;
  const int64_t step = static_cast<int64_t>(GridSize()) * BlockSize();
  for (int64_t index = static_cast<int64_t>(BlockIndex()) * BlockSize() + ThreadIndex();
       index < p.batch * p.width; index += step) {
    const int64_t sample = index / p.width;
    const int64_t place = index % p.width;
    T* output = static_cast<T*>(p.output) + index;
    if (place < p.head) {
      *output = static_cast<const T*>(p.row)[sample * p.head + place];
      continue;
    }
    const int64_t pair = place - p.head;
    if (pair >= pairs) {
      *output = FromFloat<T>(0.0f);
      continue;
    }
    int64_t low = 1, high = p.features;  // the row is in [low, high): its first pair is no later
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (middle * (middle - 1) / 2 <= pair) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const T* left = PlainRow<T>(p, sample, low);
    const T* right = PlainRow<T>(p, sample, pair - low * (low - 1) / 2);
    float sum[4] = {};  // four sums: shorter chains, smaller rounding errors
    for (int64_t k = 0; k < p.dim; k += 4) {
      DI_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (k + i < p.dim) sum[i] += ToFloat(left[k + i]) * ToFloat(right[k + i]);
      }
    }
    *output = FromFloat<T>((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}

template <class T>
DI_KERNEL void DI_LAUNCH_BOUNDS(256, 1) PlainBackwardKernel(PlainParameters p) {
  const int64_t sample_numbers = p.features * p.dim;
  const int64_t head_numbers = p.head_gradient != nullptr ? p.head : 0;
  const int64_t all = sample_numbers + head_numbers;
  const int64_t step = static_cast<int64_t>(GridSize()) * BlockSize();
  for (int64_t index = static_cast<int64_t>(BlockIndex()) * BlockSize() + ThreadIndex();
       index < p.batch * all; index += step) {
    const int64_t sample = index / all;
    const int64_t place = index % all;
    const T* upstream = static_cast<const T*>(p.row) + sample * p.width;
    if (place >= sample_numbers) {
      const int64_t column = place - sample_numbers;
      static_cast<T*>(p.head_gradient)[sample * p.head + column] = upstream[column];
      continue;
    }
    const int64_t row = place / p.dim;
    const int64_t column = place % p.dim;
    const T* pairs = upstream + p.head;
    float sum[2] = {};
    for (int64_t other = 0; other < row; ++other) {
      sum[0] += ToFloat(pairs[row * (row - 1) / 2 + other]) *
                ToFloat(PlainRow<T>(p, sample, other)[column]);
    }
    for (int64_t other = row + 1; other < p.features; ++other) {
      sum[1] += ToFloat(pairs[other * (other - 1) / 2 + row]) *
                ToFloat(PlainRow<T>(p, sample, other)[column]);
    }
    float total = sum[0] + sum[1];
    if (row == 0 && p.head > 0 && p.head_gradient == nullptr) total += ToFloat(upstream[column]);
    T* gradient = row == 0 ? static_cast<T*>(p.first_gradient) + sample * p.first_stride
                           : static_cast<T*>(p.rest_gradient) + sample * p.rest_stride +
                                 (row - 1) * p.dim;
    gradient[column] = FromFloat<T>(total);
  }
}

}  // namespace device
}  // namespace dot_interact

#endif  // DOT_INTERACT_CUDA_KERNELS_CUH_
