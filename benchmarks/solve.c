/* Backward induction as one would write it down in C: for every step, state, choice and outcome, with the best choice
 * kept in a byte for each step and state and two layers of values. Arrays are cut by 64-bit starts: the choices of a
 * state are first_choice[s] .. first_choice[s + 1], the outcomes of a choice first_outcome[c] .. first_outcome[c + 1].
 * Built by the benchmark with gcc -O3 -march=native -shared -fPIC.
 */
#include <math.h>
#include <stdint.h>

/* values: two layers of `states` numbers each; returns the one that holds those of step 0. */
int64_t solve(int64_t horizon, int64_t states, const int64_t *first_choice, const int64_t *first_outcome,
              const int32_t *next, const double *probability, const double *reward, double *values, uint8_t *policy) {
    double *ahead = values, *here = values + states;
    for (int64_t s = 0; s < states; s++) ahead[s] = 0.0;
    for (int64_t step = horizon - 1; step >= 0; step--) {
        uint8_t *chosen = policy + step * states;
        for (int64_t s = 0; s < states; s++) {
            double best = -INFINITY;
            int64_t which = 0;
            for (int64_t c = first_choice[s]; c < first_choice[s + 1]; c++) {
                double total = reward[c];
                for (int64_t o = first_outcome[c]; o < first_outcome[c + 1]; o++) total += probability[o] * ahead[next[o]];
                if (total > best) {
                    best = total;
                    which = c - first_choice[s];
                }
            }
            here[s] = best;
            chosen[s] = (uint8_t)which;
        }
        double *swap = ahead;
        ahead = here;
        here = swap;
    }
    return ahead == values ? 0 : 1;
}
