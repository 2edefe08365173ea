// Regularisation paths in the plane: the loss minimised over balls of growing radius, for both norms.
//
// W acts on z, read as a complex number, as p z + q conj(z); w = (re p, im p, re q, im q). The Frobenius ball
// is |w| <= R / sqrt 2. The nuclear ball is max(|p|, |q|) <= R / 2: its boundary has two faces, where one of
// the two has full length, and an edge, a torus, where both have. What is minimised is the logarithm of the
// loss above that of the optimal tokens, which stays informative when the loss itself is flat to round-off.

import { logSoftmax, scaledGradient } from "./attention.mjs";

const slopes = {
  logistic: (best, drop) => Math.log1p(Math.expm1(drop) / (1 + Math.exp(best))),
  exponential: (best, drop) => Math.exp(-best) * Math.expm1(drop),
  linear: (best, drop) => drop,
};

/** W, row by row, of w. */
export const matrixOfPair = ([a, b, c, e]) => Float64Array.of(a + c, e - b, b + e, a - c);

const pairOfMatrix = ([a, b, c, d]) => [(a + d) / 2, (c - b) / 2, (a - d) / 2, (c + b) / 2];

/** Logarithm of the loss above that of the optimal tokens, without cancellation, and its gradient in w. */
export function logExcess(layer, w, loss) {
  const W = matrixOfPair(w);
  let sum = 0;
  for (let i = 0; i < layer.n; i++) {
    const from = layer.first[i], z = [layer.z[2 * i], layer.z[2 * i + 1]], best = layer.optimal[i];
    const image = [W[0] * z[0] + W[1] * z[1], W[2] * z[0] + W[3] * z[1]];
    const logits = layer.scores[i].map((_, t) => layer.tokens[2 * (from + t)] * image[0] + layer.tokens[2 * (from + t) + 1] * image[1]);
    const logs = logSoftmax(logits), top = layer.scores[i][best];
    const drop = layer.scores[i].reduce((s, g, t) => s + (top - g) * Math.exp(logs[t]), 0); // no term is negative
    sum += slopes[loss](top, drop) / layer.n;
  }
  const value = Math.log(sum), scale = scaledGradient(layer, W, loss), G = layer.G, size = Math.exp(scale - value);
  if (!(sum > 0) || !Number.isFinite(size)) return { value, grad: [0, 0, 0, 0] };
  return { value, grad: [G[0] + G[3], G[2] - G[1], G[0] - G[3], G[2] + G[1]].map((g) => g * size) };
}

/** Eigenvalues and vectors of a small symmetric matrix, by Jacobi rotations. */
function symmetricEigen(A) {
  const n = A.length, M = A.map((r) => [...r]), V = M.map((_, i) => M.map((__, j) => Number(i === j)));
  for (let sweep = 0; sweep < 30; sweep++) {
    let off = 0;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        off = Math.max(off, Math.abs(M[p][q]));
        if (Math.abs(M[p][q]) < 1e-300) continue;
        const theta = (M[q][q] - M[p][p]) / (2 * M[p][q]);
        const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.hypot(theta, 1)), c = 1 / Math.hypot(t, 1), s = t * c;
        for (let k = 0; k < n; k++) [M[k][p], M[k][q]] = [c * M[k][p] - s * M[k][q], s * M[k][p] + c * M[k][q]];
        for (let k = 0; k < n; k++) [M[p][k], M[q][k]] = [c * M[p][k] - s * M[q][k], s * M[p][k] + c * M[q][k]];
        for (let k = 0; k < n; k++) [V[k][p], V[k][q]] = [c * V[k][p] - s * V[k][q], s * V[k][p] + c * V[k][q]];
      }
    }
    if (off < 1e-14 * Math.max(...M.map((r, i) => Math.abs(r[i])))) break;
  }
  return { values: M.map((r, i) => r[i]), V };
}

/**
 * Newton's method on a surface: `chart(centre)` gives w and its derivatives as functions of local coordinates,
 * which are 0 at the centre; curvature that is negative is turned round, so that every step descends.
 */
function descend(f, centre, chart) {
  for (let round = 0; round < 200; round++) {
    const { at, jacobian, size } = chart(centre), zero = Array(size).fill(0);
    const look = (y) => {
      const w = at(y), { value, grad } = f(w);
      return { w, value, g: jacobian(y).map((column) => column.reduce((s, x, k) => s + x * grad[k], 0)) };
    };
    const here = look(zero), h = 1e-5;
    const H = zero.map((_, i) => {
      const [more, less] = [h, -h].map((d) => look(zero.map((__, j) => (i === j ? d : 0))).g);
      return more.map((x, j) => (x - less[j]) / (2 * h));
    });
    const { values, V } = symmetricEigen(H.map((row, i) => row.map((x, j) => (x + H[j][i]) / 2)));
    const largest = Math.max(...values.map(Math.abs), 1e-300);
    const along = values.map((_, k) => here.g.reduce((s, x, i) => s + x * V[i][k], 0) / Math.max(Math.abs(values[k]), 1e-9 * largest));
    let step = zero.map((_, i) => -along.reduce((s, a, k) => s + V[i][k] * a, 0));
    const long = Math.hypot(...step);
    if (long > 0.5) step = step.map((x) => (0.5 * x) / long);
    const fall = -step.reduce((s, x, i) => s + x * here.g[i], 0);
    let t = 1, next = null;
    for (; t > 1e-10; t /= 2) {
      next = look(step.map((x) => t * x));
      if (next.value <= here.value - 1e-4 * t * fall) break;
    }
    if (!(t > 1e-10) || !(fall > 1e-15)) {
      // near the solution values agree to round-off: a last full step is taken on trust if it is tiny
      return fall > 0 && long < 1e-5 ? at(step) : here.w;
    }
    centre = next.w;
  }
  return centre;
}

const norm2 = (a, b) => Math.hypot(a, b);

/** The sphere of radius r in w. */
const sphere = (r) => (centre) => {
  const u = centre.map((x) => x / Math.hypot(...centre));
  const basis = [0, 1, 2, 3].filter((k) => k !== u.map(Math.abs).indexOf(Math.max(...u.map(Math.abs)))).reduce((list, k) => {
    let v = [0, 0, 0, 0].map((_, j) => Number(j === k));
    for (const b of [u, ...list]) {
      const c = v.reduce((s, x, j) => s + x * b[j], 0);
      v = v.map((x, j) => x - c * b[j]);
    }
    const size = Math.hypot(...v);
    return [...list, v.map((x) => x / size)];
  }, []);
  const raw = (y) => u.map((x, j) => x + y.reduce((s, c, k) => s + c * basis[k][j], 0));
  const at = (y) => raw(y).map((x, _, all) => (r * x) / Math.hypot(...all));
  const jacobian = (y) => {
    const all = raw(y), size = Math.hypot(...all), e = all.map((x) => x / size);
    return basis.map((b) => {
      const c = b.reduce((s, x, j) => s + x * e[j], 0);
      return b.map((x, j) => (r * (x - c * e[j])) / size);
    });
  };
  return { at, jacobian, size: 3 };
};

/** p of length r (`which` = 0) or q (1), the other one free, measured in units of r. */
const face = (r, which) => (centre) => {
  const [i, j] = which ? [2, 0] : [0, 2], angle = Math.atan2(centre[i + 1], centre[i]);
  const at = (y) => {
    const w = [...centre];
    [w[i], w[i + 1]] = [r * Math.cos(angle + y[0]), r * Math.sin(angle + y[0])];
    [w[j], w[j + 1]] = [centre[j] + r * y[1], centre[j + 1] + r * y[2]];
    return w;
  };
  const jacobian = (y) => {
    const columns = [0, 1, 2].map(() => [0, 0, 0, 0]);
    [columns[0][i], columns[0][i + 1]] = [-r * Math.sin(angle + y[0]), r * Math.cos(angle + y[0])];
    columns[1][j] = columns[2][j + 1] = r;
    return columns;
  };
  return { at, jacobian, size: 3 };
};

/** Both of length r. */
const torus = (r) => (centre) => {
  const angles = [Math.atan2(centre[1], centre[0]), Math.atan2(centre[3], centre[2])];
  const at = (y) => angles.flatMap((a, k) => [r * Math.cos(a + y[k]), r * Math.sin(a + y[k])]);
  const jacobian = (y) => angles.map((a, k) => {
    const column = [0, 0, 0, 0];
    [column[2 * k], column[2 * k + 1]] = [-r * Math.sin(a + y[k]), r * Math.cos(a + y[k])];
    return column;
  });
  return { at, jacobian, size: 2 };
};

/** All of space, in units of r. */
const space = (r) => (centre) => ({
  at: (y) => centre.map((x, k) => x + r * y[k]),
  jacobian: () => [0, 1, 2, 3].map((k) => [0, 1, 2, 3].map((j) => (j === k ? r : 0))),
  size: 4,
});

const outward = (f, w, i) => {
  const { grad } = f(w), size = norm2(w[i], w[i + 1]);
  return (grad[i] * w[i] + grad[i + 1] * w[i + 1]) / size;
};

function solveFrobenius(f, R, start) {
  const r = R / Math.SQRT2, size = Math.hypot(...start);
  const w = descend(f, start.map((x) => (x * r) / size), sphere(r));
  const { grad } = f(w);
  if (grad.reduce((s, g, k) => s + g * w[k], 0) <= 0) return { w, inside: false };
  const free = descend(f, w.map((x) => 0.9 * x), space(r));
  return Math.hypot(...free) < r ? { w: free, inside: true } : { w, inside: false };
}

function solveNuclear(f, R, start) {
  const r = R / 2;
  const sized = (w, i, size) => { const s = norm2(w[i], w[i + 1]); return s > 0 ? [w[i] * (size / s), w[i + 1] * (size / s)] : [size, 0]; };
  const onto = (w) => [...sized(w, 0, r), ...sized(w, 2, r)];
  let w = descend(f, onto(start), torus(r));
  const [up, uq] = [outward(f, w, 0), outward(f, w, 2)];
  if (up <= 0 && uq <= 0) return { w, inside: false };
  for (const which of [0, 1]) {
    // the one that wants to shrink is set free; the other keeps its length
    if ((which ? up : uq) <= 0) continue;
    const j = which ? 0 : 2, begin = [...w];
    [begin[j], begin[j + 1]] = [0.9 * w[j], 0.9 * w[j + 1]];
    const found = descend(f, begin, face(r, which));
    if (norm2(found[j], found[j + 1]) < r && outward(f, found, which ? 2 : 0) <= 0) return { w: found, inside: false };
  }
  const free = descend(f, w.map((x) => 0.8 * x), space(r));
  return Math.max(norm2(free[0], free[1]), norm2(free[2], free[3])) < r ? { w: free, inside: true } : { w, inside: false };
}

/**
 * A point of the path: stationary on its ball, and the best that was found from the point before it, from the
 * steepest direction at zero and from the SVM's direction, where there is one.
 * @param {"fro" | "nuc"} norm
 * @param {number} R bound on the norm
 * @param {Float64Array | null} svm a solution of the SVM, row by row
 * @param {Float64Array | null} last the point of a radius near by
 * @returns {{W: Float64Array, value: number, inside: boolean}} W row by row, and the logarithm of the loss above
 *   that of the optimal tokens
 */
export function pathPoint(layer, norm, R, loss, svm = null, last = null) {
  const f = (w) => logExcess(layer, w, loss), solve = norm === "fro" ? solveFrobenius : solveNuclear;
  const steepest = f([0, 0, 0, 0]).grad.map((g) => -g);
  const starts = [...[last, svm].filter(Boolean).map(pairOfMatrix), steepest].filter((w) => w.some((x) => x !== 0));
  let best = { w: [0, 0, 0, 0], inside: true, value: f([0, 0, 0, 0]).value };
  for (const [k, start] of starts.entries()) {
    const found = solve(f, R, start), { value } = f(found.w);
    if (k === 0 || value < best.value - 1e-12) best = { ...found, value };
  }
  return { W: matrixOfPair(best.w), value: best.value, inside: best.inside };
}
