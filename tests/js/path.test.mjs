import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { compileProblem, lossOf } from "../../svmlib/widgets/js/attention.mjs";
import { logExcess, matrixOfPair, pathPoint } from "../../svmlib/widgets/js/path.mjs";

const { points } = JSON.parse(readFileSync(new URL("golden/paths.json", import.meta.url)));
const nuclear = ([a, b, c, d]) => Math.hypot(a + d, c - b) / 2 + Math.hypot(a - d, b + c) / 2 + Math.abs(Math.hypot(a + d, c - b) - Math.hypot(a - d, b + c)) / 2;
const sizes = { fro: (W) => Math.hypot(...W), nuc: nuclear };

for (const norm of ["fro", "nuc"]) {
  test(`${norm}: minimisers of svmlib at every radius`, () => {
    for (const data of points.filter((p) => p.norm === norm)) {
      const layer = compileProblem(data);
      let last = null;
      data.radii.forEach((R, k) => {
        const found = pathPoint(layer, norm, R, data.loss, Float64Array.from(data.svm.flat()), last), what = `${data.name} ${data.loss} ${R}`;
        last = found.W;
        assert.equal(found.inside, data.inside[k], what);
        assert.ok(Math.abs(found.value - data.value[k]) < 1e-9 * Math.max(1, Math.abs(data.value[k])), `${what}: ${found.value} ${data.value[k]}`);
        const off = Math.max(...found.W.map((w, i) => Math.abs(w - data.W[k].flat()[i]))) / R;
        assert.ok(off < 1e-6, `${what}: ${off}`);
        if (!found.inside) assert.ok(Math.abs(sizes[norm](found.W) / R - 1) < 1e-9, what);
      });
    }
  });
}

test("the logarithm of the excess and its gradient, near and far", () => {
  const layer = compileProblem(points[0]);
  for (const loss of ["logistic", "exponential", "linear"]) {
    const w = [0.3, -0.2, 0.5, 0.1], { value, grad } = logExcess(layer, w, loss), h = 1e-6;
    const least = layer.optimal.reduce((sum, t, i) => sum + { logistic: Math.log1p(Math.exp(-layer.scores[i][t])), exponential: Math.exp(-layer.scores[i][t]), linear: -layer.scores[i][t] }[loss], 0) / layer.n;
    assert.ok(Math.abs(Math.log(lossOf(layer, matrixOfPair(w), loss) - least) - value) < 1e-10);
    for (const far of [1, 40]) {
      const at = w.map((x) => far * x), g = far === 1 ? grad : logExcess(layer, at, loss).grad;
      at.forEach((x, k) => {
        const f = (y) => logExcess(layer, at.with(k, y), loss).value;
        assert.ok(Math.abs((f(x + h) - f(x - h)) / (2 * h) - g[k]) < 1e-6, `${loss} ${far} ${k}`);
      });
    }
  }
});

test("a best token between two others: the minimiser is inside the ball", () => {
  const layer = compileProblem({ X: [[[-1, 0], [0, 0], [1, 0]]], z: [[1, 0]], scores: [[0, 1, 0]] });
  for (const norm of ["fro", "nuc"]) {
    const { W } = pathPoint(layer, norm, 20, "logistic");
    assert.ok(Math.abs(W[0]) < 1e-6, `${norm} ${W}`);
  }
});

test("nothing to learn, and huge radii, give numbers", () => {
  const flat = compileProblem({ X: [[[1, 0], [0, 1]]], z: [[1, 0]], scores: [[1, 1]] });
  assert.ok(pathPoint(flat, "fro", 5, "logistic").W.every(Number.isFinite));
  const layer = compileProblem(points[0]);
  for (const norm of ["fro", "nuc"]) assert.ok(pathPoint(layer, norm, 1e5, "logistic").W.every(Number.isFinite));
});
