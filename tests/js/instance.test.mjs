import assert from "node:assert/strict";
import { test } from "node:test";
import { instanceOf, instancePython, mendInstance } from "../../svmlib/widgets/js/instance.mjs";

const state = { X: [[[1, 0], [0, 1]], [[2, 0]]], z: [[1, 1]], v: [3, 4], scoring: "head", scores: [[9]] };

test("every sequence has a query, and scores of the head", () => {
  const mended = mendInstance(state);
  assert.deepEqual(mended.z, [[1, 1], [1, 0]]);
  assert.deepEqual(instanceOf(mended).scores, [[3, 4], [6]]);
});

test("scores set by hand begin at the head's, within bounds, and are kept", () => {
  assert.deepEqual(mendInstance({ ...state, scoring: "own", scores: [[0]] }).scores, [[3, 4], [5]]);
  assert.deepEqual(mendInstance({ ...state, scoring: "own", scores: [[1], [2, 8]] }).scores, [[1, 4], [2]]);
});

test("Python gets masks where sequences differ in length", () => {
  const { data } = instancePython(mendInstance(state));
  assert.match(data.join("\n"), /mask=\[\[1,1\],\[1,0\]\]/);
  assert.match(instancePython(mendInstance({ ...state, X: state.X.slice(0, 1) })).data[0], /v=\[3,4\]/);
});
