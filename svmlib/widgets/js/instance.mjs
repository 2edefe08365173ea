// An instance in the plane as figures keep it: tokens X, queries z, and scores from a head v or set by hand.

export const round = (x) => Math.round(x * 1e4) / 1e4; // what a hand sets needs no more digits

const headScores = ({ X, v }) => X.map((tokens) => tokens.map((x) => x[0] * v[0] + x[1] * v[1]));

/** A query for every sequence and, where scores are set by hand, one for every token: at first the head's. */
export function mendInstance(state) {
  const z = state.X.map((_, i) => state.z[i] ?? [1, 0]);
  if (state.scoring === "head") return { ...state, z, scores: [[0]] };
  const known = state.scores.length > 1 || state.X.length === 1 ? state.scores : [];
  const scores = headScores(state).map((row, i) => row.map((s, t) => known[i]?.[t] ?? Math.max(-5, Math.min(5, round(s)))));
  return { ...state, z, scores };
}

/** The data for `compileProblem`. */
export const instanceOf = (state) => ({ X: state.X, z: state.z, scores: state.scoring === "own" ? state.scores : headScores(state) });

/** Lines of Python that make the same problem `p`; `f` writes values. */
export function instancePython(state) {
  const f = (value) => JSON.stringify(value);
  const lengths = state.X.map((x) => x.length), T = Math.max(...lengths);
  const pad = (rows, fill) => rows.map((row) => [...row, ...Array(T - row.length).fill(fill)]);
  const ragged = lengths.some((k) => k < T);
  const mask = ragged ? `, mask=${f(pad(lengths.map((k) => Array(k).fill(1)), 0))}` : "";
  const data = state.scoring === "head" && !ragged
    ? [`p = sv.data.Problem(X=${f(state.X)}, z=${f(state.z)}, y=${f(state.X.map(() => 1))}, v=${f(state.v)})`]
    : [`keys = ${f(pad(state.X, [0, 0]))}`, `scores = ${f(pad(instanceOf(state).scores, 0))}`,
      `p = sv.data.Problem(np.array(scores)[..., None], ${f(state.z)}, ${f(state.X.map(() => 1))}, [1.0], keys=keys${mask})`];
  return { f, data };
}
