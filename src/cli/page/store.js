/* Curves of the selected runs, as buckets: so many at most, however long the page is open.
 *
 * The server gives at most `wanted` buckets [x, least, mean, greatest, lines] of the stretch that is
 * asked for. Lines that come later (live.js) join the last bucket, or begin a new one; where there
 * are too many, neighbours are joined, two and two. No line is kept. */
'use strict';

T.store = {
  wanted: 400,
  most: 800,
  curves: new Map(), /* 'id key': curve */
  clock: new Map(), /* id: {step, hours} of the last line that was heard of */

  name: (id, key) => id + ' ' + key,

  of: (id, key) => T.store.curves.get(T.store.name(id, key)) || null,

  /* Asks for what is shown now. An answer that comes after another question is dropped. */
  async load(id, key) {
    const { x, from, to } = T.state, name = T.store.name(id, key);
    const before = T.store.curves.get(name);
    const asked = (before ? before.asked : 0) + 1;
    T.store.curves.set(name, { ...(before || { points: [], last: -Infinity }), asked });
    const query = { id, y: key, x, points: T.store.wanted };
    if (from !== null) Object.assign(query, { from, to });
    const found = await T.data.get('/api/curve', query);
    const now = T.store.curves.get(name);
    if (!now || now.asked !== asked) return false;
    T.store.curves.set(name, T.store.begin(found, x, to !== null, asked));
    return true;
  },

  begin(found, x, closed, asked) {
    const points = found ? found.points : [];
    const first = points.length ? points[0][0] : 0, last = found && points.length ? points[points.length - 1][0] : 0;
    return {
      asked, x, closed, points,
      unit: found ? found.unit : '',
      whole: found && points.length ? [found.first, found.last] : null,
      last: found && points.length ? Math.max(found.last, last) : -Infinity,
      lines: found ? found.lines : 0,
      missing: found ? found.missing || 0 : 0,
      width: points.length > 1 ? (last - first) / T.store.wanted : 0,
      start: last,
    };
  },

  /* Forgets what is not selected or not drawn any more. */
  prune(ids, keys) {
    for (const name of T.store.curves.keys()) {
      const blank = name.indexOf(' ');
      if (!ids.includes(name.slice(0, blank)) || !keys.includes(name.slice(blank + 1))) T.store.curves.delete(name);
    }
    for (const id of T.store.clock.keys()) if (!ids.includes(id)) T.store.clock.delete(id);
  },

  /* A line of metrics of a run. */
  add(id, line) {
    for (const [name, curve] of T.store.curves)
      if (name.startsWith(id + ' ')) T.store.addTo(curve, id, line, line[name.slice(id.length + 1)]);
  },

  xOf(curve, id, line) {
    if (curve.x === 'step') return line.step;
    if (curve.x === 'tokens') return line.tokens;
    const clock = T.store.clock.get(id);
    if (!clock || clock.step !== line.step) {
      const steps = clock ? Math.max(1, line.step - clock.step) : 1; /* not every line of a fast run is told */
      T.store.clock.set(id, { step: line.step, hours: (clock ? clock.hours : curve.last) + (steps * (line.step_ms || 0)) / 3.6e6 });
    }
    return T.store.clock.get(id).hours;
  },

  addTo(curve, id, line, value) {
    if (curve.x !== T.state.x || value === undefined) return;
    const x = T.store.xOf(curve, id, line);
    if (!T.known(x) || x <= curve.last) return;
    curve.last = x;
    curve.lines++;
    curve.whole = [curve.whole ? curve.whole[0] : x, x];
    if (curve.closed) return; /* a stretch of the past is looked at */
    if (!T.known(value)) {
      curve.missing++;
      return;
    }
    const points = curve.points, end = points[points.length - 1];
    if (end && x - curve.start < curve.width) {
      T.store.join(end, [x, value, value, value, 1]);
      return;
    }
    curve.start = x;
    points.push([x, value, value, value, 1]);
    if (points.length > T.store.most) T.store.halve(curve);
  },

  /* b is the later one. */
  join(a, b) {
    const lines = a[4] + b[4];
    a[0] = b[0];
    if (T.known(b[2])) {
      a[2] = T.known(a[2]) ? (a[2] * a[4] + b[2] * b[4]) / lines : b[2];
      a[1] = T.known(a[1]) ? Math.min(a[1], b[1]) : b[1];
      a[3] = T.known(a[3]) ? Math.max(a[3], b[3]) : b[3];
    }
    a[4] = lines;
  },

  halve(curve) {
    const points = [];
    for (let i = 0; i < curve.points.length; i += 2) {
      if (i + 1 < curve.points.length) T.store.join(curve.points[i], curve.points[i + 1]);
      points.push(curve.points[i]);
    }
    curve.points = points;
    curve.width = 2 * (curve.width || (points[points.length - 1][0] - points[0][0]) / (2 * points.length));
  },

  /* Means over the last `lines` lines, at each bucket; the means themselves where one has more. */
  smooth(points, lines) {
    if (lines <= 1) return points.map((p) => p[2]);
    const out = [];
    let first = 0, sum = 0, weight = 0;
    for (let i = 0; i < points.length; i++) {
      const p = points[i];
      if (!T.known(p[2])) {
        out.push(null);
        first = i + 1;
        sum = weight = 0;
        continue;
      }
      sum += p[2] * p[4];
      weight += p[4];
      while (first < i && weight - points[first][4] >= lines) {
        sum -= points[first][2] * points[first][4];
        weight -= points[first][4];
        first++;
      }
      out.push(sum / weight);
    }
    return out;
  },
};
