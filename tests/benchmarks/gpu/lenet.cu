// The gradient of LeNet-5 at many models in one launch, each at a mini-batch of its own.
//
// A block takes G samples of one model and stays in shared memory from their images to their part
// of the mean gradient. `add_groups` then adds the parts of a model in their order: the bits depend
// neither on the number of models nor on the order in which blocks run.
//
// The text is CUDA and, with -DON_CPU, C++, in which a block has a single thread. That is how it is
// held to autograd where there is no GPU. What a block computes must therefore not depend on its
// number of threads: each result is summed by one thread, or in slices that are added in order.
//
// A feature of the block's samples lies in G neighbouring numbers: feature f of sample b at f G + b.

#ifdef ON_CPU
#include <math.h>
#define KERNEL extern "C" void
#define DEVICE static inline
#define BARRIER
#define THREAD 0
#define THREADS 1
#else
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define BARRIER __syncthreads()
#define THREAD threadIdx.x
#define THREADS blockDim.x
#endif

#ifndef G
#define G 4
#endif

// The threads of a block share the numbers from 0 to `count`.
#define EACH(number, count) for (int number = THREAD; number < (count); number += THREADS)

typedef unsigned char Winner;  // which of the four places under a 2 x 2 pool is the largest
enum { NONE = 4 };             // none of them: the unit behind the pool is off

// Sides of the square maps: images with two zeros around them, behind the pools, and kernels.
enum { IMAGE = 28, PADDED = 32, SIDE1 = 14, SIDE2 = 5, TAPS = 25, CLASSES = 10 };
enum { PLACES1 = SIDE1 * SIDE1, PLACES2 = SIDE2 * SIDE2, POOLED = 16 * PLACES2 };
enum { SLICES1 = 16 };  // of the places of the first convolution, whose kernels have few weights

// Where the parameters begin in a model's flat weights: kernels or matrices, then biases.
enum {
  CONV1 = 0, CONV1_BIAS = CONV1 + 6 * TAPS,
  CONV2 = CONV1_BIAS + 6, CONV2_BIAS = CONV2 + 16 * 6 * TAPS,
  FULL1 = CONV2_BIAS + 16, FULL1_BIAS = FULL1 + 120 * POOLED,
  FULL2 = FULL1_BIAS + 120, FULL2_BIAS = FULL2 + 84 * 120,
  FULL3 = FULL2_BIAS + 84, FULL3_BIAS = FULL3 + CLASSES * 84,
  PARAMETERS = FULL3_BIAS + CLASSES
};

// What a block keeps in shared memory.
struct Block {
  float kernels[FULL1];  // of both convolutions, with their biases
  float images[PADDED * PADDED * G];
  float maps1[6 * PLACES1 * G], maps2[POOLED * G];
  float units1[120 * G], units2[84 * G], logits[CLASSES * G];
  float delta_logits[CLASSES * G], delta_units2[84 * G], delta_units1[120 * G];
  float delta_maps2[POOLED * G], delta_maps1[6 * PLACES1 * G];
  float slices[480 * G > 6 * SLICES1 * (TAPS + 1) ? 480 * G : 6 * SLICES1 * (TAPS + 1)];
  Winner winners1[6 * PLACES1 * G], winners2[POOLED * G];
};

DEVICE void load_images(Block& s, const float* x, const long long* samples, int count) {
  EACH(n, PADDED * PADDED * G) {
    const int b = n / (PADDED * PADDED), place = n % (PADDED * PADDED);
    const int i = place / PADDED - 2, j = place % PADDED - 2;
    const bool inside = b < count && i >= 0 && i < IMAGE && j >= 0 && j < IMAGE;
    s.images[place * G + b] = inside ? x[samples[b] * IMAGE * IMAGE + i * IMAGE + j] : 0.f;
  }
}

// Keep the largest of four sums, the first of equals as torch does, plus the bias, if positive.
DEVICE void pool(const float* sums, float bias, float& unit, Winner& winner) {
  int best = 0;
  float most = sums[0];
#pragma unroll
  for (int q = 1; q < 4; q++) {
    const bool more = sums[q] > most;
    best = more ? q : best;  // a select: `sums[best]` would put the sums into local memory
    most = more ? sums[q] : most;
  }
  most += bias;
  unit = most > 0 ? most : 0.f;
  winner = most > 0 ? best : NONE;
}

// Add to the sums under a pool what a 5 x 5 kernel makes of the 6 x 6 window below it.
DEVICE void convolve(float* sums, const float* kernel, const float* window) {
#pragma unroll
  for (int k = 0; k < TAPS; k++)
#pragma unroll
    for (int q = 0; q < 4; q++)
      sums[q] += kernel[k] * window[(q / 2 + k / 5) * 6 + q % 2 + k % 5];
}

DEVICE void read_window(float* window, const float* map, int side, int i, int j, int b) {
#pragma unroll
  for (int r = 0; r < 36; r++)
    window[r] = map[((2 * i + r / 6) * side + 2 * j + r % 6) * G + b];
}

DEVICE void forward_convolution1(Block& s) {
  EACH(n, PLACES1 * G) {
    const int b = n % G, place = n / G;
    float window[36];
    read_window(window, s.images, PADDED, place / SIDE1, place % SIDE1, b);
    for (int map = 0; map < 6; map++) {
      float sums[4] = {0, 0, 0, 0};
      convolve(sums, s.kernels + CONV1 + map * TAPS, window);
      const int at = (map * PLACES1 + place) * G + b;
      pool(sums, s.kernels[CONV1_BIAS + map], s.maps1[at], s.winners1[at]);
    }
  }
}

DEVICE void forward_convolution2(Block& s) {
  EACH(n, 4 * PLACES2 * G) {  // four maps at a time share a window
    const int b = n % G, place = n / G % PLACES2, first = n / G / PLACES2 * 4;
    float sums[16] = {0};
    for (int channel = 0; channel < 6; channel++) {
      float window[36];
      read_window(window, s.maps1 + channel * PLACES1 * G, SIDE1, place / SIDE2, place % SIDE2, b);
#pragma unroll
      for (int map = 0; map < 4; map++)
        convolve(sums + 4 * map, s.kernels + CONV2 + ((first + map) * 6 + channel) * TAPS, window);
    }
#pragma unroll
    for (int map = 0; map < 4; map++) {
      const int at = ((first + map) * PLACES2 + place) * G + b;
      pool(sums + 4 * map, s.kernels[CONV2_BIAS + first + map], s.maps2[at], s.winners2[at]);
    }
  }
}

// outputs = W inputs + bias, of ROWS x TERMS weights; each sum in slices that are added in order.
template <int ROWS, int TERMS, int SLICES, bool RELU>
DEVICE void forward_full(float* outputs, const float* inputs, const float* matrix, float* slices) {
  const float* bias = matrix + ROWS * TERMS;
  const int length = (TERMS + SLICES - 1) / SLICES;
  EACH(n, ROWS * SLICES) {
    const int row = n / SLICES, begin = n % SLICES * length;
    const int end = begin + length < TERMS ? begin + length : TERMS;
    float sums[G] = {0};
    for (int k = begin; k < end; k++)
      for (int b = 0; b < G; b++) sums[b] += matrix[row * TERMS + k] * inputs[k * G + b];
    for (int b = 0; b < G; b++) slices[n * G + b] = sums[b];
  }
  BARRIER;
  EACH(n, ROWS * G) {
    const int row = n / G, b = n % G;
    float sum = bias[row];
    for (int slice = 0; slice < SLICES; slice++) sum += slices[(row * SLICES + slice) * G + b];
    outputs[n] = RELU && sum < 0 ? 0.f : sum;
  }
  BARRIER;
}

// The gradients of W and of the biases, summed over the block's samples.
template <int ROWS, int TERMS>
DEVICE void backward_full(float* gradient, const float* inputs, const float* delta) {
  EACH(n, ROWS * TERMS) {
    float sum = 0;
    for (int b = 0; b < G; b++) sum += delta[n / TERMS * G + b] * inputs[n % TERMS * G + b];
    gradient[n] = sum;
  }
  EACH(row, ROWS) {
    float sum = 0;
    for (int b = 0; b < G; b++) sum += delta[row * G + b];
    gradient[ROWS * TERMS + row] = sum;
  }
}

// W' delta, of the inputs that are on.
template <int ROWS, int TERMS>
DEVICE void delta_below(float* below, const float* inputs, const float* matrix, const float* delta) {
  EACH(k, TERMS) {
    float sums[G] = {0};
    for (int row = 0; row < ROWS; row++)
      for (int b = 0; b < G; b++) sums[b] += matrix[row * TERMS + k] * delta[row * G + b];
    for (int b = 0; b < G; b++) below[k * G + b] = inputs[k * G + b] > 0 ? sums[b] : 0.f;
  }
  BARRIER;
}

// Cross entropy and its delta, as shares of the mean over the whole mini-batch.
DEVICE void cross_entropy(Block& s, const long long* y, const long long* samples, int count,
                          int batch, float* losses) {
  EACH(b, G) {
    float most = s.logits[b], sum = 0;
    for (int k = 1; k < CLASSES; k++) most = fmaxf(most, s.logits[k * G + b]);
    for (int k = 0; k < CLASSES; k++) sum += expf(s.logits[k * G + b] - most);
    const int label = b < count ? (int)y[samples[b]] : 0;
    const float share = b < count ? 1.f / batch : 0.f;
    for (int k = 0; k < CLASSES; k++) {
      const float probability = expf(s.logits[k * G + b] - most) / sum;
      s.delta_logits[k * G + b] = share * (probability - (k == label));
    }
    if (b < count) losses[b] = share * (logf(sum) + most - s.logits[label * G + b]);
  }
  BARRIER;
}

// Only the winners under the pools have a delta: a quarter of the places.
DEVICE void backward_convolution2(Block& s, float* gradient) {
  EACH(n, 16 * 6) {
    const int map = n / 6, channel = n % 6;
    float sums[TAPS] = {0};
    for (int place = 0; place < PLACES2; place++)
      for (int b = 0; b < G; b++) {
        const int at = (map * PLACES2 + place) * G + b, q = s.winners2[at];
        if (q == NONE) continue;
        const int i = place / SIDE2 * 2 + q / 2, j = place % SIDE2 * 2 + q % 2;
        const float* corner = s.maps1 + (channel * PLACES1 + i * SIDE1 + j) * G + b;
#pragma unroll
        for (int k = 0; k < TAPS; k++)
          sums[k] += s.delta_maps2[at] * corner[(k / 5 * SIDE1 + k % 5) * G];
      }
    for (int k = 0; k < TAPS; k++) gradient[CONV2 + n * TAPS + k] = sums[k];
  }
  EACH(map, 16) {
    float sum = 0;
    for (int n = map * PLACES2 * G; n < (map + 1) * PLACES2 * G; n++)
      sum += s.winners2[n] == NONE ? 0.f : s.delta_maps2[n];
    gradient[CONV2_BIAS + map] = sum;
  }
}

// The delta of the first maps, gathered: each place from the winners whose kernels reach it.
DEVICE void delta_of_maps1(Block& s) {
  EACH(n, PLACES1 * G) {
    const int b = n % G, place = n / G, i = place / SIDE1, j = place % SIDE1;
    const int top = i > 5 ? (i - 4) / 2 : 0, left = j > 5 ? (j - 4) / 2 : 0;
    float sums[6] = {0};
    for (int u = top; u <= i / 2 && u < SIDE2; u++)
      for (int v = left; v <= j / 2 && v < SIDE2; v++)
        for (int map = 0; map < 16; map++) {
          const int at = (map * PLACES2 + u * SIDE2 + v) * G + b, q = s.winners2[at];
          const int row = i - 2 * u - q / 2, column = j - 2 * v - q % 2;
          if (q == NONE || row < 0 || row > 4 || column < 0 || column > 4) continue;
          const float* kernel = s.kernels + CONV2 + map * 6 * TAPS + row * 5 + column;
#pragma unroll
          for (int channel = 0; channel < 6; channel++)
            sums[channel] += s.delta_maps2[at] * kernel[channel * TAPS];
        }
    for (int channel = 0; channel < 6; channel++)
      s.delta_maps1[(channel * PLACES1 + place) * G + b] = sums[channel];
  }
  BARRIER;
}

DEVICE void backward_convolution1(Block& s, float* gradient) {
  EACH(n, 6 * SLICES1) {
    const int map = n / SLICES1, slice = n % SLICES1;
    float sums[TAPS + 1] = {0};  // the last is the bias's
    for (int place = slice; place < PLACES1; place += SLICES1)
      for (int b = 0; b < G; b++) {
        const int at = (map * PLACES1 + place) * G + b, q = s.winners1[at];
        if (q == NONE) continue;
        const int i = place / SIDE1 * 2 + q / 2, j = place % SIDE1 * 2 + q % 2;
        const float* corner = s.images + (i * PADDED + j) * G + b;
#pragma unroll
        for (int k = 0; k < TAPS; k++)
          sums[k] += s.delta_maps1[at] * corner[(k / 5 * PADDED + k % 5) * G];
        sums[TAPS] += s.delta_maps1[at];
      }
    for (int k = 0; k <= TAPS; k++) s.slices[n * (TAPS + 1) + k] = sums[k];
  }
  BARRIER;
  EACH(n, 6 * (TAPS + 1)) {
    const int map = n / (TAPS + 1), k = n % (TAPS + 1);
    float sum = 0;
    for (int slice = 0; slice < SLICES1; slice++)
      sum += s.slices[(map * SLICES1 + slice) * (TAPS + 1) + k];
    gradient[k < TAPS ? CONV1 + map * TAPS + k : CONV1_BIAS + map] = sum;
  }
}

// One block's part of the gradient of the model `model`: of the samples from `group` G on.
//
// weights (models, PARAMETERS); x (samples, 28, 28); y (samples); index (models, batch), samples;
// parts (models, groups, PARAMETERS); losses (models, batch), shares of the mean. `until` cuts the
// work off after a phase, to time phases by differences; a whole gradient has 8.
DEVICE void gradient_of_group(Block& s, const float* weights, const float* x, const long long* y,
                              const long long* index, float* parts, float* losses, int batch,
                              int until, int group, int model) {
  const int groups = (batch + G - 1) / G;
  const int count = batch - group * G < G ? batch - group * G : G;
  const long long* samples = index + (long long)model * batch + group * G;
  const float* w = weights + (long long)model * PARAMETERS;
  float* gradient = parts + ((long long)model * groups + group) * PARAMETERS;
  EACH(n, FULL1) s.kernels[n] = w[n];
  load_images(s, x, samples, count);
  BARRIER;
  if (until < 1) return;
  forward_convolution1(s);
  BARRIER;
  if (until < 2) return;
  forward_convolution2(s);
  BARRIER;
  if (until < 3) return;
  forward_full<120, POOLED, 4, true>(s.units1, s.maps2, w + FULL1, s.slices);
  forward_full<84, 120, 4, true>(s.units2, s.units1, w + FULL2, s.slices);
  forward_full<CLASSES, 84, 16, false>(s.logits, s.units2, w + FULL3, s.slices);
  cross_entropy(s, y, samples, count, batch, losses + (long long)model * batch + group * G);
  if (until < 4) return;
  backward_full<CLASSES, 84>(gradient + FULL3, s.units2, s.delta_logits);
  delta_below<CLASSES, 84>(s.delta_units2, s.units2, w + FULL3, s.delta_logits);
  backward_full<84, 120>(gradient + FULL2, s.units1, s.delta_units2);
  delta_below<84, 120>(s.delta_units1, s.units1, w + FULL2, s.delta_units2);
  backward_full<120, POOLED>(gradient + FULL1, s.maps2, s.delta_units1);
  if (until < 5) return;
  delta_below<120, POOLED>(s.delta_maps2, s.maps2, w + FULL1, s.delta_units1);
  if (until < 6) return;
  backward_convolution2(s, gradient);
  if (until < 7) return;
  delta_of_maps1(s);
  if (until < 8) return;
  backward_convolution1(s, gradient);
}

// The sum of a model's parts, in their order: a thread for each of its parameters.
DEVICE void add_parts(const float* parts, float* gradients, int groups, int number, int model) {
  if (number >= PARAMETERS) return;
  const float* own = parts + (long long)model * groups * PARAMETERS + number;
  float sum = 0;
  for (int group = 0; group < groups; group++) sum += own[(long long)group * PARAMETERS];
  gradients[(long long)model * PARAMETERS + number] = sum;
}

#ifdef ON_CPU
extern "C" int block_bytes() { return sizeof(Block); }

// All models, one block after another.
extern "C" void gradients(const float* weights, const float* x, const long long* y,
                          const long long* index, float* parts, float* losses, float* sums,
                          int batch, int models, int until) {
  static Block block;
  const int groups = (batch + G - 1) / G;
  for (int model = 0; model < models; model++) {
    for (int group = 0; group < groups; group++)
      gradient_of_group(block, weights, x, y, index, parts, losses, batch, until, group,
                        model);
    for (int number = 0; number < PARAMETERS; number++)
      add_parts(parts, sums, groups, number, model);
  }
}
#else
// grid (groups, models), with sizeof(Block) bytes of shared memory
KERNEL gradient(const float* weights, const float* x, const long long* y, const long long* index,
                float* parts, float* losses, int batch, int until) {
  extern __shared__ float memory[];
  gradient_of_group(*(Block*)memory, weights, x, y, index, parts, losses, batch, until, blockIdx.x,
                    blockIdx.y);
}

// grid (blocks of threads for all parameters, models)
KERNEL add_groups(const float* parts, float* gradients, int groups) {
  add_parts(parts, gradients, groups, blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y);
}
#endif
