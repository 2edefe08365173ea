import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { addressWith, cleanState, initialState, mendValue, randomState, stateFromAddress, stateFromText, stateToText } from "../../svmlib/widgets/js/state.mjs";

const folder = new URL("../../svmlib/widgets/js/", import.meta.url);
const specs = readdirSync(folder).filter((f) => f.endsWith(".json")).map((f) => JSON.parse(readFileSync(new URL(f, folder))));

// A generator with a seed (mulberry32): the same states every time.
export function seeded(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const toy = {
  name: "toy", version: 2, title: "Toy", preset: "a",
  presets: { a: { label: "A", state: {} }, b: { label: "B", state: { rate: 5, points: [[3, 3]] } } },
  fields: [
    { name: "rate", label: "Rate", kind: "number", min: 0.1, max: 10, default: 1 },
    { name: "steps", label: "Steps", kind: "integer", min: 1, max: 100, default: 10 },
    { name: "loss", label: "Loss", kind: "choice", options: { log: "logistic", exp: "exponential" }, default: "log" },
    { name: "open", label: "Open", kind: "flag", default: false },
    { name: "points", kind: "array", shape: [[1, 3], [2, 2]], min: -5, max: 5, default: [[0, 0]] },
  ],
};

test("numbers are clamped, words that are no numbers refused", () => {
  assert.equal(mendValue(toy.fields[0], 1e9), 10);
  assert.equal(mendValue(toy.fields[0], -Infinity), 0.1);
  assert.equal(mendValue(toy.fields[0], "2.5"), 2.5);
  for (const bad of ["", "x", NaN, null, [], {}, true]) assert.equal(mendValue(toy.fields[0], bad), undefined);
  assert.equal(mendValue(toy.fields[1], 7.6), 8);
  assert.equal(mendValue(toy.fields[2], "constructor"), undefined);
});

test("arrays keep their bounds at every level", () => {
  assert.deepEqual(mendValue(toy.fields[4], [[1, 9], [2, 2]]), [[1, 5], [2, 2]]);
  assert.deepEqual(mendValue(toy.fields[4], [[1, 1], [2, 2], [3, 3], [4, 4]]), [[1, 1], [2, 2], [3, 3]]);
  for (const bad of [[], [[1]], [[1, "x"]], [[1, NaN]], "[[1,2]]", {}]) assert.equal(mendValue(toy.fields[4], bad), undefined);
});

test("what was changed is named, what is unknown is passed over", () => {
  const { state, mended } = cleanState(toy, { preset: "b", rate: 99, steps: 3, loss: "mse", colour: "red" });
  assert.deepEqual(state, { preset: "b", rate: 10, steps: 3, loss: "log", open: false, points: [[3, 3]] });
  assert.deepEqual(mended, ["Rate", "Loss"]);
  for (const raw of [null, undefined, 3, "x", [1]]) assert.deepEqual(cleanState(toy, raw).state, initialState(toy));
  assert.deepEqual(cleanState(toy, { preset: "toString" }).mended, ["preset"]);
});

test("a preset's state is a copy", () => {
  initialState(toy, "b").points[0][0] = 7;
  assert.deepEqual(initialState(toy, "b").points, [[3, 3]]);
});

test("texts name what differs from the preset only, and give it back", () => {
  assert.equal(stateToText(toy, initialState(toy)), "2");
  const state = { ...initialState(toy, "b"), loss: "exp", points: [[0.1, 0.30000000000000004]] };
  assert.equal(stateToText(toy, state), "2;preset:b;loss:exp;points:[[0.1,0.30000000000000004]]");
  assert.deepEqual(stateFromText(toy, stateToText(toy, state)).state, state);
});

test("texts of another version, or broken ones, do no harm", () => {
  assert.equal(stateFromText(toy, "1;rate:3"), null);
  assert.equal(stateFromText(toy, ""), null);
  const { state, mended } = stateFromText(toy, "2;rate:;steps;:;points:[[1,;loss:exp;rate:{");
  assert.deepEqual(state, { ...initialState(toy), loss: "exp" });
  assert.deepEqual(mended, ["Rate", "points"]);
});

test("an address carries several figures and its anchor", () => {
  const first = addressWith("https://a.example/b/c.html?x=1#fig", toy, { ...initialState(toy), rate: 2 });
  assert.equal(first, "https://a.example/b/c.html?x=1&toy=2;rate:2#fig");
  const other = { ...toy, name: "other" };
  const both = addressWith(first, other, { ...initialState(toy), points: [[1, 2]] });
  assert.equal(both, "https://a.example/b/c.html?x=1&toy=2;rate:2&other=2;points:[[1,2]]#fig");
  assert.equal(stateFromAddress(both, toy).state.rate, 2);
  assert.deepEqual(stateFromAddress(both, other).state.points, [[1, 2]]);
  assert.equal(addressWith(both, toy, initialState(toy)), "https://a.example/b/c.html?x=1&other=2;points:[[1,2]]#fig");
});

for (const spec of specs) {
  test(`${spec.name}: presets and defaults are within bounds; random states survive an address`, () => {
    for (const preset of Object.keys(spec.presets)) {
      assert.deepEqual(cleanState(spec, initialState(spec, preset)), { state: initialState(spec, preset), mended: [] });
    }
    for (let seed = 0; seed < 50; seed++) {
      const state = randomState(spec, seeded(seed));
      const back = stateFromAddress(addressWith("file:///a/b.html", spec, state), spec);
      assert.deepEqual(back, { state, mended: [] });
    }
  });
}
