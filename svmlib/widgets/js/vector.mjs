// The vector form: p in the plane, read by one query. Flat points of the loss, and where training leads.

import { advance, attentionOf, lossOf, scaledGradient, selectedBy, startDirect } from "./attention.mjs";

const W4 = ([x, y]) => Float64Array.of(x, 0, y, 0); // the query (1, 0) reads the first column

/** The gradient in p as it is, without a scale. */
export function vectorGradient(layer, p, loss) {
  const scale = scaledGradient(layer, W4(p), loss);
  if (scale === -Infinity) return [0, 0];
  const size = Math.exp(scale);
  return [layer.G[0] * size, layer.G[2] * size];
}

/** The Hessian, by central differences of the exact gradient. */
export function vectorHessian(layer, p, loss) {
  const h = 1e-5 * Math.max(1, Math.hypot(...p));
  const [a, b, c, d] = [[h, 0], [-h, 0], [0, h], [0, -h]].map((s) => vectorGradient(layer, [p[0] + s[0], p[1] + s[1]], loss));
  const mixed = (a[1] - b[1] + c[0] - d[0]) / (4 * h);
  return [(a[0] - b[0]) / (2 * h), mixed, (c[1] - d[1]) / (2 * h)];
}

/**
 * Points of the square |p_k| <= reach where the gradient vanishes, found by Newton's method from a grid of starts.
 * Where softmax is saturated the gradient is small everywhere: a point counts only if the Hessian holds it,
 * that is if Newton's steps shrink to nothing there.
 * @returns {{p: number[], kind: "minimum" | "saddle" | "maximum"}[]}
 */
export function flatPoints(layer, loss, reach, side = 13) {
  const found = [];
  for (let k = 0; k < side * side; k++) {
    let p = [(k % side), Math.floor(k / side)].map((j) => reach * ((2 * j) / (side - 1) - 1) * 0.98);
    let step = Infinity;
    for (let n = 0; n < 40 && step > 1e-12 * Math.max(1, Math.hypot(...p)); n++) {
      const g = vectorGradient(layer, p, loss), [a, b, c] = vectorHessian(layer, p, loss), det = a * c - b * b;
      if (!(Math.abs(det) > 1e-12 * (a * a + c * c + b * b))) break;
      const move = [-(c * g[0] - b * g[1]) / det, -(a * g[1] - b * g[0]) / det];
      step = Math.hypot(...move);
      if (step > reach / 4) break; // no flat point is near
      p = [p[0] + move[0], p[1] + move[1]];
    }
    const g = Math.hypot(...vectorGradient(layer, p, loss)), [a, b, c] = vectorHessian(layer, p, loss);
    const curvature = Math.max(Math.abs(a), Math.abs(b), Math.abs(c));
    if (!(step < 1e-9 * Math.max(1, reach)) || !(curvature > 1e-7) || !(g < 1e-9 * curvature * reach)) continue;
    if (Math.max(...p.map(Math.abs)) > reach || found.some((f) => Math.hypot(f.p[0] - p[0], f.p[1] - p[1]) < 1e-5 * reach)) continue;
    const det = a * c - b * b;
    found.push({ p, kind: det < 0 ? "saddle" : a + c > 0 ? "minimum" : "maximum" });
  }
  return found.sort((f, g) => f.p[0] - g.p[0] || f.p[1] - g.p[1]);
}

/**
 * Where training from p leads: the tokens selected, joined by commas, or "flat" where it stays at finite p.
 * Normalised steps, longer further out, and halved where they bounce: until attention is saturated, or the
 * steps have become too short to get anywhere.
 */
export function endOf(layer, p, loss) {
  const weights = startDirect(layer, [[p[0], 0], [p[1], 0]]);
  let value = lossOf(layer, weights.W, loss), rate = 0.05, before = "";
  for (let round = 0; round < 300 && rate > 1e-5; round++) {
    const from = weights.W.slice();
    advance(layer, weights, 20, { rate, normalized: true, loss });
    const sure = Math.min(...attentionOf(layer, weights.W).map((s) => Math.max(...s)));
    const now = selectedBy(layer, weights.W).join(), reached = lossOf(layer, weights.W, loss);
    if (sure > 1 - 1e-6 && now === before) return now;
    before = now;
    if (reached < value) {
      value = reached;
      rate = Math.min(1.5 * rate, 0.05 * Math.max(1, Math.hypot(weights.W[0], weights.W[2]) / 5));
    } else {
      weights.W.set(from);
      rate /= 4;
    }
  }
  return "flat";
}
