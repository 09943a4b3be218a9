/* The list of runs: how each of them goes, and which are looked at. Rows stay while their runs do,
 * so that the focus of the keyboard is not lost when numbers change. */
'use strict';

T.runs = { rows: new Map(), filter: '' };

T.stateMarks = { running: '▶', stalled: '⏸', done: '✓', stopped: '■', failed: '✕' };

T.badge = (state) => T.el('span', { class: 'badge ' + state }, T.el('span', { 'aria-hidden': 'true' }, (T.stateMarks[state] || '·') + ' '), state);

/* The losses from the first step to the last, as a small line. */
T.sparkline = (values) => {
  const width = 92, height = 22, seen = values.map((y, x) => [x, y]).filter((p) => T.known(p[1]));
  const svg = T.svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, class: 'spark', 'aria-hidden': 'true' });
  if (seen.length < 2) return svg;
  const low = Math.min(...seen.map((p) => p[1])), high = Math.max(...seen.map((p) => p[1]));
  const places = seen.map(([x, y]) => `${((x / (values.length - 1)) * (width - 4) + 2).toFixed(1)},` +
    `${(height - 3 - ((y - low) / (high - low || 1)) * (height - 6)).toFixed(1)}`);
  svg.append(T.svg('polyline', { points: places.join(' ') }));
  return svg;
};

T.runs.columns = ['', 'run', 'state', 'step', 'left', 'loss', 'curve', 'tokens/s', 'layout', 'why'];

T.runs.makeRow = (run) => {
  const row = { cells: {} };
  row.check = T.el('input', { type: 'checkbox', onchange: () => T.runs.toggle(run.id, row.check.checked) });
  row.name = T.el('button', { type: 'button', class: 'name', onclick: () => T.select([run.id], run.id) });
  row.bar = T.el('span', { class: 'bar' }, T.el('span', {}));
  row.step = T.el('span', {});
  const cell = (name, ...children) => (row.cells[name] = T.el('td', { class: name, 'data-title': name }, ...children));
  row.element = T.el('tr', {},
    T.el('td', { class: 'check' }, row.check), T.el('th', { scope: 'row', class: 'run' }, row.name), cell('state'),
    cell('step', row.step, row.bar), cell('left'), cell('loss'), cell('curve'), cell('speed'), cell('layout'), cell('why'));
  return row;
};

T.runs.update = (row, run) => {
  const at = T.state.selected.indexOf(run.id), { cells } = row;
  row.element.classList.toggle('chosen', at >= 0);
  row.element.style.setProperty('--mine', at >= 0 ? `var(--c${at % 8})` : 'transparent');
  row.check.checked = at >= 0;
  row.check.setAttribute('aria-label', `show the curves of ${run.run}`);
  T.tell(row.name, T.nameOf(run.id));
  row.name.title = `${run.run}: show this run alone`;
  if (row.state !== run.state) T.fill(cells.state, T.badge(run.state));
  row.state = run.state;
  T.tell(row.step, run.total ? `${T.grouped(run.step)} / ${T.grouped(run.total)}` : T.grouped(run.step));
  row.bar.firstChild.style.width = run.total ? `${Math.min(100, (100 * run.step) / run.total)}%` : '0';
  row.bar.hidden = !run.total;
  T.tell(cells.left, T.known(run.left_s) ? T.duration(run.left_s) : '');
  T.tell(cells.loss, T.num(run.loss));
  const curve = run.curve || [], last = curve.length + ':' + curve[curve.length - 1];
  if (row.last !== last) T.fill(cells.curve, T.sparkline(curve));
  row.last = last;
  T.tell(cells.speed, T.count(run.tokens_per_s));
  T.tell(cells.layout, T.layoutOf(run));
  T.tell(cells.why, run.why || '');
  cells.why.title = run.why || '';
};

T.runs.matches = (run) => {
  const words = T.runs.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${run.run} ${run.state} ${T.layoutOf(run)} ${run.why || ''}`.toLowerCase();
  return words.every((word) => text.includes(word));
};

T.runs.draw = () => {
  const { rows } = T.runs, shown = T.state.runs.filter(T.runs.matches), body = T.runs.body;
  for (const [id, row] of rows)
    if (!shown.some((run) => run.id === id)) {
      row.element.remove();
      rows.delete(id);
    }
  shown.forEach((run, at) => {
    if (!rows.has(run.id)) rows.set(run.id, T.runs.makeRow(run));
    const row = rows.get(run.id);
    T.runs.update(row, run);
    if (body.children[at] !== row.element) body.insertBefore(row.element, body.children[at] || null);
  });
  const table = body.parentNode;
  table.classList.toggle('no-left', !shown.some((run) => T.known(run.left_s)));
  table.classList.toggle('no-why', !shown.some((run) => run.why));
  T.runs.count(shown.length);
};

T.runs.count = (shown) => {
  const all = T.state.runs.length, live = T.state.runs.filter(T.isLive).length;
  T.tell(T.id('runs-count'), shown < all ? `${shown} of ${all}` : '');
  T.tell(T.id('summary'), `${all} ${all === 1 ? 'run' : 'runs'}${live ? `, ${live} at work` : ''}`);
  T.id('runs-none').disabled = T.state.selected.length === 0;
  T.id('runs-filter').hidden = all < 6;
  T.runs.empty.hidden = all > 0;
};

T.runs.toggle = (id, on) => {
  const ids = on ? [...T.state.selected, id] : T.state.selected.filter((other) => other !== id);
  if (ids.length > T.maxSelected) {
    T.announce(`${T.maxSelected} runs are shown at most`);
    T.runs.draw();
    return;
  }
  T.select(ids);
};

/* Asks for the list. What changes of its own accord is told: a run that ended badly, say. */
T.runs.load = async () => {
  const doc = await T.data.get('/api/runs');
  const before = new Map(T.state.runs.map((run) => [run.id, run.state]));
  T.state.runs = doc ? doc.runs : [];
  const told = [];
  for (const run of T.state.runs)
    if (before.has(run.id) && before.get(run.id) !== run.state) {
      told.push(`${T.nameOf(run.id)} is now ${run.state}`);
      T.emit('state', run);
    }
  if (told.length) T.announce(told.join('; '));
  T.emit('runs');
};

T.runs.begin = () => {
  T.runs.body = T.el('tbody', {});
  T.runs.empty = T.el('p', { class: 'soft', hidden: true }, 'There are no runs here yet. They appear when they begin.');
  T.fill(T.id('runs-list'), T.runs.empty, T.el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'list of runs' },
    T.el('table', { class: 'runs' }, T.el('caption', { class: 'hidden' }, 'Runs: tick those whose curves are to be compared'),
      T.el('thead', {}, T.el('tr', {}, T.runs.columns.map((title) =>
        T.el('th', { scope: 'col', class: title }, title || T.el('span', { class: 'hidden' }, 'shown'))))), T.runs.body)));
  T.id('runs-filter').addEventListener('input', (event) => {
    T.runs.filter = event.target.value;
    T.runs.draw();
  });
  T.id('runs-none').addEventListener('click', () => T.select([]));
  const draw = T.throttle(250, T.runs.draw);
  T.on('runs', T.runs.draw);
  T.on('selected', T.runs.draw);
  T.on('lines', draw);
};
