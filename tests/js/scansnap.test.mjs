import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { advanceScan, ascentOf, attentionOn, decoderProgress, decoderSpeed, readAttention, startScan, tokenProcess, transitionTime } from "../../svmlib/widgets/js/scansnap.mjs";

const { runs, times, clock } = JSON.parse(readFileSync(new URL("golden/scan_and_snap.json", import.meta.url)));
const near = (a, b, tolerance, what) => assert.ok(Math.abs(a - b) <= tolerance * Math.max(1, Math.abs(b)), `${what}: ${a} ${b}`);

for (const data of runs) {
  test(`population steps: ${data.name}`, () => {
    const process = tokenProcess(data.P, data.oneQuery, data.M), run = startScan(process);
    data.steps.forEach((k, r) => {
      advanceScan(process, run, k - run.step, data);
      assert.equal(run.step, k);
      const up = ascentOf(process, run);
      near(up.loss, data.loss[r], 1e-10, "loss");
      near(up.sent, data.sent[r], 1e-10, "sent");
      data.z[r].flat().forEach((z, i) => near(run.z[i], z, 1e-10, `z ${i}`));
      data.s[r].forEach((row, c) => {
        const s = attentionOn(process, run.z, c);
        row.forEach((p, l) => near(s[l], p, 1e-10, `s ${c} ${l}`));
        const { common, entropy } = readAttention(process, s);
        near(common, data.common[r][c], 1e-10, "common");
        near(entropy, data.entropy[r][c], 1e-10, "entropy");
      });
    });
  });
}

test("the direction of ascent is that of finite differences, all tokens of the vocabulary counted", () => {
  const process = tokenProcess([[0.5, 0.3, 0.2, 0], [0.5, 0, 0.1, 0.4]], true, 9), run = startScan(process);
  advanceScan(process, run, 5, { decoderRate: 2, attentionRate: 1, momentum: 0 });
  const up = ascentOf(process, run), h = 1e-6;
  for (const [name, weight] of [["z", 1], ["D", 1]]) {
    run[name].forEach((w, i) => {
      const at = (x) => ascentOf(process, { ...run, [name]: run[name].with(i, x) }).loss;
      // the last column stands for all tokens that are no label
      const times = name === "D" && i % 3 === 2 ? 7 : weight;
      near(-(at(w + h) - at(w - h)) / (2 * h), times * up[name][i], 1e-8, `${name} ${i}`);
    });
  }
});

test("the decoder's clock: progress, speed, transition", () => {
  for (const { M, C, rate, speed, progress, transition } of clock) {
    times.forEach((t, k) => {
      near(decoderProgress((rate * t) / C, M) / progress[k], 1, 1e-12, `progress at ${t}`);
      near(decoderSpeed(t, M, C, rate) / speed[k], 1, 1e-9, `speed at ${t}`);
    });
    near(transitionTime(M, C, rate), transition, 1e-12, "transition");
  }
  assert.equal(decoderProgress(0, 10), 0);
});

test("rates that blow up stop the run with numbers", () => {
  const process = tokenProcess([[1, 1, 0], [1, 0, 1]], true, 10), run = startScan(process);
  advanceScan(process, run, 2000, { decoderRate: 1e200, attentionRate: 1e200, momentum: 0.95 });
  assert.ok([...attentionOn(process, run.z, 0)].every((s) => s >= 0 && s <= 1));
});
