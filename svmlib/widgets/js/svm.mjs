// The attention SVM in the plane, solved exactly: smallest W with (x_selected - x_t)^T W z >= 1.
//
// Frobenius norm: a least-distance program, by non-negative least squares (Lawson and Hanson 1974, ch. 23).
// Nuclear norm: W acts on z, read as a complex number, as p z + q conj(z). Then its singular values are
// |p| + |q| and ||p| - |q||, its nuclear norm is 2 max(|p|, |q|), and its dual norm |p| + |q|. So
//   min ||W||_* / 2 = min_W max_theta sqrt(theta |p|^2 + (1 - theta) |q|^2):
// a search for one number theta, each step a Frobenius program in other coordinates.

const SUPPORT = 1e-3; // a margin below 1 + SUPPORT makes a support token, as in svmlib
const FEASIBLE = 1e-9;

/** Constraints of the selected tokens, as rows (re p, im p, re q, im q) of the inner product with W. */
function constraintsOf(layer, selected) {
  const rows = [], at = [];
  for (let i = 0; i < layer.n; i++) {
    const start = layer.first[i], k = start + selected[i];
    for (let t = start; t < layer.first[i + 1]; t++) {
      if (t === k) continue;
      const [x, y] = [0, 1].map((a) => layer.tokens[2 * k + a] - layer.tokens[2 * t + a]);
      const [u, v] = [layer.z[2 * i], layer.z[2 * i + 1]];
      // <x z^T, W> = Re(conj(x + iy) (p (u + iv) + q (u - iv)))
      rows.push([x * u + y * v, y * u - x * v, x * u - y * v, y * u + x * v]);
      at.push([i, t - start]);
    }
  }
  return { rows, at };
}

const dot4 = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);

/** Least squares min |sum_j c_j x_j - b| by Gram-Schmidt, applied twice; dependent columns get 0. */
function leastSquares(columns, b) {
  const basis = [], R = [];
  for (const [j, column] of columns.entries()) {
    const v = [...column], r = Array(columns.length).fill(0), size = Math.hypot(...column);
    for (let pass = 0; pass < 2; pass++) {
      basis.forEach((q, i) => {
        if (!q) return;
        const c = dot4(q, v);
        r[i] += c;
        q.forEach((x, k) => (v[k] -= c * x));
      });
    }
    r[j] = Math.hypot(...v);
    basis.push(r[j] > 1e-13 * size ? v.map((x) => x / r[j]) : null);
    R.push(r);
  }
  const rest = [...b], rhs = basis.map((q) => {
    if (!q) return 0;
    const c = dot4(q, rest);
    q.forEach((x, k) => (rest[k] -= c * x));
    return c;
  });
  const x = Array(columns.length).fill(0);
  for (let j = columns.length - 1; j >= 0; j--) {
    if (!basis[j]) continue;
    let sum = rhs[j];
    for (let k = j + 1; k < columns.length; k++) sum -= R[k][j] * x[k];
    x[j] = sum / R[j][j];
  }
  return x;
}

/** Non-negative least squares: x >= 0 and the residual b - sum_j c_j x_j. */
function nonNegative(columns, b) {
  const m = columns.length, x = Array(m).fill(0);
  let passive = [], residual = [...b];
  for (let round = 0; round < 20 * m + 20; round++) {
    const gain = columns.map((c, j) => (passive.includes(j) ? -Infinity : dot4(c, residual)));
    const best = gain.indexOf(Math.max(...gain));
    if (!(gain[best] > 1e-14)) break;
    passive.push(best);
    for (;;) {
      const s = leastSquares(passive.map((j) => columns[j]), b);
      const bad = passive.filter((_, k) => s[k] <= 0);
      if (!bad.length) {
        passive.forEach((j, k) => (x[j] = s[k]));
        break;
      }
      let step = 1;
      passive.forEach((j, k) => { if (s[k] <= 0) step = Math.min(step, x[j] / (x[j] - s[k])); });
      passive.forEach((j, k) => (x[j] += step * (s[k] - x[j])));
      const left = passive.filter((j) => x[j] > 1e-15);
      for (const j of passive) if (!left.includes(j)) x[j] = 0;
      if (left.length === passive.length) left.splice(left.indexOf(bad[0]), 1);
      passive = left;
      if (!passive.length) break;
    }
    residual = b.map((y, k) => passive.reduce((sum, j) => sum - columns[j][k] * x[j], y));
    if (x[best] === 0) break; // round-off only
  }
  return { x, residual };
}

/** min |w| with row_j . w >= 1: w and multipliers, or null where there is no such w. */
function leastDistance(rows) {
  const sizes = rows.map((r) => Math.hypot(...r));
  if (!sizes.every((s) => s > 0)) return null;
  const unit = Math.min(...sizes);
  const columns = rows.map((r, j) => [...r.map((x) => x / sizes[j]), unit / sizes[j]]);
  const { x, residual } = nonNegative(columns, [0, 0, 0, 0, 1]);
  const last = residual[4];
  if (!(last > 1e-15)) return null;
  // the residual gives the direction; the active rows give w and its multipliers to full accuracy
  let active = rows.map((_, j) => j).filter((j) => x[j] > 0);
  let w = residual.slice(0, 4).map((r) => (-r / last) * unit);
  const exact = equality(active.map((j) => rows[j]));
  if (exact && rows.every((r) => dot4(r, exact.w) >= 1 - FEASIBLE) && exact.multipliers.every((l) => l >= -1e-9)) w = exact.w;
  else active = active.filter((j) => dot4(rows[j], w) < 1 + 1e-7);
  const scale = 1 / Math.min(...rows.map((r) => dot4(r, w)));
  if (!(scale > 0) || Math.abs(scale - 1) > 1e-6) return null;
  const multipliers = Array(rows.length).fill(0);
  if (exact && w === exact.w) active.forEach((j, k) => (multipliers[j] = Math.max(0, exact.multipliers[k])));
  else x.forEach((v, j) => (multipliers[j] = (v / sizes[j] / last) * unit * unit));
  return { w, multipliers };
}

/** The smallest w with rows . w = 1, and its multipliers. */
function equality(rows) {
  if (!rows.length || rows.length > 4) return null;
  const gram = rows.map((r) => rows.map((s) => dot4(r, s)));
  const multipliers = gauss(gram, rows.map(() => 1));
  if (!multipliers) return null;
  const w = [0, 1, 2, 3].map((k) => rows.reduce((sum, r, j) => sum + multipliers[j] * r[k], 0));
  // one step of refinement: the Gram matrix squares the condition number
  const more = gauss(gram, rows.map((r) => 1 - dot4(r, w)));
  more.forEach((m, j) => rows[j].forEach((x, k) => (w[k] += m * x)));
  return { w, multipliers: multipliers.map((l, j) => l + more[j]) };
}

/** A small linear system, with pivots; null where it is singular. */
function gauss(A, b) {
  const M = A.map((row, i) => [...row, b[i]]), n = b.length;
  for (let c = 0; c < n; c++) {
    let p = c;
    for (let r = c + 1; r < n; r++) if (Math.abs(M[r][c]) > Math.abs(M[p][c])) p = r;
    if (!(Math.abs(M[p][c]) > 1e-14 * Math.max(...A.flat().map(Math.abs)))) return null;
    [M[c], M[p]] = [M[p], M[c]];
    for (let r = c + 1; r < n; r++) {
      const f = M[r][c] / M[c][c];
      for (let k = c; k <= n; k++) M[r][k] -= f * M[c][k];
    }
  }
  const x = Array(n).fill(0);
  for (let r = n - 1; r >= 0; r--) x[r] = (M[r][n] - M[r].slice(r + 1, n).reduce((s, v, k) => s + v * x[r + 1 + k], 0)) / M[r][r];
  return x;
}

const matrixFrom = ([a, b, c, e]) => Float64Array.of(a + c, e - b, b + e, a - c); // of p = a + ib, q = c + ie

function solution(layer, { rows, at }, w, multipliers, norm) {
  const support = Array.from({ length: layer.n }, (_, i) => Array(layer.first[i + 1] - layer.first[i]).fill(false));
  rows.forEach((r, j) => (support[at[j][0]][at[j][1]] = dot4(r, w) < 1 + SUPPORT));
  const [p, q] = [Math.hypot(w[0], w[1]), Math.hypot(w[2], w[3])];
  const value = norm === "nuc" ? 2 * Math.max(p, q) : Math.SQRT2 * Math.hypot(p, q);
  const bound = multipliers.reduce((a, b) => a + b, 0); // the dual value: Frobenius sum = value squared
  const gap = norm === "nuc" ? value - bound : value - bound / value;
  const rank = value === 0 ? 0 : Math.abs(p - q) > 1e-6 * (p + q) ? 2 : 1;
  return { status: "solved", W: matrixFrom(w), value, rank, support, multipliers: lookup(layer, at, multipliers), gap: Math.abs(gap) };
}

function lookup(layer, at, values) {
  const out = Array.from({ length: layer.n }, (_, i) => Array(layer.first[i + 1] - layer.first[i]).fill(0));
  at.forEach(([i, t], j) => (out[i][t] = values[j]));
  return out;
}

const none = (status) => ({ status, W: null, value: NaN, rank: NaN, support: null, multipliers: null, gap: NaN });

/** The attention SVM in the Frobenius norm: {status, W, value, rank, support, multipliers, gap}. */
export function frobeniusSVM(layer, selected) {
  const constraints = constraintsOf(layer, selected);
  if (!constraints.rows.length) return solution(layer, constraints, [0, 0, 0, 0], [], "fro");
  const found = leastDistance(constraints.rows);
  if (!found) return none("infeasible");
  // |W|_F^2 = 2 (|p|^2 + |q|^2), so that multipliers of W are twice those of (p, q)
  return solution(layer, constraints, found.w, found.multipliers.map((l) => 2 * l), "fro");
}

/** The attention SVM in the nuclear norm; where the minimiser is not unique, the one with the smaller |p| or |q|. */
export function nuclearSVM(layer, selected) {
  const constraints = constraintsOf(layer, selected), { rows } = constraints;
  if (!rows.length) return solution(layer, constraints, [0, 0, 0, 0], [], "nuc");
  // min theta |p|^2 + (1 - theta) |q|^2: the Frobenius program in scaled coordinates
  const weighted = (theta) => {
    const s = [theta, theta, 1 - theta, 1 - theta].map(Math.sqrt);
    const found = leastDistance(rows.map((r) => r.map((x, k) => x / s[k])));
    return found && { w: found.w.map((x, k) => x / s[k]), multipliers: found.multipliers };
  };
  if (!weighted(0.5)) return none("infeasible");
  const excess = (found) => Math.hypot(found.w[0], found.w[1]) - Math.hypot(found.w[2], found.w[3]);
  let lo = 0, hi = 1, best = null;
  for (let k = 0; k < 60; k++) {
    const theta = (lo + hi) / 2;
    const found = weighted(theta);
    if (!found) break;
    best = found;
    if (excess(found) > 0) lo = theta; // the maximum over theta lies where |p| has more weight
    else hi = theta;
    if (hi - lo < 1e-15) break;
  }
  const { w } = best, t = Math.max(Math.hypot(w[0], w[1]), Math.hypot(w[2], w[3]));
  const total = best.multipliers.reduce((a, b) => a + b, 0);
  return solution(layer, constraints, w, best.multipliers.map((l) => (l * 2 * t) / total), "nuc");
}
