/* The CPU's kernels: what a step does between its matrix products, and the products of few rows.

   float32. Plain C with two extensions that gcc and clang share: vector types (`vec` is one
   register) and OpenMP (`parallel for` shares a loop among threads; `simd` lets a loop's sum be
   added up in any order). Every function's reference is torch code: `cpu.py` says which.

   Matrices are row-major; strides count floats. A function that follows indices checks all of them
   first, and returns 1, having written nothing, when one leads out of its array. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16 /* floats in a register */
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef int64_t i64;
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));

int lanes(void) { return LANES; }

static inline vec load(const float *p) { return *(const vec *)p; }
static inline void store(float *p, vec x) { *(vec *)p = x; }
static inline float larger(float a, float b) { return a > b ? a : b; } /* b beside a NaN */
static inline i64 least(i64 a, i64 b) { return a < b ? a : b; }

/* Threads for this much work: to wake one costs a few microseconds. */
static inline int team(int threads, i64 floats) { return floats < 8192 ? 1 : threads; }

/* e^x for x <= 88, to 2 units in the last place; 0 below -87, where float32 ends. A polynomial
   and a shift, so that the compiler can do LANES of them at once. */
static inline float exp_(float x) {
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23: x / ln 2, rounded */
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;   /* x - n ln 2, ln 2 in two parts */
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { int32_t bits; float value; } power = {((int32_t)n + 127) * (1 << 23)}; /* 2^n */
    return x < -87.0f ? 0.0f : p * power.value;
}

/* -- matrix products ----------------------------------------------------------------------------

   With few rows a product waits for the weights. So they are read once, in order and a little
   ahead, and each register of them serves several rows: a tile of R rows and 4 outputs keeps its
   4 R sums in registers. A lane of a sum holds every LANES-th summand; `sum_four` adds the lanes
   of four sums in seven steps, where one at a time would take five each. */

#if LANES == 16
#define EACH(F) F(0), F(4), F(8), F(12)
#elif LANES == 8
#define EACH(F) F(0), F(4)
#else
#define EACH(F) F(0)
#endif
#define LOW(i) i, LANES + i, i + 1, LANES + i + 1
#define HIGH(i) i + 2, LANES + i + 2, i + 3, LANES + i + 3
#define FRONT(i) i, i + 1, LANES + i, LANES + i + 1
#define BACK(i) i + 2, i + 3, LANES + i + 2, LANES + i + 3
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, F) __builtin_shufflevector(a, b, EACH(F))
#else /* an older gcc knows the same under another name */
typedef int32_t order __attribute__((vector_size(4 * LANES)));
#define SHUFFLE(a, b, F) __builtin_shuffle(a, b, (order){EACH(F)})
#endif

static inline vec4 sum_four(vec a, vec b, vec c, vec d) {
    vec ab = SHUFFLE(a, b, LOW) + SHUFFLE(a, b, HIGH); /* in every 4 lanes: a, b, a, b */
    vec cd = SHUFFLE(c, d, LOW) + SHUFFLE(c, d, HIGH);
    vec abcd = SHUFFLE(ab, cd, FRONT) + SHUFFLE(ab, cd, BACK); /* a, b, c, d */
    union { vec whole; vec4 part[LANES / 4]; } all = {abcd};
    vec4 total = all.part[0];
    for (int i = 1; i < LANES / 4; i++) total += all.part[i];
    return total;
}

/* y[r, c] = sum over k of x[r, k] w[c, k] for R rows of x and 4 rows of w. */
#define TILE(R)                                                                                  \
    static void tile_##R(const float *x, i64 xs, const float *w, i64 ws, float *y, i64 ys,       \
                         i64 inputs) {                                                           \
        vec sum[R][4] = {0};                                                                     \
        const float *w1 = w + ws, *w2 = w1 + ws, *w3 = w2 + ws;                                  \
        i64 k = 0;                                                                               \
        for (; k + LANES <= inputs; k += LANES) {                                                \
            vec b0 = load(w + k), b1 = load(w1 + k), b2 = load(w2 + k), b3 = load(w3 + k);       \
            for (int i = 4; i < 8; i++) __builtin_prefetch(w + i * ws + k);                      \
            _Pragma("GCC unroll 8") for (int r = 0; r < R; r++) {                                \
                vec a = load(x + r * xs + k);                                                    \
                sum[r][0] += a * b0, sum[r][1] += a * b1;                                        \
                sum[r][2] += a * b2, sum[r][3] += a * b3;                                        \
            }                                                                                    \
        }                                                                                        \
        _Pragma("GCC unroll 8") for (int r = 0; r < R; r++) {                                    \
            vec4 total = sum_four(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);                   \
            for (i64 j = k; j < inputs; j++)                                                     \
                total += x[r * xs + j] * (vec4){w[j], w1[j], w2[j], w3[j]};                      \
            *(vec4 *)(y + r * ys) = total;                                                       \
        }                                                                                        \
    }

TILE(1)
TILE(2)
#if LANES == 16 /* 32 registers: room for 24 sums */
TILE(4)
TILE(6)
#endif

static __attribute__((noinline)) void product(const float *x, i64 xs, const float *w, i64 ws,
                                              float *y, i64 ys, i64 rows, i64 outputs,
                                              i64 inputs) {
    for (; outputs >= 4; outputs -= 4, w += 4 * ws, y += 4) {
        i64 m = 0;
#if LANES == 16
        for (; m + 6 <= rows; m += 6) tile_6(x + m * xs, xs, w, ws, y + m * ys, ys, inputs);
        for (; m + 4 <= rows; m += 4) tile_4(x + m * xs, xs, w, ws, y + m * ys, ys, inputs);
#endif
        for (; m + 2 <= rows; m += 2) tile_2(x + m * xs, xs, w, ws, y + m * ys, ys, inputs);
        for (; m < rows; m++) tile_1(x + m * xs, xs, w, ws, y + m * ys, ys, inputs);
    }
    for (i64 n = 0; n < outputs; n++)
        for (i64 m = 0; m < rows; m++) {
            float total = 0;
#pragma omp simd reduction(+ : total)
            for (i64 k = 0; k < inputs; k++) total += x[m * xs + k] * w[n * ws + k];
            y[m * ys + n] = total;
        }
}

/* y [rows, outputs] = x [rows, inputs] times w [outputs, inputs] transposed. */
void linear(const float *x, const float *w, float *y, i64 rows, i64 outputs, i64 inputs,
            int threads) {
    i64 span = 16; /* outputs: a cache line of y */
#pragma omp parallel for num_threads(team(threads, outputs * inputs)) schedule(static)
    for (i64 n = 0; n < outputs; n += span)
        product(x, inputs, w + n * inputs, inputs, y + n, outputs, rows, least(span, outputs - n),
                inputs);
}

/* -- rows -------------------------------------------------------------------------------------- */

static inline float rms_scale(const float *x, i64 size, float eps) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (i64 i = 0; i < size; i++) total += x[i] * x[i];
    return 1.0f / sqrtf(total / size + eps);
}

/* total = x + residual, y = total / rms(total) * gain; without a residual x is the total. */
void add_rms_norm(const float *x, const float *residual, const float *gain, float *total, float *y,
                  i64 rows, i64 size, float eps, int threads) {
#pragma omp parallel for num_threads(team(threads, rows * size)) schedule(static)
    for (i64 row = 0; row < rows; row++) {
        const float *a = x + row * size;
        float *out = y + row * size;
        if (residual) {
            float *sum = total + row * size;
            for (i64 i = 0; i < size; i++) sum[i] = a[i] + residual[row * size + i];
            a = sum;
        }
        float scale = rms_scale(a, size, eps);
        for (i64 i = 0; i < size; i++) out[i] = a[i] * scale * gain[i];
    }
}

/* y [rows, size] = silu(x[:, :size]) * x[:, size:]. */
void silu_and_mul(const float *x, float *y, i64 rows, i64 size, int threads) {
#pragma omp parallel for num_threads(team(threads, 4 * rows * size)) schedule(static)
    for (i64 row = 0; row < rows; row++) {
        const float *gate = x + 2 * row * size, *up = gate + size;
        float *out = y + row * size;
#pragma omp simd
        for (i64 i = 0; i < size; i++) {
            float g = gate[i];
            float silu = g / (1.0f + exp_(g > -87.0f ? -g : 87.0f));
            out[i] = (g > -87.0f ? silu : 0.0f) * up[i];
        }
    }
}

/* silu_and_mul of a linear layer, whose outputs go to `both` [rows, 2 size]. */
void linear_silu(const float *x, const float *w, float *both, float *y, i64 rows, i64 size,
                 i64 inputs, int threads) {
    linear(x, w, both, rows, 2 * size, inputs, threads);
    silu_and_mul(both, y, rows, size, threads);
}

/* One head, in place: norm (with a gain) and turn; the first half of `sin` is negative. */
static void rotate(float *x, const float *gain, const float *cos, const float *sin, i64 dim,
                   float eps) {
    i64 half = dim / 2;
    if (gain) {
        float scale = rms_scale(x, dim, eps);
        for (i64 i = 0; i < dim; i++) x[i] *= scale * gain[i];
    }
    for (i64 i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cos[i] + b * sin[i];
        x[i + half] = b * cos[i + half] + a * sin[i + half];
    }
}

/* qkv [tokens, (heads + 2 kv_heads) dim]: q and k turn in place; k and v go to their slots. */
int rotate_and_store(float *qkv, const float *q_gain, const float *k_gain, const float *cos,
                     const float *sin, const int32_t *slots, float *k_cache, float *v_cache,
                     i64 tokens, i64 heads, i64 kv_heads, i64 dim, i64 num_slots, float eps,
                     int threads) {
    i64 row = (heads + 2 * kv_heads) * dim, part = kv_heads * dim;
    for (i64 i = 0; i < tokens; i++)
        if (slots[i] >= num_slots) return 1;
#pragma omp parallel for num_threads(team(threads, tokens * row)) schedule(static)
    for (i64 i = 0; i < tokens; i++) {
        float *x = qkv + i * row, *k = x + heads * dim;
        for (i64 h = 0; h < heads + kv_heads; h++)
            rotate(x + h * dim, h < heads ? q_gain : k_gain, cos + i * dim, sin + i * dim, dim,
                   eps);
        if (slots[i] < 0) continue;
        memcpy(k_cache + slots[i] * part, k, part * sizeof(float));
        memcpy(v_cache + slots[i] * part, k + part, part * sizeof(float));
    }
    return 0;
}

/* -- attention ----------------------------------------------------------------------------------

   The running softmax of FlashAttention: keys come in pieces, and what was summed so far shrinks
   whenever a larger score appears. Keys and values are read where they lie, through the table. */

#define QUERIES 12 /* that read a key together */
#define KEYS 64    /* whose scores are held at once */

typedef struct {
    const float *q, *k, *v;
    float *out;
    const int32_t *table; /* blocks of the sequence; NULL: its keys lie end to end */
    i64 q_stride, out_stride, kv_stride, dim, block_size, rows;
    i64 seen, more; /* keys that the first query sees, and how many more each next one */
    float scale;
} Queries;

/* Of the keys from `t` on those that lie end to end: how many (up to `most`), and where. */
static inline i64 piece(const Queries *a, i64 t, i64 most, i64 *at) {
    *at = t * a->kv_stride;
    if (!a->table) return most;
    i64 offset = t % a->block_size;
    *at = (a->table[t / a->block_size] * a->block_size + offset) * a->kv_stride;
    return least(most, a->block_size - offset);
}

/* out += p V: the values of `count` keys, weighted. */
static void add_values(float *out, const float *p, const float *v, i64 stride, i64 count, i64 dim) {
    i64 d = 0;
    for (; d + LANES <= dim; d += LANES) {
        vec even = load(out + d), odd = {0}; /* two sums, or each would wait for itself */
        i64 j = 0;
        for (; j + 2 <= count; j += 2) {
            even += p[j] * load(v + j * stride + d);
            odd += p[j + 1] * load(v + (j + 1) * stride + d);
        }
        if (j < count) even += p[j] * load(v + j * stride + d);
        store(out + d, even + odd);
    }
    for (; d < dim; d++)
        for (i64 j = 0; j < count; j++) out[d] += p[j] * v[j * stride + d];
}

/* `count` scores become weights relative to the largest score so far; what was summed shrinks. */
static void soften(float *p, i64 count, float scale, float *top, float *total, float *out,
                   i64 dim) {
    float largest = *top, sum = 0;
#pragma omp simd reduction(max : largest)
    for (i64 j = 0; j < count; j++) largest = larger(p[j] * scale, largest);
#pragma omp simd reduction(+ : sum)
    for (i64 j = 0; j < count; j++) sum += p[j] = exp_(p[j] * scale - largest);
    float shrink = exp_(*top - largest);
    for (i64 d = 0; d < dim; d++) out[d] *= shrink;
    *top = largest, *total = *total * shrink + sum;
}

static void attend_queries(const Queries *a) {
    float scores[QUERIES * KEYS], top[QUERIES], total[QUERIES];
    i64 last = a->seen + a->more * (a->rows - 1), at, count, visible[QUERIES];
    for (i64 r = 0; r < a->rows; r++) {
        top[r] = -INFINITY, total[r] = 0;
        memset(a->out + r * a->out_stride, 0, a->dim * sizeof(float));
    }
    for (i64 t = 0; t < last; t += KEYS) {
        i64 most = least(KEYS, last - t);
        for (i64 j = 0; j < most; j += count) {
            count = piece(a, t + j, most - j, &at);
            product(a->q, a->q_stride, a->k + at, a->kv_stride, scores + j, KEYS, a->rows, count,
                    a->dim);
        }
        for (i64 r = 0; r < a->rows; r++) {
            visible[r] = least(most, a->seen + a->more * r - t);
            if (visible[r] > 0)
                soften(scores + r * KEYS, visible[r], a->scale, top + r, total + r,
                       a->out + r * a->out_stride, a->dim);
        }
        for (i64 j = 0; j < most; j += count) {
            count = piece(a, t + j, most - j, &at);
            for (i64 r = 0; r < a->rows; r++)
                add_values(a->out + r * a->out_stride, scores + r * KEYS + j, a->v + at,
                           a->kv_stride, least(count, visible[r] - j), a->dim);
        }
    }
    for (i64 r = 0; r < a->rows && last > 0; r++)
        for (i64 d = 0; d < a->dim; d++) a->out[r * a->out_stride + d] /= total[r];
}

/* Sizes of a call. width: blocks a row of the tables; most_queries, most_keys: of a sequence. */
typedef struct {
    i64 sequences, tokens, most_queries, most_keys, width, num_blocks, block_size;
    i64 heads, kv_heads, dim, q_stride, kv_stride;
} Sizes;

/* Prefill: sequence i has the queries ends_q[i] to ends_q[i + 1] and ends_k[i + 1] - ends_k[i]
   keys, the last ones its own; `tables` is NULL when it has no others. */
int attend_prefill(const float *q, const float *k, const float *v, float *out,
                   const int32_t *ends_q, const int32_t *ends_k, const int32_t *tables,
                   const Sizes *s, float scale, int threads) {
    if (ends_q[0] != 0 || ends_q[s->sequences] != s->tokens) return 1;
    for (i64 i = 0; i < s->sequences; i++) {
        i64 rows = (i64)ends_q[i + 1] - ends_q[i], keys = (i64)ends_k[i + 1] - ends_k[i];
        if (rows < 1 || keys < rows || (!tables && keys != rows)) return 1;
        if (rows > s->most_queries || keys > s->most_keys) return 1;
        if (tables && keys > s->width * s->block_size) return 1;
        for (i64 j = 0; tables && j * s->block_size < keys; j++)
            if (tables[i * s->width + j] < 0 || tables[i * s->width + j] >= s->num_blocks) return 1;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (i64 item = 0; item < s->sequences * s->heads; item++) {
        i64 i = item / s->heads, h = item % s->heads, kv = h / (s->heads / s->kv_heads);
        i64 start = ends_q[i], rows = ends_q[i + 1] - start, keys = ends_k[i + 1] - ends_k[i];
        i64 from = (tables ? 0 : start * s->kv_stride) + kv * s->dim;
        for (i64 r = 0; r < rows; r += QUERIES) {
            Queries part = {q + (start + r) * s->q_stride + h * s->dim, k + from, v + from,
                            out + ((start + r) * s->heads + h) * s->dim,
                            tables ? tables + i * s->width : 0, s->q_stride, s->heads * s->dim,
                            s->kv_stride, s->dim, s->block_size, least(QUERIES, rows - r),
                            keys - rows + r + 1, 1, scale};
            attend_queries(&part);
        }
    }
    return 0;
}

/* Decode: one query a sequence, lengths[i] keys; 0 gives zeros. The query heads that share a kv
   head are the queries that read its keys together. */
int attend_decode(const float *q, const float *k, const float *v, float *out,
                  const int32_t *lengths, const int32_t *tables, const Sizes *s, float scale,
                  int threads) {
    i64 group = s->heads / s->kv_heads, work = 0;
    for (i64 i = 0; i < s->sequences; i++) {
        if (lengths[i] < 0 || lengths[i] > s->width * s->block_size) return 1;
        for (i64 j = 0; j * s->block_size < lengths[i]; j++)
            if (tables[i * s->width + j] < 0 || tables[i * s->width + j] >= s->num_blocks) return 1;
        work += (i64)lengths[i] * s->heads * s->dim;
    }
#pragma omp parallel for num_threads(team(threads, work)) schedule(static, 1)
    for (i64 item = 0; item < s->sequences * s->kv_heads; item++) {
        i64 i = item / s->kv_heads, kv = item % s->kv_heads;
        for (i64 h = 0; h < group; h += QUERIES) {
            i64 head = kv * group + h;
            Queries part = {q + i * s->q_stride + head * s->dim, k + kv * s->dim, v + kv * s->dim,
                            out + (i * s->heads + head) * s->dim, tables + i * s->width, s->dim,
                            s->dim, s->kv_stride, s->dim, s->block_size, least(QUERIES, group - h),
                            lengths[i], 0, scale};
            attend_queries(&part);
        }
    }
    return 0;
}

/* -- tokens ------------------------------------------------------------------------------------ */

#define SPAN 256 /* weights that are summed, and skipped, together */

static inline double span_sum(const float *weights, i64 from, i64 until) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (i64 i = from; i < until; i++) total += weights[i];
    return total;
}

/* The token at which the summed weights e^((logit - largest) / temperature) pass noise * total. */
static i64 pick(const float *logits, float *weights, i64 vocab, float temperature, float noise) {
    float top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (i64 i = 0; i < vocab; i++) top = larger(logits[i], top);
    if (temperature == 0.0f) {
        for (i64 i = 0; i < vocab; i++)
            if (logits[i] == top) return i;
        return 0;
    }
#pragma omp simd
    for (i64 i = 0; i < vocab; i++) weights[i] = exp_((logits[i] - top) / temperature);
    double total = 0, before = 0;
    for (i64 i = 0; i < vocab; i += SPAN) total += span_sum(weights, i, least(i + SPAN, vocab));
    double target = noise * total;
    for (i64 at = 0; at < vocab; at += SPAN) {
        i64 until = least(at + SPAN, vocab);
        double sum = span_sum(weights, at, until);
        if (before + sum <= target) {
            before += sum;
            continue;
        }
        for (i64 i = at; i < until; i++)
            if ((before += weights[i]) > target) return i;
    }
    i64 last = vocab - 1; /* rounding led past the end: the last token that is possible */
    while (last > 0 && !(weights[last] > 0)) last--;
    return last;
}

/* tokens[i], also in last_token[rows[i]]; temperatures below `cold` are greedy. */
int sample(const float *logits, i64 stride, const float *temperatures, const float *noise,
           const i64 *rows, float *weights, i64 *tokens, i64 *last_token, i64 batch, i64 vocab,
           i64 table, float cold, int threads) {
    for (i64 i = 0; i < batch; i++)
        if (rows[i] < -1 || rows[i] >= table) return 1;
#pragma omp parallel for num_threads(team(threads, batch * vocab)) schedule(static)
    for (i64 i = 0; i < batch; i++) {
        float temperature = temperatures[i] < cold ? 0.0f : temperatures[i];
        tokens[i] = pick(logits + i * stride, weights + i * vocab, vocab, temperature, noise[i]);
    }
    for (i64 i = 0; i < batch; i++)
        if (rows[i] >= 0) last_token[rows[i]] = tokens[i];
    return 0;
}

/* out[i] = ids[i], or for a placeholder -(row + 1) the row's newest token. */
int resolve_placeholders(const i64 *ids, const i64 *last_token, i64 *out, i64 count, i64 table) {
    for (i64 i = 0; i < count; i++)
        if (ids[i] < -table) return 1;
    for (i64 i = 0; i < count; i++) out[i] = ids[i] < 0 ? last_token[-ids[i] - 1] : ids[i];
    return 0;
}

/* -- a whole decode step ------------------------------------------------------------------------

   Everything above, in the order of `models.qwen3.DecoderLayer`. One call for all layers: with one
   row, Python would take as long to make the calls as the calls take. */

typedef struct {
    const float *input_norm, *qkv, *q_gain, *k_gain, *o, *post_norm, *gate_up, *down;
    float *k_cache, *v_cache;
} Layer;

/* x [rows, hidden] is an embedding before, and after it the last layer's output, to be added to
   `residual` [rows, hidden]. work: rows * (hidden + qkv + heads dim + 3 inner)
   floats for everything between. */
int decode_layers(const Layer *layers, i64 count, float *x, float *residual, float *work,
                  const float *cos, const float *sin, const int32_t *slots, const int32_t *lengths,
                  const int32_t *tables, const Sizes *s, i64 hidden, i64 inner, float eps,
                  float scale, int threads) {
    i64 rows = s->tokens, q_size = s->heads * s->dim, row = s->q_stride;
    float *y = work, *qkv = y + rows * hidden, *attended = qkv + rows * row;
    float *both = attended + rows * q_size, *act = both + rows * 2 * inner;
    for (const Layer *layer = layers; layer < layers + count; layer++) {
        if (layer == layers) {
            memcpy(residual, x, rows * hidden * sizeof(float));
            add_rms_norm(x, 0, layer->input_norm, 0, y, rows, hidden, eps, threads);
        } else
            add_rms_norm(x, residual, layer->input_norm, residual, y, rows, hidden, eps, threads);
        linear(y, layer->qkv, qkv, rows, row, hidden, threads);
        if (rotate_and_store(qkv, layer->q_gain, layer->k_gain, cos, sin, slots, layer->k_cache,
                             layer->v_cache, rows, s->heads, s->kv_heads, s->dim,
                             s->num_blocks * s->block_size, eps, threads))
            return 1;
        if (attend_decode(qkv, layer->k_cache, layer->v_cache, attended, lengths, tables, s, scale,
                          threads))
            return 1;
        linear(attended, layer->o, x, rows, hidden, q_size, threads);
        add_rms_norm(x, residual, layer->post_norm, residual, y, rows, hidden, eps, threads);
        linear_silu(y, layer->gate_up, both, act, rows, inner, hidden, threads);
        linear(act, layer->down, x, rows, hidden, inner, threads);
    }
    return 0;
}
