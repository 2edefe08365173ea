import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { compileProblem } from "../../svmlib/widgets/js/attention.mjs";
import { frobeniusSVM, nuclearSVM } from "../../svmlib/widgets/js/svm.mjs";

const { instances } = JSON.parse(readFileSync(new URL("golden/svms.json", import.meta.url)));
const solvers = { fro: frobeniusSVM, nuc: nuclearSVM };

/** The least margin, and a bound of the value from below by the multipliers alone. */
function certificate(layer, data, svm, norm) {
  let least = Infinity;
  const sum = [0, 0, 0, 0];
  data.X.forEach((tokens, i) => tokens.forEach((x, t) => {
    if (t === data.selected[i]) return;
    const A = [0, 1].flatMap((a) => [0, 1].map((b) => (data.X[i][data.selected[i]][a] - x[a]) * data.z[i][b]));
    least = Math.min(least, A.reduce((s, v, k) => s + v * svm.W[k], 0));
    A.forEach((v, k) => (sum[k] += svm.multipliers[i][t] * v));
  }));
  const total = svm.multipliers.flat().reduce((a, b) => a + b, 0);
  assert.ok(svm.multipliers.flat().every((l) => l >= 0));
  const [a, b, c, e] = sum;
  const spectral = (Math.hypot(a + e, c - b) + Math.hypot(a - e, b + c)) / 2;
  return { least, bound: norm === "nuc" ? total / spectral : total / Math.hypot(...sum) };
}

for (const norm of ["fro", "nuc"]) {
  test(`${norm}: values, matrices, ranks and support tokens of svmlib, and a certificate of their own`, () => {
    let solved = 0;
    for (const data of instances) {
      const layer = compileProblem(data), svm = solvers[norm](layer, data.selected), expected = data[norm];
      assert.equal(svm.status, expected ? "solved" : "infeasible", data.name);
      if (!expected) continue;
      solved++;
      assert.ok(Math.abs(svm.value / expected.value - 1) < 1e-9, `${data.name}: ${svm.value} ${expected.value}`);
      const off = Math.max(...svm.W.map((w, k) => Math.abs(w - expected.W.flat()[k]))) / expected.value;
      assert.ok(off < (norm === "fro" ? 1e-9 : 1e-6), `${data.name}: ${off}`); // nuclear ones need not be unique
      assert.equal(svm.rank, expected.rank, data.name);
      assert.deepEqual(svm.support, expected.support, data.name);
      const { least, bound } = certificate(layer, data, svm, norm);
      assert.ok(least >= 1 - 1e-9 && bound >= svm.value * (1 - 1e-9), `${data.name}: ${least}, ${bound} of ${svm.value}`);
      assert.ok(svm.gap < 1e-9 * svm.value);
    }
    assert.ok(solved > 50 && solved < instances.length);
  });
}

const solve = (X, z, selected, norm) => solvers[norm](compileProblem({ X, z, scores: X.map((x) => x.map(() => 0)) }), selected);

test("by hand: one sequence of two tokens", () => {
  for (const norm of ["fro", "nuc"]) {
    // min over W of ||W|| with (1, 0) W (1, 0)^T >= 1
    const svm = solve([[[1, 0], [0, 0]]], [[1, 0]], [0], norm);
    assert.ok(Math.abs(svm.value - 1) < 1e-12);
    assert.ok(Math.max(...svm.W.map((w, k) => Math.abs(w - [1, 0, 0, 0][k]))) < 1e-12);
  }
});

test("the wrong limit's two SVMs", () => {
  const X = [[[0, 0], [-2, 1]], [[0, 0], [1, 0]]], z = [[1, 0], [1, 0]];
  const p = (selected) => [0, 2].map((k) => solve(X, z, selected, "fro").W[k]);
  assert.deepEqual(p([1, 1]).map((x) => Number(x.toFixed(9))), [1, 3]);
  assert.deepEqual(p([0, 1]).map((x) => Number(x.toFixed(9))), [1, 0]);
});

test("what cannot be separated is recognised: a duplicate, a token between others, contrary orders of one query", () => {
  for (const norm of ["fro", "nuc"]) {
    assert.equal(solve([[[1, 2], [1, 2]]], [[1, 0]], [0], norm).status, "infeasible");
    assert.equal(solve([[[-1, 0.5], [0, 0], [1, -0.5]]], [[1, 0]], [1], norm).status, "infeasible");
    const both = [[[1, 0], [0, 1]], [[1, 0], [0, 1]]];
    assert.equal(solve(both, [[1, 0], [1, 0]], [0, 1], norm).status, "infeasible");
    assert.equal(solve([[[1, 0], [0, 1]]], [[0, 0]], [0], norm).status, "infeasible");
  }
});

test("nothing to separate gives the zero matrix", () => {
  assert.equal(solve([[[1, 2]]], [[1, 0]], [0], "nuc").value, 0);
});

test("near duplicates and extreme sizes give a certified answer", () => {
  for (const eps of [1e-3, 1e-5, 1e-7]) {
    for (const norm of ["fro", "nuc"]) {
      const X = [[[1, 0], [1 - eps, 0], [0, 1]], [[0, 1], [0.3, 0.2]]], z = [[1, 0.2], [-0.3, 1]];
      const svm = solve(X, z, [0, 0], norm);
      assert.equal(svm.status, "solved", `${norm} ${eps}`);
      const { least, bound } = certificate(null, { X, z, selected: [0, 0] }, svm, norm);
      assert.ok(least >= 1 - 1e-9 && bound >= svm.value * (1 - 1e-8), `${norm} ${eps} ${least} ${bound / svm.value}`);
    }
  }
  for (const size of [1e-100, 1e100]) {
    const svm = solve([[[size, 0], [0, size]]], [[1, 1]], [0], "nuc");
    assert.ok(Math.abs(svm.value * size - 0.5) < 1e-9, `${size}: ${svm.value}`);
  }
});
