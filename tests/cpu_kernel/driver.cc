// Runs the CPU kernels over many sizes with every instruction set that the processor has, under a
// sanitizer or valgrind. Features and upstream are small whole numbers, so every result is exact
// and compared bit for bit. Prints "N passed, N failed"; exits 1 after a failure.
//
//   driver [largest dim]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <vector>

#include "dot_interact.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {

int passed = 0;
int failed = 0;

void Check(bool right, const char* what, int64_t features, int64_t dim, int32_t dtype) {
  (right ? passed : failed)++;
  if (!right) {
    printf("%s: %s, %d features x %d, dtype %d\n", dot_interact_cpu_isa(), what,
           static_cast<int>(features), static_cast<int>(dim), static_cast<int>(dtype));
  }
}

// Memory of exactly this size, so that a step past its end is seen.
class Tensor {
 public:
  Tensor(int64_t count, int32_t dtype)
      : count_(count), dtype_(dtype), bytes_(new char[count * Size()]) {
    memset(bytes_.get(), 0xcd, count * Size());
  }

  void* data() { return bytes_.get(); }

  // Whole numbers up to 256, which all dtypes hold.
  void Set(int64_t i, int number) {
    const float value = static_cast<float>(number);
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (dtype_ == DOT_INTERACT_FLOAT16) {
      half = number == 0 ? 0 : static_cast<uint16_t>(
          ((bits >> 16) & 0x8000) | (((bits & 0x7fffffff) - (112u << 23)) >> 13));
    }
    if (dtype_ == DOT_INTERACT_FLOAT32) {
      memcpy(bytes_.get() + 4 * i, &value, 4);
    } else {
      memcpy(bytes_.get() + 2 * i, &half, 2);
    }
  }

  bool Equals(const Tensor& other) const {
    return memcmp(bytes_.get(), other.bytes_.get(), count_ * Size()) == 0;
  }

 private:
  int64_t Size() const { return dtype_ == DOT_INTERACT_FLOAT32 ? 4 : 2; }

  int64_t count_;
  int32_t dtype_;
  std::unique_ptr<char[]> bytes_;
};

uint32_t random_state = 1;

// -1, 0 or 1, mostly 0, so that sums stay within 256.
int SmallNumber() {
  random_state = random_state * 1664525u + 1013904223u;
  const int number = static_cast<int>(random_state >> 24) % 16;
  return number == 0 ? 1 : number == 1 ? -1 : 0;
}

struct Numbers {
  std::vector<int> values;
  Tensor tensor;

  Numbers(int64_t count, int32_t dtype) : values(count), tensor(count, dtype) {
    for (int64_t i = 0; i < count; i++) {
      values[i] = SmallNumber();
      tensor.Set(i, values[i]);
    }
  }
};

void Run(int64_t features, int64_t dim, int32_t dtype, bool head) {
  const int64_t batch = 3, width_of_head = head ? dim : 0;
  const int64_t width = dot_interact_width(width_of_head, features);
  const int64_t rest_size = (features - 1) * dim;
  const dot_interact_shape shape = {batch, features, dim, width_of_head, dim, rest_size, dtype};
  Numbers first(batch * dim, dtype), rest(batch * rest_size, dtype);
  Numbers upstream(batch * width, dtype), heads(batch * width_of_head, dtype);
  Tensor output(batch * width, dtype), right_output(batch * width, dtype);
  Tensor first_gradient(batch * dim, dtype), right_first(batch * dim, dtype);
  Tensor rest_gradient(batch * rest_size, dtype), right_rest(batch * rest_size, dtype);
  for (int64_t n = 0; n < batch; n++) {
    auto feature = [&](int64_t i, int64_t d) {
      return i == 0 ? first.values[n * dim + d] : rest.values[n * rest_size + (i - 1) * dim + d];
    };
    std::vector<int> gradient(features * dim);
    int64_t place = n * width;
    for (int64_t d = 0; d < width_of_head; d++, place++) {
      right_output.Set(place, heads.values[n * dim + d]);
      gradient[d] = upstream.values[place];
    }
    for (int64_t i = 0; i < features; i++) {
      for (int64_t j = 0; j < i; j++, place++) {
        int dot = 0;
        for (int64_t d = 0; d < dim; d++) {
          dot += feature(i, d) * feature(j, d);
          gradient[i * dim + d] += upstream.values[place] * feature(j, d);
          gradient[j * dim + d] += upstream.values[place] * feature(i, d);
        }
        right_output.Set(place, dot);
      }
    }
    for (; place < (n + 1) * width; place++) right_output.Set(place, 0);
    for (int64_t d = 0; d < dim; d++) right_first.Set(n * dim + d, gradient[d]);
    for (int64_t d = 0; d < rest_size; d++) right_rest.Set(n * rest_size + d, gradient[dim + d]);
  }
  int error = dot_interact_cpu_forward(&shape, first.tensor.data(), rest.tensor.data(),
                                       heads.tensor.data(), output.data(), 0, batch);
  Check(error == 0 && output.Equals(right_output), "forward", features, dim, dtype);
  error = dot_interact_cpu_backward(&shape, first.tensor.data(), rest.tensor.data(),
                                    upstream.tensor.data(), first_gradient.data(),
                                    rest_gradient.data(), nullptr, 0, batch);
  Check(error == 0 && first_gradient.Equals(right_first) && rest_gradient.Equals(right_rest),
        "backward", features, dim, dtype);
}

#if defined(__SSE2__)
// TensorFlow's threads flush subnormal float32 numbers to zero; subnormal halves must survive.
void RunFlushingSubnormals() {
  const int64_t dim = 1023;
  const dot_interact_shape shape = {1, 2, dim, dim, dim, dim, DOT_INTERACT_FLOAT16};
  std::vector<uint16_t> upstream(dot_interact_width(dim, 2)), zeros(dim);
  std::vector<uint16_t> gradient(dim), gradient_of_zeros(dim);
  for (int64_t i = 0; i < dim; i++) upstream[i] = static_cast<uint16_t>(i + 1);
  const unsigned int control = _mm_getcsr();
  _mm_setcsr(control | 0x8040);
  const int error = dot_interact_cpu_backward(&shape, zeros.data(), zeros.data(), upstream.data(),
                                              gradient.data(), gradient_of_zeros.data(), nullptr,
                                              0, 1);
  _mm_setcsr(control);
  Check(error == 0 && memcmp(upstream.data(), gradient.data(), dim * 2) == 0 &&
            gradient_of_zeros == zeros,
        "subnormal halves", 2, dim, DOT_INTERACT_FLOAT16);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const int64_t largest_dim = argc > 1 ? atoi(argv[1]) : 1025;
  const int64_t all_features[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 19, 27, 33, 50};
  const int64_t all_dims[] = {0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 48, 64, 71, 128, 1025};
  for (const char* isa : {"generic", "avx2", "avx512"}) {
    if (dot_interact_cpu_use_isa(isa) != 0) continue;
    printf("%s\n", isa);
    for (const int32_t dtype :
         {DOT_INTERACT_FLOAT32, DOT_INTERACT_FLOAT16, DOT_INTERACT_BFLOAT16}) {
      for (const int64_t features : all_features) {
        for (const int64_t dim : all_dims) {
          if (dim <= largest_dim) Run(features, dim, dtype, (features + dim) % 2 == 0);
        }
      }
    }
#if defined(__SSE2__)
    RunFlushingSubnormals();
#endif
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
