// One attention layer and its training, in the arithmetic of svmlib: everything relative to the top token.
// Where the top weight rounds to 1, the ordinary gradient cancels and points elsewhere; so the top token is
// subtracted from the others, their weights stay logarithms, and the largest is divided out before exponentials.

const LOSSES = {
  logistic: { value: (m) => (m > 0 ? Math.log1p(Math.exp(-m)) : Math.log1p(Math.exp(m)) - m), slope: (m) => -1 / (1 + Math.exp(m)) },
  exponential: { value: (m) => Math.exp(-m), slope: (m) => -Math.exp(-m) },
  linear: { value: (m) => -m, slope: () => -1 },
};

/**
 * Data made ready: sequences X[i][t] of d numbers, of unequal length if need be, queries z[i] of d numbers,
 * and scores[i][t], the worth of a token to the head times the label.
 */
export function compileProblem({ X, z, scores }) {
  const n = X.length, d = z[0].length;
  const first = [0];
  for (const tokens of X) first.push(first.at(-1) + tokens.length);
  const total = first[n];
  const layer = {
    n, d, first: Int32Array.from(first), tokens: Float64Array.from(X.flat(2)), z: Float64Array.from(z.flat()),
    flat: Float64Array.from(scores.flat()), scores, optimal: scores.map((row) => row.indexOf(Math.max(...row))),
    // what a step needs, made once
    logits: new Float64Array(total), image: new Float64Array(d), G: new Float64Array(d * d), size: new Float64Array(n), top: new Int32Array(n),
  };
  return layer;
}

/** Weights of Direct training: W (d, d), row by row, with scores x^T W z. */
export const startDirect = (layer, W) => ({ W: Float64Array.from(W.flat()), failed: false });

/** Weights of factored training: K and Q (d, d), with W = K Q^T. */
export const startFactored = (layer, K, Q) => ({ K: Float64Array.from(K.flat()), Q: Float64Array.from(Q.flat()), failed: false });

/** W or K Q^T, row by row. */
export function matrixOf(weights) {
  if (weights.W) return weights.W;
  const { K, Q } = weights, d = Math.round(Math.sqrt(K.length)), W = new Float64Array(d * d);
  for (let a = 0; a < d; a++) for (let b = 0; b < d; b++) for (let c = 0; c < d; c++) W[a * d + b] += K[a * d + c] * Q[b * d + c];
  return W;
}

function fillLogits(layer, W) {
  const { n, d, first, tokens, z, logits, image, top } = layer;
  for (let i = 0; i < n; i++) {
    for (let a = 0; a < d; a++) {
      image[a] = 0;
      for (let b = 0; b < d; b++) image[a] += W[a * d + b] * z[i * d + b];
    }
    top[i] = first[i];
    for (let t = first[i]; t < first[i + 1]; t++) {
      let s = 0;
      for (let a = 0; a < d; a++) s += tokens[t * d + a] * image[a];
      logits[t] = s;
      if (s > logits[top[i]]) top[i] = t;
    }
  }
}

/** Logarithms of softmax probabilities: right where the probabilities underflow. */
export function logSoftmax(logits) {
  const top = Math.max(...logits);
  const log = Math.log(logits.reduce((sum, l) => sum + Math.exp(l - top), 0));
  return Array.from(logits, (l) => l - top - log);
}

/** Attention probabilities of every sequence. */
export function attentionOf(layer, W) {
  fillLogits(layer, W);
  return Array.from({ length: layer.n }, (_, i) => logSoftmax(layer.logits.subarray(layer.first[i], layer.first[i + 1])).map(Math.exp));
}

/** The token with the largest logit of every sequence. */
export function selectedBy(layer, W) {
  fillLogits(layer, W);
  return Array.from(layer.top, (t, i) => t - layer.first[i]);
}

/** Training loss. */
export function lossOf(layer, W, loss = "logistic") {
  const s = attentionOf(layer, W);
  return s.reduce((sum, row, i) => sum + LOSSES[loss].value(row.reduce((f, p, t) => f + p * layer.scores[i][t], 0)), 0) / layer.n;
}

/**
 * The gradient in W, as layer.G times the exponential of the number returned; -Infinity where it is zero.
 */
export function scaledGradient(layer, W, loss) {
  const { n, d, first, tokens, z, flat, logits, G, size, top } = layer;
  const { slope } = LOSSES[loss];
  fillLogits(layer, W);
  G.fill(0);
  let scale = -Infinity;
  for (let i = 0; i < n; i++) {
    for (let t = first[i]; t < first[i + 1]; t++) if (t !== top[i]) scale = Math.max(scale, logits[t] - logits[top[i]]);
  }
  if (scale === -Infinity) return scale;
  for (let i = 0; i < n; i++) {
    const k = top[i];
    let total = 1, lift = 0; // sum of weights relative to the top one's; of weight times score difference
    for (let t = first[i]; t < first[i + 1]; t++) {
      if (t === k) continue;
      const e = Math.exp(logits[t] - logits[k]);
      total += e;
      lift += e * (flat[t] - flat[k]);
    }
    lift /= total; // output minus the top token's score
    const factor = slope(flat[k] + lift) / (n * total);
    for (let t = first[i]; t < first[i + 1]; t++) {
      if (t === k) continue;
      const g = factor * Math.exp(logits[t] - logits[k] - scale) * (flat[t] - flat[k] - lift);
      for (let a = 0; a < d; a++) {
        const row = g * (tokens[t * d + a] - tokens[k * d + a]);
        for (let b = 0; b < d; b++) G[a * d + b] += row * z[i * d + b];
      }
    }
  }
  return scale;
}

function sizeOf(A) {
  let largest = 0, sum = 0;
  for (const x of A) largest = Math.max(largest, Math.abs(x));
  if (!(largest > 0) || largest === Infinity) return largest;
  for (const x of A) sum += (x / largest) ** 2;
  return largest * Math.sqrt(sum);
}

/**
 * Take gradient steps, in place: normalised (for factors, each by its own gradient's size) or plain.
 * Weights that would leave the finite numbers stay as they are, and are marked as failed.
 */
export function advance(layer, weights, count, { rate, normalized, loss }) {
  const { d, G } = layer;
  const parts = weights.W ? [weights.W] : [weights.K, weights.Q];
  const steps = parts.map((p) => new Float64Array(p.length)), before = parts.map((p) => new Float64Array(p.length));
  for (let step = 0; step < count && !weights.failed; step++) {
    const scale = scaledGradient(layer, matrixOf(weights), loss);
    if (scale === -Infinity) return;
    if (weights.W) steps[0].set(G);
    else {
      const { K, Q } = weights;
      steps[0].fill(0);
      steps[1].fill(0);
      for (let a = 0; a < d; a++) {
        for (let b = 0; b < d; b++) {
          for (let c = 0; c < d; c++) {
            steps[0][a * d + c] += G[a * d + b] * Q[b * d + c];
            steps[1][b * d + c] += G[a * d + b] * K[a * d + c];
          }
        }
      }
    }
    parts.forEach((part, j) => {
      before[j].set(part);
      const size = normalized ? sizeOf(steps[j]) : 1;
      const factor = normalized ? (size > 0 ? rate / size : 0) : rate * Math.exp(scale);
      for (let k = 0; k < part.length; k++) part[k] -= factor * steps[j][k];
      if (!part.every(Number.isFinite)) weights.failed = true;
    });
    if (weights.failed) parts.forEach((part, j) => part.set(before[j]));
  }
}

/** Cosine of the angle between two matrices; NaN where one is zero. */
export function correlation(A, B) {
  const a = sizeOf(A), b = sizeOf(B);
  if (!(a > 0 && b > 0)) return NaN;
  let sum = 0;
  for (let k = 0; k < A.length; k++) sum += (A[k] / a) * (B[k] / b);
  return Math.max(-1, Math.min(1, sum));
}
