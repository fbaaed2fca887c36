/* Algorithm 1 as one would write it down in C on a first day: one record for each (step, state, action), the greedy
 * action found by looking through all of them, the next state by walking the cumulative distribution. It reads the
 * same flat arrays as peakrl's kernels, so that both do the same work. Built by the benchmark with
 * gcc -O3 -march=native -shared -fPIC.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
    double q, mu, sigma, beta;
    int64_t n;
} entry;

static uint64_t s[4];

static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static double uniform(void) {
    uint64_t result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return (double)(result >> 11) * 0x1.0p-53;
}

static void seed(uint64_t x) {
    for (int i = 0; i < 4; i++) {
        uint64_t z = (x += 0x9E3779B97F4A7C15ULL);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        s[i] = z ^ (z >> 31);
    }
}

/* bonus: 0 none, 1 Bernstein. Returns the sum of modified rewards, so that nothing is optimised away. */
double learn(int64_t horizon, int64_t node_stride, int64_t entry_stride, int64_t nodes, int64_t entries,
             const int64_t *row_start, const int32_t *row_distribution, const int64_t *outcome_start,
             const int32_t *outcome_next, const double *cumulative, int64_t stride, const int32_t *row_payoff,
             const double *modified, int64_t firsts, const int32_t *first_slot, const double *first_cumulative,
             const double *start, const double *cap, int bonus, double c1, double c2, double bound, double cells,
             double log_term, int64_t episodes, uint64_t seed_value) {
    entry *table = malloc((size_t)entries * sizeof(entry));
    double *w = calloc((size_t)nodes, sizeof(double)), total = 0;
    double H = (double)horizon;
    int64_t rows = entry_stride ? entry_stride : entries;
    for (int64_t e = 0; e < entries; e++) table[e] = (entry){0, 0, 0, 0, 0};
    int64_t slots = entry_stride ? node_stride : nodes;
    for (int64_t h = 0; h < (entry_stride ? horizon : 1); h++)
        for (int64_t slot = 0; slot < slots; slot++)
            for (int64_t row = row_start[slot]; row < row_start[slot + 1]; row++) {
                table[h * rows + row].q = start[h];
                w[h * node_stride + slot] = start[h];
            }
    seed(seed_value);
    for (int64_t k = 0; k < episodes; k++) {
        int64_t slot = 0;
        double u = uniform();
        while (slot < firsts - 1 && u >= first_cumulative[slot]) slot++;
        slot = first_slot[slot];
        for (int64_t h = 0; h < horizon; h++) {
            int64_t begin = row_start[slot], end = row_start[slot + 1], row = begin;
            entry *at = table + h * entry_stride;
            for (int64_t r = begin + 1; r < end; r++)
                if (at[r].q > at[row].q) row = r;
            int64_t d = row_distribution[row], o = outcome_start[d];
            u = uniform();
            while (o < outcome_start[d + 1] - 1 && u >= cumulative[o]) o++;
            int64_t next = outcome_next[o];
            double reward = modified[row_payoff[row] + stride * (o - outcome_start[d])];
            double following = w[(h + 1) * node_stride + next];
            entry *e = at + row;
            double t = (double)(++e->n), alpha = (H + 1) / (H + t), b = 0;
            if (bonus) {
                e->mu += following;
                e->sigma += following * following;
                double variance = e->sigma / t - (e->mu / t) * (e->mu / t);
                double sharp = c1 * (sqrt(H / t * (variance + bound * bound * H) * log_term) +
                                     bound * sqrt(pow(H, 7) * cells) * log_term / t);
                double wide = c2 * bound * sqrt(H * H * H * log_term / t);
                double beta = sharp < wide ? sharp : wide;
                b = (beta - (1 - alpha) * e->beta) / (2 * alpha);
                e->beta = beta;
            }
            e->q = (1 - alpha) * e->q + alpha * (reward + following + b);
            double best = at[begin].q;
            for (int64_t r = begin + 1; r < end; r++)
                if (at[r].q > best) best = at[r].q;
            w[h * node_stride + slot] = best < cap[h] ? best : cap[h];
            total += reward;
            slot = next;
        }
    }
    free(table);
    free(w);
    return total;
}
