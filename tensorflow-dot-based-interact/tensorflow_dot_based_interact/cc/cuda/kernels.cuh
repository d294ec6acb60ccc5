// The kernels of the dot interaction in tiles, forward and backward.
//
// What bounds them. 27 features of 128 float16 numbers: a forward sample reads 6.9 KB (and the
// head's 256 B, from L2 where the head is x_0), writes 1.0 KB, and needs 351 * 128 * 2 = 90,000
// FLOP: 11 a byte, where an H100 has 300 for its tensor cores and 20 for its FMA units. The
// backward reads 7.9 KB, writes 6.9 KB, and needs 180,000: 12 a byte. So both should take as long
// as a copy of the same bytes, and everything here serves memory: one read of each input, one write
// of each output, 16 bytes a thread and access, loads of the next chunk under way while one is
// computed.
//
// What else could bound them (sm_90 code, at 3 TB/s on 132 multiprocessors of 1.7 GHz): a forward
// sample takes 710 instructions of a warp, 30 % of the issue slots; a backward one 2200, 50 %.
//
// Shared memory. A block takes whole samples, one after the other, in chunks of columns. Forward:
// two stages of 27 rows x 272 B and an output row, 15.3 KB; with the system's 1 KB, 14 blocks of
// one warp share the 228 KB of a 9.0 multiprocessor, 97 KB of loads under way (3 TB/s x 1 us / 132
// is 23 KB). Backward: two stages of 32 rows, S (32 rows x 80 B) and two upstream rows, 21.4 KB: 10
// blocks of two warps, 79 KB under way.
#ifndef DOT_INTERACT_CUDA_KERNELS_CUH_
#define DOT_INTERACT_CUDA_KERNELS_CUH_

#include "tiles.cuh"

namespace dot_interact {
namespace device {

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
constexpr int kBackwardWarps = max_tiles <= 2 ? 2 : 4;

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
  // Upstream rows in shared memory. 2: the next sample's is loaded ahead; 1: a sample's own is
  // loaded when it is its turn; 0: read where it lies (aligned to 16 bytes), for want of room.
  int upstream_copies;
};

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

// Warp w makes the tile rows w and, from the other end, tiles - 1 - w: all make as many tiles.
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

// S(i, j) = S(j, i) = the upstream gradient of x_i . x_j; the diagonal stays zero. A lane keeps its
// columns j; the warps take turns at the rows i, four at a time, so that four loads are under way.
template <class Tiles, int warps, class T>
DI_DEVICE void BuildSymmetric(unsigned char* symmetric, int pitch, const T* pairs,
                              unsigned features, unsigned warp) {
  constexpr unsigned kRows = 4;
  DI_UNROLL_BY(1)
  for (unsigned first_column = 0; first_column < features; first_column += 32) {
    const unsigned column = first_column + Lane();
    const T* own = pairs + column;
    T* across = reinterpret_cast<T*>(symmetric) + column;
    T* along = reinterpret_cast<T*>(symmetric + column * pitch);
    DI_UNROLL_BY(1)
    for (unsigned row = first_column + warp; row < features; row += kRows * warps) {
      T gradient[kRows];
      DI_UNROLL
      for (unsigned r = 0; r < kRows; ++r) {
        const unsigned i = row + r * warps;
        if (column < i && i < features) gradient[r] = own[i * (i - 1) / 2];
      }
      DI_UNROLL
      for (unsigned r = 0; r < kRows; ++r) {
        const unsigned i = row + r * warps;
        if (column < i && i < features) {
          const T number = Tiles::Rounded(gradient[r]);
          along[i] = number;
          *reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(across) + i * pitch) = number;
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
    constexpr bool kKeepLeft = Tiles::kKeepLeft && kMaxTiles <= 2;
    constexpr int kKept = kKeepLeft ? 16 * kMaxTiles / kDepth : 1;
    constexpr int kSize = sizeof(T);

    DI_SHARED(shared);
    const TileSizes& sizes = p.sizes;
    const int tiles = kMaxTiles <= 2 ? kMaxTiles : (sizes.features + 15) / 16;
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
      if (p.upstream_copies != 1) upstream = next_upstream;
      unsigned char* upstream_copy =
          upstream_rows + (p.upstream_copies == 2 ? row_parity ^ 1 : 0) * p.upstream.bytes;
      if (p.upstream_copies == 1 && item.sample >= 0 && item.chunk == 0) {
        DI_BY_PIECE(p.upstream.piece, LoadDense, kThreads, upstream_copy,
                    p.upstream.data + item.sample * p.upstream.bytes, p.upstream.bytes);
        upstream = reinterpret_cast<const T*>(upstream_copy);
      }
      CopyCommit();
      if (next.sample < sizes.batch) {
        if (next.chunk == 0) {
          const unsigned char* row = p.upstream.data + next.sample * p.upstream.bytes;
          if (p.upstream_copies == 2) {
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
          if (p.upstream_copies == 1) {
            CopyWait<1>();  // the row; the next item may still be under way
            SyncBlock();
          }
          if (p.upstream_copies > 0) {  // so that the compiler knows it for shared memory
            const T* copy = reinterpret_cast<const T*>(upstream_copy);
            BuildSymmetric<Tiles, kWarps>(symmetric, p.symmetric_pitch, copy + sizes.head,
                                          sizes.features, warp);
          } else {
            BuildSymmetric<Tiles, kWarps>(symmetric, p.symmetric_pitch, upstream + sizes.head,
                                          sizes.features, warp);
          }
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
        typename Tiles::Left kept[kMaxTiles][kKept];
        if constexpr (kKeepLeft) {
          DI_UNROLL
          for (int k = 0; k < kKept; ++k) {
            DI_UNROLL
            for (int m = 0; m < kMaxTiles; ++m) load_left(kept[m][k], m, k * kDepth);
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
              DI_UNROLL
              for (int m = 0; m < kMaxTiles; ++m) {
                Tiles::MultiplyLeft(result[m], kept[m][k], right);
              }
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

}  // namespace device
}  // namespace dot_interact

#endif  // DOT_INTERACT_CUDA_KERNELS_CUH_
