import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { advance, attentionOf, compileProblem, correlation, lossOf, matrixOf, scaledGradient, selectedBy, startDirect, startFactored } from "../../svmlib/widgets/js/attention.mjs";

const golden = (name) => JSON.parse(readFileSync(new URL(`golden/${name}.json`, import.meta.url)));
const apart = (A, B) => Math.max(...Array.from(A, (x, k) => Math.abs(x - B.flat()[k])));
const ZERO = [[0, 0], [0, 0]];

const { rate, runs } = golden("training");
for (const run of runs) {
  test(`trajectories: ${run.name}, ${run.loss}, ${run.normalized ? "normalised" : "plain"}`, () => {
    const layer = compileProblem(run), rule = { rate, normalized: run.normalized, loss: run.loss };
    const W = startDirect(layer, ZERO);
    let step = 0;
    run.steps_W.forEach((k, j) => {
      advance(layer, W, k - step, rule);
      step = k;
      assert.ok(apart(W.W, run.W[j]) < 1e-10, `W at ${k}: ${apart(W.W, run.W[j])}`);
      assert.ok(Math.abs(lossOf(layer, W.W, run.loss) - run.value[j]) < 1e-12);
    });
    const KQ = startFactored(layer, run.K0, run.Q0);
    step = 0;
    run.steps_KQ.forEach((k, j) => {
      advance(layer, KQ, k - step, rule);
      step = k;
      const off = apart(matrixOf(KQ), run.KQ[j]) / Math.max(1, ...run.KQ[j].flat().map(Math.abs));
      if (k <= 50) assert.ok(off < 1e-10, `KQ at ${k}: ${off}`);
      assert.ok(1 - correlation(matrixOf(KQ), run.KQ[j].flat()) < 1e-4);
    });
  });
}

test("the gradient is right where every softmax is one-hot", () => {
  const data = golden("saturated"), layer = compileProblem(data), W = startDirect(layer, data.W0);
  advance(layer, W, 1, { rate: 1, normalized: true, loss: "logistic" });
  const moved = W.W.map((w, k) => w - data.W0.flat()[k]), expected = data.W.flat().map((w, k) => w - data.W0.flat()[k]);
  assert.ok(Math.abs(Math.hypot(...moved) - 1) < 1e-9);
  assert.ok(apart(moved, expected) < 1e-9);
});

test("the gradient is that of finite differences", () => {
  const layer = compileProblem(runs[0]);
  for (const loss of ["logistic", "exponential", "linear"]) {
    const W = Float64Array.of(0.3, -0.2, 0.5, 0.1), h = 1e-5;
    const scale = scaledGradient(layer, W, loss), G = layer.G.map((g) => g * Math.exp(scale));
    W.forEach((w, k) => {
      const at = (x) => lossOf(layer, W.with(k, x), loss);
      assert.ok(Math.abs((at(w + h) - at(w - h)) / (2 * h) - G[k]) < 1e-9);
    });
  }
});

test("sequences of unequal length; a single token feels no force", () => {
  const layer = compileProblem({ X: [[[1, 0], [0, 1], [-1, 0]], [[0.5, 0.5]]], z: [[1, 0], [0, 1]], scores: [[1, 0, 0], [3]] });
  const W = startDirect(layer, ZERO);
  advance(layer, W, 300, { rate: 0.1, normalized: true, loss: "logistic" });
  assert.deepEqual(selectedBy(layer, W.W), [0, 0]);
  assert.deepEqual(attentionOf(layer, W.W)[1], [1]);
  assert.equal(W.W[1], 0); // queries are orthogonal: the second column gets nothing
  const alone = compileProblem({ X: [[[1, 2]]], z: [[1, 0]], scores: [[1]] });
  const still = startDirect(alone, ZERO);
  advance(alone, still, 10, { rate: 0.1, normalized: true, loss: "logistic" });
  assert.deepEqual([...still.W], [0, 0, 0, 0]);
});

test("extreme numbers give numbers", () => {
  for (const size of [1e-150, 1e150]) {
    for (const loss of ["logistic", "exponential", "linear"]) {
      for (const normalized of [true, false]) {
        const layer = compileProblem({ X: [[[size, 0], [0, size]]], z: [[1, 1]], scores: [[size, -size]] });
        const W = startDirect(layer, ZERO), KQ = startFactored(layer, [[1e-3, 0], [0, 1e-3]], ZERO);
        for (const weights of [W, KQ]) {
          advance(layer, weights, 50, { rate: 10, normalized, loss });
          assert.ok(matrixOf(weights).every(Number.isFinite), `${size} ${loss} ${normalized}`);
        }
      }
    }
  }
});
