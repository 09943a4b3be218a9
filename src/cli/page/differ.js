/* Several runs beside each other: the settings in which they differ, and losses at equal steps. */
'use strict';

T.differ = {};

/* Names and places differ always and say nothing. */
T.differ.boring = ['run.dir', 'run.page', 'run.resume'];

T.differ.text = (value) => {
  if (value === undefined || value === null) return '–';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
};

T.differ.settings = (ids, details) => {
  const names = new Set(details.flatMap((doc) => Object.keys((doc && doc.settings) || {})));
  return [...names].filter((name) => !T.differ.boring.includes(name)).sort()
    .map((name) => ({ name, values: details.map((doc) => T.differ.text(((doc && doc.settings) || {})[name])) }))
    .filter((row) => new Set(row.values).size > 1);
};

/* Of a run, the mean of the bucket nearest to a step. */
T.differ.lossAt = (id, step) => {
  const curve = T.store.of(id, 'loss');
  if (!curve || !curve.points.length || curve.x !== 'step') return null;
  const points = curve.points;
  if (step > points[points.length - 1][0] * 1.02 || step < points[0][0]) return null;
  let best = points[0];
  for (const p of points) if (Math.abs(p[0] - step) < Math.abs(best[0] - step)) best = p;
  return best[2];
};

T.differ.last = (ids) => {
  const run = (id) => T.runOf(id) || {};
  return [
    { name: 'step', values: ids.map((id) => T.grouped(run(id).step)) },
    { name: 'loss of the last step', values: ids.map((id) => T.num(run(id).loss, 5)) },
    { name: 'least held-out loss', values: ids.map((id) => T.num(run(id).best_eval_loss, 5)), best: ids.map((id) => run(id).best_eval_loss) },
    { name: 'tokens', values: ids.map((id) => T.count(run(id).tokens)) },
    { name: 'tokens/s', values: ids.map((id) => T.count(run(id).tokens_per_s)) },
  ];
};

T.differ.equal = (doc) => {
  const rows = (doc && (doc.steps || doc.loss_at_steps || doc.equal_steps)) || [];
  return Array.isArray(rows) ? rows.filter((row) => row && 'a' in row && 'b' in row) : [];
};

T.differ.table = (caption, ids, rows) => T.table(caption, [
  { title: '', cell: (row) => row.name },
  ...ids.map((id, at) => ({ title: T.el('span', {}, T.swatch(at), T.nameOf(id)), number: true, cell: (row) => {
    const least = row.best ? Math.min(...row.best.filter(T.known)) : null;
    return row.best && row.best[at] === least ? T.el('b', { class: 'good' }, row.values[at], T.el('span', { class: 'hidden' }, ' (least)')) : row.values[at];
  } })),
], rows);

T.differ.draw = async () => {
  const ids = T.state.selected.slice(), section = T.id('differ');
  section.hidden = ids.length < 2;
  if (ids.length < 2) return;
  const details = await Promise.all(ids.map((id) => T.detailsOf(id)));
  const diff = ids.length === 2 ? await T.data.get('/api/diff', { a: ids[0], b: ids[1] }).catch(() => null) : null;
  if (ids.join() !== T.state.selected.join()) return;
  const rows = T.differ.settings(ids, details), steps = T.differ.equal(diff);
  T.fill(T.id('differ-body'),
    T.el('div', { class: 'beside' },
      T.el('div', {}, T.el('h3', {}, 'Settings'),
        rows.length ? T.differ.table('settings in which the runs differ', ids, rows)
          : T.el('p', { class: 'soft' }, 'All settings are the same.')),
      T.el('div', {}, T.el('h3', {}, 'Results'), T.differ.table('results of the runs', ids, T.differ.last(ids))),
      steps.length ? T.el('div', {}, T.el('h3', {}, 'Loss at equal steps'), T.table('loss at equal steps', [
        { title: 'step', number: true, cell: (row) => T.grouped(row.step) },
        { title: T.el('span', {}, T.swatch(0), T.nameOf(ids[0])), number: true, cell: (row) => T.num(row.a, 5) },
        { title: T.el('span', {}, T.swatch(1), T.nameOf(ids[1])), number: true, cell: (row) => T.num(row.b, 5) },
        { title: 'difference', number: true, cell: (row) => T.differ.signed(row.b - row.a) },
      ], steps)) : null));
};

T.differ.signed = (value) => (T.known(value) ? (value > 0 ? '+' : value < 0 ? '−' : '') + T.num(Math.abs(value), 4) : '–');

T.differ.begin = () => {
  T.on('selected', () => T.differ.draw().catch((error) => T.emit('failed', error)));
};
