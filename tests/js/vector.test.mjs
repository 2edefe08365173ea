import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { compileProblem } from "../../svmlib/widgets/js/attention.mjs";
import { endOf, flatPoints, vectorGradient, vectorHessian } from "../../svmlib/widgets/js/vector.mjs";

const golden = JSON.parse(readFileSync(new URL("golden/landscapes.json", import.meta.url)));
const layerOf = (X, scores) => compileProblem({ X, z: X.map(() => [1, 0]), scores });
const WRONG = layerOf([[[0, 0], [-2, 1]], [[0, 0], [1, 0]]], [[0, 1], [0, 1]]);

test("gradients in p", () => {
  const layer = layerOf(golden.X, golden.scores);
  for (const [loss, rows] of Object.entries(golden.gradients)) {
    golden.at.forEach((p, k) => vectorGradient(layer, p, loss).forEach((g, j) => assert.ok(Math.abs(g - rows[k][j]) < 1e-12)));
  }
});

test("a saddle and a minimum at finite p, where the theory's counter-examples have them", () => {
  const [saddle] = flatPoints(layerOf(golden.X, golden.scores), "logistic", 8);
  assert.equal(saddle.kind, "saddle");
  assert.ok(Math.hypot(saddle.p[0] - 0.199, saddle.p[1] + 2.672) < 0.01, String(saddle.p));
  const X = [[[1.69, 0.49], [2.98, 0.71], [0.05, -2.27], [1.19, 0.37], [-0.42, -0.12], [-0.58, 0.99]]];
  const layer = layerOf(X, [[0.57, 0.38, 0.23, 0.54, 0.63, 0.04]]);
  const minimum = flatPoints(layer, "logistic", 6).find((f) => f.kind === "minimum");
  assert.ok(Math.hypot(minimum.p[0] - 0.636, minimum.p[1] - 0.192) < 0.03, String(minimum.p));
  assert.equal(endOf(layer, minimum.p.map((x) => x + 0.1), "logistic"), "flat");
  const [a, b, c] = vectorHessian(layer, minimum.p, "logistic");
  assert.ok(a > 0 && a * c - b * b > 0);
});

test("a narrow valley leads out to the best token, from beyond the saddle only", () => {
  const X = [[[1.69, 0.49], [2.98, 0.71], [0.05, -2.27], [1.19, 0.37], [-0.42, -0.12], [-0.58, 0.99]]];
  const layer = layerOf(X, [[0.57, 0.38, 0.23, 0.54, 0.63, 0.04]]);
  assert.equal(endOf(layer, [-5, -1], "logistic"), "4");
  assert.equal(endOf(layer, [-1, -0.3], "logistic"), "flat");
});

test("no flat point where the theory excludes one", () => {
  for (const loss of ["logistic", "exponential", "linear"]) assert.deepEqual(flatPoints(WRONG, loss, 8), []);
});

test("ends of training from a grid of starts: 35.6 per cent are wrong", () => {
  const wrong = golden.starts.filter((p, k) => {
    const end = endOf(WRONG, p, "logistic");
    assert.equal(end, golden.selected[k].join(), String(p));
    return end !== "1,1";
  });
  assert.ok(Math.abs(wrong.length / golden.starts.length - 0.356) < 0.001);
});

test("what cannot be separated stays at finite p", () => {
  assert.equal(endOf(layerOf([[[-1, 0], [0, 0], [1, 0]]], [[0, 1, 0]]), [4, 3], "logistic"), "flat");
});

test("extreme keys give an answer", () => {
  for (const size of [1e-12, 5]) {
    const layer = layerOf([[[size, 0], [0, size], [size, 0]]], [[5, -5, 5]]);
    assert.match(endOf(layer, [3, 1], "exponential"), /^(flat|[012])$/);
    assert.ok(Array.isArray(flatPoints(layer, "exponential", 100)));
  }
});
