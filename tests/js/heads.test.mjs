import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { logSoftmax } from "../../svmlib/widgets/js/attention.mjs";
import { bestMixture, mixtureMargin, sparsemaxOf, trainMixture } from "../../svmlib/widgets/js/heads.mjs";

const golden = (name) => JSON.parse(readFileSync(new URL(`golden/${name}.json`, import.meta.url)));
const close = (a, b, tolerance) => a.forEach((x, k) => assert.ok(Math.abs(x - b[k]) <= tolerance, `${k}: ${x} ${b[k]}`));

test("logarithms of softmax probabilities, underflow and ties included", () => {
  const { rows, logs } = golden("softmaxes");
  rows.forEach((row, k) => close(logSoftmax(row), logs[k], 1e-12 * Math.max(1, ...logs[k].map(Math.abs))));
});

test("sparsemax", () => {
  const { rows, sparsemax } = golden("mixtures");
  rows.forEach((row, k) => close(sparsemaxOf(row), sparsemax[k], 1e-12));
  for (const huge of [[1e300, 0], [-1e300, -1e300], [0, 0, 0]]) {
    const s = sparsemaxOf(huge);
    assert.ok(Math.abs(s.reduce((a, b) => a + b) - 1) < 1e-12 && s.every((x) => x >= 0), String(s));
  }
});

test("training before the head with a dial", () => {
  for (const { gamma, lambda, start, rate, normalized, steps, logits } of golden("mixtures").cases) {
    const a = [...start];
    let at = 0;
    steps.forEach((k, r) => {
      trainMixture(a, k - at, { gamma, lambda, rate, normalized });
      at = k;
      close(a, logits[r], 1e-10);
    });
  }
});

test("two tokens: the second enters at half the difference of the scores", () => {
  assert.deepEqual(bestMixture([1, 0.4], 0.299), [1, 0]);
  assert.ok(bestMixture([1, 0.4], 0.301)[1] > 0);
  assert.deepEqual(bestMixture([1, 1, 0], 0), [0.5, 0.5, 0]);
});

test("no mixture is better than the best one", () => {
  const gamma = [1, 0.8, 0.3, -0.2];
  for (const lambda of [0.05, 0.4, 3]) {
    const best = mixtureMargin(bestMixture(gamma, lambda), gamma, lambda);
    for (let k = 0; k < 200; k++) {
      const s = logSoftmax(gamma.map((_, t) => 9 * Math.sin(k * (t + 1.3)))).map(Math.exp);
      assert.ok(mixtureMargin(s, gamma, lambda) <= best + 1e-12);
    }
  }
});

test("extreme numbers give numbers", () => {
  for (const start of [[-800, 0, 800], [0, 0, 0]]) {
    for (const normalized of [true, false]) {
      const a = [...start];
      trainMixture(a, 100, { gamma: [5, -5, 5], lambda: 10, rate: 10, normalized });
      assert.ok(a.every(Number.isFinite));
    }
  }
});
