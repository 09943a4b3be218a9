/* Where documents come from: the server that the page came from, or the report that it is in.
 *
 * A report has them as {url: document} in an element of its own. It has curves once, over steps;
 * other stretches and other x axes are made of these here, so that zooming works without a server. */
'use strict';

T.data = {
  held: null, /* {url: document} of a report; null: there is a server */

  begin() {
    const element = T.id('report');
    if (element) T.data.held = JSON.parse(element.textContent);
  },

  url(path, query) {
    const words = Object.entries(query || {}).filter(([, value]) => value !== null && value !== undefined);
    return path + (words.length ? '?' + words.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join('&') : '');
  },

  /* Resolves to the document, or to null where there is none; fails when there is no answer. */
  async get(path, query) {
    if (T.data.held) return T.data.find(path, query || {});
    const answer = await fetch(T.data.url(path, query), { cache: 'no-store', credentials: 'same-origin' });
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.json();
  },

  find(path, query) {
    if (path === '/api/curve') return T.data.curve(query);
    const found = T.data.held[T.data.url(path, query)];
    return found === undefined ? null : found;
  },

  heldCurve(id, y, x) {
    return T.data.held[T.data.url('/api/curve', { id, y, x })] || null;
  },

  curve(query) {
    const whole = T.data.heldCurve(query.id, query.y, 'step');
    if (!whole) return null;
    let points = whole.points;
    if (query.x !== 'step') {
      const tokens = T.data.heldCurve(query.id, 'tokens', 'step'), hours = T.data.heldCurve(query.id, 'tokens', 'hours');
      if (!tokens || !hours) return null;
      const at = (step) => T.data.between(tokens.points, 0, 2, step);
      const x = query.x === 'tokens' ? at : (step) => T.data.between(hours.points, 2, 0, at(step));
      points = points.map((p) => [x(p[0]), p[1], p[2], p[3], p[4]]);
    }
    const first = points.length ? points[0][0] : 0, last = points.length ? points[points.length - 1][0] : 0;
    const from = T.known(query.from) ? query.from : -Infinity, to = T.known(query.to) ? query.to : Infinity;
    return { ...whole, x: query.x, first, last, points: points.filter((p) => p[0] >= from && p[0] <= to) };
  },

  /* Points grow in both of their columns: the value of one where the other has that of `at`. */
  between(points, from, to, at) {
    let low = 0, high = points.length - 1;
    if (high < 0) return at;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][from] <= at) low = middle;
      else high = middle;
    }
    const a = points[low], b = points[high];
    return b[from] === a[from] ? a[to] : a[to] + ((b[to] - a[to]) * (at - a[from])) / (b[from] - a[from]);
  },
};
