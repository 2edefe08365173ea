// Scan and Snap in the limit of long sequences: the exact population gradient, as svmlib.scansnap has it.
//
// All tokens that never are a next token have one column of the decoder in common when training starts at
// zero. So the decoder is kept as one row a contextual token and C + 1 columns: the C next tokens, and one
// that stands for the M - C others.

/**
 * Classes, each with a next token of its own; `P[c][l]` are frequencies of contextual tokens, scaled to sum 1.
 * @param {number[][]} P frequencies (C, L)
 * @param {boolean} oneQuery whether all classes have one query token, or each its own
 * @param {number} M size of the vocabulary, at least L + C + the number of queries
 */
export function tokenProcess(P, oneQuery, M) {
  const scaled = P.map((row) => {
    const total = row.reduce((a, b) => a + b, 0);
    return Float64Array.from(row, (p) => p / total);
  });
  const C = P.length, L = P[0].length;
  const classesOf = Array.from({ length: L }, (_, l) => scaled.filter((row) => row[l] > 0).length);
  return { P: scaled, C, L, M, row: scaled.map((_, c) => (oneQuery ? 0 : c)), Q: oneQuery ? 1 : C, common: classesOf.map((k) => k > 1) };
}

/** Training from zero: decoder D (L, C + 1), attention logits z (Q, L), what momentum remembers. */
export function startScan(process) {
  const D = new Float64Array(process.L * (process.C + 1)), z = new Float64Array(process.Q * process.L);
  return { step: 0, D, z, memory: [D.slice(), z.slice()], failed: false };
}

/** Attention by token type of class c: frequencies times the exponentials of the query's logits. */
export function attentionOn(process, z, c, s = new Float64Array(process.L)) {
  const { L, row } = process, P = process.P[c], at = row[c] * L;
  let top = -Infinity, total = 0;
  for (let l = 0; l < L; l++) if (P[l] > 0 && z[at + l] > top) top = z[at + l];
  for (let l = 0; l < L; l++) total += s[l] = P[l] > 0 ? P[l] * Math.exp(z[at + l] - top) : 0;
  for (let l = 0; l < L; l++) s[l] /= total;
  return s;
}

/**
 * Loss, directions of ascent in D and z, and the size of what is sent down to attention, a mean over classes.
 * Writes into `up` where one is given: steps allocate nothing.
 */
export function ascentOf(process, run, up = emptyAscent(process)) {
  const { C, L, M, row } = process, { D, z } = run, W = C + 1, others = M - C;
  const { f, g, miss } = up;
  up.D.fill(0);
  up.z.fill(0);
  up.loss = up.sent = 0;
  for (let c = 0; c < C; c++) {
    attentionOn(process, z, c, f);
    let length = 0, along = 0, size = 0;
    for (let l = 0; l < L; l++) length += f[l] * f[l];
    length = Math.sqrt(length);
    miss.fill(0);
    for (let l = 0; l < L; l++) {
      f[l] /= length;
      if (f[l]) for (let j = 0; j < W; j++) miss[j] += f[l] * D[l * W + j]; // the logits, at first
    }
    let top = -Infinity, rest = 0;
    for (let j = 0; j < W; j++) if (miss[j] > top) top = miss[j];
    const mine = miss[c] - top;
    for (let j = 0; j < W; j++) {
      miss[j] = Math.exp(miss[j] - top);
      if (j !== c) rest += miss[j] * (j === C ? others : 1);
    }
    const total = rest + miss[c];
    up.loss += (Math.log(total) - mine) / C;
    // e_c - pi: at the label what all others have together, so that nothing cancels late
    for (let j = 0; j < W; j++) miss[j] = j === c ? rest / total : -miss[j] / total;
    for (let l = 0; l < L; l++) {
      let sum = D[l * W + C] * miss[C] * (others - 1);
      for (let j = 0; j < W; j++) {
        up.D[l * W + j] += (f[l] * miss[j]) / C;
        sum += D[l * W + j] * miss[j];
      }
      g[l] = sum;
      along += f[l] * sum;
      size += sum * sum;
    }
    for (let l = 0; l < L; l++) up.z[row[c] * L + l] += (f[l] * (g[l] - f[l] * along)) / C;
    up.sent += Math.sqrt(size) / C;
  }
  return up;
}

function emptyAscent({ C, L, Q }) {
  const zeros = (n) => new Float64Array(n);
  return { loss: 0, sent: 0, D: zeros(L * (C + 1)), z: zeros(Q * L), f: zeros(L), g: zeros(L), miss: zeros(C + 1) };
}

/** Take steps, in place; both learning rates, and momentum as torch has it. Stops where numbers end. */
export function advanceScan(process, run, count, { decoderRate, attentionRate, momentum }) {
  const up = emptyAscent(process), [mD, mz] = run.memory;
  for (let k = 0; k < count && !run.failed; k++) {
    ascentOf(process, run, up);
    if (!Number.isFinite(up.loss + up.sent)) {
      run.failed = true;
      return;
    }
    for (let i = 0; i < mD.length; i++) run.D[i] += decoderRate * (mD[i] = momentum * mD[i] + up.D[i]);
    for (let i = 0; i < mz.length; i++) run.z[i] += attentionRate * (mz[i] = momentum * mz[i] + up.z[i]);
    run.step++;
  }
}

/** Attention on common tokens, and entropy on the distinct ones scaled to sum 1 (nats), of class c. */
export function readAttention(process, s) {
  let common = 0, own = 0, entropy = 0;
  for (let l = 0; l < process.L; l++) process.common[l] ? (common += s[l]) : (own += s[l]);
  for (let l = 0; l < process.L; l++) {
    const p = process.common[l] ? 0 : s[l] / own;
    if (p > 0) entropy -= p * Math.log(p);
  }
  return { common, entropy: own > 0 ? entropy : NaN };
}

/** H = M h with e^H + (M - 1) H = M x + 1: the decoder's progress at x = rate times the time of a class. */
export function decoderProgress(x, M) {
  if (!(x > 0)) return 0;
  let H = Math.min(x, Math.log(M * x + 1)); // beyond the root, where the function is convex: Newton falls to it
  for (let k = 0; k < 60; k++) {
    const e = Math.exp(H), step = (e - 1 + (M - 1) * H - M * x) / (e + M - 1);
    H -= step;
    if (Math.abs(step) <= 1e-16 * Math.abs(H)) break;
  }
  return H;
}

/** The decoder's speed of the theory after t steps; it peaks at the predicted transition. */
export function decoderSpeed(t, M, C, rate) {
  const H = decoderProgress((rate * t) / C, M), small = Math.exp(-H);
  return ((M - 1) ** 2 * (H / M) * small) / (1 + (M - 1) * small);
}

/** The time C log(M) / rate up to which the decoder's speed rises. */
export const transitionTime = (M, C, rate) => (C * Math.log(M)) / rate;
