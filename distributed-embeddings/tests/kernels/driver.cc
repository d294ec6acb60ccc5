// Runs the CPU part over many sizes with every instruction set that the processor has and real
// threads, under a sanitizer. Rows and gradients are small whole numbers, so that every result is
// exact. Prints "N passed, N failed"; exits 1 after a failure.
#include <stdint.h>
#include <stdio.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "embedding_bag.h"

namespace {

int passed = 0;
int failed = 0;

void Check(bool right, const char* what, int64_t dim, int64_t samples) {
  (right ? passed : failed)++;
  if (!right) {
    printf("%s: %s, dim %d, %d samples\n", embedding_bag_cpu_isa(), what, static_cast<int>(dim),
           static_cast<int>(samples));
  }
}

void Run(void*, int64_t num_tasks, void (*task)(void*, int64_t), void* argument) {
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t number; (number = next++) < num_tasks;) task(argument, number);
  };
  std::thread first(work), second(work);
  work();
  first.join();
  second.join();
}

// Memory of exactly this size, so that a step past its end is seen.
template <typename T>
struct Array {
  explicit Array(int64_t count) : size(count), data(new T[count]()) {}
  T& operator[](int64_t i) { return data[i]; }
  int64_t size;
  std::unique_ptr<T[]> data;
};

void TestSizes(int64_t dim, int64_t samples, bool ragged, std::mt19937* random) {
  const int64_t rows = 70;
  auto below = [&](int64_t end) { return static_cast<int64_t>((*random)() % end); };
  const std::vector<embedding_bag_column> columns =
      ragged ? std::vector<embedding_bag_column>{{1, 3, 60, 0}}
             : std::vector<embedding_bag_column>{{5, 0, 40, 0}, {0, 0, 40, 0}, {2, 40, 30, 0}};
  Array<int64_t> splits(samples + 1);
  int64_t num_ids = 0;
  for (int64_t i = 0; i < samples; ++i) splits[i + 1] = num_ids += ragged ? below(9) : 7;
  Array<int32_t> ids(num_ids);
  Array<float> weights(num_ids), table(rows * dim), expected(rows * dim);
  Array<float> gradient(samples * columns.size() * dim), output(gradient.size);
  Array<double> wanted(gradient.size);
  for (int64_t i = 0; i < table.size; ++i) expected[i] = table[i] = below(5);
  for (int64_t i = 0; i < gradient.size; ++i) gradient[i] = below(5) - 2;
  for (int64_t sample = 0; sample < samples; ++sample) {
    int64_t i = ragged ? splits[sample] : sample * 7;
    for (size_t c = 0; c < columns.size(); ++c) {
      const int64_t end = ragged ? splits[sample + 1] : i + columns[c].hotness;
      const int64_t bag = sample * columns.size() + c;
      for (; i < end; ++i) {
        ids[i] = below(columns[c].num_rows);
        weights[i] = below(3);
        for (int64_t d = 0; d < dim; ++d) {
          const int64_t row = ids[i] + columns[c].row_offset;
          wanted[bag * dim + d] += weights[i] * table[row * dim + d];
          expected[row * dim + d] -= weights[i] * gradient[bag * dim + d];
        }
      }
    }
  }
  const embedding_bag_threads threads{Run, nullptr, 3};
  const embedding_bag_table of_table{table.data.get(), rows, dim, EMBEDDING_BAG_FLOAT32};
  const embedding_bag_use use{
      {ids.data.get(), 4, num_ids, samples, ragged ? splits.data.get() : nullptr,
       weights.data.get(), columns.data(), static_cast<int64_t>(columns.size())},
      gradient.data.get()};
  int error = embedding_bag_cpu_forward(&of_table, &use.ids, EMBEDDING_BAG_FLOAT32,
                                        output.data.get(), &threads, nullptr);
  bool equal = error == 0;
  for (int64_t i = 0; i < output.size; ++i) equal &= output[i] == wanted[i];
  Check(equal, "lookup", dim, samples);

  Array<int64_t> workspace((embedding_bag_cpu_workspace(&use, 1, &threads) + 7) / 8);
  int64_t num_rows = 0;
  error = embedding_bag_cpu_count_rows(&of_table, &use, 1, EMBEDDING_BAG_FLOAT32,
                                       workspace.data.get(), &threads, &num_rows);
  Array<int64_t> touched(num_rows);
  Array<float> sums(num_rows * dim);
  error |= embedding_bag_cpu_gradient(&of_table, &use, 1, EMBEDDING_BAG_FLOAT32,
                                      EMBEDDING_BAG_FLOAT32, workspace.data.get(), &threads,
                                      touched.data.get(), sums.data.get());
  equal = error == 0;
  for (int64_t i = 0; i < num_rows; ++i) {
    equal &= i == 0 || touched[i] > touched[i - 1];
    for (int64_t d = 0; d < dim; ++d) {
      const int64_t at = touched[i] * dim + d;
      equal &= sums[i * dim + d] == table[at] - expected[at];
    }
  }
  Check(equal, "gradient", dim, samples);

  const embedding_bag_optimizer sgd{EMBEDDING_BAG_SGD, {nullptr, nullptr}, 1, 1, 1, 0, 0, 0, 0, 0};
  error = embedding_bag_cpu_update(&of_table, &use, 1, EMBEDDING_BAG_FLOAT32, &sgd,
                                   workspace.data.get(), &threads);
  equal = error == 0;
  for (int64_t i = 0; i < table.size; ++i) equal &= table[i] == expected[i];
  Check(equal, "update", dim, samples);

  Array<float> first(table.size), second(table.size);
  for (const int32_t kind : {EMBEDDING_BAG_ADAM, EMBEDDING_BAG_MOMENTUM, EMBEDDING_BAG_RMSPROP}) {
    float* const slot = kind == EMBEDDING_BAG_MOMENTUM ? nullptr : second.data.get();
    const embedding_bag_optimizer moving{
        kind, {first.data.get(), slot}, 1, 1, 1, 1, 0.5, 0.5, 1, kind == EMBEDDING_BAG_RMSPROP};
    error = embedding_bag_cpu_update(&of_table, &use, 1, EMBEDDING_BAG_FLOAT32, &moving,
                                     workspace.data.get(), &threads);
    Check(error == 0, "all rows", dim, samples);
  }
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (const char* isa : {"avx512", "avx2", "generic"}) {
    if (embedding_bag_cpu_use_isa(isa) != 0) continue;
    for (const int64_t dim : {1, 15, 16, 17, 64, 129}) {
      for (const int64_t samples : {0, 1, 40, 1500}) {
        for (const bool ragged : {false, true}) TestSizes(dim, samples, ragged, &random);
      }
    }
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
