/* All charts: which there are, the tools that they share, and the legend. */
'use strict';

T.curves = {
  charts: new Map(), /* key: T.Chart */
  keys: [], /* what the selected runs have, all together */
  has: new Map(), /* id: the set of keys of one run */
  first: ['loss', 'eval_loss', 'lr', 'grad_norm', 'tokens_per_s', 'mfu'],
  titles: { loss: 'Loss', eval_loss: 'Held-out loss', lr: 'Learning rate', grad_norm: 'Gradient norm', tokens_per_s: 'Speed', mfu: 'MFU' },
  exact: ['lr', 'loss_scale', 'skipped'],
  never: ['step', 'tokens', 'time', 'version', 'epoch'],
  extra: [], /* what the reader asked for besides */
};

T.zoomTo = (from, to) => {
  if (from !== null && !(to > from)) return;
  T.state.from = from;
  T.state.to = to;
  T.curves.zoomed();
};

T.xRange = () => {
  let low = Infinity, high = -Infinity;
  for (const curve of T.store.curves.values())
    if (curve.whole) {
      low = Math.min(low, curve.whole[0]);
      high = Math.max(high, curve.whole[1]);
    }
  return high > low ? [low, high] : null;
};

T.zoomBy = (factor) => {
  const whole = T.xRange();
  if (!whole) return;
  const [from, to] = T.state.from === null ? whole : [T.state.from, T.state.to];
  const middle = T.cursor.x !== null && T.cursor.x >= from && T.cursor.x <= to ? T.cursor.x : (from + to) / 2;
  const low = middle - (middle - from) * factor, high = middle + (to - middle) * factor;
  if (low <= whole[0] && high >= whole[1]) T.zoomTo(null, null);
  else T.zoomTo(Math.max(low, whole[0]), Math.min(high, whole[1]));
};

T.panBy = (share) => {
  const whole = T.xRange();
  if (!whole || T.state.from === null) return;
  const width = T.state.to - T.state.from;
  const from = Math.min(Math.max(T.state.from + share * width, whole[0]), whole[1] - width);
  T.zoomTo(from, from + width);
};

/* What is there is drawn at once; the buckets of the stretch follow. */
T.curves.zoomed = () => {
  T.curves.redraw();
  T.id('curves').classList.toggle('zoomed', T.state.from !== null);
  T.announce(T.state.from === null ? 'all of the run is shown'
    : `from ${T.num(T.state.from)} to ${T.num(T.state.to)} ${T.axisTitle[T.state.x]}`);
  T.curves.reload();
};

T.curves.redraw = () => {
  for (const chart of T.curves.charts.values()) chart.redraw();
};

T.curves.shown = () => T.curves.keys.filter((k) => T.curves.first.includes(k.key) || T.curves.extra.includes(k.key))
  .sort((a, b) => T.curves.rank(a.key) - T.curves.rank(b.key));

T.curves.rank = (key) => (T.curves.first.includes(key) ? T.curves.first.indexOf(key) : 100 + T.curves.extra.indexOf(key));

T.curves.hasKey = (id, key) => T.curves.has.has(id) && T.curves.has.get(id).has(key);

/* Asks for the curves of all charts again. */
T.curves.reload = async () => {
  const keys = T.curves.shown().map((k) => k.key);
  T.store.prune(T.state.selected, keys);
  const asked = [];
  for (const id of T.state.selected)
    for (const key of keys.filter((k) => T.curves.hasKey(id, k)))
      asked.push(T.store.load(id, key).then((fresh) => fresh && T.curves.charts.has(key) && T.curves.charts.get(key).redraw()));
  const done = await Promise.allSettled(asked);
  const failed = done.find((d) => d.status === 'rejected');
  if (failed) T.emit('failed', failed.reason);
};

T.curves.findKeys = async () => {
  const ids = T.state.selected.slice(), found = new Map();
  for (const id of ids) {
    const doc = await T.data.get('/api/keys', { id });
    T.curves.has.set(id, new Set((doc ? doc.keys : []).map((key) => key.key)));
    for (const key of doc ? doc.keys : [])
      if (!found.has(key.key) && !T.curves.never.includes(key.key)) found.set(key.key, { ...key, help: key.title, title: T.curves.titleOf(key) });
  }
  if (ids.join() !== T.state.selected.join()) return false;
  for (const id of T.curves.has.keys()) if (!ids.includes(id)) T.curves.has.delete(id);
  T.curves.keys = [...found.values()];
  return true;
};

/* Short, with what it is as a hint. */
T.curves.titleOf = (key) => T.curves.titles[key.key] || key.key.replace(/_/g, ' ').replace(/^./, (c) => c.toUpperCase());

/* Charts are kept where they stay, so that the focus is not lost. */
T.curves.arrange = () => {
  const shown = T.curves.shown(), host = T.id('charts');
  for (const [key, chart] of T.curves.charts)
    if (!shown.some((k) => k.key === key)) {
      chart.element.remove();
      T.canvases.delete(chart.canvas);
      T.curves.charts.delete(key);
    }
  shown.forEach((key, at) => {
    if (!T.curves.charts.has(key.key)) T.curves.charts.set(key.key, new T.Chart(key));
    const element = T.curves.charts.get(key.key).element;
    if (host.children[at] !== element) host.insertBefore(element, host.children[at] || null);
  });
  /* The first is as wide as it takes to leave no hole in the last row, of three columns or two. */
  host.dataset.three = 3 - ((shown.length + 2) % 3);
  host.dataset.two = 2 - ((shown.length + 1) % 2);
  T.curves.showMore();
};

T.curves.showMore = () => {
  const others = T.curves.keys.filter((k) => !T.curves.first.includes(k.key));
  T.fill(T.id('more'), others.length ? T.el('span', { class: 'soft' }, 'More curves:') : null,
    others.map((key) => {
      const button = T.el('button', { type: 'button', class: 'small', title: key.help, 'aria-pressed': String(T.curves.extra.includes(key.key)) }, key.title);
      button.addEventListener('click', () => T.curves.toggle(key.key, button));
      return button;
    }));
};

T.curves.toggle = (key, button) => {
  const on = !T.curves.extra.includes(key);
  T.curves.extra = on ? [...T.curves.extra, key] : T.curves.extra.filter((k) => k !== key);
  T.keep('extra', T.curves.extra.join(','));
  button.setAttribute('aria-pressed', String(on));
  const more = T.id('more'), at = [...more.children].indexOf(button);
  T.curves.arrange();
  more.children[at].focus();
  T.curves.reload();
};

T.curves.select = async () => {
  const any = T.state.selected.length > 0;
  T.curves.legend();
  T.id('curves').hidden = !any;
  if (!any || !(await T.curves.findKeys())) return;
  T.curves.arrange();
  await T.curves.reload();
};

/* Which colour is whose; pressed, the run whose details are shown. */
T.curves.legend = () => {
  T.fill(T.id('legend'), T.state.selected.map((id, at) => T.el('li', {}, T.swatch(at), T.nameOf(id))));
};

T.curves.smoothSteps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

T.curves.tools = () => {
  const axis = T.el('select', { 'aria-label': 'x axis', onchange: (event) => {
    T.state.x = event.target.value;
    T.state.from = T.state.to = null;
    T.remember();
    T.store.curves.clear();
    T.store.clock.clear();
    T.curves.reload();
  } }, ['step', 'tokens', 'hours'].map((x) => T.el('option', { value: x, selected: x === T.state.x }, 'over ' + T.axisTitle[x])));
  const told = T.el('output', { class: 'soft' }, 'none');
  const smooth = T.el('input', { type: 'range', min: 0, max: T.curves.smoothSteps.length - 1, value: 0, 'aria-label': 'smoothing',
    'aria-valuetext': 'none', oninput: (event) => {
      T.state.smooth = T.curves.smoothSteps[event.target.value];
      const text = T.state.smooth === 1 ? 'none' : `mean of ${T.grouped(T.state.smooth)}`;
      T.tell(told, text);
      event.target.setAttribute('aria-valuetext', text);
      T.curves.redraw();
    } });
  const band = T.el('input', { type: 'checkbox', checked: T.state.band, onchange: (event) => {
    T.state.band = event.target.checked;
    T.curves.redraw();
  } });
  T.fill(T.id('curves-tools'), axis, T.el('label', {}, 'smooth', smooth, told), T.el('label', {}, band, 'min to max'),
    T.el('span', { class: 'group' }, T.zoomTools('curves', { zoom: T.zoomBy, pan: T.panBy, reset: () => T.zoomTo(null, null) })));
};

T.curves.begin = () => {
  T.curves.extra = (T.kept('extra') || '').split(',').filter(Boolean);
  T.curves.tools();
  T.on('selected', () => T.curves.select().catch((error) => T.emit('failed', error)));
  T.on('cursor', T.curves.redraw);
  T.on('lines', T.throttle(200, T.curves.redraw));
  T.on('again', () => T.curves.reload());
};
