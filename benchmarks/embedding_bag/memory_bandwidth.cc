// Memory bandwidth of this machine: STREAM's triad, and reading rows of a table.
//
//   memory_bandwidth THREADS PASSES triad MIB
//   memory_bandwidth THREADS PASSES rows NUM_ROWS DIM IDS
//
// IDS is a file of int32 row numbers, read in that order. Prints GB/s of every pass, one per line,
// after a pass that does not count.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

// Rows whose cache lines are requested before they are read.
constexpr int64_t kRowsAhead = 32;
constexpr int64_t kLineFloats = 16;
constexpr size_t kHugePage = size_t{1} << 21;

float sink = 0;  // keeps the compiler from removing the reads

float* Allocate(int64_t count) {
  const size_t bytes = (count * sizeof(float) + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, bytes);
  if (memory == nullptr) {
    std::fprintf(stderr, "memory_bandwidth: no memory for %zu bytes\n", bytes);
    std::exit(1);
  }
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<float*>(memory);
}

using Range = std::function<void(int64_t begin, int64_t end, int thread)>;

// Time from the moment when all threads run until the last one is done.
double Seconds(int threads, int64_t count, const Range& range) {
  using Clock = std::chrono::steady_clock;
  std::atomic<int> waiting{threads};
  std::vector<Clock::time_point> starts(threads), ends(threads);
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      starts[t] = Clock::now();
      range(count * t / threads, count * (t + 1) / threads, t);
      ends[t] = Clock::now();
    });
  }
  for (auto& worker : workers) worker.join();
  const auto start = *std::min_element(starts.begin(), starts.end());
  const auto end = *std::max_element(ends.begin(), ends.end());
  return std::chrono::duration<double>(end - start).count();
}

void Report(int threads, int passes, int64_t count, double bytes, const Range& range) {
  for (int pass = -1; pass < passes; ++pass) {
    const double seconds = Seconds(threads, count, range);
    if (pass >= 0) std::printf("%.4f\n", bytes / seconds * 1e-9);
  }
}

void Triad(int threads, int passes, int64_t mib) {
  const int64_t count = mib * (1 << 20) / static_cast<int64_t>(sizeof(float));
  float* a = Allocate(count);
  float* b = Allocate(count);
  float* c = Allocate(count);
  Seconds(threads, count, [=](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) a[i] = 0, b[i] = 1, c[i] = 2;
  });
  // As STREAM counts: two numbers read and one written, without what a write reads first.
  Report(threads, passes, count, 3.0 * sizeof(float) * count, [=](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 3.0f * c[i];
  });
  sink = a[count / 2];
}

// Adds up rows in registers: nothing is written. kDim 0: any dim.
template <int kDim>
float SumRows(const float* table, int64_t dim_or_zero, const int32_t* ids, int64_t count) {
  const int64_t dim = kDim ? kDim : dim_or_zero;
  std::vector<float> any(dim, 0.0f);
  float fixed[kDim ? kDim : 1] = {};
  float* sums = kDim ? fixed : any.data();
  for (int64_t i = 0; i < count; ++i) {
    const float* next = table + ids[i + kRowsAhead < count ? i + kRowsAhead : i] * dim;
    for (int64_t j = 0; j < dim; j += kLineFloats) __builtin_prefetch(next + j);
    const float* row = table + ids[i] * dim;
    for (int64_t j = 0; j < dim; ++j) sums[j] += row[j];
  }
  float total = 0;
  for (int64_t j = 0; j < dim; ++j) total += sums[j];
  return total;
}

float SumRows(const float* table, int64_t dim, const int32_t* ids, int64_t count) {
  switch (dim) {
    case 16:
      return SumRows<16>(table, dim, ids, count);
    case 64:
      return SumRows<64>(table, dim, ids, count);
    case 128:
      return SumRows<128>(table, dim, ids, count);
    default:
      return SumRows<0>(table, dim, ids, count);
  }
}

std::vector<int32_t> ReadIds(const char* path, int64_t num_rows) {
  FILE* file = std::fopen(path, "rb");
  if (file == nullptr) {
    std::perror(path);
    std::exit(1);
  }
  std::vector<int32_t> ids;
  int32_t buffer[4096];
  for (size_t n; (n = std::fread(buffer, sizeof(int32_t), 4096, file)) > 0;) {
    ids.insert(ids.end(), buffer, buffer + n);
  }
  std::fclose(file);
  for (int32_t id : ids) {
    if (id < 0 || id >= num_rows) {
      std::fprintf(stderr, "memory_bandwidth: expected ids in [0, %lld), got %d\n",
                   static_cast<long long>(num_rows), id);
      std::exit(1);
    }
  }
  return ids;
}

void Rows(int threads, int passes, int64_t num_rows, int64_t dim, const char* path) {
  const std::vector<int32_t> ids = ReadIds(path, num_rows);
  const int64_t count = static_cast<int64_t>(ids.size());
  float* table = Allocate(num_rows * dim);
  Seconds(threads, num_rows * dim, [=](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) table[i] = 1;
  });
  std::vector<float> sums(threads);
  Report(threads, passes, count, 1.0 * sizeof(float) * dim * count,
         [&](int64_t begin, int64_t end, int thread) {
           sums[thread] = SumRows(table, dim, ids.data() + begin, end - begin);
         });
  for (float sum : sums) sink += sum;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 3 ? argv[3] : "";
  if (mode == "triad" && argc == 5) {
    Triad(std::atoi(argv[1]), std::atoi(argv[2]), std::atoll(argv[4]));
  } else if (mode == "rows" && argc == 7) {
    Rows(std::atoi(argv[1]), std::atoi(argv[2]), std::atoll(argv[4]), std::atoll(argv[5]), argv[6]);
  } else {
    std::fprintf(stderr, "usage: memory_bandwidth THREADS PASSES triad MIB | rows ROWS DIM IDS\n");
    return 2;
  }
  return sink == 0.123f;  // never; the sums are used
}
