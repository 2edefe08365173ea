// One sequence of orthonormal tokens before the head v^T u - lambda |u|^2: what attention trains to, and
// the sparsemax that it should be. Logits are the coordinates of W z, one a token.

import { logSoftmax } from "./attention.mjs";

/** The point of the simplex nearest to `a`, by sorting. */
export function sparsemaxOf(a) {
  const top = Math.max(...a), shifted = a.map((x) => x - top); // large numbers in common cancel here
  const sorted = [...shifted].sort((x, y) => y - x);
  let sum = 0, level = 0;
  for (const [k, x] of sorted.entries()) {
    sum += x;
    if (1 + (k + 1) * x > sum) level = (sum - 1) / (k + 1);
  }
  return shifted.map((x) => Math.max(x - level, 0));
}

/** The best attention for scores gamma and curvature lambda; for lambda = 0 the best token, ties shared. */
export function bestMixture(gamma, lambda) {
  if (lambda > 0) return sparsemaxOf(gamma.map((g) => g / (2 * lambda)));
  const best = gamma.map((g) => (g === Math.max(...gamma) ? 1 : 0)), count = best.reduce((a, b) => a + b);
  return best.map((b) => b / count);
}

/** The margin: sum of s_t gamma_t minus lambda |s|^2. */
export const mixtureMargin = (s, gamma, lambda) => s.reduce((sum, p, t) => sum + p * gamma[t] - lambda * p * p, 0);

/**
 * Gradient steps on the logistic loss of the margin, in the logits, in place. The direction is right where
 * probabilities underflow: everything relative to the largest weight that is not the top token's.
 */
export function trainMixture(logits, count, { gamma, lambda, rate, normalized }) {
  const T = logits.length;
  if (T < 2) return;
  for (let k = 0; k < count; k++) {
    const logs = logSoftmax(logits), top = logs.indexOf(Math.max(...logs)), s = logs.map(Math.exp);
    const worth = gamma.map((g, t) => g - 2 * lambda * s[t]); // local scores
    let lift = 0; // their mean, relative to the top token's: nothing cancels once it has all attention
    for (let t = 0; t < T; t++) if (t !== top) lift += s[t] * (worth[t] - worth[top]);
    const scale = Math.max(...logs.filter((_, t) => t !== top));
    const others = logs.map((l, t) => (t === top ? 0 : Math.exp(l - scale) * (worth[t] - worth[top] - lift)));
    const step = others.map((g, t) => (t === top ? -others.reduce((a, b) => a + b, 0) : g)); // the sum is zero
    const size = Math.hypot(...step), slope = 1 / (1 + Math.exp(mixtureMargin(s, gamma, lambda)));
    if (!(size > 0)) return;
    const factor = normalized ? rate / size : rate * slope * Math.exp(scale);
    for (let t = 0; t < T; t++) logits[t] += factor * step[t];
  }
}
